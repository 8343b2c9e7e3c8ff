package spawn_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/internal/spawn"
)

func TestLongResultsAreCutAtABoundary(t *testing.T) {
	lines := strings.Repeat("one line of a result\n", 100)
	got, cut := spawn.Bound(lines, 1000, "the whole is in r.json")
	head, note, found := strings.Cut(got, "\n[")
	if !cut || len(got) > 1000 || !found || !strings.HasSuffix(head, "result") || note != "cut here: the whole is in r.json]" {
		t.Errorf("it is cut: %q", got)
	}
	got, cut = spawn.Bound(strings.Repeat("ü", 1000), 500, "there")
	if !cut || !utf8.ValidString(got) || len(got) > 500 || !strings.Contains(got, "üü\n[cut") {
		t.Errorf("without lines it is cut: %q", got)
	}
	if got, cut := spawn.Bound("short", 5, "there"); cut || got != "short" {
		t.Errorf("what fits is %q", got)
	}
}

func FuzzBound(f *testing.F) {
	f.Add("a\nb\nc", 3)
	f.Add("üüüü", 5)
	f.Add(strings.Repeat("x\n", 100), 80)
	f.Fuzz(func(t *testing.T, text string, max int) {
		if max < 0 || max > 1<<16 {
			return
		}
		got, cut := spawn.Bound(text, max, "there")
		if cut != (len(text) > max) || len(got) > max || !cut && got != text || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes is %q, %v", text, max, got, cut)
		}
	})
}
