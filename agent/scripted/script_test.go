package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/agenttest"
	"github.com/dfaf701a/nestor/agent/scripted"
)

// parse returns a provider that plays the script.
func parse(t testing.TB, script string) *scripted.Provider {
	t.Helper()
	turns, err := scripted.Parse("talk.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	return scripted.New(turns...)
}

func TestLoadedScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.yaml")
	if err := os.WriteFile(file, []byte(`
turns:
  - when: slow
    say: [{text: and on, after: 1ms}]
    hang: true
  - when: bad
    say: [{text: hm}]
    fail: {status: 529, message: overloaded}
  - say:
      - thinking: hm
      - tool: {name: Read, input: {file_path: a.txt}, result: A}
      - text: hello
`), 0o600); err != nil {
		t.Fatal(err)
	}
	agenttest.Run(t, func(t *testing.T) agenttest.Subject {
		turns, err := scripted.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return agenttest.Subject{Provider: scripted.New(turns...), Say: "say", Slow: "slow", Bad: "bad"}
	})
}

func TestLoadSaysWhichFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "talk.yaml")
	if err := os.WriteFile(file, []byte("trns: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		file:                       file + `:1:1: no key "trns" here; there are: turns`,
		filepath.Join(dir, "none"): "reading script: stat " + filepath.Join(dir, "none"),
		dir:                        "reading script: " + dir + " is no regular file",
	} {
		if _, err := scripted.Load(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

const whole = `
turns:
  - when: "copy (\\w+) to (?P<to>\\w+)"
    say:
      - thinking: hm
      - text: I copy $1.
      - tool: {name: Bash, input: {command: cp $1 $to, list: [$1, 2]}, result: "$to is there", after: 20ms}
      - tool: {name: Read, result: no, error: true}
      - text: done for $$1
        after: 100ms
    cost_usd: 0.5
    usage: {input: 10, output: 5, cache_read: 3, cache_write: 2}
    structured: {answer: [42, $1]}
`

// What is said has the metadata of provider sdk.
func TestScriptSpeaksAsTheCLIDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := agent.Config{Name: "ada", Model: "m", PermissionMode: "plan", AllowedTools: []string{"Bash"}, Dir: "/d", Resume: "s"}
		said, err := handle(t.Context(), t, parse(t, whole), config, "copy a to b")
		if err != nil {
			t.Fatal(err)
		}
		type meta = map[string]any
		tokens := map[string]int{"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
		none := map[string]int{"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
		want := []struct {
			kind    agent.Kind
			content string
			meta    meta
		}{
			{agent.System, "", meta{"sdk_type": "init", "permission_mode": "plan", "cwd": "/d", "tools": []string{"Bash"}}},
			{agent.System, "hm", meta{"sdk_type": "thinking", "usage": tokens}},
			{agent.Chat, "I copy a.", meta{"sdk_type": "assistant_text", "usage": tokens}},
			{agent.System, "Using tool: Bash", meta{"sdk_type": "tool_use", "tool_name": "Bash", "usage": tokens,
				"tool_input": json.RawMessage(`{"command":"cp a b","list":["a",2]}`)}},
			{agent.System, "b is there", meta{"sdk_type": "tool_result", "is_error": false}},
			{agent.System, "Using tool: Read", meta{"sdk_type": "tool_use", "tool_name": "Read", "tool_input": json.RawMessage(`{}`), "usage": none}},
			{agent.System, "no", meta{"sdk_type": "tool_result", "is_error": true}},
			{agent.Chat, "done for $1", meta{"sdk_type": "assistant_text", "usage": none}},
			{agent.Chat, "done for $1", meta{"sdk_type": "result", "subtype": "success", "reason": "completed", "num_turns": 3, "total_cost_usd": 0.5,
				"usage": tokens, "duration_ms": int64(120), "structured_output": json.RawMessage(`{"answer":[42,"a"]}`)}},
		}
		if len(said) != len(want) {
			t.Fatalf("it says %d messages: %+v", len(said), said)
		}
		answers := []string{}
		for i, w := range want {
			got := said[i]
			w.meta["session_id"] = "s"
			if sdkType := w.meta["sdk_type"]; sdkType != "tool_result" && sdkType != "result" {
				w.meta["model"] = "m"
			}
			if id, ok := got.Metadata["message_id"].(string); ok {
				answers = append(answers, id)
				delete(got.Metadata, "message_id")
			}
			if id, ok := got.Metadata["tool_use_id"].(string); ok && w.meta["sdk_type"] == "tool_use" && id == said[i+1].Metadata["tool_use_id"] {
				delete(got.Metadata, "tool_use_id")
				delete(said[i+1].Metadata, "tool_use_id")
			}
			if got.Kind != w.kind || got.Content != w.content || got.Sender != "ada" || !reflect.DeepEqual(got.Metadata, w.meta) {
				t.Errorf("message %d is %s %q %v,\nwant %s %q %v", i, got.Kind, got.Content, got.Metadata, w.kind, w.content, w.meta)
			}
		}
		if distinct := slices.Compact(answers); len(answers) != 5 || len(distinct) != 3 {
			t.Errorf("the answers of the model are %v", answers)
		}
	})
}

func TestSessionsAreNewUnlessResumed(t *testing.T) {
	p := scripted.New(scripted.Echo()...)
	session := func(c agent.Config) string {
		t.Helper()
		c.Name = "a"
		said, err := handle(t.Context(), t, p, c, "x")
		if err != nil {
			t.Fatal(err)
		}
		id, _ := said[0].Metadata["session_id"].(string)
		for _, m := range said {
			if m.Metadata["session_id"] != id {
				t.Errorf("%+v is of another session", m)
			}
		}
		return id
	}
	first, second := session(agent.Config{}), session(agent.Config{})
	if len(first) != 36 || first == second {
		t.Errorf("new sessions are %q and %q", first, second)
	}
	if again := session(agent.Config{Resume: first}); again != first {
		t.Errorf("%q became %q", first, again)
	}
}

func TestEchoRepeats(t *testing.T) {
	for _, text := range []string{"hello", "two\nlines and $1", ""} {
		said, err := handle(t.Context(), t, scripted.New(scripted.Echo()...), agent.Config{Name: "a"}, text)
		if err != nil || len(said) != 3 || said[1].Content != "you said: "+text || said[2].Metadata["sdk_type"] != "result" {
			t.Errorf("it says %+v, %v", said, err)
		}
	}
}

// An agent counts what it has cost so far, as a process of the CLI does.
func TestCostsAddUp(t *testing.T) {
	a, err := parse(t, "turns: [{cost_usd: 0.25}]").Create(t.Context(), agent.Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []float64{0.25, 0.5} {
		for m, err := range a.Handle(t.Context(), agent.NewMessage("test", "x")) {
			if got := m.Metadata["total_cost_usd"]; err != nil || m.Metadata["sdk_type"] == "result" && got != want {
				t.Errorf("it cost %v, %v, want %v", got, err, want)
			}
		}
	}
}

func TestScriptedFailures(t *testing.T) {
	for _, test := range []struct {
		fail   string
		kind   error
		status int
		text   string
		told   bool // by a result
	}{
		{"{status: 529, message: overloaded}", agent.ErrAPI, 529, "scripted: API error (529): overloaded", true},
		{"{status: 401}", agent.ErrAuth, 401, "scripted: not authenticated (401): the script says so", true},
		{"{kind: auth, message: log in}", agent.ErrAuth, 401, "scripted: not authenticated (401): log in", true},
		{"{kind: api, message: it died}", agent.ErrAPI, 0, "scripted: API error: it died", false},
		{"{kind: timeout}", agent.ErrTimeout, 0, "scripted: timed out: the script says so", false},
	} {
		said, err := handle(t.Context(), t, parse(t, "turns: [{say: [{text: hm}], cost_usd: 1, fail: "+test.fail+"}]"), agent.Config{Name: "a"}, "x")
		e, ok := errors.AsType[*agent.Error](err)
		if !ok || !errors.Is(err, test.kind) || e.Status != test.status || err.Error() != test.text {
			t.Errorf("%s is %v", test.fail, err)
		}
		last := said[len(said)-1].Metadata
		told := last["sdk_type"] == "result"
		if told != test.told || told && (last["subtype"] != "error" || last["api_error_status"] != test.status || last["total_cost_usd"] != 1.0) {
			t.Errorf("%s is told as %v", test.fail, last)
		}
	}
}

func TestLimitsOfTheAgentEndATurn(t *testing.T) {
	const script = "turns: [{say: [{tool: {name: A}}, {tool: {name: B}}, {text: done}], cost_usd: 0.5}]"
	for _, test := range []struct {
		limits agent.Limits
		reason any
		turns  int
	}{
		{agent.Limits{MaxTurns: 3, MaxBudgetUSD: 0.5}, "completed", 3},
		{agent.Limits{MaxTurns: 2}, "error_max_turns", 3},
		{agent.Limits{MaxTurns: 1}, "error_max_turns", 2},
		{agent.Limits{MaxBudgetUSD: 0.4}, "error_max_budget_usd", 3},
	} {
		said, err := handle(t.Context(), t, parse(t, script), agent.Config{Name: "a", Limits: test.limits}, "x")
		last := said[len(said)-1].Metadata
		if last["sdk_type"] != "result" || last["reason"] != test.reason || last["num_turns"] != test.turns || last["total_cost_usd"] != 0.5 ||
			(err == nil) != (test.reason == "completed") || err != nil && !errors.Is(err, agent.ErrAPI) {
			t.Errorf("%+v ends with %v, %v", test.limits, last, err)
		}
	}
}

// A usage limit holds for all agents until it is reset.
func TestUsageLimitHoldsUntilItIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parse(t, "turns: [{usage_limit: {resets_in: 90s}, say: [{text: hello}], cost_usd: 1}]")
		var reset time.Time
		for range 2 {
			said, err := handle(t.Context(), t, p, agent.Config{Name: "a"}, "x")
			e, ok := errors.AsType[*agent.Error](err)
			if !ok || e.Kind != agent.ErrAPI || e.Status != 429 || len(said) != 3 {
				t.Fatalf("it says %+v, %v", said, err)
			}
			limit, last := said[1].Metadata, said[2].Metadata
			at, _ := limit["resets_at"].(string)
			if reset, err = time.Parse(time.RFC3339, at); err != nil || limit["sdk_type"] != "rate_limit" || limit["status"] != "rejected" {
				t.Errorf("the limit is %v, %v", limit, err)
			}
			if last["api_error_status"] != 429 || last["total_cost_usd"] != 0.0 {
				t.Errorf("the result is %v", last)
			}
		}
		if ahead := time.Until(reset); ahead < 90*time.Second || ahead > 91*time.Second {
			t.Errorf("it is reset in %v", ahead)
		}
		time.Sleep(time.Until(reset))
		said, err := handle(t.Context(), t, p, agent.Config{Name: "a"}, "x")
		if err != nil || said[1].Content != "hello" {
			t.Errorf("after that it says %+v, %v", said, err)
		}
	})
}

func TestWithoutWhenADollarIsADollar(t *testing.T) {
	said, err := handle(t.Context(), t, parse(t, "turns: [{say: [{text: it costs $1}]}]"), agent.Config{Name: "a"}, "x")
	if err != nil || said[1].Content != "it costs $1" {
		t.Errorf("it says %+v, %v", said, err)
	}
}

func TestSilentHangIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		said, err := handle(ctx, t, parse(t, "turns: [{hang: true}]"), agent.Config{Name: "a"}, "x")
		if !errors.Is(err, context.DeadlineExceeded) || len(said) != 1 {
			t.Errorf("it says %+v, %v", said, err)
		}
	})
}

func TestScriptErrors(t *testing.T) {
	for _, test := range []struct{ script, want string }{
		{"", "talk.yaml:1:1: there are no turns; begin with "},
		{"turns: []\n", "talk.yaml:1:1: there are no turns"},
		{"turns: hello\n", `talk.yaml:1:8: want a list, such as [a, b], got "hello"`},
		{"turns:\n  - sya: []\n", `talk.yaml:2:5: no key "sya" here; there are: cost_usd, fail, hang, say, `},
		{"turns: [{when: '('}]\n", "talk.yaml:1:16: error parsing regexp: missing closing ): `(`; see https://"},
		{"turns: [{say: [hello]}]\n", `talk.yaml:1:16: want a mapping of keys to values, got "hello"`},
		{"turns: [{say: [{text: a, thinking: b}]}]\n", "talk.yaml:1:16: a line is one of text, thinking, tool and call"},
		{"turns: [{say: [{after: 1s}]}]\n", "talk.yaml:1:16: a line is one of text, thinking, tool and call"},
		{"turns: [{say: [{text: a, after: 10}]}]\n", `talk.yaml:1:33: want a duration, such as 20ms, 90s or 1h, got "10"`},
		{"turns: [{say: [{tool: {input: {}}}]}]\n", "talk.yaml:1:23: a tool needs a name"},
		{"turns: [{say: [{tool: {name: A, input: 3}}]}]\n", `talk.yaml:1:40: want the input of a tool, such as {command: ls}, got "3"`},
		{"turns: [{say: [{tool: {name: A, input: {a: .nan}}}]}]\n", "talk.yaml:1:44: want a finite number"},
		{"turns: [{cost_usd: -1}]\n", `talk.yaml:1:20: want a number, zero or more, got "-1"`},
		{"turns: [{usage: {input: 1.5}}]\n", `talk.yaml:1:25: want a whole number, zero or more, got "1.5"`},
		{"turns: [{fail: {}}]\n", "talk.yaml:1:16: want how it fails: a status, such as 529, or a kind: api, auth or timeout"},
		{"turns: [{fail: {status: 200}}]\n", "talk.yaml:1:16: status 200 is not that of an error; want 400 to 599"},
		{"turns: [{fail: {kind: odd}}]\n", `talk.yaml:1:16: kind is "odd": want api, auth or timeout`},
		{"turns: [{fail: {kind: timeout, status: 500}}]\n", "talk.yaml:1:16: what timed out has no status; remove it"},
		{"turns: [{hang: true, fail: {kind: api}}]\n", "talk.yaml:1:9: a turn that hangs has no end to fail at"},
		{"turns: [{hang: true, say: [{text: a}]}]\n", "talk.yaml:1:9: this turn would say its lines without a pause and without end"},
		{"turns: [{usage_limit: {}}]\n", "talk.yaml:1:23: want when the limit is reset, such as {resets_in: 2s}"},
		{"turns:\n  - say: [{text: a}]\n  - when: b\n", "talk.yaml:3:5: this turn is never played: the one in line 2 has no when"},
		{"turns:\n  - hang: maybe\n    fail: 3\n", "talk.yaml:2:11: want true or false, got \"maybe\"\ntalk.yaml:3:11: want a mapping"},
		{"turns: &a [*a]\n", "talk.yaml:1:12: aliases are not allowed here"},
		{"#" + strings.Repeat("x", 1<<20), "talk.yaml: it has 1048577 bytes or more"},
	} {
		turns, err := scripted.Parse("talk.yaml", []byte(test.script))
		if err == nil || turns != nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60q: got %v, want %s", test.script, err, test.want)
		}
	}
}

// What the package comment shows can be played.
func TestScriptOfThePackageComment(t *testing.T) {
	source, err := os.ReadFile("scripted.go")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for line := range strings.Lines(string(source)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			script.WriteString(text)
		}
	}
	turns, err := scripted.Parse("comment", []byte(script.String()))
	if err != nil || len(turns) != 4 {
		t.Errorf("it has %d turns, %v", len(turns), err)
	}
}

func ExampleParse() {
	turns, err := scripted.Parse("talk.yaml", []byte(`
turns:
  - when: "copy (\\w+) to (\\w+)"
    say:
      - tool: {name: Bash, input: {command: cp $1 $2}, result: ok}
      - text: I copied $1.
    cost_usd: 0.01
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	ada, err := scripted.New(turns...).Create(ctx, agent.Config{Name: "ada"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ada.Shutdown(ctx)
	for m, err := range ada.Handle(ctx, agent.NewMessage("me", "copy a to b")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q\n", m.Metadata["sdk_type"], m.Content)
	}
	// Output:
	// init ""
	// tool_use "Using tool: Bash"
	// tool_result "ok"
	// assistant_text "I copied a."
	// result "I copied a."
}

func FuzzParse(f *testing.F) {
	f.Add(whole, "copy a to b")
	f.Add("turns: [{when: '(a*)*b', say: [{text: ${1}x}], fail: {status: 500}}]", "aaab")
	f.Add("turns: [{say: [{tool: {name: A, input: {a: [~, 1.5, 2026-01-01]}, after: 1ns}}], structured: [1]}]", "x")
	f.Add("turns: [{usage_limit: {resets_in: 1s}, hang: false}]", "")
	f.Fuzz(func(t *testing.T, script, message string) {
		turns, err := scripted.Parse("talk.yaml", []byte(script))
		if (len(turns) == 0) == (err == nil) {
			t.Fatalf("%d turns and %v", len(turns), err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "talk.yaml:") {
				t.Fatalf("%v has no place", err)
			}
			return
		}
		synctest.Test(t, func(t *testing.T) { // what takes an hour takes none
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			a, err := scripted.New(turns...).Create(ctx, agent.Config{Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			heard := 0
			for m, err := range a.Handle(ctx, agent.NewMessage("test", message)) {
				if err != nil {
					continue
				}
				if _, err := json.Marshal(m.Metadata); err != nil {
					t.Fatalf("%+v: %v", m, err)
				}
				if heard++; heard > 1000 { // it hangs in small steps
					break
				}
			}
		})
	})
}
