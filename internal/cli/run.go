package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
)

type runOptions struct {
	agent, swarm, dir   string
	label               string
	schema, output      string
	input, focus        string
	resume              string
	person              bool   // somebody is there to be asked
	trace               string // W3C traceparent; empty means that of the environment
	env, set            []string
	json, stream, quiet bool
	verbose             bool
}

// runKeys are the keys of the config that 'run' has flags for, in the order of
// its help.
var runKeys = []string{
	"provider", "model", "tools", "permission_mode", "limits.max_turns", "limits.max_depth", "limits.max_budget_usd", "limits.timeout",
	"limits.silence", "limits.limit_wait", "role", "sandbox", "sandbox_hosts", "delegation",
	"workspace.kind", "workspace.end", "limits.memory", "limits.processes", "limits.cpu", "limits.processors",
}

func newRun() *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] PROMPT",
		Short: "Run an agent and show what it does",
		Long: `Run an agent and show what it does. Its result is printed in the end.

The run is recorded as it goes, in the project's folder .nestor: after a crash
it goes on where it was, when the next command of the project runs agents, which
stays until it is done. If a daemon serves the project ('nestor serve'), it does
the work; else this command does.

Ctrl-C interrupts the run and waits until it has settled; a second one does not
let it, and a third one does not wait. Without PROMPT the input is read from --input, or from stdin.

The exit code is 0 for success, 1 for an error, 2 if the command line is wrong,
3 if a limit ended the run and there is output, 4 if a limit or the policy
forbids it, 130 if it was cancelled.`,
		Example: `nestor run "say hello"
nestor run --provider api --max-turns 5 "list the open questions in docs/"
nestor run --schema answer.json --json "how many tests are there?"
nestor run --resume 0199d3a2 "and now the other half"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse(cmd, "takes one prompt, got %d: put it in quotes", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runRun(cmd, args, opts) },
	}
	cmd.Flags().SortFlags = false
	opts.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&opts.resume, "resume", "", "go on with the conversation of `RUN`; without a prompt, follow it")
	return cmd
}

// addFlags adds the flags of a command that runs an agent.
func (opts *runOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&opts.agent, "agent", "", "the `NAME` of the agent, skill or command; see 'nestor agents list'")
	for _, name := range runKeys {
		k, _ := findKey(name)
		if k.many {
			flags.Var(new(manyFlag), k.flagWord(), k.doc)
			continue
		}
		flags.String(k.flagWord(), "", k.doc)
	}
	flags.StringVar(&opts.swarm, "swarm", "", "the `NAME` of the swarm that it belongs to")
	flags.StringVar(&opts.label, "label", "", "only a worker with `LABEL` takes it")
	flags.StringVar(&opts.dir, "dir", "", "the `FOLDER` it works in (default the current one)")
	flags.StringVar(&opts.schema, "schema", "", "the result follows the JSON Schema in `FILE`")
	flags.StringVar(&opts.input, "input", "", "read the prompt from `FILE`; - is stdin")
	flags.StringVar(&opts.focus, "focus-file", "", "tell the agent that `FILE` is what it is about")
	flags.StringArrayVar(&opts.set, "set", nil, "give the agent's input `NAME=VALUE`; may be repeated")
	flags.StringVar(&opts.output, "output", "", "write the result to `FILE` too")
	flags.StringArrayVar(&opts.env, "env", nil, "set `NAME=VALUE` for what the agent starts; may be repeated")
	flags.BoolVar(&opts.json, "json", false, "print the result as one JSON document")
	flags.BoolVar(&opts.stream, "stream-json", false, "print each event as a line of JSON")
	flags.BoolVarP(&opts.quiet, "quiet", "q", false, "print the result alone")
	flags.BoolVarP(&opts.verbose, "verbose", "v", false, "show results of tools and thoughts in full")
}

// manyFlag is a flag that may be repeated: its values become a list with commas.
type manyFlag string

func (f *manyFlag) String() string { return string(*f) }
func (f *manyFlag) Type() string   { return "string" }

func (f *manyFlag) Set(value string) error {
	if *f != "" {
		value = string(*f) + "," + value
	}
	*f = manyFlag(value)
	return nil
}

func runRun(cmd *cobra.Command, args []string, opts runOptions) error {
	switch {
	case opts.json && opts.stream:
		return misuse(cmd, "--json and --stream-json: it is one or the other")
	case opts.resume != "" && !mayBeID(opts.resume):
		return noID(cmd, opts.resume)
	}
	if err := checkOutput(opts.output); err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	for _, kv := range opts.env {
		if name, _, ok := strings.Cut(kv, "="); !ok || !isVariable(name) {
			return misuse(cmd, "--env %.60q: want NAME=VALUE", kv)
		}
	}
	for _, kv := range opts.set {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return misuse(cmd, "--set %.60q: want NAME=VALUE", kv)
		}
	}
	if opts.resume != "" && len(opts.set) > 0 {
		return misuse(cmd, "--set and --resume: the agent has the inputs that it was started with")
	}
	if opts.agent == "" && len(opts.set) > 0 {
		return misuse(cmd, "--set gives inputs to an agent: name it with --agent")
	}
	prompt, err := promptOf(cmd, args, opts)
	if err != nil {
		return err
	}
	if client := agentClient(os.Getenv); client != nil {
		defer client.Close()
		if opts.resume != "" || opts.stream {
			return misuse(cmd, "--resume and --stream-json: inside of an agent a run is a child of its own")
		}
		opts.input = ""
		if err := spawnInside(cmd, client, spawnOptions{runOptions: opts, task: prompt}); err != nil {
			return fmt.Errorf("%s: %w", cmd.Name(), err)
		}
		return nil
	}
	task, d, err := rootTask(cmd, prompt, opts)
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	d.Lone = true
	return newFollowing(cmd, opts, d, task).command(cmd, cmd.Name())
}

// rootTask makes the task that a command line asks for, and says how the daemon of
// its project is built.
func rootTask(cmd *cobra.Command, prompt string, opts runOptions) (nestor.Task, daemon.Options, error) {
	changed := map[string]string{}
	for _, name := range runKeys {
		k, _ := findKey(name)
		if f := cmd.Flags().Lookup(k.flagWord()); f.Changed {
			changed[name] = f.Value.String()
		}
	}
	project, err := projectDir(opts.dir)
	if err != nil {
		return nestor.Task{}, daemon.Options{}, err
	}
	cfg, err := loadConfig(project, os.Environ(), changed)
	if err != nil {
		return nestor.Task{}, daemon.Options{}, err
	}
	// What the flags say is for this run: others may come while the project is ours.
	common := cfg
	if len(changed) > 0 {
		if common, err = loadConfig(project, os.Environ(), nil); err != nil {
			return nestor.Task{}, daemon.Options{}, err
		}
	}
	d, err := daemonOptions(project, common)
	if err != nil {
		return nestor.Task{}, d, err
	}
	opts.person = terminalOf(cmd.InOrStdin()) != nil
	task, err := taskOf(prompt, cfg, opts, changed)
	if err == nil && opts.schema != "" {
		task.Schema, err = readSchema(cmd.Context(), opts.schema)
	}
	return task, d, err
}

// promptOf returns what the agent is told. It may be empty with --resume.
func promptOf(cmd *cobra.Command, args []string, opts runOptions) (string, error) {
	var text string
	var err error
	switch {
	case len(args) == 1 && opts.input != "":
		return "", misuse(cmd, "a prompt and --input %s: it is one or the other", opts.input)
	case len(args) == 1 && args[0] != "-":
		text = args[0]
	case opts.input != "" && opts.input != "-":
		text, err = readText(cmd.Context(), opts.input)
	case (opts.resume != "" || opts.agent != "" && terminalOf(cmd.InOrStdin()) != nil) && opts.input == "" && len(args) == 0:
		return "", nil // it is followed; or the agent, which may be a command, needs no prompt
	case opts.input == "" && len(args) == 0 && terminalOf(cmd.InOrStdin()) != nil:
		return "", misuse(cmd, "no prompt")
	default:
		text, err = readAll(cmd.Context(), cmd.InOrStdin(), "stdin")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if strings.TrimSpace(text) == "" && opts.agent == "" {
		return "", misuse(cmd, "the prompt is empty")
	}
	if opts.focus != "" {
		if _, err := os.Stat(opts.focus); err != nil {
			return "", fmt.Errorf("%s: --focus-file: %w", cmd.Name(), err)
		}
		if opts.agent == "" { // whose definition says how it is told otherwise
			text += "\n\nThis is about the file " + opts.focus + "."
		}
	}
	return text, nil
}

// taskOf makes the task. It holds all that the config says of it, so that it is
// run in the same way whoever runs it. What was not changed by flags gives way to
// what the agent's definition says.
func taskOf(prompt string, cfg *config, opts runOptions, changed map[string]string) (nestor.Task, error) {
	dir, err := filepath.Abs(opts.dir)
	if err != nil {
		return nestor.Task{}, err
	}
	t := nestor.Task{
		Agent: opts.agent, Input: prompt, Provider: cfg.Provider, Model: cfg.Model, Swarm: opts.swarm, Dir: dir, Limits: cfg.Limits,
		Label: opts.label, Priority: nestor.High,
	}
	if name, tier := cfg.Models[t.Model]; tier {
		t.Model = name
	}
	trace := opts.trace
	if _, err := api.ParseTrace(os.Getenv("TRACEPARENT")); trace == "" && err == nil {
		trace = os.Getenv("TRACEPARENT") // what is none there is nobody's mistake here
	}
	askFor := cfg.AskFor
	if !opts.person && cfg.origin(askKey) == "default" {
		askFor = 0
	}
	o := api.TaskOptions{
		Whole: true, AskFor: askFor,
		Tools: cfg.Tools, PermissionMode: cfg.PermissionMode, Role: cfg.Role, Sandbox: cfg.Sandbox, Hosts: cfg.Hosts, Env: opts.env, Trace: trace, Delegation: cfg.Delegation,
		Workspace: api.WorkspaceOptions{Kind: cfg.Workspace.Kind, End: cfg.Workspace.End},
		Resources: api.Resources{Memory: cfg.Resources.Memory, Processes: cfg.Resources.Processes, CPU: cfg.Resources.CPU, Processors: cfg.Resources.Processors},
	}
	if opts.agent != "" {
		o.FocusFile, o.Yields, o.Inputs = opts.focus, yielding(cfg, changed), map[string]json.RawMessage{}
		for _, kv := range opts.set {
			name, value, _ := strings.Cut(kv, "=")
			if o.Inputs[name], err = json.Marshal(value); err != nil {
				return t, err
			}
		}
	}
	if opts.resume != "" {
		o.Given = slices.Sorted(maps.Keys(changed))
	}
	return t, setOptions(&t, o)
}

// yielding returns the keys whose values give way to what a definition says: what
// no flag has changed; and the permission mode, if nobody has chosen it.
func yielding(cfg *config, changed map[string]string) []string {
	var list []string
	for _, k := range configKeys() {
		_, flag := changed[k.name]
		switch {
		case flag:
		case k.name == "provider" || k.name == "model" || k.name == "workspace.kind" || strings.HasPrefix(k.name, "limits."),
			(k.name == "permission_mode" || k.name == "delegation") && cfg.origin(k.name) == "default":
			list = append(list, k.name)
		}
	}
	return list
}

// setOptions puts o into the task.
func setOptions(t *nestor.Task, o api.TaskOptions) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if _, err := api.ParseTaskOptions(data); err != nil {
		return err
	}
	t.Data = data
	return nil
}

// goOnWhere has t work where a run has that has ended: in its worktree, or for its swarm.
// If the worktree is gone it returns how it ended, otherwise nothing.
func goOnWhere(t *nestor.Task, o *api.TaskOptions, run api.Run) (gone string) {
	w, ok := api.WorkspaceOf(run.Result)
	switch {
	case !ok || w.Kind != "worktree":
		t.Swarm = cmp.Or(t.Swarm, run.Swarm)
	case w.End != "keep":
		return w.End
	default:
		t.Dir, t.Swarm, o.Workspace.Kind = w.Dir, "", "plain"
		o.Given = append(o.Given, "workspace.kind")
	}
	return ""
}

// resumeFrom makes t go on with the conversation of a run that has ended, and with
// the agent that it had: the daemon knows how that was defined, and what it might.
func resumeFrom(ctx context.Context, client *api.Client, t *nestor.Task, id nestor.ID) error {
	run, err := client.Run(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case !run.State.Ended():
		return fmt.Errorf("run %s has not ended: 'nestor runs send' speaks to it, and --resume without a prompt follows it", id)
	case run.Session == "":
		return fmt.Errorf("run %s has no conversation to go on with", id)
	}
	switch {
	case t.Agent == "" || t.Agent == run.Agent:
		t.Agent = run.Agent
	case run.Agent == "":
		return fmt.Errorf("run %s has no agent, and goes on without one: leave --agent out; or begin anew with --agent %s, without --resume", id, t.Agent)
	default:
		return fmt.Errorf("run %s is one of agent %s, and goes on with it: leave --agent out; or begin anew with --agent %s, without --resume", id, run.Agent, t.Agent)
	}
	o, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return err
	}
	if run.Provider != "" && run.Provider != t.Provider {
		if slices.Contains(o.Given, "provider") {
			return fmt.Errorf("run %s is one of provider %s, which has its conversation: leave --provider out; or begin anew with --provider %s, without --resume", id, run.Provider, t.Provider)
		}
		t.Provider = run.Provider
	}
	if run.Dir != "" {
		t.Dir = run.Dir // where the provider keeps it
	}
	if gone := goOnWhere(t, &o, run); gone != "" {
		return fmt.Errorf("run %s has no folder to go on in: its worktree is gone, for it ended with %s", id, gone)
	}
	o.Session, o.Resumes = run.Session, id
	return setOptions(t, o)
}
