package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"strconv"
	"time"

	"github.com/dfaf701a/nestor"
)

const eventStream = "text/event-stream"

// maxEvent bounds one event of a stream.
const maxEvent = 16 << 20

// silence is how long a daemon that lives says nothing, at most: it sends a
// sign of life every 15 seconds.
const silence = time.Minute

var errSilent = fmt.Errorf("%w: it said nothing for %v", ErrDisconnected, silence)

// Events yields the events of a run, in order, each with its position; what is
// live only has none. It ends by itself when all that q chooses was said.
//
// Every range over it asks anew. An error is the last thing yielded; breaking
// out closes the connection. An error that wraps [ErrDisconnected] means that
// there may be more: ask again with After set to the last position.
func (c *Client) Events(ctx context.Context, id nestor.ID, q EventsQuery) iter.Seq2[nestor.Event, error] {
	return func(yield func(nestor.Event, error) bool) {
		ctx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		resp, err := c.open(ctx, request{path: runPath(id, "/events"), query: q.Values(), accept: eventStream})
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != eventStream {
			yield(nil, fmt.Errorf("events of run %s: the answer is %.60q instead of %s; does a daemon listen there?", id, media, eventStream))
			return
		}
		watch := time.AfterFunc(silence, func() { cut(errSilent) })
		defer watch.Stop()
		stream := newStream(&heard{resp.Body, watch})
		for {
			watch.Reset(silence)
			e, err := stream.next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case errors.Is(err, errBody):
				err = disconnected(ctx, err)
			}
			watch.Stop() // whoever is handed the event may take their time
			if err != nil {
				yield(nil, fmt.Errorf("events of run %s: %w", id, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// heard puts a watch back whenever something is read.
type heard struct {
	body  io.Reader
	watch *time.Timer
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.body.Read(p)
	if n > 0 {
		h.watch.Reset(silence)
	}
	return n, err
}

// errBody marks an error of the connection, as opposed to one of what came
// through it.
var errBody = errors.New("reading the stream")

// stream reads server-sent events. Lines end in LF or CRLF.
type stream struct {
	r    *bufio.Reader
	line []byte // of a line that is longer than r's buffer
	data []byte // of the event that is being read
}

func newStream(r io.Reader) *stream { return &stream{r: bufio.NewReaderSize(r, 32<<10)} }

// next returns the next event. It fails with io.EOF at the end that the server
// announces, with the *Problem that it reports, with errBody when there is no
// more although neither came, and otherwise with what is wrong with the event.
func (s *stream) next() (nestor.Event, error) {
	s.data = s.data[:0]
	var kind string
	var seq uint64
	var some bool // there is data
	for {
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 { // the event is complete
			if e, err := s.dispatch(kind, seq, some); e != nil || err != nil {
				return e, err
			}
			s.data, kind, seq, some = s.data[:0], "", 0, false
			continue
		}
		name, value := cutField(line)
		switch name {
		case "event":
			if len(value) > 100 {
				value = value[:100] // none that is known
			}
			kind = string(value)
		case "id":
			if seq, err = strconv.ParseUint(string(value), 10, 64); err != nil {
				return nil, fmt.Errorf("id %.40q: want a position", value)
			}
		case "data":
			if len(s.data)+len(value) > maxEvent {
				return nil, errTooLong
			}
			if some {
				s.data = append(s.data, '\n')
			}
			s.data, some = append(s.data, value...), true
		}
	}
}

// dispatch returns what a complete event says; neither an event nor an error
// if that is nothing.
func (s *stream) dispatch(kind string, seq uint64, some bool) (nestor.Event, error) {
	switch kind {
	case "", "message":
		if !some {
			return nil, nil
		}
		e, err := nestor.DecodeEvent(s.data)
		if err != nil {
			return nil, err
		}
		e.Head().Seq = seq
		return e, nil
	case "end":
		return nil, io.EOF
	case "error":
		p := new(Problem)
		if err := json.Unmarshal(s.data, p); err != nil {
			return nil, fmt.Errorf("problem %.80q: %w", s.data, err)
		}
		return nil, p
	}
	return nil, nil // of a newer daemon
}

var errTooLong = fmt.Errorf("an event is longer than %d bytes", maxEvent)

// readLine returns the next line without its end. It is good until the next
// call.
func (s *stream) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		part, err := s.r.ReadSlice('\n')
		if len(s.line)+len(part) > maxEvent+len("data: \r\n") {
			return nil, errTooLong
		}
		switch {
		case err == nil && len(s.line) == 0:
			return trimEnd(part), nil
		case err == nil:
			s.line = append(s.line, part...)
			return trimEnd(s.line), nil
		case errors.Is(err, bufio.ErrBufferFull):
			s.line = append(s.line, part...)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: %w", errBody, io.ErrUnexpectedEOF)
		default:
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
	}
}

func trimEnd(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// cutField splits "name: value". A comment has no name.
func cutField(line []byte) (name string, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return string(line[:min(i, 10)]), value
		}
	}
	return string(line[:min(len(line), 10)]), nil
}
