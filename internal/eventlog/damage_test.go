package eventlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/broker"
)

// A block in the middle of the stream is not looked at when the broker is
// opened after a clean end. Who reads it is told.
func TestFlippedBitIsAnErrorToItsReader(t *testing.T) {
	at := embedded(t)
	l, closeAll := at.openBroker(t, Options{})
	ctx := soon(t)
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	for i := range n {
		if err := w.write(ctx, event("%d %s", i, strings.Repeat("x", 20_000))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	closeAll()
	blocks, err := filepath.Glob(filepath.Join(at.options.Dir, "jetstream", "*", "streams", broker.Events, "msgs", "*.blk"))
	if err != nil || len(blocks) < 3 {
		t.Fatal(blocks, err)
	}
	text, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(blocks[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	l = at.open(t, Options{})
	seen := 0
	for _, err := range l.Read(ctx, Filter{}, 0) {
		if err != nil {
			var gap *GapError
			if !errors.As(err, &gap) || gap.Want != uint64(seen) {
				t.Errorf("after %d events: %v", seen, err)
			}
			return
		}
		seen++
	}
	t.Errorf("%d of %d events and no error", seen, n)
}
