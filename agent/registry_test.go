package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken is a provider that cannot make agents, or only slowly.
type broken struct {
	began, made chan struct{} // Create closes the one and waits for the other, if they are set
}

func (broken) Type() string               { return "broken" }
func (broken) Check(context.Context) bool { return false }
func (b broken) Create(ctx context.Context, c agent.Config) (agent.Agent, error) {
	if b.made != nil {
		close(b.began)
		<-b.made
		return scripted.New().Create(ctx, c)
	}
	return nil, &agent.Error{Provider: "broken", Kind: agent.ErrAuth, Err: errors.New("no key")}
}

func registry(t *testing.T, more ...agent.Provider) *agent.Registry {
	t.Helper()
	talker := scripted.New(scripted.Turn{Say: []scripted.Line{{Content: "on", After: time.Millisecond}}, Hang: true})
	p, err := agent.NewProviders(append(more, talker)...)
	if err != nil {
		t.Fatal(err)
	}
	return agent.NewRegistry(p)
}

func TestProviders(t *testing.T) {
	p, err := agent.NewProviders(scripted.New(), broken{})
	if err != nil || fmt.Sprint(p.Names()) != "[broken scripted]" {
		t.Errorf("there are %v, %v", p.Names(), err)
	}
	if one, err := p.Get("scripted"); err != nil || one.Type() != "scripted" {
		t.Errorf("got %v, %v", one, err)
	}
	if _, err := p.Get("sdk"); err == nil || !strings.Contains(err.Error(), `no provider "sdk"; there are: broken, scripted`) {
		t.Errorf("got %v", err)
	}
	if _, err := agent.NewProviders(broken{}, broken{}); err == nil {
		t.Error("two providers of one type were taken")
	}
}

func TestRegistry(t *testing.T) {
	r := registry(t, broken{})
	ctx := t.Context()
	a, err := r.Spawn(ctx, agent.Config{Name: "one", Provider: "scripted"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		c    agent.Config
		want error
		text string
	}{
		{"a name twice", agent.Config{Name: "one", Provider: "scripted"}, agent.ErrNameTaken, `"one"`},
		{"no name", agent.Config{Provider: "scripted"}, nil, "no name"},
		{"no provider", agent.Config{Name: "two", Provider: "sdk"}, nil, "there are: broken, scripted"},
		{"a provider that fails", agent.Config{Name: "two", Provider: "broken"}, agent.ErrAuth, "no key"},
		{"which leaves nothing", agent.Config{Name: "two", Provider: "broken"}, agent.ErrAuth, "no key"},
	} {
		_, err := r.Spawn(ctx, tc.c)
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: got %v", tc.name, err)
		}
	}
	if got, err := r.Get("one"); err != nil || got != a {
		t.Errorf("got %v, %v", got, err)
	}
	list := r.List()
	if len(list) != 1 || list[0].Name != "one" || list[0].Type != "scripted" || list[0].State != agent.Idle || list[0].Since.IsZero() {
		t.Errorf("the list is %+v", list)
	}
	if err := r.Shutdown(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := r.Get("one"); !errors.Is(err, agent.ErrUnknownAgent) {
		t.Errorf("got %v", err)
	}
	if err := r.Shutdown(ctx, "one"); !errors.Is(err, agent.ErrUnknownAgent) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Spawn(ctx, agent.Config{Name: "one", Provider: "scripted"}); err != nil {
		t.Errorf("the name is not free again: %v", err)
	}
}

func TestCloseEndsAllAtOnce(t *testing.T) {
	r := registry(t)
	var all sync.WaitGroup
	started := make(chan struct{}, 10)
	for i := range 10 {
		a, err := r.Spawn(t.Context(), agent.Config{Name: fmt.Sprint(i), Provider: "scripted"})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var last error
			first := true
			for _, err := range a.Handle(t.Context(), agent.NewMessage("test", "go")) {
				if first {
					started <- struct{}{}
				}
				first, last = false, err
			}
			if !errors.Is(last, agent.ErrTerminated) {
				t.Errorf("%d ended with %v", i, last)
			}
		})
	}
	for range 10 {
		<-started
	}
	for _, info := range r.List() {
		if info.State != agent.Processing {
			t.Errorf("%s is %s", info.Name, info.State)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	if list := r.List(); len(list) != 0 {
		t.Errorf("left are %+v", list)
	}
	if _, err := r.Spawn(t.Context(), agent.Config{Name: "late", Provider: "scripted"}); !errors.Is(err, agent.ErrTerminated) {
		t.Errorf("a closed registry: %v", err)
	}
}

// An agent that is being made when the registry is closed is not left behind.
func TestCloseWhileAnAgentIsMade(t *testing.T) {
	began, made := make(chan struct{}), make(chan struct{})
	r := registry(t, broken{began, made})
	spawned := make(chan error)
	go func() {
		_, err := r.Spawn(context.Background(), agent.Config{Name: "slow", Provider: "broken"})
		spawned <- err
	}()
	<-began
	if _, err := r.Spawn(t.Context(), agent.Config{Name: "slow", Provider: "scripted"}); !errors.Is(err, agent.ErrNameTaken) {
		t.Errorf("the name of an agent that is being made: %v", err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	close(made)
	if err := <-spawned; !errors.Is(err, agent.ErrTerminated) {
		t.Errorf("got %v", err)
	}
}

func TestRegistryFromManyGoroutines(t *testing.T) {
	r := registry(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := fmt.Sprint(i % 10)
			if _, err := r.Spawn(t.Context(), agent.Config{Name: name, Provider: "scripted"}); err != nil && !errors.Is(err, agent.ErrNameTaken) {
				t.Error(err)
			}
			r.List()
			if err := r.Shutdown(t.Context(), name); err != nil && !errors.Is(err, agent.ErrUnknownAgent) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestErrorKinds(t *testing.T) {
	cause := errors.New("cause")
	api := fmt.Errorf("wrapped: %w", &agent.Error{Provider: "sdk", Kind: agent.ErrAPI, Status: 529, Err: cause})
	for _, tc := range []struct {
		kind error
		want bool
	}{{agent.ErrProvider, true}, {agent.ErrAPI, true}, {cause, true}, {agent.ErrAuth, false}, {agent.ErrTimeout, false}} {
		if errors.Is(api, tc.kind) != tc.want {
			t.Errorf("is %v: %v", tc.kind, !tc.want)
		}
	}
	if e, ok := errors.AsType[*agent.Error](api); !ok || e.Status != 529 || !strings.Contains(e.Error(), "sdk: API error (529): cause") {
		t.Errorf("got %v", e)
	}
	plain := &agent.Error{Provider: "sdk", Err: cause}
	if !errors.Is(plain, agent.ErrProvider) || errors.Is(plain, agent.ErrAPI) || plain.Error() != "sdk: provider error: cause" {
		t.Errorf("got %v", plain)
	}
}
