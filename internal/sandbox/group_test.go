//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// files makes a folder that looks like a control group.
func files(t *testing.T, dir string, content map[string]string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range content {
		if err := write(dir, name, text); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGroupFolder(t *testing.T) {
	const modern = "25 1 0:23 / /sys rw - sysfs sysfs rw\n35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	for _, tt := range []struct{ groups, mounts, want, err string }{
		{"0::/user.slice/a.scope\n", modern, "/sys/fs/cgroup/user.slice/a.scope", ""},
		{"0::/\n", modern, "/sys/fs/cgroup", ""},
		{"4:memory:/x\n0::/y\n", "30 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 25 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified/y", ""},
		{"0::/docker/1/x\n", "31 25 0:31 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "/sys/fs/cgroup/x", ""},
		{"0::/elsewhere\n", "31 25 0:31 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "", "not mounted"},
		{"0::/../outside\n", modern, "", "outside of those that it sees"},
		{"4:memory:/x\n", modern, "", "in no control group of version 2"},
		{"0::/x\n", "", "", "not mounted"},
	} {
		got, err := groupFolder(tt.groups, tt.mounts)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q in %q: %q, %v", tt.groups, tt.mounts, got, err)
		}
	}
}

func TestGroupIsTaken(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	dir := files(t, t.TempDir(), map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.procs": self + "\n4711\n", "cgroup.subtree_control": ""})
	if err := os.Mkdir(filepath.Join(dir, commandGroup+"1"), 0o755); err != nil { // left by somebody who was killed
		t.Fatal(err)
	}
	base, err := takeGroup(dir, []int{4711})
	if err != nil || base != dir {
		t.Fatalf("%q, %v", base, err)
	}
	if got := content(t, dir, "cgroup.subtree_control"); got != "+memory +pids +cpu" {
		t.Errorf("it gives %q", got)
	}
	if got := content(t, dir, ownGroup+"/cgroup.procs"); got != "4711" { // the last one that was moved
		t.Errorf("%q is moved", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, commandGroup+"*")); left != nil {
		t.Errorf("%v is left", left)
	}
	// From then on this process is in a group below.
	files(t, dir, map[string]string{"cgroup.subtree_control": "cpu memory pids\n"})
	if base, err := takeGroup(filepath.Join(dir, ownGroup), nil); err != nil || base != dir {
		t.Errorf("again: %q, %v", base, err)
	}
}

func TestGroupThatCannotBeTaken(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for name, tt := range map[string]struct {
		files map[string]string
		own   bool
		err   string
	}{
		"controllers":       {map[string]string{"cgroup.controllers": "cpu pids\n", "cgroup.procs": self, "cgroup.subtree_control": ""}, false, `has the controllers ["cpu" "pids"]`},
		"no files":          {nil, false, "has the controllers []"},
		"others in it":      {map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.procs": "1\n" + self, "cgroup.subtree_control": ""}, false, "has other processes in it, such as 1: start this one in a group of its own"},
		"not given":         {map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.procs": self}, false, "was not given to this user"},
		"taken, but for no": {map[string]string{"cgroup.procs": "", "cgroup.subtree_control": "cpu"}, true, `gives those in it ["cpu"]`},
	} {
		dir := files(t, t.TempDir(), tt.files)
		if tt.own {
			dir = filepath.Join(dir, ownGroup)
		}
		if base, err := takeGroup(dir, nil); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v", name, base, err)
		}
	}
}

func TestGroupOfACommand(t *testing.T) {
	base := t.TempDir()
	l := Limits{Memory: 1000, Processes: 3, CPU: time.Second, Processors: 1.5}
	g, err := makeGroup(base, l)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "256", "cpu.max": "150000 100000"} {
		if got := content(t, g.dir, name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"memory.events": "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n", "cgroup.procs": "1\n2\n3\n4\n", "cpu.stat": "usage_usec 999999\nuser_usec 1\n", "pids.events": "max 0\n"}, ""},
		{map[string]string{"cgroup.procs": "1\n2\n3\n4\n5\n"}, "it had 4 processes, and 3 are the limit"},
		{map[string]string{"cgroup.procs": "1\n", "pids.events": "max 2\n"}, "it had 4 processes, and 3 are the limit"},
		{map[string]string{"pids.events": "max 0\n", "cpu.stat": "usage_usec 1500000\n"}, "it used 1.5s of processor time, and 1s is the limit"},
		{map[string]string{"cpu.stat": "usage_usec 0\n", "memory.events": "oom 1\noom_kill 2\n"}, "it used 1001 bytes of memory, and 1000 are the limit"},
		{map[string]string{"memory.peak": "1200\n"}, "it used 1200 bytes of memory, and 1000 are the limit"},
	} {
		files(t, g.dir, tt.files)
		if got := g.exceeded(l); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("after %q: %q, not %q", tt.files, got, tt.want)
		}
	}
	w := g.end(l, "", word{Error: "the keeper was ended: signal: killed", Code: ExitFailure})
	if w.Error != "" || w.Status != int(syscall.SIGKILL) || !strings.Contains(w.Limit, "1200 bytes of memory") {
		t.Errorf("it ends with %+v", w)
	}
	if got := content(t, g.dir, "cgroup.kill"); got != "1" {
		t.Errorf("it is killed by %q", got)
	}
}

// A command that ends as it should does, whatever it has used by then.
func TestGroupOfACommandThatEnds(t *testing.T) {
	g, err := makeGroup(t.TempDir(), Limits{CPU: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	files(t, g.dir, map[string]string{"cpu.stat": "usage_usec 1500000\n"})
	if w := g.end(Limits{CPU: time.Second}, "", word{Status: 0x100}); w != (word{Status: 0x100}) {
		t.Errorf("it ends with %+v", w)
	}
}

func TestProcessorsNeedAGroup(t *testing.T) {
	if _, err := Wrap(Profile{Limits: Limits{Processors: 1}}); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Error(err)
	}
}

// Where this process was given a control group, the kernel keeps the limits.
func TestLimitsByControlGroup(t *testing.T) {
	group, err := OpenGroups()
	if err != nil {
		t.Skip("limits are watched here: ", err)
	}
	for _, tt := range []struct {
		limits Limits
		script string
		want   string
	}{
		{Limits{Memory: 100 << 20}, "x=$(head -c 300000000 /dev/zero | tr '\\0' x); sleep 60", "bytes of memory, and 104857600 are the limit"},
		{Limits{Processes: 5}, "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait", "processes, and 5 are the limit"},
		{Limits{CPU: 200 * time.Millisecond}, "while :; do :; done", "of processor time, and 200ms is the limit"},
		{Limits{Memory: 1 << 30, Processes: 50}, "echo fine", "fine"},
	} {
		cmd := command(t, Profile{Level: Files, Limits: tt.limits, Group: group}, Check().Root, t.TempDir(), "bash", "-c", tt.script)
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("%+v: %v: %s", tt.limits, cmd.ProcessState, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(group, commandGroup+"*")); left != nil {
		t.Errorf("%v is left", left)
	}
	if fmt.Sprint(CheckGroups()) != "<nil>" {
		t.Error(CheckGroups())
	}
}

// Where a group can be made, though the kernel limits nothing in it, a command is
// started in it, what it uses is read there, and it is killed and removed.
func TestProcessorTimeOfAControlGroup(t *testing.T) {
	own, err := findGroup()
	if err != nil {
		t.Skip("limits are watched here: ", err)
	}
	base := filepath.Join(own, "nestor-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Skip("limits are watched here: ", err)
	}
	defer os.Remove(base)
	modes(t, func(t *testing.T, level Level, private bool) {
		run := func(l Limits, script string) string {
			out, _ := command(t, Profile{Level: level, Limits: l, Group: base}, private, t.TempDir(), "bash", "-c", script).CombinedOutput()
			return string(out)
		}
		if out := run(Limits{CPU: 200 * time.Millisecond}, "(setsid bash -c 'while :; do :; done' &); sleep 60"); !strings.Contains(out, "of processor time, and 200ms is the limit") {
			t.Errorf("it said %q", out)
		}
		if out := run(Limits{CPU: time.Hour}, "cat /proc/self/cgroup"); !strings.Contains(out, filepath.Base(base)+"/"+commandGroup) {
			t.Errorf("it is not in a group of its own: %q", out)
		}
		if left, _ := filepath.Glob(filepath.Join(base, commandGroup+"*")); left != nil {
			t.Errorf("%v is left", left)
		}
	})
}

// Without a group that can be used, the command is not run without its limits.
func TestGroupThatIsGone(t *testing.T) {
	cmd := command(t, Profile{Level: Off, Limits: Limits{Memory: 1 << 30}, Group: filepath.Join(t.TempDir(), "gone")}, false, t.TempDir(), "echo", "it runs")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != ExitFailure || !strings.Contains(string(out), "nestor: sandbox: making a control group: ") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}
