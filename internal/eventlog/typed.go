package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
)

// Once stores events of one run, in the order given, unless the run has events of
// this mark or a higher one. It returns when they are durable. See
// [Writer.Once].
func (l *Log) Once(ctx context.Context, mark uint64, events ...nestor.Event) error {
	return l.OnceEach(ctx, []uint64{mark}, [][]nestor.Event{events})
}

// OnceEach is Once for several marks of one run, which grow: marks[i] is that of
// events[i]. They are in one chunk if they fit.
func (l *Log) OnceEach(ctx context.Context, marks []uint64, events [][]nestor.Event) error {
	if len(events[0]) == 0 {
		return nil
	}
	head := events[0][0].Head()
	groups := make([]group, len(marks))
	for i, mark := range marks {
		lines, err := fitEach(events[i])
		if err != nil {
			return fmt.Errorf("appending to run %s: %w", head.Run, err)
		}
		groups[i] = group{mark, lines}
	}
	w, err := l.sharedWriter(string(head.Root), string(head.Run), marks[0] == 1)
	if err != nil {
		return fmt.Errorf("appending to the log: %w", err)
	}
	_, err = w.append(ctx, groups...)
	return err
}

// encode writes e in one line, without its position, which is not known yet.
func encode(e nestor.Event) (line []byte, err error) {
	if head := e.Head(); head.Seq != 0 { // otherwise others may be reading it
		seq := head.Seq
		head.Seq = 0
		defer func() { head.Seq = seq }()
	}
	if line, err = nestor.EncodeEvent(e); err == nil {
		err = checkSize(line)
	}
	return line, err
}

// fit is encode for what is better told in part than not at all: if an event is too
// large, its long texts and lists are cut.
func fit(e nestor.Event) ([]byte, error) {
	line, err := encode(e)
	for most := MaxEvent / 8; errors.Is(err, ErrTooLarge) && most > 100; most /= 8 {
		var short nestor.Event
		if short, err = shortened(line, most); err != nil {
			return nil, err
		}
		line, err = encode(short)
	}
	return line, err
}

func fitEach(events []nestor.Event) (lines [][]byte, err error) {
	lines = make([][]byte, len(events))
	for i, e := range events {
		if lines[i], err = fit(e); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// shortened returns the event that line is, with no text in it of more than most bytes,
// and what says that there were more.
func shortened(line []byte, most int) (nestor.Event, error) {
	var all any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	line, err := json.Marshal(cut(all, most))
	if err != nil {
		return nil, err
	}
	return nestor.DecodeEvent(line)
}

// cut cuts texts of more than most bytes in v, and lists that may be as long.
func cut(v any, most int) any {
	switch v := v.(type) {
	case string:
		if len(v) > most {
			kept := strings.ToValidUTF8(v[:most], "")
			return fmt.Sprintf("%s… (%d bytes more are not in the log)", kept, len(v)-len(kept))
		}
	case []any:
		if n := len(v); n > most/32 {
			_, texts := v[0].(string)
			if v = v[:most/32]; texts { // of others, it may be no such thing
				v = append(v, fmt.Sprintf("… (%d more are not in the log)", n-most/32))
			}
		}
		for i := range v {
			v[i] = cut(v[i], most)
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = cut(v[key], most)
		}
	}
	return v
}

// Is tells whether it is of the type of one of some events. It is cheaper than to
// decode it.
func (e Event) Is(types ...nestor.Event) bool {
	kind, err := nestor.EventType(e.Data)
	return err == nil && slices.ContainsFunc(types, func(t nestor.Event) bool { return nestor.TypeOf(t) == kind })
}

// Decode returns the event as the type that it is, with its position.
func (e Event) Decode() (nestor.Event, error) {
	event, err := nestor.DecodeEvent(e.Data)
	if err != nil {
		return nil, fmt.Errorf("position %d of the log: %w", e.Position, err)
	}
	event.Head().Seq = uint64(e.Position)
	return event, nil
}
