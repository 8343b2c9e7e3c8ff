package runner

import (
	"sync"
	"time"
)

// watchman calls a function once when there was no sign of life for too long. Its
// methods may be called from any goroutine.
type watchman struct {
	limit time.Duration

	timer *time.Timer // nil if no signs are needed

	mu      sync.Mutex // guards what follows, and the making of timer
	stopped bool
}

// watch begins to wait for signs of life. A limit of zero means that none are
// needed, and none are while the run waits for others: rested says when it last did.
func watch(limit time.Duration, rested func() time.Time, silent func()) *watchman {
	w := &watchman{limit: limit}
	if limit <= 0 {
		return w
	}
	once := sync.OnceFunc(silent)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit, func() {
		if left := time.Until(rested().Add(limit)); left > 0 {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.stopped {
				w.timer.Reset(left)
			}
			return
		}
		once()
	})
	return w
}

func (w *watchman) sign() {
	if w.timer != nil {
		w.timer.Reset(w.limit)
	}
}

func (w *watchman) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
