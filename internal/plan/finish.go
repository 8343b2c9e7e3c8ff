package plan

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/dfaf701a/nestor"
)

// Finish is the end of the current attempt. The run ends with it, unless the
// attempt is made again.
type Finish struct {
	Fence  uint64        `json:"fence"`
	Result nestor.Result `json:"result"`
	Heard  int           `json:"heard,omitempty"` // as in Note
}

func (in Finish) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	r := in.Result
	d.spend(r.CostUSD)
	if r.Session != "" {
		d.Session = r.Session
	}
	d.hear(in.Heard)
	if !r.Status.Ended() {
		r.Status, r.Error = nestor.Error, &nestor.Failure{Kind: nestor.Internal, Message: fmt.Sprintf("the result has the status %q", r.Status)}
	}
	if r.Status == nestor.Success && len(d.Letters) > 0 && d.Cancel == nil {
		return ErrUnheard
	}
	if at, ok := d.reset(r); ok {
		d.next(nestor.Wait{For: nestor.ForLimit, Until: at, Reason: r.Error.Message})
		d.emit(&nestor.RunWaiting{Reason: r.Error.Message, Wait: *d.Wait})
		return nil
	}
	if d.again(r) {
		at := d.now.Add(d.backoff())
		d.Retries++
		d.next(nestor.Wait{For: nestor.ForRetry, Until: at, Reason: r.Error.Message})
		d.emit(&nestor.RunRetry{Reason: r.Error.Message, Attempt: d.Attempt, At: at})
		return nil
	}
	d.finish(r)
	return nil
}

// next has the run wait for its next attempt.
func (d *decision) next(wait nestor.Wait) {
	wait.Since = d.now
	d.Attempt++
	d.Worker, d.Delivery, d.Prior = "", "", d.Spent
	d.State, d.Wait = nestor.Waiting, &wait
	d.enqueue(wait.Until)
	d.remind()
}

// again tells whether a failed attempt is made again.
func (d *decision) again(r nestor.Result) bool {
	return r.Status != nestor.Success && r.Error != nil && (r.Error.Kind == nestor.Connection || r.Error.Kind == nestor.Silence) &&
		d.Retries+1 < d.Task.Limits.Attempts && d.Cancel == nil && (d.Deadline.IsZero() || d.now.Before(d.Deadline))
}

// reset returns when an attempt that a usage limit ended is made again, if it is.
// A run waits for a limit that it met itself once; its own deadline waits with
// it, that of a run above it does not.
func (d *decision) reset(r nestor.Result) (time.Time, bool) {
	if r.Status == nestor.Success || r.Error == nil || d.Cancel != nil {
		return time.Time{}, false
	}
	at := r.Error.Until
	switch r.Error.Kind {
	default:
		return at, false
	case nestor.Limited:
		if d.Limited > 0 {
			return at, false
		}
	case nestor.Held:
	}
	if at.IsZero() || at.Sub(d.now) > d.Task.Limits.LimitWait {
		return at, false
	}
	at = later(at, d.now)
	switch {
	case d.Deadline.IsZero():
	case d.Path.Len() == 0:
		d.Deadline = d.Deadline.Add(at.Sub(d.now))
	case !at.Before(d.Deadline):
		return at, false
	}
	if r.Error.Kind == nestor.Limited {
		d.Limited++
	}
	return at, true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

const maxBackoff = time.Minute

// backoff returns how long to wait before the attempt that follows: twice as long
// as before the last, give or take a quarter, which depends on the run.
func (d *decision) backoff() time.Duration {
	wait := min(d.Task.Limits.Backoff<<min(d.Retries, 20), maxBackoff)
	h := fnv.New32a()
	fmt.Fprint(h, d.ID, d.Attempt)
	jitter := float64(h.Sum32())/math.MaxUint32/2 - 0.25
	return wait + time.Duration(jitter*float64(wait))
}
