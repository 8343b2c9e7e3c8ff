package claudetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Replay returns the path of a fake CLI that plays the first process of a
// recorded transcript, and the environment that it needs besides that of the
// test.
//
// It says what the CLI said, in order. Where the host said something it waits
// until the host of today says something of that [Kind]: control requests and
// prompts in the order of the recording, control responses in any order. The
// ids that the host of today chooses stand for those of the recording: of its
// requests, its messages and its hooks. $WORK, $HOME and $TMP are the folders of
// the process. At the end it waits until the host closes stdin, and exits as
// the CLI did. A host that says something else, or closes stdin too early, makes
// it exit with [BrokenExit] and say on stderr what it expected.
//
// A control request that the host of the recording did not answer may be
// answered.
func Replay(file string) (path string, env []string) { return ReplayAct(file, 1) }

// ReplayAct is [Replay] of another process than the first of the transcript.
func ReplayAct(file string, act int) (path string, env []string) {
	file, err := filepath.Abs(file)
	if err != nil {
		panic("claudetest: " + err.Error())
	}
	return fake(fmt.Sprintf("replay %d %s", act, file))
}

// replayer plays one act of a transcript.
type replayer struct {
	c         *Conn
	file      string            // its base name, for errors
	wanted    []Line            // what the host is to say, but for control responses
	heard     int               // how many of wanted it has said
	passed    int               // how many of wanted were waited for
	questions map[string]bool   // requests of the CLI; true when the host has answered
	ids       map[string]string // of requests, from the recording to today
	names     []string          // pairs for a Replacer: other ids
	folders   *strings.Replacer
	requests  map[string]bool // requests of the host that were not answered yet
}

func replay(c *Conn, what string) {
	number, file, _ := strings.Cut(what, " ")
	r := &replayer{
		c: c, file: filepath.Base(file), folders: folders(),
		questions: map[string]bool{}, ids: map[string]string{}, requests: map[string]bool{},
	}
	data, err := os.ReadFile(file)
	if err != nil {
		r.c.broken("%v", err)
	}
	t, err := ParseTranscript(file, data)
	if err != nil {
		r.c.broken("%v", err)
	}
	lines := t.actLines(number)
	if lines == nil {
		r.c.broken("%s has no process %s", r.file, number)
	}
	for _, l := range lines {
		if l.From == Host && !isResponse(l) {
			r.wanted = append(r.wanted, l)
		}
	}
	for _, l := range lines {
		switch l.From {
		case Host:
			r.await(l)
		case Claude:
			r.say(l)
		case Program:
			if code, ok := strings.CutPrefix(l.Note, "exit "); ok {
				r.end(code)
			}
		}
	}
}

// actLines returns what was said in that process, counted from 1, with how it
// exited.
func (t *Transcript) actLines(number string) (lines []Line) {
	act := 0
	for _, l := range t.Lines {
		if l.From == Program && strings.HasPrefix(l.Note, "start") {
			act++
		}
		if strconv.Itoa(act) == number {
			lines = append(lines, l)
		}
	}
	return lines
}

func isResponse(l Line) bool { return strings.HasPrefix(Kind(l.JSON), "control_response/") }

// folders replaces what stands for folders in a transcript by those of this
// process, inside of JSON strings.
func folders() *strings.Replacer {
	var pairs []string
	add := func(name, dir string, err error) {
		if err == nil {
			quoted, _ := json.Marshal(dir)
			pairs = append(pairs, name, strings.Trim(string(quoted), `"`))
		}
	}
	work, err := os.Getwd()
	add(workDir, work, err)
	home, err := os.UserHomeDir()
	add("$HOME", home, err)
	add("$TMP", os.TempDir(), nil)
	return strings.NewReplacer(pairs...)
}

var requestID = regexp.MustCompile(`"request_id":"([^"]*)"`)

// say says a line of the CLI, with the ids and folders of today.
func (r *replayer) say(l Line) {
	recorded := parseHostLine(l.JSON)
	switch recorded.Type {
	case "control_request":
		r.questions[recorded.ID] = false
	case "control_response":
		delete(r.requests, recorded.ID)
	}
	text := r.folders.Replace(string(l.JSON))
	text = requestID.ReplaceAllStringFunc(text, func(field string) string {
		if id, ok := r.ids[requestID.FindStringSubmatch(field)[1]]; ok {
			return `"request_id":` + quote(id)
		}
		return field
	})
	r.c.SendRaw(strings.NewReplacer(r.names...).Replace(text))
}

// await waits until the host has said what it said in the recording.
func (r *replayer) await(l Line) {
	if isResponse(l) {
		id := parseHostLine(l.JSON).ID
		for !r.questions[id] {
			r.hear("an answer to the request " + id)
		}
		return
	}
	for r.heard == r.passed {
		r.hear(Kind(l.JSON))
	}
	r.passed++
}

// end waits for the end of stdin and exits. A CLI that left a request of the
// host without an answer did not wait.
func (r *replayer) end(code string) {
	n, err := strconv.Atoi(code)
	if err != nil {
		r.c.broken("%s: exit code %q", r.file, code)
	}
	for len(r.requests) == 0 && r.hear("") {
	}
	r.c.Exit(n)
}

// hear takes a line of the host and checks that it belongs here. What is
// expected may be empty, for the end of stdin, and then hear is false at that.
func (r *replayer) hear(expected string) bool {
	l, err := r.c.Next()
	if err != nil {
		if expected != "" {
			r.c.broken("%s: expected %s, and the host closed stdin", r.file, expected)
		}
		return false
	}
	kind := Kind(l.Raw)
	switch l.Type {
	case "keep_alive":
		return true
	case "control_response":
		if _, ok := r.questions[l.ID]; !ok {
			r.c.broken("%s: got an answer to the request %q, which was not asked: %.300s", r.file, l.ID, l.Raw)
		}
		r.questions[l.ID] = true
		return true
	}
	if r.heard == len(r.wanted) {
		r.c.broken("%s: expected nothing more, got %s: %.300s", r.file, kind, l.Raw)
	}
	want := r.wanted[r.heard]
	if Kind(want.JSON) != kind {
		r.c.broken("%s: expected %s, got %s: %.300s", r.file, Kind(want.JSON), kind, l.Raw)
	}
	r.heard++
	r.learn(want.JSON, l.Raw)
	return true
}

// learn notes which ids of the host stand for which of the recording.
func (r *replayer) learn(recorded, today json.RawMessage) {
	type line struct {
		Type      string `json:"type"`
		RequestID string `json:"request_id"`
		UUID      string `json:"uuid"`
		Request   struct {
			Hooks map[string][]struct {
				IDs []string `json:"hookCallbackIds"`
			} `json:"hooks"`
		} `json:"request"`
	}
	var old, now line
	if json.Unmarshal(recorded, &old) != nil || json.Unmarshal(today, &now) != nil {
		return // a line of another shape has no ids that we know
	}
	if old.Type == "control_request" {
		r.ids[old.RequestID] = now.RequestID
		r.requests[old.RequestID] = true
	}
	if old.UUID != "" && now.UUID != "" {
		r.names = append(r.names, quote(old.UUID), quote(now.UUID))
	}
	for event, matchers := range old.Request.Hooks {
		for i, m := range matchers {
			for j, id := range m.IDs {
				if i < len(now.Request.Hooks[event]) && j < len(now.Request.Hooks[event][i].IDs) {
					r.names = append(r.names, `"callback_id":`+quote(id), `"callback_id":`+quote(now.Request.Hooks[event][i].IDs[j]))
				}
			}
		}
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}
