// Command bench-warm measures what a warm CLI saves: the time from a prompt to
// the first text of the answer, with a CLI that is started for it and with one
// that package pool kept ready. The CLI is the real one and its model is
// scripted, so that nothing else takes time. It prints Markdown, and fails when
// warm is not three times as fast. 'make bench-warm' runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/pool"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const (
	rounds  = 15
	atLeast = 3.0 // how many times faster warm has to be
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-warm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	dir, err := os.MkdirTemp("", "bench-warm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cli, err := claudetest.Install(dir)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	model := scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{})
	served := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	go func() { served <- model.Serve(serving, ln) }()
	defer func() { end(); <-served }()

	opts := claude.Options{
		Path: cli.Path, Dir: cli.Dir, PartialMessages: true, ReplaceEnv: true,
		Env: append(cli.Env, scriptmodel.ClientEnv("http://"+ln.Addr().String())...),
	}
	warm := pool.NewWarm(pool.WarmOptions{Max: 1})
	ran := make(chan error, 1)
	running, halt := context.WithCancel(ctx)
	go func() { ran <- warm.Run(running) }()
	defer func() { halt(); <-ran }()
	if err := warm.Keep(opts, 1); err != nil {
		return err
	}
	return compare(ctx, cli, warm, opts)
}

// compare measures both in turns, so that noise meets them alike. The time of
// a warm round includes what the start of the next CLI takes from it.
func compare(ctx context.Context, cli *claudetest.CLI, warm *pool.Warm, opts claude.Options) error {
	version, err := claude.Version(ctx, cli.Path)
	if err != nil {
		return err
	}
	var colds, warms []time.Duration
	var memory []int
	for range rounds {
		if err := ready(ctx, warm); err != nil {
			return err
		}
		begin := time.Now()
		cold, err := firstText(begin, claude.Query(ctx, "Hello.", opts))
		if err != nil {
			return err
		}
		begin = time.Now()
		h, ok := warm.Take(ctx, opts)
		if !ok {
			return fmt.Errorf("no CLI was warm: %+v", warm.Stats())
		}
		memory = append(memory, resident(h.Pid()))
		taken, err := firstText(begin, h.Query(ctx, "Hello."))
		if err != nil {
			return err
		}
		colds, warms = append(colds, cold), append(warms, taken)
	}
	stats := warm.Stats()
	fmt.Printf("From the prompt to the first text, Claude Code %s with a scripted model; %d rounds, taken in turns. %s/%s, %d cores, %s.\n\n",
		version, rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Println("| CLI | median | fastest | slowest |")
	fmt.Println("|---|---|---|---|")
	row := func(name string, d []time.Duration) {
		fmt.Printf("| %s | %d ms | %d ms | %d ms |\n", name, median(d).Milliseconds(), slices.Min(d).Milliseconds(), slices.Max(d).Milliseconds())
	}
	row("started for the prompt", colds)
	row("warm", warms)
	ratio := median(colds).Seconds() / median(warms).Seconds()
	fmt.Printf("\nWarm is **%.1f times** as fast. A start in the background took %d ms on average. An idle CLI holds %d MB.\n",
		ratio, stats.Saved.Milliseconds()/int64(stats.Hits), median(memory)>>10)
	if ratio < atLeast {
		return fmt.Errorf("warm is %.1f times as fast, and has to be %.0f times", ratio, atLeast)
	}
	return nil
}

// ready waits until a CLI is warm.
func ready(ctx context.Context, warm *pool.Warm) error {
	for warm.Stats().Idle == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a warm CLI: %w", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// firstText reads an answer to its end, and returns how long after begin its
// first text came.
func firstText(begin time.Time, answer iter.Seq2[claude.Message, error]) (took time.Duration, err error) {
	for msg, err := range answer {
		if err != nil {
			return 0, err
		}
		if e, ok := msg.(*claude.StreamEvent); ok && took == 0 && e.Delta.Text != "" {
			took = time.Since(begin)
		}
	}
	if took == 0 {
		return 0, errors.New("the answer had no text")
	}
	return took, nil
}

func median[T int | time.Duration](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// resident is the memory of a process, in KB, as Linux tells.
func resident(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb
		}
	}
	return 0
}
