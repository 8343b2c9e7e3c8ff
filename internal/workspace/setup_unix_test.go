//go:build unix

package workspace

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A new worktree gets the files that git does not have, is made ready by a command,
// and what that command leaves behind ends with it.
func TestSetup(t *testing.T) {
	r := newRepo(t, tree{"tracked": "t"})
	tree{".env": "secret", "ignored/deep/x": "1", "plain.txt": "p", "tracked": "mine"}.write(t, r.dir)
	var wrapped []string
	o := SpaceOptions{
		Project: r.dir, Copy: []string{".env", "ignored/deep", "plain.txt", "tracked", "not-there"}, Ports: 4, PortsFile: filepath.Join(t.TempDir(), "ports"),
		Setup: []string{"sh", "-c", `echo "$NESTOR_PORT_BASE $NESTOR_RUN_ID $NESTOR_BRANCH" > made; cat .env >> made; sleep 1000 & echo $! > pid`},
		Wrap:  func(argv []string) []string { wrapped = argv; return append([]string{"env"}, argv...) },
	}
	t.Setenv("NESTOR_TOKEN", "x")
	sp := mustOpen(t, New(o), Request{Run: newRun(), Kind: Worktree})
	base, _ := strings.CutPrefix(sp.Env[0], "NESTOR_PORT_BASE=")
	has(t, sp.Dir, "made", base+" "+string(sp.rec.Run)+" "+sp.Branch+"\nsecret")
	has(t, sp.Dir, "ignored/deep/x", "1")
	has(t, sp.Dir, "tracked", "t")
	if !slices.Equal(wrapped, o.Setup) {
		t.Errorf("%q was wrapped", wrapped)
	}
	pid, err := os.ReadFile(filepath.Join(sp.Dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	waitGone(t, strings.TrimSpace(string(pid)))
	out := mustClose(t, sp, Keep)
	for _, name := range []string{".env", "plain.txt", "ignored/deep/x"} {
		if text, ok := r.at(out.Branch, name); ok {
			t.Errorf("%s is committed: %q", name, text)
		}
	}
	if _, ok := r.at(out.Branch, "made"); !ok {
		t.Error("what the set-up made is not committed")
	}

	for _, test := range []struct {
		options SpaceOptions
		want    []string
	}{
		{SpaceOptions{Setup: []string{"sh", "-c", "echo no luck >&2; exit 3"}}, []string{"no luck", "exit status 3", "set-up"}},
		{SpaceOptions{Setup: []string{"no-such-command"}}, []string{"no-such-command"}},
		{SpaceOptions{Setup: []string{"sleep", "1000"}, SetupTime: time.Millisecond}, []string{"longer than 1ms"}},
		{SpaceOptions{Copy: []string{"../x"}}, []string{`"../x"`, "inside"}},
		{SpaceOptions{Copy: []string{".git/config"}}, []string{`".git/config"`}},
		{SpaceOptions{Ports: 1000}, []string{"at most 100"}},
	} {
		test.options.Project = r.dir
		run := newRun()
		_, err := New(test.options).Open(t.Context(), Request{Run: run, Kind: Worktree})
		if err == nil {
			t.Errorf("%+v worked", test.options)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		hasNot(t, worktreeOf(r.dir, run))
		if got := r.git("branch", "--list", "nestor/"+string(run)+"*"); got != "" {
			t.Errorf("branch %q is left", got)
		}
	}
}

// waitGone waits until a process is gone, or a zombie that nobody waits for.
func waitGone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if syscall.Kill(n, 0) != nil {
			return
		}
		if text, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && strings.Contains(string(text), ") Z ") {
			return
		}
		runtime.Gosched()
	}
}
