//go:build unix

package daemon_test

import (
	"os"
	"os/exec"
	"syscall"
)

// apart keeps from the command the signals that the terminal sends to the tests.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// pause stops a process where it is; unpause has it go on.
func pause(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func unpause(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
