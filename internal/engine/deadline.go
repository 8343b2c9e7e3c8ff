package engine

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// maxOver is how many deadlines wait to be taken back.
const maxOver = 4096

// expire has the run end at its deadline, for as long as ctx lasts; the caller calls
// stop. A deadline that it has from a run above it that run has to keep: only if
// that does not, because it is lost, this one ends by itself.
func (x *Execution) expire(ctx context.Context) (stop func()) {
	run := x.Run()
	if run.Deadline.IsZero() {
		return func() {}
	}
	at := run.Deadline.Round(0)
	if own := run.Path.Len() == 0 || run.Deadline.Equal(run.Started.Add(run.Task.Limits.Timeout)); !own {
		at = at.Add(x.e.opts.Lease)
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	late := time.AfterFunc(untilLook(at), func() { // most have ended by then
		defer close(over)
		x.endAt(ctx, at)
	})
	return func() {
		cancel()
		if !late.Stop() {
			<-over
		}
	}
}

// endAt has the run end at a time, unless ctx ends before.
func (x *Execution) endAt(ctx context.Context, at time.Time) {
	for ctx.Err() == nil {
		if !time.Now().Before(at) {
			if x.e.done(ctx, x.id, plan.Timer{}) == nil {
				return // by another clock it may be early: then the run has a timer
			}
			at = time.Now().Add(retryAfter).Round(0)
		}
		select {
		case <-time.After(untilLook(at)):
		case <-ctx.Done():
		}
	}
}

// untilLook is how long to wait for a time before the clock is looked at: that of a
// machine that sleeps goes on, and timers do not.
func untilLook(at time.Time) time.Duration { return min(time.Until(at), lookAgain) }

// lookAgain is how often the clock is looked at.
const lookAgain = 10 * time.Second

// over has the deadline of a run taken back that has ended, if the broker may hold it
// since nobody worked on the run for a while. One that is not taken back, because
// too many wait or the process ends, comes in its time and changes nothing.
func (e *Engine) over(run plan.Run) {
	if !run.State.Ended() || run.Deadline.IsZero() || run.Fence < 2 && run.Retries == 0 {
		return
	}
	select {
	case e.ended <- run.ID:
	default:
	}
}

// takeBack takes deadlines back until ctx ends. The server would hold each of them
// until its time: for ten minutes, by default, of a run that took a second. That there
// was one it knows until then all the same (seen in 2.15.2).
func (e *Engine) takeBack(ctx context.Context) error {
	var tasks jetstream.Stream
	for {
		select {
		case id := <-e.ended:
			if tasks == nil {
				tasks = e.tasks(ctx)
			}
			if tasks != nil {
				e.drop(ctx, tasks, id)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// tasks returns the stream of tasks; nil if it cannot be reached.
func (e *Engine) tasks(ctx context.Context) jetstream.Stream {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	stream, err := e.js.Stream(ctx, broker.Tasks)
	if err != nil {
		return nil
	}
	return stream
}

func (e *Engine) drop(ctx context.Context, tasks jetstream.Stream, id nestor.ID) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	tasks.Purge(ctx, jetstream.WithPurgeSubject(timerSubject(id))) // if it fails, the deadline comes in its time
}
