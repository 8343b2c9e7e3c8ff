package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

func number(n int) nestor.ID {
	return nestor.ID(fmt.Sprintf("0199d3a2-7c1e-7000-8000-%012d", n))
}

// limitOf returns the limit that refused something; nil if none did.
func limitOf(err error) *nestor.LimitError {
	limit, _ := errors.AsType[*nestor.LimitError](err)
	return limit
}

func TestAgentIsNotStartedBelowItselfWithTheSameInput(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Input = "Review  the code" })
	err := s.give(plan.Spawn{Fence: 1, Child: child, Task: nestor.Task{Agent: "ada", Input: " review the\ncode"}})
	if l := limitOf(err); l == nil || l.Limit != "recursion" || !strings.Contains(err.Error(), string(root)) {
		t.Errorf("the same again: %v", err)
	}
	s.must(plan.Spawn{Fence: 1, Child: child, Task: nestor.Task{Agent: "ada", Input: "review the tests"}})
	s.must(plan.Spawn{Fence: 1, Child: other, Task: nestor.Task{Agent: "bob", Input: "review the code"}})

	// Nor two levels down, where the one between is another.
	below := begin(t)
	below.must(s.told(other)[0])
	below.must(plan.Start{Attempt: 1, Worker: "w1", Delivery: "1"})
	err = below.give(plan.Spawn{Fence: 1, Child: number(1), Task: nestor.Task{Agent: "ada", Input: "REVIEW THE CODE"}})
	if l := limitOf(err); l == nil || l.Limit != "recursion" {
		t.Errorf("two levels down: %v", err)
	}
}

func TestChildrenThatKeepFailingAreTheLast(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.Failures = 3 })
	end := func(n int, status nestor.State) {
		s.must(plan.Spawn{Fence: 1, Child: number(n), Task: nestor.Task{Agent: "x", Input: fmt.Sprint(n)}})
		s.must(plan.ChildEnded{Child: number(n), Status: status})
	}
	for n, status := range []nestor.State{nestor.Error, nestor.Error, nestor.Success, nestor.Error, nestor.Cancelled, nestor.Error, nestor.Error} {
		end(n, status)
	}
	err := s.give(plan.Spawn{Fence: 1, Child: number(9), Task: nestor.Task{Agent: "x"}})
	if l := limitOf(err); l == nil || l.Limit != "failures" || l.Max != 3 {
		t.Errorf("after three: %v", err)
	}
}

func TestChildGetsNoMoreThanItsParentHas(t *testing.T) {
	s := running(t, func(task *nestor.Task) {
		task.Limits.Turns, task.Limits.Timeout, task.Limits.Silence = 10, time.Minute, time.Second
	})
	s.must(plan.Spawn{Fence: 1, Child: child, Task: nestor.Task{Limits: nestor.Limits{
		Turns: 100, Timeout: time.Hour, Silence: time.Hour, Attempts: 100, Resumes: 100, Failures: 100, Depth: 100, Children: 100, LimitWait: time.Hour,
	}}})
	l := s.told(child)[0].(plan.Submit).Task.Limits
	d := nestor.DefaultLimits()
	if l.Turns != 10 || l.Timeout != time.Minute || l.Silence != time.Second || l.Attempts != d.Attempts || l.Resumes != d.Resumes ||
		l.Failures != d.Failures || l.Depth != d.Depth || l.Children != d.Children || l.LimitWait != 0 {
		t.Errorf("it is granted %+v", l)
	}
}

func TestEndInTheBackgroundIsALetter(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: 1, Child: child, Name: "scout", Background: true, Task: nestor.Task{Input: "look"}})
	if err := s.give(plan.Spawn{Fence: 1, Child: other, Name: "scout", Task: nestor.Task{Input: "look too"}}); !errors.Is(err, plan.ErrNamed) {
		t.Errorf("a second one of that name: %v", err)
	}
	if list := s.Expected(); len(list) != 1 || list[0] != child {
		t.Errorf("it expects %v", list)
	}
	ended := plan.ChildEnded{Child: child, Status: nestor.Success, Told: "ended with success: all is well"}
	s.must(ended)
	s.must(ended)
	if len(s.Letters) != 1 || s.Letters[0].Of != child || !strings.Contains(s.Letters[0].From, "scout") || !strings.Contains(s.Letters[0].Content, "all is well") {
		t.Fatalf("its letters are %+v", s.Letters)
	}
	if err := s.give(plan.Finish{Fence: 1, Result: nestor.Result{Status: nestor.Success}}); !errors.Is(err, plan.ErrUnheard) {
		t.Errorf("it ends without having heard: %v", err)
	}
	s.must(plan.Write{ID: "1", Content: "hello"})
	s.must(plan.Collect{Fence: 1, Runs: []nestor.ID{child}})
	if len(s.Letters) != 1 || s.Letters[0].N != 2 {
		t.Errorf("after it knows, its letters are %+v", s.Letters)
	}
	s.must(plan.Finish{Fence: 1, Result: nestor.Result{Status: nestor.Success}, Heard: 2})
	if s.State != nestor.Success {
		t.Errorf("it is %s", s.State)
	}
}

func TestNumbersOfLettersAreNotUsedTwice(t *testing.T) {
	s := running(t, nil)
	s.must(plan.Spawn{Fence: 1, Child: child, Background: true, Task: nestor.Task{Input: "look"}})
	s.must(plan.ChildEnded{Child: child, Status: nestor.Success})
	s.must(plan.Collect{Fence: 1, Runs: []nestor.ID{child}})
	s.must(plan.Write{ID: "1", Content: "hello"})
	if s.Letters[0].N != 2 {
		t.Errorf("the letter has number %d, which another one had", s.Letters[0].N)
	}
	s.must(plan.Note{Fence: 1, Heard: 99})
	if len(s.Letters) != 0 || s.Heard != 2 {
		t.Errorf("it keeps %+v and has heard %d", s.Letters, s.Heard)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	s := running(t, nil)
	ask := func(n int) error {
		return s.give(plan.AskPerson{Fence: 1, Ask: nestor.Ask{AskID: fmt.Sprint(n), Question: "which?"}})
	}
	for n := range 32 {
		if err := ask(n); err != nil {
			t.Fatal(err)
		}
	}
	if l := limitOf(ask(32)); l == nil || l.Limit != "open questions" {
		t.Errorf("one more is asked: %+v", l)
	}
	if err := ask(31); err != nil {
		t.Errorf("one that is open is asked again: %v", err)
	}
	for _, n := range []int{7, 3} {
		s.must(plan.AnswerAsk{Answer: nestor.Answer{AskID: fmt.Sprint(n), Decision: "left"}})
	}
	if err := ask(32); err != nil || s.Asks["7"] != nil || s.Asks["3"] == nil || len(s.Asks) != 32 {
		t.Errorf("after two answers: %v, %d are kept", err, len(s.Asks))
	}
}

// However much others write, the ends of children can still be taken.
func TestEndsFitBesideLetters(t *testing.T) {
	s := running(t, func(task *nestor.Task) { task.Limits.Children = 64 })
	for n := range 32 {
		s.must(plan.Write{ID: fmt.Sprint(n), Content: strings.Repeat("x", 4<<10)})
	}
	for n := range 64 {
		s.must(plan.Spawn{Fence: 1, Child: number(n), Background: true, Task: nestor.Task{Input: fmt.Sprint(n)}})
		s.must(plan.ChildEnded{Child: number(n), Status: nestor.Success, Told: "ended with success: " + strings.Repeat("y", 4<<10)})
	}
	size := 0
	for _, l := range s.Letters {
		size += len(l.Content)
	}
	if len(s.Letters) != 96 || size > 160<<10 {
		t.Errorf("%d letters have %d bytes", len(s.Letters), size)
	}
}

// path returns the path of runs.
func path(ids ...nestor.ID) plan.Path {
	p, err := plan.PathOf(ids...)
	if err != nil {
		panic(err) // not in a test of ours
	}
	return p
}
