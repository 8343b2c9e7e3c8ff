package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/soak"
)

// Many children end at once: each is accounted for once, and
// what one sees of a run is what was written last.
func TestManyChildrenEndAtOnce(t *testing.T) {
	children := soak.Of(40, 100)
	for _, opts := range []engine.Options{{}, {Sole: true}, {Sole: true, Alone: true}} {
		t.Run(fmt.Sprintf("sole=%v,alone=%v", opts.Sole, opts.Alone), func(t *testing.T) {
			n := open(t, embedded(t, t.TempDir()), opts, children+1, func(ctx context.Context, x *engine.Execution) nestor.Result {
				if x.Run().Depth() > 0 {
					<-ctx.Done() // they end by their parent's end
					return nestor.Result{Status: nestor.Cancelled, CostUSD: 0.5}
				}
				for i := range children {
					if _, err := x.Spawn(ctx, nestor.Task{Input: fmt.Sprint(i)}, "", 0); err != nil {
						return internal(err)
					}
				}
				return success("done")
			})
			id := n.submit(t, nestor.Task{Input: "root", Limits: nestor.Limits{Depth: 1, Children: children, Descendants: children, BudgetUSD: float64(children)}})
			run := n.wait(t, id)
			if run.State != nestor.Success || run.Used != children || len(run.Live()) != 0 {
				t.Errorf("it is %s, with %d below, of which %d live: %+v", run.State, run.Used, len(run.Live()), run.Result)
			}
			spent, leases := 0.0, 0
			for child, c := range run.Children {
				is, err := n.Get(within(t), child)
				if err != nil || is.State != nestor.Cancelled || c.Status != nestor.Cancelled || is.Spent != c.Spent {
					t.Errorf("child %s is %s, which its parent knows as %+v: %v", child, is.State, c, err)
				}
				spent += c.Spent
			}
			for _, e := range n.events(t, id) {
				if l, ok := e.(*nestor.Lease); ok && l.Returned+l.Spent > 0 {
					leases++
				}
			}
			if run.Below != spent || leases != children {
				t.Errorf("%v USD were spent below and %d leases came back, want %v and %d", run.Below, leases, spent, children)
			}
		})
	}
}

// The broker holds the deadlines of runs that wait for another attempt, not of those
// that have ended.
func TestDeadlinesAreTakenBack(t *testing.T) {
	n := open(t, embedded(t, t.TempDir()), engine.Options{}, 4, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input == "waits" || x.Run().Attempt == 1 {
			return failure(nestor.Connection)
		}
		return success("done")
	})
	limits := nestor.Limits{Timeout: time.Hour, Attempts: 2, Backoff: time.Millisecond}
	for range 20 {
		n.wait(t, n.submit(t, nestor.Task{Input: "ends", Limits: limits}))
	}
	limits.Backoff = time.Minute
	going := n.submit(t, nestor.Task{Input: "waits", Limits: limits})
	waitFor(t, func() bool {
		stream, err := n.broker.JetStream().Stream(within(t), broker.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(within(t), jetstream.WithSubjectFilter(broker.LaterSubject+"timer.>"))
		if err != nil {
			t.Fatal(err)
		}
		_, has := info.State.Subjects[broker.LaterSubject+"timer."+string(going)]
		return has && len(info.State.Subjects) == 1
	}, "the deadline of the run that waits is the only one")
}

// Where a slot waits for a task, who starts a root makes its document: it is written
// when it starts and when it ends. Where none does, its submitter makes it.
func TestDocumentIsMadeByWhoStartsIt(t *testing.T) {
	b := embedded(t, t.TempDir())
	written := func() (n uint64) {
		for _, bucket := range broker.RunsBuckets() {
			stream, err := b.JetStream().Stream(within(t), broker.BucketStream(bucket))
			if err != nil {
				t.Fatal(err)
			}
			n += stream.CachedInfo().State.LastSeq
		}
		return n
	}
	began, block := make(chan struct{}), make(chan struct{})
	n := open(t, b, private, 1, func(_ context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input == "block" {
			close(began)
			<-block
		}
		return success("done")
	})
	const runs = 20
	waitFor(t, func() bool { // the slot may not be back for some
		before := written()
		for range runs {
			n.wait(t, n.submit(t, nestor.Task{}))
		}
		return written()-before < 3*runs
	}, "not all documents were written three times")
	n.submit(t, nestor.Task{Input: "block"})
	<-began
	before := written()
	if run, err := n.Get(within(t), n.submit(t, nestor.Task{})); err != nil || run.State != nestor.Queued || written() != before+1 {
		t.Errorf("with no slot free it is %s, %v, and %d documents were written", run.State, err, written()-before)
	}
	close(block)
}
