package tools

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// descriptorPath is where a process finds the files that it was handed open.
const descriptorPath = "/proc/self/fd/"

// dieWithParent makes the kernel kill the process when this one ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// killMarked kills every process that has mark in its environment: what left
// the group of the command that started it.
func killMarked(mark string) {
	for found := true; found; { // until none is left: they may still start others
		found = false
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || pid == os.Getpid() || !marked(file, mark) {
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
