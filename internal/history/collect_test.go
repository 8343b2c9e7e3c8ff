package history

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/internal/eventlog"
)

// A batch ends when nothing more comes, when others have come for long enough, and at
// once for who waits for it.
func TestCollect(t *testing.T) {
	const late = 5 * time.Second
	for _, c := range []struct {
		name  string
		every time.Duration // an event comes
		n     int           // so often
		hurry time.Duration // after which somebody waits; zero means never
		took  time.Duration
		batch int
	}{
		{name: "one", every: time.Hour, n: 1, took: batchAfter, batch: 1},
		{name: "a few", every: batchAfter / 2, n: 3, took: 2 * batchAfter, batch: 3},
		{name: "without end", every: batchAfter / 2, n: 200, took: late, batch: int(2 * late / batchAfter)},
		{name: "somebody waits", every: batchAfter / 2, n: 100, hurry: batchAfter * 7 / 4, took: batchAfter * 7 / 4, batch: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &History{late: late, hurry: make(chan struct{}, 1)}
				events, over := make(chan eventlog.Event), make(chan struct{})
				var coming sync.WaitGroup
				coming.Go(func() {
					for range c.n {
						select {
						case events <- eventlog.Event{}:
						case <-over:
							return
						}
						time.Sleep(c.every) // of the bubble
					}
				})
				if c.hurry > 0 {
					time.AfterFunc(c.hurry, h.Hurry)
				}
				began := time.Now()
				batch := h.collect(events)
				if took := time.Since(began); took != c.took || len(batch) < c.batch || len(batch) > c.batch+1 {
					t.Errorf("%d events after %v, want %d after %v", len(batch), took, c.batch, c.took)
				}
				close(over)
				coming.Wait()
			})
		})
	}
}
