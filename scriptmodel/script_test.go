package scriptmodel_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/scriptmodel"
)

// post sends a body to a model that follows script and returns what came.
func post(t testing.TB, script, body string) (int, string) {
	t.Helper()
	s, err := scriptmodel.ParseScript("test", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	return send(scriptmodel.New(s, scriptmodel.Options{}), body)
}

func send(h http.Handler, body string) (int, string) {
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body))
	r.Header.Set("X-Api-Key", "anything")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// say returns the text that the model answers with, or the error's message.
func say(t testing.TB, script, body string) string {
	t.Helper()
	_, text := post(t, script, body)
	var m struct {
		Content []struct{ Text, Name string }
		Error   struct{ Message string }
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, b := range m.Content {
		return b.Text + b.Name
	}
	return m.Error.Message
}

// talk makes a request: lines "U text", "A text", "C id" (a tool call), "R
// text" (its result).
func talk(lines ...string) string {
	type msg = map[string]any
	messages := []msg{}
	for _, l := range lines {
		kind, text := l[:1], l[2:]
		switch kind {
		case "U":
			messages = append(messages, msg{"role": "user", "content": text})
		case "A":
			messages = append(messages, msg{"role": "assistant", "content": []msg{{"type": "text", "text": text}}})
		case "S":
			messages = append(messages, msg{"role": "system", "content": text})
		case "C":
			messages = append(messages, msg{"role": "assistant", "content": []msg{{"type": "tool_use", "id": text, "name": "Read", "input": msg{}}}})
		case "R":
			messages = append(messages, msg{"role": "user", "content": []msg{{"type": "tool_result", "tool_use_id": "t", "content": []msg{{"type": "text", "text": text}}}}})
		}
	}
	text, _ := json.Marshal(msg{"model": "claude-sonnet-5", "max_tokens": 10, "system": "You are terse.",
		"tools": []msg{{"name": "Read"}, {"name": "Write"}}, "messages": messages})
	return string(text)
}

func TestRules(t *testing.T) {
	const other = "\n  - {repeat: true, turns: [{text: other}]}"
	for _, tc := range []struct{ name, rule, body, want string }{
		{"no condition", `{turns: [{text: yes}]}`, talk("U hi"), "yes"},
		{"model", `{when: {model: sonnet}, turns: [{text: yes}]}`, talk("U hi"), "yes"},
		{"other model", `{when: {model: opus}, turns: [{text: yes}]}`, talk("U hi"), "other"},
		{"system", `{when: {system: terse}, turns: [{text: yes}]}`, talk("U hi"), "yes"},
		{"system message", `{when: {system: Linux}, turns: [{text: yes}]}`, talk("U hi", "S you run on Linux"), "yes"},
		{"user", `{when: {user: "^h.$"}, turns: [{text: yes}]}`, talk("U hi"), "yes"},
		{"the last user text counts", `{when: {user: first}, turns: [{text: yes}]}`, talk("U first", "A ok", "U second"), "other"},
		{"without reminders", `{when: {user: "^hi$"}, turns: [{text: yes}]}`, talk("U <system-reminder>\nbe good\n</system-reminder>\nhi\n"), "yes"},
		{"without interruptions", `{when: {user: "^hi$"}, turns: [{text: yes}]}`, talk("U [Request interrupted by user]\nhi"), "yes"},
		{"turn", `{when: {turn: 2}, turns: [{text: yes}]}`, talk("U hi", "C t", "R x"), "yes"},
		{"other turn", `{when: {turn: 2}, turns: [{text: yes}]}`, talk("U hi"), "other"},
		{"turns start over with a prompt", `{when: {turn: 1}, turns: [{text: yes}]}`, talk("U hi", "A ok", "U again"), "yes"},
		{"tool result", `{when: {tool_result: true}, turns: [{text: yes}]}`, talk("U hi", "C t", "R x"), "yes"},
		{"no tool result", `{when: {tool_result: true}, turns: [{text: yes}]}`, talk("U hi"), "other"},
		{"tools", `{when: {tools: [Read, Write]}, turns: [{text: yes}]}`, talk("U hi"), "yes"},
		{"missing tool", `{when: {tools: [Read, Bash]}, turns: [{text: yes}]}`, talk("U hi"), "other"},
		{"second turn", `{turns: [{text: one}, {text: two}]}`, talk("U hi", "A one"), "two"},
		{"used up", `{turns: [{text: one}, {text: two}]}`, talk("U hi", "A one", "A two"), "other"},
		{"repeat", `{repeat: true, turns: [{text: one}, {text: two}]}`, talk("U hi", "A one", "A two", "A one"), "two"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := say(t, "rules:\n  - "+tc.rule+other, tc.body); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A rule counts only the calls that it answered itself.
func TestRulesShareAPrompt(t *testing.T) {
	const script = `
rules:
  - {when: {tool_result: false}, turns: [{text: ask}]}
  - {when: {tool_result: true}, turns: [{text: first result}, {text: second result}]}`
	got := []string{
		say(t, script, talk("U hi")),
		say(t, script, talk("U hi", "C t", "R x")),
		say(t, script, talk("U hi", "C t", "R x", "C t", "R y")),
	}
	if fmt.Sprint(got) != "[ask first result second result]" {
		t.Errorf("got %q", got)
	}
	status, text := post(t, script, talk("U hi", "C t", "R x", "C t", "R y", "C t", "R z"))
	if status != 400 || !strings.Contains(text, `no rule of the script answers turn 4 of the prompt \"hi\"`) {
		t.Errorf("got %d %s", status, text)
	}
}

func TestTemplatesQuoteTheRequest(t *testing.T) {
	for _, tc := range []struct{ name, when, text, want string }{
		{"prompt", "{}", "{{.Prompt}}", "copy a to b"},
		{"match", `{user: "copy (\\w+)"}`, "{{index .Match 1}}", "a"},
		{"named", `{user: "to (?P<to>\\w+)"}`, "{{.Named.to}}", "b"},
		{"result", "{}", "{{.ToolResult}}", "done"},
		{"results", "{}", "{{len .ToolResults}}", "1"},
		{"turn and model", "{}", "{{.Turn}} {{.Model}}", "2 claude-sonnet-5"},
		{"system", "{}", "{{.System}}", "You are terse."},
		{"tools", "{}", "{{index .Tools 1}}", "Write"},
		{"braces", "{}", `{{"{{"}}`, "{{"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			script := fmt.Sprintf("rules: [{repeat: true, when: %s, turns: [{text: %q}]}]", tc.when, tc.text)
			if got := say(t, script, talk("U copy a to b", "C t", "R done")); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := say(t, `rules: [{turns: [{text: "{{.Named.nobody}}"}]}]`, talk("U hi")); !strings.Contains(got, "nobody") {
		t.Errorf("a group that is not there gives %q", got)
	}
}

func TestPromptCarriesItsScript(t *testing.T) {
	const rules = `rules: [{repeat: true, turns: [{text: rule}]}]`
	carried := "U do it\n```script\n- text: \"one {{.Turn}}\"\n- text: two\n```\nthanks"
	for _, tc := range []struct {
		name, want string
		body       string
	}{
		{"first turn", "one 1", talk(carried)},
		{"second turn", "two", talk(carried, "A one 1")},
		{"then the rules", "rule", talk(carried, "A one 1", "A two")},
		{"another prompt", "rule", talk(carried, "A one 1", "U and now")},
		{"unclosed is text", "rule", talk("U x\n```script\n- text: one\n")},
		{"broken", "scriptmodel: script in the prompt:1:3: unknown key", talk("U x\n```script\n- txt: one\n```")},
		{"empty", "there are no turns", talk("U x\n```script\n```")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := say(t, rules, tc.body); !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	// What is left of an earlier prompt's script answers where no rule does.
	if got := say(t, `rules: []`, talk(carried, "A one 1", "U <task-notification>done</task-notification>")); got != "two" {
		t.Errorf("the rest of the script: got %q", got)
	}
}

// Each level hands the script of the next one on, untouched.
func TestCarriedScriptsNest(t *testing.T) {
	prompt := "level 0\n```script\n" + strings.Join([]string{
		`- tools:`,
		`    - name: Agent`,
		`      input:`,
		`        prompt: |`,
		`          level 1 of {{.Model}}`,
		"          ```script",
		`          - tools:`,
		`              - name: Agent`,
		`                input:`,
		`                  prompt: |`,
		`                    level 2`,
		"                    ```script",
		`                    - text: "deep {{.Model}}"`,
		"                    ```",
		"          ```",
	}, "\n") + "\n```"
	for depth := range 3 {
		_, text := post(t, `rules: []`, talk("U "+prompt))
		var m struct {
			Content []struct {
				Text  string
				Input struct{ Prompt string }
			}
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil || len(m.Content) != 1 {
			t.Fatalf("depth %d: %s, %v", depth, text, err)
		}
		if depth == 2 {
			if m.Content[0].Text != "deep claude-sonnet-5" {
				t.Errorf("the deepest said %q", m.Content[0].Text)
			}
			return
		}
		prompt = m.Content[0].Input.Prompt
		if depth == 0 && !strings.HasPrefix(prompt, "level 1 of claude-sonnet-5\n") {
			t.Errorf("the outer template was not filled in: %q", prompt)
		}
		if !strings.Contains(prompt, "{{.Model}}") {
			t.Fatalf("the inner template was filled in too early: %q", prompt)
		}
	}
}

func TestScriptErrorsSayWhere(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"unknown key", "rules:\n  - turns:\n      - txt: hi\n", `s.yaml:3:9: unknown key "txt"`},
		{"known keys are listed", "rules:\n  - turns:\n      - txt: hi\n", "known are thinking, signature, text"},
		{"unknown condition", "rules:\n  - when: {usr: x}\n", `s.yaml:2:12: unknown key "usr"`},
		{"wrong type", "rules:\n  - turns: 3\n", "s.yaml:2:12: this must be a list"},
		{"wrong scalar", "rules:\n  - turns: [{delay: soon}]\n", "s.yaml:2:21: cannot unmarshal"},
		{"twice", "rules: []\nrules: []\n", `s.yaml:2:1: the key "rules" stands here twice`},
		{"two documents", "rules: []\n---\nrules: []\n", "more than one document"},
		{"bad expression", "rules:\n  - when:\n      user: \"(\"\n", "s.yaml:3:13: error parsing regexp"},
		{"bad template", "rules:\n  - turns:\n      - text: \"{{.Nobody}}\"\n", "s.yaml:3:15: "},
		{"bad template in an input", "rules:\n  - turns:\n      - tools: [{name: x, input: {a: \"{{\"}}]\n", "s.yaml:3:"},
		{"alias", "rules:\n  - name: &a x\n  - name: *a\n", "s.yaml:3:11: aliases are not allowed"},
		{"too long", "#" + strings.Repeat("x", 300<<10), "more than"},
		{"too deep", strings.Repeat("[", 200<<10), "s.yaml"},
		{"not YAML", "rules: [", "s.yaml:1:"},
		{"no turns", "rules: [{name: mine}]", "s.yaml: mine: there are no turns"},
		{"tool without name", "rules: [{turns: [{tools: [{input: {}}]}]}]", "rule 1: turn 1: a tool call has no name"},
		{"two ways to fail", "rules: [{turns: [{fail: {status: 500, drop_after: 1}}]}]", "exactly one of"},
		{"no error status", "rules: [{turns: [{fail: {status: 200}}]}]", "200 is not an error status"},
		{"endless nothing", "rules: [{turns: [{endless: true}]}]", "endless needs a text"},
		{"negative", "rules: [{turns: [{delay: -1s}]}]", "cannot be negative"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := scriptmodel.ParseScript("s.yaml", []byte(tc.script))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestLoadScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	if _, err := scriptmodel.LoadScript(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file gives %v", err)
	}
	if err := os.WriteFile(path, []byte("ruls: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := scriptmodel.LoadScript(path); err == nil || !strings.HasPrefix(err.Error(), path+":1:1: ") {
		t.Errorf("a misspelt key gives %v", err)
	}
}

func TestRefusesWhatTheAPIRefuses(t *testing.T) {
	const ok = `rules: [{repeat: true, turns: [{text: hi}]}]`
	for _, tc := range []struct{ name, body, want string }{
		{"not JSON", `{`, "not valid JSON"},
		{"no model", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, "model: Field required"},
		{"no max_tokens", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "max_tokens: Field required"},
		{"no messages", `{"model":"m","max_tokens":1,"messages":[]}`, "at least one message"},
		{"unknown role", `{"model":"m","max_tokens":1,"messages":[{"role":"bot","content":"x"}]}`, "messages.0.role"},
		{"doubled tool", `{"model":"m","max_tokens":1,"tools":[{"name":"a"},{"name":"a"}],"messages":[{"role":"user","content":"x"}]}`, "unique"},
		{"call without result", talk("U hi", "C t", "U never mind"), "without `tool_result` blocks immediately after: t"},
		{"result without call", talk("U hi", "R x"), "unexpected `tool_use_id`"},
		{"two results", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t"}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"tool_result","tool_use_id":"t"}]}]}`, "multiple `tool_result` blocks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, text := post(t, ok, tc.body)
			var e struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatal(err)
			}
			if status != 400 || e.Type != "error" || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, tc.want) {
				t.Errorf("got %d %s, want %q", status, text, tc.want)
			}
		})
	}
}

func TestNothingWithoutAKey(t *testing.T) {
	h := scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/models", nil))
	if w.Code != 401 || !strings.Contains(w.Body.String(), "authentication_error") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestSameRequestSameAnswer(t *testing.T) {
	const script = `rules: [{repeat: true, turns: [{text: hi, tools: [{name: Read, input: {b: 1, a: 2}}]}]}]`
	body := strings.Replace(talk("U hi"), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	_, first := post(t, script, body)
	_, second := post(t, script, body)
	if first != second || !strings.Contains(first, "event: ping") {
		t.Errorf("two servers gave\n%s\nand\n%s", first, second)
	}
}

func TestRequestsAreKept(t *testing.T) {
	var told int
	s := scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{Keep: 2, OnRequest: func(*scriptmodel.Request) { told++ }})
	for _, prompt := range []string{"one", "two", "three"} {
		if status, text := send(s, talk("U "+prompt)); status != 200 || !strings.Contains(text, "You said: "+prompt) {
			t.Fatalf("got %d %s", status, text)
		}
	}
	got := s.Requests()
	if len(got) != 2 || told != 3 || got[0].Prompt != "two" || got[1].Seq != 3 {
		t.Fatalf("kept %d, told of %d: %+v", len(got), told, got)
	}
	r := got[1]
	if r.Path != "/v1/messages" || r.Model != "claude-sonnet-5" || r.System != "You are terse." || r.Turn != 1 || r.Rule != "echo" ||
		r.Status != 200 || len(r.Tools) != 2 || !bytes.Contains(r.Body, []byte("three")) {
		t.Errorf("recorded %+v", r)
	}
}

// A client that is killed while it sends leaves no request behind, and the server goes on.
func TestHalfARequestIsNone(t *testing.T) {
	s := scriptmodel.Start(t, `rules: [{turns: [{text: hello}]}]`)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Length: 100\r\n\r\n{\"model\":")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusBadRequest {
		t.Fatalf("got %v, %v", answer, err)
	}
	if list := s.Requests(); len(list) != 0 {
		t.Errorf("it has kept %+v", list[0])
	}
	if status, _ := send(s, talk("U hi")); status != 200 || len(s.Requests()) != 1 {
		t.Errorf("the next is answered with %d", status)
	}
}

// What is nested deeper than a stack can hold ends no process.
func TestDeepRequestIsRefused(t *testing.T) {
	for name, open := range map[string]string{"lists": "[", "objects": `{"a":`, "contents": `[{"type":"tool_result","content":`} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m","max_tokens":1,"messages":` + strings.Repeat(open, (16<<20)/len(open))
			status, text := send(scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{Keep: -1}), body)
			if status != 400 || !strings.Contains(text, "nested deeper than 1000") {
				t.Errorf("got %d %.200q", status, text)
			}
		})
	}
	text := strings.Repeat(`"[{`, 2000) // is not nested
	if status, got := send(scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{}), talk("U "+text)); status != 200 {
		t.Errorf("got %d %.200q for brackets in a text", status, got)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("rules: [{when: {user: x}, turns: [{text: \"{{.Prompt}}\", tools: [{name: a, input: {b: [1]}}]}]}]")
	f.Add("usage: {input_tokens: 1}\nrules:\n  - turns:\n      - fail: {status: 529, retry_after: 1s}\n")
	f.Add("a: &x [*x]")
	f.Add("- ```script")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := scriptmodel.ParseScript("f", []byte(text))
		if (s == nil) == (err == nil) {
			t.Fatalf("got %v and %v", s, err)
		}
	})
}

// Whatever a client sends, it gets one JSON document, and the server lives.
func FuzzRequest(f *testing.F) {
	f.Add(talk("U hi", "C t", "R x"))
	f.Add(talk("U x\n```script\n- text: one\n```"))
	f.Add(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":{"a":1}}]}`)
	f.Add(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a\x"}],"tools":[{"name":1,}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "wait") || strings.Contains(body, "endless") || strings.Contains(body, "_after") {
			t.Skip("a script that waits or hangs up on purpose")
		}
		status, text := send(scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{}), body)
		if status != 200 && status != 400 || !json.Valid([]byte(text)) && !strings.HasPrefix(text, "event: ") {
			t.Fatalf("got %d %q", status, text)
		}
		if status == 200 && !json.Valid([]byte(body)) {
			t.Fatalf("what is no JSON was answered with %q", text)
		}
	})
}
