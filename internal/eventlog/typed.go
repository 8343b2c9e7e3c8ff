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
		lines, err := Fit(events[i]...)
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

// Fit returns events as [Writer.Write] takes them. What is better told in part than not
// at all is: of an event that is larger than MaxEvent the long texts and lists are cut,
// and say so.
func Fit(events ...nestor.Event) (lines [][]byte, err error) {
	lines = make([][]byte, len(events))
	for i, e := range events {
		if lines[i], err = fit(e); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

func fit(e nestor.Event) ([]byte, error) {
	line, err := encode(e)
	if end, ok := e.(*nestor.ExecutionComplete); ok && errors.Is(err, ErrTooLarge) && end.Result != nil {
		line, err = fitEnd(*end)
	}
	whole := line
	for most := MaxEvent / 8; errors.Is(err, ErrTooLarge) && most > 100; most /= 8 {
		var short nestor.Event
		if short, err = shortened(whole, most); err != nil {
			return nil, err
		}
		line, err = encode(short)
	}
	return line, err
}

// fitEnd is encode for an end whose result is too large, which says then that it is
// not all. Programs read what is structured: it is whole, or not there.
func fitEnd(e nestor.ExecutionComplete) ([]byte, error) {
	r := *e.Result
	e.Result, r.Truncated = &r, true
	r.Output = strings.ToValidUTF8(r.Output[:min(len(r.Output), MaxEvent/8)], "")
	line, err := encode(&e)
	if errors.Is(err, ErrTooLarge) {
		r.Structured = nil
		line, err = encode(&e)
	}
	return line, err
}

// shortened returns the event that line is, with no text in it of more than most bytes,
// and what says that there were more.
func shortened(line []byte, most int) (short nestor.Event, err error) {
	// Of lists those of texts can say it, and those that may have anything in them.
	for _, marked := range []func(first any) bool{
		func(any) bool { return true },
		func(first any) bool { _, text := first.(string); return text },
	} {
		var all any
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err = d.Decode(&all); err != nil {
			return nil, err
		}
		var text []byte
		if text, err = json.Marshal(cut(all, most, marked)); err != nil {
			return nil, err
		}
		if short, err = nestor.DecodeEvent(text); err == nil {
			return short, nil
		}
	}
	return nil, err
}

// cut cuts texts of more than most bytes in v, and lists that may be as long, which say
// so if they are to be marked.
func cut(v any, most int, marked func(first any) bool) any {
	switch v := v.(type) {
	case string:
		if len(v) > most {
			kept := strings.ToValidUTF8(v[:most], "")
			return fmt.Sprintf("%s… (%d bytes more are not in the log)", kept, len(v)-len(kept))
		}
	case []any:
		n := len(v)
		v = v[:min(n, most/32)]
		for i := range v {
			v[i] = cut(v[i], most, marked)
		}
		if n > len(v) && marked(v[0]) {
			return append(v, fmt.Sprintf("… (%d more are not in the log)", n-len(v)))
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = cut(v[key], most, marked)
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
