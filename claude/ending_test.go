//go:build unix

package claude_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// endings are CLIs that end, or do not, in every bad way.
var endings = map[string]claudetest.Script{
	"echo": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			if l.Type == "user" {
				c.SendRaw(success(l, "echo"))
			}
		}
	},
	"ignores the end of stdin": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		select {}
	},
	"ignores everything": func(c *claudetest.Conn) {
		signals := c.Signals()
		c.AcceptInitialize()
		for range signals {
		}
	},
	"never answers": func(c *claudetest.Conn) {
		fmt.Fprintln(c.Stderr, "waiting for a login, key sk-ant-REDACTED")
		c.SendRaw(`{"type":"system","subtype":"hook_started","hook_name":"SessionStart:slow"}`)
		select {}
	},
	"never answers a request": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			if l.Type == "control_cancel_request" {
				c.SendRaw(`{"type":"system","subtype":"notification","text":"cancelled ` + l.ID + `"}`)
			}
		}
	},
	"dies at once": func(c *claudetest.Conn) {
		fmt.Fprintln(c.Stderr, "cannot start: no shell")
		c.Exit(3)
	},
	"dies in a turn": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for line, err := c.Next(); err == nil && line.Type != "user"; line, err = c.Next() {
		}
		c.SendRaw(`{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"half"}]}}`)
		fmt.Fprintln(c.Stderr, "out of memory")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
	"dies before a turn": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		os.Stdout.Close() // and a moment later
		c.Next()
		fmt.Fprintln(c.Stderr, "out of memory")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
	"closes stdout first": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		os.Stdout.Close()
		select {}
	},
	"floods": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		c.Next()
		line := `{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"` + strings.Repeat("x", 1000) + `"}]}}`
		for {
			c.SendRaw(line)
		}
	},
	"leaves a child": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		cmd := exec.Command("sleep", "300")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as the CLI starts commands
		cmd.Stdout = os.Stdout                               // and worse: it holds the pipe
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		c.SendRaw(fmt.Sprintf(`{"type":"system","subtype":"notification","text":"%d"}`, cmd.Process.Pid))
		c.Next()
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"host": func(c *claudetest.Conn) { // a host that is killed
		s, err := claude.Start(context.Background(), fake("ignores everything"))
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Info().PID)
		select {}
	},
}

// alive tells whether the process runs: one that only waits to be reaped does
// not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// gone fails the test unless the process ends.
func gone(t testing.TB, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func TestCloseIsBounded(t *testing.T) {
	for _, tc := range []struct{ script, item string }{
		{"echo", "items 124, 227: an obedient CLI just ends"},
		{"ignores the end of stdin", "item 123: SIGTERM ends it"},
		{"ignores everything", "item 122: SIGKILL ends it"},
		{"closes stdout first", "one that closes stdout first"},
	} {
		t.Run(tc.item, func(t *testing.T) {
			t.Parallel()
			opts := fake(tc.script)
			opts.Grace = 300 * time.Millisecond
			s := start(t, opts)
			pid := s.Info().PID
			var both sync.WaitGroup // closing twice, at once, is fine
			for range 2 {
				both.Go(func() { s.Close() })
			}
			both.Wait()
			if alive(pid) {
				t.Errorf("process %d is still there", pid)
			}
			if _, err := collect(t, s.Messages()); !errors.Is(err, claude.ErrClosed) && tc.script != "closes stdout first" {
				t.Errorf("the session ended with %v", err)
			}
			if err := s.Send(t.Context(), claude.UserMessage{Text: "x"}); err == nil {
				t.Error("a closed session took a message")
			}
		})
	}
}

func TestContextEndsTheSession(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	opts := fake("ignores everything")
	opts.Grace = 200 * time.Millisecond
	s, err := claude.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	pid := s.Info().PID
	stop(why)
	if _, err := collect(t, s.Messages()); !errors.Is(err, why) {
		t.Errorf("item 131: the session ended with %v", err)
	}
	s.Close()
	if alive(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if _, err := claude.Start(ctx, opts); !errors.Is(err, why) {
		t.Errorf("item 130: with an ended context Start returns %v", err)
	}
}

func TestBreakingOutOfQueryEndsTheProcess(t *testing.T) {
	t.Parallel()
	opts := fake("floods")
	own := "CLAUDETEST_OF=" + t.Name() // others flood too
	opts.Env, opts.Grace = append(opts.Env, own), 300*time.Millisecond
	n := 0
	for _, err := range claude.Query(bounded(t), "go", opts) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1000 {
			break
		}
	}
	if left := processesNamed(t, own); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// processesNamed lists processes with that assignment in their environment.
func processesNamed(t testing.TB, kv string) (pids []int) {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+kv+"\x00") && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A flood that nobody reads waits in the pipe, not in memory, and requests are
// still answered behind it.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	opts := fake("floods")
	opts.Grace = 300 * time.Millisecond
	s := start(t, opts)
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.Messages() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 50_000 {
			break
		}
	}
	s.Close()
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	t.Run("a CLI that never answers", func(t *testing.T) {
		t.Parallel()
		opts := fake("never answers")
		opts.InitTimeout, opts.Grace = 300*time.Millisecond, 100*time.Millisecond
		_, err := claude.Start(bounded(t), opts)
		text := fmt.Sprint(err)
		for _, want := range []string{"not ready within 300ms", "waiting for a login", "SessionStart:slow", "[redacted]"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in %s", want, text)
			}
		}
		if strings.Contains(text, "sk-ant") {
			t.Errorf("a secret stands in %s", text)
		}
		if _, ok := errors.AsType[*claude.ConnectionError](err); !ok {
			t.Errorf("the error is a %T", err)
		}
	})
	t.Run("a CLI that dies", func(t *testing.T) {
		t.Parallel()
		_, err := claude.Start(bounded(t), fake("dies at once"))
		pe, ok := errors.AsType[*claude.ProcessError](err)
		if !ok || pe.ExitCode != 3 || !strings.Contains(pe.Stderr, "no shell") || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "no shell") {
			t.Errorf("items 178, 415: got %v", err)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		t.Parallel()
		_, err := claude.Start(bounded(t), claude.Options{Path: filepath.Join(t.TempDir(), "claude")})
		if e, ok := errors.AsType[*claude.NotFoundError](err); !ok || !e.Given || strings.Contains(err.Error(), claude.PathVariable) {
			t.Errorf("item 1: got %v", err)
		}
	})
	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "claude")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho junk\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := claude.Start(bounded(t), claude.Options{Path: path})
		if _, ok := errors.AsType[*claude.ConnectionError](err); !ok || !strings.Contains(err.Error(), "starting "+path+": it ended with exit code 0 before it was ready") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not a program", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "claude")
		if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := claude.Start(bounded(t), claude.Options{Path: path})
		if _, ok := errors.AsType[*claude.ConnectionError](err); !ok || !strings.Contains(err.Error(), "the file is there") {
			t.Errorf("got %v", err)
		}
	})
}

func TestDeathFailsWhoeverWaits(t *testing.T) {
	t.Parallel()
	s := start(t, fake("dies in a turn"))
	call := make(chan error, 1)
	go func() {
		_, err := s.BinaryVersion(context.Background())
		call <- err
	}()
	messages, err := collect(t, s.Prompt(bounded(t), "go"))
	pe, ok := errors.AsType[*claude.ProcessError](err)
	if !ok || pe.Signal != "killed" || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("the session ended with %v", err)
	}
	if len(messages) == 0 {
		t.Error("what was said before is lost")
	}
	if _, ok := errors.AsType[*claude.ProcessError](<-call); !ok {
		t.Error("item 246: a request in flight did not fail with the process")
	}
}

// Who sends something while the CLI is dying is told why it did, not that the input is
// closed, which nobody wished.
func TestDeathFailsWhoeverSends(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := start(t, fake("dies before a turn"))
		for n := 0; ; n++ {
			err := s.Send(bounded(t), claude.UserMessage{Text: "go"})
			if err == nil && n < 1000 {
				continue // it is not noticed yet
			}
			if pe, ok := errors.AsType[*claude.ProcessError](err); !ok || pe.Signal != "killed" || pe.Stderr == "" {
				t.Fatalf("sending failed with %v", err)
			}
			break
		}
	}
}

func TestRequestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := start(t, fake("never answers a request"))
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := s.BinaryVersion(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "get_binary_version") {
		t.Errorf("got %v", err)
	}
	for msg, err := range s.Messages() {
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := msg.(*claude.Notification); ok {
			if !strings.HasPrefix(n.Text, "cancelled req_") {
				t.Errorf("item 411: the CLI was told %q", n.Text)
			}
			return
		}
	}
}

// The CLI starts commands in sessions of their own, which hold its pipes.
func TestKilledCLILeavesNoChild(t *testing.T) {
	t.Parallel()
	s := start(t, fake("leaves a child"))
	child := 0
	for msg, err := range s.Messages() {
		if err != nil {
			break
		}
		if n, ok := msg.(*claude.Notification); ok {
			child, _ = strconv.Atoi(n.Text)
			if err := s.Send(bounded(t), claude.UserMessage{Text: "die"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if child == 0 {
		t.Fatal("there was no child")
	}
	gone(t, child)
}

// Items 129, 132: no list of processes has to survive for that.
func TestKilledHostLeavesNoCLI(t *testing.T) {
	t.Parallel()
	path, env := claudetest.Fake("host")
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("the host started %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	gone(t, pid)
}
