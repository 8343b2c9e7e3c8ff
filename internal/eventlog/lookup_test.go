package eventlog

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
)

// slowStream has something happen behind the first question that it answers.
type slowStream struct {
	jetstream.Stream
	then func()
}

func (s *slowStream) answered() {
	if then := s.then; then != nil {
		s.then = nil
		then()
	}
}

func (s *slowStream) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	defer s.answered()
	return s.Stream.GetMsg(ctx, seq, opts...)
}

func (s *slowStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	defer s.answered()
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// A chunk whose answer did not come, and that is stored while it is looked for, is
// stored once.
func TestStoredWhileItIsLookedFor(t *testing.T) {
	l := embedded(t).open(t, Options{})
	w, err := l.Writer("root", "run", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(soon(t), event("first")); err != nil {
		t.Fatal(err)
	}
	entries := []*entry{{data: event("second")}}
	late := w.chunk(entries)
	late.n = w.tail.next
	known := w.tail.seq
	stream := &slowStream{Stream: l.stream, then: func() {
		if _, err := w.publish(soon(t), late, known); err != nil {
			t.Error(err)
		}
	}}
	l.stream = stream
	w.known = false
	if err := w.lookup(soon(t), late, true); err != nil {
		t.Fatal(err)
	}
	if late.seq == 0 && w.tail.seq != known {
		t.Errorf("the end of the run is at %d, it was at %d, and nobody knows that the chunk between them is stored", w.tail.seq, known)
	}
	if stream.then != nil {
		t.Error("nothing was asked for")
	}
}

// A run's engine and its agent have a writer each, and take turns: what one of them
// stored, the other one does not ask for. What another process stored, it does.
func TestWritersThatTakeTurns(t *testing.T) {
	at := otherProcess(t)
	l, elsewhere := at.open(t, Options{}), at.open(t, Options{})
	writer := func(l *Log) *Writer {
		t.Helper()
		w, err := l.Writer("root", "run", 0)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	var want []Position
	asked := 0
	count := &countingStream{Stream: l.stream, asked: &asked}
	l.stream = count
	for _, turn := range []struct {
		w       *Writer
		name    string
		lookups int
	}{
		{writer(l), "the first one, of a run that nobody knows", 1},
		{writer(l), "another one", 0},
		{writer(l), "a third one", 0},
		{writer(elsewhere), "one of another process", 0},
		{writer(l), "one that was overtaken", 1},
	} {
		asked = 0
		at, err := turn.w.Append(soon(t), event("%s", turn.name))
		if err != nil {
			t.Fatalf("%s: %v", turn.name, err)
		}
		if asked != turn.lookups {
			t.Errorf("%s asked %d times for the end of the run, want %d", turn.name, asked, turn.lookups)
		}
		want = append(want, at...)
	}
	if !slices.IsSorted(want) {
		t.Errorf("the positions are %v", want)
	}
}

// countingStream counts how often it is asked for the end of a run.
type countingStream struct {
	jetstream.Stream
	asked *int
}

func (s *countingStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	*s.asked++
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// A tree that is purged is not known any more.
func TestEndsArePurged(t *testing.T) {
	l := embedded(t).open(t, Options{})
	for _, root := range []string{"root", "another"} {
		w, err := l.Writer(root, "run", 0)
		if err == nil {
			_, err = w.Append(soon(t), event("first"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	end, known := l.tails.of("root", "run")
	if !known {
		t.Fatal("the end of the run is not known to who stored it")
	}
	if err := l.Purge(soon(t), "root", position(end.seq, 0)); err != nil {
		t.Fatal(err)
	}
	if _, known := l.tails.of("root", "run"); known {
		t.Error("the end of a run is known whose tree is purged")
	}
	if _, known := l.tails.of("another", "run"); !known {
		t.Error("the end of a run is not known any more, another tree was purged")
	}
}

// A batch that was stored, and whose answer did not come, is not taken for what its
// writer stores next.
func TestBatchWithoutAnAnswer(t *testing.T) {
	l := embedded(t).open(t, Options{})
	id := nestor.NewID(time.Now())
	said := func(text string) nestor.Event {
		return &nestor.ChatStart{Header: nestor.Header{Run: id, Root: id}, Message: text}
	}
	if err := l.Once(soon(t), 1, said("first")); err != nil {
		t.Fatal(err)
	}
	lost, err := l.portion(2, []nestor.Event{said("second")})
	if err != nil {
		t.Fatal(err)
	}
	lost.c.n = lost.w.tail.next
	msg := &nats.Msg{Subject: Filter{string(id), string(id)}.subject(), Data: lost.c.encode()}
	broker.Expect(msg, lost.w.tail.seq)
	if _, err := l.broker.Together(soon(t), []*nats.Msg{msg}); err != nil {
		t.Fatal(err)
	}
	if err := l.Once(soon(t), 3, said("third")); err != nil {
		t.Fatal(err)
	}
	last, err := found(l.stream.GetLastMsgForSubject(soon(t), msg.Subject))
	if err != nil || last.mark != 3 || last.n != lost.c.next() {
		t.Errorf("the end of the run is %+v, %v, and not what was stored last", last, err)
	}
	if err := l.Once(soon(t), 2, said("second")); err != nil {
		t.Fatal(err)
	}
	if again, err := found(l.stream.GetLastMsgForSubject(soon(t), msg.Subject)); err != nil || again.seq != last.seq {
		t.Errorf("what the batch stored is stored once more: %+v, %v", again, err)
	}
}
