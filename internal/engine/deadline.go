package engine

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// maxOver is how many deadlines wait to be taken back.
const maxOver = 4096

// over has the deadline of a run taken back that has ended. One that is not, because
// too many wait or the process ends, comes in its time and changes nothing.
func (e *Engine) over(run plan.Run) {
	own := !run.Started.IsZero() && run.Task.Limits.Timeout > 0 &&
		(run.Path.Len() == 0 || run.Deadline.Equal(run.Started.Add(run.Task.Limits.Timeout)))
	if !own || !run.State.Ended() {
		return // those below a root have that of the root, mostly
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
