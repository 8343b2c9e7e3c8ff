package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

func newAgents() *cobra.Command {
	group := newGroup("agents", "See and check the agents of a project",
		newAgentsList(),
		newAgentsShow(),
		newAgentsCheck(),
	)
	group.Example = "nestor agents list\nnestor agents show reviewer --input \"the last commit\"\nnestor agents check"
	return group
}

// libraryOf returns the agents of a project and of the user.
func libraryOf(project string) *agentfile.Library {
	return agentfile.NewLibrary(agentfile.Options{Project: project, User: userAgents(variables(os.Environ())), Roles: rolesOf(project)})
}

// rolesOf returns the roles that the config has; none if it cannot be read, which
// others tell.
func rolesOf(project string) []string {
	cfg, _, err := examineConfig(project, os.Environ(), nil)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Roles))
}

// userAgents returns the folder of the user's own agents; empty if the environment
// does not say where it would be.
func userAgents(vars map[string]string) string {
	if dir := vars["CLAUDE_CONFIG_DIR"]; filepath.IsAbs(dir) {
		return dir
	}
	if home := vars["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, ".claude")
	}
	return ""
}

type agentsListOptions struct {
	dir    string
	kind   string
	asJSON bool
}

func newAgentsList() *cobra.Command {
	var opts agentsListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents, skills and commands, and where each comes from",
		Long: `List agents, skills and commands, and where each comes from: those that are
built in, your own below ~/.claude, the project's below .claude, and those of its
swarms. Of two with the same name the later one counts; the other is listed too.`,
		Example: "nestor agents list\nnestor agents list --kind skill --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch agentfile.Kind(opts.kind) {
			case "", agentfile.Agent, agentfile.Skill, agentfile.Command:
			default:
				return misuse(cmd, "--kind %q: want agent, skill or command", opts.kind)
			}
			project, err := projectDir(opts.dir)
			if err != nil {
				return fmt.Errorf("agents list: %w", err)
			}
			set, err := libraryOf(project).Load()
			entries := set.Entries()
			if opts.kind != "" {
				entries = slices.DeleteFunc(entries, func(e agentfile.Entry) bool { return string(e.Kind) != opts.kind })
			}
			if opts.asJSON {
				if err := printAgentsJSON(cmd.OutOrStdout(), entries); err != nil {
					return err
				}
			} else if err := printAgents(cmd.OutOrStdout(), entries); err != nil {
				return err
			}
			if err != nil {
				return fmt.Errorf("agents list: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.kind, "kind", "", "only those of a `KIND`: agent, skill or command")
	flags.StringVar(&opts.dir, "dir", "", "look for the project of `DIR` (default the current folder)")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

func printAgents(w io.Writer, entries []agentfile.Entry) error {
	page := newRunsPage(w)
	rows := [][]cell{cells("NAME", "KIND", "FROM", "WHAT")}
	for _, e := range entries {
		what := ""
		d, ok := e.Definition()
		switch {
		case !ok:
			what = "broken: " + firstProblem(e.Problems)
		case e.ShadowedBy != "":
			what = "not used: " + e.ShadowedBy + " goes over it"
		default:
			what = d.Description
		}
		rows = append(rows, cells(plainLine(e.Address(), 40), string(e.Kind), plainLine(e.Source.File, 60), orDash(plainLine(what, 80))))
	}
	return page.table(rows)
}

func firstProblem(problems []agentfile.Problem) string {
	for _, p := range problems {
		if !p.Warning {
			return p.Error()
		}
	}
	return ""
}

// agentRow is an agent in JSON.
type agentRow struct {
	Name        string              `json:"name"`
	Kind        agentfile.Kind      `json:"kind"`
	Scope       agentfile.Scope     `json:"scope"`
	File        string              `json:"file"`
	Description string              `json:"description,omitempty"`
	ShadowedBy  string              `json:"shadowed_by,omitempty"`
	SHA256      string              `json:"sha256,omitempty"`
	Problems    []agentfile.Problem `json:"problems,omitempty"`
}

func printAgentsJSON(w io.Writer, entries []agentfile.Entry) error {
	rows := []agentRow{}
	for _, e := range entries {
		d, _ := e.Definition()
		rows = append(rows, agentRow{e.Address(), e.Kind, e.Source.Scope, e.Source.File, d.Description, e.ShadowedBy, d.Hash, e.Problems})
	}
	return printJSON(w, map[string][]agentRow{"agents": rows})
}
