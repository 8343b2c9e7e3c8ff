package tools

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A command runs on when the thread on which it was asked for ends.
func TestCommandOutlivesItsThread(t *testing.T) {
	s := newSet(t, Options{})
	said, thread := make(chan string), make(chan int)
	var ask func()
	ask = func() { // ends with its thread
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the first never ends, and while we have it nobody else does
			defer runtime.UnlockOSThread()
			var other sync.WaitGroup
			other.Go(ask)
			other.Wait()
			return
		}
		said <- must(t, s, "Bash", in{"command": "while [ ! -e go ]; do sleep 0.01; done", "run_in_background": true})
		thread <- syscall.Gettid()
	}
	go ask()
	id := taskID(t, <-said)
	for file := fmt.Sprint("/proc/self/task/", <-thread); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(file); err != nil {
			break
		}
	}
	put(t, s, "go", "")
	contains(t, "the command", must(t, s, "TaskOutput", in{"task_id": id}), "<exit_code>0</exit_code>")
}
