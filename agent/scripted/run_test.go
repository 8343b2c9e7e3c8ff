package scripted_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/internal/runner"
)

// host keeps the types of events.
type host struct {
	mu     sync.Mutex // guards what follows
	events []string
	spent  float64
}

func (h *host) Append(_ context.Context, events ...nestor.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.events = append(h.events, fmt.Sprintf("%T", e)[len("*nestor."):])
	}
	return nil
}

func (h *host) Spent(usd float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spent = usd
}

func (h *host) Delta(nestor.Event)                             {}
func (h *host) Began(context.Context, string) error            { return nil }
func (h *host) Letters(int) ([]runner.Letter, <-chan struct{}) { return nil, nil }
func (h *host) Heard(int)                                      {}
func (h *host) Expect(context.Context, int) (bool, error)      { return false, nil }
func (h *host) Rested() time.Time                              { return time.Time{} }

// A run of a script leaves the events and the result of one of the CLI.
func TestScriptBecomesARun(t *testing.T) {
	providers, err := agent.NewProviders(parse(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	execute := func(limits nestor.Limits) (nestor.Result, *host) {
		h := &host{}
		id := nestor.ID("0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f")
		r := runner.New(runner.Options{Providers: providers, Provider: scripted.Type})
		return r.Execute(t.Context(), runner.Run{ID: id, Root: id, Task: nestor.Task{Input: "copy a to b", Limits: limits}}, h), h
	}
	got, h := execute(nestor.Limits{})
	if got.Status != nestor.Success || got.Output != "done for $1" || got.Turns != 3 || got.CostUSD != 0.5 || h.spent != 0.5 || got.Session == "" ||
		got.Usage != (nestor.Usage{Input: 10, Output: 5, CacheRead: 3, CacheWrite: 2}) || string(got.Structured) != `{"answer":[42,"a"]}` {
		t.Errorf("it is %+v, %v", got, got.Error)
	}
	for _, want := range []string{"ThinkingComplete", "AgentComplete", "ToolStart", "ToolComplete", "ChatComplete"} {
		if !slices.Contains(h.events, want) {
			t.Errorf("there is no %s in %v", want, h.events)
		}
	}
	if slices.Contains(h.events, "ProviderMessage") {
		t.Errorf("something is not understood: %v", h.events)
	}
	got, _ = execute(nestor.Limits{Turns: 1})
	if got.Status != nestor.Partial || got.Error.Kind != nestor.Turns || got.Output != "I copy a." {
		t.Errorf("within one turn it is %+v, %v", got, got.Error)
	}
}
