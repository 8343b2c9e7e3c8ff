//go:build unix && !linux

package claude

import (
	"os"
	"syscall"
)

// dieWithParent does nothing: only Linux can. The CLI ends when its stdin is
// closed, as it is when this process ends.
func dieWithParent(*syscall.SysProcAttr) {}

// killMarked does nothing: the environment of others cannot be read here.
func killMarked(string) {}

// widen does nothing: only Linux can.
func widen(*os.File) {}
