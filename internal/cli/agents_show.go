package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/daemon"
)

type agentsShowOptions struct {
	dir, swarm, input, focus string
	set                      []string
	depth                    int
	asJSON                   bool
}

func newAgentsShow() *cobra.Command {
	var opts agentsShowOptions
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what an agent is told and may do, without running it",
		Long: `Show what an agent is told for an input, the tools, limits and rights that a run of
it has, and where each of them comes from. Nothing is run: commands in its text
are shown as they stand.`,
		Example: "nestor agents show reviewer --input \"the last commit\"\nnestor agents show dev/critic --depth 2 --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misuse(cmd, "takes the name of one agent, got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.depth < 0 {
				return misuse(cmd, "--depth %d: want 0 or more", opts.depth)
			}
			s, err := lookAtAgent(cmd, args[0], opts)
			if err != nil {
				return fmt.Errorf("agents show: %w", err)
			}
			if opts.asJSON {
				return printJSON(cmd.OutOrStdout(), s.document())
			}
			return s.print(cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.input, "input", "", "render it for `TEXT`")
	flags.StringArrayVar(&opts.set, "set", nil, "with the input `NAME=VALUE`; may be repeated")
	flags.StringVar(&opts.focus, "focus-file", "", "about `FILE`")
	flags.IntVar(&opts.depth, "depth", 0, "as a run that is `N` deep below the root")
	flags.StringVar(&opts.swarm, "swarm", "", "seen from the swarm `NAME`")
	flags.StringVar(&opts.dir, "dir", "", "look for the project of `DIR` (default the current folder)")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

// shownAgent is an agent that is looked at.
type shownAgent struct {
	definition agentfile.Definition
	cfg        *config
	depth      int
	daemon.Explanation
}

func lookAtAgent(cmd *cobra.Command, name string, opts agentsShowOptions) (*shownAgent, error) {
	project, err := projectDir(opts.dir)
	if err != nil {
		return nil, err
	}
	cfg, _, err := examineConfig(project, os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	set, err := libraryOf(project).Load()
	d, findErr := set.Find(name, opts.swarm)
	if findErr != nil {
		return nil, findErr
	}
	if err != nil {
		return nil, err
	}
	o, err := daemonOptions(project, cfg)
	if err != nil {
		return nil, err
	}
	run := runOptions{agent: name, swarm: opts.swarm, dir: opts.dir, focus: opts.focus, set: opts.set}
	t, err := taskOf(opts.input, cfg, run, nil)
	if err != nil {
		return nil, err
	}
	s := &shownAgent{definition: d, cfg: cfg, depth: opts.depth}
	if missing := unset(d, opts.set); len(missing) > 0 {
		for _, in := range missing {
			run.set = append(run.set, in+"=("+in+")")
		}
		if t, err = taskOf(opts.input, cfg, run, nil); err != nil {
			return nil, err
		}
	}
	s.Explanation, err = o.Explain(d, t)
	return s, err
}

// unset returns the required inputs that were not given and can be shown as texts.
func unset(d agentfile.Definition, set []string) (names []string) {
	for _, in := range d.Inputs {
		given := slices.ContainsFunc(set, func(kv string) bool { return strings.HasPrefix(kv, in.Name+"=") })
		if in.Required && !given && string(in.Schema) == `{"type":"string"}` {
			names = append(names, in.Name)
		}
	}
	return names
}

// row is one thing that a run has, and where it comes from.
type row struct{ what, value, from string }

// rows returns what a run of the agent has.
func (s *shownAgent) rows() []row {
	d, file := s.definition, s.definition.Source.File
	from := func(key string, defined bool) string {
		if defined {
			return file
		}
		return s.cfg.origin(key)
	}
	both := func(key string, defined bool) string {
		if defined && s.cfg.origin(key) != "default" {
			return file + ", and " + s.cfg.origin(key)
		}
		return from(key, defined)
	}
	tools := "all"
	if s.Options.Tools != nil {
		tools = orNone(s.Options.Tools)
	}
	rows := []row{
		{"provider", s.Task.Provider, from("provider", d.Provider != "")},
		{"model", orText(s.Task.Model, "the provider's"), from("model", d.Model != "")},
		{"tools", tools, s.toolsFrom(both)},
	}
	add := func(what, value, from string) {
		if value != "" {
			rows = append(rows, row{what, value, from})
		}
	}
	add("denied tools", strings.Join(d.DisallowedTools, ", "), file)
	for _, t := range d.CustomTools {
		add("custom tool", fmt.Sprintf("%s: %q", t.ToolName(), t.Command), file)
	}
	for _, name := range slices.Sorted(maps.Keys(d.MCPServers)) {
		m := d.MCPServers[name]
		add("MCP server", name+": "+strings.TrimSpace(m.URL+" "+strings.Join(append([]string{m.Command}, m.Args...), " ")), file)
	}
	for _, h := range d.Hooks {
		add("hook", h.String(), file)
	}
	for _, c := range d.Carried {
		add("skill", c.Name+": its text, its files and its custom tools", c.Source.File)
		for _, t := range c.CustomTools {
			add("custom tool", fmt.Sprintf("%s: %q", t.ToolName(), t.Command), c.Source.File)
		}
	}
	add("memory", s.Memory, file)
	if len(d.MemoryTools) > 0 {
		add("for the memory alone", strings.Join(d.MemoryTools, ", "), file)
	}
	add("workspace", s.Options.Workspace.Kind, from("workspace.kind", d.Worktree))
	add("permission mode", s.Options.PermissionMode, from("permission_mode", d.PermissionMode != "" && s.Options.PermissionMode == d.PermissionMode))
	l := s.Task.Limits
	add("turns", fmt.Sprint(l.Turns), from("limits.max_turns", d.Limits.Turns != 0))
	add("time", fmt.Sprint(l.Timeout), from("limits.timeout", d.Limits.Timeout != 0))
	if l.BudgetUSD > 0 {
		add("budget", fmt.Sprintf("$%v", l.BudgetUSD), from("limits.max_budget_usd", d.Limits.BudgetUSD != 0))
	}
	add("depth", fmt.Sprintf("%d of %d", s.depth, l.Depth), from("limits.max_depth", d.MaxDepth != 0))
	may, why := s.spawns()
	add("may start agents", may, why)
	for _, in := range d.Inputs {
		value := string(s.Options.Inputs[in.Name])
		if value == "" {
			value = "not given"
		}
		add("input "+in.Name, value, file)
	}
	if s.Task.Schema != nil {
		add("result schema", string(s.Task.Schema), file)
	}
	return rows
}

func (s *shownAgent) toolsFrom(both func(string, bool) string) string {
	if s.definition.Tools != nil && s.definition.Kind != agentfile.Agent && !strings.Contains(strings.Join(s.definition.Tools, ","), "(") &&
		slices.Equal(s.definition.Tools, agentfile.BaseTools()) {
		return "those of a " + string(s.definition.Kind)
	}
	return both("tools", s.definition.Tools != nil)
}

// spawns says whether the run may start others, and by what.
func (s *shownAgent) spawns() (string, string) {
	switch {
	case s.Policy != nil && !s.Policy.Spawn:
		return "no", "role " + s.Policy.Role
	case s.depth >= s.Task.Limits.Depth:
		return "no", fmt.Sprintf("at depth %d of %d", s.depth, s.Task.Limits.Depth)
	case s.definition.Delegates != nil:
		return orNone(s.definition.Delegates), s.definition.Source.File
	}
	return "any", "default"
}

// bounds returns what the role leaves.
func (s *shownAgent) bounds() []row {
	p := s.Policy
	if p == nil {
		return nil
	}
	from := "role " + p.Role
	yes := map[bool]string{true: "yes", false: "no"}
	rows := []row{
		{"read", orNone(p.Read), from}, {"write", orNone(p.Write), from}, {"commands", p.Bash.String(), from}, {"git", strings.Replace(p.Git.String(), "limited", "workspace", 1), from}, {"web", yes[p.Web], from},
	}
	if p.Hosts != nil {
		rows = append(rows, row{"hosts", orNone(p.Hosts), from})
	}
	return rows
}

func orNone(list []string) string { return orText(strings.Join(list, ", "), "none") }

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (s *shownAgent) print(w io.Writer) error {
	d := s.definition
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s\n", d.Name, d.Kind, d.Source.File)
	if d.Description != "" {
		fmt.Fprintf(&b, "%s\n", printable(d.Description))
	}
	if s.Refused != nil {
		fmt.Fprintf(&b, "\nIt would be refused: %v\n", s.Refused)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table)
	for _, r := range append(s.rows(), s.bounds()...) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.what, clip(oneLine(printable(r.value)), 200), oneLine(printable(r.from)))
	}
	table.Flush()
	if s.Told.Problem != nil {
		fmt.Fprintf(&b, "\nIt cannot be rendered, and is told as it is: %v\n", s.Told.Problem)
	}
	if s.Told.Instructions != "" {
		fmt.Fprintf(&b, "\nInstructions:\n%s\n", printable(s.Told.Instructions))
	}
	fmt.Fprintf(&b, "\nMessage:\n%s\n", orText(printable(s.Told.Message), "(empty: give --input)"))
	_, err := io.WriteString(w, b.String())
	return err
}

// document is the agent in JSON.
func (s *shownAgent) document() any {
	type origin struct {
		Value string `json:"value"`
		From  string `json:"from"`
	}
	effective := map[string]origin{}
	for _, r := range append(s.rows(), s.bounds()...) {
		effective[r.what] = origin{r.value, r.from}
	}
	doc := struct {
		Definition   agentfile.Definition       `json:"definition"`
		Wishes       []agentfile.Wish           `json:"wishes,omitempty"`
		Trusted      bool                       `json:"trusted"`
		Depth        int                        `json:"depth"`
		Effective    map[string]origin          `json:"effective"`
		Limits       nestor.Limits              `json:"limits"`
		Tools        []string                   `json:"tools"`
		Inputs       map[string]json.RawMessage `json:"inputs,omitempty"`
		Policy       any                        `json:"policy,omitempty"`
		Instructions string                     `json:"instructions,omitempty"`
		Message      string                     `json:"message"`
		Problem      string                     `json:"template_error,omitempty"`
	}{
		Definition: s.definition, Wishes: s.definition.Wishes(), Trusted: s.Refused == nil, Depth: s.depth, Effective: effective, Limits: s.Task.Limits,
		Tools: s.Options.Tools, Inputs: s.Options.Inputs, Instructions: s.Told.Instructions, Message: s.Told.Message,
	}
	if s.Policy != nil {
		doc.Policy = s.Policy
	}
	if s.Told.Problem != nil {
		doc.Problem = s.Told.Problem.Error()
	}
	return doc
}
