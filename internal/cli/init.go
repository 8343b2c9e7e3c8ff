package cli

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// example is what 'nestor init' writes.
//
//go:embed all:example
var example embed.FS

func newInit() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write an example project to begin with",
		Long: `Write an example project into DIR, or into the current folder: a swarm with two
agents, a skill with a tool of its own, a command, a graph and a config, all with
comments. What is there already is left alone: if one of the files is, nothing is
written, unless --force replaces it.`,
		Example: "nestor init\nnestor init playground",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse(cmd, "takes one folder at most, got %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if err := initProject(dir, force, cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("init: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace files that are there")
	return cmd
}

// initProject writes the example into dir, all of it or nothing that was there
// before.
func initProject(dir string, force bool, stdout io.Writer) error {
	files, err := exampleFiles()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var there []string
	for _, name := range files {
		switch _, err := root.Lstat(filepath.FromSlash(name)); {
		case err == nil:
			there = append(there, name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if len(there) > 0 && !force {
		return fmt.Errorf("there is %s already; nothing is written: choose another folder, or replace it with --force", strings.Join(there, ", "))
	}
	for _, name := range files {
		data, err := example.ReadFile("example/" + name)
		if err != nil {
			return err
		}
		if err := writeExample(root, name, data); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "wrote %s\n", filepath.ToSlash(filepath.Join(dir, name)))
	}
	return printNext(stdout, dir)
}

func exampleFiles() (files []string, err error) {
	err = fs.WalkDir(example, "example", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(name, "example/"))
		}
		return err
	})
	return files, err
}

// writeExample writes one file. A link that is there is replaced, not followed.
func writeExample(root *os.Root, name string, data []byte) error {
	name = filepath.FromSlash(name)
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o755
	}
	folder := fs.FileMode(0o755)
	if strings.HasPrefix(name, ".nestor") {
		folder = 0o700
	}
	if err := root.MkdirAll(filepath.Dir(name), folder); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.WriteFile(name, data, mode)
}

// printNext says what can be done with the example.
func printNext(w io.Writer, dir string) error {
	into := ""
	if dir != "." {
		into = "  cd " + shellQuote(dir) + "\n"
	}
	_, err := fmt.Fprintf(w, `
Next:
%s  nestor agents list
  nestor agents show story/writer --input "Write about the sea."
  nestor run --agent story/writer --set lines=6 "Write about the sea."
  nestor run --agent explain graphs/example.yaml
  nestor graph run graphs/example.yaml
  nestor config trust          # the skill word-count runs a command
  nestor run --agent word-count "How many words has: to be or not to be"
`, into)
	return err
}
