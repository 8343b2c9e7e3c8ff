package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

type spawnOptions struct {
	runOptions
	task       string
	name       string
	key        string
	background bool
	wait       []string
	any        bool
}

func newSpawn() *cobra.Command {
	var opts spawnOptions
	cmd := &cobra.Command{
		Use:   "spawn --task TEXT [flags]",
		Short: "Start an agent, also from inside of one",
		Long: `Start an agent and print its result. What runs inside of an agent, in its shell or
a script, starts a child of that agent: the daemon that has the agent's run does
the work, with what the agent may do or less. Elsewhere it is as 'nestor run'.

A child that is refused ends the command with 4, and the error names the limit
and what is left of it; other exit codes are those of 'nestor run'.

With --background it prints the id of the run and ends. The agent is told when
the run has ended, and 'nestor spawn --wait ID' waits for it and prints what came
of it; without an id, --wait all waits for all that the agent started so.`,
		Example: `nestor spawn --task "find all callers of Parse" --tools Read,Grep
nestor spawn --task "run the tests" --background --name tests
nestor spawn --wait tests --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse(cmd, "takes no arguments, got %d: the task is --task TEXT", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runSpawn(cmd, opts) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.task, "task", "", "what the agent is told; - reads it from stdin")
	opts.addFlags(cmd)
	flags.StringVar(&opts.trace, "parent-trace", "", "the W3C `TRACEPARENT` that the runs belong to (default that of the environment)")
	flags.StringVar(&opts.name, "name", "", "the `NAME` by which the agent speaks of it")
	flags.StringVar(&opts.key, "key", "", "a second spawn with the same `KEY` is the first one again")
	flags.BoolVar(&opts.background, "background", false, "print the run's id, and do not wait for it")
	flags.StringArrayVar(&opts.wait, "wait", nil, "wait for `RUN`, by id or name, or all; may be repeated")
	flags.BoolVar(&opts.any, "any", false, "with --wait, end when one of them has ended")
	return cmd
}

func runSpawn(cmd *cobra.Command, opts spawnOptions) error {
	switch {
	case len(opts.wait) > 0 && (opts.task != "" || opts.input != "" || opts.background):
		return misuse(cmd, "--wait waits for runs that were started before: leave --task and --background out")
	case len(opts.wait) == 0 && opts.any:
		return misuse(cmd, "--any is for --wait")
	case len(opts.wait) == 0 && opts.task == "" && opts.input == "":
		return misuse(cmd, "no --task")
	case opts.task != "" && opts.input != "":
		return misuse(cmd, "--task and --input: it is one or the other")
	}
	if opts.trace != "" {
		if _, err := api.ParseTrace(opts.trace); err != nil {
			return misuse(cmd, "--parent-trace: %v", err)
		}
	}
	if client := agentClient(os.Getenv); client != nil {
		defer client.Close()
		if err := spawnInside(cmd, client, opts); err != nil {
			return fmt.Errorf("spawn: %w", err)
		}
		return nil
	}
	return spawnOutside(cmd, opts)
}

// agentClient returns the client of a process inside of an agent; nil elsewhere.
func agentClient(env func(string) string) *api.Client {
	socket, token := env(api.SocketVariable), env(api.TokenVariable)
	if socket == "" || token == "" {
		return nil
	}
	return api.NewAgentClient(socket, token)
}

// spawnInside starts a child of the run that this process belongs to, or waits for
// some.
func spawnInside(cmd *cobra.Command, client *api.Client, opts spawnOptions) error {
	ctx := cmd.Context()
	if len(opts.wait) > 0 {
		w := api.WaitFor{Runs: opts.wait, Any: opts.any}
		if len(opts.wait) == 1 && opts.wait[0] == "all" {
			w.Runs = nil
		}
		children, err := client.Await(ctx, w)
		if err != nil {
			return err
		}
		return printChildren(cmd.OutOrStdout(), opts, children, 0)
	}
	s, err := opts.spawn(cmd)
	if err != nil {
		return err
	}
	began := time.Now()
	child, err := client.Spawn(ctx, s)
	if err != nil {
		return err
	}
	if s.Background && !opts.json {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), child.Run)
		return err
	}
	return printChildren(cmd.OutOrStdout(), opts, []api.Child{child}, time.Since(began))
}

// spawn returns what is asked for: what the command line says, and no more. The
// rest is as with the parent.
func (opts spawnOptions) spawn(cmd *cobra.Command) (api.Spawn, error) {
	task, err := opts.text(cmd)
	if err != nil {
		return api.Spawn{}, err
	}
	changed := map[string]string{}
	for _, name := range runKeys {
		k, _ := findKey(name)
		if f := cmd.Flags().Lookup(k.flagWord()); f.Changed {
			changed[name] = f.Value.String()
		}
	}
	here, err := filepath.Abs("")
	if err != nil {
		return api.Spawn{}, err
	}
	if changed["delegation"] != "" {
		return api.Spawn{}, misuse(cmd, "--delegation: inside of an agent it is that of the agent")
	}
	l := &configLoader{config: &config{Models: map[string]string{}, origins: map[string]string{}}}
	l.flags(changed, here)
	if l.errs != nil {
		return api.Spawn{}, yamltree.Join(l.errs)
	}
	s := api.Spawn{
		Task: task, Agent: opts.agent, Name: opts.name, Provider: l.config.Provider, Model: l.config.Model, Tools: l.config.Tools, Role: l.config.Role,
		PermissionMode: l.config.PermissionMode, Sandbox: l.config.Sandbox, Hosts: l.config.Hosts, Env: opts.env, Limits: l.config.Limits, Background: opts.background, Key: opts.key,
	}
	if opts.dir != "" {
		if s.Dir, err = filepath.Abs(opts.dir); err != nil {
			return s, err
		}
	}
	if opts.schema != "" {
		if s.Schema, err = readSchema(cmd.Context(), opts.schema); err != nil {
			return s, err
		}
	}
	return s, nil
}

// text returns the task.
func (opts spawnOptions) text(cmd *cobra.Command) (text string, err error) {
	switch {
	case opts.task == "-" || opts.input == "-":
		text, err = readAll(cmd.Context(), cmd.InOrStdin(), "stdin")
	case opts.task != "":
		text = opts.task
	default:
		text, err = readText(cmd.Context(), opts.input)
	}
	if err == nil && strings.TrimSpace(text) == "" {
		err = misuse(cmd, "the task is empty")
	}
	return text, err
}

// printChildren prints what came of runs, and returns what the exit code is made of.
func printChildren(w io.Writer, opts spawnOptions, children []api.Child, took time.Duration) error {
	var list []runResult
	var text bytes.Buffer
	var outcome error
	for _, c := range children {
		list = append(list, runResult{
			Run: c.Run, Root: c.Root, Parent: c.Parent, Depth: c.Depth, Agent: c.Agent, Status: c.Status, Output: c.Output, Structured: c.Structured,
			Error: c.Error, CostUSD: c.CostUSD, Turns: c.Turns, DurationMS: took.Milliseconds(), Trace: c.Trace, Truncated: c.Truncated, File: c.File,
		})
		said := c.Output
		if c.Structured != nil {
			said = string(c.Structured)
		}
		if len(children) > 1 {
			fmt.Fprintf(&text, "== %s %s\n", cmpName(c), c.Status)
		}
		if said != "" {
			fmt.Fprintln(&text, said)
		}
		if err := childOutcome(c); outcome == nil {
			outcome = err
		}
	}
	if opts.output != "" {
		if err := writeOutput(opts.output, text.String()); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	var err error
	switch {
	case opts.json && len(opts.wait) > 0:
		err = printJSON(w, append([]runResult{}, list...))
	case opts.json:
		err = printJSON(w, list[0])
	default:
		_, err = w.Write(text.Bytes())
	}
	return errors.Join(err, outcome)
}

func cmpName(c api.Child) string {
	if c.Name != "" {
		return c.Name
	}
	return string(c.Run)
}

// childOutcome is the error that a run which is no success ends the command with.
func childOutcome(c api.Child) error {
	if !c.Status.Ended() {
		return nil
	}
	return outcomeOf(api.Run{ID: c.Run, State: c.Status, Result: &nestor.Result{Status: c.Status, Error: c.Error}})
}

// spawnOutside is for who is in no agent: it runs a root, as 'nestor run' does.
func spawnOutside(cmd *cobra.Command, opts spawnOptions) error {
	switch {
	case opts.name != "":
		return misuse(cmd, "--name is for agents, which speak of what they start: outside of one there is the run's id")
	case len(opts.wait) == 0 && !opts.background:
		text, err := opts.text(cmd)
		if err != nil {
			return err
		}
		opts.input = ""
		return runRun(cmd, []string{text}, opts.runOptions)
	}
	return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
		info, err := client.Info(ctx)
		if err != nil {
			return err
		}
		if info.Lone {
			return errors.New("no daemon would have the run when this command ends: start 'nestor serve' first, or leave --background and --wait out")
		}
		if opts.background {
			return submitBackground(ctx, cmd, client, opts)
		}
		var list []api.Child
		for _, text := range opts.wait {
			id, err := resolveRun(ctx, client, text)
			if err != nil {
				return err
			}
			run, err := client.Wait(ctx, id)
			if err != nil {
				return err
			}
			list = append(list, childOf(run))
		}
		return printChildren(cmd.OutOrStdout(), opts, list, 0)
	})
}

// submitBackground submits a root and prints its id.
func submitBackground(ctx context.Context, cmd *cobra.Command, client *api.Client, opts spawnOptions) error {
	text, err := opts.text(cmd)
	if err != nil {
		return err
	}
	task, _, err := rootTask(cmd, text, opts.runOptions)
	if err != nil {
		return err
	}
	run, err := client.Submit(ctx, api.Submission{Task: task, Key: opts.key})
	if err != nil {
		return err
	}
	if opts.json {
		return printJSON(cmd.OutOrStdout(), runResult{Run: run.ID, Root: run.Root, Agent: run.Agent, Status: run.State, Trace: run.Trace})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), run.ID)
	return err
}

// childOf returns a run as one that was started.
func childOf(run api.Run) api.Child {
	c := api.Child{
		Run: run.ID, Root: run.Root, Parent: run.Parent, Depth: run.Depth, Agent: run.Agent, Status: run.State, CostUSD: run.CostUSD + run.BelowUSD,
		Turns: run.Turns, Error: run.Error, Trace: run.Trace,
	}
	if r := run.Result; r != nil {
		c.Output, c.Structured, c.Error, c.Truncated, c.File = r.Output, r.Structured, r.Error, r.Truncated, r.File
	}
	return c
}

// readSchema reads the schema of a result from a file.
func readSchema(ctx context.Context, file string) (json.RawMessage, error) {
	text, err := readText(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("--schema: %w", err)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("--schema %s: it is no JSON", file)
	}
	if err := (&nestor.Task{Schema: json.RawMessage(text)}).Check(); err != nil {
		return nil, fmt.Errorf("--schema %s: %w", file, err)
	}
	return json.RawMessage(text), nil
}
