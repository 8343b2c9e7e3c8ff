package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/engine"
)

func internal(err error) nestor.Result {
	return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Internal, Message: fmt.Sprint(err)}}
}

// severalWaits: with one slot, a run that has it back before all that it waits for
// has ended keeps the rest from running.
func severalWaits(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() > 0 {
			return success("leaf")
		}
		var g errgroup.Group
		for i := range 3 {
			g.Go(func() error {
				id, err := x.Spawn(ctx, nestor.Task{}, fmt.Sprint(i), 0)
				if err == nil {
					_, err = x.Await(ctx, id)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return internal(err)
		}
		if x.Rested().IsZero() {
			return internal(errors.New("it never rested"))
		}
		return success("all")
	})
	if run := n.wait(t, n.submit(t, nestor.Task{Input: "root"})); run.State != nestor.Success || run.Used != 3 {
		t.Errorf("it is %s, %+v, with %d below", run.State, run.Result, run.Used)
	}
}

func anyOfThem(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 3, func(ctx context.Context, x *engine.Execution) nestor.Result {
		switch x.Run().Task.Input {
		case "slow":
			<-ctx.Done()
			return success("")
		case "quick":
			return success("quick")
		}
		slow, err := x.Spawn(ctx, nestor.Task{Input: "slow"}, "", 0)
		if err != nil {
			return internal(err)
		}
		quick, err := x.Spawn(ctx, nestor.Task{Input: "quick"}, "", 0)
		if err != nil {
			return internal(err)
		}
		runs, err := x.AwaitAny(ctx, slow, quick)
		if err != nil || len(runs) != 1 {
			return internal(fmt.Errorf("%d runs, %w", len(runs), err))
		}
		return success(runs[0].Result.Output)
	})
	if run := n.wait(t, n.submit(t, nestor.Task{Input: "root"})); run.Result.Output != "quick" {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

func givenUp(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 2, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() > 0 {
			<-ctx.Done()
			return success("")
		}
		id, err := x.Spawn(ctx, nestor.Task{Input: "slow"}, "", 0)
		if err != nil {
			return internal(err)
		}
		enough := errors.New("enough")
		waiting, stop := context.WithTimeoutCause(ctx, 50*time.Millisecond, enough)
		defer stop()
		if _, err := x.Await(waiting, id); !errors.Is(err, enough) {
			return internal(fmt.Errorf("it ends with %w", err))
		}
		return success("went on")
	})
	if run := n.wait(t, n.submit(t, nestor.Task{Input: "root"})); run.Result.Output != "went on" {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

func backgroundEnd(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() > 0 {
			return success("found it")
		}
		if more, err := x.Expect(ctx, 0); more || err != nil {
			return internal(fmt.Errorf("before anything is started: %v, %w", more, err))
		}
		for _, name := range []string{"first", "second"} {
			if _, err := x.Submit(ctx, engine.Submission{Task: nestor.Task{Input: name}, Name: name, Background: true}); err != nil {
				return internal(err)
			}
		}
		heard, text := 0, ""
		for {
			more, err := x.Expect(ctx, heard)
			if err != nil {
				return internal(err)
			}
			letters, _ := x.Letters(heard)
			if !more || len(letters) == 0 {
				break
			}
			for _, l := range letters {
				heard, text = l.N, text+l.Content+";"
			}
			x.Heard(heard)
		}
		return success(text)
	})
	want := "It ended with success: found it;It ended with success: found it;"
	if run := n.wait(t, n.submit(t, nestor.Task{Input: "root"})); run.State != nestor.Success || run.Result.Output != want {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

// idle is a slot that others need as long as it has no task.
type idle struct{ wanted chan struct{} }

func (s idle) Wanted() <-chan struct{}                           { return s.wanted }
func (idle) Claim(context.Context, nestor.ID, nestor.Task) error { return nil }
func (idle) Lend()                                               {}
func (idle) Reclaim(context.Context) error                       { return nil }
func (idle) Release()                                            {}

// Requests for tasks end after a second. Those that ended while there was no slot are
// made again for the next one.
func TestQueuesAreAskedAgain(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // who takes what has arrived is faster than who brought it
	n := open(t, embedded(t, t.TempDir()), engine.Options{}, asker, nil)
	free := make(chan engine.Slot)
	ctx, stop := context.WithCancel(within(t))
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() {
		n.Work(ctx, engine.Worker{
			Acquire: func(ctx context.Context) (engine.Slot, error) {
				select {
				case slot := <-free:
					return slot, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			Execute: func(context.Context, *engine.Execution) nestor.Result { return success("done") },
		})
	})
	asking := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*puller).fetch")
	}
	wanted := idle{make(chan struct{})}
	free <- wanted
	waitFor(t, asking, "tasks are asked for")
	close(wanted.wanted)
	waitFor(t, func() bool { return !asking() }, "what came of it waits for a slot")
	free <- idle{}
	n.wait(t, n.submit(t, nestor.Task{}))
}
