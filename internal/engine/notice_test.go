package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// noLog is a log for who does not want to know.
type noLog struct{}

func (noLog) OnceEach(context.Context, []uint64, [][]nestor.Event) error { return nil }
func (noLog) OnceAll(context.Context, []uint64, [][]nestor.Event) error  { return nil }

// Who waits for a run is told of its end, also if whoever wrote it could not: it had no
// answer, say, and gave the same input again. They would look by themselves after half
// an hour.
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
			en, err := e.load(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			run, commands, err := plan.Decide(en.doc.Run, plan.Cancel{Cause: nestor.Cause{Kind: nestor.Stopped, Run: id}, Now: true}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			next := document{Run: run, Serial: en.doc.Serial + 1, Outbox: []batch{{Serial: en.doc.Serial + 1, Commands: commands}}}
			data, err := next.encode()
			if err == nil {
				_, err = e.write(ctx, docName(id), data, en.revision)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Cancel(ctx, id, nestor.Cause{}, true); !errors.Is(err, nestor.ErrEnded) {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
