package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Nothing that a repository names is run, whatever its hooks, configuration and
// attributes say, by opening, comparing, listing, merging or dropping.
func TestHostileRepositoryRunsNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the marker is written by a shell script")
	}
	marker := filepath.Join(realDir(t), "marker")
	evil := filepath.Join(realDir(t), "evil")
	tree{filepath.Base(evil): "#!/bin/sh\necho \"$0 $@\" >> " + marker + "\ncat\n"}.write(t, filepath.Dir(evil))

	sub := newRepo(t, tree{"s.txt": "s"})
	r := newRepo(t, tree{"a.txt": "1\n2\n3\n", "b.bin": "b"})
	r.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.dir, "sub")
	tree{".gitattributes": "* filter=evil diff=evil merge=evil\n"}.write(t, r.dir)
	r.git("add", "-A")
	r.git("commit", "-qm", "attributes")

	poison := func(gitDir string) {
		config := filepath.Join(gitDir, "config")
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{
			"[core]", "fsmonitor = %s", "sshCommand = %s", "pager = %s", "editor = %s", "askPass = %s", "gitProxy = %s", "alternateRefsCommand = %s",
			`[filter "evil"]`, "clean = %s", "smudge = %s", "process = %s", "required = true",
			`[diff "evil"]`, "command = %s", "textconv = %s", "[diff]", "external = %s", `[merge "evil"]`, "driver = %s", "[merge]", "tool = evil",
			"[gpg]", "program = %s", "[commit]", "gpgSign = true", "[tag]", "gpgSign = true", "[log]", "showSignature = true",
			"[credential]", "helper = !%s", "[alias]", "read-tree = !%s", "update-index = !%s", "[submodule]", "recurse = true",
			`[remote "origin"]`, "url = ext::%s", "promisor = true", "uploadpack = %s", "[extensions]", "partialClone = origin",
			"[protocol]", "allow = always", `[protocol "ext"]`, "allow = always", "[sequence]", "editor = %s", "[interactive]", "diffFilter = %s",
			`[trailer "x"]`, "command = %s", "[uploadpack]", "packObjectsHook = %s",
		}
		added := strings.ReplaceAll(strings.Join(lines, "\n"), "%s", evil)
		if err := os.WriteFile(config, append(text, "\n"+added+"\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, hook := range []string{"post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change", "post-merge", "pre-merge-commit", "pre-auto-gc", "fsmonitor-watchman", "post-rewrite"} {
			tree{"hooks/" + hook: "#!/bin/sh\necho " + hook + " >> " + marker + "\n"}.write(t, gitDir)
		}
	}
	poison(filepath.Join(r.dir, ".git"))
	poison(filepath.Join(r.dir, ".git", "modules", "sub"))
	t.Setenv("GIT_DIR", "/nowhere")
	t.Setenv("GIT_EXTERNAL_DIFF", evil)
	t.Setenv("GIT_SSH_COMMAND", evil)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
	t.Setenv("GIT_CONFIG_VALUE_0", evil)

	s := New(SpaceOptions{Project: r.dir})
	for _, end := range []End{Merge, Keep, Drop} {
		sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
		tree{"a.txt": "1\n2\nthree " + string(end) + "\n", "new": "n"}.write(t, sp.Dir)
		// A submodule that the run has checked out, and changed.
		tree{"sub/s.txt": "changed", "sub/.git": "gitdir: " + filepath.Join(r.dir, ".git", "modules", "sub")}.write(t, sp.Dir)
		if _, err := sp.Diff(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := s.List(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, sp, end)
	}
	plain := mustOpen(t, s, Request{Run: newRun()})
	if _, err := plain.Diff(t.Context()); err != nil {
		t.Error(err)
	}
	mustClose(t, plain, Keep)
	if _, err := s.Collect(t.Context(), Policy{Age: 1, Force: true}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(marker); err == nil {
		t.Errorf("this was run:\n%s", text)
	}

	// The trap works: git itself falls into it.
	os.Unsetenv("GIT_DIR")
	r.try("status")
	if _, err := os.Stat(marker); err != nil {
		t.Error("git itself does not run what is named there, so nothing was tested")
	}
}

// Merging two changes of one file into the checkout runs no merge driver and no hook.
func TestHostileMerge(t *testing.T) {
	r := newRepo(t, tree{"a.txt": "1\n2\n3\n", ".gitattributes": "* merge=evil\n"})
	marker := filepath.Join(realDir(t), "marker")
	r.git("config", "merge.evil.driver", "touch "+marker)
	r.git("config", "diff.external", "touch "+marker)
	for _, hook := range []string{"post-checkout", "post-index-change", "post-merge", "reference-transaction"} {
		tree{".git/hooks/" + hook: "#!/bin/sh\ntouch " + marker + "." + hook + "\n"}.write(t, r.dir)
	}
	s := New(SpaceOptions{Project: r.dir})
	sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
	tree{"a.txt": "1\n2\nthree\n"}.write(t, sp.Dir)
	tree{"a.txt": "one\n2\n3\n"}.write(t, r.dir)
	r.git("-c", "core.hooksPath="+os.DevNull, "commit", "-qam", "other")
	if out := mustClose(t, sp, Merge); out.End != Merge {
		t.Errorf("the outcome is %+v", out)
	}
	has(t, r.dir, "a.txt", "one\n2\nthree\n")
	found, _ := filepath.Glob(marker + "*")
	hasNot(t, found...)
}

// What a filter has to write, such as LFS, is left as it is in a worktree, and its
// merge to who can write it.
func TestFilesOfLFS(t *testing.T) {
	r := newRepo(t, nil)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
	tree{".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "x.bin": pointer}.write(t, r.dir)
	r.git("add", "-A")
	r.git("commit", "-qm", "lfs")
	r.git("config", "filter.lfs.smudge", "false")
	r.git("config", "filter.lfs.required", "true")
	s := New(SpaceOptions{Project: r.dir})
	sp := mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
	has(t, sp.Dir, "x.bin", pointer)
	tree{"y.txt": "y"}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Merge {
		t.Errorf("the outcome is %+v", out)
	}
	sp = mustOpen(t, s, Request{Run: newRun(), Kind: Worktree})
	tree{"x.bin": strings.Replace(pointer, "size 1", "size 2", 1)}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Keep || !strings.Contains(out.Why, `the filter "lfs" has to write`) {
		t.Errorf("the outcome is %+v", out)
	}
}

// Submodules are folders with nothing in them, and stay what they are.
func TestSubmoduleIsLeftAlone(t *testing.T) {
	sub := newRepo(t, tree{"s.txt": "s"})
	r := newRepo(t, nil)
	r.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.dir, "sub")
	r.git("commit", "-qm", "sub")
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	if entries, err := os.ReadDir(filepath.Join(sp.Dir, "sub")); err != nil || len(entries) != 0 {
		t.Errorf("the submodule holds %v, %v", entries, err)
	}
	tree{"x": "1"}.write(t, sp.Dir)
	out := mustClose(t, sp, Merge)
	if got := r.git("diff", "--name-only", "main~1", "main"); out.End != Merge || got != "x" {
		t.Errorf("the outcome is %+v with %q", out, got)
	}
	has(t, r.dir, "sub/s.txt", "s")
}

// A bare repository has worktrees too, and a project may be a folder of a larger
// one, or a worktree itself.
func TestOtherRepositories(t *testing.T) {
	t.Parallel()
	r := newRepo(t, tree{"part/p.txt": "p"})

	bare := repo{t, filepath.Join(realDir(t), "bare.git")}
	r.git("clone", "-q", "--bare", r.dir, bare.dir)
	sp := mustOpen(t, New(SpaceOptions{Project: bare.dir}), Request{Run: newRun(), Kind: Worktree})
	tree{"x": "1"}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Merge || out.Into != "main" {
		t.Errorf("bare: the outcome is %+v", out)
	}
	if got, _ := bare.at("main", "x"); got != "1" {
		t.Errorf("bare: main has %q", got)
	}

	part := filepath.Join(r.dir, "part")
	sp = mustOpen(t, New(SpaceOptions{Project: part}), Request{Run: newRun(), Kind: Worktree})
	if want := filepath.Join(part, ".nestor", "worktrees", string(sp.rec.Run), "part"); sp.Dir != want {
		t.Errorf("part: it works in %s", sp.Dir)
	}
	has(t, sp.Dir, "p.txt", "p")
	tree{"q.txt": "q"}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Merge {
		t.Errorf("part: the outcome is %+v", out)
	}
	has(t, part, "q.txt", "q")

	linked := repo{t, filepath.Join(realDir(t), "linked")}
	r.git("worktree", "add", "-q", "-b", "side", linked.dir)
	sp = mustOpen(t, New(SpaceOptions{Project: linked.dir}), Request{Run: newRun(), Kind: Worktree})
	tree{"z": "z"}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Merge || out.Into != "side" {
		t.Errorf("linked: the outcome is %+v", out)
	}
	has(t, linked.dir, "z", "z")
	if got := linked.git("status", "--porcelain"); got != "" {
		t.Errorf("linked: git sees %q", got)
	}
}

// Object names of SHA-256 are no other case.
func TestRepositoryOfSHA256(t *testing.T) {
	r := emptyRepo(t)
	if err := os.RemoveAll(filepath.Join(r.dir, ".git")); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main", "--object-format=sha256")
	tree{"a": "1"}.write(t, r.dir)
	r.git("add", "-A")
	r.git("commit", "-qm", "first")
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	tree{"x": "1"}.write(t, sp.Dir)
	if out := mustClose(t, sp, Merge); out.End != Merge || len(out.Merged) != 64 {
		t.Errorf("the outcome is %+v", out)
	}
}

// Names may hold anything that a file system takes.
func TestNamesOfFiles(t *testing.T) {
	names := []string{"with space", "new\nline", "tab\t", "ünïcode/日本", `quo"te`, "-dash", ":(glob)*", "*", "a\\b", "emoji 🦊", "trail ", "'", "$(x)"}
	before, work := tree{}, tree{}
	for _, name := range names {
		before["old/"+name], work["old/"+name], work["new/"+name] = "1", "2", "1"
	}
	r := newRepo(t, before)
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	work.write(t, sp.Dir)
	d, err := sp.Diff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range d.Files {
		got[f.Path] = f.Action
	}
	for _, name := range names {
		if got["old/"+name] != Modified || got["new/"+name] != Written {
			t.Errorf("%q is %q and %q", name, got["old/"+name], got["new/"+name])
		}
	}
	if len(got) != 2*len(names) {
		t.Errorf("it differs by %v", got)
	}
	if out := mustClose(t, sp, Merge); out.End != Merge {
		t.Errorf("the outcome is %+v", out)
	}
	for name, want := range work {
		has(t, r.dir, name, want)
	}
}

// Much is as well as little, and a diff has its bound.
func TestManyAndLargeFiles(t *testing.T) {
	t.Parallel()
	r := newRepo(t, nil)
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	for i := range 100 {
		dir := filepath.Join(sp.Dir, fmt.Sprint("d", i))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), fmt.Append(nil, i, j, "\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	large := strings.Repeat("a line of text\n", 4<<20/15)
	tree{"large": large, "larger": strings.Repeat(large, 5)}.write(t, sp.Dir)
	d, err := sp.Diff(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Files) != 10_002 || len(d.Patch) > maxPatch || !d.Cut {
		t.Errorf("%d files, %d bytes, cut %v", len(d.Files), len(d.Patch), d.Cut)
	}
	out := mustClose(t, sp, Keep)
	if got := len(strings.Split(r.git("ls-tree", "-r", "--name-only", out.Branch), "\n")); got != 10_004 {
		t.Errorf("its branch has %d files", got)
	}
}

// A change that has the size and almost the time of what was there is seen.
func TestChangeThatLooksTheSame(t *testing.T) {
	t.Parallel()
	r := newRepo(t, tree{"x": "0"})
	s := New(SpaceOptions{Project: r.dir})
	q := Request{Run: newRun(), Kind: Worktree}
	for i := range 10 {
		sp := mustOpen(t, s, q)
		want := fmt.Sprint(9 - i)
		tree{"x": want}.write(t, sp.Dir)
		if d, err := sp.Diff(t.Context()); err != nil || want != "0" && !strings.Contains(d.Patch, "+"+want) {
			t.Errorf("%s: it differs by %+v, %v", want, d, err)
		}
		out := mustClose(t, sp, Keep)
		if got, _ := r.at(out.Branch, "x"); got != want {
			t.Errorf("%q is committed, want %q", got, want)
		}
	}
}
