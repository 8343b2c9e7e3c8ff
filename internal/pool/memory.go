package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns the bytes of memory that a process and all that it started
// hold for themselves, as Linux tells in /proc: what is mapped from files, such as
// the program, others of its kind share. It is zero for a process that has ended, and
// on other systems.
func resident(pid int) (bytes int64) {
	if pid == 0 {
		return 0
	}
	statm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(statm)); len(fields) > 2 { // size, resident, shared, …
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		shared, _ := strconv.ParseInt(fields[2], 10, 64)
		bytes = (pages - shared) * int64(os.Getpagesize())
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				bytes += resident(n)
			}
		}
	}
	return bytes
}
