//go:build unix && !linux

package toolserver

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
