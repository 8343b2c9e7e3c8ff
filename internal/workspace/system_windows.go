package workspace

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/windows"
)

func setGroup(*exec.Cmd) {}

// interrupt ends the process: there is no way to ask.
func interrupt(p *os.Process) error { return p.Kill() }

func killGroup(*os.Process) {}

// tryLock takes the lock of an open file, which ends when the file is closed. It
// is on a byte behind the text, so that others can read that.
func tryLock(file *os.File) (taken bool, err error) {
	at := &windows.Overlapped{Offset: 1 << 20}
	err = windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// syncDir does nothing: folders cannot be synced here.
func syncDir(string) error { return nil }

// fileNumber is the same for all: here it would take to open the file.
func fileNumber(os.FileInfo) uint64 { return 0 }
