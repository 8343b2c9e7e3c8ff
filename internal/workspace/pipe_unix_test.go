//go:build unix

package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A pipe is neither waited for nor carried, also where a file was just now.
func TestPipeIsNotWaitedFor(t *testing.T) {
	dir := newDir(t, tree{"was": "a file"})
	s := take(t, dir, Options{})
	if err := os.Remove(filepath.Join(dir, "was")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"was", "new"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if c := changesOf(t, s); !c.Empty() || !slices.Equal(c.Left, []string{"new", "was"}) {
		t.Errorf("changes are %q", c.names())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if f, err := openFile(root, "was"); err == nil || !strings.Contains(err.Error(), "no file any more") {
		t.Errorf("opened %v, %v", f, err)
	}
}

// Things that are no files, and what may not be read, are said and not committed;
// their folder stays.
func TestWhatCannotBeCommitted(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root, everything may be read: only what is no file is tested")
	}
	r := newRepo(t, tree{"was a file": "x", "locked": "l"})
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	left := []string{"was a file"}
	if err := os.Remove(filepath.Join(sp.Dir, "was a file")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(sp.Dir, "was a file"), 0o666); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		tree{"locked": "other"}.write(t, sp.Dir)
		if err := os.Chmod(filepath.Join(sp.Dir, "locked"), 0); err != nil {
			t.Fatal(err)
		}
		left = append(left, "locked")
	}
	tree{"x": "1"}.write(t, sp.Dir)
	d, err := sp.Diff(t.Context())
	slices.Sort(d.Left)
	slices.Sort(left)
	if err != nil || !slices.Equal(d.Left, left) {
		t.Errorf("it differs by %+v, %v", d, err)
	}
	out := mustClose(t, sp, Merge)
	if out.End != Merge || !strings.Contains(out.Why, "cannot be committed") {
		t.Errorf("the outcome is %+v", out)
	}
	if _, err := os.Lstat(filepath.Join(sp.Dir, "was a file")); err != nil {
		t.Error(err)
	}
}
