package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// behind calls do while who wants it goes on. Run and Work wait for it.
func (e *Engine) behind(do func()) { go e.carrying(do)() }

// carrying returns do, which Run and Work wait for from now on: it has to be called.
func (e *Engine) carrying(do func()) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sending++
	return func() {
		defer e.ceased()
		do()
	}
}

// ceased says that something is not done behind any more.
func (e *Engine) ceased() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sending--; e.sending == 0 {
		e.quiet.Broadcast()
	}
}

// rest waits until nothing is done behind.
func (e *Engine) rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.sending > 0 {
		e.quiet.Wait()
	}
}

// follow carries out the commands of next, behind those of en, which it replaced.
func (e *Engine) follow(ctx context.Context, id nestor.ID, en, next *entry) error {
	rest := next.doc.Outbox
	if en.take() { // then both at once
		defer e.ceased() // those of en: nobody else carries them out
		err := e.send(ctx, id, next.doc.Run, rest)
		e.sent(id, en, err)
		return err
	}
	if en.sent != nil && en.carriedOut(ctx) == nil {
		rest = slices.DeleteFunc(slices.Clone(rest), func(b batch) bool { return b.Serial < next.doc.Serial })
	}
	return e.send(ctx, id, next.doc.Run, rest)
}

// flush returns when the commands of a document are carried out.
func (e *Engine) flush(ctx context.Context, id nestor.ID, en *entry) error {
	if en.sent != nil {
		return en.carriedOut(ctx)
	}
	return e.carryOut(ctx, id, en.doc)
}

// carryOut carries out the commands of a document that was read. Who wrote it may
// never have known that it was written, this process among others, and have told
// nobody of the change.
func (e *Engine) carryOut(ctx context.Context, id nestor.ID, d document) error {
	e.notify(id, d.Serial)
	return e.send(ctx, id, d.Run, d.Outbox)
}

// send carries out commands: one batch after the other, what is in it all at once,
// each with an id by which a repetition is known. Events that follow each other are
// stored together.
func (e *Engine) send(ctx context.Context, id nestor.ID, run plan.Run, outbox []batch) error {
	for began, rest := time.Now(), outbox; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n-1].only(isEvent) && rest[n].only(isBehind) {
			n++
		}
		err := e.sendTogether(ctx, id, run, rest[:n])
		switch {
		case err == nil:
			rest = rest[n:]
		case !e.patient(ctx, began, err):
			return err
		}
	}
	return nil
}

// only tells whether all commands of a batch are of a kind.
func (b batch) only(kind func(plan.Command) bool) bool {
	return !slices.ContainsFunc(b.Commands, func(c plan.Command) bool { return c != nil && !kind(c) })
}

// isEvent tells whether a command says something in the log.
func isEvent(c plan.Command) bool {
	_, ok := c.(plan.Emit)
	return ok
}

// isBehind tells whether a command is an event, or is carried out behind those it is
// with.
func isBehind(c plan.Command) bool {
	tell, _ := c.(plan.Tell)
	_, ok := tell.Input.(plan.ChildEnded)
	return ok || isEvent(c)
}

// sendTogether carries out batches of which all but the last are events.
func (e *Engine) sendTogether(ctx context.Context, id nestor.ID, run plan.Run, list []batch) error {
	var marks []uint64
	var events [][]nestor.Event
	for _, b := range list {
		if some := eventsOf(b.Commands); len(some) > 0 {
			marks, events = append(marks, b.Serial), append(events, some)
		}
	}
	b := list[len(list)-1]
	var cancels []plan.Tell
	var first, then []*nats.Msg // before and behind the events
	var children []child        // that may find a slot; likewise behind them
	for i, c := range b.Commands {
		to := &first
		switch c := c.(type) {
		case nil, plan.Emit: // it is carried out, or is below
			continue
		case plan.Tell:
			switch in := c.Input.(type) {
			case plan.Submit:
				if e.mayHand(in) {
					children = append(children, child{in: in})
					to = &children[len(children)-1].otherwise
				}
			case plan.Cancel:
				if e.opts.Alone {
					cancels = append(cancels, c)
					continue
				}
			case plan.ChildEnded:
				to = &then // who sees the end of a run in the log has seen those below it
			}
		}
		msg, err := message(id, run, c)
		if err != nil {
			return err
		}
		if msg.Header.Get(nats.MsgIdHdr) == "" {
			msg.Header.Set(nats.MsgIdHdr, string(id)+"."+strconv.FormatUint(b.Serial, 10)+"."+strconv.Itoa(i))
		}
		*to = append(*to, msg)
	}
	acks, err := e.publish(nil, first)
	if err == nil && len(cancels) > 0 {
		err = e.fell(ctx, id, cancels)
	}
	if err == nil && len(events) > 0 {
		err = e.log.OnceEach(ctx, marks, events)
	}
	for _, c := range children {
		if err == nil && !e.handChild(ctx, c.in) {
			acks, err = e.publish(acks, c.otherwise)
		}
	}
	if err == nil {
		acks, err = e.publish(acks, then)
	}
	for _, ack := range acks {
		if err == nil {
			err = e.acknowledged(ctx, ack)
		}
	}
	if err != nil {
		return fmt.Errorf("run %s: carrying out what follows: %w", id, e.b.Explain(err))
	}
	return nil
}

// child is a run that another one submits.
type child struct {
	in        plan.Submit
	otherwise []*nats.Msg // that submits it if it finds no slot
}

// handChild is hand for a child, which may have been submitted before.
func (e *Engine) handChild(ctx context.Context, in plan.Submit) bool {
	if ended, _ := e.forgotten(ctx, in.ID, in); ended {
		return true
	}
	return e.hand(ctx, in)
}

// publish sends messages off, and returns acks with theirs.
func (e *Engine) publish(acks []jetstream.PubAckFuture, messages []*nats.Msg) ([]jetstream.PubAckFuture, error) {
	for _, msg := range messages {
		ack, err := e.js.PublishMsgAsync(msg)
		if err != nil {
			return acks, fmt.Errorf("publishing on %s: %w", msg.Subject, err)
		}
		acks = append(acks, ack)
	}
	return acks, nil
}

// duplicateInProcess is the error of a cluster that is storing the same message
// for somebody else. Seen in 2.15.2; the client has no name for it.
const duplicateInProcess jetstream.ErrorCode = 10158

// acknowledged waits until a message is stored.
func (e *Engine) acknowledged(ctx context.Context, ack jetstream.PubAckFuture) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	for {
		select {
		case <-ack.Ok():
			return nil
		case err := <-ack.Err():
			if api, ok := errors.AsType[*jetstream.APIError](err); !ok || api.ErrorCode != duplicateInProcess {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		// Whether the other succeeds is not known: say it again.
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		if ack, err = e.js.PublishMsgAsync(ack.Msg()); err != nil {
			return err
		}
	}
}

// Subjects of the queues, behind those of the broker.
const (
	runTask   = "run."   // LABEL.PRIORITY: an attempt that a worker may take
	timerTask = "timer." // RUN: a time that has come
	anyLabel  = "~"      // of a task without one; no label has it
)

// taskData is what the queue of tasks holds.
type taskData struct {
	Run     nestor.ID `json:"run"`
	Attempt int       `json:"attempt,omitempty"`

	// Submit makes the run, for a worker that gets the message before the document
	// is written; nil if the document came first.
	Submit *plan.Submit `json:"submit,omitempty"`
}

// message makes a message of a command.
func message(id nestor.ID, run plan.Run, c plan.Command) (*nats.Msg, error) {
	switch c := c.(type) {
	case plan.Enqueue:
		msg, err := taskMessage(taskData{Run: id, Attempt: c.Attempt}, run.Task, c.At)
		if err == nil && c.Again {
			msg.Header.Del(nats.MsgIdHdr) // that of the command
		}
		return msg, err
	case plan.SetTimer:
		data, err := json.Marshal(taskData{Run: id})
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", id, err)
		}
		return broker.Later(timerSubject(id), broker.TaskSubject+timerTask+string(id), c.At, data), nil
	case plan.Tell:
		data, err := plan.EncodeInput(c.Input)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", id, err)
		}
		msg := nats.NewMsg(broker.OrchSubject + string(c.Run))
		msg.Data = data
		return msg, nil
	}
	return nil, fmt.Errorf("run %s: command of type %T", id, c)
}

// timerSubject is where the time of a run waits until it comes.
func timerSubject(id nestor.ID) string { return broker.LaterSubject + timerTask + string(id) }

// taskMessage makes the message of an attempt, for some time or for at once.
func taskMessage(d taskData, task nestor.Task, at time.Time) (*nats.Msg, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", d.Run, err)
	}
	subject := taskSubject(task)
	name := string(d.Run) + ".attempt." + strconv.Itoa(d.Attempt)
	msg := nats.NewMsg(subject)
	msg.Data = data
	if !at.IsZero() {
		msg = broker.Later(broker.LaterSubject+runTask+string(d.Run), subject, at, data)
		name += ".later"
	}
	msg.Header.Set(nats.MsgIdHdr, name)
	return msg, nil
}

func taskSubject(t nestor.Task) string {
	label, priority := t.Label, t.Priority
	if label == "" {
		label = anyLabel
	}
	if priority == "" {
		priority = nestor.Normal
	}
	return broker.TaskSubject + runTask + label + "." + string(priority)
}
