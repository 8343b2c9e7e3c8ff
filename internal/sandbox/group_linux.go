package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where the control group of this process was given to it, limits are kept by the
// kernel for a whole command: it gets a group of its own there, beside one for this
// process. A group is a folder, which the kernel fills with files.

const (
	ownGroup     = "nestor"   // of this process, and what it starts without limits
	commandGroup = "command-" // begins the names of those of commands
)

// controllers are what is needed of a group.
var controllers = []string{"memory", "pids", "cpu"}

// OpenGroups prepares the control group of this process for those of commands, for
// [Profile.Group]: it moves this process, and what it has started, into a group of
// its own there. It fails, with the reason, where that cannot be done, which is no
// reason not to run commands: their limits are watched then. It may be called any
// number of times.
func OpenGroups() (dir string, err error) {
	own, err := findGroup()
	if err != nil {
		return "", err
	}
	return takeGroup(own, below("self"))
}

// CheckGroups tells why [OpenGroups] would fail; nil means that it would not.
func CheckGroups() error {
	own, err := findGroup()
	if err != nil {
		return err
	}
	_, err = checkGroup(own, below("self"))
	return err
}

// findGroup returns the folder of the group that this process is in.
func findGroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return groupFolder(string(groups), string(mounts))
}

// groupFolder returns the folder of a process's group, of what /proc says of its
// groups and mounts.
func groupFolder(groups, mounts string) (string, error) {
	path := ""
	for line := range strings.Lines(groups) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSuffix(rest, "\n")
		}
	}
	if path == "" {
		return "", errors.New("this process is in no control group of version 2")
	}
	if path != filepath.Clean(path) || strings.HasPrefix(path, "/..") {
		return "", fmt.Errorf("the control group of this process, %s, is outside of those that it sees", path)
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		if rest, err := filepath.Rel(f[3], path); err == nil && filepath.IsLocal(rest) {
			return filepath.Join(f[4], rest), nil
		}
	}
	return "", errors.New("control groups of version 2 are not mounted")
}

// checkGroup returns the group in which those of commands are, or can be made, if
// this process is in the group dir; below are the processes that it has started.
func checkGroup(dir string, below []int) (base string, err error) {
	if filepath.Base(dir) == ownGroup { // it was taken already
		base = filepath.Dir(dir)
		if has := words(base, "cgroup.subtree_control"); !containsAll(has, controllers) {
			return "", fmt.Errorf("control group %s gives those in it %q, and not all of %q", base, has, controllers)
		}
		return base, writable(base)
	}
	if has := words(dir, "cgroup.controllers"); !containsAll(has, controllers) {
		return "", fmt.Errorf("control group %s has the controllers %q, and not all of %q", dir, has, controllers)
	}
	if err := writable(dir); err != nil {
		return "", err
	}
	for _, pid := range words(dir, "cgroup.procs") {
		n, _ := strconv.Atoi(pid)
		if n != os.Getpid() && !slices.Contains(below, n) {
			return "", fmt.Errorf("control group %s has other processes in it, such as %s: start this one in a group of its own, as with systemd-run --scope -p Delegate=yes", dir, pid)
		}
	}
	return dir, nil
}

// takeGroup makes the group of checkGroup one in which those of commands can be
// made.
func takeGroup(dir string, below []int) (base string, err error) {
	if base, err = checkGroup(dir, below); err != nil || base != dir {
		return base, err
	}
	own := filepath.Join(dir, ownGroup)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making a control group: %w", err)
	}
	const tries = 10 // processes are started meanwhile
	for range tries {
		for _, pid := range words(dir, "cgroup.procs") {
			if err := write(own, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return "", fmt.Errorf("moving process %s into control group %s: %w", pid, own, err)
			}
		}
		err = write(dir, "cgroup.subtree_control", "+"+strings.Join(controllers, " +"))
		if !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("giving controllers to what is in control group %s: %w", dir, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, commandGroup+"*"))
	for _, group := range left {
		os.Remove(group) // which fails if somebody is in it
	}
	return dir, nil
}

func writable(dir string) error {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := unix.Access(filepath.Join(dir, name), unix.W_OK); err != nil {
			return fmt.Errorf("control group %s was not given to this user: writing %s: %w", dir, filepath.Join(dir, name), err)
		}
	}
	return nil
}

func containsAll(list, all []string) bool {
	return !slices.ContainsFunc(all, func(s string) bool { return !slices.Contains(list, s) })
}

// words returns what is in a file of a group; nothing if it cannot be read.
func words(dir, name string) []string {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.Fields(string(text))
}

// value returns the number behind a word in a file of a group, or in one that has a
// number alone, if the word is empty; zero if it is not there.
func value(dir, name, word string) int64 {
	list := words(dir, name)
	i := slices.Index(list, word)
	if word == "" {
		i = -1
	}
	if i+1 >= len(list) || word != "" && i < 0 {
		return 0
	}
	return number(list[i+1])
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// threadsEach is how many threads a process may have on average, when the number of
// processes is limited: the kernel counts threads, and bounds a burst by them.
const threadsEach = 64

// group is the control group of one command.
type group struct {
	dir string
	fd  int // of its folder
}

// makeGroup makes a group with these limits in base.
func makeGroup(base string, l Limits) (*group, error) {
	g := &group{dir: filepath.Join(base, commandGroup+strconv.Itoa(os.Getpid()))}
	os.Remove(g.dir) // of one that had our number before
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a control group: %w", err)
	}
	settings := map[string]string{}
	if l.Memory > 0 {
		settings["memory.max"], settings["memory.oom.group"] = strconv.FormatInt(l.Memory, 10), "1"
	}
	if l.Processes > 0 {
		settings["pids.max"] = strconv.Itoa((l.Processes + 1) * threadsEach)
	}
	if l.Processors > 0 {
		const period = 100_000 // µs, of which each processor can be used for all
		settings["cpu.max"] = fmt.Sprintf("%d %d", max(1000, int64(l.Processors*period)), period)
	}
	for name, text := range settings {
		if err := write(g.dir, name, text); err != nil {
			os.Remove(g.dir)
			return nil, fmt.Errorf("limiting a control group: %w", err)
		}
	}
	if l.Memory > 0 {
		write(g.dir, "memory.swap.max", "0") // which is not there if there is no swap
	}
	var err error
	if g.fd, err = unix.Open(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		os.Remove(g.dir)
		return nil, fmt.Errorf("opening a control group: %w", err)
	}
	return g, nil
}

// usage returns what is used by what is in the group, in which the keeper is too.
func (g *group) usage() used {
	return used{
		processes: max(0, len(words(g.dir, "cgroup.procs"))-1),
		cpu:       time.Duration(value(g.dir, "cpu.stat", "usage_usec")) * time.Microsecond,
	}
}

// killedFor returns how much memory was used by what the kernel killed for it; zero
// if it has not. Only the kernel can tell: what is in use may be given back.
func (g *group) killedFor(l Limits) int64 {
	if value(g.dir, "memory.events", "oom_kill") == 0 {
		return 0
	}
	return max(value(g.dir, "memory.peak", ""), l.Memory+1)
}

// exceeded says which limit was, as [Limits.exceeded] does; empty if none was.
func (g *group) exceeded(l Limits) string {
	u := g.usage()
	u.memory = g.killedFor(l)
	if value(g.dir, "pids.events", "max") > 0 {
		u.processes = max(u.processes, l.Processes+1)
	}
	return l.exceeded(u)
}

// watch sends which limit is exceeded, once, or ends when done is closed.
func (g *group) watch(l Limits, exceeded chan<- string, done <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if text := g.exceeded(l); text != "" {
				exceeded <- text
				return
			}
		case <-done:
			return
		}
	}
}

// end ends all that is in the group, and removes it. It returns the word of how the
// command ended: by a limit, if one was exceeded, which is empty or one that is known
// already.
func (g *group) end(l Limits, limit string, w word) word {
	if limit == "" {
		limit = l.exceeded(used{memory: g.killedFor(l)})
	}
	g.kill()
	g.remove()
	if limit == "" {
		return w
	}
	return word{Status: int(syscall.SIGKILL), Limit: limit}
}

// kill kills all that is in the group.
func (g *group) kill() {
	if write(g.dir, "cgroup.kill", "1") == nil {
		return
	}
	for _, pid := range words(g.dir, "cgroup.procs") { // before Linux 5.14
		if n, err := strconv.Atoi(pid); err == nil && n > 0 {
			syscall.Kill(n, syscall.SIGKILL)
		}
	}
}

// remove removes the group, in which everything was killed.
func (g *group) remove() {
	unix.Close(g.fd)
	const tries = 100
	for range tries {
		if err := os.Remove(g.dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		time.Sleep(time.Millisecond) // until they are dead
	}
}
