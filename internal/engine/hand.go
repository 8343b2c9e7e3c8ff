package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// An engine that is alone gives a run to a slot here that waits for a task: its
// document, which says that it is at work, is all that has to be written for its
// start. It has no message in the queue, which would come again after a crash.
// Instead it gets one when it is given back, when it has been at work for a while,
// or, if its process was killed before, by the one that comes after it. That a child
// is to be submitted is in the outbox of its parent until it is.

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

// mayHand tells whether a slot here that waits for a task may get this one.
func (e *Engine) mayHand(in plan.Submit) bool {
	if !e.opts.Alone || in.Task.Label != "" || len(in.Task.After) > 0 {
		return false
	}
	return e.offers.Load() > 0 || vacantFor(in) > vacantWithin && e.moving()
}

// vacantFor is how long a run waits for a slot at most. Who starts a child waits with
// it, and may have the very slot that it would get.
func vacantFor(in plan.Submit) time.Duration {
	if in.Path.Len() > 0 {
		return vacantWithin
	}
	return vacantAtMost
}

// hand starts a run in a slot that waits for a task, and tells whether it is submitted
// by that. If not, it is to be submitted otherwise.
func (e *Engine) hand(ctx context.Context, in plan.Submit) bool {
	if !e.mayHand(in) {
		return false
	}
	v, ok := e.vacancy(ctx, vacantFor(in))
	if !ok {
		return false
	}
	release := func() {
		v.slot.Release()
		v.over()
	}
	x, work, end := e.execution(v.ctx, in.ID, v.slot, nil)
	en, started, err := e.handed(ctx, x, in)
	if err != nil || !started {
		e.left(x)
		end()
		release()
		return err == nil
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
func (e *Engine) vacancy(ctx context.Context, atMost time.Duration) (v vacancy, ok bool) {
	begin := time.Now()
	late := time.NewTimer(vacantWithin)
	defer late.Stop()
	for {
		select {
		case v = <-e.vacant:
			return v, true
		case <-late.C:
			if !e.moving() || time.Since(begin) >= atMost {
				return v, false
			}
			late.Reset(vacantWithin)
		case <-ctx.Done():
			return v, false
		}
	}
}

// handed writes that a run is at work in the slot of x. If it is to end before it has
// begun it is not, though it is written.
func (e *Engine) handed(ctx context.Context, x *Execution, in plan.Submit) (en *entry, started bool, err error) {
	claiming, stop := context.WithTimeout(ctx, claimedWithin)
	defer stop()
	root := in.ID
	if in.Path.Len() > 0 {
		root = in.Path.At(0)
	}
	if err := x.slot.Claim(claiming, root, in.Task); err != nil {
		return nil, false, err
	}
	if !e.reserve(x) {
		return nil, false, plan.ErrRepeated // somebody has submitted it, too
	}
	start := plan.Start{Attempt: 1, Worker: e.opts.Name, Delivery: rand.Text(), Submit: &in, New: true}
	// Who gives up meanwhile must not leave a run that is written and nobody executes.
	g, err := e.gave(context.WithoutCancel(ctx), in.ID, start)
	if err = cmp.Or(err, settled(g.err)); err != nil {
		return nil, false, err
	}
	return g.en, g.wrote && g.en.doc.Run.Delivery == start.Delivery, nil
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

// at returns the attempt of a run that is at work in this process, or may be in a moment:
// then it has no fence yet; nil if none is.
func (e *Engine) at(id nestor.ID) *Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working[id]
}

// unhanded sees to it that a run is executed which was submitted or found: it may have
// been handed over, and nobody know.
func (e *Engine) unhanded(ctx context.Context, run plan.Run) error {
	if x := e.at(run.ID); x != nil && x.Fence() != 0 {
		return nil
	}
	return e.enqueue(ctx, run)
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
