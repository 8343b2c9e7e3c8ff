package eventlog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/internal/eventlog"
)

// Little work is not followed by a rest; much is, by its times, unless the end comes.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := eventlog.Pace{Times: 3}
		rest := func(worked time.Duration) time.Duration {
			since := time.Now()
			time.Sleep(worked)
			began := time.Now()
			p.Rest(ctx, since)
			return time.Since(began)
		}
		for _, c := range []struct{ worked, want time.Duration }{
			{6 * time.Millisecond, 0},
			{6 * time.Millisecond, 36 * time.Millisecond},
			{6 * time.Millisecond, 0},
			{20 * time.Millisecond, 78 * time.Millisecond},
		} {
			if is := rest(c.worked); is != c.want {
				t.Errorf("after %v it rests %v, want %v", c.worked, is, c.want)
			}
		}
		cancel()
		if is := rest(time.Hour); is != 0 {
			t.Errorf("at the end it rests %v", is)
		}
	})
}
