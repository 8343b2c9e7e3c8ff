package eventlog

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestGatherEndsWhenNothingMoreComes(t *testing.T) {
	for _, c := range []struct {
		name string
		more []time.Duration // when something more is queued, since the last time
		want time.Duration
	}{
		{"nothing more", nil, flushLeast},
		{"a burst", []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, flushLeast},
		{"something just before", []time.Duration{flushLeast - time.Millisecond}, flushLeast - time.Millisecond + flushQuiet},
		{"something just after", []time.Duration{flushLeast - time.Millisecond, 2 * time.Millisecond}, flushLeast + time.Millisecond + flushQuiet},
		{"without a pause", slices.Repeat([]time.Duration{flushQuiet / 2}, int(4*flushAfter/flushQuiet)), flushAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Writer{kick: make(chan struct{}, 1), queued: time.Now()}
				var saying sync.WaitGroup
				saying.Go(func() {
					for _, d := range c.more {
						time.Sleep(d) // of the bubble
						w.mu.Lock()
						w.queued = time.Now()
						w.mu.Unlock()
					}
				})
				defer saying.Wait()
				began := time.Now()
				w.gather(t.Context())
				if took := time.Since(began); took != c.want {
					t.Errorf("it waited %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestGatherEndsWhenSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Writer{kick: make(chan struct{}, 1)}
		w.mu.Lock()
		w.wakeLocked()
		w.mu.Unlock()
		began := time.Now()
		w.gather(t.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited %v", took)
		}
	})
}
