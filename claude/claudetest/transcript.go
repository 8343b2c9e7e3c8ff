package claudetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"
)

// Transcript is a conversation of a host program with the CLI: how it is had,
// and, once recorded, every line of it. On disk it is a txtar archive:
//
//	What the conversation shows.
//	Recorded with Claude Code 2.1.325.
//	-- args --
//	--permission-prompt-tool=stdio
//	-- model --
//	rules: [{turns: [{text: hello}]}]
//	-- files/a.txt --
//	a file in the working directory
//	-- host --
//	> {"type":"user","message":{"role":"user","content":"hi"}}
//	< result
//	-- transcript --
//	> {"type":"user",…}
//	< {"type":"system","subtype":"init",…}
//
// A second process that goes on with the conversation has its part in the
// sections args.2 and host.2.
type Transcript struct {
	About   string       // what the conversation shows
	Version string       // of the CLI that it was recorded with; empty when it was not
	Model   string       // a script for package scriptmodel
	Env     []string     // additions to the CLI's environment
	Files   []txtar.File // in the working directory when it starts
	Acts    []Act        // one for each process
	Lines   []Line       // what was said, in order
}

// Act is one process of a transcript: its arguments and what the host does.
type Act struct {
	Args  []string // besides those that every host gives
	Steps []Step
}

// Step is one thing that a host does.
type Step struct {
	Verb    string          // ">" sends, "<" waits, "on" and "mcp" answer from now on
	Kind    string          // what to wait for or answer: see [Kind]
	Method  string          // of mcp: the JSON-RPC method
	Payload json.RawMessage // what to send or answer; $WORK and $TASK are filled in when it is sent
}

// Line is one line of a transcript.
type Line struct {
	From Sender
	JSON json.RawMessage // nil for the lines of the program itself
	Note string          // what the program did: "start", "exit 0"
}

// Sender tells who said a line.
type Sender byte

// The senders, as their lines begin.
const (
	Host    Sender = '>'
	Claude  Sender = '<'
	Program Sender = '#' // the start and the end of a process
)

const recordedWith = "Recorded with Claude Code "

// ParseTranscript reads a transcript. The name stands for it in errors.
func ParseTranscript(name string, data []byte) (*Transcript, error) {
	a := txtar.Parse(data)
	t := &Transcript{}
	var about []string
	for line := range strings.Lines(string(a.Comment)) {
		line = strings.TrimRight(line, "\n")
		if v, ok := strings.CutPrefix(line, recordedWith); ok {
			t.Version = strings.TrimSuffix(v, ".")
		} else {
			about = append(about, line)
		}
	}
	t.About = strings.TrimSpace(strings.Join(about, "\n"))
	if err := noSections(strings.Split(t.About, "\n")); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, f := range a.Files {
		if err := t.section(f); err != nil {
			return nil, fmt.Errorf("%s: section %s: %w", name, f.Name, err)
		}
	}
	return t, nil
}

func (t *Transcript) section(f txtar.File) error {
	base, number, _ := strings.Cut(f.Name, ".")
	switch {
	case strings.HasPrefix(f.Name, "files/"):
		t.Files = append(t.Files, txtar.File{Name: strings.TrimPrefix(f.Name, "files/"), Data: f.Data})
	case f.Name == "model":
		t.Model = string(f.Data)
	case f.Name == "env":
		t.Env = nonEmptyLines(f.Data)
		return noSections(t.Env)
	case f.Name == "transcript":
		return t.lines(f.Data)
	case base == "args":
		act, err := t.act(number)
		if err != nil {
			return err
		}
		act.Args = nonEmptyLines(f.Data)
		return noSections(act.Args)
	case base == "host":
		act, err := t.act(number)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			step, err := parseStep(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", i+1, err)
			}
			act.Steps = append(act.Steps, step)
		}
	default:
		return fmt.Errorf("there is no such section; known: args, env, model, files/…, host, transcript")
	}
	return nil
}

// act returns the act with that number, made if need be: "" is the first, then
// comes "2".
func (t *Transcript) act(number string) (*Act, error) {
	n := 1
	if number != "" {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 2 || n > 9 {
			return nil, fmt.Errorf("%q is not the number of a process, 2 to 9", number)
		}
	}
	for len(t.Acts) < n {
		t.Acts = append(t.Acts, Act{})
	}
	return &t.Acts[n-1], nil
}

func parseStep(line string) (Step, error) {
	verb, rest, _ := strings.Cut(line, " ")
	s := Step{Verb: verb}
	switch verb {
	case ">":
		s.Payload = json.RawMessage(rest)
	case "<":
		s.Kind = rest
		return s, nil
	case "on":
		kind, payload, _ := strings.Cut(rest, " ")
		s.Kind, s.Payload = kind, json.RawMessage(payload)
	case "mcp":
		server, rest, _ := strings.Cut(rest, " ")
		method, payload, _ := strings.Cut(rest, " ")
		s.Kind, s.Method, s.Payload = server, method, json.RawMessage(payload)
	default:
		return s, fmt.Errorf("%q is no step: it starts with >, <, on or mcp", line)
	}
	if verb != ">" && s.Kind == "" || verb == "mcp" && s.Method == "" {
		return s, fmt.Errorf("%q does not say what it answers", line)
	}
	if !json.Valid(s.Payload) {
		return s, fmt.Errorf("%q holds no valid JSON", line)
	}
	return s, nil
}

func (t *Transcript) lines(data []byte) error {
	for i, text := range nonEmptyLines(data) {
		from, rest, ok := strings.Cut(text, " ")
		if !ok || len(from) != 1 || !slices.Contains([]Sender{Host, Claude, Program}, Sender(from[0])) {
			return fmt.Errorf("line %d begins with none of '> ', '< ', '# '", i+1)
		}
		l := Line{From: Sender(from[0])}
		if l.From == Program {
			l.Note = rest
		} else if l.JSON = json.RawMessage(rest); !json.Valid(l.JSON) {
			return fmt.Errorf("line %d holds no valid JSON", i+1)
		}
		t.Lines = append(t.Lines, l)
	}
	return nil
}

// noSections refuses lines that would begin a section when they are written
// without the white space around them.
func noSections(lines []string) error {
	for _, line := range lines {
		if strings.HasPrefix(line, "-- ") && strings.HasSuffix(strings.TrimSpace(line), " --") {
			return fmt.Errorf("the line %q looks like the beginning of a section", line)
		}
	}
	return nil
}

func nonEmptyLines(data []byte) (lines []string) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Format writes the transcript as ParseTranscript reads it.
func (t *Transcript) Format() []byte {
	a := &txtar.Archive{Comment: []byte(t.About + "\n")}
	if t.Version != "" {
		a.Comment = append(a.Comment, recordedWith+t.Version+".\n"...)
	}
	add := func(name, text string) {
		if text != "" {
			a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(strings.TrimRight(text, "\n") + "\n")})
		}
	}
	add("env", strings.Join(t.Env, "\n"))
	add("model", t.Model)
	for _, f := range t.Files {
		a.Files = append(a.Files, txtar.File{Name: "files/" + f.Name, Data: f.Data})
	}
	for i, act := range t.Acts {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprintf(".%d", i+1)
		}
		add("args"+suffix, strings.Join(act.Args, "\n"))
		var steps strings.Builder
		for _, s := range act.Steps {
			fmt.Fprintln(&steps, s)
		}
		add("host"+suffix, steps.String())
	}
	var lines bytes.Buffer
	for _, l := range t.Lines {
		fmt.Fprintln(&lines, l)
	}
	add("transcript", lines.String())
	return txtar.Format(a)
}

func (s Step) String() string {
	return strings.Join(slices.DeleteFunc([]string{s.Verb, s.Kind, s.Method, string(s.Payload)},
		func(part string) bool { return part == "" }), " ")
}

func (l Line) String() string {
	if l.From == Program {
		return string(l.From) + " " + l.Note
	}
	return string(l.From) + " " + string(l.JSON)
}

// Kind names the kind of a line of the protocol: its type, and after a slash
// what tells it from others of that type: the subtype ("system/init"), the
// event's type ("stream_event/message_start"), what a control request asks
// ("control_request/can_use_tool"), which request a control response answers.
func Kind(line json.RawMessage) string {
	var m struct {
		Type     string `json:"type"`
		Subtype  string `json:"subtype"`
		Event    struct{ Type string }
		Request  struct{ Subtype string }
		Response struct {
			RequestID string `json:"request_id"`
		}
	}
	if json.Unmarshal(line, &m) != nil {
		return ""
	}
	more := m.Subtype
	switch m.Type {
	case "stream_event":
		more = m.Event.Type
	case "control_request":
		more = m.Request.Subtype
	case "control_response":
		more = m.Response.RequestID
	}
	if more == "" {
		return m.Type
	}
	return m.Type + "/" + more
}
