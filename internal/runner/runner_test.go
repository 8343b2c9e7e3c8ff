package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records is a host that keeps all in memory.
type records struct {
	mu      sync.Mutex // guards what follows
	events  []nestor.Event
	deltas  int
	fail    error // of Append; nil for none
	session string
	spent   float64
	letters []runner.Letter
	heard   int
	more    chan struct{}    // closed and replaced when letters come; nil if none ever do
	rested  func() time.Time // nil means never
	expects []string         // letters that come when the run is done but for them
}

func (r *records) Rested() time.Time {
	if r.rested == nil {
		return time.Time{}
	}
	return r.rested()
}

func (r *records) Expect(context.Context, int) (bool, error) {
	r.mu.Lock()
	if len(r.expects) == 0 {
		r.mu.Unlock()
		return false, nil
	}
	next := r.expects[0]
	r.expects = r.expects[1:]
	r.mu.Unlock()
	r.write(next)
	return true, nil
}

func (r *records) Began(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = session
	return nil
}

func (r *records) Spent(usd float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent = usd
}

func (r *records) Letters(n int) ([]runner.Letter, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.letters[min(n, len(r.letters)):]), r.more
}

func (r *records) Heard(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = max(r.heard, n)
}

// write writes a letter.
func (r *records) write(content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.letters = append(r.letters, runner.Letter{N: len(r.letters) + 1, From: "ada", Content: content})
	if r.more != nil {
		close(r.more)
		r.more = make(chan struct{})
	}
}

func (r *records) Append(ctx context.Context, events ...nestor.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.fail != nil {
		return r.fail
	}
	r.events = append(r.events, events...)
	return nil
}

func (r *records) Delta(nestor.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deltas++
}

// story is the types of the events, progress left out.
func (r *records) story() string {
	var list []string
	for _, e := range r.events {
		if _, ok := e.(*nestor.ExecutionProgress); !ok {
			list = append(list, strings.TrimPrefix(fmt.Sprintf("%T", e), "*nestor."))
		}
	}
	return strings.Join(list, " ")
}

const (
	id   = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000b")
	root = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000a")
)

// stage is a runner with both real providers, whose model follows a script.
type stage struct {
	*runner.Runner
	provider string
	dir      string
}

// both runs a test with the real CLI and with our own loop.
func both(t *testing.T, script string, policy runner.Policy, test func(*testing.T, stage)) {
	t.Helper()
	for _, provider := range []string{claudecode.Type, anthropic.Type} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var one agent.Provider
			if provider == claudecode.Type {
				cli := claudetest.Real(t)
				dir = cli.Dir
				model := scriptmodel.Start(t, strings.ReplaceAll(script, "$WORK", dir))
				one = claudecode.New(claudecode.Options{Path: cli.Path, ReplaceEnv: true, Env: slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))})
			} else {
				model := scriptmodel.Start(t, strings.ReplaceAll(script, "$WORK", dir))
				one = anthropic.New(anthropic.Options{BaseURL: model.URL, APIKey: "key", Records: anthropic.DirRecords(t.TempDir())})
			}
			providers, err := agent.NewProviders(one)
			if err != nil {
				t.Fatal(err)
			}
			test(t, stage{runner.New(runner.Options{Providers: providers, Provider: provider, Workspace: runner.Dir(dir), Policy: policy}), provider, dir})
		})
	}
}

func (s stage) execute(t *testing.T, task nestor.Task) (nestor.Result, *records) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log := &records{}
	return s.Execute(ctx, runner.Run{ID: id, Root: root, Depth: 1, Task: task}, log), log
}

// list is a policy that approves some tools.
type list []string

func (l list) Rights(runner.Run, runner.Place) (runner.Rights, error) {
	return runner.Rights{Tools: l}, nil
}

func TestTextAndTools(t *testing.T) {
	both(t, `
rules:
  - turns:
      - {thinking: hm, text: I will., tools: [{name: Write, input: {file_path: $WORK/out.txt, content: hello}}]}
      - text: It is done.`, nil, func(t *testing.T, s stage) {
		r, log := s.execute(t, nestor.Task{Agent: "ada", Input: "write it"})
		if r.Status != nestor.Success || r.Output != "It is done." || r.Turns != 2 || r.Session == "" || r.Usage.Output == 0 || r.CostUSD == 0 || r.Error != nil {
			t.Errorf("the result is %+v", r)
		}
		want := "ChatStart AgentStart ThinkingComplete AgentComplete ToolStart ToolComplete WorkspaceWrite AgentComplete ChatComplete"
		if log.story() != want {
			t.Errorf("the story is %s", log.story())
		}
		for _, e := range log.events {
			if h := e.Head(); h.Run != id || h.Root != root || h.Depth != 1 || h.Time.IsZero() {
				t.Errorf("%T has the header %+v", e, h)
			}
			if tool, ok := e.(*nestor.ToolComplete); ok && (tool.Tool != "Write" || !tool.Success) {
				t.Errorf("the tool is %+v", tool)
			}
			if w, ok := e.(*nestor.WorkspaceWrite); ok && (w.Agent != "ada" || w.Path != "out.txt" || w.Action != "write") {
				t.Errorf("what is written is %+v", w)
			}
		}
		if data, err := os.ReadFile(filepath.Join(s.dir, "out.txt")); err != nil || string(data) != "hello" {
			t.Errorf("the file holds %q, %v", data, err)
		}
		if log.deltas == 0 {
			t.Error("nothing was said as it was written")
		}
	})
}

func TestWhatEndsARun(t *testing.T) {
	loop := `
rules:
  - repeat: true
    turns: [{text: again, tools: [{name: Bash, input: {command: "true", description: nothing}}]}]`
	for _, test := range []struct {
		name   string
		script string
		limits nestor.Limits
		status nestor.State
		kind   nestor.Kind
	}{
		{"turns", loop, nestor.Limits{Turns: 2}, nestor.Partial, nestor.Turns},
		{"budget", loop, nestor.Limits{BudgetUSD: 0.000001}, nestor.Partial, nestor.Budget},
		{"bad request", `rules: [{repeat: true, turns: [{fail: {status: 400, message: no}}]}]`, nestor.Limits{}, nestor.Error, nestor.Provider},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			both(t, test.script, list{"Bash"}, func(t *testing.T, s stage) {
				r, log := s.execute(t, nestor.Task{Input: "go", Limits: test.limits})
				if r.Status != test.status || r.Error == nil || r.Error.Kind != test.kind {
					t.Errorf("it is %s, %+v", r.Status, r.Error)
				}
				if limit := test.limits.Turns; limit > 0 && r.Turns != limit {
					t.Errorf("it had %d turns of %d", r.Turns, limit)
				}
				last, ok := log.events[len(log.events)-1].(*nestor.ErrorEvent)
				if !ok || last.Kind != test.kind {
					t.Errorf("the story is %s", log.story())
				}
			})
		})
	}
}

func TestStructuredResult(t *testing.T) {
	both(t, `
rules:
  - turns:
      - tools: [{name: StructuredOutput, input: {answer: 42}}]
      - text: There.`, nil, func(t *testing.T, s stage) {
		r, _ := s.execute(t, nestor.Task{Input: "how many?", Schema: []byte(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)})
		if r.Status != nestor.Success || string(r.Structured) != `{"answer":42}` {
			t.Errorf("it is %s, %s, %+v", r.Status, r.Structured, r.Error)
		}
	})
}

func TestCancelReachesTheAgent(t *testing.T) {
	both(t, `
rules:
  - turns: [{text: I begin., tools: [{name: Bash, input: {command: "touch $WORK/began; sleep 1000", description: wait}}]}]`, list{"Bash"}, func(t *testing.T, s stage) {
		ctx, stop := context.WithCancelCause(t.Context())
		log := &records{}
		done := make(chan nestor.Result)
		go func() {
			done <- s.Execute(ctx, runner.Run{ID: id, Root: root, Task: nestor.Task{Input: "go"}}, log)
		}()
		for _, err := os.Stat(filepath.Join(s.dir, "began")); err != nil; _, err = os.Stat(filepath.Join(s.dir, "began")) {
			select {
			case r := <-done:
				t.Fatalf("it ended: %+v", r.Error)
			case <-time.After(10 * time.Millisecond):
			}
		}
		stop(&nestor.Cause{Kind: nestor.Timeout, By: "deadline"})
		r := <-done
		if r.Status != nestor.Partial || r.Error.Kind != nestor.Timeout || r.Output != "I begin." {
			t.Errorf("it is %s, %q, %+v", r.Status, r.Output, r.Error)
		}
		if r.CostUSD == 0 || r.Usage.Output == 0 || r.Turns == 0 || log.spent != r.CostUSD {
			t.Errorf("what the answer cost is not told: %+v; noted %v", r, log.spent)
		}
	})
}

// What a deadline ended says so in its story. Whoever cancels a run is on record
// already: it is not said twice.
func TestDecisionIsSaidOnce(t *testing.T) {
	for kind, errors := range map[nestor.Kind]int{nestor.Timeout: 1, nestor.Stopped: 0} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				r := written(t, scripted.Turn{Say: []scripted.Line{{Content: "never", After: time.Hour}}})
				log := &records{}
				done := make(chan nestor.Result)
				go func() { done <- r.Execute(ctx, runner.Run{ID: id, Root: root}, log) }()
				synctest.Wait()
				stop(&nestor.Cause{Kind: kind, By: "ada"})
				if got := <-done; got.Error == nil || got.Error.Kind != kind {
					t.Errorf("it is %s, %+v", got.Status, got.Error)
				}
				said := slices.DeleteFunc(slices.Clone(log.events), func(e nestor.Event) bool { _, ok := e.(*nestor.ErrorEvent); return !ok })
				if len(said) != errors {
					t.Errorf("the story is %s", log.story())
				}
			})
		})
	}
}

// What an agent was writing when it was stopped counts, unless it has said all of it.
func TestUnfinishedTextIsKept(t *testing.T) {
	part := func(text string) scripted.Line {
		return scripted.Line{Content: text, Metadata: map[string]any{"sdk_type": "partial_text"}}
	}
	all := scripted.Line{Content: "All of it.", Metadata: map[string]any{"sdk_type": "assistant_text"}}
	below := scripted.Line{Content: "of another", Metadata: map[string]any{"sdk_type": "partial_text", "parent_tool_use_id": "x"}}
	again := scripted.Line{Metadata: map[string]any{"sdk_type": "api_retry"}}
	long := strings.Repeat("é", 40<<10)
	for _, test := range []struct {
		name string
		said []scripted.Line
		want string
	}{
		{"nothing else", []scripted.Line{part("It "), part("grows")}, "It grows"},
		{"complete", []scripted.Line{part("All of"), part(" it."), all}, "All of it."},
		{"after another", []scripted.Line{all, part("And")}, "All of it.\nAnd"},
		{"of a subagent", []scripted.Line{below}, ""},
		{"begun anew", []scripted.Line{part("No, "), again, part("yes")}, "yes"},
		{"much", []scripted.Line{part("a"), part(long)}, "a" + long[:64<<10-2]},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := nestor.Limits{Silence: time.Minute}
				r := written(t, scripted.Turn{Say: append(test.said, scripted.Line{Content: "never", After: time.Hour})})
				got := r.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Limits: limits}}, &records{})
				if got.Output != test.want || (got.Status == nestor.Partial) != (test.want != "") {
					t.Errorf("silent, it is %s with %.100q", got.Status, got.Output)
				}
				ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, &nestor.Cause{Kind: nestor.Timeout, By: "deadline"})
				defer stop()
				got = r.Execute(ctx, runner.Run{ID: id, Root: root}, &records{})
				if got.Output != test.want || (got.Status == nestor.Partial) != (test.want != "") {
					t.Errorf("late, it is %s with %.100q", got.Status, got.Output)
				}
			})
		})
	}
}

func TestInterruptedRunGoesOn(t *testing.T) {
	both(t, `
rules:
  - when: {user: "interrupted"}
    turns: [{text: "I go on."}]
  - turns: [{text: I begin.}]`, nil, func(t *testing.T, s stage) {
		first, _ := s.execute(t, nestor.Task{Input: "begin"})
		if first.Session == "" {
			t.Fatalf("it has no session: %+v", first)
		}
		again := s.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Input: "begin"}, Session: first.Session, Interrupted: true}, &records{})
		if again.Status != nestor.Success || again.Output != "I go on." || again.Session != first.Session {
			t.Errorf("it is %+v, %+v", again, again.Error)
		}
	})
}

// written is a runner whose agents play a conversation.
func written(t *testing.T, turns ...scripted.Turn) *runner.Runner {
	t.Helper()
	providers, err := agent.NewProviders(scripted.New(turns...))
	if err != nil {
		t.Fatal(err)
	}
	return runner.New(runner.Options{Providers: providers, Provider: scripted.Type})
}

func TestSilenceEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := written(t, scripted.Turn{Say: []scripted.Line{{Content: "one"}, {Content: "two", After: 50 * time.Second}, {Content: "never", After: 61 * time.Second}}})
		began := time.Now()
		got := r.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Limits: nestor.Limits{Silence: time.Minute}}}, &records{})
		if got.Status != nestor.Partial || got.Error.Kind != nestor.Silence || time.Since(began) != 110*time.Second {
			t.Errorf("after %v it is %s, %+v", time.Since(began), got.Status, got.Error)
		}
	})
}

// An agent that waits for others owes no sign of life, for as long as it takes.
func TestWaitingIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		host := &records{rested: func() time.Time { return began.Add(min(time.Since(began), 3*time.Hour)) }}
		r := written(t, scripted.Turn{Say: []scripted.Line{{Content: "one"}, {Content: "never", After: 4 * time.Hour}}})
		got := r.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Limits: nestor.Limits{Silence: time.Minute}}}, host)
		if got.Status != nestor.Partial || got.Error.Kind != nestor.Silence || time.Since(began) != 3*time.Hour+time.Minute {
			t.Errorf("after %v it is %s, %+v", time.Since(began), got.Status, got.Error)
		}
	})
}

func TestWhatWasStartedIsHeardBeforeTheEnd(t *testing.T) {
	r := written(t,
		scripted.Turn{When: regexp.MustCompile("scout is back"), Say: []scripted.Line{{Content: "I heard.", Metadata: result()}}},
		scripted.Turn{Say: []scripted.Line{{Content: "I begin.", Metadata: result()}}})
	host := &records{expects: []string{"scout is back"}}
	got := r.Execute(t.Context(), runner.Run{ID: id, Root: root, Task: nestor.Task{Input: "go"}}, host)
	if got.Status != nestor.Success || got.Output != "I heard." || host.heard != 1 {
		t.Errorf("it is %s, %q, %+v; heard %d", got.Status, got.Output, got.Error, host.heard)
	}
}

func TestFailuresHaveTheirKind(t *testing.T) {
	for _, test := range []struct {
		err  error
		kind nestor.Kind
	}{
		{&agent.Error{Kind: agent.ErrAPI, Err: errors.New("reset")}, nestor.Connection},
		{&agent.Error{Kind: agent.ErrAPI, Status: 529, Err: errors.New("overloaded")}, nestor.Connection},
		{&agent.Error{Kind: agent.ErrAPI, Status: 137, Err: errors.New("killed")}, nestor.Connection},
		{&agent.Error{Kind: agent.ErrAPI, Status: 400, Err: errors.New("bad")}, nestor.Provider},
		{&agent.Error{Kind: agent.ErrAuth, Err: errors.New("no key")}, nestor.Provider},
		{&agent.Error{Kind: agent.ErrTimeout, Err: errors.New("late")}, nestor.Connection},
	} {
		r := written(t, scripted.Turn{Fail: test.err})
		got := r.Execute(t.Context(), runner.Run{ID: id, Root: root}, &records{})
		if got.Status != nestor.Error || got.Error.Kind != test.kind {
			t.Errorf("%v is %s, %+v", test.err, got.Status, got.Error)
		}
	}
}

func TestWhatCannotBeginSaysWhy(t *testing.T) {
	r := written(t)
	got := r.Execute(t.Context(), runner.Run{Task: nestor.Task{Provider: "sky"}}, &records{})
	if got.Status != nestor.Error || !strings.Contains(got.Error.Message, `no provider "sky"; there are: scripted`) {
		t.Errorf("it is %s, %+v", got.Status, got.Error)
	}
	full := errors.New("the disk is full")
	got = r.Execute(t.Context(), runner.Run{}, &records{fail: full})
	if got.Status != nestor.Error || !strings.Contains(got.Error.Message, full.Error()) {
		t.Errorf("without a log it is %s, %+v", got.Status, got.Error)
	}
}
