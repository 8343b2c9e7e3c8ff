package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dfaf701a/nestor/internal/broker"
)

// Position is the place of an event in the log. It grows with every event over
// all runs, and stays what it is. Zero is before the first.
//
// It is the sequence of the event's chunk in the stream, shifted by 12 bits, and
// the index in the chunk. With 41 bits for the sequence it is exact as a
// number in JavaScript: at 6,500 chunks a second that lasts ten years.
type Position uint64

const (
	indexBits = 12
	maxEvents = 1 << indexBits // in a chunk
	maxSeq    = 1<<(53-indexBits) - 1
)

func position(seq uint64, index int) Position { return Position(seq<<indexBits | uint64(index)) }

// upTo is the position of the last event that the chunk seq could hold.
func upTo(seq uint64) Position { return position(seq, maxEvents-1) }

// seq is the sequence of the event's chunk.
func (p Position) seq() uint64 { return uint64(p) >> indexBits }

// chunk is a message of the stream: events of one run that were stored
// together. As bytes it is a line with
//
//	1 n fence mark writer count
//
// in which 1 is the version of this form, n the number in its run of the
// first event, fence the highest of the run's writers up to here, mark the
// highest of Once up to here, writer a name that no other has, count the number
// of events; and a line for each event. It
// is read by people as it is, and cut by looking for ends of lines.
type chunk struct {
	root, run string
	seq       uint64

	n      uint64
	fence  uint64
	mark   uint64
	writer string
	events [][]byte
	size   int // of the message
}

const chunkVersion = '1'

// maxChunk bounds the message. Half of what the broker takes leaves room for
// headers.
const maxChunk = broker.MaxDocument / 2

func (c *chunk) encode() []byte {
	buf := make([]byte, 0, c.size+64)
	buf = append(buf, chunkVersion, ' ')
	buf = strconv.AppendUint(buf, c.n, 10)
	buf = append(buf, ' ')
	buf = strconv.AppendUint(buf, c.fence, 10)
	buf = append(buf, ' ')
	buf = strconv.AppendUint(buf, c.mark, 10)
	buf = append(buf, ' ')
	buf = append(buf, c.writer...)
	buf = append(buf, ' ')
	buf = strconv.AppendInt(buf, int64(len(c.events)), 10)
	buf = append(buf, '\n')
	for _, e := range c.events {
		buf = append(buf, e...)
		buf = append(buf, '\n')
	}
	return buf
}

// decode reads a message. The events are parts of data.
func decode(subject string, seq uint64, data []byte) (*chunk, error) {
	c, err := decodeChunk(subject, data)
	if err != nil {
		return nil, &badChunk{fmt.Errorf("chunk %d of the log on subject %.200q: %w", seq, subject, err)}
	}
	if seq == 0 || seq > maxSeq {
		return nil, &badChunk{fmt.Errorf("chunk %d of the log: its sequence is out of range", seq)}
	}
	c.seq = seq
	return c, nil
}

// badChunk is an error that reading again does not heal.
type badChunk struct{ error }

func decodeChunk(subject string, data []byte) (*chunk, error) {
	c := &chunk{size: len(data)}
	rest, ok := strings.CutPrefix(subject, broker.EventSubject)
	if !ok {
		return nil, errors.New("subject is none of the log's")
	}
	c.root, c.run, _ = strings.Cut(rest, ".")
	if err := errors.Join(checkID("root", c.root), checkID("run", c.run)); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte{chunkVersion, ' '}) {
		return nil, fmt.Errorf("it begins with %.20q: a newer nestor may have written it", data)
	}
	line, body, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return nil, errors.New("its first line does not end")
	}
	fields := strings.Split(string(line), " ")
	if len(fields) != 6 || fields[4] == "" {
		return nil, fmt.Errorf("first line %.100q has not six parts", line)
	}
	var err error
	if c.n, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return nil, err
	}
	if c.fence, err = strconv.ParseUint(fields[2], 10, 64); err != nil {
		return nil, err
	}
	if c.mark, err = strconv.ParseUint(fields[3], 10, 64); err != nil {
		return nil, err
	}
	c.writer = fields[4]
	count, err := strconv.Atoi(fields[5])
	if err != nil || count < 1 || count > maxEvents || count > len(body) || c.n+uint64(count) < c.n {
		return nil, fmt.Errorf("first line %.100q counts %d events", line, count)
	}
	c.events = make([][]byte, count)
	for i := range c.events {
		end := bytes.IndexByte(body, '\n')
		if end < 0 {
			return nil, fmt.Errorf("it ends after %d of %d events", i, count)
		}
		c.events[i], body = body[:end:end], body[end+1:]
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%d bytes follow its %d events", len(body), count)
	}
	return c, nil
}

// next is the number of the run's next event.
func (c *chunk) next() uint64 { return c.n + uint64(len(c.events)) }

func (c *chunk) event(i int) Event {
	return Event{Position: position(c.seq, i), Root: c.root, Run: c.run, N: c.n + uint64(i), Data: c.events[i]}
}

// oneLine checks an event and returns it without ends of lines, which JSON has
// between its tokens only.
func oneLine(event json.RawMessage) ([]byte, error) {
	if err := checkSize(event); err != nil {
		return nil, err
	}
	switch {
	case !json.Valid(event):
		return nil, fmt.Errorf("event %.80q is not JSON", event)
	case bytes.IndexByte(event, '\n') < 0 && bytes.IndexByte(event, '\r') < 0:
		return bytes.Clone(event), nil
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, event); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func oneLineEach(events []json.RawMessage) (lines [][]byte, err error) {
	lines = make([][]byte, len(events))
	for i, e := range events {
		if lines[i], err = oneLine(e); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// checkSize refuses an event that is too large.
func checkSize(event []byte) error {
	if len(event) > MaxEvent {
		return fmt.Errorf("event of %d bytes: %w: at most %d can be appended; put what is large in a blob", len(event), ErrTooLarge, MaxEvent)
	}
	return nil
}
