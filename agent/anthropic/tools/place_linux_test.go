package tools

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A file outside that has one link left, since the one inside is being removed, is not
// taken for one that is inside alone. The kernel counts first and removes then, which
// takes it some microseconds.
func TestLinkThatIsBeingRemoved(t *testing.T) {
	_, dir, outside := fenced(t, Options{})
	name, next := filepath.Join(dir, "file"), filepath.Join(dir, "next")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	secret, err := os.Stat(filepath.Join(outside, "file"))
	if err != nil {
		t.Fatal(err)
	}
	stop := race(t, func() {
		os.Link(filepath.Join(outside, "file"), name)
		os.Remove(name)
		os.Link(filepath.Join(outside, "file"), name)
		os.WriteFile(next, nil, 0o600)
		os.Rename(next, name)
		os.Remove(name)
	})
	defer stop()
	single, tries := 0, 0
	for ; single < 4*rounds() && tries < 1000*rounds(); tries++ {
		f, err := root.Open("file")
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && os.SameFile(info, secret) && hardLinks(info) == 1 {
			single++
			if checkName(root, "file", f) == nil {
				t.Error("it is taken for a file of the folder alone")
				single += rounds() // a few of them are enough
			}
		}
		f.Close()
	}
	t.Logf("%d such moments in %d tries", single, tries)
}

// A file in a folder that may be entered and not read is not read either, and who wants
// it hears why.
func TestFolderThatCannotBeRead(t *testing.T) {
	s, dir, _ := fenced(t, Options{})
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Chmod(dir, 0o111); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	const nobody = 65534 // root may read everything
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(os.Geteuid()), 0, 0)
	if os.Geteuid() == 0 {
		syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0) // of this thread alone
	}
	f, _, err := s.openIn(root, "file", "file")
	if err == nil {
		f.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "folder must be readable") {
		t.Errorf("got %v", err)
	}
}
