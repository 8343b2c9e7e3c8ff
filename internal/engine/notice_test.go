package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// silent is a bucket that stores what is written and does not say so, once.
type silent struct {
	jetstream.KeyValue
	once bool
}

func (s *silent) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	n, err := s.KeyValue.Update(ctx, key, value, revision)
	if !s.once && err == nil {
		s.once, err = true, context.DeadlineExceeded
	}
	return n, err
}

// noLog is a log for who does not want to know.
type noLog struct{}

func (noLog) OnceEach(context.Context, []uint64, [][]nestor.Event) error { return nil }
func (noLog) OnceAll(context.Context, []uint64, [][]nestor.Event) error  { return nil }

// Who waits for a run is told of its end, also if who wrote it had no answer and knows
// it only since it looked again. They would look by themselves after half an hour.
func TestWriteWithoutAnAnswerIsToldOf(t *testing.T) {
	for name, opts := range map[string]Options{"alone": {Alone: true, Sole: true, Lease: time.Hour}, "with others": {Lease: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			b, err := broker.Open(ctx, broker.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			e, err := New(ctx, b, noLog{}, opts)
			if err != nil {
				t.Fatal(err)
			}
			e.mended() // nothing was left undone
			id, err := e.Submit(ctx, Submission{Task: nestor.Task{Agent: "a", Input: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			looked, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				first := true
				_, err := e.until(ctx, id, func(r plan.Run) bool {
					if first {
						first = false
						close(looked)
					}
					return hasEnded(r)
				})
				ended <- err
			}()
			<-looked
			bucket := &silent{KeyValue: e.runs}
			e.runs = bucket
			if err := e.Cancel(ctx, id, nestor.Cause{}, true); err != nil && !errors.Is(err, nestor.ErrEnded) { // by this very cancel
				t.Error(err)
			}
			if err := <-ended; err != nil || !bucket.once {
				t.Errorf("%v; a write had no answer: %t", err, bucket.once)
			}
		})
	}
}
