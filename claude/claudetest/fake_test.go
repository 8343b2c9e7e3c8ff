package claudetest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// scripts are the fake CLIs that the tests of this package play.
var scripts = map[string]claudetest.Script{
	"greets": greets,
	"converses": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		fmt.Fprintf(c.Stderr, "args %q\n", c.Args())
		for {
			l, err := c.Next()
			if err != nil {
				c.Send(map[string]any{"type": "bye", "err": err.Error()})
				c.Exit(3)
			}
			c.Send(map[string]any{"type": "got", "what": l.Type + "/" + l.Subtype + "/" + l.ID})
			if l.Type == "control_request" {
				if l.Subtype == "nonsense" {
					c.Refuse(l, "unsupported_request", "no")
				} else {
					c.Answer(l, nil)
				}
			}
		}
	},
	"asks": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for _, tool := range []string{"Read", "Write"} {
			answer, err := c.Ask(map[string]any{"subtype": "can_use_tool", "tool_name": tool})
			c.Send(map[string]any{"type": "answered", "answer": answer, "err": fmt.Sprint(err)})
		}
		l, err := c.Next() // said before the answers
		c.Send(map[string]any{"type": "then", "what": l.Type, "err": fmt.Sprint(err)})
		_, err = c.Ask(map[string]any{"subtype": "can_use_tool"})
		c.Send(map[string]any{"type": "answered", "err": fmt.Sprint(err)})
	},
	"stubborn": func(c *claudetest.Conn) {
		signals := c.Signals()
		c.SendRaw("not JSON")
		c.SendRaw((<-signals).String())
		select {}
	},
}

// host is a program that talks to a fake CLI.
type host struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	ended  bool
}

// start starts the fake CLI in an empty folder and home.
func start(t *testing.T, path string, env []string, args ...string) *host {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	h := &host{t: t, cmd: exec.CommandContext(ctx, path, args...)}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Dir = filepath.Join(root, "work")
	if err := os.Mkdir(h.cmd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "home")
	h.cmd.Env = slices.Concat(os.Environ(), []string{"HOME=" + home, "USERPROFILE=" + home}, env)
	h.cmd.Stderr = &h.stderr
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.stdout = bufio.NewReader(stdout)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if !h.ended {
			h.cmd.Wait()
		}
	})
	return h
}

func (h *host) say(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.stdin, line+"\n"); err != nil {
		h.t.Fatalf("saying %s: %v", line, err)
	}
}

func (h *host) hears(want string) {
	h.t.Helper()
	line, err := h.stdout.ReadString('\n')
	if got := strings.TrimSuffix(line, "\n"); err != nil || got != want {
		h.t.Fatalf("the fake said\n  %s (%v), want\n  %s\nstderr: %s", got, err, want, &h.stderr)
	}
}

// end waits for the end of the fake, which must have nothing left to say.
func (h *host) end(code int, stderr string) {
	h.t.Helper()
	rest, err := io.ReadAll(h.stdout)
	if err != nil || len(rest) > 0 {
		h.t.Errorf("at the end the fake said %q, %v", rest, err)
	}
	err = h.cmd.Wait()
	h.ended = true
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && exit.ExitCode() != code || !ok && code != 0 {
		h.t.Errorf("the fake ended with %v, want %d; stderr: %s", err, code, &h.stderr)
	}
	if !strings.Contains(h.stderr.String(), stderr) || stderr == "" && h.stderr.Len() > 0 {
		h.t.Errorf("stderr is %q, want %q", h.stderr.String(), stderr)
	}
}

const (
	initialize = `{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}`
	user       = `{"type":"user","message":{"role":"user","content":"hi"}}`
)

// initializes says initialize and hears the answer of AcceptInitialize.
func (h *host) initializes() {
	h.t.Helper()
	h.say(initialize)
	line, err := h.stdout.ReadBytes('\n')
	var answer struct {
		Response struct {
			ID       string `json:"request_id"`
			Response struct {
				Version string `json:"claude_code_version"`
			} `json:"response"`
		} `json:"response"`
	}
	if err != nil || json.Unmarshal(line, &answer) != nil || answer.Response.ID != "i" || answer.Response.Response.Version != claudetest.FakeVersion {
		h.t.Fatalf("initialize was answered with %s, %v", line, err)
	}
}

// Item 134.
func TestFakeConverses(t *testing.T) {
	path, env := claudetest.Fake("converses")
	h := start(t, path, env, "--verbose", "--x=y z")
	h.initializes()
	h.say(user)
	h.hears(`{"type":"got","what":"user//"}`)
	h.say("garbage")
	h.hears(`{"type":"got","what":"//"}`)
	h.say(`{"type":"control_request","request_id":"7","request":{"subtype":"interrupt"}}`)
	h.hears(`{"type":"got","what":"control_request/interrupt/7"}`)
	h.hears(`{"response":{"request_id":"7","subtype":"success"},"type":"control_response"}`)
	h.say(`{"type":"control_request","request_id":"8","request":{"subtype":"nonsense"}}`)
	h.hears(`{"type":"got","what":"control_request/nonsense/8"}`)
	h.hears(`{"response":{"error":"no","error_code":"unsupported_request","request_id":"8","subtype":"error"},"type":"control_response"}`)
	h.say(`{"type":"control_cancel_request","request_id":"9"}`)
	h.hears(`{"type":"got","what":"control_cancel_request//9"}`)
	h.stdin.Close()
	h.hears(`{"err":"EOF","type":"bye"}`)
	h.end(3, `args ["--verbose" "--x=y z"]`)
}

// Answers reach who asked, and other lines the next call of Next.
func TestFakeAsks(t *testing.T) {
	path, env := claudetest.Fake("asks")
	h := start(t, path, env)
	h.initializes()
	h.hears(`{"request":{"subtype":"can_use_tool","tool_name":"Read"},"request_id":"ask-1","type":"control_request"}`)
	h.say(user)
	h.say(`{"type":"control_response","response":{"subtype":"success","request_id":"ask-1","response":{"behavior":"allow"}}}`)
	h.hears(`{"answer":{"behavior":"allow"},"err":"\u003cnil\u003e","type":"answered"}`)
	h.hears(`{"request":{"subtype":"can_use_tool","tool_name":"Write"},"request_id":"ask-2","type":"control_request"}`)
	h.say(`{"type":"control_response","response":{"subtype":"error","request_id":"ask-2","error":"broken"}}`)
	h.hears(`{"answer":null,"err":"broken","type":"answered"}`)
	h.hears(`{"err":"\u003cnil\u003e","type":"then","what":"user"}`)
	h.hears(`{"request":{"subtype":"can_use_tool"},"request_id":"ask-3","type":"control_request"}`)
	h.stdin.Close()
	h.hears(`{"err":"EOF","type":"answered"}`)
	h.end(0, "")
}

func TestFakeIgnoresSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send SIGTERM")
	}
	path, env := claudetest.Fake("stubborn")
	h := start(t, path, env)
	h.hears("not JSON")
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.hears("terminated")
	h.stdin.Close()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.end(-1, "")
}

func TestFakeThatIsNotAsExpected(t *testing.T) {
	for _, tc := range []struct{ name, script, say, want string }{
		{"no such script", "sings", "", `fake claude: there is no script "sings"; there are ["asks" "converses" "greets" "stubborn"]`},
		{"prompt before initialize", "converses", user, `fake claude: expected initialize, got {"type":"user"`},
		{"nothing", "converses", "", "fake claude: expected initialize, and the host closed stdin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path, env := claudetest.Fake(tc.script)
			h := start(t, path, env)
			if tc.say != "" {
				h.say(tc.say)
			}
			h.stdin.Close()
			h.end(claudetest.BrokenExit, tc.want)
		})
	}
}

// The package itself asks a CLI for its version with next to no environment.
func TestFakeVersion(t *testing.T) {
	path, _ := claudetest.Fake("converses")
	if v, err := claude.Version(t.Context(), path); err != nil || v != claudetest.FakeVersion || !claude.Supported(v) {
		t.Errorf("version %q, %v", v, err)
	}
}

func TestScriptsThatNoTestPlaysFailTheRun(t *testing.T) {
	path, _ := claudetest.Fake("converses")
	for _, tc := range []struct {
		flags []string
		code  int
	}{
		{[]string{"-test.count=0"}, 1},
		{[]string{"-test.count=0", "-test.run=Fake"}, 0},
		{[]string{"-test.count=0", "-test.skip=Fake"}, 0},
	} {
		cmd := exec.CommandContext(t.Context(), path, tc.flags...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || code == 1 != strings.Contains(string(out), `no test plays the script "stubborn"`) {
			t.Errorf("with %q it exits with %d and says %s", tc.flags, code, out)
		}
	}
}

func TestFakeNeedsMain(t *testing.T) {
	t.Setenv("CLAUDETEST_PLAYED", "") // and back at the end
	os.Unsetenv("CLAUDETEST_PLAYED")
	defer func() {
		if got := recover(); got != "claudetest: TestMain does not call claudetest.Main" {
			t.Errorf("it panics with %v", got)
		}
	}()
	claudetest.Fake("converses")
}
