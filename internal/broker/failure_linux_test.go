package broker

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dfaf701a/nestor/internal/soak"
)

// small mounts a file system of its own, or skips.
func small(t *testing.T, size string) string {
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

func TestReadOnlyFolder(t *testing.T) {
	var dir string
	if os.Getuid() == 0 {
		dir = small(t, "4m")
		mustClose(t, mustOpen(t, Options{Dir: filepath.Join(dir, "used")}))
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	} else {
		dir = t.TempDir()
		mustClose(t, mustOpen(t, Options{Dir: filepath.Join(dir, "used")}))
		for _, name := range []string{"used", "."} {
			if err := os.Chmod(filepath.Join(dir, name), 0o500); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(filepath.Join(dir, name), 0o700)
		}
	}
	for _, name := range []string{"new", "used"} {
		if _, err := Open(soon(t), Options{Dir: filepath.Join(dir, name)}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	dir := filepath.Join(small(t, "12m"), "broker")
	c := start(t, "write", dir, "SIZE=100000")
	var last uint64
	for c.out.Scan() {
		last, _ = strconv.ParseUint(c.out.Text(), 10, 64)
	}
	text, failed := c.wait()
	if !failed || !strings.Contains(text, dir) || !strings.Contains(text, "no space left") || !strings.Contains(text, "free space") {
		t.Errorf("the writer said %q after %d messages", text, last)
	}
	if last == 0 {
		t.Fatal("nothing was acknowledged")
	}
	// Full as it is, opening either works or says why.
	b, err := Open(soon(t), Options{Dir: dir})
	if err == nil {
		b.Close()
	} else if !strings.Contains(err.Error(), dir) {
		t.Errorf("opening: %v", err)
	}
	// With space everything that was acknowledged is there.
	if err := syscall.Mount("", filepath.Dir(dir), "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, Options{Dir: dir})
	s, err := b.JetStream().Stream(soon(t), Events)
	if err != nil {
		t.Fatal(err)
	}
	if state := s.CachedInfo().State; state.LastSeq < last || state.Msgs != state.LastSeq {
		t.Errorf("%d messages to %d; %d were acknowledged", state.Msgs, state.LastSeq, last)
	}
	publish(t, b, "event.a.b", 1)
}

// released waits until nobody has a file system any more that was unmounted. One who
// made a mount namespace of his own meanwhile keeps it for a moment, and it would
// be mounted again as it is.
func released(t *testing.T, image string) {
	t.Helper()
	for ctx := soon(t); ; {
		out, err := exec.Command("losetup", "-j", image).Output()
		if err != nil || len(bytes.TrimSpace(out)) == 0 {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("somebody keeps the file system: %s", out)
		}
	}
}

// A power cut is an ext4 file system that is shut down without writing
// anything more, not even its journal, and mounted again.
func TestAcknowledgedSurvivesPowerCut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system that can be cut off needs root")
	}
	rounds := soak.Of(1, 5)
	run := func(name string, args ...string) error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
		}
		return nil
	}
	image, mounted := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 128<<20); err != nil {
		t.Fatal(err)
	}
	if err := run("mkfs.ext4", "-q", image); err != nil {
		t.Skip(err)
	}
	if err := run("mount", "-o", "loop", image, mounted); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := run("umount", mounted); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(mounted, "broker")
	for range rounds {
		c := start(t, "write", dir)
		var last uint64
		for range 500 {
			line := c.line()
			if line == "" {
				text, _ := c.wait()
				t.Fatal(text)
			}
			last, _ = strconv.ParseUint(line, 10, 64)
		}
		// Which were acknowledged before the cut is known of those that were
		// printed; more may be.
		cutPower(t, mounted)
		c.kill()
		c.wait()
		if err := run("umount", mounted); err != nil {
			t.Fatal(err)
		}
		released(t, image)
		if err := run("mount", "-o", "loop", image, mounted); err != nil {
			t.Fatal(err)
		}
		b := mustOpen(t, Options{Dir: dir})
		s, err := b.JetStream().Stream(soon(t), Events)
		if err != nil {
			t.Fatal(err)
		}
		if state := s.CachedInfo().State; state.LastSeq < last || state.Msgs != state.LastSeq {
			t.Errorf("%d messages to %d; %d were acknowledged", state.Msgs, state.LastSeq, last)
		}
		mustClose(t, b)
	}
}

func cutPower(t *testing.T, mounted string) {
	t.Helper()
	const (
		ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush   = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	d, err := os.Open(mounted)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), ext4Shutdown, noLogFlush); err != nil {
		t.Skip("cutting the file system off:", err)
	}
}
