package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/pool"
)

// roleVariable makes the test binary play a process of its own.
const roleVariable = "NESTOR_ENGINE_ROLE"

var roles = map[string]func() error{"server": serve, "worker": workFor, "daemon": daemon, "lone": lone, "felled": felled, "solitary": solitary}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// bound is how long anything in a test may take.
const bound = 30 * time.Second

func within(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), bound)
	t.Cleanup(stop)
	return ctx
}

// slot is a slot of the pool.
type slot struct{ *pool.Slot }

func (s slot) Claim(ctx context.Context, root nestor.ID, task nestor.Task) error {
	return s.Slot.Claim(ctx, pool.Claim{Tree: string(root), Provider: task.Provider, Swarm: task.Swarm, Rank: task.Priority.Rank()})
}

// slots returns a worker with n slots.
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

// node is a process of ours: an engine on a broker.
type node struct {
	*engine.Engine
	log    *eventlog.Log
	broker *broker.Broker
	stop   func() // ends it, as a shutdown would
}

// asker, as a number of slots, is an engine that neither works nor plans: one for
// whoever asks a process that works alone.
const asker = -1

// open starts an engine on b, which works with n slots, zero for none. It is
// stopped when the test ends, if not before.
func open(t testing.TB, b *broker.Broker, opts engine.Options, n int, execute func(context.Context, *engine.Execution) nestor.Result, labels ...string) *node {
	t.Helper()
	log := eventlog.New(b, eventlog.Options{})
	e, err := engine.New(within(t), b, log, opts)
	if err != nil {
		t.Fatal(err)
	}
	logging, end := context.WithCancel(context.Background())
	var logs sync.WaitGroup
	logs.Go(func() {
		if err := log.Run(logging); err != nil {
			t.Errorf("logging: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	if n >= 0 {
		all.Go(func() {
			if err := e.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("planning: %v", err)
			}
		})
	}
	if n > 0 {
		all.Go(func() {
			w := slots(n)
			w.Labels, w.Execute = labels, execute
			err := e.Work(ctx, w)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("working: %v", err)
			}
		})
	}
	x := &node{Engine: e, log: log, broker: b, stop: sync.OnceFunc(func() { cancel(); all.Wait(); end(); logs.Wait() })}
	t.Cleanup(x.stop)
	return x
}

// embedded opens a broker in a folder.
func embedded(t testing.TB, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.Open(within(t), broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func success(output string) nestor.Result {
	return nestor.Result{Status: nestor.Success, Output: output}
}

func failure(kind nestor.Kind) nestor.Result {
	return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: kind, Message: "made to fail"}}
}

func (n *node) submit(t testing.TB, task nestor.Task) nestor.ID {
	t.Helper()
	id, err := n.Submit(within(t), engine.Submission{Task: task})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (n *node) wait(t testing.TB, id nestor.ID) plan.Run {
	t.Helper()
	run, err := n.Wait(within(t), id)
	if err != nil {
		run, _ := n.Get(context.Background(), id)
		t.Fatalf("waiting for %s: %v; it is %s, %+v", id, err, run.State, run.Wait)
	}
	return run
}

// events returns what the log holds of a run, up to its end.
func (n *node) events(t testing.TB, id nestor.ID) (list []nestor.Event) {
	t.Helper()
	for e, err := range n.log.Follow(within(t), eventlog.Filter{Run: string(id)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, event)
		if _, ok := event.(*nestor.ExecutionComplete); ok {
			break
		}
	}
	return list
}
