package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

// repo is a git repository of a test, with a home and configuration of its own.
type repo struct {
	testing.TB
	dir string
}

// newRepo makes a repository with one commit of what tr holds, on branch main.
func newRepo(t testing.TB, tr tree) repo {
	t.Helper()
	r := emptyRepo(t)
	tr.write(t, r.dir)
	tree{"README": "hello\n", ".gitignore": "ignored/\n.env\n.nestor/\n"}.write(t, r.dir)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "first")
	return r
}

func emptyRepo(t testing.TB) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("git is not installed: %v", err)
	}
	r := repo{t, realDir(t)}
	r.git("init", "-q", "-b", "main")
	return r
}

// realDir is a folder by the name that no link is in.
func realDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// git runs git as a user would.
func (r repo) git(args ...string) string {
	r.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

func (r repo) try(args ...string) (string, error) { return gitIn(r.dir, args...) }

func gitIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_ALLOW_PROTOCOL=file",
		"GIT_AUTHOR_NAME=user", "GIT_AUTHOR_EMAIL=user@localhost", "GIT_COMMITTER_NAME=user", "GIT_COMMITTER_EMAIL=user@localhost",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// at returns what a file holds in a commit; false if it holds none.
func (r repo) at(commit, name string) (string, bool) {
	out, err := r.try("show", commit+":"+name)
	return out, err == nil
}

func newRun() nestor.ID { return nestor.NewID(time.Now()) }

func mustOpen(t testing.TB, s *Spaces, q Request) *Space {
	t.Helper()
	sp, err := s.Open(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if sp.lock != nil {
			sp.lock.Close()
		}
	})
	return sp
}

func mustClose(t testing.TB, sp *Space, end End) Outcome {
	t.Helper()
	out, err := sp.Close(t.Context(), end)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func has(t testing.TB, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != want {
		t.Errorf("%s of %s is %q, %v, want %q", name, dir, got, err, want)
	}
}

func hasNot(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

// A worktree is a checkout of the base on the run's branch; the project's own is
// not touched, and what the run did is on its branch in the end.
func TestWorktree(t *testing.T) {
	r := newRepo(t, tree{"a/b.txt": "one\n", "run.sh": "#!/bin/sh\n", "link": "-> a/b.txt"})
	s := New(SpaceOptions{Project: r.dir})
	run := newRun()
	sp := mustOpen(t, s, Request{Run: run, Kind: Worktree, Slug: "Fix the TEST: ../../etc; rm -rf"})
	if want := filepath.Join(r.dir, ".nestor", "worktrees", string(run)); sp.Dir != want || sp.Kind != Worktree {
		t.Errorf("it works in %s, %s", sp.Dir, sp.Kind)
	}
	if want := "nestor/" + string(run) + "-fix-the-test-etc-rm-rf"; sp.Branch != want {
		t.Errorf("its branch is %q", sp.Branch)
	}
	has(t, sp.Dir, "a/b.txt", "one\n")
	if out, _ := gitIn(sp.Dir, "status", "--porcelain", "--branch"); out != "## "+sp.Branch+"\n" {
		t.Errorf("git sees a new worktree as %q", out)
	}
	tree{"a/b.txt": "two\n", "new file": "n", "ignored/x": "i"}.write(t, sp.Dir)
	if err := os.Remove(filepath.Join(sp.Dir, "run.sh")); err != nil {
		t.Fatal(err)
	}
	d, err := sp.Diff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{{Path: "a/b.txt", Action: Modified, Size: 4}, {Path: "new file", Action: Written, Size: 1}, {Path: "run.sh", Action: Removed}}
	if !slices.Equal(d.Files, want) || d.Cut || !strings.Contains(d.Patch, "-one\n+two\n") {
		t.Errorf("it differs by %+v", d)
	}
	out := mustClose(t, sp, Keep)
	if out.End != Keep || out.Branch != sp.Branch || out.Commit != r.git("rev-parse", sp.Branch) {
		t.Errorf("the outcome is %+v", out)
	}
	if got := r.git("log", "-1", "--format=%an %s", sp.Branch); got != "nestor work of run "+string(run) {
		t.Errorf("its last commit is by %q", got)
	}
	if got := r.git("diff", "--name-status", "main", sp.Branch); got != "M\ta/b.txt\nA\tnew file\nD\trun.sh" {
		t.Errorf("its branch differs by %q", got)
	}
	if got, _ := gitIn(sp.Dir, "status", "--porcelain"); got != "" {
		t.Errorf("git sees the worktree as %q", got)
	}
	if got := r.git("status", "--porcelain", "--branch"); got != "## main" {
		t.Errorf("git sees the project as %q", got)
	}
	if _, err := sp.Close(t.Context(), Keep); !errors.Is(err, errClosed) {
		t.Errorf("closing it twice: %v", err)
	}
}

// A run that was interrupted, or is over, gets the same worktree again with all
// that is in it; nobody else does while it has it.
func TestResumedRun(t *testing.T) {
	t.Parallel()
	r := newRepo(t, nil)
	s := New(SpaceOptions{Project: r.dir, Ports: 2, PortsFile: filepath.Join(t.TempDir(), "ports")})
	q := Request{Run: newRun(), Kind: Worktree, Slug: "a"}
	sp := mustOpen(t, s, q)
	tree{"x": "1"}.write(t, sp.Dir)
	if _, err := s.Open(t.Context(), q); err == nil {
		t.Error("it was opened twice")
	} else if e, ok := errors.AsType[*InUseError](err); !ok || e.Run != q.Run {
		t.Error(err)
	}
	sp.lock.Close() // as the end of the process does
	q.Slug = "another"
	again := mustOpen(t, s, q)
	if again.Dir != sp.Dir || again.Branch != sp.Branch || !slices.Equal(again.Env, sp.Env) {
		t.Errorf("it got %s on %s with %v", again.Dir, again.Branch, again.Env)
	}
	has(t, again.Dir, "x", "1")
	mustClose(t, again, Keep)
	third := mustOpen(t, s, q)
	has(t, third.Dir, "x", "1")
	d, err := third.Diff(t.Context())
	if err != nil || len(d.Files) != 1 || d.Files[0].Path != "x" {
		t.Errorf("it differs by %+v, %v", d, err)
	}
	mustClose(t, third, Keep)

	// Of what is lost by hand, the branch is enough.
	if err := os.RemoveAll(third.Dir); err != nil {
		t.Fatal(err)
	}
	fourth := mustOpen(t, s, q)
	has(t, fourth.Dir, "x", "1")
	mustClose(t, fourth, Keep)
	if err := os.RemoveAll(filepath.Join(r.dir, ".nestor")); err != nil {
		t.Fatal(err)
	}
	fifth := mustOpen(t, s, q)
	has(t, fifth.Dir, "x", "1")
	if d, err := fifth.Diff(t.Context()); err != nil || len(d.Files) != 1 || fifth.Branch != sp.Branch {
		t.Errorf("on %s it differs by %+v, %v", fifth.Branch, d, err)
	}
	tree{"y": "2"}.write(t, fifth.Dir)
	fifth.lock.Close()
	if err := os.RemoveAll(filepath.Join(r.dir, ".nestor", "spaces")); err != nil {
		t.Fatal(err)
	}
	sixth := mustOpen(t, s, q)
	has(t, sixth.Dir, "y", "2")
	mustClose(t, sixth, Drop)
	hasNot(t, sixth.Dir, homeOf(r.dir, q.Run))
	if got := r.git("branch", "--list", "nestor/*"); got != "" {
		t.Errorf("branches %q are left", got)
	}
	if got := r.git("worktree", "list"); strings.Count(got, "\n") != 0 {
		t.Errorf("worktrees are left: %s", got)
	}
}

// Runs that begin at once get worktrees, branches and ports that are not each
// other's.
func TestManyRunsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRepo(t, nil)
	ports := filepath.Join(t.TempDir(), "ports")
	type got struct {
		sp  *Space
		err error
	}
	const n = 6
	results := make(chan got)
	for range n {
		s := New(SpaceOptions{Project: r.dir, Ports: 3, PortsFile: ports})
		go func() {
			sp, err := s.Open(t.Context(), Request{Run: newRun(), Kind: Worktree})
			results <- got{sp, err}
		}()
	}
	seen, opened := map[string]bool{}, []*Space{}
	for range n {
		g := <-results
		if g.err != nil {
			t.Error(g.err)
			continue
		}
		for _, key := range []string{g.sp.Dir, g.sp.Branch, g.sp.Env[0]} {
			if seen[key] {
				t.Errorf("two have %s", key)
			}
			seen[key] = true
		}
		tree{string(g.sp.rec.Run): "mine"}.write(t, g.sp.Dir)
		opened = append(opened, g.sp)
	}
	closed := make(chan error)
	for _, sp := range opened {
		go func() {
			_, err := sp.Close(t.Context(), Merge)
			closed <- err
		}()
	}
	for range opened {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	for _, sp := range opened {
		has(t, r.dir, string(sp.rec.Run), "mine")
	}
	if got := r.git("status", "--porcelain", "--branch"); got != "## main" {
		t.Errorf("git sees the project as %q", got)
	}
	if got := r.git("branch", "--list", "nestor/*"); got != "" {
		t.Errorf("branches %q are left", got)
	}
}

// A kind that cannot be is refused with the way out.
func TestRefused(t *testing.T) {
	plain := realDir(t)
	empty := emptyRepo(t)
	full := newRepo(t, nil)
	outside := realDir(t)
	tree{"swarms/own/agents/a.md": "", "swarms/out/workspace": "-> " + outside, "swarms/up/workspace": "-> ../../..", "swarms/git/workspace": "-> ../../.git",
		"swarms/none/workspace": "-> nowhere", "swarms/file/workspace": "x", "outlink": "-> " + outside}.write(t, full.dir)
	for _, test := range []struct {
		name    string
		project string
		base    string
		request Request
		want    []string
	}{
		{"no repository", plain, "", Request{Kind: Worktree}, []string{plain, "git init", `kind "plain"`}},
		{"no commit", empty.dir, "", Request{Kind: Worktree}, []string{"has none: commit something"}},
		{"no base", full.dir, "nowhere", Request{Kind: Worktree}, []string{`base "nowhere"`, "git branch --all"}},
		{"an option as base", full.dir, "--upload-pack=x", Request{Kind: Worktree}, []string{`base "--upload-pack=x"`}},
		{"kind", full.dir, "", Request{Kind: "tent"}, []string{`kind "tent": want plain, swarm or worktree`}},
		{"swarm without name", full.dir, "", Request{Kind: Swarm}, []string{"needs the name of a swarm"}},
		{"no swarm", full.dir, "", Request{Swarm: "nobody"}, []string{"there is no swarm nobody", "swarms/nobody"}},
		{"swarm with path", full.dir, "", Request{Swarm: "../swarms/own"}, []string{`swarm "../swarms/own": want the name of a folder`}},
		{"swarm that is hidden", full.dir, "", Request{Swarm: ".."}, []string{`swarm ".."`}},
		{"swarm with newline", full.dir, "", Request{Swarm: "a\nb"}, []string{`swarm "a\nb"`}},
		{"link out", full.dir, "", Request{Swarm: "out"}, []string{outside, "outside of the project"}},
		{"link up", full.dir, "", Request{Swarm: "up"}, []string{"outside of the project"}},
		{"link to git", full.dir, "", Request{Swarm: "git"}, []string{"not for runs to work in"}},
		{"link to nothing", full.dir, "", Request{Swarm: "none"}, []string{"leads nowhere"}},
		{"workspace that is a file", full.dir, "", Request{Swarm: "file"}, []string{"is no folder"}},
		{"worktree of a folder", full.dir, "", Request{Swarm: "own", Kind: Worktree}, []string{"make swarms/own/workspace a link"}},
		{"folder that is not there", full.dir, "", Request{Dir: "nowhere"}, []string{"nowhere"}},
		{"folder outside", full.dir, "", Request{Dir: "../x"}, []string{"../x"}},
		{"link outside", full.dir, "", Request{Dir: "outlink"}, []string{"outside of the project"}},
		{"no run", full.dir, "", Request{Run: "../x"}, []string{`"../x"`, "UUID"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.request.Run == "" {
				test.request.Run = newRun()
			}
			_, err := New(SpaceOptions{Project: test.project, Base: test.base}).Open(t.Context(), test.request)
			if err == nil {
				t.Fatal("it was opened")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), filepath.Clean(filepath.Join(test.project, want))) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			hasNot(t, homeOf(test.project, nestor.ID(filepath.Base(string(test.request.Run)))))
		})
	}
}

// A swarm has one workspace, which its runs share; its STATE.md comes with it.
func TestSwarm(t *testing.T) {
	dir := realDir(t)
	tree{"swarms/shop/STATE.md": "all is well\n"}.write(t, dir)
	s := New(SpaceOptions{Project: dir})
	one := mustOpen(t, s, Request{Run: newRun(), Swarm: "shop"})
	two := mustOpen(t, s, Request{Run: newRun(), Swarm: "shop"})
	if want := filepath.Join(dir, "swarms", "shop", "workspace"); one.Dir != want || two.Dir != want || one.Kind != Swarm {
		t.Errorf("they work in %s and %s, %s", one.Dir, two.Dir, one.Kind)
	}
	if one.State != "all is well\n" || one.StateFile != filepath.Join(dir, "swarms", "shop", "STATE.md") {
		t.Errorf("the state is %q of %s", one.State, one.StateFile)
	}
	tree{"deep/a": "1"}.write(t, one.Dir)
	d, err := two.Diff(t.Context())
	if err != nil || len(d.Files) != 1 || d.Files[0] != (Change{Path: "deep/a", Action: Written, Size: 1}) || !strings.Contains(d.Patch, "+1") {
		t.Errorf("it differs by %+v, %v", d, err)
	}
	if out := mustClose(t, one, Merge); out.End != Keep {
		t.Errorf("the outcome is %+v", out)
	}
	two.lock.Close()
	again := mustOpen(t, s, Request{Run: two.rec.Run, Swarm: "shop"})
	if d, err := again.Diff(t.Context()); err != nil || len(d.Files) != 1 {
		t.Errorf("resumed, it differs by %+v, %v", d, err)
	}
	mustClose(t, again, Drop)
	has(t, one.Dir, "deep/a", "1")
	hasNot(t, homeOf(dir, one.rec.Run), homeOf(dir, two.rec.Run))
}

// The state of a swarm is bounded, and read from inside the project alone.
func TestStateOfSwarm(t *testing.T) {
	dir, outside := realDir(t), realDir(t)
	tree{"secret": "s"}.write(t, outside)
	tree{"swarms/big/STATE.md": strings.Repeat("ä", maxState), "swarms/out/STATE.md": "-> " + outside + "/secret", "swarms/none/x": ""}.write(t, dir)
	s := New(SpaceOptions{Project: dir})
	big := mustOpen(t, s, Request{Run: newRun(), Swarm: "big"})
	if len(big.State) > maxState+200 || !strings.Contains(big.State, "left out") {
		t.Errorf("%d bytes were read", len(big.State))
	}
	if none := mustOpen(t, s, Request{Run: newRun(), Swarm: "none"}); none.State != "" || none.StateFile == "" {
		t.Errorf("of no file, %q was read", none.State)
	}
	if _, err := s.Open(t.Context(), Request{Run: newRun(), Swarm: "out"}); err == nil {
		t.Error("a state outside of the project was read")
	}
}

// A swarm whose workspace is a link to the project works on a branch of its own,
// unless it is told to work in place.
func TestSwarmOfProject(t *testing.T) {
	r := newRepo(t, tree{"swarms/dev/workspace": "-> ../..", "swarms/part/workspace": "-> ../../lib", "lib/l.txt": "l"})
	s := New(SpaceOptions{Project: r.dir})
	dev := mustOpen(t, s, Request{Run: newRun(), Swarm: "dev"})
	if dev.Kind != Worktree || dev.Branch == "" {
		t.Errorf("it is %s on %q", dev.Kind, dev.Branch)
	}
	part := mustOpen(t, s, Request{Run: newRun(), Swarm: "part", Kind: Worktree})
	if part.Dir != filepath.Join(r.dir, ".nestor", "worktrees", string(part.rec.Run), "lib") {
		t.Errorf("it works in %s", part.Dir)
	}
	has(t, part.Dir, "l.txt", "l")
	place := mustOpen(t, s, Request{Run: newRun(), Swarm: "dev", Kind: Swarm})
	if place.Dir != r.dir || place.Branch != "" {
		t.Errorf("in place, it works in %s", place.Dir)
	}
	tree{"new": "n"}.write(t, dev.Dir)
	if out := mustClose(t, dev, Merge); out.End != Merge || out.Into != "main" {
		t.Errorf("the outcome is %+v", out)
	}
	has(t, r.dir, "new", "n")
	if d, err := place.Diff(t.Context()); err != nil || len(d.Files) != 1 {
		t.Errorf("in place, it differs by %+v, %v", d, err)
	}
}

// Plain folders need no git and no project around them.
func TestPlain(t *testing.T) {
	dir, other := realDir(t), realDir(t)
	tree{"sub/x": "1", "gone": "g"}.write(t, dir)
	s := New(SpaceOptions{Project: dir})
	for _, test := range []struct{ dir, want string }{{"", dir}, {"sub", filepath.Join(dir, "sub")}, {other, other}} {
		if sp := mustOpen(t, s, Request{Run: newRun(), Dir: test.dir}); sp.Dir != test.want || sp.Kind != Plain {
			t.Errorf("%q is %s, %s", test.dir, sp.Dir, sp.Kind)
		}
	}
	sp := mustOpen(t, New(SpaceOptions{Project: dir, Git: "no-such-git"}), Request{Run: newRun()})
	if _, err := sp.Diff(t.Context()); err == nil || !strings.Contains(err.Error(), "git is not installed") {
		t.Errorf("without git: %v", err)
	}
}
