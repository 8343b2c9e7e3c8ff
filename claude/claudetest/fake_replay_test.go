package claudetest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/claude/claudetest"
)

// A host that says what the recorded one said, with ids of its own, hears what
// that one heard.
func TestReplayRecorded(t *testing.T) {
	files, err := filepath.Glob(transcripts + "/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		tr := read(t, file)
		for i := range tr.Acts {
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(file), ".txtar"), i+1), func(t *testing.T) {
				t.Parallel()
				path, env := claudetest.ReplayAct(file, i+1)
				replayAct(t, start(t, path, env), tr, i+1)
			})
		}
	}
}

func replayAct(t *testing.T, h *host, tr *claudetest.Transcript, number int) {
	home := filepath.Join(filepath.Dir(h.cmd.Dir), "home")
	folders := strings.NewReplacer("$WORK", escaped(h.cmd.Dir), "$HOME", escaped(home), "$TMP", escaped(os.TempDir()))
	var own []string // pairs: what the recorded host called what, and how this one does
	act, said := 0, 0
	for _, l := range tr.Lines {
		if strings.HasPrefix(l.Note, "start") {
			act++
		}
		if act != number {
			continue
		}
		switch l.From {
		case claudetest.Host:
			said++
			var m struct {
				Type    string
				ID      string `json:"request_id"`
				UUID    string
				Request struct {
					Hooks map[string][]struct{ HookCallbackIDs []string }
				}
			}
			if err := json.Unmarshal(l.JSON, &m); err != nil {
				t.Fatal(err)
			}
			if m.Type == "control_request" {
				own = append(own, `"request_id":"`+m.ID+`"`, `"request_id":"mine-`+m.ID+`"`)
			}
			if m.UUID != "" {
				own = append(own, `"`+m.UUID+`"`, `"mine-`+m.UUID+`"`)
			}
			line := strings.NewReplacer(own...).Replace(string(l.JSON))
			for _, matchers := range m.Request.Hooks {
				for _, matcher := range matchers {
					for _, id := range matcher.HookCallbackIDs {
						line = strings.Replace(line, `"`+id+`"`, `"mine-`+id+`"`, 1)
						own = append(own, `"callback_id":"`+id+`"`, `"callback_id":"mine-`+id+`"`)
					}
				}
			}
			h.say(line)
		case claudetest.Claude:
			h.hears(strings.NewReplacer(own...).Replace(folders.Replace(string(l.JSON))))
		default:
			var code int
			if n, _ := fmt.Sscanf(l.Note, "exit %d", &code); n == 1 {
				h.stdin.Close()
				h.end(code, "")
			}
		}
	}
	if said == 0 || !h.ended {
		t.Errorf("the host said %d lines, and saw the end: %v", said, h.ended)
	}
}

// escaped is how a path stands in JSON.
func escaped(path string) string {
	text, _ := json.Marshal(path)
	return strings.Trim(string(text), `"`)
}

// asking is a CLI that asks twice before it goes on.
const asking = `Two questions.
-- transcript --
# start
> {"type":"control_request","request_id":"init","request":{"subtype":"initialize"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"init"}}
> {"type":"user","uuid":"u1"}
< {"type":"control_request","request_id":"a","request":{"subtype":"can_use_tool"}}
< {"type":"control_request","request_id":"b","request":{"subtype":"can_use_tool"}}
< {"type":"control_request","request_id":"c","request":{"subtype":"hook_callback"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"a"}}
< {"type":"system","subtype":"status"}
> {"type":"control_response","response":{"subtype":"success","request_id":"b"}}
> {"type":"control_request","request_id":"stop","request":{"subtype":"interrupt"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"stop"}}
# exit 1
`

func response(id string) string {
	return `{"type":"control_response","response":{"subtype":"success","request_id":"` + id + `"}}`
}

// replaysAsking starts the fake and has the conversation up to its questions.
func replaysAsking(t *testing.T) *host {
	t.Helper()
	file := filepath.Join(t.TempDir(), "asking.txtar")
	if err := os.WriteFile(file, []byte(asking), 0o600); err != nil {
		t.Fatal(err)
	}
	path, env := claudetest.Replay(file)
	h := start(t, path, env)
	h.say(initialize)
	h.hears(`{"type":"control_response","response":{"subtype":"success","request_id":"i"}}`)
	h.say(user)
	for _, id := range []string{"a", "b"} {
		h.hears(`{"type":"control_request","request_id":"` + id + `","request":{"subtype":"can_use_tool"}}`)
	}
	h.hears(`{"type":"control_request","request_id":"c","request":{"subtype":"hook_callback"}}`)
	return h
}

// Responses come in any order and also to requests that the recorded host left
// unanswered, and a keep_alive disturbs nobody.
func TestReplayTakesAnswersInAnyOrder(t *testing.T) {
	h := replaysAsking(t)
	for _, line := range []string{response("b"), response("c"), `{"type":"keep_alive"}`, response("a")} {
		h.say(line)
	}
	h.hears(`{"type":"system","subtype":"status"}`)
	h.say(`{"type":"control_request","request_id":"mine","request":{"subtype":"interrupt"}}`)
	h.hears(`{"type":"control_response","response":{"subtype":"success","request_id":"mine"}}`)
	h.stdin.Close()
	h.end(1, "")
}

// At the end it waits for the host, as the CLI does, and still listens.
func TestReplayWaitsForTheEndOfStdin(t *testing.T) {
	h := replaysAsking(t)
	h.say(response("a"))
	h.say(response("b"))
	h.hears(`{"type":"system","subtype":"status"}`)
	h.say(`{"type":"control_request","request_id":"mine","request":{"subtype":"interrupt"}}`)
	h.hears(`{"type":"control_response","response":{"subtype":"success","request_id":"mine"}}`)
	h.say(user)
	h.end(claudetest.BrokenExit, "asking.txtar: expected nothing more, got user")
}

// A CLI that gave up did not wait for the host.
func TestReplayExitsByItself(t *testing.T) {
	path, env := claudetest.Replay(transcripts + "/resume-missing.txtar")
	h := start(t, path, env)
	h.say(initialize)
	line, err := h.stdout.ReadBytes('\n')
	if claudetest.Kind(line) != "result/error_during_execution" {
		t.Errorf("it said %s, %v", line, err)
	}
	h.end(1, "")
}

func TestReplayRefusesAnotherHost(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		say        []string
	}{
		{"closes stdin", "asking.txtar: expected an answer to the request a, and the host closed stdin", nil},
		{"answers one only", "asking.txtar: expected an answer to the request a, and the host closed stdin", []string{response("b")}},
		{"answers what was not asked", `asking.txtar: got an answer to the request "x", which was not asked`, []string{response("x")}},
		{"asks something else", "asking.txtar: expected control_request/interrupt, got control_request/set_model", []string{
			`{"type":"control_request","request_id":"m","request":{"subtype":"set_model"}}`}},
		{"says something else", "asking.txtar: expected control_request/interrupt, got user", []string{user}},
		{"says no JSON", "asking.txtar: expected control_request/interrupt, got : garbage", []string{"garbage"}},
		{"says too much", "asking.txtar: expected nothing more, got user", []string{
			`{"type":"control_request","request_id":"m","request":{"subtype":"interrupt"}}`, user}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := replaysAsking(t)
			for _, line := range tc.say {
				h.say(line)
			}
			h.stdin.Close()
			h.end(claudetest.BrokenExit, tc.want)
		})
	}
}

func TestReplayOfNothing(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.txtar")
	if err := os.WriteFile(bad, []byte("-- transcript --\n< {\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, file, want string
		act              int
	}{
		{"no file", filepath.Join(dir, "none.txtar"), "none.txtar: ", 1},
		{"no transcript", bad, "section transcript: line 1 holds no valid JSON", 1},
		{"no such process", transcripts + "/text.txtar", "text.txtar has no process 2", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path, env := claudetest.ReplayAct(tc.file, tc.act)
			h := start(t, path, env)
			h.stdin.Close()
			h.end(claudetest.BrokenExit, tc.want)
		})
	}
}
