// Package agenttest is what every provider must do, as a suite of tests.
package agenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

// Subject is a provider under test, and what its agents are told.
type Subject struct {
	Provider agent.Provider
	Config   agent.Config // of every agent; the suite chooses its name

	Say  string // leads to one message or more, and ends well
	Slow string // leads to a message, and to no end unless it is stopped
	Bad  string // leads to an error
}

// bound is how long anything in the suite may take.
const bound = time.Minute

// Run runs the suite. It opens a subject for each test. The package of the
// provider checks for leaked goroutines and processes itself.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Subject, agent.Agent)
	}{
		{"a new agent is idle and has its name and type", newAgent},
		{"it answers in its name, and is idle again", answers},
		{"another goroutine sees it work", seenAtWork},
		{"an error is last, and it can be given another message", fails},
		{"the end of the context stops it, and it stays usable", cancelled},
		{"breaking out stops it, and it stays usable", brokenOut},
		{"messages that come at once are handled in turn", concurrent},
		{"an ended context handles nothing", endedContext},
		{"shutting down twice is fine, and ends it for good", shutdown},
		{"shutting down ends what it does", shutdownAtWork},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			s.Config.Name = "subject"
			a, err := s.Provider.Create(within(t), s.Config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, stop := context.WithTimeout(context.Background(), bound)
				defer stop()
				if err := a.Shutdown(ctx); err != nil {
					t.Errorf("shutting down: %v", err)
				}
			})
			test.run(t, s, a)
		})
	}
}

func within(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), bound)
	t.Cleanup(stop)
	return ctx
}

// tell gives the agent a message and returns what it says.
func tell(ctx context.Context, t *testing.T, a agent.Agent, content string) (said []agent.Message, last error) {
	t.Helper()
	for m, err := range a.Handle(ctx, agent.NewMessage("suite", content)) {
		if last != nil {
			t.Fatalf("%+v came behind the error %v", m, last)
		}
		if err != nil {
			last = err
			continue
		}
		said = append(said, m)
	}
	return said, last
}

func wantState(t *testing.T, a agent.Agent, want agent.State) {
	t.Helper()
	if got, since := a.State(); got != want || since.IsZero() || time.Since(since) < 0 {
		t.Errorf("the agent is %s since %v, want %s", got, since, want)
	}
}

// usable fails the test unless the agent answers.
func usable(t *testing.T, s Subject, a agent.Agent) {
	t.Helper()
	said, err := tell(within(t), t, a, s.Say)
	if err != nil || !slices.ContainsFunc(said, func(m agent.Message) bool { return m.Kind == agent.Chat && m.Content != "" }) {
		t.Errorf("it answers %d messages, %v", len(said), err)
	}
	wantState(t, a, agent.Idle)
}

func newAgent(t *testing.T, s Subject, a agent.Agent) {
	wantState(t, a, agent.Idle)
	if a.Name() != "subject" || a.Type() != s.Provider.Type() || a.Type() == "" {
		t.Errorf("it is %q of type %q", a.Name(), a.Type())
	}
}

func answers(t *testing.T, s Subject, a agent.Agent) {
	said, err := tell(within(t), t, a, s.Say)
	if err != nil || len(said) == 0 {
		t.Fatalf("it answers %d messages, %v", len(said), err)
	}
	ids := map[string]bool{}
	for i, m := range said {
		if m.Sender != "subject" || fmt.Sprint(m.Recipients) != "[all]" || m.ID == "" || ids[m.ID] || m.Kind == "" || m.Time.IsZero() {
			t.Errorf("message %d is %+v", i, m)
		}
		if i > 0 && m.Time.Before(said[i-1].Time) {
			t.Errorf("message %d is older than the one before it", i)
		}
		ids[m.ID] = true
	}
	usable(t, s, a)
}

func seenAtWork(t *testing.T, s Subject, a agent.Agent) {
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	seen := make(chan agent.State, 1)
	var once sync.Once
	for range a.Handle(ctx, agent.NewMessage("suite", s.Slow)) {
		once.Do(func() {
			go func() { // as anybody who lists agents would
				state, _ := a.State()
				seen <- state
				stop()
			}()
		})
	}
	if state := <-seen; state != agent.Processing {
		t.Errorf("while it worked another goroutine saw it %s", state)
	}
	wantState(t, a, agent.Idle)
}

func fails(t *testing.T, s Subject, a agent.Agent) {
	_, err := tell(within(t), t, a, s.Bad)
	if e, ok := errors.AsType[*agent.Error](err); !ok || !errors.Is(err, agent.ErrProvider) || e.Provider != s.Provider.Type() {
		t.Errorf("the error is %v", err)
	}
	wantState(t, a, agent.Failed)
	usable(t, s, a)
}

func cancelled(t *testing.T, s Subject, a agent.Agent) {
	why := errors.New("changed my mind")
	ctx, stop := context.WithCancelCause(within(t))
	defer stop(nil)
	var last error
	for _, err := range a.Handle(ctx, agent.NewMessage("suite", s.Slow)) {
		last = err
		stop(why)
	}
	if !errors.Is(last, why) {
		t.Errorf("it ended with %v", last)
	}
	wantState(t, a, agent.Idle)
	usable(t, s, a)
}

func brokenOut(t *testing.T, s Subject, a agent.Agent) {
	for _, err := range a.Handle(within(t), agent.NewMessage("suite", s.Slow)) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	wantState(t, a, agent.Idle)
	usable(t, s, a)
}

func concurrent(t *testing.T, s Subject, a agent.Agent) {
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if said, err := tell(within(t), t, a, s.Say); err != nil || len(said) == 0 {
				t.Errorf("it answers %d messages, %v", len(said), err)
			}
		})
	}
	all.Wait()
	wantState(t, a, agent.Idle)
}

func endedContext(t *testing.T, s Subject, a agent.Agent) {
	why := errors.New("over before it began")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(why)
	if said, err := tell(ctx, t, a, s.Say); !errors.Is(err, why) || len(said) > 0 {
		t.Errorf("it answers %d messages, %v", len(said), err)
	}
	wantState(t, a, agent.Idle)
}

func shutdown(t *testing.T, s Subject, a agent.Agent) {
	usable(t, s, a)
	for range 2 {
		if err := a.Shutdown(within(t)); err != nil {
			t.Error(err)
		}
		wantState(t, a, agent.Terminated)
	}
	if said, err := tell(within(t), t, a, s.Say); !errors.Is(err, agent.ErrTerminated) || len(said) > 0 {
		t.Errorf("after it was shut down it answers %d messages, %v", len(said), err)
	}
}

func shutdownAtWork(t *testing.T, s Subject, a agent.Agent) {
	done := make(chan error, 1)
	var once sync.Once
	var last error
	for _, err := range a.Handle(within(t), agent.NewMessage("suite", s.Slow)) {
		last = err
		once.Do(func() { go func() { done <- a.Shutdown(within(t)) }() })
	}
	if !errors.Is(last, agent.ErrTerminated) {
		t.Errorf("what it did ended with %v", last)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	wantState(t, a, agent.Terminated)
}
