//go:build unix

package toolserver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives the command a process group of its own.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// killGroup kills a process that was not waited for, and its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// endGroup kills what a process that was waited for left in its group. As long as
// there is something, nobody else has its number.
func endGroup(p *os.Process) {
	if errors.Is(syscall.Kill(p.Pid, 0), syscall.ESRCH) {
		syscall.Kill(-p.Pid, syscall.SIGKILL)
	}
}
