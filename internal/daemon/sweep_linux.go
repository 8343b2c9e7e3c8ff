package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// sweep kills what runs of an earlier owner of the project left running: each
// process that was told of our socket, and of a run. Whoever holds the lock of
// the project has started none yet. It returns how many there were.
func sweep(socket string) (n int) {
	for again := true; again; { // until none is left: they may still start others
		again = false
		names, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range names {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil || pid == os.Getpid() || !belongs(name, socket) {
				continue
			}
			// It is held before it is looked at again, so that a new process with
			// its number is never killed.
			p, err := os.FindProcess(pid)
			if err != nil {
				continue
			}
			if belongs(name, socket) && p.Kill() == nil {
				n++
				again = true
			}
			p.Release()
		}
	}
	return n
}

// belongs tells whether a process with this environment is one of a run. One that
// cannot be looked at is not.
func belongs(environ, socket string) bool {
	env, err := os.ReadFile(environ)
	if err != nil {
		return false
	}
	ours, run := false, false
	for v := range bytes.SplitSeq(env, []byte{0}) {
		ours = ours || string(v) == "NESTOR_SOCKET="+socket
		run = run || bytes.HasPrefix(v, []byte("NESTOR_RUN_ID="))
	}
	return ours && run
}
