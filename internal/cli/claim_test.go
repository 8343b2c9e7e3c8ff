package cli

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A project is known from its first command on, also if one before was killed while it made
// the project's id, and if several come at once.
func TestProjectIsKnown(t *testing.T) {
	for _, killed := range []string{"never", "with an empty id", "before it took note of it"} {
		t.Run(killed, func(t *testing.T) {
			home, known := filepath.Join(t.TempDir(), ".nestor"), filepath.Join(t.TempDir(), "projects", "p")
			if err := os.MkdirAll(filepath.Join(home), 0o700); err != nil {
				t.Fatal(err)
			}
			if killed != "never" {
				left := ""
				if killed == "before it took note of it" {
					left = "AN_ID\n"
				}
				if err := os.WriteFile(filepath.Join(home, "id"), []byte(left), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if err := acquaint(home, known); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if err := os.Mkdir(filepath.Join(home, "broker"), 0o700); err != nil {
				t.Fatal(err)
			}
			if strange, err := foreign(home, known); err != nil || strange {
				t.Errorf("it is strange: %t, %v", strange, err)
			}
			if left, err := filepath.Glob(filepath.Join(home, ".id-*")); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			if err := os.Remove(known); err != nil {
				t.Fatal(err)
			}
			if strange, err := foreign(home, known); err != nil || !strange {
				t.Errorf("what the user's folder does not know is strange: %t, %v", strange, err)
			}
		})
	}
}
