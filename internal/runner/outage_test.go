package runner_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/internal/runner"
)

// retry is what is known of a call of the API that is tried again.
func retry(n, status int, reason, message string) map[string]any {
	m := map[string]any{
		"sdk_type": "api_retry", "attempt": n, "max_retries": 10, "delay_ms": int64(4200), "api_error_status": status, "error": reason,
	}
	if message != "" {
		m["message"] = message
	}
	return m
}

// activities is what the run was said to do.
func (r *records) activities() string {
	var list []string
	for _, e := range r.events {
		if p, ok := e.(*nestor.ExecutionProgress); ok && p.Activity != "" {
			list = append(list, p.Activity)
		}
	}
	return strings.Join(list, "\n")
}

func TestRetriesOfTheAPIAreSaid(t *testing.T) {
	text := map[string]any{"sdk_type": "assistant_text"}
	synthetic := map[string]any{"sdk_type": "assistant_text", "error": "overloaded"}
	for _, test := range []struct {
		name       string
		said       []scripted.Line
		activities string
		why        string
	}{
		{"overloaded", []scripted.Line{{Metadata: retry(1, 529, "overloaded", "API Error: 529 Overloaded")}, {Metadata: retry(2, 529, "overloaded", "")}},
			"the API is overloaded (529): retry 1 of 10 in 4s\nthe API is overloaded (529): retry 2 of 10 in 4s", "; the API is overloaded (529)"},
		{"no answer", []scripted.Line{{Metadata: retry(1, 0, "unknown", "API Error: dial tcp: connection refused")}},
			"the API does not answer: dial tcp: connection refused: retry 1 of 10 in 4s", "; the API does not answer: dial tcp: connection refused"},
		{"nothing known", []scripted.Line{{Metadata: retry(1, 0, "unknown", "")}}, "the API does not answer: retry 1 of 10 in 4s", "; the API does not answer"},
		{"server error", []scripted.Line{{Metadata: retry(1, 503, "server_error", "")}}, "the API failed (503): retry 1 of 10 in 4s", "; the API failed (503)"},
		{"answered", []scripted.Line{{Metadata: retry(1, 429, "rate_limit", "")}, {Content: "at last", Metadata: text}},
			"the API limits the rate of calls (429): retry 1 of 10 in 4s\nthe API answers again", ""},
		{"given up", []scripted.Line{{Metadata: retry(1, 529, "overloaded", "")}, {Content: "API Error", Metadata: synthetic}},
			"the API is overloaded (529): retry 1 of 10 in 4s", "; the API is overloaded (529)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				log := &records{}
				done := make(chan nestor.Result)
				r := written(t, scripted.Turn{Say: append(test.said, scripted.Line{Content: "never", After: time.Hour})})
				go func() { done <- r.Execute(ctx, runner.Run{ID: id, Root: root}, log) }()
				synctest.Wait()
				stop(&nestor.Cause{Kind: nestor.Stopped, By: "ada"})
				got := <-done
				if log.activities() != test.activities {
					t.Errorf("it was said to do\n%s\nwant\n%s", log.activities(), test.activities)
				}
				if want := (&nestor.Cause{Kind: nestor.Stopped, By: "ada"}).Error() + test.why; got.Error == nil || got.Error.Message != want {
					t.Errorf("it ended with %v, want %s", got.Error, want)
				}
			})
		})
	}
}
