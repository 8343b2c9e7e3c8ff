package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

const (
	// firstSign is how long a stream waits for its first event before it
	// begins: until then an error can still have a status of its own.
	firstSign = time.Second
	// nextSign is how often a stream that has nothing to say shows that it
	// lives.
	nextSign = 15 * time.Second
	// maxBatch is how much is written at once, about.
	maxBatch = 64 << 10
	// maxQueue is how many events wait for a reader that is slower than the
	// backend.
	maxQueue = 64
)

// item is what a backend yields.
type item struct {
	event api.Event
	err   error
}

// events answers with server-sent events.
func (h *handlers) events(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodHead { // net/http takes it for GET, and nobody would read the stream
		w.Header().Set("Allow", http.MethodGet)
		return problem(http.StatusMethodNotAllowed, "method HEAD: a stream takes GET")
	}
	id, err := runID(r)
	p := readParameters(r)
	q := p.eventsQuery(r.Header.Get("Last-Event-ID"))
	if err := firstError(err, p.done()); err != nil {
		return err
	}
	ctx, stop := h.gate.untilEnding(r.Context())
	var pulling sync.WaitGroup
	defer pulling.Wait()
	defer stop()
	items := make(chan item, maxQueue) // pull sends and closes, this function receives
	pulling.Go(func() { h.pull(ctx, id, q, items) })
	return h.relay(ctx, w, id, items)
}

// pull hands on what the backend yields, until ctx ends.
func (h *handlers) pull(ctx context.Context, id nestor.ID, q api.EventsQuery, items chan<- item) {
	defer close(items)
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("stream panicked", "run", id, "panic", p, "stack", string(debug.Stack()))
			select {
			case items <- item{err: errPanicked}:
			case <-ctx.Done():
			}
		}
	}()
	for e, err := range h.backend.Events(ctx, id, q) {
		select {
		case items <- item{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// relay writes what is there at once, and waits for more. Only while nothing
// is written does it return an error.
func (h *handlers) relay(ctx context.Context, w http.ResponseWriter, id nestor.ID, items <-chan item) error {
	s := &stream{w: w, control: http.NewResponseController(w)}
	sign := time.NewTimer(firstSign)
	defer sign.Stop()
	for {
		var err error
		select {
		case it, more := <-items:
			err = s.gather(it, more, items)
		case <-sign.C:
			s.buf.WriteString(":\n\n")
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx) // a backend whose context ends may say anything
			}
			if !s.begun && s.buf.Len() == 0 && !errors.Is(err, errEnd) {
				return err
			}
			h.conclude(ctx, s, id, err)
		}
		if s.flush() != nil || err != nil {
			return nil // what fails is the connection
		}
		sign.Reset(nextSign)
	}
}

// conclude adds the last event of a stream.
func (h *handlers) conclude(ctx context.Context, s *stream, id nestor.ID, err error) {
	if errors.Is(err, errEnd) {
		s.add("end", 0, []byte("{}"))
		return
	}
	reply := problemOf(ctx, err)
	if reply == nil {
		return // nobody is there to read it
	}
	if reply.Status == http.StatusInternalServerError {
		h.log.Error("stream failed", "run", id, "error", err)
	}
	data, err := json.Marshal(filled(reply))
	if err != nil {
		return // the reader sees that there was no end
	}
	s.add("error", 0, data)
}

// errEnd says that all was said.
var errEnd = errors.New("all was said")

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer // what the next flush writes
	begun   bool
}

// gather adds an item and those that are there already. It fails with the
// error among them, or errEnd.
func (s *stream) gather(it item, more bool, items <-chan item) error {
	for {
		switch {
		case !more:
			return errEnd
		case it.err != nil:
			return it.err
		}
		s.add("", it.event.Seq, it.event.Data)
		if s.buf.Len() >= maxBatch {
			return nil
		}
		select {
		case it, more = <-items:
		default:
			return nil
		}
	}
}

// add adds an event. One of no kind is an event of a run. Ends of lines in
// data, which JSON has only between its parts, become LF.
func (s *stream) add(kind string, seq uint64, data []byte) {
	if kind != "" {
		s.buf.WriteString("event: " + kind + "\n")
	}
	if seq != 0 {
		s.buf.WriteString("id: ")
		s.buf.Write(strconv.AppendUint(s.buf.AvailableBuffer(), seq, 10))
		s.buf.WriteByte('\n')
	}
	for {
		s.buf.WriteString("data: ")
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			break
		}
		s.buf.Write(data[:end])
		s.buf.WriteByte('\n')
		data = data[end+1:]
	}
	s.buf.Write(data)
	s.buf.WriteString("\n\n")
}

// flush sends what was added. It fails when the reader is gone, or does not
// take it in time.
func (s *stream) flush() error {
	if !s.begun {
		s.begun = true
		header := s.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-store")
		s.w.WriteHeader(http.StatusOK)
	}
	s.control.SetWriteDeadline(time.Now().Add(writeTime)) // what cannot has no connection that could hang
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return fmt.Errorf("writing to a stream: %w", err)
	}
	if s.buf.Cap() > 4*maxBatch {
		s.buf = bytes.Buffer{} // one large event is no reason to hold on to its memory
	}
	return s.control.Flush()
}
