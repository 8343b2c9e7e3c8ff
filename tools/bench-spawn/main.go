// Command bench-spawn measures agents that start agents: three levels with Nestor,
// on the Claude CLI, started for each or kept ready, and on our own loop, against
// 'claude -p' nested in Bash. All
// sides are processes, started in turn; the CLI is the real one, the model is
// scripted. It prints Markdown. 'make bench-spawn' runs it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const (
	nestorVariable = "BENCH_NESTOR" // the nestor command
	depth          = 3
	rounds         = 21
	warmUp         = 3
)

// A model takes its time to write what an agent is to do: this one writes a character
// every 50 ms, so that the calls of a level take writing.
const (
	perCharacter = 50 * time.Millisecond
	writing      = time.Duration(len(`{"task":"write 0"}`)) * perCharacter
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-spawn:", err)
		os.Exit(1)
	}
}

// script has agents start the one below them, by Nestor's tool or by the CLI in a
// shell, down to one that answers. One reads a file and starts none.
func script(cli, file string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for level := depth; level > 0; level-- {
		below := fmt.Sprint(level - 1)
		fmt.Fprintf(&b, "  - when: {user: \"^spawn %d$\"}\n    turns: [{tools: [{name: mcp__nestor__spawn, input: {task: spawn %s}}]}, {text: done}]\n", level, below)
		fmt.Fprintf(&b, "  - when: {user: \"^write %d$\"}\n    turns: [{tools: [{name: mcp__nestor__spawn, input: {task: write %s}}], chunk: 1, delay: %s}, {text: done}]\n", level, below, perCharacter)
		fmt.Fprintf(&b, "  - when: {user: \"^shell %d$\"}\n    turns: [{tools: [{name: Bash, input: {command: \"%s -p 'shell %s' --permission-mode bypassPermissions\", description: nest}}]}, {text: done}]\n", level, cli, below)
	}
	fmt.Fprintf(&b, "  - when: {user: \"^tool$\"}\n    turns: [{tools: [{name: Read, input: {file_path: %s}}]}, {text: done}]\n", file)
	b.WriteString("  - turns: [{text: done}]\n")
	return b.String()
}

type bench struct {
	dir, url string
	cli      *claudetest.CLI
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-spawn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cli, err := claudetest.Install(dir)
	if err != nil {
		return err
	}
	file := filepath.Join(cli.Dir, "a.txt")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		return err
	}
	parsed, err := scriptmodel.ParseScript("script", []byte(script(cli.Path, file)))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- scriptmodel.New(parsed, scriptmodel.Options{Keep: -1}).Serve(serving, ln) }()
	b := &bench{dir: dir, url: "http://" + ln.Addr().String(), cli: cli}
	err = b.all(ctx)
	stop()
	return errors.Join(err, <-served)
}

func (b *bench) all(ctx context.Context) error {
	if err := b.configure(); err != nil {
		return err
	}
	bare := func(prompt string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, b.cli.Path, "-p", prompt, "--permission-mode", "bypassPermissions")
		cmd.Env, cmd.Dir = slices.Concat(b.cli.Env, scriptmodel.ClientEnv(b.url)), b.cli.Dir
		return cmd
	}
	shell := func(level int) *exec.Cmd { return bare(fmt.Sprint("shell ", level)) }
	plain := func(level int) *exec.Cmd { // a turn, or two
		if level == 0 {
			return bare("hello")
		}
		return bare("tool")
	}
	sides := []*side{
		{command: plain},
		{what: "`claude -p` in Bash", command: shell},
		{what: "Nestor, Claude CLI", command: b.ours(ctx, "lone", "sdk", "spawn")},
		{what: "the same, less what a model takes to write", command: b.ours(ctx, "lone", "sdk", "write"), model: writing},
		{what: "Nestor, Claude CLIs kept ready by a daemon", command: b.ours(ctx, "served", "sdk", "spawn"), served: true},
		{what: "Nestor, our own loop", command: b.ours(ctx, "lone", "api", "spawn")},
		{what: "Nestor, our own loop in a daemon", command: b.ours(ctx, "served", "api", "spawn"), served: true},
	}
	daemon, err := b.serve(ctx)
	if err != nil {
		return err
	}
	stop := daemon.stop
	for round := range rounds + warmUp { // the first make files and are learned from, and are not counted
		for _, i := range rand.Perm(len(sides)) {
			s := sides[i]
			if err := daemon.sleep(round > 0 && !s.served); err != nil { // not while it is starting
				return errors.Join(err, stop())
			}
			for j, level := range []int{0, depth} {
				if s.served && round >= warmUp {
					if err := b.await(ctx); err != nil {
						return errors.Join(err, stop())
					}
				}
				took, err := measure(s.command(level))
				if err != nil {
					return errors.Join(fmt.Errorf("%s: %w", s.what, err), stop())
				}
				if round >= warmUp {
					s.took[j] = append(s.took[j], took)
				}
			}
		}
	}
	if err := stop(); err != nil {
		return err
	}
	report(sides[0], sides[1:])
	return nil
}

// side is one way to have agents start agents.
type side struct {
	what    string
	command func(level int) *exec.Cmd
	served  bool          // by the daemon, whose CLIs are waited for before each command
	model   time.Duration // what the model takes to write the call of a level
	took    [2][]time.Duration
}

// report prints what was found. The bare runs of plain answer, and call a tool before,
// as those do that start another.
func report(plain *side, sides []*side) {
	fmt.Printf("%s/%s, %d cores, %s; medians of %d processes each, in an order that is drawn anew each time; and between what the last column lies, with a probability of 95 %%.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), rounds)
	fmt.Printf("| agents | one alone | %d levels below it | a level | over a bare `claude -p` | over one that calls a tool | times as fast as nested ones |\n|---|---|---|---|---|---|---|\n", depth)
	bare, calling := median(plain.took[0]), median(plain.took[1])
	nested := sides[0]
	for _, s := range sides {
		alone, all, level := median(s.took[0]), median(s.took[1])-depth*s.model, s.level()
		low, high := between(func() float64 { return float64(nested.again().level()) / float64(s.again().level()) })
		fmt.Printf("| %s | %.0f ms | %.0f ms | %.0f ms | %+.0f ms | %+.0f ms | %.1f (%.1f to %.1f) |\n", s.what, ms(alone), ms(all), ms(level), ms(level-bare), ms(level-calling),
			float64(nested.level())/float64(level), low, high)
	}
}

// level returns what a level takes.
func (s *side) level() time.Duration {
	return (median(s.took[1])-median(s.took[0]))/depth - s.model
}

// again returns a side that took what s could have taken another time: times of s, drawn
// with repetition.
func (s *side) again() *side {
	drawn := *s
	for i, list := range s.took {
		drawn.took[i] = make([]time.Duration, len(list))
		for j := range drawn.took[i] {
			drawn.took[i][j] = list[rand.IntN(len(list))]
		}
	}
	return &drawn
}

// between returns between what 95 % of the values lie that are drawn.
func between(draw func() float64) (low, high float64) {
	const times = 1000
	var all []float64
	for range times {
		all = append(all, draw())
	}
	slices.Sort(all)
	return all[times/40], all[times-times/40]
}

// ours returns how Nestor is started in a project, with the script of a prompt.
func (b *bench) ours(ctx context.Context, project, provider, prompt string) func(level int) *exec.Cmd {
	return func(level int) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Getenv(nestorVariable), "run", "-q", "--provider", provider, fmt.Sprint(prompt, " ", level))
		cmd.Dir, cmd.Env = filepath.Join(b.dir, project), b.env()
		return cmd
	}
}

func (b *bench) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG"), "HOME=" + b.dir, "XDG_CONFIG_HOME=" + filepath.Join(b.dir, "config"), "ANTHROPIC_API_KEY=key",
	}
}

// daemon serves project served.
type daemon struct {
	cmd    *exec.Cmd
	asleep bool
}

// serve starts the daemon.
func (b *bench) serve(ctx context.Context) (*daemon, error) {
	cmd := exec.CommandContext(ctx, os.Getenv(nestorVariable), "serve", "--dir", filepath.Join(b.dir, "served"))
	cmd.Env, cmd.Stderr = b.env(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("the daemon says nothing: %w", err)
	}
	return &daemon{cmd: cmd}, nil
}

// sleep has the daemon sleep, or wake up: awake it would start CLIs to keep ready
// beside what is measured.
func (d *daemon) sleep(asleep bool) error {
	if asleep == d.asleep {
		return nil
	}
	signal := "-CONT"
	if asleep {
		signal = "-STOP"
	}
	d.asleep = asleep
	return exec.Command("kill", signal, strconv.Itoa(d.cmd.Process.Pid)).Run()
}

func (d *daemon) stop() error {
	err := d.sleep(false)
	d.cmd.Process.Signal(os.Interrupt)
	return errors.Join(err, d.cmd.Wait())
}

// await waits until the daemon has a CLI ready for every level.
func (b *bench) await(ctx context.Context) error {
	client := api.NewClient(filepath.Join(b.dir, "served", ".nestor", "nestor.sock"))
	defer client.Close()
	for began := time.Now(); time.Since(began) < time.Minute; {
		info, err := client.Info(ctx)
		if err != nil {
			return err
		}
		if info.Ready >= depth+1 {
			time.Sleep(time.Second) // they go on with something for a while
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("no CLIs are kept ready")
}

// configure writes the user's config of 'nestor run'.
func (b *bench) configure() error {
	folder := filepath.Join(b.dir, "config", "nestor")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.MkdirAll(filepath.Join(b.dir, "lone", ".nestor"), 0o700), os.MkdirAll(filepath.Join(b.dir, "served", ".nestor"), 0o700)); err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "limits: {max_depth: %d}\nproviders:\n  sdk:\n    path: %s\n    warm: %d\n    env:\n", depth+1, b.cli.Path, depth+1)
	for _, kv := range slices.Concat(b.cli.Env, scriptmodel.ClientEnv(b.url)) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&text, "      %s: %q\n", name, value)
	}
	fmt.Fprintf(&text, "  api: {base_url: %q}\n", b.url)
	return os.WriteFile(filepath.Join(folder, "config.yaml"), text.Bytes(), 0o600)
}

// measure runs a command, which must say that it is done.
func measure(cmd *exec.Cmd) (time.Duration, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	out, err := cmd.Output()
	took := time.Since(began)
	if err != nil || !strings.Contains(string(out), "done") {
		return took, fmt.Errorf("%s said %q, %q: %w", cmd, out, stderr.String(), errors.Join(err, errors.New("it is not done")))
	}
	return took, nil
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
