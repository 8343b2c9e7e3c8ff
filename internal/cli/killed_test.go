package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/soak"
)

// A project whose first commands were killed, wherever they were, is as good as new: the
// next one works, and what was recorded by then gets to its end.
func TestFirstCommandsOutliveKills(t *testing.T) {
	rounds := soak.Of(2, 100)
	base := t.TempDir()
	nestor := func(ctx context.Context, dir string, args ...string) (string, error) {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, "nestor", args...) // which kills it
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, []string{"HOME=" + base, "TMPDIR=" + base, quickExit}, &stdout, &stderr
		err := cmd.Run()
		if err != nil && ctx.Err() == nil {
			t.Logf("nestor %q: %v\n%s", args, err, stderr.String())
		}
		return stdout.String(), err
	}
	run := []string{"run", "-q", "--provider", "scripted", "hello"}
	lasts := time.Duration(0) // of one that is left alone
	for i := range rounds {
		dir := filepath.Join(base, strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if lasts > 0 {
				ctx, stop := context.WithTimeout(t.Context(), rand.N(lasts))
				nestor(ctx, dir, run...)
				stop()
			}
		}
		began := time.Now()
		if out, err := nestor(t.Context(), dir, run...); err != nil || strings.TrimSpace(out) != "you said: hello" {
			t.Fatalf("round %d: it says %q, %v", i, out, err)
		}
		if lasts == 0 {
			lasts = time.Since(began)
		}
		out, err := nestor(t.Context(), dir, "runs", "list", "--json")
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		var list struct{ Runs []struct{ State string } }
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Runs) == 0 {
			t.Fatalf("round %d: %v in %s", i, err, out)
		}
		for _, is := range list.Runs {
			if is.State != "success" {
				t.Errorf("round %d: one is %s", i, is.State)
			}
		}
	}
}
