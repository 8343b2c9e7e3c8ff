package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// Of an event that cannot be stored who says it is told, also before the beginning of
// its attempt is in the log, and what others said is not lost with it.
func TestEarlyEventThatCannotBeStored(t *testing.T) {
	h := &host{begun: make(chan struct{}), told: map[string]bool{}}
	fields := map[string]int{}
	for i := range 50_000 {
		fields[fmt.Sprintf("a field with a name of its own, %d", i)] = i
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Append(t.Context(), &nestor.ProviderMessage{Raw: raw}); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("it is told %v", err)
	}
	if err := h.Append(t.Context(), &nestor.ChatStart{Message: "hello"}); err != nil || len(h.early) != 1 {
		t.Errorf("%d events wait, %v", len(h.early), err)
	}
}

// What was early and could not be written is no success, though nothing is said
// behind it.
func TestEarlyEventsThatAreLost(t *testing.T) {
	h := &host{begun: make(chan struct{}), wrote: true, lost: errors.New("no log"), told: map[string]bool{}}
	close(h.begun)
	if err := h.finish(t.Context(), nestor.Result{}); err != h.lost {
		t.Errorf("the end of the run is told %v", err)
	}
	if err := h.Append(t.Context(), &nestor.ChatStart{Message: "hello"}); err != h.lost {
		t.Errorf("who says more is told %v", err)
	}
}
