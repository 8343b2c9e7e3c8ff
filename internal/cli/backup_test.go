package cli_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dfaf701a/nestor/internal/history"
)

func TestBackupIsAHistory(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"run", "-q", "--provider", "scripted", "hello"}, {"history", "backup", "copy.db"}} {
		cmd := exec.CommandContext(t.Context(), "nestor", args...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "TMPDIR=" + dir, quickExit}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nestor %q: %v\n%s", args, err, out)
		}
	}
	h, err := history.Open(t.Context(), history.Options{Path: filepath.Join(dir, "copy.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Check(t.Context()); err != nil {
		t.Error(err)
	}
	runs, err := h.Runs(t.Context(), history.Query{})
	if err != nil || len(runs) != 1 || runs[0].Title != "hello" || !runs[0].State.Ended() {
		t.Errorf("it holds %+v, %v", runs, err)
	}
}
