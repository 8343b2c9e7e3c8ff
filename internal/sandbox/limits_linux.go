package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is how often limits are looked at: what goes over one for less than
// that may stay unseen.
const watchEvery = 50 * time.Millisecond

// set sets what the kernel can enforce for each process. What it counts of all
// together is left to watch.
func (l Limits) set() error {
	if l.CPU > 0 {
		seconds := uint64((l.CPU + time.Second - 1) / time.Second)
		// A second more, so that watch sees it first.
		if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds + 1, Max: seconds + 1}); err != nil {
			return fmt.Errorf("limiting processor time: %w", err)
		}
	}
	return nil
}

// watch sends which limit is exceeded, once.
func (l Limits) watch(exceeded chan<- string) {
	for range time.Tick(watchEvery) {
		if text := l.exceeded(usage()); text != "" {
			exceeded <- text
			return
		}
	}
}

// used is what all processes below this one use together.
type used struct {
	memory    int64
	processes int
	cpu       time.Duration
}

func (l Limits) exceeded(u used) string {
	switch {
	case l.Memory > 0 && u.memory > l.Memory:
		return fmt.Sprintf("the command was killed: it used %d bytes of memory, and %d are the limit", u.memory, l.Memory)
	case l.Processes > 0 && u.processes > l.Processes:
		return fmt.Sprintf("the command was killed: it had %d processes, and %d are the limit", u.processes, l.Processes)
	case l.CPU > 0 && u.cpu > l.CPU:
		return fmt.Sprintf("the command was killed: it used %v of processor time, and %v is the limit", u.cpu, l.CPU)
	}
	return ""
}

// usage adds up what the processes below this one use, and what those used that
// have ended and were waited for.
func usage() (u used) {
	page := int64(os.Getpagesize())
	for _, pid := range below("self") {
		dir := "/proc/" + strconv.Itoa(pid)
		u.processes++
		// Memory that is shared counts for nobody: most of it is files.
		if statm, err := os.ReadFile(dir + "/statm"); err == nil {
			if f := strings.Fields(string(statm)); len(f) > 2 {
				u.memory += (number(f[1]) - number(f[2])) * page
			}
		}
		stat, _ := os.ReadFile(dir + "/stat")
		// The name of the program, in parentheses, can be anything.
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if f := strings.Fields(rest); len(f) > 14 {
			const tick = 10 * time.Millisecond // the same on all machines
			u.cpu += time.Duration(number(f[11])+number(f[12])+number(f[13])+number(f[14])) * tick
		}
	}
	var ended syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ended) == nil {
		u.cpu += time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	}
	return u
}

// number is zero for what is none.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
