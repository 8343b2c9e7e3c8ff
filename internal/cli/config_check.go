package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

func newConfigPath() *cobra.Command {
	var opts configShowOptions
	cmd := &cobra.Command{
		Use:     "path",
		Short:   "Print which files are looked at",
		Long:    "Print which files are looked at, the one that goes over the other last, and\nwhether they exist.",
		Example: "nestor config path\nnestor config path --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := projectDir(opts.dir)
			if err != nil {
				return fmt.Errorf("config path: %w", err)
			}
			files, err := configFiles(dir, variables(os.Environ()))
			if err != nil {
				return err
			}
			if opts.asJSON {
				return printPathsJSON(cmd.OutOrStdout(), files)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, f := range files {
				fmt.Fprintf(table, "%s\t%s\t%s\n", f.owner, f.state(), quotedUnlessPlain(f.path))
			}
			return table.Flush()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.dir, "dir", "", "look for the project of `DIR` (default the current folder)")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

func printPathsJSON(w io.Writer, files []configFile) error {
	type file struct {
		Owner string `json:"owner"`
		Path  string `json:"path"`
		State string `json:"state"`
	}
	doc := struct {
		Files []file `json:"files"`
	}{}
	for _, f := range files {
		doc.Files = append(doc.Files, file{f.owner, f.path, f.state()})
	}
	return printJSON(w, doc)
}

// state tells whether f exists.
func (f configFile) state() string {
	switch _, err := os.Stat(f.path); {
	case err == nil:
		return "exists"
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	}
	return "unreadable"
}

func newConfigCheck() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Tell what is wrong with the configuration",
		Long: `Tell what is wrong with the configuration: with FILE, or without one with all
files that are looked at and the environment.

A FILE is checked as one of a project, unless it is your own.`,
		Example: "nestor config check\nnestor config check .nestor/config.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse(cmd, "takes one file at most, got %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			project, err := projectDir(dir)
			if err != nil {
				return fmt.Errorf("config check: %w", err)
			}
			files, err := configFiles(project, variables(os.Environ()))
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if _, err := loadConfig(project, os.Environ(), nil); err != nil {
					return err
				}
				return printChecked(cmd.OutOrStdout(), files)
			}
			f, err := configFileOf(args[0], files)
			if err != nil {
				return fmt.Errorf("config check: %w", err)
			}
			if err := checkConfig(f); err != nil {
				return err
			}
			return printChecked(cmd.OutOrStdout(), []configFile{f})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "check it for the project of `DIR` (default the current folder)")
	return cmd
}

// configFileOf returns the file of that name: the user's if it is that one,
// otherwise one of a project.
func configFileOf(name string, files []configFile) (configFile, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return configFile{}, err
	}
	for _, f := range files {
		if f.owner == "user" && f.path == path {
			return f, nil
		}
	}
	return configFile{"project", path, name}, nil
}

// checkConfig tells what is wrong with one file.
func checkConfig(f configFile) error {
	home, _ := os.UserHomeDir()
	l := newConfigLoader(home)
	l.add(l.file(f, true))
	l.checkRoles()
	return yamltree.Join(l.errs)
}

func printChecked(w io.Writer, files []configFile) error {
	for _, f := range files {
		state := "ok"
		if f.state() == "missing" {
			state = "not there, which is fine"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", quotedUnlessPlain(f.shown), state); err != nil {
			return err
		}
	}
	return nil
}
