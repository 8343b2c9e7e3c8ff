package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

type agentsCheckOptions struct {
	strict bool
	asJSON bool
}

func newAgentsCheck() *cobra.Command {
	var opts agentsCheckOptions
	cmd := &cobra.Command{
		Use:   "check [PATH]...",
		Short: "Tell what is wrong with agents",
		Long: `Tell what is wrong with agents, skills and commands: with those of the project, or
with files and folders that are named. A folder that holds .claude or swarms is
checked as a project; of another, every Markdown file is.

The exit code is 1 if a file cannot be used; with --strict also for warnings.`,
		Example: "nestor agents check\nnestor agents check .claude/agents/reviewer.md swarms/",
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []agentfile.Entry
			var err error
			if len(args) == 0 {
				var project string
				if project, err = projectDir(""); err == nil {
					all, err = projectEntries(project)
				}
			}
			for _, name := range args {
				entries, oneErr := entriesAt(name)
				all, err = append(all, entries...), errors.Join(err, oneErr)
			}
			if err != nil {
				return fmt.Errorf("agents check: %w", err)
			}
			return reportAgents(cmd.OutOrStdout(), all, opts)
		},
	}
	cmd.Flags().BoolVar(&opts.strict, "strict", false, "take warnings for errors")
	cmd.Flags().BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

// entriesAt returns the agents in a file or a folder.
func entriesAt(name string) ([]agentfile.Entry, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no %s", name)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []agentfile.Entry{entryOf(name, rolesAt(name))}, nil
	}
	for _, part := range []string{".claude", "swarms"} {
		if info, err := os.Stat(filepath.Join(name, part)); err == nil && info.IsDir() {
			return projectEntries(name)
		}
	}
	var entries []agentfile.Entry
	roles := rolesAt(name)
	err = filepath.WalkDir(name, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != name && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.IsDir() && strings.EqualFold(filepath.Ext(file), ".md") && isAgentFile(file):
			entries = append(entries, entryOf(file, roles))
		}
		return nil
	})
	return entries, err
}

// rolesAt returns the roles of the project that a file or folder belongs to.
func rolesAt(name string) []string {
	project, err := projectDir(filepath.Dir(name))
	if err != nil {
		return nil
	}
	return rolesOf(project)
}

// projectEntries returns the agents of a project, with what is wrong between them.
func projectEntries(dir string) ([]agentfile.Entry, error) {
	set, err := libraryOf(dir).Load()
	if err != nil {
		return nil, err
	}
	var entries []agentfile.Entry
	for _, e := range set.Entries() {
		if e.Source.Scope != agentfile.Project && e.Source.Scope != agentfile.Swarm {
			continue
		}
		if d, ok := e.Definition(); ok {
			for _, name := range d.Delegates {
				if _, err := set.Find(name, e.Source.Swarm); err != nil {
					e.Problems = append(e.Problems, agentfile.Problem{File: e.Source.File, Message: "delegates: " + err.Error(), Warning: true})
				}
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// isAgentFile tells whether a Markdown file is one of an agent: in the folder of a
// skill, only SKILL.md is.
func isAgentFile(name string) bool {
	if path.Base(filepath.ToSlash(name)) == "SKILL.md" {
		return true
	}
	for dir := filepath.Dir(name); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "SKILL.md")); err == nil {
			return false
		}
	}
	return true
}

// entryOf reads one file. Of which kind it is, its place says.
func entryOf(name string, roles []string) agentfile.Entry {
	kind, called := placeOf(name)
	e := agentfile.Entry{Name: called, Kind: kind, Source: agentfile.Source{Scope: agentfile.Project, File: filepath.ToSlash(name)}}
	data, err := readAgent(name)
	if err != nil {
		e.Problems = []agentfile.Problem{{File: e.Source.File, Message: err.Error()}}
		return e
	}
	_, e.Problems = agentfile.Parse(e.Source, kind, called, data, roles)
	return e
}

// readAgent returns a little more than a file may have.
func readAgent(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, plainError(err)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, plainError(err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, agentfile.MaxFile+1))
}

// placeOf says of which kind a file is by its place, and its name.
func placeOf(name string) (agentfile.Kind, string) {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	parts := strings.Split(filepath.ToSlash(name), "/")
	stem := strings.TrimSuffix(parts[len(parts)-1], filepath.Ext(name))
	if stem == "SKILL" && len(parts) > 1 {
		return agentfile.Skill, parts[len(parts)-2]
	}
	for i := len(parts) - 2; i >= 0; i-- {
		switch parts[i] {
		case "commands":
			return agentfile.Command, strings.Join(append(parts[i+1:len(parts)-1:len(parts)-1], stem), ":")
		case "agents":
			return agentfile.Agent, stem
		}
	}
	return agentfile.Agent, stem
}

// reportAgents prints what is wrong.
func reportAgents(w io.Writer, entries []agentfile.Entry, opts agentsCheckOptions) error {
	broken, warned := 0, 0
	problems := []agentfile.Problem{}
	for _, e := range entries {
		bad, dubious := false, false
		for _, p := range e.Problems {
			problems = append(problems, p)
			bad, dubious = bad || !p.Warning, dubious || p.Warning
		}
		if bad {
			broken++
		} else if dubious {
			warned++
		}
	}
	if opts.asJSON {
		if err := printJSON(w, map[string]any{"files": len(entries), "broken": broken, "problems": problems}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			prefix := ""
			if p.Warning {
				prefix = "warning: "
			}
			fmt.Fprintf(w, "%s%s\n", prefix, oneLine(printable(p.Error())))
		}
		if _, err := fmt.Fprintf(w, "%d files: %d good, %d with warnings, %d broken\n", len(entries), len(entries)-broken-warned, warned, broken); err != nil {
			return err
		}
	}
	switch {
	case broken > 0:
		return fmt.Errorf("agents check: %d of %d files cannot be used", broken, len(entries))
	case opts.strict && warned > 0:
		return fmt.Errorf("agents check: %d of %d files have warnings", warned, len(entries))
	}
	return nil
}
