package toolserver

import "syscall"

// dieWithParent makes the kernel kill the process when this one ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
