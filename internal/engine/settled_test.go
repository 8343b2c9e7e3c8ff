package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
)

// counter is a log that counts what it is given, and fails if it has an error.
type counter struct {
	calls atomic.Int64
	err   error
}

func (c *counter) OnceEach(context.Context, []uint64, [][]nestor.Event) error {
	c.calls.Add(1)
	return c.err
}

func (c *counter) OnceAll(context.Context, []uint64, [][]nestor.Event) error {
	c.calls.Add(1)
	return c.err
}

// An engine that has ended in order says so to the next, which then does not carry
// out again what the documents command; unless something was written since.
func TestSettled(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 1, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	n.wait(t, n.submit(t, nestor.Task{Input: "first"}))
	settled := settle(t, n.Engine)
	n.stop()
	if is := sentAgain(t, b, settled); is != 0 {
		t.Errorf("%d documents were carried out again, and nothing was written since", is)
	}
	if is := sentAgain(t, b, ""); is == 0 {
		t.Error("none was carried out again, and nobody said that there was nothing left")
	}
	n = open(t, b, private, 0, nil)
	n.submit(t, nestor.Task{Input: "second"})
	n.stop()
	if is := sentAgain(t, b, settled); is == 0 {
		t.Error("none was carried out again, and one was written since")
	}
}

// settle waits until an engine has left nothing undone, and returns what it says.
func settle(t *testing.T, e *engine.Engine) (settled string) {
	t.Helper()
	waitFor(t, func() bool {
		var err error
		settled, err = e.Settled(within(t))
		return err == nil && settled != ""
	}, "nothing is left undone")
	return settled
}

// sentAgain runs an engine until it has done what was left undone, and returns how
// often it wrote to the log.
func sentAgain(t *testing.T, b *broker.Broker, settled string) int64 {
	t.Helper()
	opts := private
	opts.Settled = settled
	var log counter
	e, stop := next(t, b, &log, opts, nil)
	settle(t, e)
	stop()
	return log.calls.Load()
}

// next runs an engine on what one before it has left, and w on it, if that is not nil,
// until stop.
func next(t *testing.T, b *broker.Broker, log engine.Log, opts engine.Options, w *engine.Worker) (e *engine.Engine, stop func()) {
	t.Helper()
	e, err := engine.New(within(t), b, log, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	if w != nil {
		running.Go(func() { e.Work(ctx, *w) })
	}
	return e, func() { cancel(); running.Wait() }
}

// slow is a log that takes its time.
type slow struct{ counter }

func (s *slow) OnceEach(ctx context.Context, marks []uint64, events [][]nestor.Event) error {
	time.Sleep(100 * time.Millisecond) // a disk, not a wait for something
	return s.counter.OnceEach(ctx, marks, events)
}

// What was left undone is done before work goes on: it may be a cancel of what was
// interrupted.
func TestRepairComesBeforeWork(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 0, nil)
	n.submit(t, nestor.Task{Input: "waits"})
	n.stop()
	var log slow
	repaired := make(chan int64, 1)
	w := slots(1)
	w.Execute = func(context.Context, *engine.Execution) nestor.Result {
		repaired <- log.calls.Load()
		return success("done")
	}
	_, stop := next(t, b, &log, private, &w)
	defer stop()
	if n := <-repaired; n == 0 {
		t.Error("the run was started before what its document commands was done again")
	}
}

// Who waits for a run that one before has ended, and was killed, finds its end in the
// log.
func TestEndsAreToldAfterACrash(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 1, func(context.Context, *engine.Execution) nestor.Result { return success("done") })
	id := n.submit(t, nestor.Task{Input: "ends"})
	n.wait(t, id)
	n.stop()
	var log slow
	e, stop := next(t, b, &log, private, nil)
	defer stop()
	if run, err := e.Wait(within(t), id); err != nil || run.State != nestor.Success || log.calls.Load() == 0 {
		t.Errorf("it is %s, %v, and its end was written %d times", run.State, err, log.calls.Load())
	}
}

// An engine that could not carry something out does not say that nothing is left.
func TestNotSettled(t *testing.T) {
	b := embedded(t, t.TempDir())
	n := open(t, b, private, 0, nil)
	n.submit(t, nestor.Task{Input: "first"})
	opts := private
	opts.Settled = settle(t, n.Engine)
	n.stop()
	e, err := engine.New(within(t), b, &counter{err: errors.New("made to fail")}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := e.Settled(within(t)); settled != opts.Settled {
		t.Errorf("before anything it says %q, %v", settled, err)
	}
	if _, err := e.Submit(within(t), engine.Submission{Task: nestor.Task{Input: "second"}}); err == nil {
		t.Error("what cannot be carried out was submitted")
	}
	if settled, err := e.Settled(within(t)); err != nil || settled != "" {
		t.Errorf("it says %q, %v", settled, err)
	}
}
