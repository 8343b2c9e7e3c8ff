package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/soak"
)

// private is for an engine whose broker nobody else writes to.
var private = engine.Options{Sole: true, Alone: true}

// grow is an executor that has a tree of some breadth grow, as deep as it may, and
// hang there; each run costs a cent. Those of even depth wait for those below them,
// the others work on. Each that hangs, or works, says so on begun.
func grow(breadth int, begun chan<- nestor.ID) func(context.Context, *engine.Execution) nestor.Result {
	return func(ctx context.Context, x *engine.Execution) nestor.Result {
		run := x.Run()
		var ids []nestor.ID
		if run.Depth() < run.Task.Limits.Depth {
			for i := range breadth {
				var after []nestor.ID
				if i == breadth-1 && i > 0 {
					after = ids[:1] // and never begins
				}
				id, err := x.Spawn(ctx, nestor.Task{Input: fmt.Sprint(run.Task.Input, i), After: after}, "", 0)
				if err != nil {
					return internal(err)
				}
				ids = append(ids, id)
			}
		}
		begun <- run.ID
		if len(ids) > 0 && run.Depth()%2 == 0 {
			x.Await(ctx, ids...)
		} else {
			<-ctx.Done()
		}
		return nestor.Result{Status: nestor.Error, CostUSD: 0.01}
	}
}

// hang is an executor that does nothing until it is to end.
func hang(ctx context.Context, _ *engine.Execution) nestor.Result {
	<-ctx.Done()
	return failure(nestor.Stopped)
}

// A cancel ends a whole tree of an engine that is alone: what works, what waits and
// what has not begun; each run once and after all below it, in the documents and in
// the log, and what was leased is settled.
func TestCancelEndsATreeThatIsDecidedAhead(t *testing.T) { eachShape(t, testCancelAhead) }

// eachShape tests with trees as they are, and with those that layout 5 had, whose
// documents are in several buckets.
func eachShape(t *testing.T, test func(*testing.T)) {
	t.Run("one bucket", test)
	t.Run("both buckets", func(t *testing.T) {
		engine.Scatter(true)
		t.Cleanup(func() { engine.Scatter(false) })
		test(t)
	})
}

func testCancelAhead(t *testing.T) {
	const breadth, depth = 4, 3
	begun := make(chan nestor.ID, 1000)
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 1000, grow(breadth, begun))
	id := n.submit(t, nestor.Task{Input: "r", Limits: nestor.Limits{Depth: depth, Children: breadth, Descendants: 1000, BudgetUSD: 100}})
	begins := 1 + (breadth-1)*(1+(breadth-1)*(1+(breadth-1))) // of each brood one comes after another
	for range begins {
		<-begun
	}
	if err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil {
		t.Fatal(err)
	}
	root := n.wait(t, id)
	if want := float64(begins) / 100; root.State != nestor.Cancelled || root.Spent+root.Below < want-1e-9 || root.Spent+root.Below > want+1e-9 {
		t.Errorf("it is %s and cost %v, want %v", root.State, root.Spent+root.Below, want)
	}
	runs := 0
	var look func(r plan.Run)
	look = func(r plan.Run) {
		runs++
		if r.State != nestor.Cancelled || len(r.Live()) > 0 || r.Cancel == nil || r.Cancel.Run != id || r.Cancel.By != "ada" {
			t.Errorf("%s is %s, by %v, with %d below it alive", r.Task.Input, r.State, r.Cancel, len(r.Live()))
		}
		for child := range r.Children {
			below, err := n.Get(within(t), child)
			if err != nil {
				t.Fatal(err)
			}
			look(below)
		}
	}
	look(root)
	ends := treeEnds(t, n, id)
	if len(ends) != runs {
		t.Errorf("%d runs ended in the log, want %d", len(ends), runs)
	}
	if i := slices.Index(ends, id); i != len(ends)-1 {
		t.Errorf("the root ended as number %d of %d", i+1, len(ends))
	}
	for i, ended := range ends {
		if slices.Contains(ends[:i], ended) {
			t.Errorf("%s ended twice", ended)
		}
		run, err := n.Get(within(t), ended)
		if err != nil {
			t.Fatal(err)
		}
		for child := range run.Children {
			if !slices.Contains(ends[:i], child) {
				t.Errorf("%s ended in the log before one below it", run.Task.Input)
			}
			if is, below := writtenAt(t, b, ended), writtenAt(t, b, child); is.Before(below) {
				t.Errorf("the end of %s was written %v before one below it", run.Task.Input, below.Sub(is))
			}
		}
	}
}

// writtenAt returns when the document of a run was written last.
func writtenAt(t *testing.T, b *broker.Broker, id nestor.ID) time.Time {
	t.Helper()
	docs, err := b.JetStream().KeyValue(within(t), broker.RunsOf(string(id)))
	if err != nil {
		t.Fatal(err)
	}
	is, err := docs.Get(within(t), "run."+string(id))
	if err != nil {
		t.Fatal(err)
	}
	return is.Created()
}

// treeEnds returns the runs of a tree in the order of their ends in the log, up to
// that of the root.
func treeEnds(t *testing.T, n *node, root nestor.ID) (ends []nestor.ID) {
	t.Helper()
	for e, err := range n.log.Follow(within(t), eventlog.Filter{Root: string(root)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := event.(*nestor.ExecutionComplete); ok {
			if ends = append(ends, event.Head().Run); event.Head().Run == root {
				break
			}
		}
	}
	return ends
}

// allCancelled waits for the end of a tree, of which each run is to end once, by a
// cancel.
func allCancelled(t *testing.T, n *node, id nestor.ID) {
	t.Helper()
	root := n.wait(t, id)
	if root.State != nestor.Cancelled || len(root.Live()) > 0 {
		t.Errorf("it is %s, with %d below it alive", root.State, len(root.Live()))
	}
	if ends := treeEnds(t, n, id); len(ends) != 1+root.Used {
		t.Errorf("%d runs ended, of %d", len(ends), 1+root.Used)
	}
}

// A part of a tree is cancelled, and the whole of it meanwhile: all of it ends once,
// and what is above the part hears of its end.
func TestCancelOfAPartAndOfTheWhole(t *testing.T) { eachShape(t, testCancelOfAPart) }

func testCancelOfAPart(t *testing.T) {
	const breadth, depth = 3, 3
	begun := make(chan nestor.ID, 1000)
	n := open(t, embedded(t, t.TempDir()), private, 1000, grow(breadth, begun))
	for range 5 {
		id := n.submit(t, nestor.Task{Input: "r", Limits: nestor.Limits{Depth: depth, Children: breadth, Descendants: 1000}})
		for range 1 + (breadth-1)*(1+(breadth-1)*breadth) {
			<-begun
		}
		root, err := n.Get(within(t), id)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, len(root.Children)+1)
		for _, part := range append(root.Live(), id) {
			go func() { done <- n.Cancel(context.Background(), part, nestor.Cause{By: "ada"}, true) }()
		}
		for range len(root.Children) + 1 {
			if err := <-done; err != nil && !errors.Is(err, nestor.ErrEnded) {
				t.Error(err)
			}
		}
		allCancelled(t, n, id)
	}
}

// A document was written behind the back of an engine that is ahead of it: what it
// decided is not stored. It decides again, and all of the tree ends once.
func TestCancelOfWhatSomebodyElseWrote(t *testing.T) { eachShape(t, testCancelOfWhatSomebodyElseWrote) }

func testCancelOfWhatSomebodyElseWrote(t *testing.T) {
	const breadth, depth = 3, 2
	begun := make(chan nestor.ID, 1000)
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 1000, grow(breadth, begun))
	for range 5 {
		id := n.submit(t, nestor.Task{Input: "r", Limits: nestor.Limits{Depth: depth, Children: breadth, Descendants: 1000}})
		for range 1 + (breadth-1)*(1+(breadth-1)) {
			<-begun
		}
		root, err := n.Get(within(t), id)
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, b, root.Live()[0])
		if err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil {
			t.Fatal(err)
		}
		allCancelled(t, n, id)
	}
}

// rewrite writes the document of a run again as it is, between two writes of its
// engine, which may come in between at first.
func rewrite(t *testing.T, b *broker.Broker, id nestor.ID) {
	t.Helper()
	docs, err := b.JetStream().KeyValue(within(t), broker.RunsOf(string(id)))
	if err != nil {
		t.Fatal(err)
	}
	name := "run." + string(id)
	for {
		is, err := docs.Get(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = docs.Update(within(t), name, is.Value(), is.Revision())
		if err == nil {
			return
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			t.Fatal(err)
		}
	}
}

// What is slow to end is on record as cancelled meanwhile, and ends in its time.
func TestCancelOfWhatIsSlowToEnd(t *testing.T) {
	begun, release := make(chan nestor.ID, 2), make(chan struct{})
	n := open(t, embedded(t, t.TempDir()), private, 2, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() > 0 {
			begun <- x.Run().ID
			<-ctx.Done()
			<-release
			return nestor.Result{Status: nestor.Partial, Output: "half"}
		}
		child, err := x.Spawn(ctx, nestor.Task{}, "", 0)
		if err != nil {
			return internal(err)
		}
		x.Await(ctx, child)
		return success("done")
	})
	id := n.submit(t, nestor.Task{Limits: nestor.Limits{Depth: 1, Children: 1, Descendants: 1}})
	child := <-begun
	waitFor(t, func() bool {
		run, err := n.Get(within(t), id)
		return err == nil && run.State == nestor.Waiting
	}, "the root waits")
	if err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		run, err := n.Get(within(t), child)
		return err == nil && run.Cancel != nil && run.Stop && !run.State.Ended()
	}, "the child is on record as cancelled")
	if run, err := n.Get(within(t), id); err != nil || run.State.Ended() {
		t.Errorf("the root is %s before the child has ended, %v", run.State, err)
	}
	close(release)
	if run := n.wait(t, child); run.State != nestor.Cancelled || run.Result.Output != "half" {
		t.Errorf("the child is %s, %+v", run.State, run.Result)
	}
	if run := n.wait(t, id); run.State != nestor.Success || run.Used != 1 {
		t.Errorf("the root, which was done in time, is %s, with %d below it", run.State, run.Used)
	}
}

// An engine that ends while a tree is ending leaves what the next one goes on with.
func TestCancelGoesOnInTheNextProcess(t *testing.T) { eachShape(t, testCancelGoesOn) }

func testCancelGoesOn(t *testing.T) {
	const breadth, depth = 3, 3
	dir := t.TempDir()
	for _, round := range soak.Draw(t, 1, []int{0, 1, 2}) {
		begun := make(chan nestor.ID, 1000)
		b := embedded(t, dir)
		n := open(t, b, private, 1000, grow(breadth, begun))
		id := n.submit(t, nestor.Task{Input: "r", Limits: nestor.Limits{Depth: depth, Children: breadth, Descendants: 1000, Resumes: 100}})
		for range 1 + (breadth-1)*(1+(breadth-1)*breadth) {
			<-begun
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(round)*time.Millisecond)
		n.Cancel(ctx, id, nestor.Cause{By: "ada"}, false) // it may be acknowledged or not
		stop()
		run, err := n.Get(within(t), id)
		if err != nil {
			t.Fatal(err)
		}
		cancelled := run.Cancel != nil
		n.stop()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = embedded(t, dir)
		n = open(t, b, private, 1000, hang)
		if !cancelled {
			n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false)
		}
		allCancelled(t, n, id)
		n.stop()
		b.Close()
	}
}

// Of a tree that is killed: its shape, and how many of it begin.
const (
	felledBreadth, felledDepth = 3, 3
	felledBegin                = 1 + (felledBreadth-1)*(1+(felledBreadth-1)*felledBreadth)
)

// felled is an engine that is alone, has a tree grow and, unless it is to be left so,
// cancels it.
func felled() error {
	ctx := context.Background()
	engine.Scatter(os.Getenv("SCATTER") != "")
	begun := make(chan nestor.ID, 1000)
	_, e, err := aloneHere(1000, grow(felledBreadth, begun))
	if err != nil {
		return err
	}
	id, err := e.Submit(ctx, engine.Submission{Task: nestor.Task{
		Input: "r", Limits: nestor.Limits{Depth: felledDepth, Children: felledBreadth, Descendants: 1000, Resumes: 100},
	}})
	if err != nil {
		return err
	}
	for range felledBegin {
		<-begun
	}
	fmt.Println("grown", id)
	if os.Getenv("GROWN") == "" {
		err = e.Cancel(ctx, id, nestor.Cause{By: "ada"}, false)
	}
	io.Copy(io.Discard, os.Stdin)
	return err
}

// A tree of which some documents say that it is cancelled, or has ended, and others do
// not, because who wrote them was killed, ends in the next process: each run once, and
// after all below it.
func TestCancelOutlivesAKill(t *testing.T) {
	chance := soak.Rand(t)
	for round := range soak.Of(4, 60) {
		dir := t.TempDir()
		env := []string{"DIR=" + dir}
		if round%2 == 1 {
			env = append(env, "SCATTER=1")
		}
		p := start(t, "felled", env...)
		id := nestor.ID(p.expect("grown "))
		time.Sleep(time.Duration(chance.IntN(20_000)) * time.Microsecond) // to be killed anywhere in it, or behind it
		p.kill()
		b := embedded(t, dir)
		n := open(t, b, private, 1000, hang)
		run, err := n.Get(within(t), id)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: it is %s, cancelled: %v", round, run.State, run.Cancel != nil)
		if run.Cancel == nil {
			if err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil {
				t.Fatal(err)
			}
		}
		allCancelled(t, n, id)
		n.stop()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A tree whose workers were killed ends when it is cancelled, also in a process that does
// not work: nobody has to take its tasks for that.
func TestCancelEndsWhatAKillLeft(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "felled", "DIR="+dir, "GROWN=1")
	id := nestor.ID(p.expect("grown "))
	p.kill()
	n := open(t, embedded(t, dir), private, 0, nil)
	if run, err := n.Get(within(t), id); err != nil || run.Worker == "" {
		t.Fatalf("it is worked on by %q: %v", run.Worker, err)
	}
	for range 2 { // the second time it may have ended
		if err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil && !errors.Is(err, nestor.ErrEnded) {
			t.Fatal(err)
		}
	}
	allCancelled(t, n, id)
}
