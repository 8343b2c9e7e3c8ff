package claude

import (
	"context"
	"testing"
	"testing/synctest"
)

// A line that the CLI has read is sent, also if the CLI has left before the writer can
// say so.
func TestSentBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Session{out: make(chan outgoing), gone: make(chan struct{})}
		sent := make(chan error, 1)
		go func() { sent <- s.send(context.Background(), outgoing{line: []byte("{}\n")}) }()
		o := <-s.out
		close(s.gone)
		synctest.Wait()
		o.done <- nil
		if err := <-sent; err != nil {
			t.Errorf("got %v", err)
		}
	})
}
