package engine_test

import (
	"context"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/engine"
)

func TestFirst(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, engine.Options{Sole: true}, 2, func(_ context.Context, x *engine.Execution) nestor.Result {
		return success("did " + x.Run().Task.Input)
	})
	id := n.submit(t, nestor.Task{Input: "this"})
	if run := n.wait(t, id); run.State != nestor.Success || run.Result.Output != "did this" {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}
