package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// sweep kills what runs of an earlier owner of a folder left running: each process
// that has the mark in its environment, NAME=VALUE, and was told of a run. Whoever
// holds the lock of the folder has started none yet. It returns how many there
// were.
func sweep(mark string) (n int) {
	for again := true; again; { // until none is left: they may still start others
		again = false
		names, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range names {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil || pid == os.Getpid() || !belongs(name, mark) {
				continue
			}
			// It is held before it is looked at again, so that a new process with
			// its number is never killed.
			p, err := os.FindProcess(pid)
			if err != nil {
				continue
			}
			if belongs(name, mark) && p.Kill() == nil {
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
func belongs(environ, mark string) bool {
	env, err := os.ReadFile(environ)
	if err != nil {
		return false
	}
	ours, run := false, false
	for v := range bytes.SplitSeq(env, []byte{0}) {
		ours = ours || string(v) == mark
		run = run || bytes.HasPrefix(v, []byte("NESTOR_RUN_ID="))
	}
	return ours && run
}
