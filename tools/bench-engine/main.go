// Command bench-engine measures the durable core, and the bare broker beneath it
// doing the same work in the same run, so that our share of the cost shows. All
// writes are synced. It prints Markdown. 'make bench-engine' runs it; with
// BENCH_QUEUED=1000000 it measures the queue alone, up to a million runs, which
// takes some minutes.
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
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/pool"
)

// roleVariable makes this program play an idle engine, whose memory is measured.
const roleVariable = "BENCH_ROLE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := measure
	if os.Getenv(roleVariable) == "idle" {
		run = idle
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-engine:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-engine-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s/%s, %d cores, %s; sync on every write; ours and the bare broker in one run.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if most := os.Getenv("BENCH_QUEUED"); most != "" {
		n, err := strconv.Atoi(most)
		if err != nil {
			return fmt.Errorf("BENCH_QUEUED=%q: %w", most, err)
		}
		return queued(ctx, dir, n)
	}
	fmt.Println("| what | ours | bare broker | ours / bare |")
	fmt.Println("|---|---|---|---|")
	for i, part := range []func(context.Context, string) error{latency, throughput, appends, replay, lag} {
		if err := part(ctx, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	fmt.Println()
	if err := queued(ctx, dir, 10_000); err != nil {
		return err
	}
	return footprint(ctx, dir)
}

func row(what, unit string, ours, bare float64) {
	fmt.Printf("| %s | %.4g %s | %.4g %s | %.2f |\n", what, ours, unit, bare, unit, ours/bare)
}

// core is a broker with a log and an engine on it.
type core struct {
	*engine.Engine
	broker *broker.Broker
	log    *eventlog.Log
	close  func()
}

// open opens a core in a folder. It works with n slots, if any.
func open(ctx context.Context, dir string, n int, execute func(context.Context, *engine.Execution) nestor.Result) (*core, error) {
	b, err := broker.Open(ctx, broker.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	c := &core{broker: b, log: eventlog.New(b, eventlog.Options{})}
	if c.Engine, err = engine.New(ctx, b, c.log, engine.Options{Sole: true, Alone: true}); err != nil {
		b.Close()
		return nil, err
	}
	logging, end := context.WithCancel(ctx)
	working, stop := context.WithCancel(ctx)
	var logs, works sync.WaitGroup
	logs.Go(func() { c.log.Run(logging) })
	works.Go(func() { c.Run(working) })
	if n > 0 {
		w := slots(n)
		w.Execute = execute
		works.Go(func() { c.Work(working, w) })
	}
	c.close = func() {
		stop()
		works.Wait()
		end()
		logs.Wait()
		b.Close()
	}
	return c, nil
}

type slot struct{ *pool.Slot }

func (s slot) Claim(ctx context.Context, root nestor.ID, task nestor.Task) error {
	return s.Slot.Claim(ctx, pool.Claim{Tree: string(root)})
}

func slots(n int) engine.Worker {
	s := pool.NewSlots(pool.SlotLimits{Total: n})
	return engine.Worker{
		Acquire: func(ctx context.Context) (engine.Slot, error) {
			one, err := s.Acquire(ctx)
			return slot{one}, err
		},
		TryAcquire: func() engine.Slot {
			if one := s.TryAcquire(); one != nil {
				return slot{one}
			}
			return nil
		},
	}
}

func success(context.Context, *engine.Execution) nestor.Result {
	return nestor.Result{Status: nestor.Success}
}

// percentile returns the p-th of durations, in milliseconds.
func percentile(all []time.Duration, p int) float64 {
	slices.Sort(all)
	return float64(all[len(all)*p/100].Microseconds()) / 1000
}
