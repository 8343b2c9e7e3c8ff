package cli

import (
	"context"
	_ "embed" // the script
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

//go:embed demo/script.yaml
var demoScript []byte

type demoOptions struct {
	runOptions
	script string
	seed   uint64
	fast   bool
}

func newDemo() *cobra.Command {
	var opts demoOptions
	cmd := &cobra.Command{
		Use:   "demo [flags] [DIR]",
		Short: "See agents start agents, without an account or a model",
		Long: `See agents start agents, without an account or a model: an orchestrator has three
agents work, two levels deep. One of them asks before it writes a file: answer on
the terminal, or wait a few seconds. One tries to leave its folder and cannot.
What they say is written in a script; all else is real: the agent loop, the
tools, the sandbox, the log, the limits.

It works in DIR, or in nestor-demo, which is made. What it leaves there is a
project: look into it with 'nestor runs' and the others.`,
		Example: "nestor demo\nnestor demo --seed 7 playground\nnestor demo --print-script > demo.yaml && nestor demo --script demo.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse(cmd, "takes one folder at most, got %q", args[1])
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&opts.script, "script", "", "what the model says, in `FILE`")
	flags.Uint64Var(&opts.seed, "seed", 0, "choose what the notes are about by `N`; zero means by chance")
	flags.BoolVar(&opts.fast, "fast", false, "let the model say it without pauses")
	flags.BoolVar(&opts.json, "json", false, "print the result as one JSON document")
	flags.BoolVar(&opts.stream, "stream-json", false, "print each event as a line of JSON")
	flags.BoolVarP(&opts.verbose, "verbose", "v", false, "show results of tools and thoughts in full")
	printScript := flags.Bool("print-script", false, "print the script instead, to change it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *printScript {
			_, err := cmd.OutOrStdout().Write(demoScript)
			return err
		}
		if opts.json && opts.stream {
			return misuse(cmd, "--json and --stream-json: it is one or the other")
		}
		dir := "nestor-demo"
		if len(args) == 1 {
			dir = args[0]
		}
		if err := runDemo(cmd, dir, opts); err != nil {
			if _, coded := errors.AsType[*codedError](err); coded {
				return err
			}
			return fmt.Errorf("demo: %w", err)
		}
		return nil
	}
	return cmd
}

// demoProducts are what the notes can be about.
var demoProducts = []string{"Halcyon 2.0", "the Lantern release", "Orrery 1.4", "Kestrel, third edition", "Meridian 0.9", "the Harbour beta"}

// runDemo plays the demo in a folder.
func runDemo(cmd *cobra.Command, dir string, opts demoOptions) error {
	if opts.seed == 0 {
		opts.seed = rand.Uint64N(1_000_000) + 1
	}
	product := demoProducts[rand.New(rand.NewPCG(opts.seed, 0)).IntN(len(demoProducts))]
	project, err := demoProject(dir, product)
	if err != nil {
		return err
	}
	url, stop, err := demoModel(cmd.Context(), opts)
	if err != nil {
		return err
	}
	defer stop()
	task, d, err := demoTask(project, product, url)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	talk := !opts.json && !opts.stream
	if talk {
		fmt.Fprintf(out, "A demo in %s (seed %d): the model's words come from a script, the rest is real.\n\n", dir, opts.seed)
	}
	opts.dir = project
	f := newFollowing(cmd, opts.runOptions, d, task)
	if err := f.run(cmd.Context()); err != nil || !talk {
		return err
	}
	return demoEnd(cmd.Context(), out, dir, d, f.id)
}

// demoProject makes the folder, or takes one that an earlier demo has made.
func demoProject(dir, product string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	config := filepath.Join(dir, ".nestor", "config.yaml")
	const text = "# Made by 'nestor demo'. The model of the demo is gone when the demo is; to go on\n# with a real one, name another provider here or with --provider.\nprovider: api\n"
	if is, err := os.ReadFile(config); len(entries) > 0 && (err != nil || string(is) != text) {
		return "", fmt.Errorf("%s is not empty, and no demo has made it: name another folder", dir)
	}
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		return "", err
	}
	changes := "# What changed in " + product + "\n\n1. The start takes half as long.\n2. A graph that was cut off goes on where it was.\n3. Agents ask a person before they do what they may not.\n"
	for name, text := range map[string]string{config: text, filepath.Join(dir, "CHANGES.md"): changes} {
		if err := writeFile(name, text, 0o644); err != nil {
			return "", err
		}
	}
	if err := os.Remove(filepath.Join(dir, "NOTES.md")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err // of an earlier demo
	}
	return dir, nil
}

// pauses are what --fast leaves out of a script.
var pauses = regexp.MustCompile(`\b(wait|delay): \d+ms`)

// demoModel serves the script on loopback until stop is called.
func demoModel(ctx context.Context, opts demoOptions) (url string, stop func(), err error) {
	name, text := "demo/script.yaml", demoScript
	if opts.script != "" {
		name = opts.script
		read, err := readText(ctx, opts.script)
		if err != nil {
			return "", nil, fmt.Errorf("--script: %w", err)
		}
		text = []byte(read)
	}
	if opts.fast {
		text = pauses.ReplaceAll(text, []byte("$1: 0ms"))
	}
	script, err := scriptmodel.ParseScript(name, text)
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- scriptmodel.New(script, scriptmodel.Options{Keep: -1}).Serve(serving, ln) }()
	return "http://" + ln.Addr().String(), func() { cancel(); <-served }, nil
}

// demoTask is what the orchestrator is told, and says how the daemon of the demo is
// built: as the project's config says, and whatever else is configured here does
// not count.
func demoTask(project, product, url string) (nestor.Task, daemon.Options, error) {
	cfg, err := loadConfig(project, nil, nil)
	if err != nil {
		return nestor.Task{}, daemon.Options{}, err
	}
	d, err := daemonOptions(project, cfg)
	if err != nil {
		return nestor.Task{}, d, err
	}
	d.Lone = true
	d.Worker.API.BaseURL, d.Worker.API.APIKey = url, "demo"
	level := "files"
	if len(sandbox.Check().Missing(sandbox.Files, sandbox.Web)) > 0 {
		level = "off" // the tools' own bounds are left, and the roles
	}
	limits := cfg.Limits
	limits.BudgetUSD, limits.Timeout, limits.Silence = 1, 2*time.Minute, 0
	t := nestor.Task{
		Agent: "orchestrator", Input: "Write release notes for " + product + ".", Provider: "api", Model: "claude-sonnet-5-5", Dir: project, Limits: limits, Priority: nestor.High,
		Schema: json.RawMessage(`{"type":"object","properties":{"notes":{"type":"string"},"changes":{"type":"integer"},"approved":{"type":"boolean"}},"required":["notes","changes","approved"]}`),
	}
	return t, d, setOptions(&t, api.TaskOptions{Sandbox: level, PermissionMode: "acceptEdits"})
}

// demoEnd sums the demo up, and says what can be typed next.
func demoEnd(ctx context.Context, out io.Writer, dir string, d daemon.Options, id nestor.ID) error {
	d.Idle = true
	l, err := dial(ctx, d)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	err = runsTree(ctx, l.client, newRunsPage(out), id, false)
	if err := errors.Join(err, l.close()); err != nil {
		return err
	}
	next := []string{
		"cd " + dir, "cat NOTES.md                 # what they wrote", "nestor runs events " + shortID(id) + "   # all that happened",
		"nestor agents list           # who they were", "nestor init ../mine          # a project to begin with",
	}
	if _, err := claude.Find(); err == nil {
		next = append(next, `nestor run --provider sdk "what is in NOTES.md?"   # the Claude CLI, which is here`)
	} else {
		next = append(next, "nestor doctor                # what is missing for real agents")
	}
	_, err = fmt.Fprintf(out, "\nNext:\n  %s\n", strings.Join(next, "\n  "))
	return err
}
