package server

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/api"
)

// counting counts what is flushed.
type counting struct {
	*httptest.ResponseRecorder
	flushes int
}

func (c *counting) Flush() { c.flushes++ }

func TestEventsThatAreThereAreWrittenTogether(t *testing.T) {
	items := make(chan item, maxQueue)
	for seq := range uint64(maxQueue) {
		items <- item{event: api.Event{Seq: seq + 1, Data: []byte("{}")}}
	}
	close(items)
	w := &counting{ResponseRecorder: httptest.NewRecorder()}
	h := &handlers{gate: newGate()}
	if err := h.relay(t.Context(), w, "", items); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(w.Body.String(), "data: {}\n\n"); got != maxQueue+1 || w.flushes != 1 {
		t.Errorf("%d events in %d flushes, want %d in one", got, w.flushes, maxQueue+1)
	}
}

func TestBatchIsBounded(t *testing.T) {
	items := make(chan item, 10)
	for range 9 {
		items <- item{event: api.Event{Data: []byte(strings.Repeat("x", maxBatch/2))}}
	}
	s := &stream{}
	if err := s.gather(<-items, true, items); err != nil || s.buf.Len() > 2*maxBatch {
		t.Errorf("%d bytes at once, %v", s.buf.Len(), err)
	}
}

func TestErrorBehindEventsIsPartOfTheStream(t *testing.T) {
	items := make(chan item, 2)
	items <- item{event: api.Event{Seq: 1, Data: []byte("{\r\n}")}}
	items <- item{err: errors.New("disk full")}
	w := httptest.NewRecorder()
	h := &handlers{log: slog.New(slog.DiscardHandler), gate: newGate()}
	if err := h.relay(t.Context(), w, "", items); err != nil {
		t.Fatal(err)
	}
	want := "id: 1\ndata: {\ndata: \ndata: }\n\nevent: error\ndata: {\"type\":\"about:blank\",\"title\":\"Internal Server Error\",\"status\":500,\"detail\":\"disk full\"}\n\n"
	if got := w.Body.String(); got != want || w.Code != http.StatusOK {
		t.Errorf("got %d %q\nwant %q", w.Code, got, want)
	}
}
