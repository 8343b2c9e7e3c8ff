package cli

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

// trustVariable trusts the file of any project if it is 1, for machines on which
// nobody could be asked.
const trustVariable = variablePrefix + "TRUST_PROJECT"

// wish is a value in a project's file that counts only if the user trusts it: it
// says what is executed or approved, or where prompts and keys are sent. Who
// clones a project has not chosen it.
type wish struct {
	key   configKey
	words []string
	line  int
	err   error // that it is not trusted, with its place
}

// wants tells whether words as the value of k need trust.
func (k configKey) wants(words []string) bool { return k.trust != nil && k.trust(words) }

// always is the trust of keys whose every value needs it.
func always([]string) bool { return true }

// someTools says that a list approves what is in it.
func someTools(words []string) bool { return len(words) > 0 }

// widerMode tells whether a permission mode allows more than the default does.
func widerMode(words []string) bool {
	return !slices.Contains([]string{"default", "plan", "dontAsk", "acceptEdits"}, words[0])
}

// nobody tells whether work is merged that nobody has looked at.
func nobody(words []string) bool { return words[0] == "none" }

// weaker tells whether a sandbox may be less than what the user chose.
func weaker(words []string) bool { return words[0] != "strict" }

func newWish(k configKey, words []string, field yamltree.Field) wish {
	return wish{k, words, field.Place.Line(), field.Place.Errorf(
		"%s counts only if you trust this file: see what it wants with 'nestor config show', then run 'nestor config trust' (where nobody can, set %s=1)",
		k.name, trustVariable)}
}

// fingerprint stands for the wishes of a file: a change of any of them changes
// it, and nothing else does.
func fingerprint(wishes []wish) string {
	list := make([][]string, len(wishes))
	for i, w := range wishes {
		list[i] = append([]string{w.key.name}, w.words...)
	}
	slices.SortFunc(list, slices.Compare)
	data, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings are JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// trusted is what the user trusts: fingerprints, by the path of the file.
type trusted struct {
	Projects map[string]string `json:"projects"`
	Agents   map[string]string `json:"agents,omitempty"` // of what agents of projects want
}

// trustFile returns where that is kept: beside the user's config. It is empty if
// there is no place for it.
func trustFile(files []configFile) string {
	for _, f := range files {
		if f.owner == "user" {
			return filepath.Join(filepath.Dir(f.path), "trusted.json")
		}
	}
	return ""
}

// readTrusted reads the file. One that is not there trusts nothing.
func readTrusted(file string) (trusted, error) {
	t := trusted{Projects: map[string]string{}, Agents: map[string]string{}}
	if file == "" {
		return t, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("reading what you trust: %s: %w; mend it or remove it", file, plainError(err))
	}
	if t.Projects == nil {
		t.Projects = map[string]string{}
	}
	if t.Agents == nil {
		t.Agents = map[string]string{}
	}
	return t, nil
}

// write writes the file, whole or not at all.
func (t trusted) write(file string) error {
	data, err := json.MarshalIndent(t, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = writeFile(file, string(data), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing what you trust: %w", err)
	}
	return nil
}

func newConfigTrust() *cobra.Command {
	var dir string
	var remove bool
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Trust what the project's config and agents want",
		Long: `Print the values in the project's .nestor/config.yaml that say what is executed or
approved, or where prompts and keys are sent, and what its agents want to be executed
or approved, and trust them from now on. On a terminal you are asked first.

Until then such values do not count, and commands that would need them fail.
When one of them changes, it has to be trusted again; other changes do not
matter. What the files hold that they name is not looked at.`,
		Example: "nestor config trust\nnestor config trust --remove",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			project, err := projectDir(dir)
			if err == nil {
				err = configTrust(project, remove, cmd.InOrStdin(), cmd.OutOrStdout())
			}
			if err != nil {
				return fmt.Errorf("config trust: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "trust the project of `DIR` (default the current folder)")
	cmd.Flags().BoolVar(&remove, "remove", false, "trust it no more")
	return cmd
}

func configTrust(project string, remove bool, stdin io.Reader, stdout io.Writer) error {
	vars := variables(os.Environ())
	if run := vars[variablePrefix+"RUN_ID"]; run != "" {
		return &codedError{exitRefused, fmt.Errorf("this is run %s: only a person can trust a project", run)}
	}
	files, err := configFiles(project, vars)
	if err != nil {
		return err
	}
	file, mine := trustFile(files), files[len(files)-1]
	if file == "" {
		return fmt.Errorf("there is no place to keep it: set HOME or XDG_CONFIG_HOME, or %s=1", trustVariable)
	}
	all, err := readTrusted(file)
	if err != nil {
		return err
	}
	wishful := wishfulAgents(project)
	if remove {
		delete(all.Projects, mine.path)
		inside := project + string(filepath.Separator)
		maps.DeleteFunc(all.Agents, func(path, _ string) bool { return strings.HasPrefix(path, inside) })
		if err := all.write(file); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stdout, "%s is not trusted\n", quotedUnlessPlain(mine.path))
		return err
	}
	l := newConfigLoader(vars["HOME"])
	l.add(l.file(mine, false))
	if l.errs != nil {
		return yamltree.Join(l.errs)
	}
	home, known := filepath.Join(project, ".nestor"), knownFile(files, project)
	strange, err := foreign(home, known)
	if err != nil {
		return err
	}
	if len(l.wishes) == 0 && !strange && len(wishful) == 0 {
		_, err := fmt.Fprintf(stdout, "%s wants nothing that needs trust\n", quotedUnlessPlain(mine.path))
		return err
	}
	if err := printWishes(stdout, mine, l.wishes); err != nil {
		return err
	}
	if err := printAgentWishes(stdout, wishful); err != nil {
		return err
	}
	if strange {
		fmt.Fprintf(stdout, "%s holds runs that were not submitted here, and may go on\n", quotedUnlessPlain(home))
	}
	if terminalOf(stdin) != nil && !confirmed(stdin, stdout) {
		return errors.New("nothing is changed")
	}
	all.Projects[mine.path] = fingerprint(l.wishes)
	for _, d := range wishful {
		all.Agents[d.Source.Path] = d.Fingerprint()
	}
	if err := all.write(file); err != nil {
		return err
	}
	if strange {
		if err := acquaint(home, known); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s is trusted\n", quotedUnlessPlain(mine.path))
	return err
}

func printWishes(w io.Writer, f configFile, wishes []wish) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, wish := range wishes {
		value := valueText(wish.words)
		if len(wish.words) == 1 {
			value = wish.words[0]
		}
		if wish.key.secret {
			value = "(set)"
		}
		fmt.Fprintf(table, "%s:%d\t%s\t%s\n", quotedUnlessPlain(f.shown), wish.line, quotedUnlessPlain(wish.key.name), quotedUnlessPlain(value))
	}
	return table.Flush()
}

// confirmed asks a person.
func confirmed(stdin io.Reader, stdout io.Writer) bool {
	fmt.Fprint(stdout, "Trust it? [y/N] ")
	answer, _ := bufio.NewReader(io.LimitReader(stdin, 1000)).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
