//go:build unix

package toolserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/internal/toolserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(line string) []string { return []string{"sh", "-c", line} }

func TestRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ANTHROPIC_API_KEY", "hush")
	t.Setenv("NESTOR_TOKEN", "hush")
	wrap := func(argv []string) []string { return append([]string{"env", "WRAPPED=yes"}, argv...) }
	for _, test := range []struct {
		name string
		argv []string
		opts toolserver.Options
		want string
		err  string // in it
	}{
		{name: "output", argv: sh("echo out; echo err >&2; cat"), want: "out\nerr\ninput"},
		{name: "folder and environment", argv: sh("pwd; echo $A; echo $ANTHROPIC_API_KEY$NESTOR_TOKEN"), opts: toolserver.Options{Dir: dir, Env: []string{"A=b"}}, want: dir + "\nb\n\n"},
		{name: "wrapped", argv: sh("echo $WRAPPED"), opts: toolserver.Options{Wrap: wrap}, want: "yes\n"},
		{name: "failure", argv: sh("echo so; exit 3"), want: "so\n", err: "sh: exit status 3"},
		{name: "no such program", argv: []string{"no-such-program"}, err: "no-such-program"},
		{name: "no such program, wrapped", argv: []string{"./none"}, opts: toolserver.Options{Wrap: wrap, Dir: dir}, err: "starting ./none"},
		{name: "nothing", err: "there is no command to run"},
		{name: "a flood", argv: sh("echo begin; yes | head -c 1000000; echo end"), opts: toolserver.Options{Most: 100}, want: "begin\n" + strings.Repeat("y\n", 22) + "\n[… 999910 bytes are left out …]\n" + strings.Repeat("y\n", 23) + "end\n"},
		{name: "no text", argv: sh(`printf 'a\377b'`), want: "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := toolserver.Run(t.Context(), test.argv, []byte("input"), 0, test.opts)
			if got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("it fails with %v, want %s", err, test.err)
			}
		})
	}
}

// What a command starts ends with it, whether it is late, stopped or done.
func TestNothingOutlivesACommand(t *testing.T) {
	for _, test := range []struct {
		name  string
		line  string
		limit time.Duration
		stop  bool
		want  string
	}{
		{name: "late", line: "sleep 1000 & echo $! >new; mv new pid; wait", limit: 300 * time.Millisecond, want: "took longer than 300ms"},
		{name: "stopped", line: "sleep 1000 & echo $! >new; mv new pid; wait", stop: true, want: "changed my mind"},
		{name: "done", line: "sleep 1000 >/dev/null 2>&1 & echo $! >new; mv new pid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			if test.stop {
				go func() {
					for {
						if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
							stop(errors.New("changed my mind"))
							return
						}
					}
				}()
			}
			_, err := toolserver.Run(ctx, sh(test.line), nil, test.limit, toolserver.Options{Dir: dir})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ends with %v, want %s", err, test.want)
			}
			data, err := os.ReadFile(filepath.Join(dir, "pid"))
			if err != nil {
				t.Skip("it was ended before it had begun")
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatal(err)
			}
			gone := func() bool {
				stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
				if err == nil && strings.Contains(string(stat), ") Z ") {
					return true // dead, and waited for by nobody
				}
				return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
			}
			for end := time.Now().Add(10 * time.Second); !gone(); {
				if time.Now().After(end) {
					t.Fatalf("process %d is left", pid)
				}
			}
		})
	}
}

func TestToolsAreCommands(t *testing.T) {
	tool := toolserver.Tool{
		Name: "count", Description: "Count.", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
		Argv: func(input json.RawMessage) ([]string, error) {
			var in struct{ Text string }
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
			return []string{"sh", "-c", `printf '%s|' "$1"; cat; [ "$1" != bad ]`, "sh", in.Text}, nil
		},
	}
	tools, err := toolserver.New([]toolserver.Tool{tool}, toolserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if tools[0].Name != "count" || tools[0].Description != "Count." || string(tools[0].Schema) != string(tool.InputSchema) {
		t.Errorf("it is %+v", tools[0])
	}
	for _, test := range []struct {
		input  string
		failed bool
		want   string
	}{
		{`{"text":"$(ls); x"}`, false, `$(ls); x|{"text":"$(ls); x"}`},
		{`{"text":"bad"}`, true, "sh: exit status 1\nbad|{\"text\":\"bad\"}"},
		{`{"text":3}`, true, "the input does not follow its schema: "},
		{``, true, "the input does not follow its schema: "},
		{`{`, true, "the input is no JSON: "},
	} {
		text, err := tools[0].Call(t.Context(), json.RawMessage(test.input))
		if err != nil {
			text = err.Error()
		}
		if (err != nil) != test.failed || !strings.HasPrefix(text, test.want) {
			t.Errorf("%s: got %q, %v", test.input, text, err)
		}
	}
}

func TestBadToolsAreRefused(t *testing.T) {
	for _, schema := range []string{``, `[]`, `{"type":"array"}`, `{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}`} {
		if _, err := toolserver.New([]toolserver.Tool{{Name: "a", InputSchema: json.RawMessage(schema)}}, toolserver.Options{}); err == nil {
			t.Errorf("%s is taken", schema)
		}
	}
}

// An exit code is what a command says, and no error; that it is late is one.
func TestExecTellsHowACommandEnded(t *testing.T) {
	for _, test := range []struct {
		line string
		want toolserver.Ended
	}{
		{"echo out; echo err >&2", toolserver.Ended{Stdout: "out\n", Stderr: "err\n"}},
		{"cat; exit 2", toolserver.Ended{Code: 2, Stdout: "input"}},
		{"kill -9 $$", toolserver.Ended{Code: -1}},
	} {
		got, err := toolserver.Exec(t.Context(), sh(test.line), []byte("input"), 0, toolserver.Options{})
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v, want %+v", test.line, got, err, test.want)
		}
	}
	got, err := toolserver.Exec(t.Context(), sh("echo so far; sleep 600"), nil, 50*time.Millisecond, toolserver.Options{})
	if err == nil || !strings.Contains(err.Error(), "sh took longer than 50ms") || got.Code != 0 {
		t.Errorf("one that is late: %+v, %v", got, err)
	}
	if _, err := toolserver.Exec(t.Context(), []string{"no-such-program"}, nil, 0, toolserver.Options{}); err == nil {
		t.Error("one that is not there ended well")
	}
}
