//go:build unix

package workspace

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// setGroup gives a command a process group of its own. It outlives this process:
// a git that is at work on files is better left to finish.
func setGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// interrupt asks a group to end.
func interrupt(p *os.Process) error { return signal(p, syscall.SIGTERM) }

// killGroup kills what a process that was waited for left in its group. Its number
// may belong to somebody else; but not as long as something is in its group, and
// then no process has it.
func killGroup(p *os.Process) {
	if errors.Is(syscall.Kill(p.Pid, 0), syscall.ESRCH) {
		syscall.Kill(-p.Pid, syscall.SIGKILL)
	}
}

func signal(p *os.Process, sig syscall.Signal) error {
	err := syscall.Kill(-p.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// tryLock takes the lock of an open file, which ends when the file is closed.
func tryLock(file *os.File) (taken bool, err error) {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

// syncDir makes the names in a folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// fileNumber tells one file from another that took its place.
func fileNumber(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
