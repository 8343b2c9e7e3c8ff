package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// An attempt goes by the newest document that it has seen, in whatever order they come.
func TestOlderDocumentSaysNothing(t *testing.T) {
	id := nestor.NewID(time.Now())
	at := func(serial, fence uint64, change func(*plan.Run)) document {
		run := plan.Run{ID: id, Worker: "w", Fence: fence}
		if change != nil {
			change(&run)
		}
		return document{Run: run, Serial: serial}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	x := &Execution{id: id, stop: stop}
	x.conclude(at(9, 5, nil)) // before it has begun
	x.begin(at(10, 4, nil))
	x.conclude(at(12, 4, func(r *plan.Run) { r.Spent = 2 }))
	x.conclude(at(11, 4, func(r *plan.Run) { r.Spent = 1 }))                                // read before the other
	x.conclude(at(8, 3, nil))                                                               // of a server that has not caught up
	x.conclude(at(11, 4, func(r *plan.Run) { r.Stop, r.Cancel = true, new(nestor.Cause) })) // likewise
	x.conclude(document{})                                                                  // it does not even have it
	if x.Run().Spent != 2 || ctx.Err() != nil {
		t.Errorf("it goes by %+v, %v", x.Run(), context.Cause(ctx))
	}
	x.conclude(at(13, 5, nil)) // taken over
	if !errors.Is(context.Cause(ctx), nestor.ErrStale) {
		t.Errorf("it ends by %v", context.Cause(ctx))
	}
}
