package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
)

// nesting starts one level after the other by the tool, until a leaf answers.
const nesting = `
turns:
  - when: "^level 0$"
    say: [{text: leaf}]
    cost_usd: 0.01
  - when: "^level (\\d)(\\d*)$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: "level $2"}}
      - text: "below: ${result}"
    cost_usd: 0.01
`

// A tree that is deeper than there are slots gets to its end, and its costs add up.
func TestTreeDeeperThanTheSlots(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: nesting}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "level 123450", Limits: nestor.Limits{Depth: 5}})
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success || !strings.Contains(run.Result.Output, "leaf") {
		t.Fatalf("it is %s, %+v, %v", run.State, run.Result, err)
	}
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != 6 {
		t.Fatalf("the tree has %d runs, %v", len(tree), err)
	}
	for i, r := range tree {
		if r.Depth != i || r.State != nestor.Success || r.Trace != run.Trace || len(r.Trace) != 32 {
			t.Errorf("run %d is %s at depth %d of trace %s", i, r.State, r.Depth, r.Trace)
		}
	}
	if sum := run.CostUSD + run.BelowUSD; sum < 0.0599 || sum > 0.0601 {
		t.Errorf("it cost %v", sum)
	}
}

// done waits for a run and returns what it said.
func done(t *testing.T, c *api.Client, id nestor.ID) string {
	t.Helper()
	run, err := c.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success {
		t.Fatalf("run %s is %s, %+v, %v", id, run.State, run.Error, err)
	}
	return run.Result.Output
}

func TestRefusedSpawnSaysWhichLimit(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: `
turns:
  - when: "^deep$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: deeper}}}, {text: "${result}"}]
  - when: "^many$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: x, limits: {max_descendants: 100}}}}, {text: "${result}"}]
  - when: "^money$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: x, limits: {max_budget_usd: 100}}}}, {text: "${result}"}]
  - when: "^self$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: " SELF "}}}, {text: "${result}"}]
  - when: "^odd$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: x, parent: me}}}, {text: "${result}"}]
  - when: "^fail$"
    fail: {status: 400, message: it fails}
  - when: "^failing$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: fail}}
      - call: {name: mcp__nestor__spawn, input: {task: "fail"}}
      - call: {name: mcp__nestor__spawn, input: {task: fail}}
      - text: "${result}"
  - say: [{text: hello}]
`}
	client, _ := serving(t, s)
	for _, test := range []struct {
		input, want string
		limits      nestor.Limits
	}{
		{"many", "limit of descendants: 64 of 64 left, 101 asked for", nestor.Limits{}},
		{"money", "limit of budget: 1 of 1 left, 100 asked for", nestor.Limits{BudgetUSD: 1}},
		{"self", "limit of recursion: an agent with the same input is run", nestor.Limits{}},
		{"odd", "parent", nestor.Limits{}},
		{"failing", "limit of failures: the last 2 runs that were started here failed", nestor.Limits{Failures: 2}},
	} {
		id := submit(t, client, nestor.Task{Input: test.input, Limits: test.limits})
		if got := done(t, client, id); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.input, got)
		}
	}
}

// What is started in the background is heard of, also by who does not wait; and who
// has waited is not told again.
func TestBackgroundIsHeard(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 2, Script: `
turns:
  - when: "(?s)Message from scout \\(run [^)]*\\):.*(found .*)$"
    say: [{text: "I heard: $1"}]
  - when: "^tell me$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: look, name: scout, background: true}}}, {text: "started ${result}"}]
  - when: "^wait for it$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: look, name: scout, background: true}}
      - call: {name: mcp__nestor__spawn, input: {task: look too, name: second, background: true}}
      - call: {name: mcp__nestor__wait, input: {runs: [scout]}}
      - call: {name: mcp__nestor__wait, input: {}}
      - text: "${result}"
  - when: "^any$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: hang, name: slow, background: true}}
      - call: {name: mcp__nestor__spawn, input: {task: look, name: quick, background: true}}
      - call: {name: mcp__nestor__wait, input: {any: true}}
      - call: {name: mcp__nestor__wait, input: {runs: [slow], timeout: 20ms}}
      - text: "${result}"
    fail: {status: 400, message: enough}
  - when: "^hang$"
    hang: true
  - when: "^look"
    say: [{text: found it, after: 20ms}]
`}
	client, _ := serving(t, s)
	if got := done(t, client, submit(t, client, nestor.Task{Input: "tell me"})); got != "I heard: found it" {
		t.Errorf("it says %q", got)
	}
	got := done(t, client, submit(t, client, nestor.Task{Input: "wait for it"}))
	if !strings.Contains(got, `"name":"second"`) || strings.Contains(got, `"name":"scout"`) || strings.Count(got, "found it") != 1 {
		t.Errorf("it says %q", got)
	}
	id := submit(t, client, nestor.Task{Input: "any", Limits: nestor.Limits{Children: 2}})
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Error {
		t.Fatalf("it is %s, %v", run.State, err)
	}
	if !strings.Contains(run.Result.Output, `"name":"slow"`) || !strings.Contains(run.Result.Output, `"status":"running"`) && !strings.Contains(run.Result.Output, `"status":"queued"`) && !strings.Contains(run.Result.Output, `"status":"starting"`) {
		t.Errorf("it says %q", run.Result.Output)
	}
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != 3 {
		t.Fatalf("the tree has %d runs, %v", len(tree), err)
	}
	for _, r := range tree {
		if !r.State.Ended() {
			t.Errorf("%s is left %s", r.Input, r.State)
		}
	}
}

const askScript = `
turns:
  - when: interrupted
    say: [{call: {name: mcp__nestor__ask_person, input: {question: "which one?", options: [left, right]}}}, {text: "person says ${result}"}]
  - when: "^ask$"
    say: [{call: {name: mcp__nestor__ask_person, input: {question: "which one?", options: [left, right]}}}, {text: "person says ${result}"}]
  - when: "^hurry$"
    say: [{call: {name: mcp__nestor__ask_person, input: {question: "now?", timeout: 30ms, default: later}}}, {text: "person says ${result}"}]
  - when: "^(.*) below$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: "$1"}}}, {text: "${result}"}]
`

func theAsk(t *testing.T, c *api.Client, id nestor.ID) api.OpenAsk {
	t.Helper()
	var asks []api.OpenAsk
	until(t, c, id, func(r api.Run) bool {
		var err error
		if asks, err = c.Asks(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(asks) > 0
	})
	return asks[0]
}

// A question comes up from below, on one slot, and its answer goes down again.
func TestQuestionFromBelow(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: askScript}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "ask below below"})
	ask := theAsk(t, client, id)
	if ask.Root != id || len(ask.Path) != 3 || ask.Path[0] != id || ask.Path[2] != ask.Run || ask.Question != "which one?" || len(ask.Options) != 2 {
		t.Errorf("it asks %+v", ask)
	}
	if err := client.Answer(t.Context(), ask.Run, "other", api.Answer{Decision: "left"}); err == nil {
		t.Error("what was not asked is answered")
	}
	if err := client.Answer(t.Context(), ask.Run, ask.ID, api.Answer{Decision: "left", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if got := done(t, client, id); !strings.Contains(got, "left") || !strings.Contains(got, "ada") {
		t.Errorf("it says %q", got)
	}
	if asks, err := client.Asks(t.Context()); err != nil || len(asks) != 0 {
		t.Errorf("still asked: %+v, %v", asks, err)
	}
	if got := done(t, client, submit(t, client, nestor.Task{Input: "hurry below"})); !strings.Contains(got, "later") || !strings.Contains(got, "time-out") {
		t.Errorf("in a hurry it says %q", got)
	}
}

// A restart loses neither the question nor the answer.
func TestQuestionOutlivesTheDaemon(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: askScript}
	client, end := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "ask"})
	ask := theAsk(t, client, id)
	end()
	client, end = serving(t, s)
	until(t, client, id, func(r api.Run) bool { return r.Attempt > 1 })
	if again := theAsk(t, client, id); again.ID != ask.ID {
		t.Errorf("%s became %s", ask.ID, again.ID)
	}
	if err := client.Answer(t.Context(), id, ask.ID, api.Answer{Decision: "right"}); err != nil {
		t.Fatal(err)
	}
	end()
	client, _ = serving(t, s)
	if got := done(t, client, id); !strings.Contains(got, "right") {
		t.Errorf("it says %q", got)
	}
}

// A parent whose child takes long is not called silent.
func TestWaitingParentIsNotSilent(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: `
turns:
  - when: "^slow$"
    say: [{text: a, after: 150ms}, {text: b, after: 150ms}, {text: c, after: 150ms}, {text: d, after: 150ms}]
  - say: [{call: {name: mcp__nestor__spawn, input: {task: slow}}}, {text: "${result}"}]
`}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "go", Limits: nestor.Limits{Silence: 300 * time.Millisecond}})
	if got := done(t, client, id); !strings.Contains(got, `"output":"d"`) {
		t.Errorf("it says %q", got)
	}
	run, err := client.Run(t.Context(), id)
	if err != nil || run.Retries != 0 {
		t.Errorf("it was tried again: %+v, %v", run, err)
	}
}

// A spawn that a crash has cut is found again by who goes on, not done again.
func TestRepeatedSpawnTakesWhatIsThere(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 2, Script: `
turns:
  - when: "child$"
    say: [{text: the child's own, after: 200ms}]
  - when: go on
    say: [{call: {name: mcp__nestor__spawn, input: {task: child}}}, {call: {name: mcp__nestor__spawn, input: {task: child}}}, {text: "${result}"}]
  - say: [{call: {name: mcp__nestor__spawn, input: {task: child}}}, {text: first, after: 1h}]
`}
	client, end := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "please go on"})
	first := until(t, client, id, func(r api.Run) bool { return len(r.Children) == 1 }).Children[0]
	end()
	client, _ = serving(t, s)
	done(t, client, id)
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != 3 || tree[1].ID != first {
		t.Errorf("the tree is %+v, %v", tree, err)
	}
}

// What stands in the folder of a session is what came of its runs, also when the
// daemon is gone in between.
func TestSessionFolderFollowsTheRuns(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: `
turns:
  - when: "^long$"
    say: [{text: "LONG"}]
  - when: "interrupted"
    say: [{call: {name: mcp__nestor__spawn, input: {task: long}}}, {text: "${result}"}]
  - say: [{call: {name: mcp__nestor__spawn, input: {task: long}}}, {text: wait, after: 1h}]
`}
	long := strings.Repeat("a line that is one of many\\n", 4000)
	s.Script = strings.Replace(s.Script, "LONG", long, 1)
	client, end := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "Do it all"})
	child := until(t, client, id, func(r api.Run) bool { return len(r.Children) == 1 }).Children[0]
	for { // until it is there, and has ended
		_, err := client.Wait(t.Context(), child)
		if err == nil {
			break
		}
		if !errors.Is(err, nestor.ErrRunNotFound) {
			t.Fatal(err)
		}
	}
	end()
	client, _ = serving(t, s)
	got := done(t, client, id)
	if len(got) > 40<<10 || !strings.Contains(got, `"truncated":true`) || !strings.Contains(got, "[cut here: the whole is in ") {
		t.Errorf("what goes up has %d bytes: …%s", len(got), got[max(0, len(got)-400):])
	}
	var signal []string
	until(t, client, id, func(api.Run) bool {
		signal, _ = filepath.Glob(filepath.Join(s.Dir, ".nestor", "sessions", "*-do-it-all-*", "signals", string(id)+".done"))
		return len(signal) == 1
	})
	dir := filepath.Dir(filepath.Dir(signal[0]))
	whole, err := os.ReadFile(filepath.Join(dir, "results", string(child)+".txt"))
	if err != nil || len(whole) != 108000 {
		t.Errorf("the whole has %d bytes, %v", len(whole), err)
	}
	for _, name := range []string{"signals/" + string(child) + ".done", "results/" + string(id) + ".json", ".agents/" + string(child) + ".json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// The first run of a new project is in its session's folder from its beginning on,
// also if a command works alone.
func TestFirstRunHasAFolder(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: "turns: [{say: [{text: I begin., after: 1h}]}]"}
	client, _ := serving(t, s, func(o *daemon.Options) { o.Lone = true })
	id := submit(t, client, nestor.Task{Input: "hello"})
	until(t, client, id, func(api.Run) bool {
		files, _ := filepath.Glob(filepath.Join(s.Dir, ".nestor", "sessions", "*", ".agents", string(id)+".json"))
		return len(files) == 1
	})
}
