package eventlog

import (
	"context"
	"fmt"
	"slices"

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
		groups[i] = group{mark, make([][]byte, len(events[i]))}
		for n, e := range events[i] {
			line, err := encode(e)
			if err != nil {
				return fmt.Errorf("appending to run %s: %w", head.Run, err)
			}
			groups[i].lines[n] = line
		}
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
