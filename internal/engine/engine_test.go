package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// The contract of the engine. Every test runs on each shape of the broker.
func TestEngine(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		for _, test := range contract {
			t.Run(test.name, func(t *testing.T) { test.run(t, &shape{t: t, b: embedded(t, t.TempDir())}) })
		}
	})
	t.Run("process", func(t *testing.T) {
		s := alone(t)
		for _, test := range contract {
			t.Run(test.name, func(t *testing.T) { test.run(t, s) })
		}
	})
	t.Run("cluster", func(t *testing.T) {
		s := cluster(t)
		for _, test := range contract {
			t.Run(test.name, func(t *testing.T) { test.run(t, s) })
		}
	})
}

var contract = []struct {
	name string
	run  func(*testing.T, *shape)
}{
	{"a task is run once and its result is known", onceAndForAll},
	{"submits with the same key are one", sameKey},
	{"a run starts after what it comes after", dependencies},
	{"a dependency that fails ends what comes after it", failedDependency},
	{"trees deeper than the slots end", deepTree},
	{"limits refuse children, with what is left", refusedChildren},
	{"connection failures are tried again, others are not", retries},
	{"a panic is an error of the run", panics},
	{"cancel ends a run, what is below it first", cancelTree},
	{"cancel ends what waits in the queue", cancelQueued},
	{"cancel and the end at once make one end", cancelRace},
	{"a deadline ends a run and all below it", deadline},
	{"the urgent goes first", priorities},
	{"labels choose the worker", labels},
	{"small trees do not wait for large ones", fairness},
	{"a question waits for its answer", asks},
	{"several waits lend one slot", severalWaits},
	{"one of several is enough", anyOfThem},
	{"who gave up waiting has its slot back", givenUp},
	{"the end of a child in the background is heard", backgroundEnd},
	{"a worker that ends gives back what it runs", handover},
	{"bad tasks are refused with the reason", badTasks},
	{"events tell the story once", events},
}

var (
	short   = engine.Options{Lease: 2 * time.Second}
	patient = engine.Options{Lease: 15 * time.Second} // a worker that is late on a busy machine is not taken for lost
)

func onceAndForAll(t *testing.T, s *shape) {
	var calls atomic.Int32
	execute := func(_ context.Context, x *engine.Execution) nestor.Result {
		calls.Add(1)
		return success("did " + x.Run().Task.Input)
	}
	a, b := open(t, s.connect(t), patient, 2, execute), open(t, s.connect(t), patient, 2, execute)
	var ids []nestor.ID
	for i := range 20 {
		ids = append(ids, a.submit(t, nestor.Task{Input: fmt.Sprint(i)}))
	}
	for i, id := range ids {
		if run := b.wait(t, id); run.State != nestor.Success || run.Result.Output != fmt.Sprint("did ", i) || run.Fence != 1 {
			t.Errorf("%d is %s, %+v, fence %d", i, run.State, run.Result, run.Fence)
		}
	}
	if n := calls.Load(); n != 20 {
		t.Errorf("20 tasks were executed %d times", n)
	}
}

func sameKey(t *testing.T, s *shape) {
	var calls atomic.Int32
	n := open(t, s.connect(t), patient, 4, func(context.Context, *engine.Execution) nestor.Result {
		calls.Add(1)
		return success("")
	})
	key := t.Name()
	ids := make([]nestor.ID, 10)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = n.Submit(within(t), engine.Submission{Key: key}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n.wait(t, ids[0])
	again, err := n.Submit(within(t), engine.Submission{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if ids = slices.Compact(append(ids, again)); len(ids) != 1 || calls.Load() != 1 {
		t.Errorf("they made %d runs, executed %d times", len(ids), calls.Load())
	}
}

func dependencies(t *testing.T, s *shape) {
	var mu sync.Mutex
	var order []string
	n := open(t, s.connect(t), patient, 4, func(_ context.Context, x *engine.Execution) nestor.Result {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, x.Run().Task.Input)
		return success("")
	})
	a := n.submit(t, nestor.Task{Input: "a"})
	b := n.submit(t, nestor.Task{Input: "b", After: []nestor.ID{a}})
	c := n.submit(t, nestor.Task{Input: "c", After: []nestor.ID{a, b}})
	n.wait(t, c)
	d := n.submit(t, nestor.Task{Input: "d", After: []nestor.ID{a, c}}) // which have ended
	n.wait(t, d)
	if got := strings.Join(order, ""); got != "abcd" {
		t.Errorf("they were run as %s", got)
	}
	missing := nestor.NewID(time.Now())
	if _, err := n.Submit(within(t), engine.Submission{Task: nestor.Task{After: []nestor.ID{missing}}}); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("a task after a run that is not there: %v", err)
	}
}

func failedDependency(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 2, func(_ context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input == "fail" {
			return failure(nestor.Provider)
		}
		return success("")
	})
	a := n.submit(t, nestor.Task{Input: "fail"})
	b := n.submit(t, nestor.Task{After: []nestor.ID{a}})
	c := n.submit(t, nestor.Task{After: []nestor.ID{b}})
	d := n.submit(t, nestor.Task{After: []nestor.ID{c}, Despite: true})
	if run := n.wait(t, c); run.State != nestor.Error || run.Result.Error.Kind != nestor.Dependency || run.Fence != 0 {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
	if run := n.wait(t, d); run.State != nestor.Success {
		t.Errorf("what was to run despite it is %s", run.State)
	}
}

// nest spawns as many levels of children as its input says, each by a parent
// that waits.
func nest(ctx context.Context, x *engine.Execution) nestor.Result {
	if len(x.Run().Task.Input) == 0 {
		return success("leaf")
	}
	id, err := x.Spawn(ctx, nestor.Task{Input: x.Run().Task.Input[1:]}, "", 0)
	if err != nil {
		return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Internal, Message: err.Error()}}
	}
	runs, err := x.Await(ctx, id)
	if err != nil {
		return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Internal, Message: err.Error()}}
	}
	return success(runs[0].Result.Output + "<")
}

func deepTree(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 1, nest)
	id := n.submit(t, nestor.Task{Input: "12345", Limits: nestor.Limits{Depth: 5}})
	if run := n.wait(t, id); run.State != nestor.Success || run.Result.Output != "leaf<<<<<" {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

func refusedChildren(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 2, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() > 0 {
			<-ctx.Done()
			return success("")
		}
		var refusals []string
		for range 4 {
			_, err := x.Spawn(ctx, nestor.Task{Limits: nestor.Limits{BudgetUSD: 0.4}}, "", 0)
			if limit, ok := errors.AsType[*nestor.LimitError](err); ok {
				refusals = append(refusals, limit.Limit)
			} else if err != nil {
				refusals = append(refusals, err.Error())
			}
		}
		return success(strings.Join(refusals, " "))
	})
	id := n.submit(t, nestor.Task{Limits: nestor.Limits{BudgetUSD: 1, Children: 3}})
	if run := n.wait(t, id); run.Result.Output != "budget budget" {
		t.Errorf("the refusals are %q", run.Result.Output)
	}
}

func retries(t *testing.T, s *shape) {
	var calls atomic.Int32
	n := open(t, s.connect(t), patient, 2, func(_ context.Context, x *engine.Execution) nestor.Result {
		switch {
		case x.Run().Task.Input == "provider":
			return failure(nestor.Provider)
		case x.Run().Attempt < 3:
			calls.Add(1)
			return failure(nestor.Connection)
		}
		return success("at last")
	})
	id := n.submit(t, nestor.Task{Limits: nestor.Limits{Backoff: 50 * time.Millisecond}})
	if run := n.wait(t, id); run.State != nestor.Success || run.Attempt != 3 || calls.Load() != 2 {
		t.Errorf("it is %s after %d attempts", run.State, run.Attempt)
	}
	id = n.submit(t, nestor.Task{Input: "provider"})
	if run := n.wait(t, id); run.State != nestor.Error || run.Attempt != 1 {
		t.Errorf("it is %s after %d attempts", run.State, run.Attempt)
	}
}

func panics(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 2, func(context.Context, *engine.Execution) nestor.Result { panic("ouch") })
	id := n.submit(t, nestor.Task{})
	if run := n.wait(t, id); run.State != nestor.Error || run.Result.Error.Kind != nestor.Internal || !strings.Contains(run.Result.Error.Message, "ouch") {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

func cancelTree(t *testing.T, s *shape) {
	began := make(chan nestor.ID, 10)
	var mu sync.Mutex
	var ended []int // depths, in the order of their ends
	n := open(t, s.connect(t), patient, 5, func(ctx context.Context, x *engine.Execution) nestor.Result {
		depth := x.Run().Depth()
		if depth < 2 {
			if _, err := x.Spawn(ctx, nestor.Task{}, "", 0); err != nil {
				return failure(nestor.Internal)
			}
		}
		began <- x.Run().ID
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, depth)
		if cause, ok := errors.AsType[*nestor.Cause](context.Cause(ctx)); !ok || cause.By != "ada" {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		return nestor.Result{Status: nestor.Error, Output: "half"}
	})
	id := n.submit(t, nestor.Task{})
	var all []nestor.ID
	for range 3 {
		all = append(all, <-began)
	}
	if err := n.Cancel(within(t), id, nestor.Cause{By: "ada", Reason: "enough"}, false); err != nil {
		t.Fatal(err)
	}
	for _, id := range all {
		if run := n.wait(t, id); run.State != nestor.Cancelled || run.Result.Output != "half" {
			t.Errorf("it is %s, %+v", run.State, run.Result)
		}
	}
	if !slices.Equal(ended, []int{2, 1, 0}) {
		t.Errorf("they ended in the order of depth %v", ended)
	}
	if err := n.Cancel(within(t), id, nestor.Cause{}, false); !errors.Is(err, nestor.ErrEnded) {
		t.Errorf("cancelling what has ended: %v", err)
	}
}

func cancelQueued(t *testing.T, s *shape) {
	client := open(t, s.connect(t), patient, 0, nil)
	a := client.submit(t, nestor.Task{})
	b := client.submit(t, nestor.Task{After: []nestor.ID{a}})
	for _, id := range []nestor.ID{b, a} {
		if err := client.Cancel(within(t), id, nestor.Cause{By: "ada"}, false); err != nil {
			t.Fatal(err)
		}
		if run := client.wait(t, id); run.State != nestor.Cancelled || run.Fence != 0 {
			t.Errorf("it is %s", run.State)
		}
	}
	// Whoever gets its message does nothing.
	n := open(t, s.connect(t), patient, 1, func(_ context.Context, x *engine.Execution) nestor.Result {
		if x.Run().ID == a || x.Run().ID == b {
			t.Error("a cancelled task was executed")
		}
		return success("")
	})
	n.wait(t, n.submit(t, nestor.Task{}))
}

func cancelRace(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 8, func(context.Context, *engine.Execution) nestor.Result { return success("") })
	for range 20 {
		id := n.submit(t, nestor.Task{})
		err := n.Cancel(within(t), id, nestor.Cause{By: "ada"}, true)
		if err != nil && !errors.Is(err, nestor.ErrEnded) {
			t.Fatal(err)
		}
		run := n.wait(t, id)
		if err != nil && run.State != nestor.Success {
			t.Errorf("it ended before the cancel, and is %s", run.State)
		}
		n.events(t, id) // there is an end
		ends := 0
		for e, err := range n.log.Read(within(t), eventlog.Filter{Run: string(id)}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if event, err := e.Decode(); err != nil {
				t.Fatal(err)
			} else if _, ok := event.(*nestor.ExecutionComplete); ok {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("it ended %d times", ends)
		}
	}
}

func deadline(t *testing.T, s *shape) {
	var deepest sync.Map // by their roots, if they were at work
	n := open(t, s.connect(t), patient, 5, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Depth() < 2 {
			if _, err := x.Spawn(ctx, nestor.Task{Limits: nestor.Limits{Timeout: time.Hour}}, "", 0); err != nil {
				return failure(nestor.Internal)
			}
		} else {
			deepest.Store(x.Run().Root, true)
		}
		<-ctx.Done()
		return nestor.Result{Status: nestor.Error, Output: "half"}
	})
	id := nestor.ID("")
	for timeout, began := 500*time.Millisecond, false; !began; timeout *= 2 { // a slow machine has not begun all of them by then
		id = n.submit(t, nestor.Task{Limits: nestor.Limits{Timeout: timeout}})
		n.wait(t, id)
		_, began = deepest.Load(id)
	}
	for id != "" {
		run := n.wait(t, id)
		if run.State != nestor.Partial || run.Result.Error.Kind != nestor.Timeout {
			t.Errorf("at depth %d it is %s, %+v", run.Depth(), run.State, run.Result)
		}
		id = ""
		for child := range run.Children {
			id = child
		}
	}
}

func priorities(t *testing.T, s *shape) {
	b := s.connect(t)
	client := open(t, b, patient, 0, nil)
	var ids []nestor.ID
	for _, p := range []nestor.Priority{nestor.Low, nestor.Normal, nestor.High, nestor.Low, "", nestor.High} {
		ids = append(ids, client.submit(t, nestor.Task{Priority: p, Input: string(p)}))
	}
	var mu sync.Mutex
	var order []string
	open(t, b, patient, 1, func(_ context.Context, x *engine.Execution) nestor.Result {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, x.Run().Task.Input)
		return success("")
	})
	for _, id := range ids {
		client.wait(t, id)
	}
	if got := strings.Join(order, " "); got != "high high normal  low low" {
		t.Errorf("they were run as %q", got)
	}
}

func labels(t *testing.T, s *shape) {
	who := func(name string) func(context.Context, *engine.Execution) nestor.Result {
		return func(context.Context, *engine.Execution) nestor.Result { return success(name) }
	}
	plain := open(t, s.connect(t), patient, 1, who("plain"))
	open(t, s.connect(t), patient, 1, who("gpu"), "gpu", "big-disk")
	var ids []nestor.ID
	for range 5 {
		ids = append(ids, plain.submit(t, nestor.Task{Label: "gpu"}))
	}
	for _, id := range ids {
		if run := plain.wait(t, id); run.Result.Output != "gpu" {
			t.Errorf("a task for gpu was executed by %s", run.Result.Output)
		}
	}
}

// A tree that wants much can have no more in the queue than its limits allow, so
// another's task comes soon.
// What a large tree asks for later does not go before a small one.
func fairness(t *testing.T, s *shape) {
	const half = 8
	var mu sync.Mutex
	leaves := map[nestor.ID]bool{} // one that is lost and begins again counts once
	asked, submitted := make(chan struct{}), make(chan struct{})
	told := sync.OnceFunc(func() { close(asked) })
	n := open(t, s.connect(t), patient, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		switch x.Run().Task.Input {
		case "large":
			var ids []nestor.ID
			for i := range 2 * half {
				if i == half {
					told()
					<-submitted
				}
				id, err := x.Spawn(ctx, nestor.Task{Input: "leaf"}, fmt.Sprint(i), 0)
				if err != nil {
					return failure(nestor.Connection)
				}
				ids = append(ids, id)
			}
			if _, err := x.Await(ctx, ids...); err != nil {
				return failure(nestor.Connection)
			}
		case "leaf":
			mu.Lock()
			defer mu.Unlock()
			leaves[x.Run().ID] = true
		case "small":
			mu.Lock()
			defer mu.Unlock()
			return success(fmt.Sprint(len(leaves)))
		}
		return success("")
	})
	large := n.submit(t, nestor.Task{Input: "large"})
	<-asked
	small := n.submit(t, nestor.Task{Input: "small"})
	close(submitted)
	before := n.wait(t, small).Result.Output
	n.wait(t, large)
	if count, err := strconv.Atoi(before); err != nil || count > half || len(leaves) != 2*half {
		t.Errorf("it was run after %s leaves of %d", before, len(leaves))
	}
}

func asks(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input == "other" {
			return success("")
		}
		answer, err := x.Ask(ctx, nestor.Ask{AskID: "q", Question: "may it?"})
		if err != nil {
			return failure(nestor.Internal)
		}
		return success(answer.Decision)
	})
	id := n.submit(t, nestor.Task{})
	waits := func() bool {
		run, err := n.Get(within(t), id)
		return err == nil && run.Wait != nil && run.Wait.For == nestor.ForPerson
	}
	for !waits() {
		if within(t).Err() != nil {
			t.Fatal("it does not ask")
		}
	}
	n.wait(t, n.submit(t, nestor.Task{Input: "other"})) // the slot is free
	client := open(t, s.connect(t), patient, 0, nil)
	if err := client.Answer(within(t), id, nestor.Answer{AskID: "q", Decision: "allow", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if err := client.Answer(within(t), id, nestor.Answer{AskID: "q", Decision: "deny"}); err != nil && !errors.Is(err, nestor.ErrEnded) {
		t.Error(err)
	}
	if run := client.wait(t, id); run.Result.Output != "allow" {
		t.Errorf("the answer is %q", run.Result.Output)
	}
}

func handover(t *testing.T, s *shape) {
	began := make(chan struct{}, 2)
	a := open(t, s.connect(t), patient, 1, func(ctx context.Context, _ *engine.Execution) nestor.Result {
		began <- struct{}{}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), engine.ErrShutdown) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		return failure(nestor.Stopped)
	})
	id := a.submit(t, nestor.Task{})
	<-began
	a.stop()
	b := open(t, s.connect(t), patient, 1, func(context.Context, *engine.Execution) nestor.Result { return success("b") })
	if run := b.wait(t, id); run.Result.Output != "b" || run.Resumes != 0 || run.Fence != 2 {
		t.Errorf("it is %+v, resumed %d times", run.Result, run.Resumes)
	}
}

func badTasks(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 0, nil)
	for want, task := range map[string]nestor.Task{
		"priority":             {Priority: "soon"},
		"max_turns":            {Limits: nestor.Limits{Turns: -1}},
		"put more into a file": {Input: strings.Repeat("x", 1<<20)},
	} {
		if _, err := n.Submit(within(t), engine.Submission{Task: task}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, id := range []nestor.ID{"", "x", "../x", nestor.NewID(time.Now())} {
		if _, err := n.Get(within(t), id); err == nil {
			t.Errorf("there is a run %q", id)
		}
		if err := n.Cancel(within(t), id, nestor.Cause{}, false); err == nil {
			t.Errorf("run %q was cancelled", id)
		}
	}
}

func events(t *testing.T, s *shape) {
	n := open(t, s.connect(t), patient, 2, nest)
	id := n.submit(t, nestor.Task{Input: "1", Agent: "ada", Limits: nestor.Limits{BudgetUSD: 1}})
	run := n.wait(t, id)
	var story []string
	for _, e := range n.events(t, id) {
		if e.Head().Root != id || e.Head().Time.IsZero() {
			t.Errorf("its header is %+v", e.Head())
		}
		story = append(story, strings.TrimPrefix(fmt.Sprintf("%T", e), "*nestor."))
	}
	want := "RunQueued ExecutionStart AgentSpawn Lease RunWaiting Lease RunResumed ExecutionComplete"
	if got := strings.Join(story, " "); got != want {
		t.Errorf("the story is %s", got)
	}
	if run.Used != 1 {
		t.Errorf("it used %d descendants", run.Used)
	}
}
