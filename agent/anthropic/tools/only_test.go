package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that is granted is granted alone: not what is beside it, and not its
// folder.
func TestGrantedFileIsGrantedAlone(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "STATE.md")
	for _, name := range []string{state, filepath.Join(dir, "agent.md")} {
		if err := os.WriteFile(name, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Options{Dir: t.TempDir(), Files: []string{state}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if p, err := s.inside(state, true); err != nil || p.rel != "STATE.md" {
		t.Errorf("the file itself: %+v, %v", p, err)
	}
	for _, name := range []string{dir, filepath.Join(dir, "agent.md"), state + "/x", filepath.Join(dir, "sub", "STATE.md")} {
		if _, err := s.inside(name, false); err == nil || !strings.Contains(err.Error(), "outside of the folders") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "agent.md"), state); err != nil {
		t.Fatal(err)
	}
	if _, err := s.inside(state, true); err == nil {
		t.Error("a link in its place was followed")
	}
}
