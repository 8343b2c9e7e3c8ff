package plan_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

const (
	root  = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000a")
	child = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000b")
	other = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000c")
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// story gives inputs to one run, a second apart.
type story struct {
	t *testing.T
	plan.Run
	now  time.Time
	last []plan.Command // of the last input
}

func begin(t *testing.T) *story { return &story{t: t, now: noon} }

// submitted is a root with the default limits.
func submitted(t *testing.T, change func(*nestor.Task)) *story {
	s := begin(t)
	task := nestor.Task{Agent: "ada", Limits: nestor.DefaultLimits()}
	if change != nil {
		change(&task)
	}
	s.give(plan.Submit{ID: root, Task: task})
	return s
}

// running is such a root that a worker has.
func running(t *testing.T, change func(*nestor.Task)) *story {
	s := submitted(t, change)
	s.give(plan.Start{Attempt: 1, Worker: "w1", Delivery: "1"})
	if s.Worker != "w1" {
		t.Fatalf("it was not started: %+v", s.Run)
	}
	return s
}

func (s *story) give(in plan.Input) error {
	s.t.Helper()
	s.now = s.now.Add(time.Second)
	r, commands, err := plan.Decide(s.Run, in, s.now)
	s.Run, s.last = r, commands
	return err
}

func (s *story) must(in plan.Input) {
	s.t.Helper()
	if err := s.give(in); err != nil {
		s.t.Fatalf("%#v: %v", in, err)
	}
}

// told returns the inputs that the last input had told to a run.
func (s *story) told(run nestor.ID) (list []plan.Input) {
	for _, c := range s.last {
		if tell, ok := c.(plan.Tell); ok && tell.Run == run {
			list = append(list, tell.Input)
		}
	}
	return list
}

func has[C plan.Command](s *story) (found C, ok bool) {
	for _, c := range s.last {
		if c, is := c.(C); is {
			return c, true
		}
	}
	return found, false
}

func TestRunsInOrder(t *testing.T) {
	s := submitted(t, func(task *nestor.Task) { task.After = []nestor.ID{child, other, child} })
	if len(s.told(child)) != 1 || len(s.told(other)) != 1 || s.State != nestor.Queued || s.Wait.For != nestor.ForRuns {
		t.Fatalf("it does not watch: %v", s.last)
	}
	if err := s.give(plan.Start{Attempt: 1, Worker: "w", Delivery: "1"}); !errors.Is(err, nestor.ErrStale) {
		t.Errorf("it was started before what it comes after: %v", err)
	}
	s.must(plan.RunEnded{Run: child, Status: nestor.Success})
	s.must(plan.RunEnded{Run: child, Status: nestor.Success})
	if _, ok := has[plan.Enqueue](s); ok {
		t.Error("it is queued while one of two has not ended")
	}
	s.must(plan.RunEnded{Run: other, Status: nestor.Success})
	if _, ok := has[plan.Enqueue](s); !ok || s.Wait.For != nestor.ForSlot {
		t.Error("it is not queued when all have ended")
	}
}

func TestDependencyThatFails(t *testing.T) {
	s := submitted(t, func(task *nestor.Task) { task.After = []nestor.ID{child} })
	s.must(plan.RunEnded{Run: child, Status: nestor.Partial})
	if s.State != nestor.Error || s.Result.Error.Kind != nestor.Dependency {
		t.Errorf("it is %s, %+v", s.State, s.Result)
	}
	s = submitted(t, func(task *nestor.Task) { task.After, task.Despite = []nestor.ID{child}, true })
	s.must(plan.RunEnded{Run: child, Status: nestor.Error})
	if _, ok := has[plan.Enqueue](s); !ok {
		t.Error("it was to run all the same")
	}
}

func TestWatchBeforeSubmit(t *testing.T) {
	s := begin(t)
	s.must(plan.Watch{By: other})
	s.must(plan.Watch{By: other})
	s.must(plan.Submit{ID: root, Task: nestor.Task{Limits: nestor.DefaultLimits()}})
	s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: "1"})
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Success}})
	if got := s.told(other); !reflect.DeepEqual(got, []plan.Input{plan.RunEnded{Run: root, Status: nestor.Success}}) {
		t.Errorf("who watched it was told %v", got)
	}
	s.must(plan.Watch{By: child})
	if len(s.told(child)) != 1 {
		t.Error("who watches a run that ended is told nothing")
	}
}

func TestCancelBeforeSubmit(t *testing.T) {
	s := begin(t)
	cause := nestor.Cause{Kind: nestor.Stopped, By: "ada"}
	if err := s.give(plan.Cancel{Cause: cause}); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("a stranger cancelled what is not there: %v", err)
	}
	s.must(plan.Cancel{Cause: cause, Told: true})
	s.must(plan.Submit{ID: child, Path: path(root), Task: nestor.Task{Limits: nestor.DefaultLimits()}})
	if s.State != nestor.Cancelled || len(s.told(root)) != 1 {
		t.Errorf("it is %s, and its parent was told %v", s.State, s.told(root))
	}
}

// A child that was told to end before it was there is not begun by who hands it to a
// slot.
func TestCancelBeforeSubmitWithStart(t *testing.T) {
	s := begin(t)
	s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, By: "ada"}, Told: true})
	in := plan.Submit{ID: child, Path: path(root), Task: nestor.Task{Limits: nestor.DefaultLimits()}}
	s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: "d", Submit: &in, New: true})
	if s.State != nestor.Cancelled || s.Delivery != "" || s.Fence != 0 || len(s.told(root)) != 1 {
		t.Errorf("it is %s, delivered as %q with fence %d, and its parent was told %v", s.State, s.Delivery, s.Fence, s.told(root))
	}
}

func TestCancelEndsWhatIsBelowFirst(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: s.Fence, Child: child})
	s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, By: "ada"}})
	if len(s.told(child)) != 1 || s.Stop {
		t.Fatalf("the child was told %v, stop is %v", s.told(child), s.Stop)
	}
	if err := s.give(plan.Spawn{Fence: s.Fence, Child: other}); err == nil {
		t.Error("it got a child while it ends")
	}
	s.must(plan.ChildEnded{Child: child, Status: nestor.Cancelled})
	if !s.Stop {
		t.Error("its worker is not stopped when all below has ended")
	}
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Error, Output: "half"}})
	if s.State != nestor.Cancelled || s.Result.Output != "half" || s.Result.Error.Message != "cancelled by ada" {
		t.Errorf("it is %s, %+v", s.State, s.Result)
	}
}

// What a worker says besides why a run ended, such as that the API did not answer, stays.
func TestCancelKeepsWhatMoreIsKnown(t *testing.T) {
	for message, want := range map[string]string{
		"cancelled by ada; the API is overloaded (529)": "cancelled by ada; the API is overloaded (529)",
		"it broke": "cancelled by ada",
	} {
		s := running(t, nil)
		s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, By: "ada"}})
		s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Provider, Message: message}}})
		if e := s.Result.Error; s.State != nestor.Cancelled || e.Kind != nestor.Stopped || e.Message != want {
			t.Errorf("it is %s, %+v", s.State, e)
		}
	}
}

func TestCancelStopsWhatOnlyWaitsForThoseBelow(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: s.Fence, Child: child})
	s.must(plan.Report{Fence: s.Fence, Wait: &nestor.Wait{For: nestor.ForChildren, Runs: []nestor.ID{child}}})
	s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, By: "ada"}})
	if len(s.told(child)) != 1 || !s.Stop {
		t.Fatalf("the child was told %v, stop is %v", s.told(child), s.Stop)
	}
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Error}})
	if s.State.Ended() || len(s.told(child)) != 0 {
		t.Fatalf("it is %s, and the child, which was told before, was told %v", s.State, s.told(child))
	}
	s.must(plan.ChildEnded{Child: child, Status: nestor.Cancelled})
	if s.State != nestor.Cancelled {
		t.Errorf("it is %s when all below has ended", s.State)
	}
}

func TestInputsTogetherAreAsOneByOne(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: s.Fence, Child: child})
	s.must(plan.Spawn{Fence: s.Fence, Child: other})
	ends := plan.Together{plan.ChildEnded{Child: child, Status: nestor.Success}, plan.ChildEnded{Child: other, Status: nestor.Error, Spent: 1}}
	if err := s.give(append(ends, plan.ChildEnded{Child: root})); !errors.Is(err, nestor.ErrRunNotFound) || len(s.Live()) != 2 {
		t.Errorf("one of them is refused: %v, and %d live", err, len(s.Live()))
	}
	s.must(append(ends, plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Success}}))
	if s.State != nestor.Success || s.Below != 1 || s.Used != 2 {
		t.Errorf("it is %s, with %v USD spent by %d below", s.State, s.Below, s.Used)
	}
}

func TestCancelNowDoesNotWait(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: s.Fence, Child: child})
	s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped}})
	s.must(plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped}, Now: true})
	if !s.Stop {
		t.Error("it waits for what is below")
	}
}

func TestEndEndsWhatItStarted(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: s.Fence, Child: child})
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Success, Output: "done"}})
	if s.State.Ended() || s.Wait.For != nestor.ForChildren || len(s.told(child)) != 1 {
		t.Fatalf("it is %s, and its child was told %v", s.State, s.told(child))
	}
	if err := s.give(plan.Start{Attempt: 1, Worker: "w2", Delivery: "2"}); !errors.Is(err, nestor.ErrStale) {
		t.Errorf("it was started again: %v", err)
	}
	s.must(plan.ChildEnded{Child: child, Status: nestor.Cancelled, Spent: 0.5})
	if s.State != nestor.Success || s.Below != 0.5 {
		t.Errorf("it is %s, with %v spent below", s.State, s.Below)
	}
}

func TestDeadline(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.Timeout = time.Minute })
	if timer, ok := has[plan.SetTimer](s); ok || !s.Deadline.Equal(s.now.Add(time.Minute)) {
		t.Fatalf("the deadline is %v; who works on it needs no timer: %v", s.Deadline, timer)
	}
	s.must(plan.Timer{})
	if again, ok := has[plan.SetTimer](s); s.Cancel != nil || !ok || !again.At.Equal(s.Deadline) {
		t.Errorf("a timer that came early, by another clock, ended it, or is not set again: %v", again)
	}
	s.must(plan.Release{Fence: s.Fence})
	if timer, ok := has[plan.SetTimer](s); !ok || !timer.At.Equal(s.Deadline) {
		t.Errorf("nobody works on it, and its timer is %v", timer)
	}
	s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: "again"})
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Connection, Message: "reset"}}})
	if timer, ok := has[plan.SetTimer](s); !ok || !timer.At.Equal(s.Deadline) {
		t.Errorf("it waits for its next attempt, and its timer is %v", timer)
	}
	s.must(plan.Start{Attempt: 2, Worker: "w", Delivery: "next"})
	s.now = s.Deadline
	s.must(plan.Timer{})
	if !s.Stop || s.Cancel.Kind != nestor.Timeout {
		t.Fatalf("it is not stopped: %+v", s.Cancel)
	}
	for status, result := range map[nestor.State]nestor.Result{
		nestor.Partial: {Status: nestor.Error, Output: "half"}, nestor.Error: {Status: nestor.Error}, nestor.Success: {Status: nestor.Success},
	} {
		r, _, err := plan.Decide(s.Run, plan.Finish{Fence: s.Fence, Result: result}, s.now)
		if err != nil || r.State != status || status != nestor.Success && r.Result.Error.Kind != nestor.Timeout {
			t.Errorf("%+v ended as %s, %v", result, r.State, err)
		}
	}
	// A child has no more time than its parent.
	c := begin(t)
	c.must(plan.Submit{ID: child, Path: path(root), Task: nestor.Task{Limits: nestor.DefaultLimits()}, Deadline: noon.Add(time.Minute)})
	c.now = noon.Add(time.Hour)
	c.must(plan.Start{Attempt: 1, Worker: "w", Delivery: "1"})
	if c.State != nestor.Error || c.Result.Error.Kind != nestor.Timeout || c.Fence != 0 {
		t.Errorf("it was run after its deadline: %s", c.State)
	}
}

func TestRetries(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.Backoff = 8 * time.Second })
	failed := nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Connection, Message: "reset"}, CostUSD: 0.1}
	var waits []time.Duration
	for attempt := 2; ; attempt++ {
		fence := s.Fence
		s.must(plan.Finish{Fence: fence, Result: failed})
		if err := s.give(plan.Finish{Fence: fence, Result: failed}); err == nil && !s.State.Ended() {
			t.Error("an attempt failed twice")
		}
		if s.State.Ended() {
			break
		}
		waits = append(waits, s.Wait.Until.Sub(s.Wait.Since))
		if err := s.give(plan.Start{Attempt: attempt - 1, Worker: "w", Delivery: "old"}); !errors.Is(err, nestor.ErrStale) {
			t.Errorf("the old message started it again: %v", err)
		}
		s.must(plan.Start{Attempt: attempt, Worker: "w", Delivery: "new"})
	}
	if s.State != nestor.Error || s.Attempt != 3 || len(waits) != 2 || s.Spent < 0.3-1e-9 {
		t.Fatalf("%s after %d attempts, waits %v, spent %v", s.State, s.Attempt, waits, s.Spent)
	}
	for i, wait := range waits {
		if want := 8 * time.Second << i; wait < want*3/4 || wait > want*5/4 {
			t.Errorf("wait %d is %v", i, wait)
		}
	}
	s = running(t, nil)
	s.must(plan.Finish{Fence: s.Fence, Result: nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Provider}}})
	if s.State != nestor.Error {
		t.Error("an agent that failed was tried again")
	}
}

func TestLostWorkers(t *testing.T) {
	s := running(t, nil)
	for i := range 3 {
		old := s.Fence
		s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: string(rune('a' + i))})
		if s.Fence != old+1 {
			t.Fatalf("fence %d after %d", s.Fence, old)
		}
		if err := s.give(plan.Finish{Fence: old, Result: nestor.Result{Status: nestor.Success}}); !errors.Is(err, nestor.ErrStale) {
			t.Errorf("who was lost finished it: %v", err)
		}
	}
	s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: "z"})
	if s.State != nestor.Error || s.Result.Error.Kind != nestor.Interrupted {
		t.Errorf("lost four times it is %s", s.State)
	}
}

func TestRepeatedMessageTakesNothingOver(t *testing.T) {
	s := running(t, nil)
	if err := s.give(plan.Start{Attempt: 1, Worker: "w2", Message: 2, Delivery: "2"}); !errors.Is(err, plan.ErrRepeated) || s.Worker != "w1" {
		t.Errorf("another message for the same attempt: %v, worker %s", err, s.Worker)
	}
	s.must(plan.Start{Attempt: 1, Worker: "w2", Message: 2, Delivery: "2", Only: true})
	if s.Worker != "w2" || s.Fence != 2 || s.Resumes != 1 {
		t.Errorf("the only message there is: worker %s, fence %d", s.Worker, s.Fence)
	}
}

func TestStartBringsItsSubmit(t *testing.T) {
	s := begin(t)
	submit := plan.Submit{ID: root, Task: nestor.Task{Limits: nestor.DefaultLimits()}}
	s.must(plan.Start{Attempt: 1, Worker: "w", Message: 1, Delivery: "1", Submit: &submit})
	if s.Worker != "w" || s.ID != root {
		t.Fatalf("it is %+v", s.Run)
	}
	s.must(submit) // which comes late
	if s.Fence != 1 || s.State != nestor.Starting || len(s.last) != 0 {
		t.Errorf("a submit that came late made it %s, and commanded %v", s.State, s.last)
	}
}

func TestReleaseIsNoLoss(t *testing.T) {
	s := running(t, nil)
	for i := range 10 {
		s.must(plan.Release{Fence: s.Fence})
		if s.State != nestor.Queued || s.Worker != "" {
			t.Fatalf("it is %s", s.State)
		}
		s.must(plan.Start{Attempt: 1, Worker: "w", Delivery: string(rune('a' + i))})
	}
	if s.Resumes != 0 {
		t.Errorf("it was lost %d times", s.Resumes)
	}
}

func TestLimitsOfSpawn(t *testing.T) {
	for _, test := range []struct {
		limit  string
		limits nestor.Limits
		asked  nestor.Limits
		before int // children that it has
	}{
		{"depth", nestor.Limits{Depth: -1, Children: 8, Descendants: 9}, nestor.Limits{}, 0},
		{"children", nestor.Limits{Depth: 1, Children: 2, Descendants: 9}, nestor.Limits{}, 2},
		{"descendants", nestor.Limits{Depth: 1, Children: 8, Descendants: 2}, nestor.Limits{}, 2},
		{"descendants", nestor.Limits{Depth: 2, Children: 8, Descendants: 2}, nestor.Limits{Descendants: 2}, 0},
		{"budget", nestor.Limits{Depth: 1, Children: 8, Descendants: 9, BudgetUSD: 1}, nestor.Limits{BudgetUSD: 1.5}, 0},
		{"budget", nestor.Limits{Depth: 1, Children: 8, Descendants: 9, BudgetUSD: 1}, nestor.Limits{BudgetUSD: 0.95}, 1},
	} {
		s := running(t, func(task *nestor.Task) { task.Limits = test.limits })
		for i := range test.before {
			s.must(plan.Spawn{Fence: s.Fence, Child: nestor.ID(strings.Repeat("a", i+1))})
		}
		err := s.give(plan.Spawn{Fence: s.Fence, Child: child, Task: nestor.Task{Limits: test.asked}})
		refused, ok := errors.AsType[*nestor.LimitError](err)
		if !ok || refused.Limit != test.limit || s.Children[child] != nil {
			t.Errorf("%s: %v", test.limit, err)
		}
	}
}

func TestLeases(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.BudgetUSD = 8 })
	s.must(plan.Spawn{Fence: s.Fence, Child: child, Spent: 0.8, Task: nestor.Task{Limits: nestor.Limits{Depth: 9, Children: 99}}})
	granted := s.told(child)[0].(plan.Submit).Task.Limits
	if granted.BudgetUSD != 7.2/8 || granted.Descendants != 63/8 || granted.Depth != 3 || granted.Children != 8 {
		t.Errorf("who asks for nothing gets %+v", granted)
	}
	s.must(plan.ChildEnded{Child: child, Status: nestor.Success, Spent: 0.2, Used: 3})
	s.must(plan.ChildEnded{Child: child, Status: nestor.Success, Spent: 0.2, Used: 3})
	if left := s.Left(); left < 7-1e-9 || left > 7+1e-9 || s.Used != 4 {
		t.Errorf("%v left, %d used", left, s.Used)
	}
	s.must(plan.Report{Fence: s.Fence, Spent: 9})
	if s.Cancel == nil || s.Cancel.Kind != nestor.Budget || !s.Stop {
		t.Error("it spent too much and goes on")
	}
}

func TestSpawnAfter(t *testing.T) {
	s := running(t, nil)
	for _, test := range []struct {
		after nestor.ID
		want  error
	}{{root, plan.ErrAncestor}, {child, plan.ErrAncestor}, {other, plan.ErrStranger}} {
		if err := s.give(plan.Spawn{Fence: s.Fence, Child: child, Task: nestor.Task{After: []nestor.ID{test.after}}}); !errors.Is(err, test.want) {
			t.Errorf("after %s: %v", test.after, err)
		}
	}
}

func TestAsks(t *testing.T) {
	s := running(t, nil)
	ask := plan.AskPerson{Fence: s.Fence, Ask: nestor.Ask{AskID: "a", Question: "may it?"}}
	s.must(ask)
	if s.State != nestor.Waiting || s.Wait.For != nestor.ForPerson || !slices.Equal(s.Asks["a"].Ask.PathFromRoot, []nestor.ID{root}) {
		t.Fatalf("it is %s, %+v", s.State, s.Asks["a"])
	}
	if err := s.give(plan.AnswerAsk{Answer: nestor.Answer{AskID: "b"}}); !errors.Is(err, plan.ErrNoAsk) {
		t.Errorf("another question was answered: %v", err)
	}
	// Whoever asked is lost, and asks again.
	s.must(plan.Start{Attempt: 1, Worker: "w2", Delivery: "2"})
	s.must(plan.AnswerAsk{Answer: nestor.Answer{AskID: "a", Decision: "allow"}})
	s.must(plan.AnswerAsk{Answer: nestor.Answer{AskID: "a", Decision: "deny"}})
	ask.Fence = s.Fence
	s.must(ask)
	if got := s.Asks["a"].Answer; got == nil || got.Decision != "allow" || s.State == nestor.Waiting {
		t.Errorf("the answer is %+v, it is %s", got, s.State)
	}
}

func TestSessionIsKeptForTheNextAttempt(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Note{Fence: 1, Session: "s1", Spent: 0.25})
	if s.State != nestor.Running || s.Session != "s1" || s.Spent != 0.25 {
		t.Fatalf("it is %s with session %q, %v spent", s.State, s.Session, s.Spent)
	}
	s.must(plan.Report{Fence: 1, Wait: &nestor.Wait{For: nestor.ForChildren}})
	s.must(plan.Note{Fence: 1})
	if s.State != nestor.Waiting || s.Session != "s1" {
		t.Errorf("a note made it %s with session %q", s.State, s.Session)
	}
	s.must(plan.Start{Attempt: 1, Worker: "w2", Delivery: "2"})
	if s.Session != "s1" {
		t.Errorf("the next worker does not know the session")
	}
}

func TestSilenceIsTriedAgain(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.Attempts = 2 })
	silent := nestor.Result{Status: nestor.Partial, Output: "half", Error: &nestor.Failure{Kind: nestor.Silence, Message: "no sign of life for 1m0s"}}
	s.must(plan.Finish{Fence: 1, Result: silent})
	if s.State != nestor.Waiting || s.Wait.For != nestor.ForRetry || s.Attempt != 2 {
		t.Fatalf("it is %s: %+v", s.State, s.Wait)
	}
	s.must(plan.Start{Attempt: 2, Worker: "w1", Delivery: "2"})
	s.must(plan.Finish{Fence: 2, Result: silent})
	if s.State != nestor.Partial || s.Result.Output != "half" {
		t.Errorf("in the end it is %s: %+v", s.State, s.Result)
	}
}

func TestUsageLimitIsWaitedForOnce(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.LimitWait = time.Hour })
	deadline := s.Deadline
	limited := func(kind nestor.Kind, in time.Duration) nestor.Result {
		return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: kind, Message: "limit reached", Until: s.now.Add(in)}}
	}
	held := limited(nestor.Held, 10*time.Minute)
	s.must(plan.Finish{Fence: 1, Result: held})
	if task, ok := has[plan.Enqueue](s); s.State != nestor.Waiting || s.Wait.For != nestor.ForLimit || !ok || !task.At.Equal(held.Error.Until) {
		t.Fatalf("it is %s: %+v, %+v", s.State, s.Wait, s.last)
	}
	if d := s.Deadline.Sub(deadline); d < 9*time.Minute || d > 10*time.Minute {
		t.Errorf("its deadline has moved by %v", d)
	}
	s.must(plan.Start{Attempt: 2, Worker: "w1", Delivery: "2"})
	if _, ok := has[plan.Emit](s); !ok || s.Retries != 0 {
		t.Errorf("it goes on without a word, or as a retry")
	}
	s.must(plan.Finish{Fence: 2, Result: limited(nestor.Limited, 10*time.Minute)}) // what it meets itself it waits for too, but once
	if s.State != nestor.Waiting {
		t.Fatalf("it is %s", s.State)
	}
	s.must(plan.Start{Attempt: 3, Worker: "w1", Delivery: "3"})
	s.must(plan.Finish{Fence: 3, Result: limited(nestor.Limited, 10*time.Minute)})
	if s.State != nestor.Error || s.Result.Error.Kind != nestor.Limited {
		t.Errorf("the second time it is %s: %+v", s.State, s.Result)
	}

	for name, change := range map[string]func(*nestor.Task){
		"too far ahead": func(task *nestor.Task) { task.Limits.LimitWait = time.Minute },
		"not allowed":   nil,
	} {
		s = running(t, change)
		s.must(plan.Finish{Fence: 1, Result: limited(nestor.Limited, 2*time.Minute)})
		if s.State != nestor.Error {
			t.Errorf("%s: it is %s", name, s.State)
		}
	}
}

func TestLettersAreHeardBeforeTheEnd(t *testing.T) {
	s := running(t, nil)
	for range 2 {
		s.must(plan.Write{ID: "a", From: "ada", Content: "also the tests"})
	}
	s.must(plan.Write{ID: "b", From: "ada", Content: "and the docs"})
	if len(s.Letters) != 2 || s.Letters[1].N != 2 {
		t.Fatalf("it has %+v", s.Letters)
	}
	well := nestor.Result{Status: nestor.Success}
	if err := s.give(plan.Finish{Fence: 1, Result: well, Heard: 1}); !errors.Is(err, plan.ErrUnheard) {
		t.Errorf("it ended without having heard all: %v", err)
	}
	s.must(plan.Note{Fence: 1, Heard: 1})
	s.must(plan.Note{Fence: 1, Heard: 1})
	if len(s.Letters) != 1 || s.Letters[0].ID != "b" {
		t.Errorf("it has still to hear %+v", s.Letters)
	}
	s.must(plan.Finish{Fence: 1, Result: well, Heard: 2})
	if s.State != nestor.Success || len(s.Letters) != 0 {
		t.Errorf("it is %s", s.State)
	}
	if err := s.give(plan.Write{ID: "c"}); !errors.Is(err, nestor.ErrEnded) {
		t.Errorf("it was written to after its end: %v", err)
	}

	s = running(t, nil)
	for i := range 100 {
		if err := s.give(plan.Write{ID: string(rune('a' + i))}); err != nil {
			if _, limit := errors.AsType[*nestor.LimitError](err); !limit || i == 0 {
				t.Errorf("letter %d: %v", i, err)
			}
			break
		} else if i == 99 {
			t.Error("any number of letters is kept")
		}
	}
}

// What is decided is kept as JSON: nothing may be lost on the way.
func TestDocumentsAsJSON(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.BudgetUSD = 1 })
	all := plan.Commands(s.last)
	for _, in := range []plan.Input{
		plan.Spawn{Fence: 1, Child: child}, plan.AskPerson{Fence: 1, Ask: nestor.Ask{AskID: "a"}},
		plan.AnswerAsk{Answer: nestor.Answer{AskID: "a"}}, plan.Report{Fence: 1, Wait: &nestor.Wait{For: nestor.ForLimit}},
		plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped}}, plan.ChildEnded{Child: child, Status: nestor.Success},
		plan.Note{Fence: 1, Session: "s"}, plan.Watch{By: other}, plan.Finish{Fence: 1, Result: nestor.Result{Status: nestor.Success}},
	} {
		s.must(in)
		all = append(all, s.last...)
	}
	for _, v := range []any{s.Run, all} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v))
		if err := json.Unmarshal(data, back.Interface()); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(back.Elem().Interface())
		if err != nil || string(again) != string(data) {
			t.Errorf("%s\nbecame\n%s, %v", data, again, err)
		}
	}
	for _, in := range []plan.Input{
		plan.Submit{ID: root}, plan.Spawn{Child: child}, plan.Start{Attempt: 1}, plan.Release{Fence: 1}, plan.Report{Fence: 1}, plan.Note{Fence: 1, Heard: 2}, plan.Write{ID: "w"}, plan.Finish{Fence: 1}, plan.Cancel{Told: true}, plan.Timer{},
		plan.ChildEnded{Child: child}, plan.Watch{By: root}, plan.RunEnded{Run: root}, plan.AskPerson{Fence: 2}, plan.AnswerAsk{},
	} {
		data, err := plan.EncodeInput(in)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := plan.DecodeInput(data); err != nil || !reflect.DeepEqual(back, in) {
			t.Errorf("%s became %#v, %v", data, back, err)
		}
	}
}

func FuzzDecodeInput(f *testing.F) {
	for _, in := range []plan.Input{plan.Submit{ID: root}, plan.Start{Attempt: 1}, plan.Cancel{Told: true}, plan.Finish{Fence: 1}} {
		data, _ := plan.EncodeInput(in)
		f.Add(data)
	}
	s := story{Run: plan.Run{}}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := plan.DecodeInput(data)
		if (in == nil) == (err == nil) {
			t.Fatalf("%v and %v", in, err)
		}
		if err == nil {
			plan.Decide(s.Run, in, noon) // must not panic, whatever it says
		}
	})
}
