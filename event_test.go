package nestor_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

var update = flag.Bool("update", false, "write testdata/events.jsonl anew")

const goldenFile = "testdata/events.jsonl"

// samples has one event of each type, every field set.
func samples() []nestor.Event {
	const run, root, child = nestor.ID("0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f"), nestor.ID("0199d3a2-7c1e-7000-8000-000000000001"), nestor.ID("0199d3a2-7c1e-7000-8000-000000000002")
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	h := nestor.Header{Seq: 4711, Time: at, Run: run, Root: root, Depth: 1}
	wait := nestor.Wait{For: nestor.ForChildren, Runs: []nestor.ID{child}, Ask: "a", Until: at, Since: at, Reason: "waits for its child"}
	failure := &nestor.Failure{Kind: nestor.Budget, Message: "all is spent"}
	return []nestor.Event{
		&nestor.ChatStart{Header: h, Message: "hello"},
		&nestor.ChatComplete{Header: h, Success: true},
		&nestor.AgentStart{Header: h, Agent: "ada", AgentType: "sdk"},
		&nestor.AgentDelta{Header: h, Agent: "ada", Delta: "hel"},
		&nestor.AgentComplete{Header: h, Agent: "ada", Content: "hello", Thinking: "hm"},
		&nestor.ThinkingStart{Header: h, Agent: "ada"},
		&nestor.ThinkingDelta{Header: h, Agent: "ada", Delta: "h"},
		&nestor.ThinkingComplete{Header: h, Agent: "ada", Thinking: "hm"},
		&nestor.ToolStart{Header: h, Tool: "Bash", Description: "list", Input: json.RawMessage(`{"command":"ls"}`), ToolUseID: "t1"},
		&nestor.ToolComplete{Header: h, Tool: "Bash", Success: true, Summary: "3 files", ToolUseID: "t1", Output: &nestor.Blob{Ref: "sha256-1", Size: 9, Type: "text/plain"}},
		&nestor.ProviderMessage{Header: h, Raw: json.RawMessage(`{"type":"new"}`)},
		&nestor.Decision{Header: h, Tool: "Bash", ToolUseID: "t", Allowed: true, Reason: "r", Rule: "role critic: bash no"},
		&nestor.ErrorEvent{Header: h, Message: "no", Kind: nestor.Provider},
		&nestor.AgentSpawn{Header: h, Agent: "bob", Description: "look", Child: child},
		&nestor.ExecutionStart{Header: h, ExecutionID: "x", Agent: "ada", Swarm: "s", Workspace: "w", Attempt: 2},
		&nestor.ExecutionProgress{Header: h, ExecutionID: "x", Agent: "ada", Progress: 0.5, Activity: "reads", Turns: 2, CostUSD: 0.125, Usage: &nestor.Usage{Input: 1}},
		&nestor.ExecutionComplete{Header: h, ExecutionID: "x", Agent: "ada", Success: false, Status: nestor.Partial, ResultSummary: "half", CostUSD: 0.25,
			Usage: nestor.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, Error: failure, Turns: 3, Result: &nestor.Result{Status: nestor.Partial, Output: "half"}},
		&nestor.RunQueued{Header: h, Parent: root, Agent: "ada", Reason: "r", Wait: &wait},
		&nestor.RunWaiting{Header: h, Reason: "r", Wait: wait},
		&nestor.RunResumed{Header: h, Reason: "r"},
		&nestor.RunRetry{Header: h, Reason: "r", Attempt: 2, At: at},
		&nestor.RunCancelled{Header: h, Reason: "r", Cause: nestor.Cause{Kind: nestor.Stopped, By: "ada", Run: root, Reason: "enough"}},
		&nestor.Lease{Header: h, Child: child, Granted: 1, Spent: 0.25, Returned: 0.75},
		&nestor.WorkspaceWrite{Header: h, Agent: "ada", Path: "a.go", Action: "edit"},
		&nestor.NetworkDial{Header: h, Host: "example.com", Port: 443, Address: "93.184.215.14:443", Allowed: true, Rule: "host example.com", Reason: "r", Sent: 1, Received: 2, Millis: 3},
		&nestor.Ask{Header: h, AskID: "a", Tool: "Bash", Input: json.RawMessage(`{}`), Question: "may it?", Options: []string{"yes", "no"}, Default: "no", Until: at, PathFromRoot: []nestor.ID{root, run}, Suggestions: []json.RawMessage{json.RawMessage(`"always"`)}},
		&nestor.Answer{Header: h, AskID: "a", Decision: "allow", By: "ada", Scope: "once", Data: json.RawMessage(`{}`)},
		&nestor.Letter{Header: h, From: "ada", To: "bob", Content: "hello"},
	}
}

// The JSON of each event is what was agreed, and is read back as it was.
func TestEventJSON(t *testing.T) {
	var lines []byte
	for _, e := range samples() {
		data, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, data...), '\n')
		back, err := nestor.DecodeEvent(data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, e) {
			t.Errorf("%s\ncame back as %#v", data, back)
		}
		if v := reflect.ValueOf(e).Elem(); v.NumField() > 1 {
			for i := range v.NumField() {
				if f := v.Field(i); f.Kind() != reflect.Bool && f.IsZero() {
					t.Errorf("the sample of %T leaves %s open", e, v.Type().Field(i).Name)
				}
			}
		}
	}
	if *update {
		if err := os.WriteFile(goldenFile, lines, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(lines, golden) {
		t.Errorf("the JSON of events changed; is every reader told? Then run this test with -update.\n%s", lines)
	}
}

// Every type that is written can be read, and has a sample.
func TestEveryEventHasASample(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	types := 0
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		if !ok || f.Name.Name != "wire" {
			return true
		}
		literal, ok := f.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.BasicLit)
		if !ok {
			return false // of UnknownEvent
		}
		types++
		name, _ := strconv.Unquote(literal.Value)
		if !strings.Contains(string(golden), `{"type":"`+name+`"`) {
			t.Errorf("%s has no sample", name)
		}
		if e, err := nestor.DecodeEvent([]byte(`{"type":"` + name + `"}`)); err != nil {
			t.Error(err)
		} else if _, unknown := e.(*nestor.UnknownEvent); unknown {
			t.Errorf("%s is not read", name)
		}
		return false
	})
	if types != len(samples()) {
		t.Errorf("%d types and %d samples", types, len(samples()))
	}
}

// An event of a newer Nestor keeps what this one does not know, and its header
// can be set as that of any other.
func TestUnknownEventSurvives(t *testing.T) {
	const line = `{"type":"run_teleported","seq":3,"time":"2026-11-15T12:00:00Z","run":"r","root":"o","depth":2,"to":{"planet":"mars"},"n":[1,2.50]}`
	e, err := nestor.DecodeEvent([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if h := e.Head(); h.Run != "r" || h.Seq != 3 || h.Depth != 2 {
		t.Errorf("its header is %+v", h)
	}
	e.Head().Seq = 9
	data, err := nestor.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.Replace(line, `"seq":3`, `"seq":9`, 1)), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it became %s", data)
	}
	e.Head().Seq = 0
	if data, err = nestor.EncodeEvent(e); err != nil || strings.Contains(string(data), `"seq"`) {
		t.Errorf("without a position it became %s, %v", data, err)
	}
}

func TestBadEventsNameThemselves(t *testing.T) {
	for _, line := range []string{``, `{`, `[]`, `{}`, `{"type":1}`, `{"type":"ask","ask_id":1}`, `{"type":"new","seq":"x"}`} {
		if e, err := nestor.DecodeEvent([]byte(line)); err == nil || e != nil || !strings.HasPrefix(err.Error(), "event ") {
			t.Errorf("%s: %v, %v", line, e, err)
		}
	}
}

// The type is found without decoding, however it is written.
func TestEventType(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"ask","run":`:             "ask", // of what we write no more than the beginning is looked at
		`{"run":"x","type":"ask"}`:         "ask",
		`{ "type": "new_kind" }`:           "new_kind",
		`{"type":"a\u0073k","run":"x"}`:    "ask",
		`{"type":"x","run":"x","type":""}`: "x",
	} {
		if kind, err := nestor.EventType([]byte(line)); err != nil || kind != want {
			t.Errorf("%s is of type %q, %v; want %q", line, kind, err, want)
		}
	}
	for _, line := range []string{``, `{`, `[]`, `{}`, `{"type":1}`, `{"type":"a\`} {
		if kind, err := nestor.EventType([]byte(line)); err == nil {
			t.Errorf("%s is of type %q", line, kind)
		}
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		e, err := nestor.DecodeEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		if kind, err := nestor.EventType(line); err != nil || kind != nestor.TypeOf(e) {
			t.Errorf("%s is of type %q, %v; want %q", line, kind, err, nestor.TypeOf(e))
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		f.Add(line)
	}
	f.Add([]byte(`{"type":"x","type":"ask"}`))
	f.Add([]byte("{\"type\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := nestor.DecodeEvent(data)
		if (e == nil) == (err == nil) {
			t.Fatalf("%v and %v", e, err)
		}
		if err != nil {
			return
		}
		once, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Skip("a time that JSON cannot hold") // years beyond 9999
		}
		again, err := nestor.DecodeEvent(once)
		if err != nil {
			t.Fatalf("%s became %s: %v", data, once, err)
		}
		if twice, err := nestor.EncodeEvent(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, and then %s, %v", data, once, twice, err)
		}
	})
}
