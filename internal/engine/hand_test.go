package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/plan"
)

// queue returns how many messages the queue of tasks holds, and how many it ever had.
func queue(t testing.TB, b *broker.Broker) (now, ever uint64) {
	t.Helper()
	stream, err := b.JetStream().Stream(within(t), broker.Tasks)
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	return state.Msgs, state.LastSeq
}

// Where a slot waits, a root is handed to it: nothing is written but its document, and
// what the log says.
func TestRootIsHandedOver(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 2, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	const runs = 20
	for range runs {
		n.wait(t, n.submit(t, nestor.Task{}))
	}
	if _, ever := queue(t, b); ever > runs/2 { // the first one may come before the slots do
		t.Errorf("%d of %d runs went through the queue", ever, runs)
	}
	if run := n.wait(t, n.submit(t, nestor.Task{Limits: nestor.Limits{Attempts: 2}})); run.Fence != 1 || run.Resumes != 0 {
		t.Errorf("it was started %d times", run.Fence)
	}
}

// A run that ends at once is told of at once: how it began and how it ended is one
// write of the log.
func TestShortRunIsOneWriteOfTheLog(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 2, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	const runs = 20
	var ids []nestor.ID
	for range runs {
		id := n.submit(t, nestor.Task{})
		n.wait(t, id)
		ids = append(ids, id)
	}
	n.stop() // all is told
	stream, err := b.JetStream().Stream(within(t), broker.Events)
	if err != nil {
		t.Fatal(err)
	}
	if wrote := stream.CachedInfo().State.LastSeq; wrote > runs*3/2 { // a slow machine may take longer than is waited for
		t.Errorf("%d writes for %d runs", wrote, runs)
	}
	n = open(t, b, private, 0, nil)
	for _, id := range ids {
		var told []string
		for e, err := range n.log.Read(within(t), eventlog.Filter{Run: string(id)}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			kind, err := nestor.EventType(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, kind)
		}
		if want := []string{"run_queued", "agent_execution_start", "agent_execution_complete"}; !slices.Equal(told, want) {
			t.Errorf("run %s is told as %v, want %v", id, told, want)
		}
	}
}

// One that goes on is told of soon, whether it says something or not, and what it says
// stands behind its start.
func TestStartIsToldSoon(t *testing.T) {
	b := embedded(t, t.TempDir())
	seen := make(chan struct{})
	var log *eventlog.Log
	n := open(t, b, private, 2, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input != "speaks" {
			<-seen
			return success("done")
		}
		x.Begun(ctx)
		var told []bool
		for e, err := range log.Read(ctx, eventlog.Filter{Run: string(x.Run().ID)}, 0) {
			told = append(told, err == nil && e.Is(&nestor.ExecutionStart{}))
		}
		if !slices.Contains(told, true) {
			t.Errorf("it has begun, and %d events say nothing of it", len(told))
		}
		return success("done")
	})
	log = n.log
	silent := n.submit(t, nestor.Task{Input: "says nothing"})
	for e, err := range n.log.Follow(within(t), eventlog.Filter{Root: string(silent)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Is(&nestor.ExecutionStart{}) {
			break
		}
	}
	close(seen)
	n.wait(t, silent)
	n.wait(t, n.submit(t, nestor.Task{Input: "speaks"}))
	asked := n.submit(t, nestor.Task{Input: "says nothing"})
	if err := n.Told(within(t), asked); err != nil {
		t.Error(err)
	}
	told := 0
	for _, err := range n.log.Read(within(t), eventlog.Filter{Run: string(asked)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		told++
	}
	if told == 0 {
		t.Error("nothing is told of a run that somebody waited for")
	}
}

// A root that is submitted before there is a slot, by who has just begun to work, waits
// a moment for it.
func TestFirstRootIsHandedOver(t *testing.T) {
	b := embedded(t, t.TempDir())
	opts := private
	waitFor(t, func() bool { // it does not wait long: on a busy machine the slot may come too late
		_, before := queue(t, b)
		n := open(t, b, opts, 1, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
		n.wait(t, n.submit(t, nestor.Task{}))
		n.stop()
		opts.Settled = settle(t, n.Engine)
		_, after := queue(t, b)
		return after == before
	}, "a first run is handed over")
}

// A child is handed over like a root, and is in the log behind what its parent says of
// it.
func TestChildIsHandedOver(t *testing.T) {
	b := embedded(t, t.TempDir())
	const children = 20
	n := open(t, b, private, 4, func(ctx context.Context, x *engine.Execution) nestor.Result {
		for range children * (1 - x.Run().Depth()) {
			haveChild(ctx, t, x)
		}
		return success("done")
	})
	root := n.wait(t, n.submit(t, nestor.Task{}))
	if root.State != nestor.Success || len(root.Children) != children {
		t.Fatalf("it is %s, with %d children", root.State, len(root.Children))
	}
	for id, c := range root.Children {
		if run := n.wait(t, id); c.Status != nestor.Success || run.Root != root.ID || run.Fence != 1 || run.Resumes != 0 {
			t.Errorf("child %s is %s in the tree of %s, started %d times", id, c.Status, run.Root, run.Fence)
		}
	}
	if _, ever := queue(t, b); ever > children/2 { // a slot that was lent may not wait yet
		t.Errorf("%d of %d runs went through the queue", ever, children+1)
	}
	told := map[string]bool{string(root.ID): true}
	for e, err := range n.log.Read(within(t), eventlog.Filter{Root: string(root.ID)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if spawn, ok := event.(*nestor.AgentSpawn); ok {
			told[string(spawn.Child)] = true
		}
		if !told[e.Run] {
			t.Fatalf("%T of run %s comes before its parent has started it", event, e.Run)
		}
	}
}

// Where no slot waits a child is not waited for: it goes through the queue, and runs
// when its parent lends it its own.
func TestChildOfTheOnlySlotIsQueued(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() < 3 {
			haveChild(ctx, t, x)
		}
		return success("done")
	})
	if run := n.wait(t, n.submit(t, nestor.Task{})); run.State != nestor.Success {
		t.Errorf("it is %s", run.State)
	}
	if _, ever := queue(t, b); ever < 3 {
		t.Errorf("%d of 3 children went through the queue", ever)
	}
}

// haveChild starts a child and waits for it.
func haveChild(ctx context.Context, t *testing.T, x *engine.Execution) {
	id, err := x.Spawn(ctx, nestor.Task{}, "", 0)
	if err == nil {
		_, err = x.Await(ctx, id)
	}
	if err != nil {
		t.Error(err)
	}
}

// The next process has what was given back, at once.
func TestHandedRunIsGivenBack(t *testing.T) {
	b := embedded(t, t.TempDir())
	began := make(chan struct{}, 1)
	n := open(t, b, private, 1, func(ctx context.Context, _ *engine.Execution) nestor.Result {
		began <- struct{}{}
		<-ctx.Done()
		return failure(nestor.Stopped)
	})
	n.wait(t, cancelled(t, n, n.submit(t, nestor.Task{}), began)) // so that a slot waits for the next one
	id := n.submit(t, nestor.Task{})
	<-began
	n.stop()
	if run, err := n.Get(within(t), id); err != nil || run.State != nestor.Queued {
		t.Fatalf("it is %s, %v", run.State, err)
	}
	if now, _ := queue(t, b); now == 0 {
		t.Error("the queue is empty")
	}
	opts := private
	opts.Settled = settle(t, n.Engine)
	next := open(t, b, opts, 1, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	if run := next.wait(t, id); run.State != nestor.Success || run.Fence != 2 || run.Resumes != 0 {
		t.Errorf("it is %s, started %d times, lost %d times", run.State, run.Fence, run.Resumes)
	}
	waitFor(t, func() bool { now, _ := queue(t, b); return now == 0 }, "the queue is empty")
}

// cancelled cancels a run that has begun.
func cancelled(t *testing.T, n *node, id nestor.ID, began <-chan struct{}) nestor.ID {
	t.Helper()
	<-began
	if err := n.Cancel(within(t), id, nestor.Cause{}, true); err != nil {
		t.Fatal(err)
	}
	return id
}

// aloneHere runs an engine that is alone in a process of its own, with n slots, until that
// ends.
func aloneHere(n int, execute func(context.Context, *engine.Execution) nestor.Result) (*broker.Broker, *engine.Engine, error) {
	ctx := context.Background()
	b, err := broker.Open(ctx, broker.Options{Dir: os.Getenv("DIR")})
	if err != nil {
		return nil, nil, err
	}
	log := eventlog.New(b, eventlog.Options{})
	e, err := engine.New(ctx, b, log, private)
	if err != nil {
		return nil, nil, err
	}
	w := slots(n)
	w.Execute = execute
	go log.Run(ctx)
	go e.Run(ctx)
	go e.Work(ctx, w)
	return b, e, nil
}

// lone is an engine that is alone, and has one run that never ends. It says when the
// run has begun, and when it has a message in the queue.
func lone() error {
	ctx := context.Background()
	began := make(chan struct{}, 1)
	b, e, err := aloneHere(1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input != "hang" {
			return success("done")
		}
		began <- struct{}{}
		<-ctx.Done()
		return failure(nestor.Stopped)
	})
	if err != nil {
		return err
	}
	tasks, err := b.JetStream().Stream(ctx, broker.Tasks)
	if err != nil {
		return err
	}
	ever := func() uint64 {
		info, err := tasks.Info(ctx)
		if err != nil {
			panic(err)
		}
		return info.State.LastSeq
	}
	for before := ^uint64(0); ever() != before; { // until one is handed over
		before = ever()
		id, err := e.Submit(ctx, engine.Submission{})
		if err != nil {
			return err
		}
		if _, err = e.Wait(ctx, id); err != nil {
			return err
		}
	}
	before := ever()
	id, err := e.Submit(ctx, engine.Submission{Task: nestor.Task{Input: "hang"}})
	if err != nil {
		return err
	}
	<-began
	fmt.Println("began", id)
	for ever() == before {
		runtime.Gosched()
	}
	fmt.Println("queued")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A run that was handed over and whose process is killed goes on in the next one,
// whether it had a message by then or not.
func TestHandedRunOutlivesAKill(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprintf("queued=%v", queued), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := start(t, "lone", "DIR="+dir)
			id := nestor.ID(p.expect("began "))
			if queued {
				p.expect("queued")
			}
			p.kill()
			b := embedded(t, dir)
			n := open(t, b, private, 1, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
			if run := n.wait(t, id); run.State != nestor.Success || run.Fence != 2 || run.Resumes != 1 {
				t.Errorf("it is %s, started %d times, lost %d times", run.State, run.Fence, run.Resumes)
			}
			waitFor(t, func() bool { now, _ := queue(t, b); return now == 0 }, "the queue is empty")
		})
	}
}

// A run that is at work for a while has a message in the queue, which is taken out
// when it ends. Nobody else gets it.
func TestHandedRunGetsAMessage(t *testing.T) {
	b := embedded(t, t.TempDir())
	var executed atomic.Int64
	end := make(chan struct{})
	n := open(t, b, private, 3, func(_ context.Context, x *engine.Execution) nestor.Result {
		executed.Add(1)
		if x.Run().Task.Input == "long" {
			<-end
		}
		return success("done")
	})
	n.wait(t, n.submit(t, nestor.Task{}))
	_, before := queue(t, b)
	id := n.submit(t, nestor.Task{Input: "long"})
	waitFor(t, func() bool { _, ever := queue(t, b); return ever > before }, "it has a message")
	n.wait(t, n.submit(t, nestor.Task{})) // others are not kept by it
	close(end)
	if run := n.wait(t, id); run.Fence != 1 || executed.Load() != 3 {
		t.Errorf("it was started %d times, and three runs %d times", run.Fence, executed.Load())
	}
	waitFor(t, func() bool { now, _ := queue(t, b); return now == 0 }, "the queue is empty")
}

// A child that was handed over by somebody who was not told that its document is
// written is executed all the same: who hands it over submits it otherwise then.
func TestChildIsHandedOverAndNobodyKnows(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 2, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	root := n.wait(t, n.submit(t, nestor.Task{}))
	path, err := plan.PathOf(root.ID)
	if err != nil {
		t.Fatal(err)
	}
	submit := plan.Submit{ID: nestor.NewID(time.Now()), Path: path, Task: nestor.Task{Limits: nestor.DefaultLimits()}}
	run, _, err := plan.Decide(plan.Run{}, plan.Start{Attempt: 1, Worker: "w", Delivery: "d", Submit: &submit, New: true}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(map[string]any{"run": run, "serial": 1})
	if err != nil {
		t.Fatal(err)
	}
	told, err := plan.EncodeInput(submit)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := b.JetStream().KeyValue(within(t), broker.RunsOf(string(submit.ID)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runs.Create(within(t), "run."+string(submit.ID), document); err != nil {
		t.Fatal(err)
	}
	if _, err := b.JetStream().Publish(within(t), broker.OrchSubject+string(submit.ID), told); err != nil {
		t.Fatal(err)
	}
	if run := n.wait(t, submit.ID); run.State != nestor.Success || run.Fence != 2 {
		t.Errorf("it is %s, started %d times", run.State, run.Fence)
	}
}

// Of many who submit with one key at once, one has it executed.
func TestHandedOverByMany(t *testing.T) {
	b := embedded(t, t.TempDir())
	var mu sync.Mutex
	executed := map[nestor.ID]int{}
	n := open(t, b, private, 4, func(_ context.Context, x *engine.Execution) nestor.Result {
		mu.Lock()
		defer mu.Unlock()
		executed[x.Run().ID]++
		return success("done")
	})
	for round := range 50 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				id, err := n.Submit(within(t), engine.Submission{Key: fmt.Sprint(round)})
				if err == nil {
					_, err = n.Wait(within(t), id)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	for id, times := range executed {
		if times != 1 {
			t.Errorf("run %s was executed %d times", id, times)
		}
	}
	if len(executed) != 50 {
		t.Errorf("%d runs were executed", len(executed))
	}
}

// reluctant are slots whose tasks may not run until they are let.
type reluctant struct {
	engine.Slot
	let <-chan struct{}
}

func (r reluctant) Claim(ctx context.Context, _ nestor.ID, _ nestor.Task) error {
	select {
	case <-r.let:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Who submits does not wait for a slot that may not run its task: it goes to the queue,
// and is run once.
func TestHandedToAReluctantSlot(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 0, nil)
	let, executed := make(chan struct{}), atomic.Int64{}
	w := slots(2)
	acquire, try := w.Acquire, w.TryAcquire
	w.Acquire = func(ctx context.Context) (engine.Slot, error) {
		s, err := acquire(ctx)
		return reluctant{s, let}, err
	}
	w.TryAcquire = func() engine.Slot {
		if s := try(); s != nil {
			return reluctant{s, let}
		}
		return nil
	}
	w.Execute = func(context.Context, *engine.Execution) nestor.Result {
		executed.Add(1)
		return success("done")
	}
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() { n.Work(ctx, w) })
	id := n.submit(t, nestor.Task{})
	if run, err := n.Get(within(t), id); err != nil || run.State != nestor.Queued {
		t.Errorf("it is %s, %v", run.State, err)
	}
	close(let)
	if run := n.wait(t, id); run.Fence != 1 || executed.Load() != 1 {
		t.Errorf("it was started %d times, and executed %d times", run.Fence, executed.Load())
	}
}

// Who changes a run before it is found that nobody works on it does not keep that from
// being found.
func TestHandedRunIsCancelledAfterAKill(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "lone", "DIR="+dir)
	id := nestor.ID(p.expect("began "))
	p.kill()
	b := embedded(t, dir)
	n := open(t, b, private, asker, nil)
	if err := n.Cancel(within(t), id, nestor.Cause{}, false); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { n.Run(ctx) })
	w := slots(1)
	w.Execute = func(context.Context, *engine.Execution) nestor.Result { return success("done") }
	all.Go(func() { n.Work(ctx, w) })
	if run := n.wait(t, id); run.State != nestor.Cancelled {
		t.Errorf("it is %s", run.State)
	}
}

// A run that got its slot before there were queues is let go if there will be none, and
// who works says why.
func TestEarlyRunIsLetGo(t *testing.T) {
	n := open(t, embedded(t, t.TempDir()), private, 0, nil)
	ended := make(chan error, 1)
	w := slots(1)
	w.Labels = []string{"no label"}
	w.Execute = func(ctx context.Context, _ *engine.Execution) nestor.Result {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nestor.Result{Status: nestor.Error}
	}
	for limit := within(t); limit.Err() == nil; { // one comes in time
		done := make(chan error, 1)
		go func() { done <- n.Work(limit, w) }()
		n.submit(t, nestor.Task{})
		if err := <-done; err == nil || !strings.Contains(err.Error(), "no label") {
			t.Fatalf("it works with a wrong label, until %v", err)
		}
		select {
		case cause := <-ended:
			if !errors.Is(cause, engine.ErrShutdown) {
				t.Errorf("it was ended by %v", cause)
			}
			return
		default:
		}
	}
	t.Error("none was started before there were queues")
}
