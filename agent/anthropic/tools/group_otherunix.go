//go:build unix && !linux

package tools

import "syscall"

// descriptorPath is empty: ripgrep cannot be handed open files here.
const descriptorPath = ""

// dieWithParent does nothing: only Linux can.
func dieWithParent(*syscall.SysProcAttr) {}

// killMarked does nothing: the environment of others cannot be read here.
func killMarked(string) {}
