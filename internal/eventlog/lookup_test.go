package eventlog

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
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
