package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// tail is the end of a run in the stream.
type tail struct {
	seq   uint64 // of its last chunk; zero if it has none
	next  uint64 // number of its next event
	fence uint64 // the highest of its writers
	mark  uint64 // the highest of Once
}

func (c *chunk) tail() tail { return tail{c.seq, c.next(), c.fence, c.mark} }

// tails are the ends of runs as this process saw them last: for a writer that is not the
// only one of its run, such as those of a run's engine and of its agent, which take turns.
// What another process has stored since shows when a chunk is refused.
type tails struct {
	mu   sync.Mutex // guards runs
	runs map[runKey]tail
}

func (t *tails) of(root, run string) (end tail, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end, ok = t.runs[runKey{root, run}]
	return end, ok
}

func (t *tails) note(root, run string, end tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := runKey{root, run}
	if t.runs == nil || len(t.runs) >= maxRuns {
		t.runs = map[runKey]tail{}
	}
	if end.seq >= t.runs[key].seq {
		t.runs[key] = end
	}
}

// forget forgets a tree whose events are purged.
func (t *tails) forget(root string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.runs, func(key runKey, _ tail) bool { return key.root == root })
}

// catchUp takes what others in this process have seen of the run since.
func (w *Writer) catchUp() {
	if end, ok := w.log.tails.of(w.root, w.run); ok && end.seq > w.tail.seq {
		w.tail, w.known = end, true
	}
}

// storing is what is about to be the next chunk of a run.
type storing struct {
	all  []*entry
	left []*entry // without those of Once that are stored already
	c    *chunk   // of left
	sent bool     // perhaps it is stored, with the numbers that c has
}

func (w *Writer) storing(entries []*entry) *storing {
	return &storing{all: entries, left: entries, c: w.chunk(entries)}
}

// done tells who waits.
func (s *storing) done() {
	for _, e := range s.all {
		if e.done != nil {
			close(e.done)
		}
	}
}

// store stores s, whatever it takes.
func (w *Writer) store(ctx context.Context, s *storing) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := w.attempt(ctx, s)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case permanent(err):
			return w.log.broker.Explain(err)
		case !broker.IsConflict(err) && !pause(ctx, wait):
			return context.Cause(ctx)
		}
	}
}

// attempt tries to make s the next chunk of the run, to set the positions of its
// entries, and tells whether it did.
func (w *Writer) attempt(ctx context.Context, s *storing) (done bool, err error) {
	if !s.sent {
		w.catchUp()
	}
	if !w.known {
		if err := w.lookup(ctx, s.c, s.sent); err != nil {
			return false, err
		}
		if s.c.seq != 0 {
			w.stored(s.c, s.left)
			return true, nil
		}
	}
	if w.fence != 0 && w.tail.fence > w.fence {
		return false, ErrFenced
	}
	if left := unmarked(s.left, w.tail.mark); len(left) < len(s.left) {
		if len(left) == 0 {
			return true, nil
		}
		s.left, s.c = left, w.chunk(left)
	}
	s.c.n, s.c.fence, s.c.mark = w.tail.next, max(w.fence, w.tail.fence), max(s.c.mark, w.tail.mark)
	s.sent = true
	if s.c.seq, err = w.publish(ctx, s.c, w.tail.seq); err != nil {
		w.known = false
		return false, err
	}
	w.stored(s.c, s.left)
	return true, nil
}

func (w *Writer) chunk(entries []*entry) *chunk {
	c := &chunk{root: w.root, run: w.run, writer: w.name, events: make([][]byte, len(entries))}
	for i, e := range entries {
		c.events[i] = e.data
		c.size += len(e.data) + 1
		c.mark = max(c.mark, e.mark)
	}
	return c
}

// stored takes note that entries are chunk c.
func (w *Writer) stored(c *chunk, entries []*entry) {
	w.tail, w.flushed = c.tail(), true
	w.log.tails.note(w.root, w.run, w.tail)
	for i, e := range entries {
		e.position = position(c.seq, i)
	}
}

// unmarked returns entries without those of Once whose mark is no higher than
// mark, or than that of others before them.
func unmarked(entries []*entry, mark uint64) []*entry {
	left, drop := make([]*entry, 0, len(entries)), false
	for _, e := range entries {
		if e.group > 0 {
			drop = e.mark <= mark
			mark = max(mark, e.mark)
		}
		if e.mark == 0 || !drop {
			left = append(left, e)
		}
	}
	return left
}

func (w *Writer) publish(ctx context.Context, c *chunk, last uint64) (uint64, error) {
	ctx, cancel := w.log.link.attempt(ctx, requestTimeout)
	defer cancel()
	seq, err := w.log.broker.Store(ctx, &nats.Msg{Subject: Filter{w.root, w.run}.subject(), Data: c.encode()}, last)
	if err != nil {
		return 0, err
	}
	w.log.storedUpTo(seq)
	if seq > maxSeq {
		return 0, fmt.Errorf("the log is full: its sequence is %d", seq)
	}
	return seq, nil
}

// storedUpTo takes note that a chunk of that sequence was stored here.
func (l *Log) storedUpTo(seq uint64) {
	for acked := l.acked.Load(); acked < seq && !l.acked.CompareAndSwap(acked, seq); {
		acked = l.acked.Load()
	}
}

// lookup finds the end of the run. If c was sent it may be what follows the end
// that was known: its sequence is set then.
func (w *Writer) lookup(ctx context.Context, c *chunk, sent bool) error {
	ctx, cancel := w.log.link.attempt(ctx, requestTimeout)
	defer cancel()
	var next, last *chunk // behind the end that was known, and now
	err := w.log.ask(ctx, w.tail.seq, func() (err error) {
		subject := Filter{w.root, w.run}.subject()
		s := w.log.stream
		// The last one first: if that is still the end that was known, c is refused when it
		// is stored twice. The other way round c may be stored in between, and not be known.
		if last, err = found(s.GetLastMsgForSubject(ctx, subject)); err != nil || !sent || last == nil || last.seq <= w.tail.seq {
			return err
		}
		next, err = found(s.GetMsg(ctx, w.tail.seq+1, jetstream.WithGetMsgSubject(subject)))
		return err
	})
	switch {
	case err != nil:
		return err
	case next != nil && next.writer == c.writer && next.n == c.n:
		c.seq = next.seq
	case last != nil:
		w.tail = last.tail()
		w.log.tails.note(w.root, w.run, w.tail)
	case w.tail.seq != 0:
		return ErrArchived // it was there
	default:
		if err := w.log.notArchived(ctx, w.root, w.run); err != nil {
			return err
		}
	}
	w.known = true
	return nil
}

// found decodes a message, if there is one.
func found(msg *jetstream.RawStreamMsg, err error) (*chunk, error) {
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decode(msg.Subject, msg.Sequence, msg.Data)
}

// notArchived fails if a run that has no events in the stream has some in the
// archive.
func (l *Log) notArchived(ctx context.Context, root, run string) error {
	if l.options.Archive == nil {
		return nil
	}
	for _, err := range l.options.Archive.Events(ctx, Filter{root, run}, 0, upTo(maxSeq)) {
		if err != nil {
			return fmt.Errorf("asking the archive: %w", err)
		}
		return ErrArchived
	}
	return nil
}

// permanent reports whether trying again is no use.
func permanent(err error) bool {
	if errors.Is(err, ErrArchived) || errors.Is(err, ErrFenced) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return true
	}
	if _, ok := errors.AsType[*badChunk](err); ok {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && !broker.IsConflict(err) && api.Code >= 400 && api.Code < 500 && api.Code != 408
}
