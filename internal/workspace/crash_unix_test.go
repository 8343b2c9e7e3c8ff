//go:build unix

package workspace

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/soak"
)

// A process that is killed at any point of Open, Close or Collect loses no work:
// what was written is in the folder, on the run's branch or merged, and the next
// process brings it to its end.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	kills := soak.Of(5, 50)
	r := newRepo(t, tree{"a/b": "1", "c": "2"})
	tree{".env": "secret"}.write(t, r.dir)
	s := New(SpaceOptions{Project: r.dir})
	wrote := map[string]nestor.ID{}
	for range kills {
		said := killed(t, r.dir, time.Duration(rand.IntN(700))*time.Millisecond)
		for line := range strings.Lines(said) {
			run, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if !ok || !strings.HasSuffix(line, "\n") {
				t.Fatalf("it said %q", line)
			}
			wrote[name] = nestor.ID(run)
		}
		for name, run := range wrote {
			if !isKept(r, run, name) {
				t.Fatalf("%s is lost", name)
			}
		}
	}
	if len(wrote) == 0 {
		t.Error("it was always killed before it wrote anything")
	}
	t.Logf("%d files in %d kills", len(wrote), kills)
	if _, err := s.Collect(t.Context(), Policy{}); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		if out := mustClose(t, mustOpen(t, s, Request{Run: info.Run, Kind: Worktree}), Merge); out.End != Merge || out.Why != "" {
			t.Errorf("%+v ends as %+v", info, out)
		}
	}
	for name := range wrote {
		has(t, r.dir, name, name)
	}
	if got := r.git("status", "--porcelain", "--branch"); got != "## main" {
		t.Errorf("git sees the project as %q", got)
	}
	if got := r.git("branch", "--list", "nestor/*") + r.git("for-each-ref", "refs/nestor"); got != "" {
		t.Errorf("%q is left", got)
	}
	if got := r.git("worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("worktrees are left: %s", got)
	}
	r.git("fsck", "--strict", "--no-dangling")
	for _, dir := range []string{"spaces", "worktrees"} {
		entries, err := os.ReadDir(filepath.Join(r.dir, ".nestor", dir))
		for _, e := range entries {
			if e.IsDir() {
				t.Errorf("%s is left in %s, %v", e.Name(), dir, err)
			}
		}
	}
}

// isKept tells whether a file is in one of the three places where work may be.
func isKept(r repo, run nestor.ID, name string) bool {
	if exists(filepath.Join(worktreeOf(r.dir, run), name)) {
		return true
	}
	for _, ref := range []string{"main", branchName(run, "crash")} {
		if _, ok := r.at(ref, name); ok {
			return true
		}
	}
	return false
}

// killed runs the test binary as a daemon for so long, kills it, and returns what
// it said.
func killed(t *testing.T, project string, after time.Duration) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+project)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var said strings.Builder
	_, err = bufio.NewReader(out).WriteTo(&said)
	wait := cmd.Wait()
	if status := cmd.ProcessState; err != nil || status.Exited() {
		t.Fatalf("it ended by itself: %v, %v: %s", err, wait, errs.String())
	}
	return said.String()
}
