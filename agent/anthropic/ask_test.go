package anthropic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// loopback is a transport without a network: it asks the model in place, so that
// time can stand still.
type loopback struct{ model http.Handler }

// page is an answer as it is written.
type page struct {
	header http.Header
	status int
	bytes.Buffer
}

func (p *page) Header() http.Header    { return p.header }
func (p *page) WriteHeader(status int) { p.status = status }
func (p *page) Flush()                 {}

func (l loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	p := &page{header: http.Header{}, status: 200}
	var end error = io.EOF
	func() {
		defer func() {
			if recover() != nil {
				end = errors.New("connection reset by peer")
			}
		}()
		l.model.ServeHTTP(p, r)
	}()
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	body := io.NopCloser(io.MultiReader(bytes.NewReader(p.Bytes()), failing{end}))
	return &http.Response{StatusCode: p.status, Header: p.header, Body: body, Request: r, ProtoMajor: 1}, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// still returns a bench whose model is in this process and goroutine, for a
// bubble.
func still(t *testing.T, script string, change ...func(*Options)) (*bench, *scriptmodel.Server) {
	t.Helper()
	parsed, err := scriptmodel.ParseScript("script", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	model := scriptmodel.New(parsed, scriptmodel.Options{})
	b := &bench{t: t, model: model}
	b.opts = Options{APIKey: "key", HTTPClient: &http.Client{Transport: loopback{model}}}
	b.opts.Tools = func(agent.Config) []tools.Tool { return b.tools }
	for _, f := range change {
		f(&b.opts)
	}
	b.p = New(b.opts)
	return b, model
}

// What may pass is tried again, later and later, and said.
func TestRetries(t *testing.T) {
	for _, test := range []struct {
		name   string
		fail   string
		status any
		reason string
	}{
		{"overloaded", "status: 529", 529, "overloaded"},
		{"rate limit", "status: 429", 429, "rate_limit"},
		{"server error", "status: 500", 500, "server_error"},
		{"bad gateway", "status: 502", 502, "server_error"},
		{"unavailable", "status: 503", 503, "server_error"},
		{"connection lost", "drop_after: 0", nil, "unknown"},
		{"connection lost in the answer", "drop_after: 4", nil, "unknown"},
		{"broken answer", "malformed_after: 4", nil, "unknown"},
		{"error in the answer", "error_after: 4", 500, "server_error"},
		{"overloaded in the answer", "error_after: 4, type: overloaded_error", 529, "overloaded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := still(t, `rules: [{turns: [{text: "at last, a long answer", chunk: 5, fail: {times: 2, `+test.fail+`}}]}]`)
				start := time.Now()
				all := answerTo(t, b.create(agent.Config{}), "go")
				if all.types() != "api_retry api_retry assistant_text result" {
					t.Errorf("it says %s", all.types())
				}
				retries := all.of("api_retry")
				for i, m := range retries {
					if m.Metadata["attempt"] != i+1 || m.Metadata["max_retries"] != 10 || m.Metadata["error"] != test.reason ||
						m.Metadata["message"] == nil || test.status != nil && m.Metadata["api_error_status"] != test.status {
						t.Errorf("retry %d is %+v", i, m.Metadata)
					}
				}
				if took := time.Since(start); took < 1500*time.Millisecond || took > 3*time.Second {
					t.Errorf("it waited %v", took)
				}
			})
		})
	}
}

// When the API says how long to wait, that is how long.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := still(t, `rules: [{turns: [{text: "at last", fail: {times: 1, status: 429, retry_after: 77s}}]}]`)
		start := time.Now()
		a := b.create(agent.Config{})
		if _, err := say(t, t.Context(), a, "go"); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 77*time.Second {
			t.Errorf("it waited %v", took)
		}
	})
}

// A limit that is reset in an hour is no reason to try again, and is told.
func TestUsageLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := still(t, `rules: [{turns: [{fail: {status: 429, retry_after: 1h}}]}]`)
		start := time.Now()
		said, err := say(t, t.Context(), b.create(agent.Config{}), "go")
		if e, ok := errors.AsType[*agent.Error](err); !ok || e.Status != 429 || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		limit := slices.IndexFunc(said, func(m agent.Message) bool { return m.Metadata["sdk_type"] == "rate_limit" })
		if limit < 0 || said[limit].Metadata["status"] != "rejected" || said[limit].Metadata["resets_at"] != start.Add(time.Hour).UTC().Format(time.RFC3339) {
			t.Errorf("it said %+v", said)
		}
	})
}

// A tool that takes long gives signs of life, and so does an answer that comes.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := still(t, `rules: [{turns: [{text: "a longer answer that comes in parts", chunk: 4, delay: 1s}]}]`)
		var signs atomic.Int32
		if _, err := say(t, t.Context(), b.create(agent.Config{OnFrame: func() { signs.Add(1) }}), "go"); err != nil {
			t.Error(err)
		}
		if signs.Load() < 9 {
			t.Errorf("%d signs of life", signs.Load())
		}
	})
}

// There is an end to it, and what cannot pass is not tried again.
func TestRequestsThatFailForGood(t *testing.T) {
	for _, test := range []struct {
		name     string
		fail     string
		opts     func(*Options)
		requests int
		kind     error
		status   int
	}{
		{"overloaded for ever", "status: 529", func(*Options) {}, 11, agent.ErrAPI, 529},
		{"with fewer retries", "status: 503", func(o *Options) { o.Retries = 2 }, 3, agent.ErrAPI, 503},
		{"with none", "status: 503", func(o *Options) { o.Retries = -1 }, 1, agent.ErrAPI, 503},
		{"not authenticated", "status: 401", func(*Options) {}, 1, agent.ErrAuth, 401},
		{"forbidden", "status: 403", func(*Options) {}, 1, agent.ErrAuth, 403},
		{"not paid", "status: 402", func(*Options) {}, 1, agent.ErrAPI, 402},
		{"wrong", "status: 400", func(*Options) {}, 1, agent.ErrAPI, 400},
		{"wrong in the answer", "error_after: 3, type: invalid_request_error", func(*Options) {}, 1, agent.ErrAPI, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, model := still(t, `rules: [{repeat: true, turns: [{text: "never", fail: {`+test.fail+`}}]}]`, test.opts)
				failures := 0
				hooks := claude.Hooks{StopFailure: []claude.Hook[claude.StopFailureInput, claude.HookOutput]{{
					Func: func(context.Context, *claude.StopFailureInput) (*claude.HookOutput, error) {
						failures++
						return nil, nil
					},
				}}}
				a := b.create(agent.Config{Hooks: hooks})
				all, err := say(t, t.Context(), a, "go")
				e, _ := errors.AsType[*agent.Error](err)
				if e == nil || e.Kind != test.kind || e.Status != test.status {
					t.Errorf("the error is %v", err)
				}
				r := all.result(t)
				if r.Metadata["subtype"] != "error" || r.Metadata["api_error_status"] != test.status || !strings.HasPrefix(r.Content, "API Error: ") {
					t.Errorf("the result is %q, %+v", r.Content, r.Metadata)
				}
				if n := len(model.Requests()); n != test.requests || failures != 1 {
					t.Errorf("there were %d requests, and hooks were told %d times", n, failures)
				}
				if state, _ := a.State(); state != agent.Failed {
					t.Errorf("the agent is %s", state)
				}
			})
		})
	}
}

// When the model fails, the fallback takes over, once.
func TestFallbackModel(t *testing.T) {
	const script = `
rules:
  - when: {model: opus}
    repeat: true
    turns: [{text: never, fail: {status: $STATUS, message: "model: gone"}}]
  - when: {model: sonnet}
    repeat: true
    turns: [{text: "it is {{.Model}}"}]
  - when: {model: haiku}
    repeat: true
    turns: [{text: never, fail: {status: 529}}]`
	for _, test := range []struct {
		status, to, trigger string
		requests            int
		ok                  bool
	}{
		{"529", "claude-sonnet-5-5", "overloaded", 4, true},
		{"500", "claude-sonnet-5-5", "server_error", 12, true},
		{"429", "claude-sonnet-5-5", "last_resort", 12, true},
		{"404", "sonnet", "model_not_found", 2, true},
		{"529", "claude-haiku-5-5", "overloaded", 14, false},
	} {
		t.Run(test.status+" "+test.to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, model := still(t, strings.ReplaceAll(script, "$STATUS", test.status), func(o *Options) { o.Model = "claude-opus-5-5" })
				a := b.create(agent.Config{Credentials: map[string]string{"fallback_model": test.to}})
				all, err := say(t, t.Context(), a, "go")
				if (err == nil) != test.ok {
					t.Errorf("it ends with %v", err)
				}
				f := all.of("model_fallback")
				if len(f) != 1 || f[0].Metadata["from"] != "claude-opus-5-5" || f[0].Metadata["trigger"] != test.trigger {
					t.Errorf("it falls back %+v", f)
				}
				if n := len(model.Requests()); n != test.requests {
					t.Errorf("there were %d requests", n)
				}
				if test.ok && all.result(t).Content != "it is claude-sonnet-5-5" {
					t.Errorf("the result is %q", all.result(t).Content)
				}
			})
		})
	}
}

// An API that goes silent is asked again.
func TestSilentAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		silent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{}).ServeHTTP(w, r)
		})
		p := New(Options{APIKey: "key", HTTPClient: &http.Client{Transport: loopback{silent}}})
		a, err := p.Create(t.Context(), agent.Config{Name: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		all, err := say(t, t.Context(), a, "go")
		if err != nil || all.types() != "api_retry assistant_text result" || time.Since(start) < 5*time.Minute {
			t.Errorf("after %v it says %s, %v", time.Since(start), all.types(), err)
		}
		a.Shutdown(t.Context())
	})
}

// While it waits to try again, an agent can be stopped, and has its time.
func TestStoppedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := still(t, `rules: [{repeat: true, turns: [{text: never, fail: {status: 529, retry_after: 60s}}]}]`)
		start := time.Now()
		a := b.create(agent.Config{Limits: agent.Limits{Timeout: 90 * time.Second}})
		all, err := say(t, t.Context(), a, "go")
		if !errors.Is(err, agent.ErrTimeout) || time.Since(start) != 90*time.Second {
			t.Errorf("after %v it ends with %v", time.Since(start), err)
		}
		if r := all.result(t); r.Metadata["interrupted"] != true {
			t.Errorf("the result is %+v", r.Metadata)
		}
	})
}

// Blocks that a lost attempt had said are taken back by the next.
func TestLostAttemptIsSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := still(t, `rules: [{turns: [{thinking: hm, text: "at last", fail: {times: 1, drop_after: 7}}]}]`)
		all := answerTo(t, b.create(agent.Config{}), "go")
		if all.types() != "thinking api_retry thinking assistant_text result" {
			t.Fatalf("it says %s", all.types())
		}
		if list, _ := all.of("thinking")[1].Metadata["supersedes"].([]string); len(list) != 1 {
			t.Errorf("the second attempt is %+v", all.of("thinking")[1].Metadata)
		}
	})
}

// Text as it is written, if that was asked for.
func TestPartialText(t *testing.T) {
	b := open(t, `rules: [{turns: [{thinking: hmm, text: "a text in pieces", chunk: 6}]}]`)
	all := answerTo(t, b.create(agent.Config{Credentials: map[string]string{"partial": "true"}}), "go")
	if got := strings.Join(all.of("partial_text").texts(), "|"); got != "a text| in pi|eces" {
		t.Errorf("the pieces are %q", got)
	}
	if got := strings.Join(all.of("partial_thinking").texts(), "|"); got != "hmm" {
		t.Errorf("the thoughts are %q", got)
	}
}

func TestRetryAfterHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(42 * time.Second).UTC().Format(http.TimeFormat)
		for _, test := range []struct {
			key, value string
			want       time.Duration
		}{
			{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
			{"Retry-After", "3", 3 * time.Second},
			{"Retry-After", "0.5", 500 * time.Millisecond},
			{"Retry-After", soon, 42 * time.Second},
			{"Retry-After", "1e300", maxRetryAfter},
			{"Retry-After-Ms", "1e300", maxRetryAfter},
			{"Retry-After", "-7", 0},
			{"Retry-After", "soon", 0},
			{"Retry-After", "NaN", 0},
			{"Retry-After", "", 0},
		} {
			if got := retryAfter(http.Header{test.key: {test.value}}); got != test.want {
				t.Errorf("%s: %s means %v", test.key, test.value, got)
			}
		}
	})
	for n := 1; n < 100; n++ {
		if d := (&failure{}).delay(n); d < 500*time.Millisecond || d > 40*time.Second {
			t.Errorf("attempt %d waits %v", n, d)
		}
	}
}

// What another model thought is not sent to the one that takes over.
func TestFallbackDoesNotGetForeignThoughts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, model := still(t, `
rules:
  - when: {model: opus, turn: 1}
    turns: [{thinking: secret thoughts, tools: [{name: Look, input: {name: a}}]}]
  - when: {model: opus}
    repeat: true
    turns: [{text: never, fail: {status: 529}}]
  - when: {model: sonnet}
    repeat: true
    turns: [{text: done}]`)
		var j journal
		b.tools = []tools.Tool{j.reader("Look")}
		a := b.create(agent.Config{Model: "opus", Credentials: map[string]string{"fallback_model": "sonnet"}})
		if _, err := say(t, t.Context(), a, "go"); err != nil {
			t.Fatal(err)
		}
		requests := model.Requests()
		own, foreign := string(requests[1].Body), string(requests[len(requests)-1].Body)
		if !strings.Contains(own, "secret thoughts") || strings.Contains(foreign, "secret thoughts") || !strings.Contains(foreign, `"tool_use"`) {
			t.Errorf("the other model gets %s", foreign)
		}
	})
}

// A window that is full in the middle of an answer is made larger once.
func TestWindowExceededInTheAnswer(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "about to be shortened"}
    turns: [{text: "the facts"}]
  - when: {user: "^go"}
    turns: [{text: "half an ", stop: model_context_window_exceeded}]
  - turns: [{text: "answer"}]`)
	all := answerTo(t, b.create(agent.Config{}), "go")
	if r := all.result(t); r.Content != "answer" || len(all.of("compacted")) != 1 {
		t.Errorf("it says %q in %s", r.Content, all.types())
	}
	b.requests()
}
