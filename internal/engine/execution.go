package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Execution is an attempt of a run, for whoever executes it. Its methods may be
// called from any goroutine. They fail with nestor.ErrStale once another attempt
// has taken the run over.
type Execution struct {
	e    *Engine
	id   nestor.ID
	slot Slot
	sent func(context.Context) error // waits until what its start commands is done; set before it is executed
	stop context.CancelCauseFunc     // ends its context
	done <-chan struct{}             // closed when its context ends

	turn  chan struct{} // holds a token while the slot is being lent or reclaimed
	waits int           // that are under way; belongs to who holds turn

	mu      sync.Mutex // guards what follows
	msg     *nats.Msg  // nil if it was handed over, and is at work for a short while
	run     plan.Run
	serial  uint64 // of the last change of the document that was seen
	fence   uint64
	over    bool          // its result is known
	heard   int           // the number of the last letter that was heard
	changed chan struct{} // closed and replaced when run changes
	resting int           // waits that are under way
	rested  time.Time     // when the last one ended
	looking bool          // somebody reads the document
	changes bool          // it has changed since
}

func (x *Execution) begin(d document) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.run, x.serial, x.fence, x.changed = d.Run, d.Serial, d.Run.Fence, make(chan struct{})
}

func (x *Execution) update(run plan.Run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.updateLocked(run)
}

func (x *Execution) updateLocked(run plan.Run) {
	x.run = run
	close(x.changed)
	x.changed = make(chan struct{})
}

// Run returns the run as it was seen last.
func (x *Execution) Run() plan.Run {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.run
}

// Begun waits until the beginning of the attempt is in the log, so that what is
// appended then stands behind it, or until it is known that it will be there with
// the next change only.
func (x *Execution) Begun(ctx context.Context) { x.sent(ctx) }

// Fence returns that of this attempt.
func (x *Execution) Fence() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fence
}

func (x *Execution) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// Report says what the attempt waits for, nil if it works, and what it has spent
// so far in USD.
func (x *Execution) Report(ctx context.Context, wait *nestor.Wait, spent float64) error {
	if _, err := x.e.apply(ctx, x.id, plan.Report{Fence: x.Fence(), Wait: wait, Spent: spent}); err != nil {
		return fmt.Errorf("run %s: %w", x.id, err)
	}
	return nil
}

// Note takes note of what is known of the attempt, whatever it does. Its fence is
// filled in.
func (x *Execution) Note(ctx context.Context, n plan.Note) error {
	n.Fence = x.Fence()
	if _, err := x.e.apply(ctx, x.id, n); err != nil {
		return fmt.Errorf("run %s: %w", x.id, err)
	}
	return nil
}

// Letters returns the letters behind number n that the run has not heard, and a
// channel that is closed when there may be others. The run does not end well
// before it has heard all: see [Execution.Heard].
func (x *Execution) Letters(n int) ([]plan.Letter, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(x.run.Letters), func(l plan.Letter) bool { return l.N <= n })
	return list, x.changed
}

// Heard says that the run has heard its letters up to number n. It is on record
// with its end, or with a note that says so; another attempt hears those again
// that are not.
func (x *Execution) Heard(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heard = max(x.heard, n)
}

// execute calls do. A panic in it is a result.
func (x *Execution) execute(ctx context.Context, do func(context.Context, *Execution) nestor.Result) (result nestor.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = nestor.Result{Status: nestor.Error, Error: &nestor.Failure{
				Kind: nestor.Internal, Message: fmt.Sprintf("panic: %v\n%s", p, debug.Stack()),
			}}
		}
	}()
	return do(ctx, x)
}

// maxOutput is how many bytes of an output a document holds. It has it twice when
// a run ends: once for itself, once for the log.
const maxOutput = broker.MaxDocument / 16

// bounded returns r as a document can hold it.
func bounded(r nestor.Result) nestor.Result {
	if len(r.Output) > maxOutput {
		r.Output, r.Truncated = strings.ToValidUTF8(r.Output[:maxOutput], ""), true
	}
	if n := len(r.Structured); n > maxOutput {
		r.Structured = nil
		if r.Status == nestor.Success {
			r.Status, r.Error = nestor.Error, &nestor.Failure{
				Kind: nestor.Invalid, Message: fmt.Sprintf("the structured output has %d bytes; %d are possible: have the agent write it to a file", n, maxOutput),
			}
		}
	}
	if r.Error != nil && len(r.Error.Message) > maxOutput/4 {
		r.Error = &nestor.Failure{Kind: r.Error.Kind, Until: r.Error.Until, Message: strings.ToValidUTF8(r.Error.Message[:maxOutput/4], "")}
	}
	return r
}

// persistence is how long the end of an attempt is tried to be written, in
// leases: somebody else has it after one.
const persistence = 3

// end says how the attempt ended, or gives it back, and acknowledges its
// message. One that another attempt has taken over does neither: an
// acknowledgement would be taken for the other's. It returns true if the run
// must go on because there are letters that it has not heard.
func (x *Execution) end(ctx context.Context, result nestor.Result) (again bool) {
	x.mu.Lock()
	x.over = true
	heard := x.heard
	x.mu.Unlock()
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrCutOff) {
		x.e.unsettle() // it may have no message that comes again
	}
	if errors.Is(cause, nestor.ErrStale) || errors.Is(cause, ErrCutOff) {
		return false
	}
	var in plan.Input = plan.Finish{Fence: x.Fence(), Result: bounded(result), Heard: heard}
	if errors.Is(cause, ErrShutdown) && result.Status != nestor.Success {
		in = plan.Release{Fence: x.Fence()}
	}
	trying, stop := context.WithTimeout(context.WithoutCancel(ctx), persistence*x.e.opts.Lease)
	defer stop()
	for {
		run, err := x.e.apply(trying, x.id, in)
		switch {
		case errors.Is(err, nestor.ErrStale):
			return false
		case errors.Is(err, plan.ErrUnheard):
			x.mu.Lock()
			defer x.mu.Unlock()
			x.run, x.over = run, false
			return true
		case settled(err) == nil:
			if _, released := in.(plan.Release); released {
				x.giveBack()
			} else {
				x.acknowledge()
			}
			return false
		}
		select {
		case <-time.After(x.e.opts.Lease / 10):
		case <-trying.Done():
			x.e.unsettle() // as above
			return false   // the message comes again, here or elsewhere
		}
	}
}

// acknowledge takes its message out of the queue.
func (x *Execution) acknowledge() {
	if msg := x.message(); msg != nil {
		msg.Ack()
	}
}

// giveBack has its message delivered again.
func (x *Execution) giveBack() {
	if msg := x.message(); msg != nil {
		msg.Nak()
	}
}
