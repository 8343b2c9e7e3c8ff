package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// gift is an input that waits for its turn to be given to a run.
type gift struct {
	in plan.Input

	done  chan struct{} // closed by who gave it, when what follows is set
	en    *entry
	wrote bool // en is by this input, not what was there before
	err   error
}

// given gives an input to a run and returns its document when it is written; its
// commands may be under way. One that changes nothing returns when those of what was
// there before are carried out.
func (e *Engine) given(ctx context.Context, id nestor.ID, in plan.Input) (*entry, error) {
	for {
		g, err := e.gave(ctx, id, in)
		if err != nil || g.wrote || g.en == nil {
			return orEmpty(g.en), cmp.Or(err, g.err)
		}
		err = e.flush(ctx, id, g.en)
		if err == nil {
			return g.en, g.err
		}
		if g.en.sent == nil || ctx.Err() != nil {
			return g.en, err
		}
		e.forget(id) // who wrote it gave up: read it, and send them
	}
}

// gave gives an input to a run and returns what came of it, whether the commands of what
// was there before are carried out or not: for who carries some out, whom they may wait
// for.
func (e *Engine) gave(ctx context.Context, id nestor.ID, in plan.Input) (*gift, error) {
	for {
		g := &gift{in: in, done: make(chan struct{})}
		if err := e.inTurn(ctx, id, g); err != nil {
			return &gift{}, err
		}
		if !errors.Is(g.err, errConflict) || ctx.Err() != nil {
			return g, nil
		} // else what was decided ahead was given up: decide by the document
	}
}

func orEmpty(en *entry) *entry {
	if en == nil {
		return &entry{}
	}
	return en
}

// inTurn has a gift given. Within the process inputs of a run come one after the
// other: who would be refused by the bucket had better wait.
func (e *Engine) inTurn(ctx context.Context, id nestor.ID, g *gift) error {
	if isEnd(g.in) {
		e.mu.Lock()
		e.ends[id] = append(e.ends[id], g)
		e.mu.Unlock()
	}
	turn := e.turn(id)
	select {
	case turn <- struct{}{}:
		e.give(ctx, id, e.with(id, g))
		<-turn
	case <-g.done: // with that of another
		return nil
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		e.withdraw(id, g)
		return context.Cause(ctx)
	}
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// turn holds a token while the run is being decided about.
func (e *Engine) turn(id nestor.ID) chan struct{} {
	return e.turns[maphash.String(e.hash, string(id))%uint64(len(e.turns))]
}

// isEnd tells whether an input is one of those that are given together.
func isEnd(in plan.Input) bool {
	_, ok := in.(plan.ChildEnded)
	return ok
}

// maxTogether is how many inputs are given together.
const maxTogether = 64

// with returns a gift and those that can be given with it: a run with a thousand
// children would else be written a thousand times, each time as large as all of
// them. It returns none if the gift has been given.
func (e *Engine) with(id nestor.ID, g *gift) []*gift {
	if !isEnd(g.in) {
		return []*gift{g}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.withdraw(id, g) {
		return nil
	}
	group := append([]*gift{g}, e.ends[id][:min(len(e.ends[id]), maxTogether-1)]...)
	for _, other := range group[1:] {
		e.withdraw(id, other)
	}
	return group
}

// withdraw takes a gift out of those that wait, and tells whether it was there. The
// caller holds mu.
func (e *Engine) withdraw(id nestor.ID, g *gift) bool {
	i := slices.Index(e.ends[id], g)
	if i < 0 {
		return false
	}
	if e.ends[id] = slices.Delete(e.ends[id], i, i+1); len(e.ends[id]) == 0 {
		delete(e.ends, id)
	}
	return true
}

// give gives a run what a group brings, in one change if none of it is refused.
func (e *Engine) give(ctx context.Context, id nestor.ID, group []*gift) {
	if e.giveAhead(id, group) {
		return
	}
	ins := make([]plan.Input, len(group))
	for i, g := range group {
		ins[i] = g.in
	}
	if len(group) > 1 {
		en, wrote, err := e.change(ctx, id, ins)
		if err == nil || ctx.Err() != nil || isAway(err) {
			for _, g := range group {
				g.en, g.wrote, g.err = en, wrote, err
				close(g.done)
			}
			return
		}
	}
	for i, g := range group {
		g.en, g.wrote, g.err = e.change(ctx, id, ins[i:i+1])
		close(g.done)
	}
}

// change gives inputs to a run and returns its document when it is written, or as it
// is if nothing changed or the error refuses the inputs; nil if it is not known.
func (e *Engine) change(ctx context.Context, id nestor.ID, ins []plan.Input) (en *entry, wrote bool, err error) {
	en, began := e.recall(id), time.Now()
	if en == nil && makes(ins[0]) {
		en = &entry{} // most likely: if not, the write fails
	}
	for fresh := en == nil; ; fresh = true {
		if fresh {
			if en, err = e.load(ctx, id); err != nil {
				return nil, false, err
			}
		}
		next, refused, err := e.decide(ctx, id, en, ins)
		switch {
		case refused == nil && err == nil:
			return next, next != en, nil
		case refused != nil && fresh:
			return en, false, refused
		case errors.Is(err, errConflict) || !fresh && ctx.Err() == nil:
			// Somebody else changed it, or what was refused may be outdated.
			e.forget(id)
		case e.patient(ctx, began, err):
			e.forget(id)
		default:
			return nil, false, cmp.Or(err, refused)
		}
	}
}

// makes tells whether in makes a run that is not there.
func makes(in plan.Input) bool {
	start, ok := in.(plan.Start)
	_, submit := in.(plan.Submit)
	return submit || ok && start.Submit != nil
}

var errConflict = errors.New("the document was changed by somebody else")

// decide gives inputs to a run as it stands in en, which it returns if nothing
// changes. If one of them is refused, none is given.
func (e *Engine) decide(ctx context.Context, id nestor.ID, en *entry, ins []plan.Input) (next *entry, refused, err error) {
	run, commands, refused := plan.Decide(en.doc.Run, e.freed(en.doc.Run, ins...), time.Now())
	if refused != nil {
		return nil, refused, nil
	}
	if len(commands) == 0 {
		if unchanged, err := same(en.doc.Run, run); err != nil || unchanged {
			return en, nil, err
		}
	}
	next = &entry{doc: document{Run: run, Serial: en.doc.Serial + 1}, sent: make(chan struct{})}
	// What is still under way is kept until the change after this one.
	if !en.done() {
		next.doc.Outbox = slices.Clone(en.doc.Outbox)
	}
	if len(commands) > 0 {
		b := batch{Serial: next.doc.Serial, Commands: commands}
		if b.encoded, err = b.Commands.MarshalJSON(); err != nil { // the next document may have them too
			return nil, nil, fmt.Errorf("run %s: %w", id, err)
		}
		next.doc.Outbox = append(next.doc.Outbox, b)
	}
	data, err := next.doc.encode()
	if err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", id, err)
	}
	if len(data) > broker.MaxDocument {
		return nil, nil, fmt.Errorf("run %s: its document would have %d bytes; %d are possible", id, len(data), broker.MaxDocument)
	}
	// It is written also if nobody wants it any more: one that is given up could be
	// stored yet, behind the back of who reads the document next.
	if next.revision, err = e.write(context.WithoutCancel(ctx), docName(id), data, en.revision); err != nil {
		if e.forget(id); !errors.Is(err, errConflict) {
			e.unsettle() // it may be written all the same
		}
		return nil, nil, err
	}
	carry := e.carrying(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		e.sent(id, next, e.follow(ctx, id, en, next))
	})
	hold := e.mayHold(ins, commands)
	if hold {
		next.hold(carry)
	}
	e.remember(id, next)
	e.notify(id, next.doc.Serial)
	if !hold {
		go carry()
	}
	return next, nil, nil
}

// freed returns inputs as one. What has a run end takes it from a worker that was lost,
// where that is known: nobody else works, and this process has another name. It ends
// then, and does not wait until somebody takes its task.
func (e *Engine) freed(run plan.Run, ins ...plan.Input) plan.Input {
	lost := e.opts.Alone && run.Worker != "" && run.Worker != e.opts.Name
	if lost && slices.ContainsFunc(ins, ends) {
		ins = append(ins[:len(ins):len(ins)], plan.Release{Fence: run.Fence})
	}
	return plan.Together(ins)
}

// ends tells whether an input has a run end that is at work.
func ends(in plan.Input) bool {
	switch in.(type) {
	case plan.Cancel, plan.Timer:
		return true
	}
	return false
}

// same tells whether nothing changed.
func same(a, b plan.Run) (bool, error) {
	before, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(b)
	return bytes.Equal(before, after), err
}
