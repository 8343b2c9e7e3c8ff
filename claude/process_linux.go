package claude

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the process when this one ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// widen makes room in a pipe for more than the usual 64 KiB, so that a CLI that
// says much waits less often. That it may not is no error.
func widen(pipe *os.File) {
	const size = 1 << 20 // what any user may have
	if conn, err := pipe.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETPIPE_SZ, size) })
	}
}

// killMarked kills every process that has mark in its environment.
// The CLI (2.1.325) starts commands in sessions of their own, and leaves them
// running when it is killed.
func killMarked(mark string) {
	for found := true; found; { // until none is left: they may still start others
		found = false
		all, _ := os.ReadDir("/proc")
		for _, entry := range all {
			pid, err := strconv.Atoi(entry.Name())
			file := "/proc/" + entry.Name() + "/environ"
			if err != nil || !marked(file, mark) {
				continue
			}
			// The process is held by a descriptor before it is looked at again,
			// so that a new one with its number is never killed.
			p, err := os.FindProcess(pid)
			if err != nil {
				continue
			}
			if marked(file, mark) && p.Kill() == nil {
				found = true
			}
			p.Release()
		}
	}
}

// marked tells whether the environment in file holds mark. It is empty for a
// process that has ended and was not waited for.
func marked(file, mark string) bool {
	env, err := os.ReadFile(file)
	return err == nil && bytes.Contains(append(env, 0), append([]byte(mark), 0))
}
