package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killBelow kills all processes below this one, which has to be their reaper, and
// returns when there are none. What is started meanwhile is handed to this
// process when its parent is killed, and killed in the next round.
func killBelow() {
	for {
		for _, pid := range below("self") {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return
			}
			if pid <= 0 {
				break
			}
		}
		time.Sleep(time.Millisecond) // until they are dead
	}
}

// below returns the processes below one, the closest first.
func below(process string) (list []int) {
	files, _ := filepath.Glob("/proc/" + process + "/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				list = append(list, pid)
			}
		}
	}
	for _, pid := range list[:len(list):len(list)] {
		list = append(list, below(strconv.Itoa(pid))...)
	}
	return list
}
