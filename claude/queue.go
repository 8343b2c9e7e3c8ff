package claude

import (
	"context"
	"sync"
)

// queueLimit is how many bytes of messages wait for their reader before the
// CLI is made to wait too.
const queueLimit = 8 << 20

// queue holds the messages that nobody has read yet, in order. One goroutine
// puts, one at a time takes. Nothing is dropped while somebody may want it:
// when too much waits, put waits, unless somebody waits for an answer that
// comes behind it.
type queue struct {
	limit int // bytes

	mu     sync.Mutex // guards what follows
	room   sync.Cond  // for put: less waits, or urgent, or the end
	items  []Message  // nil items only wake the reader
	bytes  int
	urgent int           // who waits for what comes behind, on the same pipe
	unread bool          // the session is being closed: what is too much is dropped
	ready  chan struct{} // closed and replaced when there is something to take
	ended  bool
	err    error // what the stream ended with; nil means it just ended
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit, ready: make(chan struct{})}
	q.room.L = &q.mu
	return q
}

// put adds messages of size bytes in all. It may wait.
func (q *queue) put(messages []Message, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes > q.limit && q.urgent == 0 && !q.unread {
		q.room.Wait()
	}
	if q.bytes > q.limit && q.unread {
		return
	}
	q.bytes += size
	q.add(messages...)
}

// notice adds m, or with nil only wakes the reader. It never waits.
func (q *queue) notice(m Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if m != nil || len(q.items) == 0 { // who has something to read looks anyway
		q.add(m)
	}
}

// add adds messages. The caller holds mu.
func (q *queue) add(messages ...Message) {
	idle := len(q.items) == 0
	if idle && cap(q.items) == 0 && len(messages) > 1 {
		q.items = messages // the caller's no more
	} else {
		q.items = append(q.items, messages...)
	}
	if idle {
		q.wake()
	}
}

// wake tells who waits in take. The caller holds mu.
func (q *queue) wake() {
	close(q.ready)
	q.ready = make(chan struct{})
}

// end makes take return err, or the end of the stream, behind what waits.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended, q.err = true, err
		q.wake()
	}
}

// abandon lets put drop what is too much, for nobody may ever read it.
func (q *queue) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unread = true
	q.room.Broadcast()
}

// empty tells whether all was taken.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) == 0
}

// hurry keeps put from waiting until the function it returns is called.
func (q *queue) hurry() (done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urgent++
	q.room.Broadcast()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.urgent--
	}
}

// take returns all that waits, once there is something. It returns ok false
// and the stream's error when nothing will come any more, and ctx's cause when
// ctx ends first.
func (q *queue) take(ctx context.Context) (items []Message, ok bool, err error) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			items, q.items, q.bytes = q.items, nil, 0
			q.room.Broadcast()
			q.mu.Unlock()
			return items, true, nil
		}
		ended, err, ready := q.ended, q.err, q.ready
		q.mu.Unlock()
		if ended {
			return nil, false, err
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// back puts items that were taken and not used in front again.
func (q *queue) back(items []Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(items) > 0 {
		q.items = append(items, q.items...)
		q.wake()
	}
}
