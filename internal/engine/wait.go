package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Spawn starts a child. See [Engine.Submit].
func (x *Execution) Spawn(ctx context.Context, task nestor.Task, key string, spent float64) (nestor.ID, error) {
	return x.Submit(ctx, Submission{Task: task, Key: key, Spent: spent})
}

// Submit starts a child. Its Parent and Fence are those of the attempt, whatever s
// says. See [Engine.Submit].
func (x *Execution) Submit(ctx context.Context, s Submission) (nestor.ID, error) {
	s.Parent, s.Fence = x.id, x.Fence()
	return x.e.Submit(ctx, s)
}

// Await waits until all of the runs have ended and returns them in that order.
// The slot is lent while it waits.
func (x *Execution) Await(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error) {
	var ended []plan.Run
	err := x.lend(ctx, x.waitFor(ctx, nestor.Wait{For: nestor.ForChildren, Runs: runs}), func() error {
		for _, id := range runs {
			run, err := x.seen(ctx, id)
			if err != nil {
				return err
			}
			ended = append(ended, run)
		}
		return nil
	})
	return ended, err
}

// AwaitAny waits until one of the runs has ended, and returns those that have. The
// slot is lent while it waits.
func (x *Execution) AwaitAny(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error) {
	var ended []plan.Run
	err := x.lend(ctx, x.waitFor(ctx, nestor.Wait{For: nestor.ForChildren, Runs: runs}), func() error {
		type end struct {
			run plan.Run
			err error
		}
		ends := make(chan end, len(runs)) // sent by those below, received here, never closed
		looking, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		for _, id := range runs {
			all.Go(func() {
				run, err := x.seen(looking, id)
				ends <- end{run, err}
			})
		}
		for first := <-ends; ; first = <-ends {
			if first.err != nil {
				return first.err
			}
			ended = append(ended, first.run)
			if len(ends) == 0 {
				return nil
			}
		}
	})
	return ended, err
}

// seen waits until a run has ended and, if it is a child, until this run has heard
// of it: then what it had leased is back.
func (x *Execution) seen(ctx context.Context, id nestor.ID) (plan.Run, error) {
	run, err := x.e.until(ctx, id, hasEnded)
	if err != nil {
		return run, err
	}
	_, err = x.e.until(ctx, x.id, func(mine plan.Run) bool {
		c := mine.Children[id]
		return mine.State.Ended() || c == nil || c.Status != ""
	})
	return run, err
}

// waitFor returns what puts on record what the attempt waits for.
func (x *Execution) waitFor(ctx context.Context, wait nestor.Wait) func() error {
	return func() error { return x.Report(ctx, &wait, 0) }
}

// lend lets others use the slot while wait waits, once begin has put on record what
// for. Several may wait at once: the slot is back when none does any more, so that
// what the others wait for can run.
func (x *Execution) lend(ctx context.Context, begin, wait func() error) error {
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := begin()
	if err == nil {
		if x.waits++; x.waits == 1 {
			x.slot.Lend()
		}
	}
	<-x.turn
	if err != nil {
		return err
	}
	x.rest(1)
	defer x.rest(-1)
	err = wait()
	if back := x.reclaim(ctx); back != nil {
		return errors.Join(err, back)
	}
	return err
}

// rest counts waits.
func (x *Execution) rest(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resting += n
	x.rested = time.Now()
}

// Rested returns when the attempt last waited for others, now if it does; zero if
// it never has.
func (x *Execution) Rested() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.resting > 0 {
		return time.Now()
	}
	return x.rested
}

// reclaim has the slot back, unless others still wait. Who waited may have given
// up: what counts is that the attempt goes on.
func (x *Execution) reclaim(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	watching.Go(func() {
		select {
		case <-x.done:
			stop(errOver)
		case <-ctx.Done():
		}
	})
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if x.waits--; x.waits > 0 {
		return nil
	}
	if err := x.slot.Reclaim(ctx); err != nil {
		return err
	}
	return x.Report(ctx, nil, 0)
}

// errOver says that an attempt is over that waited for its slot.
var errOver = errors.New("the attempt is over")

// Ask asks a person and waits for the answer, without a slot. A question with the
// id of one that was answered before, also to another attempt, is not asked
// again.
func (x *Execution) Ask(ctx context.Context, ask nestor.Ask) (*nestor.Answer, error) {
	answered := func(run plan.Run) bool {
		q := run.Asks[ask.AskID]
		return q != nil && q.Answer != nil
	}
	begin := func() error {
		_, err := x.e.apply(ctx, x.id, plan.AskPerson{Fence: x.Fence(), Ask: ask})
		return err
	}
	var answer *nestor.Answer
	err := x.lend(ctx, begin, func() error {
		run, err := x.e.until(ctx, x.id, func(run plan.Run) bool { return answered(run) || run.State.Ended() })
		switch {
		case err != nil:
			return err
		case !answered(run):
			return nestor.ErrEnded
		}
		answer = run.Asks[ask.AskID].Answer
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking %q in run %s: %w", ask.AskID, x.id, err)
	}
	return answer, nil
}

// Expect waits, without its slot, for a letter behind number n, as long as one
// comes by itself: about the end of a child in the background. It returns false
// if none does.
func (x *Execution) Expect(ctx context.Context, n int) (bool, error) {
	has := func(run plan.Run) bool {
		return slices.ContainsFunc(run.Letters, func(l plan.Letter) bool { return l.N > n })
	}
	run, err := x.e.Get(ctx, x.id)
	if err == nil && !has(run) && len(run.Expected()) > 0 {
		wait := nestor.Wait{For: nestor.ForChildren, Runs: run.Expected(), Reason: "it is done but for what it started in the background"}
		err = x.lend(ctx, x.waitFor(ctx, wait), func() (err error) {
			run, err = x.e.until(ctx, x.id, func(run plan.Run) bool { return has(run) || run.State.Ended() || len(run.Expected()) == 0 })
			return err
		})
	}
	if err != nil {
		return false, err
	}
	if has(run) && !has(x.Run()) {
		x.update(run) // before the notice of it comes
	}
	return has(run), nil
}

// Collect says that the run knows how these children ended, and need not be told
// by a letter.
func (x *Execution) Collect(ctx context.Context, runs ...nestor.ID) error {
	run, err := x.e.apply(ctx, x.id, plan.Collect{Fence: x.Fence(), Runs: runs})
	if err != nil {
		return fmt.Errorf("run %s: %w", x.id, err)
	}
	if run.Fence == x.Fence() {
		x.update(run) // or a letter would still be heard
	}
	return nil
}
