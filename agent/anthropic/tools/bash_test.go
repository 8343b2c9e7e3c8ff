//go:build unix

package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

func TestBash(t *testing.T) {
	s := newSet(t, Options{Env: []string{"GIVEN=yes"}}, "sub/x", "")
	for _, test := range []struct{ command, want string }{
		{"echo out; echo err >&2", "out\nerr"},
		{"true", "(Bash completed with no output)"},
		{"", "(Bash completed with no output)"},
		{`printf '\n\n  lead\n\n'`, "  lead"},
		{`printf '\xff'`, "\uFFFD"},
		{"cat", "(Bash completed with no output)"}, // there is no input
		{"cat <<'E'\nhere $x 'quoted'\nE", "here $x 'quoted'"},
		{"echo one # comment", "one"},
		{"echo $GIVEN$1", "yes"},
		{"pwd; cd sub && pwd", "W\nW/sub"},
		{"pwd", "W/sub"},
		{"export X=1; cd ..", "(Bash completed with no output)"},
		{"pwd; echo [$X]", "W\n[]"},
		{"cd /", "Shell cwd was reset to W"},
		{"cd sub; exit 0", "(Bash completed with no output)"}, // as the CLI has it, that is not remembered
		{"pwd", "W"},
		{"mkdir gone && cd gone && rmdir ../gone", "(Bash completed with no output)"},
		{"pwd; mkdir gone; cd gone", "W"},
		{"rmdir ../gone", "(Bash completed with no output)"},
		{"pwd", "W"},
	} {
		equal(t, test.command, must(t, s, "Bash", in{"command": test.command, "description": "a test"}), test.want)
	}
	for _, test := range []struct{ command, want string }{
		{"echo out; echo err >&2; exit 3", "Exit code 3\nout\nerr"},
		{"false", "Exit code 1"},
		{"kill -9 $$", "Exit code 137"},
	} {
		equal(t, test.command, refused(t, s, "Bash", in{"command": test.command}), test.want)
	}
	contains(t, "syntax", refused(t, s, "Bash", in{"command": "if"}), "Exit code ")
	contains(t, "zero byte", refused(t, s, "Bash", in{"command": "a\x00b"}), "zero byte")
	contains(t, "long", refused(t, s, "Bash", in{"command": strings.Repeat("x", maxCommandLength+1)}), "Write it to a file")
	if len(s.tasks) != 0 {
		t.Errorf("%d commands are kept", len(s.tasks))
	}
}

func TestBashKeepsKeysAway(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDECODE", "CLAUDE_CODE_OAUTH_TOKEN", "NESTOR_TOKEN", "AI_AGENT"} {
		t.Setenv(name, secret)
	}
	t.Setenv("HARMLESS", "harmless")
	s := newSet(t, Options{Env: []string{"NESTOR_RUN_ID=r1"}})
	env := must(t, s, "Bash", in{"command": "env"})
	if strings.Contains(env, secret) {
		t.Errorf("inherited:\n%s", env)
	}
	contains(t, "inherited", env, "HARMLESS=harmless")
	contains(t, "given", env, "NESTOR_RUN_ID=r1")
}

func TestBashThroughTheCallersCommand(t *testing.T) {
	var names []string
	s := newSet(t, Options{Command: func(name string, arg ...string) *exec.Cmd {
		names = append(names, filepath.Base(name))
		return exec.Command("env", append([]string{"WRAPPED=1", name}, arg...)...)
	}}, "a.txt", "x")
	equal(t, "wrapped", must(t, s, "Bash", in{"command": "echo $WRAPPED"}), "1")
	must(t, s, "Grep", in{"pattern": "x"})
	if names[0] != filepath.Base(s.shell) || len(names) != 1 && names[1] != "rg" {
		t.Errorf("prepared were %v", names)
	}
}

func TestCommandsAreWrapped(t *testing.T) {
	wrap := func(argv []string) []string { return append([]string{"env", "WRAPPED=1"}, argv...) }
	s := newSet(t, Options{Wrap: wrap}, "a.txt", "needle")
	equal(t, "Bash", must(t, s, "Bash", in{"command": "echo $WRAPPED"}), "1")
	contains(t, "Grep, whose files no wrapped command would get", must(t, s, "Grep", in{"pattern": "needle"}), "a.txt")
	if s.ripgrep != "" {
		t.Errorf("ripgrep is used: %s", s.ripgrep)
	}
	var lines [][]string
	servers := newServers(t, map[string]agent.MCPServer{"good": stdio(t, "good")}, ServersOptions{Wrap: func(argv []string) []string {
		lines = append(lines, argv)
		return wrap(argv)
	}})
	if tools := offers(t, servers); len(tools) == 0 || len(lines) != 1 {
		t.Errorf("there are the tools %v of %q", tools, lines)
	}
}

func TestBashOutputIsBounded(t *testing.T) {
	s := newSet(t, Options{MaxResult: 3000})
	got := must(t, s, "Bash", in{"command": "seq 1 20000"})
	if len(got) > 3000 {
		t.Errorf("%d bytes", len(got))
	}
	contains(t, "beginning", got, "\n1\n2\n3\n")
	contains(t, "end", got, "\n19999\n20000")
	path := regexp.MustCompile(`saved to: (\S+)`).FindStringSubmatch(got)
	if path == nil {
		t.Fatal(got)
	}
	contains(t, "the file", must(t, s, "Read", in{"file_path": path[1], "offset": 15000, "limit": 1}), "15000\t15000")
	got = refused(t, s, "Bash", in{"command": "seq 1 20000; exit 4"})
	if len(got) > 3000 || !strings.HasPrefix(got, "Exit code 4\n") {
		t.Errorf("%d bytes: %s", len(got), clip(got, 100))
	}
}

func TestBashFloodFillsNeitherMemoryNorDisk(t *testing.T) {
	s := newSet(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := must(t, s, "Bash", in{"command": "head -c 100000000 /dev/zero | tr '\\0' x"})
	runtime.ReadMemStats(&after)
	contains(t, "note", got, "Output too large (95.4MB). The first 64MB saved to: ")
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 20<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	files, err := filepath.Glob(filepath.Join(s.spool.path, "*.output"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Size() != maxSpool {
		t.Errorf("%d bytes on disk, %v", info.Size(), err)
	}
}

func TestBashTimeout(t *testing.T) {
	s := newSet(t, Options{Env: []string{"MARK=" + t.Name()}})
	got := refused(t, s, "Bash", in{"command": "echo start; sleep 1000 & setsid sleep 1000 & sleep 1000", "timeout": 200})
	contains(t, "text", got, "Command timed out after 200ms\nstart")
	none(t, "MARK="+t.Name())
}

func TestBashEndsWithItsContext(t *testing.T) {
	for name, command := range map[string]string{
		"plain":    "touch ready; sleep 1000",
		"stubborn": "trap '' TERM; touch ready; while :; do sleep 1000; done",
		"children": "sleep 1000 & setsid sleep 1000 & (sleep 1000; sleep 1000) & touch ready; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, Options{Env: []string{"MARK=" + t.Name()}})
			cause := errors.New("enough of this")
			ctx, stop := context.WithCancelCause(t.Context())
			go func() {
				defer stop(cause)
				for {
					if _, err := os.Stat(filepath.Join(s.folders[0].path, "ready")); err == nil || t.Context().Err() != nil {
						return
					}
					runtime.Gosched()
				}
			}()
			_, err := runWith(ctx, t, s, "Bash", in{"command": command})
			if !errors.Is(err, cause) {
				t.Errorf("it ended with %v", err)
			}
			none(t, "MARK="+t.Name())
		})
	}
}

// A server that a command leaves behind lives on, as with the CLI, keeps
// writing, and dies with the set.
func TestBashLeavesWhatItStartedUntilClose(t *testing.T) {
	t.Parallel()
	s := newSet(t, Options{Env: []string{"MARK=" + t.Name()}})
	for _, command := range []string{"sleep 1000 & echo done", "(setsid sleep 1000 &) ; echo done", "nohup sleep 1000 >/dev/null 2>&1 & echo done", "env -i sleep 1001 & echo done"} {
		equal(t, command, must(t, s, "Bash", in{"command": command}), "done")
	}
	if left := survivors(t, "MARK="+t.Name()); len(left) != 3 {
		t.Errorf("alive are %q", left)
	}
	var alone []int
	for _, task := range s.tasks {
		alone = append(alone, task.cmd.Process.Pid)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	none(t, "MARK="+t.Name())
	for _, pid := range alone {
		if err := syscall.Kill(-pid, 0); !errors.Is(err, syscall.ESRCH) {
			waitGone(t, pid)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	contains(t, "after Close", refused(t, s, "Bash", in{"command": "true"}), "closed")
}

// waitGone waits until nothing of the group is left.
func waitGone(t testing.TB, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
		if time.Now().After(deadline) {
			t.Fatalf("group %d is still there", pid)
		}
		runtime.Gosched()
	}
}

func taskID(t testing.TB, text string) string {
	t.Helper()
	m := regexp.MustCompile(`with ID: (\w+)\. Output is being written to: (\S+)\. `).FindStringSubmatch(text)
	if m == nil {
		t.Fatal(text)
	}
	return m[1]
}

func TestBackground(t *testing.T) {
	s := newSet(t, Options{Env: []string{"MARK=" + t.Name()}})
	id := taskID(t, must(t, s, "Bash", in{"command": "echo begin; while [ ! -e stop ]; do sleep 0.02; done; echo end >&2; exit 7", "run_in_background": true}))
	contains(t, "running", must(t, s, "TaskOutput", in{"task_id": id, "block": false}), "<retrieval_status>not_ready</retrieval_status>\n\n<task_id>"+id+"</task_id>\n\n<task_type>local_bash</task_type>\n\n<status>running</status>")
	contains(t, "timeout", must(t, s, "TaskOutput", in{"task_id": id, "timeout": 10}), "<retrieval_status>timeout</retrieval_status>")
	must(t, s, "Bash", in{"command": "touch stop"})
	equal(t, "ended", must(t, s, "TaskOutput", in{"task_id": id}), "<retrieval_status>success</retrieval_status>\n\n<task_id>"+id+"</task_id>\n\n<task_type>local_bash</task_type>\n\n<status>failed</status>\n\n<exit_code>7</exit_code>\n\n<output>\nbegin\nend\n</output>")
	equal(t, "the file", must(t, s, "Read", in{"file_path": filepath.Join(s.spool.path, id+".output")}), "1\tbegin\n2\tend\n3\t")
	contains(t, "stop of what ended", refused(t, s, "TaskStop", in{"task_id": id}), "is not running")

	id = taskID(t, must(t, s, "Bash", in{"command": "sleep 1000 & sleep 1000", "run_in_background": true}))
	contains(t, "stop", must(t, s, "TaskStop", in{"shell_id": id}), "Successfully stopped task: "+id)
	none(t, "MARK="+t.Name())
	contains(t, "stopped", must(t, s, "TaskOutput", in{"task_id": id}), "<status>killed (stopped)</status>")

	id = taskID(t, must(t, s, "Bash", in{"command": "sleep 1000", "run_in_background": true, "timeout": 50}))
	contains(t, "its time", must(t, s, "TaskOutput", in{"task_id": id}), "<status>killed (timed out after 50ms)</status>")

	equal(t, "unknown", refused(t, s, "TaskOutput", in{"task_id": "nosuch"}), "No task found with ID: nosuch")
	equal(t, "unknown", refused(t, s, "TaskStop", in{"task_id": "nosuch"}), "No task found with ID: nosuch")
	equal(t, "missing", refused(t, s, "TaskStop", in{}), "Missing required parameter: task_id")
}

func TestBackgroundIsBounded(t *testing.T) {
	s := newSet(t, Options{Env: []string{"MARK=" + t.Name()}})
	for range maxRunning {
		must(t, s, "Bash", in{"command": "sleep 1000", "run_in_background": true})
	}
	contains(t, "one more", refused(t, s, "Bash", in{"command": "true"}), fmt.Sprint(maxRunning)+" commands are running already")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	none(t, "MARK="+t.Name())
}
