package runner_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/internal/runner"
)

// executeFor executes a run for some host, for a minute at most.
func (s stage) executeFor(t *testing.T, run runner.Run, host *records) nestor.Result {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	run.ID, run.Root = id, root
	return s.Execute(ctx, run, host)
}

// said tells whether an event says that the run does something.
func (r *records) said(activity string) bool {
	for _, e := range r.events {
		if p, ok := e.(*nestor.ExecutionProgress); ok && strings.Contains(p.Activity, activity) {
			return true
		}
	}
	return false
}

func TestSessionIsOnRecordBeforeTheEnd(t *testing.T) {
	both(t, `rules: [{turns: [{text: hello}]}]`, nil, func(t *testing.T, s stage) {
		host := &records{}
		r := s.executeFor(t, runner.Run{Task: nestor.Task{Input: "go"}}, host)
		if host.session == "" || host.session != r.Session || host.spent != r.CostUSD || r.CostUSD == 0 {
			t.Errorf("on record are session %q and %v USD, the result says %q and %v", host.session, host.spent, r.Session, r.CostUSD)
		}
	})
}

func TestLostSessionBeginsAnew(t *testing.T) {
	both(t, `
rules:
  - when: {user: "interrupted"}
    turns: [{text: "I go on."}]
  - turns: [{text: I begin.}]`, nil, func(t *testing.T, s stage) {
		host := &records{}
		r := s.executeFor(t, runner.Run{Task: nestor.Task{Input: "begin"}, Session: "6a1c3b1e-0000-4000-8000-000000000000", Interrupted: true}, host)
		if r.Status != nestor.Success || r.Output != "I begin." || !host.said("it begins anew") {
			t.Errorf("it is %s, %q, %+v", r.Status, r.Output, r.Error)
		}
	})
}

func TestLettersReachTheAgent(t *testing.T) {
	both(t, `
rules:
  - when: {user: "also the docs"}
    turns: [{text: The docs too.}]
  - turns: [{text: The code.}]`, nil, func(t *testing.T, s stage) {
		host := &records{}
		host.write("also the docs")
		r := s.executeFor(t, runner.Run{Task: nestor.Task{Input: "the code"}}, host)
		var said strings.Builder
		for _, e := range host.events {
			if text, ok := e.(*nestor.AgentComplete); ok {
				said.WriteString(text.Content)
			}
		}
		if r.Status != nestor.Success || !strings.Contains(said.String(), "The docs too.") || host.heard != 1 {
			t.Errorf("it is %s, %+v; it said %q and heard %d", r.Status, r.Error, said.String(), host.heard)
		}
	})
}

func TestResultThatDoesNotFollowItsSchemaIsAskedForAgain(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
	first, second := `{"answer": "many"}`, `{"answer": 42}`
	for _, test := range []struct {
		name, then string
		status     nestor.State
	}{{"mended", second, nestor.Success}, {"never", first, nestor.Error}} {
		t.Run(test.name, func(t *testing.T) {
			r := written(t,
				scripted.Turn{When: regexp.MustCompile("does not follow"), Say: []scripted.Line{{Content: test.then, Metadata: result()}}},
				scripted.Turn{Say: []scripted.Line{{Content: first, Metadata: result()}}})
			got := r.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Input: "how many?", Schema: schema}}, &records{})
			if got.Status != test.status || test.status == nestor.Success && string(got.Structured) != second ||
				test.status == nestor.Error && (got.Error.Kind != nestor.Invalid || got.Output != first) {
				t.Errorf("it is %s, %s, %+v", got.Status, got.Structured, got.Error)
			}
		})
	}
}

func result() map[string]any { return map[string]any{"sdk_type": "result", "subtype": "success"} }

func TestUsageLimitSaysWhenItIsReset(t *testing.T) {
	reset := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for name, lines := range map[string][]scripted.Line{
		"event": {
			{Kind: agent.System, Metadata: map[string]any{"sdk_type": "rate_limit", "status": "rejected", "resets_at": reset.Format(time.RFC3339)}},
			{Content: "You've hit your limit", Metadata: map[string]any{"sdk_type": "result", "subtype": "error", "api_error_status": 429}},
		},
		"text": {
			{Content: "Claude AI usage limit reached|" + strconv.FormatInt(reset.Unix(), 10), Metadata: map[string]any{"sdk_type": "result", "subtype": "error"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := written(t, scripted.Turn{Say: lines}).Execute(t.Context(), runner.Run{ID: id, Root: root}, &records{})
			if got.Error == nil || got.Error.Kind != nestor.Limited || !got.Error.Until.Equal(reset) {
				t.Errorf("it is %s, %+v", got.Status, got.Error)
			}
		})
	}
	got := written(t, scripted.Turn{Say: []scripted.Line{
		{Kind: agent.System, Metadata: map[string]any{"sdk_type": "rate_limit", "status": "rejected", "resets_at": reset.Format(time.RFC3339)}},
		{Content: "done all the same", Metadata: result()},
	}}).Execute(t.Context(), runner.Run{ID: id, Root: root}, &records{})
	if got.Status != nestor.Success {
		t.Errorf("a limit that did not end it: %s, %+v", got.Status, got.Error)
	}
}

// Every step is on record, and signs of life that are no messages count.
func TestSilenceIsActedOn(t *testing.T) {
	both(t, `
rules:
  - when: {user: slowly}
    turns: [{text: "a text that takes its time", chunk: 2, delay: 400ms}]
  - turns: [{text: never, wait: 1h}]`, nil, func(t *testing.T, s stage) {
		host := &records{}
		r := s.executeFor(t, runner.Run{Task: nestor.Task{Input: "go", Limits: nestor.Limits{Silence: 3 * time.Second}}}, host)
		if r.Status == nestor.Success || r.Error.Kind != nestor.Silence || !host.said("it is interrupted") || !host.said("it is ended") {
			t.Errorf("it is %s, %+v", r.Status, r.Error)
		}
		r = s.executeFor(t, runner.Run{Task: nestor.Task{Input: "slowly", Limits: nestor.Limits{Silence: 12 * time.Second}}}, host)
		if r.Status != nestor.Success {
			t.Errorf("what takes its time is %s, %+v", r.Status, r.Error)
		}
	})
}

func TestLetterDuringTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := written(t,
			scripted.Turn{When: regexp.MustCompile("more"), Say: []scripted.Line{{Content: "yes", Metadata: result()}}},
			scripted.Turn{Say: []scripted.Line{{Content: "done", After: time.Second, Metadata: result()}}})
		host := &records{}
		time.AfterFunc(time.Second/2, func() { host.write("more") })
		got := r.Execute(t.Context(), runner.Run{ID: id, Root: root}, host)
		if got.Output != "yes" || host.heard != 1 {
			t.Errorf("it said %q and heard %d", got.Output, host.heard)
		}
	})
}
