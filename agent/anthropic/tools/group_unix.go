//go:build unix

package tools

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// setAttributes gives the command a process group of its own.
func setAttributes(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !cmd.SysProcAttr.Setsid {
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, 0
	}
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup reaches the whole group of a process. When the process itself has
// been waited for, its number may belong to somebody else; but not as long as
// something is left in its group, and then no process has it.
func signalGroup(p *os.Process, waited, kill bool) {
	if waited && !groupAlive(p) {
		return
	}
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	syscall.Kill(-p.Pid, sig)
}

// groupAlive tells whether a process that was waited for left something in its
// group.
func groupAlive(p *os.Process) bool {
	alone := errors.Is(syscall.Kill(p.Pid, 0), syscall.ESRCH)
	return alone && !errors.Is(syscall.Kill(-p.Pid, 0), syscall.ESRCH)
}

// killGroup kills a process that was not waited for, and its group.
func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }

// exitCode is 128 and the signal's number for what a signal ended.
func exitCode(state *os.ProcessState) int {
	if state == nil {
		return -1
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
