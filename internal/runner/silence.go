package runner

import (
	"sync"
	"time"
)

// watchman calls a function once when there was no sign of life for too long. Its
// methods may be called from any goroutine.
type watchman struct {
	limit time.Duration
	timer *time.Timer
}

// watch begins to wait for signs of life. Zero means that none are needed.
func watch(limit time.Duration, silent func()) *watchman {
	w := &watchman{limit: limit}
	if limit > 0 {
		w.timer = time.AfterFunc(limit, sync.OnceFunc(silent))
	}
	return w
}

func (w *watchman) sign() {
	if w.timer != nil {
		w.timer.Reset(w.limit)
	}
}

func (w *watchman) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
