package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// world is a tree of runs and all that is under way between them: messages that
// may come in any order and more than once, workers that may be lost.
type world struct {
	*rapid.T
	now     time.Time
	runs    map[nestor.ID]plan.Run
	post    []message  // not delivered yet, or to be delivered again
	workers []*attempt // that run something, or believe so
	tasks   []task     // in the queue
	ids     int

	ends  map[nestor.ID]int // ExecutionComplete events, by decision
	spent map[nestor.ID]float64
}

type message struct {
	to nestor.ID
	in plan.Input
	at time.Time
}

type task struct {
	run     nestor.ID
	attempt int
	at      time.Time
}

type attempt struct {
	task
	fence   uint64
	spent   float64 // by this attempt
	heard   int     // letters
	allowed float64 // what it believes that it may spend
	zombie  bool    // its message is delivered to somebody else
}

func (w *world) id() nestor.ID {
	w.ids++
	return nestor.ID(fmt.Sprintf("0199d3a2-7c1e-7000-8000-%012d", w.ids))
}

// encoded is all that a run says.
func encoded(w *world, r plan.Run) string {
	data, err := json.Marshal(r)
	if err != nil {
		w.Fatalf("%v", err)
	}
	return string(data)
}

// give gives an input to a run and takes up the commands.
func (w *world) give(to nestor.ID, in plan.Input) error {
	before := w.runs[to]
	was := encoded(w, before)
	after, commands, err := plan.Decide(before, in, w.now)
	if is := encoded(w, before); is != was { // others may be reading it
		w.Fatalf("%#v changed the run that it was given to, from %s to %s", in, was, is)
	}
	if err != nil {
		if len(commands) > 0 {
			w.Fatalf("%T was refused and commands %v", in, commands)
		}
		return err
	}
	if before.State.Ended() && (after.State != before.State || len(commands) > 0 && !isWatch(in)) {
		w.Fatalf("%s had ended, and %#v made it %s and commanded %v", to, in, after.State, commands)
	}
	w.runs[to] = after
	for _, c := range commands {
		switch c := c.(type) {
		case plan.Tell:
			w.post = append(w.post, message{c.Run, c.Input, time.Time{}})
		case plan.SetTimer:
			w.post = append(w.post, message{to, c.Timer, c.At})
		case plan.Enqueue:
			w.tasks = append(w.tasks, task{to, c.Attempt, c.At})
		case plan.Emit:
			if _, ok := c.Event.(*nestor.ExecutionComplete); ok {
				w.ends[to]++
			}
		}
	}
	w.check(to)
	return nil
}

func isWatch(in plan.Input) bool { _, ok := in.(plan.Watch); return ok }

// check is what must hold of a run after every input.
func (w *world) check(id nestor.ID) {
	r := w.runs[id]
	if w.ends[id] > 1 {
		w.Fatalf("%s ended %d times", id, w.ends[id])
	}
	if r.State.Ended() != (w.ends[id] == 1) {
		w.Fatalf("%s is %s and ended %d times", id, r.State, w.ends[id])
	}
	if r.State.Ended() && len(r.Live()) > 0 {
		w.Fatalf("%s ended before %v below it", id, r.Live())
	}
	if r.State.Ended() && (r.Result == nil || r.Result.Status != r.State || r.State != nestor.Success && r.Result.Error == nil && r.State != nestor.Partial) {
		w.Fatalf("%s ended as %s with %+v", id, r.State, r.Result)
	}
	if budget := r.Task.Limits.BudgetUSD; budget > 0 && r.Left() < -1e-6 {
		w.Fatalf("%s has %v of %v left", id, r.Left(), budget)
	}
	for _, above := range r.Path.IDs() {
		if up := w.runs[above].Task; up.Agent != "" && up.Agent == r.Task.Agent && strings.TrimSpace(up.Input) == strings.TrimSpace(r.Task.Input) {
			w.Fatalf("%s does what %s above it does", id, above)
		}
	}
	for i, l := range r.Letters {
		if l.N <= r.Heard || l.N > r.Written || i > 0 && l.N <= r.Letters[i-1].N {
			w.Fatalf("%s has heard %d of %d letters, and keeps %+v", id, r.Heard, r.Written, r.Letters)
		}
	}
	if r.Used > r.Task.Limits.Descendants && r.State != "" {
		w.Fatalf("%s used %d descendants of %d", id, r.Used, r.Task.Limits.Descendants)
	}
}

// pick draws a number below n, all alike: rapid prefers small ones, and would
// rarely get far.
func (w *world) pick(n int, label string) int {
	x := uint64(rapid.Uint32().Draw(w.T, label)) + 1
	return int((x * 0x9E3779B97F4A7C15) >> 33 % uint64(n))
}

func (w *world) yes(label string) bool { return w.pick(2, label) == 1 }

func one[T any](w *world, label string, list ...T) T { return list[w.pick(len(list), label)] }

// deliver delivers one message, and keeps it for another time or not.
func (w *world) deliver() {
	var due []int
	for i, m := range w.post {
		if !m.at.After(w.now) {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return
	}
	i := due[w.pick(len(due), "message")]
	m := w.post[i]
	if !w.yes("again") {
		w.post = slices.Delete(w.post, i, i+1)
	}
	w.give(m.to, m.in)
}

// start has a worker take a task from the queue.
func (w *world) start() {
	var due []int
	for i, t := range w.tasks {
		if !t.at.After(w.now) {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return
	}
	i := due[w.pick(len(due), "task")]
	t := w.tasks[i]
	w.tasks = slices.Delete(w.tasks, i, i+1)
	w.take(t)
}

func (w *world) take(t task) {
	before := w.runs[t.run]
	w.ids++
	in := plan.Start{Attempt: t.attempt, Worker: "w", Delivery: fmt.Sprint(w.ids)}
	if err := w.give(t.run, in); err != nil {
		return
	}
	r := w.runs[t.run]
	if r.Delivery != in.Delivery {
		return // it ended instead
	}
	for _, id := range r.Task.After {
		if end := w.runs[id].State; !end.Ended() || end != nestor.Success && !r.Task.Despite {
			w.Fatalf("%s started while %s, which it comes after, is %q", t.run, id, end)
		}
	}
	if b := before.Wait; b != nil && b.For == nestor.ForRetry && w.now.Before(b.Until) {
		w.Fatalf("%s started at %v, and waits until %v", t.run, w.now, b.Until)
	}
	if r.Fence <= before.Fence {
		w.Fatalf("%s was started again with the fence %d", t.run, r.Fence)
	}
	for _, a := range w.workers {
		if a.run == t.run {
			a.zombie = true
		}
	}
	w.workers = append(w.workers, &attempt{task: t, fence: r.Fence, allowed: w.allowed(r)})
	if w.yes("twice") { // the same start, said again
		if err := w.give(t.run, in); err != nil || w.runs[t.run].Fence != r.Fence {
			w.Fatalf("the same start again: %v, fence %d and then %d", err, r.Fence, w.runs[t.run].Fence)
		}
	}
}

// allowed is what an attempt of r may still spend.
func (w *world) allowed(r plan.Run) float64 {
	if r.Task.Limits.BudgetUSD == 0 {
		return math.Inf(1)
	}
	return r.Left()
}

// work has a worker do something.
func (w *world) work(finish bool) {
	if len(w.workers) == 0 {
		return
	}
	i := w.pick(len(w.workers), "worker")
	a := w.workers[i]
	before := w.runs[a.run]
	stale := before.Fence != a.fence || before.Worker == ""
	if !before.Deadline.IsZero() && w.now.After(before.Deadline) && !a.zombie {
		w.give(a.run, plan.Timer{})
		before = w.runs[a.run]
	}
	what := 0
	if !finish {
		what = w.pick(24, "what")
	}
	var err error
	switch what {
	case 0: // it ends
		status := one(w, "status", nestor.Success, nestor.Partial, nestor.Error, nestor.Error)
		result := nestor.Result{Status: status, Output: "out", CostUSD: a.spent}
		if status == nestor.Error {
			kind := one(w, "kind", nestor.Connection, nestor.Provider, nestor.Silence, nestor.Limited, nestor.Held)
			result.Output, result.Error = "", &nestor.Failure{Kind: kind, Message: "m"}
			if kind == nestor.Limited || kind == nestor.Held {
				result.Error.Until = w.now.Add(one(w, "reset", -time.Minute, time.Minute, 59*time.Minute, 2*time.Hour))
			}
		}
		err = w.give(a.run, plan.Finish{Fence: a.fence, Result: result, Heard: a.heard})
		if errors.Is(err, plan.ErrUnheard) {
			a.heard = before.Letters[len(before.Letters)-1].N
			break // it goes on, and hears them
		}
		w.workers = slices.Delete(w.workers, i, i+1)
	case 1: // it is lost: its task is delivered to another
		w.workers = slices.Delete(w.workers, i, i+1)
		w.tasks = append(w.tasks, a.task)
		return
	case 2: // it is believed lost
		w.tasks = append(w.tasks, a.task)
		return
	case 3, 4, 5, 6, 7, 8: // it spends and says so
		if !a.zombie && !stale {
			some := one(w, "usd", 0.1, 0.5, 1) * min(5, max(0, a.allowed))
			a.spent += some
			w.spent[a.run] += some
		}
		err = w.give(a.run, plan.Report{Fence: a.fence, Spent: a.spent})
		a.allowed = w.allowed(w.runs[a.run])
	case 9: // it knows how some of its children ended
		err = w.give(a.run, plan.Collect{Fence: a.fence, Runs: slices.Sorted(maps.Keys(before.Children))})
		for _, l := range w.runs[a.run].Letters {
			if err == nil && l.Of != "" {
				w.Fatalf("%s knows how %s ended, and is told", a.run, l.Of)
			}
		}
	default: // it wants a child
		err = w.spawn(a)
	}
	if stale && err == nil {
		w.Fatalf("a stale attempt (fence %d of %d, worker %q) of %s was heard", a.fence, before.Fence, before.Worker, a.run)
	}
}

func (w *world) spawn(a *attempt) error {
	r := w.runs[a.run]
	t := nestor.Task{Agent: "child", Input: one(w, "input", "same", "same ", fmt.Sprint(w.ids)), Limits: nestor.Limits{BudgetUSD: one(w, "budget", 0, 0, 0.5, 5.0)}}
	for _, id := range slices.Sorted(maps.Keys(r.Children)) {
		if w.yes("after") {
			t.After = append(t.After, id)
		}
	}
	t.Despite = w.yes("despite")
	child := w.id()
	in := plan.Spawn{Fence: a.fence, Child: child, Task: t, Spent: a.spent, Background: w.yes("background")}
	err := w.give(a.run, in)
	if err == nil && r.Failed >= r.Task.Limits.Failures {
		w.Fatalf("%s gets a child after %d failed in a row", a.run, r.Failed)
	}
	a.allowed = w.allowed(w.runs[a.run])
	if err != nil {
		if _, limit := errors.AsType[*nestor.LimitError](err); limit && r.Fence != a.fence {
			w.Fatalf("a stale attempt was told of a limit")
		}
		return err
	}
	if again := w.give(a.run, in); again != nil {
		w.Fatalf("the same child again: %v", again)
	}
	return nil
}

// Whole trees, whatever happens to their messages and workers: no run starts
// before what it waits for or is run by two, none is forgotten, every tree ends,
// money never exceeds the root's budget, a stale attempt changes nothing.
func TestTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			T: t, now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC),
			runs: map[nestor.ID]plan.Run{}, ends: map[nestor.ID]int{}, spent: map[nestor.ID]float64{},
		}
		root := w.id()
		limits := nestor.DefaultLimits()
		limits.BudgetUSD = one(w, "budget", 0, 1, 10.0)
		limits.LimitWait = one(w, "limit wait", 0, time.Hour)
		limits.Children = 1 + w.pick(4, "children")
		limits.Descendants = w.pick(20, "descendants")
		limits.Failures = 1 + w.pick(5, "failures")
		if err := w.give(root, plan.Submit{ID: root, Task: nestor.Task{Limits: limits}}); err != nil {
			t.Fatal(err)
		}
		for range 20 + w.pick(300, "steps") {
			switch w.pick(12, "step") {
			case 0, 1, 2, 3:
				w.deliver()
			case 4, 5:
				w.start()
			case 6, 7, 8, 9:
				w.work(false)
			case 10:
				w.now = w.now.Add(one(w, "passes", time.Millisecond, time.Second, time.Minute, 11*time.Minute, -time.Hour))
			case 11:
				ids := []nestor.ID{}
				for id := range w.runs {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				if w.yes("write") {
					w.give(ids[w.pick(len(ids), "run")], plan.Write{ID: fmt.Sprint(w.now), Content: "hello"})
				}
				if w.pick(20, "cancel") == 0 {
					w.give(ids[w.pick(len(ids), "run")], plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, By: "somebody"}, Now: w.yes("now")})
				}
			}
		}
		// Everything arrives in the end, and workers end what they do.
		for round := 0; len(w.post)+len(w.tasks)+len(w.workers) > 0; round++ {
			if round > 10_000 {
				t.Fatalf("it does not end: %v %v %d", w.post, w.tasks, len(w.workers))
			}
			w.now = w.now.Add(time.Hour)
			if len(w.post) > 0 {
				m := w.post[0]
				w.post = w.post[1:]
				w.give(m.to, m.in)
			}
			w.start()
			w.work(true)
		}
		total := 0.0
		for id, r := range w.runs {
			if !r.State.Ended() {
				t.Errorf("%s was forgotten: %s, %+v", id, r.State, r.Wait)
			}
			if math.Abs(r.Spent-w.spent[id]) > 1e-6 && r.Spent < w.spent[id]-1e-6 {
				t.Errorf("%s spent %v and accounts for %v", id, w.spent[id], r.Spent)
			}
			total += w.spent[id]
		}
		r := w.runs[root]
		if limits.BudgetUSD > 0 && total > limits.BudgetUSD+1e-6 {
			t.Errorf("the tree spent %v of %v", total, limits.BudgetUSD)
		}
		if r.Used != len(w.runs)-1 || r.Used > limits.Descendants {
			t.Errorf("%d descendants, %d accounted for, limit %d", len(w.runs)-1, r.Used, limits.Descendants)
		}
	})
}
