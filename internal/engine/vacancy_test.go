package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// A root waits for a slot as long as slots get tasks, and no longer: one that is put into
// the queue costs more, and would keep a busy machine from ever catching up.
func TestWaitsWhileSlotsGetTasks(t *testing.T) {
	for _, test := range []struct {
		name        string
		busy        time.Duration // slots get tasks for so long
		vacant      time.Duration // one waits for a task after this; zero means never
		least, most time.Duration // it waits
	}{
		{"a slot comes at once", 0, time.Millisecond, time.Millisecond, time.Millisecond},
		{"none comes", 0, 0, vacantWithin, vacantWithin},
		{"others get theirs before", 5 * vacantWithin, 5 * vacantWithin, 5 * vacantWithin, 5 * vacantWithin},
		{"others get theirs, then nobody", 5 * vacantWithin, 0, 5 * vacantWithin, 7 * vacantWithin},
		{"others get theirs all the time", time.Hour, 0, vacantAtMost, vacantAtMost + vacantWithin},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &Engine{vacant: make(chan vacancy)}
				begin := time.Now()
				vacant := make(<-chan time.Time) // never
				if test.vacant > 0 {
					vacant = time.After(test.vacant)
				}
				go func() { // what Work does
					tick := time.NewTicker(time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case now := <-tick.C:
							if now.Sub(begin) < test.busy {
								e.lastTaken.Store(now.UnixNano())
							}
						case <-vacant:
							select {
							case e.vacant <- vacancy{}:
							case <-t.Context().Done():
							}
						case <-t.Context().Done():
							return
						}
					}
				}()
				_, ok := e.vacancy(t.Context(), vacantAtMost)
				if waited := time.Since(begin); ok != (test.vacant > 0) || waited < test.least || waited > test.most {
					t.Errorf("got one: %v, after %v; want %v, after %v to %v", ok, waited, test.vacant > 0, test.least, test.most)
				}
			})
		})
	}
}
