package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// GapError says that events of a run are missing from the log, because the
// files of the broker are damaged, for one. Who wants to go on without them
// follows again, after Next.
type GapError struct {
	Root, Run string
	Want, Got uint64   // numbers in the run
	Next      Position // the last before the event that was found
}

func (e *GapError) Error() string {
	return fmt.Sprintf("run %s: events %d to %d are missing from the log: put a copy of the broker's folder back, or follow after %d to go on without them", e.Run, e.Want, e.Got-1, e.Next)
}

// Follow yields the events that pass the filter with positions after the given
// one, those of the archive, of the stream and then as they are appended, in
// order, each once. It goes on until ctx ends.
//
// The iterator is single-use. An error is the last thing it yields; that of a
// ctx that ended is its cause. Breaking out stops the work.
//
// A slow caller blocks nobody, and loses nothing.
func (l *Log) Follow(ctx context.Context, filter Filter, after Position) iter.Seq2[Event, error] {
	return l.follow(ctx, filter, after, false)
}

// FollowLive is Follow with deltas in between: what was published with Publish,
// with Live set and no position. They come only once all that was stored
// before has been yielded, are dropped while the caller lags, and may come
// before or after the event that they lead to.
func (l *Log) FollowLive(ctx context.Context, filter Filter, after Position) iter.Seq2[Event, error] {
	return l.follow(ctx, filter, after, true)
}

func (l *Log) follow(ctx context.Context, filter Filter, after Position, deltas bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := &reader{log: l, filter: filter, after: after, yield: yield}
		if err := r.follow(ctx, deltas); err != nil && !errors.Is(err, errStopped) {
			yield(Event{}, fmt.Errorf("following the log: %w", err))
		}
	}
}

// Read yields what Follow does, up to what was stored when it was called, and
// then ends. The rules of Follow hold.
func (l *Log) Read(ctx context.Context, filter Filter, after Position) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := &reader{log: l, filter: filter, after: after, yield: yield}
		if err := r.read(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(Event{}, fmt.Errorf("reading the log: %w", err))
		}
	}
}

// errStopped says that the caller broke out.
var errStopped = errors.New("stopped")

// reader is one iteration.
type reader struct {
	log    *Log
	filter Filter
	after  Position // of what was yielded, or is known not to exist
	seen   seen
	yield  func(Event, error) bool

	goal   uint64 // the last chunk up to goalOf that passes the filter
	goalOf uint64 // zero if it is not known
}

func (r *reader) read(ctx context.Context) error {
	if err := r.filter.check(); err != nil {
		return err
	}
	if err := r.log.running(ctx); err != nil {
		return err
	}
	info, err := r.log.info(ctx)
	if err != nil {
		return err
	}
	return r.catchUp(ctx, max(info.State.LastSeq, r.log.hub.position(), r.log.acked.Load()))
}

func (r *reader) follow(ctx context.Context, deltas bool) error {
	if err := r.filter.check(); err != nil {
		return err
	}
	if err := r.log.running(ctx); err != nil {
		return err
	}
	h := r.log.hub
	f := &follower{filter: r.filter, deltas: deltas, wake: make(chan struct{}, 1)}
	if deltas {
		if err := h.wantDeltas(); err != nil {
			return err
		}
		defer h.unwantDeltas()
	}
	defer h.leave(f)
	for {
		if err := r.catchUp(ctx, h.join(f)); err != nil {
			return err
		}
		if err := r.live(ctx, h, f); err != nil {
			return err
		}
	}
}

// live yields what the hub hands out, until the reader is behind.
func (r *reader) live(ctx context.Context, h *hub, f *follower) error {
	for {
		items, behind := h.take(f)
		for _, i := range items {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if i.delta != nil {
				if !r.yield(*i.delta, nil) {
					return errStopped
				}
				continue
			}
			if i.chunk == nil {
				r.seen.forget(i.purged)
				continue
			}
			for n := range i.chunk.events {
				if err := r.emit(i.chunk.event(n)); err != nil {
					return err
				}
			}
		}
		if len(items) > 0 {
			continue
		}
		if behind {
			return nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.gone:
			return ErrClosed
		}
	}
}

// emit yields an event that was not yielded yet.
func (r *reader) emit(e Event) error {
	if e.Position <= r.after {
		return nil
	}
	if want, ok := r.seen.next(e.Root, e.Run); ok && e.N != want {
		return &GapError{Root: e.Root, Run: e.Run, Want: want, Got: e.N, Next: e.Position - 1}
	}
	r.seen.note(e.Root, e.Run, e.N+1)
	r.after = e.Position
	if !r.yield(e, nil) {
		return errStopped
	}
	return nil
}

// catchUp yields what the stream and the archive hold up to the chunk to.
func (r *reader) catchUp(ctx context.Context, to uint64) error {
	for to > 0 && r.after < upTo(to) {
		chunks, end, err := r.next(ctx, to)
		if err != nil {
			return err
		}
		// The archive is read after the stream: what was purged before the stream
		// was read was archived before that.
		if err := r.merge(ctx, chunks, end); err != nil {
			return err
		}
		r.after = max(r.after, upTo(end))
	}
	return nil
}

// merge yields chunks, and what the archive holds up to end, in order.
func (r *reader) merge(ctx context.Context, chunks []*chunk, end uint64) error {
	before := func(p Position) error { // what chunks hold before p
		for len(chunks) > 0 {
			c := chunks[0]
			for i := range c.events {
				e := c.event(i)
				if e.Position >= p {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := r.emit(e); err != nil {
					return err
				}
			}
			chunks = chunks[1:]
		}
		return nil
	}
	if r.log.options.Archive != nil {
		for e, err := range r.log.options.Archive.Events(ctx, r.filter, r.after, upTo(end)) {
			if err != nil {
				return fmt.Errorf("reading the archive: %w", err)
			}
			if err := before(e.Position); err != nil {
				return err
			}
			if err := r.emit(e); err != nil {
				return err
			}
		}
	}
	return before(upTo(end) + 1)
}

// next reads chunks from the stream that pass the filter, from where the
// reader is up to the chunk to, until they are many. It returns them, and the
// sequence up to which they are all. It tries again until ctx ends.
func (r *reader) next(ctx context.Context, to uint64) ([]*chunk, uint64, error) {
	select {
	case r.log.readers <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	case <-r.log.hub.gone:
		return nil, 0, ErrClosed
	}
	defer func() { <-r.log.readers }()
	var chunks []*chunk
	var end uint64
	err := r.log.persist(ctx, func(ctx context.Context) (err error) {
		if chunks, end, err = r.tryNext(ctx, to); err != nil {
			r.goalOf = 0 // it may have been purged
		}
		return err
	})
	return chunks, end, err
}

func (r *reader) tryNext(ctx context.Context, to uint64) ([]*chunk, uint64, error) {
	s := r.log.stream
	// Where the chunks end that pass the filter, as the leader knows it. A
	// consumer may be on a replica that lags, and does not know that there is
	// more.
	if r.goalOf != to {
		err := r.log.ask(ctx, to, func() error {
			r.goal = 0
			msg, err := s.GetLastMsgForSubject(ctx, r.filter.subject())
			switch {
			case err == nil:
				r.goal = min(to, msg.Sequence)
			case errors.Is(err, jetstream.ErrMsgNotFound):
				return nil
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		r.goalOf = to
	}
	goal := r.goal
	start := r.after.seq()
	if r.after == upTo(start) {
		start++
	}
	if start > goal {
		return nil, to, nil
	}
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Name:              "read-" + nats.NewInbox()[len(nats.InboxPrefix):],
		FilterSubject:     r.filter.subject(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(start, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: 10 * time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		s.DeleteConsumer(cleanup, c.CachedInfo().Name) // or the server does, in ten seconds
	}()
	w := &window{to: to, goal: goal, limit: r.log.options.Window}
	for {
		before := len(w.chunks)
		if err := w.fetch(ctx, c); err != nil {
			return nil, 0, err
		}
		switch {
		case w.end >= goal:
			return w.chunks, to, nil
		case w.size >= w.limit:
			return w.chunks, w.end, nil
		case len(w.chunks) == before && before > 0:
			r.goalOf = 0
			return w.chunks, w.end, nil
		case before == 0 && len(w.chunks) == 0:
			// The goal was purged meanwhile, or a replica is late: ask again.
			return nil, 0, errors.New("the stream gives less than it has")
		}
	}
}

// window is what is being read from the stream.
type window struct {
	to, goal uint64 // nothing behind to is taken; at goal all is there
	limit    int    // of size

	chunks    []*chunk
	size      int
	end       uint64 // everything up to it was read
	delivered uint64 // by the consumer
}

// fetch reads until the goal, or the limit, or for a second.
func (w *window) fetch(ctx context.Context, c jetstream.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	batch, err := c.Fetch(256, jetstream.FetchContext(ctx), jetstream.FetchMaxBytes(max(w.limit, 2*maxChunk)))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if w.delivered++; meta.Sequence.Consumer != w.delivered {
			return errors.New("a message was not delivered")
		}
		if meta.Sequence.Stream > w.to {
			w.end = w.to
			return nil
		}
		chunk, err := decode(msg.Subject(), meta.Sequence.Stream, msg.Data())
		if err != nil {
			return err
		}
		w.chunks = append(w.chunks, chunk)
		w.size += chunk.size
		if w.end = chunk.seq; w.end >= w.goal || w.size >= w.limit {
			return nil
		}
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Publish sends a delta, for those who follow live at this moment. It is not
// stored, and may be lost. It does not wait.
func (l *Log) Publish(root, run string, data json.RawMessage) error {
	if err := errors.Join(checkID("root", root), checkID("run", run)); err != nil {
		return fmt.Errorf("publishing a delta: %w", err)
	}
	if len(data) > MaxEvent {
		return fmt.Errorf("publishing a delta of %d bytes: %w: at most %d", len(data), ErrTooLarge, MaxEvent)
	}
	if err := l.broker.Conn().Publish(broker.DeltaSubject+root+"."+run, data); err != nil {
		return fmt.Errorf("publishing a delta: %w", err)
	}
	return nil
}
