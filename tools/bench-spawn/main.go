// Command bench-spawn measures agents that start agents: three levels with Nestor,
// on the Claude CLI and on our own loop, against 'claude -p' nested in Bash. All
// sides are processes, started in turn; the CLI is the real one, the model is
// scripted. It prints Markdown. 'make bench-spawn' runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const (
	nestorVariable = "BENCH_NESTOR" // the nestor command
	depth          = 3
	rounds         = 7
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
// shell, down to one that answers.
func script(cli string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for level := depth; level > 0; level-- {
		below := fmt.Sprint(level - 1)
		fmt.Fprintf(&b, "  - when: {user: \"^spawn %d$\"}\n    turns: [{tools: [{name: mcp__nestor__spawn, input: {task: spawn %s}}]}, {text: done}]\n", level, below)
		fmt.Fprintf(&b, "  - when: {user: \"^shell %d$\"}\n    turns: [{tools: [{name: Bash, input: {command: \"%s -p 'shell %s' --permission-mode bypassPermissions\", description: nest}}]}, {text: done}]\n", level, cli, below)
	}
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
	parsed, err := scriptmodel.ParseScript("script", []byte(script(cli.Path)))
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
	shell := func(level int) func() *exec.Cmd {
		return func() *exec.Cmd {
			cmd := exec.CommandContext(ctx, b.cli.Path, "-p", fmt.Sprint("shell ", level), "--permission-mode", "bypassPermissions")
			cmd.Env, cmd.Dir = slices.Concat(b.cli.Env, scriptmodel.ClientEnv(b.url)), b.cli.Dir
			return cmd
		}
	}
	ours := func(provider string, level int) func() *exec.Cmd {
		return func() *exec.Cmd {
			cmd := exec.CommandContext(ctx, os.Getenv(nestorVariable), "run", "-q", "--provider", provider, fmt.Sprint("spawn ", level))
			cmd.Dir = filepath.Join(b.dir, "project")
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG"), "HOME=" + b.dir, "XDG_CONFIG_HOME=" + filepath.Join(b.dir, "config"), "ANTHROPIC_API_KEY=key",
			}
			return cmd
		}
	}
	sides := []struct {
		what       string
		alone, all func() *exec.Cmd
		took       [2][]time.Duration
	}{
		{what: "`claude -p` in Bash", alone: shell(0), all: shell(depth)},
		{what: "Nestor, Claude CLI", alone: ours("sdk", 0), all: ours("sdk", depth)},
		{what: "Nestor, our own loop", alone: ours("api", 0), all: ours("api", depth)},
	}
	for round := range rounds + 1 { // the first makes files, and is not counted
		for i := range sides {
			for j, make := range []func() *exec.Cmd{sides[i].alone, sides[i].all} {
				took, err := measure(make())
				if err != nil {
					return fmt.Errorf("%s: %w", sides[i].what, err)
				}
				if round > 0 {
					sides[i].took[j] = append(sides[i].took[j], took)
				}
			}
		}
	}
	fmt.Printf("%s/%s, %d cores, %s; medians of %d processes each, started in turn.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), rounds)
	fmt.Printf("| agents | one alone | %d levels below it | a level |\n|---|---|---|---|\n", depth)
	level := make([]time.Duration, len(sides))
	for i, s := range sides {
		alone, all := median(s.took[0]), median(s.took[1])
		level[i] = (all - alone) / depth
		fmt.Printf("| %s | %.0f ms | %.0f ms | %.0f ms |\n", s.what, ms(alone), ms(all), ms(level[i]))
	}
	bare := median(sides[0].took[0])
	fmt.Printf("\nA level of Nestor on the Claude CLI takes **%.0f ms** more than a bare run of it (%.0f ms), and is **%.1f times** as fast as a nested `claude -p`; on our own loop **%.0f times**.\n",
		ms(level[1]-bare), ms(bare), float64(level[0])/float64(level[1]), float64(level[0])/float64(level[2]))
	return nil
}

// configure writes the user's config of 'nestor run'.
func (b *bench) configure() error {
	folder := filepath.Join(b.dir, "config", "nestor")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.MkdirAll(filepath.Join(b.dir, "project", ".nestor"), 0o700)); err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "limits: {max_depth: %d}\nproviders:\n  sdk:\n    path: %s\n    env:\n", depth, b.cli.Path)
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
