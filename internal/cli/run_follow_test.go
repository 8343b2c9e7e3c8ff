package cli

import (
	"bufio"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dfaf701a/nestor"
)

// writes takes down what is written at once, until it fails.
type writes struct {
	list []string
	err  error
}

func (w *writes) Write(text []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.list = append(w.list, string(text))
	return len(text), nil
}

// Events that came at once are written at once, each in a line of its own, and the last
// of them is not kept back.
func TestEventsThatComeAtOnce(t *testing.T) {
	var out writes
	f := &following{opts: runOptions{stream: true}, lines: bufio.NewWriter(&out), view: newView(&strings.Builder{}, viewOptions{})}
	for i, more := range []bool{true, true, false, false} {
		if err := f.show(&nestor.ChatStart{Header: nestor.Header{Seq: uint64(i + 1)}, Message: "hello"}, more); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(text string) int { return strings.Count(text, "\n") }
	var got []int
	for _, text := range out.list {
		got = append(got, lines(text))
	}
	if !slices.Equal(got, []int{3, 1}) || f.seen != 4 {
		t.Errorf("lines of each write: %d, want 3 and then 1; seen up to %d, want 4", got, f.seen)
	}
	// Whoever else writes to the same file does not tear a line.
	for i := range 30 {
		if err := f.show(&nestor.ChatStart{Message: strings.Repeat("long ", 1+100*(i%20))}, i < 29); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range out.list {
		if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}\n") {
			t.Errorf("write %d of %d has no whole lines: %.20s … %s", i, len(out.list), text, text[max(0, len(text)-20):])
		}
	}
	out.err = syscall.EPIPE
	if err := f.show(&nestor.ChatStart{}, false); err != syscall.EPIPE {
		t.Errorf("nobody reads: %v, want %v", err, syscall.EPIPE)
	}
}
