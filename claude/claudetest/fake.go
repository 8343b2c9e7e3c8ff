package claudetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Script is what a fake CLI does. When it returns the process ends with code 0,
// whether or not the host has closed stdin. A script that is to hang ends with
// select {}.
type Script func(c *Conn)

// FakeVersion is the version that a fake CLI says it has.
const FakeVersion = "2.1.325"

// BrokenExit is the code that a fake CLI exits with when the host did not do
// what the script or the transcript expects. What that was is on stderr.
const BrokenExit = 97

// maxFake is how long a fake CLI lives at most: one that ignores everything
// must not outlive a test that was killed.
const maxFake = 5 * time.Minute

const (
	playVariable   = "CLAUDETEST_PLAY"   // "script <name>" or "replay <act> <file>"
	playedVariable = "CLAUDETEST_PLAYED" // folder with a file for each script that was played
)

// Main runs the tests and returns their exit code, in a process that 'go test'
// started. In one that was started as a fake CLI (see [Fake] and [Replay]) it
// plays that and does not return.
//
//	func TestMain(m *testing.M) {
//		os.Exit(claudetest.Main(m, map[string]claudetest.Script{
//			"hangs": func(c *claudetest.Conn) { select {} },
//		}))
//	}
//
// A script that no test plays fails a run of all tests.
func Main(m *testing.M, scripts map[string]Script) int {
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println(FakeVersion, "(Claude Code)")
		os.Exit(0)
	}
	if what, ok := os.LookupEnv(playVariable); ok {
		play(what, scripts)
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "claudetest-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv(playedVariable, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "claudetest:", err)
		return 1
	}
	code := m.Run()
	if code != 0 || !wholeRun() {
		return code
	}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			fmt.Fprintf(os.Stderr, "claudetest: no test plays the script %q\n", name)
			code = 1
		}
	}
	return code
}

// wholeRun tells whether the flags of this process leave no test out.
func wholeRun() bool {
	for _, name := range []string{"run", "skip", "list", "fuzzworker", "short"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != f.DefValue {
			return false
		}
	}
	return true
}

// Fake returns the path of a fake CLI that plays a script of [Main], and the
// environment that it needs besides that of the test.
func Fake(script string) (path string, env []string) {
	return fake("script " + script)
}

func fake(play string) (path string, env []string) {
	dir, ok := os.LookupEnv(playedVariable)
	if !ok {
		panic("claudetest: TestMain does not call claudetest.Main")
	}
	path, err := os.Executable()
	if err != nil {
		panic("claudetest: " + err.Error())
	}
	return path, []string{
		playVariable + "=" + play, playedVariable + "=" + dir,
		// Or else the race detector sleeps for a second before each exit.
		"GORACE=atexit_sleep_ms=0 " + os.Getenv("GORACE"),
	}
}

// play is the life of a fake CLI.
func play(what string, scripts map[string]Script) {
	c := newConn(os.Stdin)
	time.AfterFunc(maxFake, func() { c.broken("still runs after %v", maxFake) })
	kind, name, _ := strings.Cut(what, " ")
	if kind == "replay" {
		replay(c, name)
		return
	}
	script, ok := scripts[name]
	if !ok {
		c.broken("there is no script %q; there are %q", name, slices.Sorted(maps.Keys(scripts)))
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(playedVariable), name), nil, 0o600); err != nil {
		c.broken("%v", err)
	}
	script(c)
}

// Conn is the fake CLI's side of a conversation. Its methods may be called by
// several goroutines at once. A method that cannot do what it is for, other
// than for the end of stdin, ends the process with [BrokenExit].
type Conn struct {
	Stderr io.Writer

	writing sync.Mutex // held for a line

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	lines   []HostLine          // not yet taken by Next
	waiting map[string]bool     // ids that Ask waits for
	answers map[string]HostLine // not yet taken by Ask
	asked   int
	err     error // how stdin ended
}

// HostLine is a line that the host wrote.
type HostLine struct {
	Type    string          // empty if the line is not a JSON object with a type
	Subtype string          // of a control request: what it asks; of a control response: "success" or "error"
	ID      string          // of a control request, its response or its cancellation
	Raw     json.RawMessage // the whole line
}

func newConn(stdin io.Reader) *Conn {
	c := &Conn{Stderr: os.Stderr, waiting: map[string]bool{}, answers: map[string]HostLine{}}
	c.changed = sync.NewCond(&c.mu)
	go func() { // ends with the process
		r := bufio.NewReader(stdin)
		for {
			line, err := r.ReadBytes('\n')
			c.receive(bytes.TrimSpace(line), err)
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *Conn) receive(line []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	c.err = err
	if len(line) == 0 {
		return
	}
	l := parseHostLine(line)
	if l.Type == "control_response" && c.waiting[l.ID] {
		c.answers[l.ID] = l
	} else {
		c.lines = append(c.lines, l)
	}
}

func parseHostLine(line []byte) HostLine {
	var m struct {
		Type      string `json:"type"`
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype string `json:"subtype"`
		} `json:"request"`
		Response struct {
			Subtype   string `json:"subtype"`
			RequestID string `json:"request_id"`
		} `json:"response"`
	}
	if json.Unmarshal(line, &m) != nil {
		return HostLine{Raw: line}
	}
	l := HostLine{Type: m.Type, Subtype: m.Subtype, ID: m.RequestID, Raw: line}
	switch m.Type {
	case "control_request":
		l.Subtype = m.Request.Subtype
	case "control_response":
		l.Subtype, l.ID = m.Response.Subtype, m.Response.RequestID
	}
	return l
}

// Args returns the arguments that the host gave.
func (c *Conn) Args() []string { return os.Args[1:] }

// Next waits for the next line of the host, other than an answer that
// [Conn.Ask] waits for. At the end of stdin the error is [io.EOF].
func (c *Conn) Next() (HostLine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.lines) == 0 {
		if c.err != nil {
			return HostLine{}, c.err
		}
		c.changed.Wait()
	}
	l := c.lines[0]
	c.lines = c.lines[1:]
	return l, nil
}

// Send says v, as JSON.
func (c *Conn) Send(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		c.broken("sending %v: %v", v, err)
	}
	c.SendRaw(string(line))
}

// SendRaw says a line as it is, which need not be JSON.
func (c *Conn) SendRaw(line string) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := io.WriteString(os.Stdout, line+"\n"); err != nil {
		c.broken("sending %.200s: %v", line, err)
	}
}

// Answer answers a control request of the host with success. A nil payload is
// an empty answer.
func (c *Conn) Answer(request HostLine, payload any) {
	response := map[string]any{"subtype": "success", "request_id": request.ID}
	if payload != nil {
		response["response"] = payload
	}
	c.Send(map[string]any{"type": "control_response", "response": response})
}

// Refuse answers a control request of the host with an error. The code may be
// empty.
func (c *Conn) Refuse(request HostLine, code, text string) {
	response := map[string]any{"subtype": "error", "request_id": request.ID, "error": text}
	if code != "" {
		response["error_code"] = code
	}
	c.Send(map[string]any{"type": "control_response", "response": response})
}

// AcceptInitialize waits for the first line of the host, which must ask to
// initialize, answers that with success and returns it.
func (c *Conn) AcceptInitialize() HostLine {
	l, err := c.Next()
	if err != nil {
		c.broken("expected initialize, and the host closed stdin")
	}
	if l.Type != "control_request" || l.Subtype != "initialize" {
		c.broken("expected initialize, got %.300s", l.Raw)
	}
	c.Answer(l, map[string]any{
		"commands": []any{}, "agents": []any{}, "models": []any{}, "account": map[string]any{},
		"output_style": "default", "available_output_styles": []string{"default"},
		"claude_code_version": FakeVersion, "hook_on_failure_supported": true, "pid": os.Getpid(),
	})
	return l
}

// Ask sends the host a control request, an object with its "subtype", and waits
// for the answer. If stdin ends first the error is [io.EOF]; if the host answers
// with an error it is that text.
func (c *Conn) Ask(request any) (json.RawMessage, error) {
	c.mu.Lock()
	c.asked++
	id := fmt.Sprintf("ask-%d", c.asked)
	c.waiting[id] = true
	c.mu.Unlock()
	c.Send(map[string]any{"type": "control_request", "request_id": id, "request": request})

	c.mu.Lock()
	defer c.mu.Unlock()
	defer delete(c.waiting, id)
	for {
		if l, ok := c.answers[id]; ok {
			delete(c.answers, id)
			return parseAnswer(l)
		}
		if c.err != nil {
			return nil, c.err
		}
		c.changed.Wait()
	}
}

func parseAnswer(l HostLine) (json.RawMessage, error) {
	var m struct {
		Response struct {
			Response json.RawMessage `json:"response"`
			Error    string          `json:"error"`
		} `json:"response"`
	}
	if err := json.Unmarshal(l.Raw, &m); err != nil {
		return nil, err
	}
	if l.Subtype != "success" {
		return nil, errors.New(m.Response.Error)
	}
	return m.Response.Response, nil
}

// Signals returns a channel on which SIGINT and SIGTERM arrive. From then on
// they do not end the process.
func (c *Conn) Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals
}

// Exit ends the process.
func (c *Conn) Exit(code int) { os.Exit(code) }

// broken ends the process because the host, or the script, is not as expected.
func (c *Conn) broken(format string, args ...any) {
	fmt.Fprintf(c.Stderr, "fake claude: "+format+"\n", args...)
	os.Exit(BrokenExit)
}
