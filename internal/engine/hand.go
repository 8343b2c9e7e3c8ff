package engine

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// An engine that is alone gives a root to a slot here that waits for a task: its
// document, which says that it is at work, is all that has to be written for its
// start. It has no message in the queue, which would come again after a crash.
// Instead it gets one when it is given back, when it has been at work for a while,
// or, if its process was killed before, by the one that comes after it.

// vacancy is a slot that waits for a task.
type vacancy struct {
	ctx    context.Context // of who works
	worker Worker
	slot   Slot
	over   func() // to be called when the slot is released
}

const (
	// vacantWithin is how long a slot that waits may take to be had, and how long
	// after one got a task the next is thought to come free soon.
	vacantWithin = 10 * time.Millisecond
	// vacantAtMost is how long a root waits for a slot while others get theirs. One
	// that is put into the queue costs more than twice as much: a machine that is busy
	// would fall behind, and put the next ones there, too.
	vacantAtMost = 250 * time.Millisecond
	// claimedWithin is how long it may take until the task may run in it.
	claimedWithin = 20 * time.Millisecond
	// messageAfter is how long a run is at work without a message in the queue.
	// It must be well below what repair looks at first.
	messageAfter = time.Second
)

// hand starts a root in a slot that waits for a task, and tells whether it did. If not,
// it is to be submitted otherwise.
func (e *Engine) hand(ctx context.Context, in plan.Submit) bool {
	if !e.opts.Alone || in.Task.Label != "" || len(in.Task.After) > 0 {
		return false
	}
	if e.offers.Load() == 0 && !e.moving() {
		return false
	}
	v, ok := e.vacancy(ctx)
	if !ok {
		return false
	}
	release := func() {
		v.slot.Release()
		v.over()
	}
	x, work, end := e.execution(v.ctx, in.ID, v.slot, nil)
	en, err := e.handed(ctx, x, in)
	if err != nil {
		e.left(x)
		end()
		release()
		return false
	}
	go func() {
		defer release()
		defer end()
		defer e.left(x)
		defer x.live(work)()
		x.perform(work, v.worker, en)
	}()
	return true
}

// moving tells whether a slot here got a task just now, so that another one may soon.
func (e *Engine) moving() bool {
	return time.Since(time.Unix(0, e.lastTaken.Load())) <= vacantWithin
}

// vacancy waits for a slot, for as long as slots get tasks.
func (e *Engine) vacancy(ctx context.Context) (v vacancy, ok bool) {
	begin := time.Now()
	late := time.NewTimer(vacantWithin)
	defer late.Stop()
	for {
		select {
		case v = <-e.vacant:
			return v, true
		case <-late.C:
			if !e.moving() || time.Since(begin) > vacantAtMost {
				return v, false
			}
			late.Reset(vacantWithin)
		case <-ctx.Done():
			return v, false
		}
	}
}

// handed writes that a root is at work in the slot of x.
func (e *Engine) handed(ctx context.Context, x *Execution, in plan.Submit) (*entry, error) {
	claiming, stop := context.WithTimeout(ctx, claimedWithin)
	defer stop()
	if err := x.slot.Claim(claiming, in.ID, in.Task); err != nil {
		return nil, err
	}
	if !e.reserve(x) {
		return nil, plan.ErrRepeated // somebody has submitted it, too
	}
	// Who gives up meanwhile must not leave a run that is written and nobody executes.
	return e.heard(context.WithoutCancel(ctx), in.ID, plan.Start{Attempt: 1, Worker: e.opts.Name, Delivery: rand.Text(), Submit: &in, New: true})
}

// reserve takes note that an attempt is about to be at work, unless another one of the
// same run is.
func (e *Engine) reserve(x *Execution) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.working[x.id] != nil {
		return false
	}
	e.working[x.id] = x
	return true
}

// adopt gives an attempt that was started without a message the one that it has in
// the queue by now, and tells whether it wants it.
func (x *Execution) adopt(msg *nats.Msg, attempt int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.msg != nil || x.over || x.run.Message != 0 || x.run.Attempt != attempt {
		return false
	}
	x.msg = msg
	return true
}

// message returns the message of the attempt; nil if it has none yet.
func (x *Execution) message() *nats.Msg {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.msg
}

// at returns the attempt of a run that is at work in this process; nil if none is.
func (e *Engine) at(id nestor.ID) *Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working[id]
}

// enqueue puts a message into the queue for a run that was started without one, and is
// not at work or will adopt it.
func (e *Engine) enqueue(ctx context.Context, run plan.Run) error {
	if run.Worker == "" || run.Message != 0 || run.State.Ended() {
		return nil
	}
	msg, err := taskMessage(taskData{Run: run.ID, Attempt: run.Attempt}, run.Task, time.Time{})
	if err != nil {
		return err
	}
	// Not that of the message that it would have had: who submitted it twice may have
	// sent that, and it was taken out of the queue since there was nothing to do.
	msg.Header.Set(nats.MsgIdHdr, msg.Header.Get(nats.MsgIdHdr)+".handed")
	ack, err := e.js.PublishMsgAsync(msg)
	if err != nil {
		return err
	}
	return e.acknowledged(ctx, ack)
}
