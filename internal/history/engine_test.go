package history

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/pool"
)

// slot is a slot of the pool.
type slot struct{ *pool.Slot }

func (s slot) Claim(ctx context.Context, root nestor.ID, _ nestor.Task) error {
	return s.Slot.Claim(ctx, pool.Claim{Tree: string(root)})
}

// node is an engine whose runs are archived.
func node(t *testing.T, b *broker.Broker, h *History) (e *engine.Engine, log *eventlog.Log, stop func()) {
	t.Helper()
	log = eventlog.New(b, eventlog.Options{Archive: h})
	e, err := engine.New(soon(t), b, log, engine.Options{Sole: true, Ended: h.Ended})
	if err != nil {
		t.Fatal(err)
	}
	stopLog := background(t, "the log", log.Run)
	stopProjection := background(t, "the projection", func(ctx context.Context) error { return h.Project(ctx, log) })
	cancelled := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
	stopPlanning := background(t, "the planner", cancelled(e.Run))
	stopWork := background(t, "the worker", cancelled(func(ctx context.Context) error {
		slots := pool.NewSlots(pool.SlotLimits{Total: 2})
		acquire := func(ctx context.Context) (engine.Slot, error) {
			s, err := slots.Acquire(ctx)
			return slot{s}, err
		}
		return e.Work(ctx, engine.Worker{Acquire: acquire, Execute: spawnOne})
	}))
	stop = sync.OnceFunc(func() { stopWork(); stopPlanning(); stopProjection(); stopLog() })
	t.Cleanup(stop)
	return e, log, stop
}

// spawnOne has a run start a child, if it is told to.
func spawnOne(ctx context.Context, x *engine.Execution) nestor.Result {
	if x.Run().Task.Input == "parent" {
		child, err := x.Spawn(ctx, nestor.Task{Agent: "child"}, "key", 0)
		if err == nil {
			_, err = x.Await(ctx, child)
		}
		if err != nil {
			return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Internal, Message: err.Error()}}
		}
	}
	return nestor.Result{Status: nestor.Success, Output: "done"}
}

// A tree that the engine ran is archived and forgotten by it; what comes after it
// can still be submitted, and the engine starts again without it.
func TestTreesOfTheEngineAreArchived(t *testing.T) {
	dir := t.TempDir()
	b, err := broker.Open(soon(t), broker.Options{Dir: filepath.Join(dir, "broker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	h := mustOpen(t, filepath.Join(dir, "history.db"))
	e, log, stop := node(t, b, h)
	root, err := e.Submit(soon(t), engine.Submission{Task: nestor.Task{Agent: "planner", Input: "parent"}})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := e.Wait(soon(t), root); err != nil || run.State != nestor.Success {
		t.Fatalf("the run is %+v: %v", run, err)
	}
	forget := func(ctx context.Context, _ nestor.ID, runs []nestor.ID) error { return e.Forget(ctx, runs...) }
	waitFor(t, "the tree to be archived", func() bool {
		n, err := h.Archive(soon(t), log, forget, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	tree, err := h.Tree(soon(t), root)
	if err != nil || len(tree) != 2 || tree[1].Parent != root || tree[1].State != nestor.Success || !tree[1].Archived {
		t.Errorf("the tree is %+v: %v", tree, err)
	}
	if _, err := e.Get(soon(t), root); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("the engine remembers: %v", err)
	}
	if s, err := log.Stats(soon(t)); err != nil || s.Chunks != 0 {
		t.Errorf("the stream holds %d chunks: %v", s.Chunks, err)
	}

	stop()
	e, _, _ = node(t, b, h)
	next, err := e.Submit(soon(t), engine.Submission{Task: nestor.Task{Agent: "later", After: []nestor.ID{root}}})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := e.Wait(soon(t), next); err != nil || run.State != nestor.Success {
		t.Errorf("what came after it is %+v: %v", run, err)
	}
}
