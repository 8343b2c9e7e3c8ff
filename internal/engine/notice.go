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

// notify says which change of a document was the last: to all, or where nobody else
// could want to know to this process alone. Who misses it looks again by itself.
func (e *Engine) notify(id nestor.ID, serial uint64) {
	if e.opts.Alone {
		e.notices.say(id, serial)
	} else {
		e.b.Conn().Publish(noticeSubject(id), strconv.AppendUint(nil, serial, 10))
	}
}

// listen has heard called with the serial of each change of the run that is told of. It
// must not wait for anything. The caller calls stop.
func (e *Engine) listen(id nestor.ID, heard func(serial uint64)) (stop func(), err error) {
	if e.opts.Alone {
		return e.notices.listen(id, heard), nil
	}
	sub, err := e.b.Conn().Subscribe(noticeSubject(id), func(msg *nats.Msg) {
		if serial, err := strconv.ParseUint(string(msg.Data), 10, 64); err == nil { // else it is not ours
			heard(serial)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watching run %s: %w", id, err)
	}
	return func() { sub.Unsubscribe() }, nil
}

// changes returns a channel on which something comes when the run has changed. The
// caller calls stop.
func (e *Engine) changes(id nestor.ID) (changed <-chan struct{}, stop func(), err error) {
	to := make(chan struct{}, 1) // sent by who changes it, never closed
	stop, err = e.listen(id, func(uint64) {
		select {
		case to <- struct{}{}:
		default:
		}
	})
	return to, stop, err
}

// notices are those within a process.
type notices struct {
	mu        sync.Mutex // guards what follows, and is held by who says something
	listeners map[nestor.ID][]*listener
}

type listener struct{ heard func(serial uint64) }

func (n *notices) say(id nestor.ID, serial uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.listeners[id] {
		l.heard(serial)
	}
}

func (n *notices) listen(id nestor.ID, heard func(serial uint64)) (stop func()) {
	l := &listener{heard}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[id] = append(n.listeners[id], l)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(n.listeners[id], func(other *listener) bool { return other == l })
		if n.listeners[id] = left; len(left) == 0 {
			delete(n.listeners, id)
		}
	}
}
