package engine

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
)

// noticeSubject is where it is said, live only, that a document changed.
func noticeSubject(id nestor.ID) string { return "notice." + string(id) }

// notify says which change of a document was the last: to all, or where nobody else could want to
// know to this process alone. Who misses it looks again by itself.
func (e *Engine) notify(id nestor.ID, serial uint64) {
	if e.opts.Alone {
		e.notices.say(id, serial)
	} else {
		e.b.Conn().Publish(noticeSubject(id), strconv.AppendUint(nil, serial, 10))
	}
}

// changes returns a channel on which comes the serial of a change of the run, the
// last one of several. The caller calls stop.
func (e *Engine) changes(id nestor.ID) (changed <-chan uint64, stop func(), err error) {
	if e.opts.Alone {
		changed, stop = e.notices.listen(id)
		return changed, stop, nil
	}
	to := make(chan uint64, 1) // sent by the subscription, never closed
	sub, err := e.b.Conn().Subscribe(noticeSubject(id), func(msg *nats.Msg) {
		if serial, err := strconv.ParseUint(string(msg.Data), 10, 64); err == nil { // else it is not ours
			sendLatest(to, serial)
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching run %s: %w", id, err)
	}
	return to, func() { sub.Unsubscribe() }, nil
}

// sendLatest sends a serial, instead of an older one that was not received. Nobody
// else sends meanwhile.
func sendLatest(to chan uint64, serial uint64) {
	select {
	case to <- serial:
	case older := <-to:
		to <- max(older, serial)
	}
}

// notices are those within a process.
type notices struct {
	mu        sync.Mutex // guards what follows, and is held by who sends
	listeners map[nestor.ID][]chan uint64
}

func (n *notices) say(id nestor.ID, serial uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, to := range n.listeners[id] {
		sendLatest(to, serial)
	}
}

func (n *notices) listen(id nestor.ID) (changed <-chan uint64, stop func()) {
	to := make(chan uint64, 1) // sent by say, never closed
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[id] = append(n.listeners[id], to)
	return to, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(n.listeners[id], func(c chan uint64) bool { return c == to })
		if n.listeners[id] = left; len(left) == 0 {
			delete(n.listeners, id)
		}
	}
}
