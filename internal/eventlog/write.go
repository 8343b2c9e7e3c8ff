package eventlog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	flushSize  = 16 << 10              // a chunk of this size leaves at once
	flushAfter = 60 * time.Millisecond // and any other after this,
	flushLeast = 30 * time.Millisecond // or after this
	flushQuiet = 5 * time.Millisecond  // when nothing has come for so long
	maxQueued  = 1 << 20               // bytes that Write queues before it waits

	sharedWriters = 1024 // kept by Append
)

// Writer appends to one run, in order. It is cheap, holds nothing while it has
// nothing to do, and need not be closed. All methods may be called at once.
type Writer struct {
	log       *Log
	root, run string
	fence     uint64
	name      string // in its chunks; no other writer has it

	kick chan struct{} // capacity 1: wakes the flush that waits for more

	mu       sync.Mutex
	queue    []*entry
	size     int
	queued   time.Time     // when something was last
	urgent   bool          // somebody waits for what is queued
	flushing bool          // a goroutine has the queue in hand
	space    chan struct{} // closed, and made anew, when the queue has shrunk
	err      error         // after which nothing is written

	// Of the flushing goroutine alone.
	tail    tail // of the run, as far as is known
	known   bool // that tail is right
	flushed bool // something of this writer is stored
}

// entry is an event that waits to be stored.
type entry struct {
	data     []byte
	mark     uint64 // of Once; zero if it is not of Once
	group    int    // events of Once that are stored with it, itself included; zero for all but the first
	bytes    int    // of that group
	position Position
	err      error
	done     chan struct{} // closed when the two above are set
}

// Writer returns a writer for one attempt at a run. Of two attempts the one
// with the higher fence wins: as soon as it has written, the other gets
// ErrFenced. Zero means no fence: it is refused nothing and fences nobody.
func (l *Log) Writer(root, run string, fence uint64) (*Writer, error) {
	if err := errors.Join(checkID("root", root), checkID("run", run)); err != nil {
		return nil, err
	}
	return &Writer{
		log: l, root: root, run: run, fence: fence, name: rand.Text(),
		kick: make(chan struct{}, 1), space: make(chan struct{}),
	}, nil
}

// Append stores events of a run without a fence, together with what others
// append to the run in this process, and returns their positions when they are
// durable. See Writer.Append.
func (l *Log) Append(ctx context.Context, root, run string, events ...json.RawMessage) ([]Position, error) {
	w, err := l.sharedWriter(root, run, false)
	if err != nil {
		return nil, fmt.Errorf("appending to the log: %w", err)
	}
	return w.Append(ctx, events...)
}

// sharedWriter returns the writer of a run for all who have none of their own.
// Most likely the run is a new one, if somebody says so: its end is then not
// looked for before something is stored.
func (l *Log) sharedWriter(root, run string, fresh bool) (*Writer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := root + "." + run
	if w := l.shared[key]; w != nil && w.healthy() {
		return w, nil
	}
	w, err := l.Writer(root, run, 0)
	if err != nil {
		return nil, err
	}
	w.known = fresh
	if len(l.shared) >= sharedWriters {
		for k, old := range l.shared { // any that is idle
			if old.idle() {
				delete(l.shared, k)
			}
			if len(l.shared) < sharedWriters {
				break
			}
		}
	}
	l.shared[key] = w
	return w, nil
}

func (w *Writer) healthy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err == nil
}

func (w *Writer) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.flushing && len(w.queue) == 0
}

// Append stores events behind all that was written before, and returns their
// positions when they are durable. They are stored side by side unless they
// do not fit into one chunk. If ctx ends first it returns the cause, and the
// events may be stored or not.
func (w *Writer) Append(ctx context.Context, events ...json.RawMessage) ([]Position, error) {
	return w.appendForeign(ctx, 0, events)
}

// Once is Append for events that may have been appended before, by whomever: if
// the run has events of this mark, or of a higher one, it stores nothing and the
// positions are zero. The events are stored together or not at all. Marks grow
// from 1.
func (w *Writer) Once(ctx context.Context, mark uint64, events ...json.RawMessage) ([]Position, error) {
	return w.appendForeign(ctx, mark, events)
}

// appendForeign stores events that may be anything.
func (w *Writer) appendForeign(ctx context.Context, mark uint64, events []json.RawMessage) ([]Position, error) {
	lines, err := oneLineEach(events)
	if err != nil {
		return nil, w.wrap(err)
	}
	return w.append(ctx, group{mark, lines})
}

// group is what is appended together: events that are JSON, each in one line, which
// nobody changes any more. That of Once has a mark.
type group struct {
	mark  uint64
	lines [][]byte
}

// append stores groups, in one chunk if they fit into it.
func (w *Writer) append(ctx context.Context, groups ...group) ([]Position, error) {
	entries, lead, err := w.enqueue(ctx, true, groups...)
	if err != nil {
		return nil, err
	}
	if lead {
		w.lead(ctx)
	}
	positions := make([]Position, len(entries))
	for i, e := range entries {
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, w.wrap(context.Cause(ctx))
		}
		if e.err != nil {
			return nil, e.err
		}
		positions[i] = e.position
	}
	return positions, nil
}

// Write queues events behind all that was written before. It waits only while
// more than 1 MiB is queued. The events are as [Fit] returns them. An error, of this or
// of an earlier call, means that nothing more will be stored.
func (w *Writer) Write(ctx context.Context, lines ...[]byte) error {
	_, _, err := w.enqueue(ctx, false, group{lines: lines})
	return err
}

// Flush returns when all that was written before is durable.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	if w.err != nil || len(w.queue) == 0 && !w.flushing {
		defer w.mu.Unlock()
		return w.err
	}
	// An entry without an event is done when all before it are.
	e := &entry{done: make(chan struct{})}
	w.queue = append(w.queue, e)
	w.wakeLocked()
	w.mu.Unlock()
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return w.wrap(context.Cause(ctx))
	}
}

func (w *Writer) wrap(err error) error {
	return fmt.Errorf("appending to run %s: %w", w.run, err)
}

// enqueue queues groups, and has them stored. If somebody is about to wait for them,
// and nobody stores what is queued, it is the caller who has to: see lead.
func (w *Writer) enqueue(ctx context.Context, wait bool, groups ...group) (entries []*entry, lead bool, err error) {
	for _, g := range groups {
		first, size := len(entries), 0
		for _, line := range g.lines {
			e := &entry{data: line, mark: g.mark}
			if wait {
				e.done = make(chan struct{})
			}
			entries = append(entries, e)
			size += len(line) + 1
		}
		if n := len(g.lines); g.mark != 0 && n > 0 {
			if size > roomy || n > maxEvents {
				return nil, false, w.wrap(fmt.Errorf("%d events of %d bytes that belong together: %w", n, size, ErrTooLarge))
			}
			entries[first].group, entries[first].bytes = n, size
		}
	}
	if err := w.log.running(ctx); err != nil {
		return nil, false, w.wrap(err)
	}
	for {
		w.mu.Lock()
		if w.err != nil {
			defer w.mu.Unlock()
			return nil, false, w.err
		}
		if w.size <= maxQueued {
			break
		}
		space := w.space
		w.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return nil, false, w.wrap(context.Cause(ctx))
		}
	}
	defer w.mu.Unlock()
	for _, e := range entries {
		w.queue = append(w.queue, e)
		w.size += len(e.data) + 1
	}
	if len(w.queue) == 0 {
		return entries, false, nil
	}
	w.queued = time.Now()
	if wait || w.size >= flushSize {
		w.wakeLocked()
	}
	if w.flushing {
		return entries, false, nil
	}
	if err := w.beginLocked(); err != nil {
		return nil, false, err
	}
	if !wait {
		go w.flush(nil)
	}
	return entries, wait, nil
}

// wakeLocked makes the flush go on at once.
func (w *Writer) wakeLocked() {
	w.urgent = true
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// beginLocked takes note that somebody stores what is queued, until ceasedLocked is called,
// for which Log.end waits. Nobody does yet.
func (w *Writer) beginLocked() error {
	w.log.closing.Lock()
	defer w.log.closing.Unlock()
	if w.log.closed {
		w.failLocked(w.wrap(ErrClosed))
		return w.err
	}
	w.flushing = true
	w.log.flushes.Add(1)
	return nil
}

// ceasedLocked takes note that nobody does.
func (w *Writer) ceasedLocked() {
	w.flushing = false
	w.log.flushes.Done()
}

// lead stores what is queued for who waits for it, which takes two goroutines less to
// be woken. If it is not done at once, or more has come, another goroutine goes on.
func (w *Writer) lead(ctx context.Context) {
	var next *storing
	if entries := w.take(); len(entries) > 0 {
		next = w.storing(entries)
		if done, _ := w.attempt(ctx, next); done { // why not shows again
			next.done()
			next = nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if next == nil && len(w.queue) == 0 {
		w.ceasedLocked()
		return
	}
	go w.flush(next)
}

// flush stores what is about to be, unless that is nil, and what is queued, chunk by
// chunk, until nothing is.
func (w *Writer) flush(next *storing) {
	ctx := w.log.life
	for {
		if next == nil {
			w.mu.Lock()
			if len(w.queue) == 0 {
				w.ceasedLocked()
				w.mu.Unlock()
				return
			}
			wait := w.flushed && !w.urgent && w.size < flushSize
			w.mu.Unlock()
			if wait {
				w.gather(ctx)
			}
			entries := w.take()
			if len(entries) == 0 {
				continue
			}
			next = w.storing(entries)
		}
		if err := w.store(ctx, next); err != nil {
			w.mu.Lock()
			w.queue = append(next.all, w.queue...)
			w.failLocked(w.wrap(err))
			w.ceasedLocked()
			w.mu.Unlock()
			return
		}
		next.done()
		next = nil
	}
}

// gather waits for more to come, until none does. What comes together is so stored
// when whoever says it is done, and waits for a model, say: not while it works.
func (w *Writer) gather(ctx context.Context) {
	began := time.Now()
	timer := time.NewTimer(flushLeast)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.kick:
			return
		case <-ctx.Done():
			return
		}
		now := time.Now()
		left := min(w.last().Add(flushQuiet).Sub(now), began.Add(flushAfter).Sub(now))
		if left <= 0 {
			return
		}
		timer.Reset(left)
	}
}

// last returns when something was queued last.
func (w *Writer) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// take removes from the queue what goes into one chunk. Marks of Flush at its
// head are done.
func (w *Writer) take() []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var size, n int
	for n < len(w.queue) && n < maxEvents {
		e := w.queue[n]
		if e.data == nil {
			if n > 0 {
				break
			}
			close(e.done)
			w.queue = w.queue[1:]
			continue
		}
		if n > 0 && (size+max(len(e.data), e.bytes) >= roomy || n+e.group > maxEvents) && (e.mark == 0 || e.group > 0) {
			break
		}
		size += len(e.data) + 1
		n++
	}
	entries := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.size -= size
	if len(w.queue) == 0 {
		w.queue, w.urgent = nil, false
		select {
		case <-w.kick:
		default:
		}
	}
	close(w.space)
	w.space = make(chan struct{})
	return entries
}

// roomy is how many bytes of events go into one chunk.
const roomy = maxChunk - 1024

// failLocked ends everything that waits, and the writer.
func (w *Writer) failLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	for _, e := range w.queue {
		if e.done != nil {
			e.err = w.err
			close(e.done)
		}
	}
	w.queue, w.size = nil, 0
	close(w.space)
	w.space = make(chan struct{})
}
