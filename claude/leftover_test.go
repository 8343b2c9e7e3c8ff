//go:build unix

package claude_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leftProcesses is an error if a CLI that a test of this run started is still
// there. They are known by the folder that claudetest.Main made for this run, or
// by the mark of the SDK and this process among their parents. Where there is
// no /proc none is found.
func leftProcesses() error {
	for deadline := time.Now().Add(5 * time.Second); ; { // one that was killed may still be dying
		left := startedHere()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes that tests started are still there: %v", left)
		}
	}
}

// startedHere are the processes of this run, each with its command.
func startedHere() map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		env, err := os.ReadFile(f)
		if err != nil || pid == os.Getpid() || !alive(pid) || !ours(pid, "\x00"+string(env)) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		found[pid] = fmt.Sprintf("%.200s", strings.ReplaceAll(string(cmd), "\x00", " "))
	}
	return found
}

// ours tells whether this run started the process with that environment, each
// assignment of which has a zero byte before it.
func ours(pid int, env string) bool {
	if run := os.Getenv(runVariable); run != "" && strings.Contains(env+"\x00", "\x00"+runVariable+"="+run+"\x00") {
		return true
	}
	if !strings.Contains(env, "\x00CLAUDE_SDK_GO_PROCESS=") {
		return false
	}
	for pid > 1 && pid != os.Getpid() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // behind the name: state, parent
		pid, _ = strconv.Atoi(strings.Fields(rest)[1])
	}
	return pid == os.Getpid()
}

func TestLeftProcessesAreSeen(t *testing.T) {
	if !alive(os.Getpid()) {
		t.Skip("there is no /proc here: not tested that left processes are seen")
	}
	t.Parallel()
	s := start(t, fake("echo"))
	if startedHere()[s.Info().PID] == "" {
		t.Error("a CLI of this run is not seen")
	}
	marked := exec.CommandContext(t.Context(), "sleep", "300")
	marked.Env = []string{"CLAUDE_SDK_GO_PROCESS=x"} // as one with another environment
	if err := marked.Start(); err != nil {
		t.Fatal(err)
	}
	if startedHere()[marked.Process.Pid] == "" {
		t.Error("a marked child is not seen")
	}
	s.Close()
	marked.Process.Kill()
	marked.Wait()
	if found := startedHere(); found[s.Info().PID] != "" || found[marked.Process.Pid] != "" {
		t.Errorf("what has ended is still seen: %v", found)
	}
}
