// Command bench-agentfile measures what definitions of agents cost: loading a
// thousand files, making of one what is run, and ten thousand runs of agents on
// the scripted provider and as many again, with which memory must not grow.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-agentfile:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %s/%s, %d cores\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if err := load(filepath.Join(dir, "load")); err != nil {
		return err
	}
	if err := explain(filepath.Join(dir, "load")); err != nil {
		return err
	}
	return execute(ctx, filepath.Join(dir, "run"))
}

const files = 1000

// text is a file of an ordinary size.
func text(i int) string {
	var body strings.Builder
	for line := range 40 {
		fmt.Fprintf(&body, "%d. Look at what is there before you change it, and say what you found.\n", line)
	}
	return fmt.Sprintf(`---
name: agent-%d
description: Use it when part %d of the work is to be done
tools: Read, Grep, Glob, Bash(git log:*)
model: sonnet
role: reviewer
inputs: {level: {type: string, enum: [low, high], default: low}}
template: |
  {{.Input}} at level {{.Inputs.level}} in {{.ContextFolder}}{{if .FocusFile}}, about {{.FocusFile}}{{end}}.
limits: {max_turns: 20}
---
%s`, i, i, body.String())
}

func write(dir string, n int) error {
	for i := range n {
		name := filepath.Join(dir, ".claude", "agents", fmt.Sprintf("group-%d", i%10), fmt.Sprintf("agent-%d.md", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text(i)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// load measures how long a library takes to read all, and to look again.
func load(dir string) error {
	if err := write(dir, files); err != nil {
		return err
	}
	first, err := times(10, func() error { return loadOnce(agentfile.NewLibrary(agentfile.Options{Project: dir})) })
	if err != nil {
		return err
	}
	l := agentfile.NewLibrary(agentfile.Options{Project: dir})
	again, err := times(20, func() error { return loadOnce(l) })
	if err != nil {
		return err
	}
	fmt.Printf("%d files read and checked: %s; goal: under 300ms\n", files, first)
	fmt.Printf("looked at again, none changed: %s\n", again)
	return nil
}

func loadOnce(l *agentfile.Library) error {
	s, err := l.Load()
	if err != nil {
		return err
	}
	good := 0
	for _, e := range s.Entries() {
		if _, ok := e.Definition(); ok && len(e.Problems) == 0 {
			good++
		}
	}
	if good < files {
		return fmt.Errorf("%d of %d files are good", good, files)
	}
	return nil
}

// times returns how long f takes: the median, and the least.
func times(n int, f func() error) (string, error) {
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := f(); err != nil {
			return "", err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return fmt.Sprintf("%v (at best %v)", took[n/2].Round(time.Microsecond), took[0].Round(time.Microsecond)), nil
}

// explain measures how long it takes to make of a definition and an input what is
// run: the task, its policy, its instructions and its message.
func explain(dir string) error {
	s, err := agentfile.NewLibrary(agentfile.Options{Project: dir}).Load()
	if err != nil {
		return err
	}
	o := daemon.Options{Dir: dir, Limits: nestor.DefaultLimits()}
	took, err := times(2000, func() error {
		d, err := s.Find("agent-500", "")
		if err != nil {
			return err
		}
		_, err = o.Explain(d, nestor.Task{Agent: "agent-500", Input: "do it"})
		return err
	})
	fmt.Printf("options of a run from its file: %s; goal: under 1ms\n\n", took)
	return err
}

const (
	half   = 10_000 // runs before the memory is looked at first, and then again
	atOnce = 16

	archiveAfter = time.Second
	archiveEvery = 2 * time.Second

	// forget is how long the broker knows the names of messages and the deadlines of
	// runs, and a little.
	forget = 10*time.Minute + 45*time.Second
	// settle is how long it is looked for the least that is in use. The broker keeps
	// a block of a stream for ten seconds after it was used.
	settle = 25 * time.Second

	// perRun is how many bytes more may be in use for each run of the second half. A
	// set of their ids would take 90. What the broker keeps for reuse comes and goes
	// by 0.2 MB.
	perRun = 50
)

// execute runs agents, waits until all has forgotten them that does so by the clock,
// and does the same again. What is in use then must be what it was: maps and buffers
// have the size that so many runs need after the first half, and whatever is kept of
// each run is there twice after the second. It fails if that is so.
func execute(ctx context.Context, dir string) error {
	if err := write(dir, 20); err != nil {
		return err
	}
	o := daemon.Options{Dir: dir, ArchiveAfter: archiveAfter, ArchiveEvery: archiveEvery, Worker: daemon.Worker{Provider: "scripted", Slots: atOnce}}
	o.Agents.Trusts = func(agentfile.Definition) bool { return true }
	d := daemon.New(o)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.Run(serving) }()
	defer func() {
		stop()
		<-done
	}()
	select {
	case <-d.Ready():
	case err := <-done:
		done <- err
		return err
	}
	client := api.NewClient(daemon.SocketPath(dir))
	defer client.Close()
	var took time.Duration
	var used [2]float64
	for i := range used {
		began := time.Now()
		if err := batch(ctx, client, i*half); err != nil {
			return err
		}
		took += time.Since(began)
		say := func(when string, used float64) {
			fmt.Printf("%6d runs, %6.1f s, %-12s %7.2f MB in use  %6.1f MB resident  %d goroutines\n", (i+1)*half, took.Seconds(), when+":", used, resident(), runtime.NumGoroutine())
		}
		say("at once", inUse())
		select {
		case <-time.After(forget):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		least, err := settled(ctx)
		if err != nil {
			return err
		}
		used[i] = least
		say(fmt.Sprint("after ", forget), used[i])
	}
	grown := (used[1] - used[0]) * 1e6 / half
	if grown > perRun {
		return fmt.Errorf("memory grows by %.0f bytes a run: %.2f MB after %d, %.2f MB after %d", grown, used[0], half, used[1], 2*half)
	}
	fmt.Printf("memory does not grow: %.2f MB after %d runs, %.2f MB after %d: %.0f bytes a run; goal: %d at most\n", used[0], half, used[1], 2*half, grown, perRun)
	return nil
}

// settled returns the least that is in use while things settle.
func settled(ctx context.Context) (float64, error) {
	least := inUse()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range settle / time.Second {
		select {
		case <-tick.C:
			least = min(least, inUse())
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return least, nil
}

// inUse returns how many MB are in use, without what is only kept for reuse.
func inUse() float64 {
	for range 3 { // what is pooled goes with the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// resident returns how many MB the process has, as the system counts; zero if it does
// not tell.
func resident() float64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return float64(pages*os.Getpagesize()) / 1e6
}

// batch runs a number of agents, some at once.
func batch(ctx context.Context, client *api.Client, from int) error {
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, atOnce)
	for i := range atOnce {
		group.Go(func() {
			for n := next.Add(1); n <= half && errs[i] == nil; n = next.Add(1) {
				errs[i] = one(ctx, client, from+int(n))
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func one(ctx context.Context, client *api.Client, n int) error {
	r, err := client.Submit(ctx, api.Submission{Task: nestor.Task{Agent: fmt.Sprintf("agent-%d", n%20), Input: "go"}})
	if err == nil {
		r, err = client.Wait(ctx, r.ID)
	}
	if err == nil && r.State != nestor.Success {
		err = fmt.Errorf("run %s is %s: %v", r.ID, r.State, r.Error)
	}
	return err
}
