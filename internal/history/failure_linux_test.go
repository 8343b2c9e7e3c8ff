package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dfaf701a/nestor/internal/eventlog"
)

// mounted is a file system of its own, or skips.
func mounted(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mounting a tmpfs:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAReadOnlyFolderIsNamed(t *testing.T) {
	dir := mounted(t, "4m")
	used := filepath.Join(dir, "history.db")
	h, err := Open(soon(t), Options{Path: used})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{used, filepath.Join(dir, "new.db"), filepath.Join(dir, "new", "history.db")} {
		for _, accept := range []bool{false, true} {
			_, err := Open(soon(t), Options{Path: path, AcceptDamage: accept})
			if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "writable") {
				t.Errorf("%s: got %v", path, err)
			}
		}
	}
}

// A disk that fills up stops the writing, not the reading; when there is room
// again it goes on where it was.
func TestAFullDiskLosesNothing(t *testing.T) {
	dir := mounted(t, "16m")
	h := mustOpen(t, filepath.Join(dir, "history.db"))
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	events := some(t, 1, 4000, 1000)
	var err error
	n := 0
	for ; n < len(events) && err == nil; n += 100 {
		err = h.add(soon(t), events[n:n+100])
	}
	if err == nil {
		t.Fatal("the disk did not fill up")
	}
	if err := h.explain(err); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), h.path) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("got %v", err)
	}
	at, err := h.Projected(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if at != eventlog.Position(n-100) {
		t.Errorf("projected up to %d, and %d were acknowledged", at, n-100)
	}
	got, _ := stored(t, h)
	sameEvents(t, got, events[:n-100])
	if err := h.Backup(soon(t), filepath.Join(dir, "backup.db")); err == nil {
		t.Error("a backup found room")
	} else if _, err := os.Stat(filepath.Join(dir, "backup.db")); err == nil {
		t.Error("half a backup was left")
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := h.add(soon(t), events[:n+500]); err != nil {
		t.Fatal(err)
	}
	got, _ = stored(t, h)
	sameEvents(t, got, events[:n+500])
	if err := h.Check(soon(t)); err != nil {
		t.Error(err)
	}
}
