package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/graph"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/spawn"
)

func newGraph() *cobra.Command {
	cmd := newGroup("graph", "Run tasks that depend on each other",
		newGraphRun(),
		newGraphResume(),
		newGraphCheck(),
	)
	cmd.Example = "nestor graph check graphs/example.yaml\nnestor graph run graphs/example.yaml"
	return cmd
}

type graphOptions struct {
	runOptions
	fresh  bool
	before *api.Run // of the graph, which goes on where it was; nil if it is new
}

func (opts *graphOptions) addFlags(cmd *cobra.Command) {
	opts.addRunFlags(cmd)
	cmd.Flags().BoolVar(&opts.fresh, "fresh", false, "run every task, also those whose result is known")
}

// addRunFlags adds those flags of 'run' that count for a graph.
func (opts *graphOptions) addRunFlags(cmd *cobra.Command) {
	all := &cobra.Command{}
	opts.runOptions.addFlags(all)
	for _, name := range []string{"agent", "schema", "input", "focus-file", "set"} {
		if f := all.Flags().Lookup(name); f != nil {
			f.Hidden = true
		}
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(all.Flags())
}

func newGraphRun() *cobra.Command {
	var opts graphOptions
	cmd := &cobra.Command{
		Use:   "run [flags] FILE [NAME=VALUE]...",
		Short: "Run the tasks of a graph, each when those before it have ended",
		Long: `Run the tasks of a graph, each when those before it have ended, as many at once
as the limits allow. NAME=VALUE sets an input of the graph.

What a task gave before, with the same agent, input, schema, model and tools,
counts, and it is not run again; with --fresh it is. See docs/graphs.md for what
can be in the file.`,
		Example: "nestor graph run graphs/example.yaml\nnestor graph run review.yaml area='the parser' --max-budget-usd 2",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse(cmd, "no file: name the graph")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := readGraph(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("graph run: %w", err)
			}
			if err := setInputs(cmd, &g, args[1:]); err != nil {
				return err
			}
			return graphRun(cmd, "graph run", g, opts)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newGraphResume() *cobra.Command {
	var opts graphOptions
	cmd := &cobra.Command{
		Use:   "resume [flags] ROOT",
		Short: "Run a graph again, but for the tasks whose result is known",
		Long: `Run the graph of a run again, but for the tasks whose result is known: what
failed, what was skipped, and what comes after it. If its worktree was kept, it
goes on there.

A graph that was cut off by a crash needs no command: it goes on when the next
command of the project runs. This one follows it then.`,
		Example: "nestor graph resume 5a1c2b3d",
		Args:    runArgs("the run of a graph"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var g nestor.Graph
			err := withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) (err error) {
				if g, err = graphOf(ctx, client, id); err != nil {
					return err
				}
				run, err := client.Run(ctx, id)
				opts.before = &run
				return err
			})
			if err != nil {
				return err
			}
			if !opts.before.State.Ended() {
				opts.resume = string(opts.before.ID) // which goes on by itself, and is followed
			}
			return graphRun(cmd, "graph resume", g, opts)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

// graphOf returns the graph that a run was.
func graphOf(ctx context.Context, client *api.Client, id nestor.ID) (nestor.Graph, error) {
	for e, err := range client.Events(ctx, id, api.EventsQuery{}) {
		if err != nil {
			return nestor.Graph{}, err
		}
		var told struct{ Graph *nestor.Graph }
		if m, ok := e.(*nestor.ProviderMessage); ok && json.Unmarshal(m.Raw, &told) == nil && told.Graph != nil {
			return *told.Graph, nil
		}
	}
	return nestor.Graph{}, fmt.Errorf("run %s is not that of a graph: see 'nestor runs tree %s'", id, id)
}

// graphRun submits a graph and follows it to its end.
func graphRun(cmd *cobra.Command, what string, g nestor.Graph, opts graphOptions) error {
	if opts.json && opts.stream {
		return misuse(cmd, "--json and --stream-json: it is one or the other")
	}
	if client := agentClient(os.Getenv); client != nil {
		client.Close() // which would be the owner's rights, not the agent's
		return fmt.Errorf("%s: inside of an agent there are no graphs: start their tasks with 'nestor spawn'", what)
	}
	prompt := fmt.Sprintf("graph %s: %s", g.Name, strings.Join(slices.Sorted(maps.Keys(g.Tasks)), ", "))
	if g.Name == "" {
		prompt = strings.Replace(prompt, "graph :", "graph:", 1)
	}
	if err := checkOutput(opts.output); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if opts.resume != "" {
		prompt = ""
	}
	task, d, err := rootTask(cmd, prompt, opts.runOptions)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	o, err := api.ParseTaskOptions(task.Data)
	if err == nil {
		o.Graph, o.Fresh = &g, opts.fresh
		if opts.before != nil && opts.resume == "" {
			goOnWhere(&task, &o, *opts.before) // if it is gone, somewhere else
		}
		err = setOptions(&task, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// As many tasks as a list of tasks has can be below it, unless somebody says.
	if !cmd.Flags().Changed("max-descendants") {
		task.Limits.Descendants = 0
	}
	d.Lone = true
	return newFollowing(cmd, opts.runOptions, d, task).command(cmd, what)
}

// readGraph reads a graph from a file; its schemas may be in files beside it.
func readGraph(ctx context.Context, name string) (nestor.Graph, error) {
	text, err := readText(ctx, name)
	if err != nil {
		return nestor.Graph{}, err
	}
	return graph.Parse(name, []byte(text), func(schema string) ([]byte, error) {
		if !filepath.IsLocal(schema) {
			return nil, fmt.Errorf("%.200q is not beside the graph", schema)
		}
		text, err := readText(ctx, filepath.Join(filepath.Dir(name), schema))
		return []byte(text), err
	})
}

// setInputs sets inputs of a graph as the command line says.
func setInputs(cmd *cobra.Command, g *nestor.Graph, args []string) error {
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return misuse(cmd, "%.60q: want NAME=VALUE, an input of the graph", arg)
		}
		if g.Inputs[name] == nil {
			return misuse(cmd, "input %.60q: the graph has: %s", name, orNone(slices.Sorted(maps.Keys(g.Inputs))))
		}
		raw := json.RawMessage(value)
		var text string
		if json.Unmarshal(g.Inputs[name], &text) == nil || !json.Valid(raw) { // where a text stands, a text is meant
			var err error
			if raw, err = json.Marshal(value); err != nil {
				return err
			}
		}
		g.Inputs[name] = raw
	}
	return nil
}

func newGraphCheck() *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Tell what is wrong with graphs, without running anything",
		Long: `Tell what is wrong with graphs, without running anything: tasks that wait for each
other, agents that there are not, fields that a schema does not have, lists that
are none, outputs that nobody uses.

The exit code is 1 if one cannot be run; with --strict also for warnings.`,
		Example: "nestor graph check graphs/*.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misuse(cmd, "no file: name the graphs")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			project, err := projectDir("")
			if err != nil {
				return fmt.Errorf("graph check: %w", err)
			}
			set, err := libraryOf(project).Load()
			if err != nil {
				return fmt.Errorf("graph check: %w", err)
			}
			cfg, err := loadConfig(project, os.Environ(), nil)
			if err != nil {
				return fmt.Errorf("graph check: %w", err)
			}
			c := graphChecker{
				known: func(agent string) error { _, err := set.Find(agent, ""); return err },
				can:   func(t nestor.Task) error { return canRun(project, cfg, t) },
			}
			return c.check(cmd.Context(), cmd.OutOrStdout(), args, asJSON, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// checkedGraph is what 'graph check --json' says of a file.
type checkedGraph struct {
	File     string          `json:"file"`
	Tasks    []string        `json:"tasks,omitempty"` // in the order in which they can be run
	Error    string          `json:"error,omitempty"` // why it cannot be read
	Problems []graph.Problem `json:"problems,omitempty"`
}

// graphChecker knows what the tasks of graphs may name.
type graphChecker struct {
	known func(agent string) error
	can   func(nestor.Task) error // what it says besides its agent
}

// canRun tells why a task of a graph cannot be run in a project, whatever its agent is.
func canRun(project string, cfg *config, t nestor.Task) error {
	var rights graph.Rights
	if t.Data != nil {
		if err := json.Unmarshal(t.Data, &rights); err != nil {
			return err
		}
	}
	roles, err := permission.Roles(cfg.Roles)
	if err != nil {
		return err
	}
	if t.Provider != "" && !slices.Contains(providers, t.Provider) {
		return fmt.Errorf("provider %.60q: there are %s", t.Provider, strings.Join(providers, ", "))
	}
	if rights.Role != "" && !slices.Contains(roles.Names(), rights.Role) {
		return fmt.Errorf("role %.60q: there are %s", rights.Role, strings.Join(roles.Names(), ", "))
	}
	_, err = spawn.Narrow(nestor.Task{Dir: project}, api.TaskOptions{}, api.Spawn{
		Task: t.Input, Tools: rights.Tools, PermissionMode: rights.PermissionMode, Sandbox: rights.Sandbox, Dir: t.Dir,
	})
	return err
}

func (check graphChecker) check(ctx context.Context, w io.Writer, files []string, asJSON, strict bool) error {
	var list []checkedGraph
	bad := 0
	for _, file := range files {
		c := checkedGraph{File: file}
		g, err := readGraph(ctx, file)
		if err == nil {
			c.Tasks, err = g.Order()
		}
		if err != nil {
			c.Error = err.Error()
			bad++
		} else {
			c.Problems = graph.Check(g, check.known)
			for _, task := range c.Tasks {
				if err := check.can(g.Tasks[task].Task); err != nil {
					c.Problems = append(c.Problems, graph.Problem{Task: task, Message: err.Error()})
				}
			}
			if slices.ContainsFunc(c.Problems, func(p graph.Problem) bool { return strict || !p.Warning }) {
				bad++
			}
		}
		list = append(list, c)
	}
	if asJSON {
		if err := printJSON(w, list); err != nil {
			return err
		}
	} else {
		for _, c := range list {
			switch {
			case c.Error != "":
				fmt.Fprintln(w, c.Error)
			case len(c.Problems) == 0:
				fmt.Fprintf(w, "%s: %d tasks, in this order: %s\n", c.File, len(c.Tasks), strings.Join(c.Tasks, ", "))
			}
			for _, p := range c.Problems {
				fmt.Fprintf(w, "%s: %s\n", c.File, p)
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("graph check: %d of %d graphs cannot be run as they are", bad, len(files))
	}
	return nil
}
