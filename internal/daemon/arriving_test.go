package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Who is told of a run by its parent may ask for it before it has a document: then it
// is waited for. One that cannot come any more is not.
func TestRunIsAskedForBeforeItIsThere(t *testing.T) {
	back := core(t, func(ctx context.Context, _ *backend, _ *engine.Execution) nestor.Result {
		<-ctx.Done()
		return nestor.Result{Status: nestor.Cancelled}
	})
	for name, ask := range map[string]func(nestor.ID) error{
		"run": func(id nestor.ID) error {
			run, err := back.Run(t.Context(), id)
			if err == nil && run.ID != id {
				t.Errorf("the run is %q", run.ID)
			}
			return err
		},
		"tree":   func(id nestor.ID) error { _, err := back.Tree(t.Context(), id); return err },
		"send":   func(id nestor.ID) error { return back.Send(t.Context(), id, api.Message{Content: "hello"}) },
		"cancel": func(id nestor.ID) error { return back.Cancel(t.Context(), id, api.Cancellation{Now: true}) },
		"events": func(id nestor.ID) error {
			for _, err := range back.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
				return err
			}
			return errors.New("there are none")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(nestor.NewID(time.Now().Add(-time.Hour))); !errors.Is(err, nestor.ErrRunNotFound) {
				t.Errorf("one of an hour ago: %v", err)
			}
			id := nestor.NewID(time.Now())
			submit, err := plan.EncodeInput(plan.Submit{ID: id, Task: nestor.Task{Limits: nestor.DefaultLimits()}})
			if err != nil {
				t.Fatal(err)
			}
			asking, answered := make(chan struct{}), make(chan error, 1)
			go func() {
				close(asking)
				answered <- ask(id)
			}()
			<-asking
			if _, err := back.broker.JetStream().Publish(t.Context(), broker.OrchSubject+string(id), submit); err != nil {
				t.Fatal(err)
			}
			if err := <-answered; err != nil {
				t.Errorf("one of this moment: %v", err)
			}
		})
	}
}
