package tools

import (
	"os"
	"path/filepath"
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
			if stillNamed(root, "file", f) {
				t.Error("it is taken for a file of the folder alone")
				single += rounds() // a few of them are enough
			}
		}
		f.Close()
	}
	t.Logf("%d such moments in %d tries", single, tries)
}
