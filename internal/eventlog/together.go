package eventlog

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
)

// OnceAll is Once for several runs, of which each is there once: marks[i] is that of
// events[i]. They are stored in that order, and synced together.
func (l *Log) OnceAll(ctx context.Context, marks []uint64, events [][]nestor.Event) error {
	if err := l.running(ctx); err != nil {
		return fmt.Errorf("appending to %d runs: %w", len(marks), err)
	}
	if l.together(ctx, marks, events) {
		return nil
	}
	for i, mark := range marks { // they can only be stored one by one, or one of them cannot be
		if err := l.Once(ctx, mark, events[i]...); err != nil {
			return err
		}
	}
	return nil
}

// together stores events of several runs in one batch, and tells whether they are
// stored.
func (l *Log) together(ctx context.Context, marks []uint64, events [][]nestor.Event) bool {
	var list []*portion
	defer func() {
		for _, s := range list {
			s.w.release()
		}
	}()
	for i, mark := range marks {
		if len(events[i]) == 0 {
			continue
		}
		s, err := l.portion(mark, events[i])
		if err != nil || !s.w.hold() {
			return false
		}
		list = append(list, s)
	}
	var unknown []*portion
	for _, s := range list { // those who execute a run append to it too
		if s.w.catchUp(); !s.w.known {
			unknown = append(unknown, s)
		}
	}
	if !lookUp(ctx, unknown) {
		return false
	}
	err := l.storeAll(ctx, list)
	if broker.IsConflict(err) && lookUp(ctx, list) { // another process has appended to one
		err = l.storeAll(ctx, list)
	}
	return err == nil
}

// storeAll stores what is not there yet as one batch, behind the ends that are known.
func (l *Log) storeAll(ctx context.Context, list []*portion) error {
	left := slices.DeleteFunc(slices.Clone(list), func(s *portion) bool { return s.c.mark <= s.w.tail.mark }) // these are there
	messages := make([]*nats.Msg, len(left))
	for i, s := range left {
		s.c.n, s.c.fence = s.w.tail.next, s.w.tail.fence
		messages[i] = &nats.Msg{Subject: Filter{s.w.root, s.w.run}.subject(), Data: s.c.encode()}
		broker.Expect(messages[i], s.w.tail.seq)
	}
	ctx, cancel := l.link.attempt(ctx, requestTimeout)
	defer cancel()
	last, err := l.broker.Together(ctx, messages)
	if err != nil {
		return err
	}
	if last > maxSeq {
		return fmt.Errorf("the log is full: its sequence is %d", last)
	}
	for i, s := range left {
		s.c.seq = last - uint64(len(left)-1-i)
		s.w.stored(s.c, s.entries)
	}
	l.storedUpTo(last)
	return nil
}

// lookUp finds the ends of runs, some at once, and tells whether it found all.
func lookUp(ctx context.Context, list []*portion) bool {
	const atOnce = 8
	var all sync.WaitGroup
	var failed atomic.Bool
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < len(list) && !failed.Load(); i += atOnce {
				if list[i].w.lookup(ctx, list[i].c, false) != nil {
					failed.Store(true)
				}
			}
		})
	}
	all.Wait()
	return !failed.Load()
}

// portion is what a batch has for one run.
type portion struct {
	w       *Writer
	entries []*entry
	c       *chunk
}

func (l *Log) portion(mark uint64, events []nestor.Event) (*portion, error) {
	head := events[0].Head()
	w, err := l.sharedWriter(string(head.Root), string(head.Run), false)
	if err != nil {
		return nil, err
	}
	s := &portion{w: w}
	for _, e := range events {
		data, err := fit(e)
		if err != nil {
			return nil, err
		}
		s.entries = append(s.entries, &entry{data: data, mark: mark})
	}
	if s.c = w.chunk(s.entries); s.c.size > roomy || len(events) > maxEvents {
		return nil, ErrTooLarge
	}
	s.c.writer = rand.Text() // if no answer comes, it is not taken for what w stores next
	return s, nil
}

// hold keeps others from storing what is queued until release, unless somebody is
// about it, or the log ends.
func (w *Writer) hold() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.flushing && len(w.queue) == 0 && w.err == nil && w.beginLocked() == nil
}

// release has what was queued meanwhile stored.
func (w *Writer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.ceasedLocked()
		return
	}
	go w.flush(nil)
}
