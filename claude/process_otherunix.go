//go:build unix && !linux

package claude

import "syscall"

// dieWithParent does nothing: only Linux can. The CLI ends when its stdin is
// closed, as it is when this process ends.
func dieWithParent(*syscall.SysProcAttr) {}

// killMarked does nothing: the environment of others cannot be read here.
func killMarked(string) {}
