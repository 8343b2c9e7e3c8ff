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
