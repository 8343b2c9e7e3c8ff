package claude_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/dfaf701a/nestor/claude"
)

// What a thread of this process started, and what dies with that thread, outlives
// a CLI that the same thread started later.
func TestOthersOutliveTheCLI(t *testing.T) {
	var others []*exec.Cmd
	for range 20 {
		other := exec.Command("sleep", "600")
		other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, other)
		for _, err := range claude.Query(bounded(t), "hello", fake("echo")) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, other := range others {
		other.Process.Signal(syscall.SIGTERM)
		other.Wait()
		if how := other.ProcessState.Sys().(syscall.WaitStatus).Signal(); how != syscall.SIGTERM {
			t.Errorf("a process that was started before the CLI ended by signal %q before it was asked to", how)
		}
	}
}
