//go:build unix

package workspace

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe would be waited for, for ever.
func TestCopyLeavesPipesOut(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), from, to, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, to); len(got) != 0 {
		t.Errorf("the copy holds %v", got)
	}
}
