package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent/scripted"
)

// A daemon that ends in order notes that nothing is left undone, of the change that
// was the last; one that is killed leaves the note of before, which is void.
func TestADaemonThatEndsNotesThatNothingIsLeft(t *testing.T) {
	s := settings{Dir: t.TempDir(), Provider: scripted.Type}
	run := func(end func(*process)) string {
		t.Helper()
		p := s.start(t)
		client := s.client(t)
		ended, err := client.Wait(t.Context(), submit(t, client, nestor.Task{Input: "hello"}))
		if err != nil || ended.State != nestor.Success {
			t.Errorf("the run is %s, %v", ended.State, err)
		}
		end(p)
		note, err := os.ReadFile(filepath.Join(s.Dir, ".nestor", "settled"))
		if err != nil {
			t.Fatal(err)
		}
		return string(note)
	}
	stop := func(p *process) { p.stop(t) }
	first := run(stop)
	second := run(stop)
	if first == "" || second == "" || first == second {
		t.Errorf("after a run it says %q, and after another %q", first, second)
	}
	if third := run((*process).kill); third != second {
		t.Errorf("one that was killed says %q; before it was %q", third, second)
	}
}
