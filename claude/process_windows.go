package claude

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// errorFilenameExcedRange is what Windows says to a command line that is too
// long, as if it were about the file.
const errorFilenameExcedRange syscall.Errno = 206

// setAttributes hides the console window.
func setAttributes(cmd *exec.Cmd, name string) error {
	if name != "" {
		return errors.New("another user cannot be chosen on Windows")
	}
	const createNoWindow = 0x08000000
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: createNoWindow}
	return nil
}

// terminate does nothing: there is no SIGTERM. The CLI ends when its stdin is
// closed, or it is killed.
func terminate(*os.Process) error { return nil }

func killGroup(p *os.Process) error {
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// killMarked does nothing: the environment of others cannot be read here.
func killMarked(string) {}

func signalOf(*os.ProcessState) string { return "" }

func tooLong(err error) bool { return errors.Is(err, errorFilenameExcedRange) }

// widen does nothing: only Linux can.
func widen(*os.File) {}
