package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// hub reads the stream with one consumer and hands what comes to the followers
// of this process.
type hub struct {
	queue int // bytes that a follower's queue holds

	stream jetstream.Stream
	nc     *nats.Conn
	gone   chan struct{} // closed by end

	mu sync.Mutex
	// high is how far the stream was read. Every chunk up to it was handed out
	// after the follower had joined, or can be read from the stream or the
	// archive.
	high  uint64
	all   map[*follower]bool            // those that follow every tree
	roots map[string]map[*follower]bool // the others that name a root, by it
	runs  map[string]map[*follower]bool // those that name a run alone, by it

	live sync.Mutex         // taken before mu
	sub  *nats.Subscription // to deltas, while somebody wants them
	want int                // how many do
}

func newHub(queue int) *hub {
	return &hub{
		queue: queue,
		gone:  make(chan struct{}),
		all:   map[*follower]bool{},
		roots: map[string]map[*follower]bool{},
		runs:  map[string]map[*follower]bool{},
	}
}

// follower is one iteration of Follow, as the hub sees it.
type follower struct {
	filter Filter
	deltas bool
	wake   chan struct{} // capacity 1: something is queued, or behind is set

	// Guarded by hub.mu.
	queue  []item
	size   int
	behind bool // something was not queued: the stream has it
}

// item is a chunk, a delta, or the root of a tree that was purged.
type item struct {
	chunk  *chunk
	delta  *Event
	purged string
}

// begin takes the stream, from where it ended when it was asked for. Nothing
// else is called before.
func (h *hub) begin(s jetstream.Stream, nc *nats.Conn) {
	h.stream, h.high, h.nc = s, s.CachedInfo().State.LastSeq, nc
}

// run reads until ctx ends. A consumer that fails, or whose server is no longer
// the one that we are connected to, is made anew from where it was.
func (h *hub) run(ctx context.Context, l *Log) error {
	changed := h.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer h.nc.RemoveStatusListener(changed)
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		read, err := h.consume(ctx, l, changed)
		switch {
		case ctx.Err() != nil:
		case h.nc.IsClosed():
			return fmt.Errorf("reading the log: %w", nats.ErrConnectionClosed)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("reading the log: %w", err)
		}
		if read {
			wait = 10 * time.Millisecond
		}
		pause(ctx, wait)
	}
	return nil
}

// consume reads with one consumer until it fails. It reports whether anything
// was read.
func (h *hub) consume(ctx context.Context, l *Log, changed chan nats.Status) (read bool, err error) {
	for len(changed) > 0 {
		<-changed
	}
	// What was stored up to last and is not delivered was purged before we read
	// it, and is in the archive.
	try, cancel := l.link.attempt(ctx, requestTimeout)
	defer cancel()
	info, err := h.stream.Info(try)
	if err != nil {
		return false, err
	}
	last, high := max(info.State.LastSeq, l.acked.Load()), h.position()
	c, err := h.stream.CreateConsumer(try, jetstream.ConsumerConfig{
		Name:              "hub-" + nats.NewInbox()[len(nats.InboxPrefix):],
		FilterSubject:     broker.EventSubject + "*.*",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       high + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: time.Minute,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return false, err
	}
	name := c.CachedInfo().Name
	messages, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(1000, 4<<20), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(2*time.Second))
	if err != nil {
		return false, err
	}
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-changed: // a new connection may be to a server that does not know the consumer
		case <-stopped:
		}
		messages.Stop()
	})
	defer func() {
		close(stopped)
		wg.Wait()
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		h.stream.DeleteConsumer(cleanup, name) // or the server does, in a minute
	}()
	if c.CachedInfo().NumPending == 0 {
		h.skip(last)
	}
	for next := uint64(1); ; next++ {
		msg, err := messages.Next()
		if err != nil {
			return read, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return read, err
		}
		if meta.Sequence.Consumer != next {
			return read, errors.New("a message was not delivered")
		}
		h.deliver(msg.Subject(), meta.Sequence.Stream, msg.Data())
		if read = true; meta.NumPending == 0 {
			h.skip(last)
		}
	}
}

func (h *hub) position() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.high
}

// skip goes on to a sequence, though not all up to it was read here: everybody
// reads it from elsewhere.
func (h *hub) skip(to uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if to > h.high {
		h.high = to
		h.everybodyBehind()
	}
}

func (h *hub) everybodyBehind() {
	for f := range h.each {
		f.behind = true
		f.notify()
	}
}

// each yields every follower.
func (h *hub) each(yield func(*follower) bool) {
	for _, set := range h.sets() {
		for f := range set {
			if !yield(f) {
				return
			}
		}
	}
}

func (h *hub) sets() []map[*follower]bool {
	sets := []map[*follower]bool{h.all}
	for _, set := range h.roots {
		sets = append(sets, set)
	}
	for _, set := range h.runs {
		sets = append(sets, set)
	}
	return sets
}

// deliver hands a chunk out. A sequence that is not the next one means that
// what is between them was purged.
func (h *hub) deliver(subject string, seq uint64, data []byte) {
	c, err := decode(subject, seq, data)
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq <= h.high {
		return
	}
	if seq != h.high+1 || err != nil { // who reads it gets the error
		h.high = seq
		h.everybodyBehind()
		return
	}
	h.high = seq
	for _, set := range []map[*follower]bool{h.all, h.roots[c.root], h.runs[c.run]} {
		for f := range set {
			if f.filter.match(c.root, c.run) {
				h.push(f, item{chunk: c}, c.size)
			}
		}
	}
}

// purged tells those who follow every tree that one was purged. Who is behind is
// not told: it would forget it before it has read it.
func (h *hub) purged(root string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.all {
		if !f.behind && f.size+len(root) <= h.queue {
			h.push(f, item{purged: root}, len(root))
		}
	}
}

// push queues, or leaves it to the stream.
func (h *hub) push(f *follower, i item, size int) {
	if !f.behind {
		if len(f.queue) > 0 && f.size+size > h.queue {
			f.behind = true
		} else {
			f.queue = append(f.queue, i)
			f.size += size
		}
	}
	f.notify()
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// join lets f have what comes from now on, and returns up to where it must read
// elsewhere.
func (h *hub) join(f *follower) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(f)[f] = true
	f.queue, f.size, f.behind = nil, 0, false
	return h.high
}

func (h *hub) leave(f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.set(f), f)
	if f.filter.Root != "" && len(h.roots[f.filter.Root]) == 0 {
		delete(h.roots, f.filter.Root)
	}
	if f.filter.Run != "" && len(h.runs[f.filter.Run]) == 0 {
		delete(h.runs, f.filter.Run)
	}
}

// set is where f is kept.
func (h *hub) set(f *follower) map[*follower]bool {
	of := func(sets map[string]map[*follower]bool, key string) map[*follower]bool {
		if sets[key] == nil {
			sets[key] = map[*follower]bool{}
		}
		return sets[key]
	}
	switch {
	case f.filter.Root != "":
		return of(h.roots, f.filter.Root)
	case f.filter.Run != "":
		return of(h.runs, f.filter.Run)
	}
	return h.all
}

// take empties the queue of f.
func (h *hub) take(f *follower) (items []item, behind bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	items, f.queue, f.size = f.queue, nil, 0
	return items, f.behind
}

// followers counts them.
func (h *hub) followers() (n, behind int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.each {
		n++
		if f.behind {
			behind++
		}
	}
	return n, behind
}

func (h *hub) end() {
	h.live.Lock()
	defer h.live.Unlock()
	if h.sub != nil {
		h.sub.Unsubscribe()
		h.sub = nil
	}
	close(h.gone)
}

// wantDeltas subscribes to deltas when the first follower wants them.
func (h *hub) wantDeltas() error {
	h.live.Lock()
	defer h.live.Unlock()
	if h.want == 0 {
		sub, err := h.nc.Subscribe(broker.DeltaSubject+"*.*", func(msg *nats.Msg) { h.delta(msg.Subject, msg.Data) })
		if err != nil {
			return fmt.Errorf("subscribing to deltas: %w", err)
		}
		h.sub = sub
	}
	h.want++
	return nil
}

func (h *hub) unwantDeltas() {
	h.live.Lock()
	defer h.live.Unlock()
	if h.want--; h.want == 0 && h.sub != nil {
		h.sub.Unsubscribe()
		h.sub = nil
	}
}

// delta hands a delta to those who want it and do not lag.
func (h *hub) delta(subject string, data []byte) {
	root, run, _ := strings.Cut(strings.TrimPrefix(subject, broker.DeltaSubject), ".")
	if checkID("root", root) != nil || checkID("run", run) != nil || len(data) > MaxEvent {
		return
	}
	e := &Event{Root: root, Run: run, Live: true, Data: data}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, set := range []map[*follower]bool{h.all, h.roots[root], h.runs[run]} {
		for f := range set {
			if f.deltas && f.filter.match(root, run) && !f.behind && f.size+len(data) <= h.queue/2 {
				f.queue = append(f.queue, item{delta: e})
				f.size += len(data) + 64
				f.notify()
			}
		}
	}
}
