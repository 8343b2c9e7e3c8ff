package workspace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is asked to be merged is merged into the branch it came from, or kept with
// the reason; a checkout that holds anything else is never touched.
func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name      string
		options   SpaceOptions
		before    func(r repo) // the run begins
		during    func(r repo) // while it works
		work      tree         // what it does
		end       End          // Merge, or Keep
		why       string       // in the reason
		conflicts []string
		main      tree // what the checkout holds at the end
	}{
		{name: "forward", work: tree{"new": "n"}, end: Merge, main: tree{"new": "n", "a": "1\n2\n3\n"}},
		{name: "nothing done", end: Merge},
		{
			name: "beside", work: tree{"a": "1\n2\nthree\n"}, end: Merge,
			during: func(r repo) { tree{"a": "one\n2\n3\n"}.write(r, r.dir); r.git("commit", "-qam", "other") },
			main:   tree{"a": "one\n2\nthree\n"},
		},
		{
			name: "conflict", work: tree{"a": "1\ntwo\n3\n", "b": "b2", "c": "c2"}, end: Keep, why: "changed the same", conflicts: []string{"a", "b"},
			during: func(r repo) { tree{"a": "1\nzwei\n3\n", "b": "b3"}.write(r, r.dir); r.git("commit", "-qam", "other") },
			main:   tree{"a": "1\nzwei\n3\n", "c": "c"},
		},
		{
			name: "dirty file", work: tree{"new": "n"}, end: Keep, why: `has changes, such as of "a"`,
			during: func(r repo) { tree{"a": "mine"}.write(r, r.dir) },
			main:   tree{"a": "mine"},
		},
		{
			name: "removed file", work: tree{"new": "n"}, end: Keep, why: `has changes, such as of "a"`,
			during: func(r repo) { os.Remove(filepath.Join(r.dir, "a")) },
		},
		{
			name: "staged", work: tree{"new": "n"}, end: Keep, why: "has staged changes",
			during: func(r repo) { tree{"s": "mine"}.write(r, r.dir); r.git("add", "s") },
			main:   tree{"s": "mine"},
		},
		{
			name: "untracked beside it", work: tree{"new": "n"}, end: Merge,
			during: func(r repo) { tree{"mine": "m"}.write(r, r.dir) },
			main:   tree{"mine": "m", "new": "n"},
		},
		{
			name: "untracked in the way", work: tree{"new": "n"}, end: Keep, why: "does not track", conflicts: []string{"new"},
			during: func(r repo) { tree{"new": "mine"}.write(r, r.dir) },
			main:   tree{"new": "mine"},
		},
		{
			name: "ignored in the way", work: tree{".gitignore": "nothing\n", ".env": "theirs"}, end: Keep, why: "does not track", conflicts: []string{".env"},
			during: func(r repo) { tree{".env": "mine"}.write(r, r.dir) },
			main:   tree{".env": "mine"},
		},
		{
			name: "ignored folder in the way", work: tree{".gitignore": "nothing\n", "ignored/x/y": "theirs"}, end: Keep, why: "does not track", conflicts: []string{"ignored/x"},
			during: func(r repo) { tree{"ignored/x": "mine"}.write(r, r.dir) },
			main:   tree{"ignored/x": "mine"},
		},
		{
			name: "detached", work: tree{"new": "n"}, end: Keep, why: "which is no branch",
			before: func(r repo) { r.git("checkout", "-q", "--detach") },
		},
		{
			name: "another branch is checked out meanwhile", work: tree{"new": "n"}, end: Merge,
			during: func(r repo) { r.git("checkout", "-q", "-b", "other"); tree{"a": "dirty"}.write(r, r.dir) },
			main:   tree{"a": "dirty"},
		},
		{
			name: "checked out elsewhere", work: tree{"new": "n"}, end: Keep, why: "is checked out in",
			during: func(r repo) {
				r.git("checkout", "-q", "-b", "other")
				r.git("worktree", "add", "-q", filepath.Join(r.TempDir(), "else"), "main")
			},
		},
		{
			name: "base is gone", work: tree{"new": "n"}, end: Keep, why: "main is gone",
			during: func(r repo) { r.git("branch", "-m", "main", "renamed") },
		},
		{
			name: "base that is not checked out", options: SpaceOptions{Base: "stable"}, work: tree{"new": "n"}, end: Merge,
			before: func(r repo) { r.git("branch", "stable") },
			during: func(r repo) { tree{"a": "dirty"}.write(r, r.dir) },
			main:   tree{"a": "dirty"},
		},
		{
			name: "base that is a commit", options: SpaceOptions{Base: "v1"}, work: tree{"new": "n"}, end: Keep, why: "which is no branch",
			before: func(r repo) { r.git("tag", "v1") },
		},
		{
			name: "git at work", work: tree{"new": "n"}, end: Keep, why: "another git",
			during: func(r repo) { tree{".git/index.lock": ""}.write(r, r.dir) },
		},
		{
			name: "rebase", work: tree{"new": "n"}, end: Keep, why: "being rebased",
			during: func(r repo) { tree{".git/rebase-merge/head-name": "refs/heads/main\n"}.write(r, r.dir) },
		},
		{
			name: "files that git is told not to look at", work: tree{"a": "n"}, end: Keep, why: "told not to look at",
			during: func(r repo) { r.git("update-index", "--assume-unchanged", "a"); tree{"a": "mine"}.write(r, r.dir) },
			main:   tree{"a": "mine"},
		},
		{
			name: "file becomes folder", work: tree{"b/x": "1"}, end: Merge, main: tree{"b/x": "1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, tree{"a": "1\n2\n3\n", "b": "b", "c": "c"})
			if test.before != nil {
				test.before(r)
			}
			test.options.Project = r.dir
			s := New(test.options)
			sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
			if test.work["b/x"] != "" {
				os.Remove(filepath.Join(sp.Dir, "b"))
			}
			test.work.write(t, sp.Dir)
			if test.during != nil {
				test.during(r)
			}
			status := r.git("status", "--porcelain")
			out := mustClose(t, sp, Merge)
			if out.End != test.end || (test.why != "") != (out.Why != "") || !strings.Contains(out.Why, test.why) || !slices.Equal(out.Conflicts, test.conflicts) {
				t.Errorf("the outcome is %+v", out)
			}
			for name, want := range test.main {
				has(t, r.dir, name, want)
			}
			if got := r.git("status", "--porcelain"); got != status {
				t.Errorf("git sees the project as %q, and before as %q", got, status)
			}
			if test.end == Merge {
				hasNot(t, sp.Dir, homeOf(r.dir, sp.rec.Run))
				for name, want := range test.work {
					if got, _ := r.at(out.Merged, name); got != want && test.name != "beside" {
						t.Errorf("%s of %s has %q in %s", out.Merged, out.Into, got, name)
					}
				}
				if got := r.git("rev-parse", out.Into); got != out.Merged {
					t.Errorf("%s is at %s", out.Into, got)
				}
				return
			}
			for name, want := range test.work {
				has(t, sp.Dir, name, want)
				if got, _ := r.at(out.Branch, name); got != want {
					t.Errorf("branch %s has %q in %s", out.Branch, got, name)
				}
			}
			hasNot(t, filepath.Join(r.dir, ".git", "MERGE_HEAD"))
		})
	}
}

// A merge that was killed between the files and the branch is finished by the next.
func TestMergeThatWasInterrupted(t *testing.T) {
	r := newRepo(t, nil)
	s := New(SpaceOptions{Project: r.dir})
	q := Request{Run: newRun(), Kind: Worktree}
	sp := mustOpen(t, s, q)
	tree{"new": "n"}.write(t, sp.Dir)
	out := mustClose(t, sp, Keep)
	r.git("read-tree", "-m", "-u", "main", out.Commit)
	text, err := json.Marshal(pending{Top: r.dir, Ref: "refs/heads/main", From: r.git("rev-parse", "main"), To: out.Commit})
	if err != nil {
		t.Fatal(err)
	}
	tree{".nestor/spaces/merge.json": string(text)}.write(t, r.dir)
	if got := r.git("status", "--porcelain"); got != "A  new" {
		t.Fatalf("git sees the project as %q", got)
	}
	other := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
	tree{"other": "o"}.write(t, other.Dir)
	out = mustClose(t, other, Merge)
	if got := r.git("status", "--porcelain"); out.End != Merge || got != "" {
		t.Errorf("the outcome is %+v, and git sees %q", out, got)
	}
	if out = mustClose(t, mustOpen(t, s, q), Merge); out.End != Merge {
		t.Errorf("the outcome is %+v", out)
	}
	has(t, r.dir, "new", "n")
	has(t, r.dir, "other", "o")
}

// What a critic is to approve is closed and kept, looked at, and merged when it is
// opened again.
func TestMergeAfterApproval(t *testing.T) {
	r := newRepo(t, nil)
	s := New(SpaceOptions{Project: r.dir})
	q := Request{Run: newRun(), Kind: Worktree}
	sp := mustOpen(t, s, q)
	tree{"new": "n"}.write(t, sp.Dir)
	mustClose(t, sp, "")
	hasNot(t, filepath.Join(r.dir, "new"))
	sp = mustOpen(t, s, q)
	if d, err := sp.Diff(t.Context()); err != nil || len(d.Files) != 1 {
		t.Errorf("it differs by %+v, %v", d, err)
	}
	if out := mustClose(t, sp, Merge); out.End != Merge {
		t.Errorf("the outcome is %+v", out)
	}
	has(t, r.dir, "new", "n")
}

// Work is not lost, whatever a run does to its HEAD and branch.
func TestRunThatUsesGit(t *testing.T) {
	git := func(t *testing.T, dir string, args ...string) {
		t.Helper()
		if out, err := gitIn(dir, args...); err != nil {
			t.Fatalf("git %q: %v %s", args, err, out)
		}
	}
	for _, test := range []struct {
		name   string
		do     func(t *testing.T, dir, branch string)
		beside bool
		end    End
		stays  string
	}{
		{"commits", func(t *testing.T, dir, branch string) {
			tree{"x": "1"}.write(t, dir)
			git(t, dir, "add", "x")
			git(t, dir, "commit", "-qm", "x")
			tree{"y": "2"}.write(t, dir)
		}, false, Merge, ""},
		{"detached and ahead", func(t *testing.T, dir, branch string) {
			git(t, dir, "checkout", "-q", "--detach")
			tree{"x": "1"}.write(t, dir)
			git(t, dir, "add", "x")
			git(t, dir, "commit", "-qm", "x")
			tree{"y": "2"}.write(t, dir)
		}, false, Merge, ""},
		{"looks back", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			git(t, dir, "add", "x", "y")
			git(t, dir, "commit", "-qm", "x")
			git(t, dir, "checkout", "-q", "HEAD~1")
		}, false, Merge, ""},
		{"another branch", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			git(t, dir, "add", "x", "y")
			git(t, dir, "commit", "-qm", "x")
			git(t, dir, "checkout", "-q", "-b", "mine", "HEAD~1")
			tree{"z": "3"}.write(t, dir)
		}, true, Merge, "has left its branch"},
		{"branch removed", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			git(t, dir, "checkout", "-q", "--detach")
			git(t, dir, "branch", "-q", "-D", branch)
		}, false, Merge, ""},
		{"branch removed below it", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			git(t, dir, "update-ref", "-d", "refs/heads/"+branch)
		}, false, Merge, ""},
		{"nested repository", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2", "sub/z": "3"}.write(t, dir)
			git(t, filepath.Join(dir, "sub"), "init", "-q")
		}, false, Merge, "another repository"},
		{"hidden by the index", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2", "README": "changed"}.write(t, dir)
			git(t, dir, "update-index", "--assume-unchanged", "README")
		}, false, Merge, ""},
		{"no .git", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			os.Remove(filepath.Join(dir, ".git"))
		}, false, Merge, ""},
		{"repository of its own", func(t *testing.T, dir, branch string) {
			tree{"x": "1", "y": "2"}.write(t, dir)
			os.Remove(filepath.Join(dir, ".git"))
			git(t, dir, "init", "-q")
		}, false, Merge, "repository of its own"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, nil)
			s := New(SpaceOptions{Project: r.dir})
			q := Request{Run: newRun(), Kind: Worktree}
			sp := mustOpen(t, s, q)
			test.do(t, sp.Dir, sp.Branch)
			out := mustClose(t, sp, Merge)
			if out.End != test.end || (out.Beside != "") != test.beside || !strings.Contains(out.Why, test.stays) || (test.stays == "") != (out.Why == "") {
				t.Errorf("the outcome is %+v", out)
			}
			has(t, r.dir, "x", "1")
			has(t, r.dir, "y", "2")
			if test.beside {
				if got, _ := r.at(out.Beside, "z"); got != "3" {
					t.Errorf("%s has %q", out.Beside, got)
				}
			}
			if _, err := os.Lstat(sp.Dir); (err == nil) != (test.stays != "") {
				t.Errorf("its folder: %v", err)
			}
		})
	}
}
