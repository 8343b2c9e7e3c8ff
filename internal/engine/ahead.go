package engine

import (
	"context"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// ahead are the runs that a cancel above them ends, in an engine that is alone.
// They are decided about in memory, also about what they tell each other, and
// their documents are written behind, many in one batch: a thousand runs would
// else wait for each other's writes.
//
// Nothing depends on a document that is not written. The cancel that ends them is
// in the document of the run above, until it has ended itself; what a run tells
// another stays in its own outbox; and of two documents that of the run further
// down is written first, so that no run has heard of an end that may be lost.
type ahead struct {
	more chan struct{} // capacity 1: wakes who writes when something is urgent

	mu      sync.Mutex // guards all that follows
	runs    map[nestor.ID]*falling
	changed map[nestor.ID]*falling // those of them that are not written as they were decided
	urgent  bool                   // of those, some are to be written at once
	writing bool                   // a goroutine writes them
	sent    chan struct{}          // closed when what the last that were written command is carried out
}

// falling is a run that is decided about ahead of its document.
type falling struct {
	base *entry   // what is written
	run  plan.Run // what was decided since

	since    time.Time      // when it was first changed after that
	commands []plan.Command // of these changes
	left     []plan.Command // the same; nil for those that are carried out by giving others what they are told
	gifts    []*gift        // that wait until it is written
}

// soon is how long a run that is about to end may be unwritten: it is written with
// its end, if that does not take long.
const soon = time.Second

// urgent tells whether it is to be written at once: it has ended, or an attempt that
// is at work waits for it.
func (r *falling) urgent() bool {
	return r.run.State.Ended() || len(r.gifts) > 0 && r.run.Worker != ""
}

// fell gives runs the cancels that one above them tells them, and to those below
// them what follows from that.
func (e *Engine) fell(ctx context.Context, by nestor.ID, tells []plan.Tell) error {
	if here, err := e.adopt(ctx, by); err != nil || !here {
		return err // it has ended: so have they
	}
	for len(tells) > 0 {
		var todo inputs
		for _, t := range tells {
			here, err := e.adopt(ctx, t.Run)
			if err != nil {
				return err
			}
			if here {
				todo.add(t.Run, t.Input)
			}
		}
		tells = e.decideAhead(todo)
	}
	return nil
}

// adopt has a run decided about ahead of its document from now on, and tells
// whether it is: one that has ended is not.
func (e *Engine) adopt(ctx context.Context, id nestor.ID) (bool, error) {
	turn := e.turn(id)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	e.ahead.mu.Lock()
	known := e.ahead.runs[id] != nil
	e.ahead.mu.Unlock()
	if known {
		return true, nil
	}
	en := e.recall(id)
	if en == nil {
		var err error
		if en, err = e.load(ctx, id); err != nil {
			return false, err
		}
	}
	if en.doc.Run.State.Ended() {
		return false, nil
	}
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	e.ahead.runs[id] = &falling{base: en, run: en.doc.Run}
	return true, nil
}

// inputs are those of some runs that are yet to be given.
type inputs struct {
	order []nestor.ID
	of    map[nestor.ID][]plan.Input
}

func (l *inputs) add(id nestor.ID, in plan.Input) {
	if l.of == nil {
		l.of = map[nestor.ID][]plan.Input{}
	}
	if len(l.of[id]) == 0 {
		l.order = append(l.order, id)
	}
	l.of[id] = append(l.of[id], in)
}

// next takes out what the first run is to be given, all at once.
func (l *inputs) next() (nestor.ID, []plan.Input) {
	id := l.order[0]
	list := l.of[id]
	l.order = l.order[1:]
	delete(l.of, id)
	return id, list
}

// decideAhead gives runs their inputs, and others what they are told by that. It
// returns what runs are told that are still decided about with their documents: to
// end.
func (e *Engine) decideAhead(todo inputs) (cancels []plan.Tell) {
	var stopped []plan.Run
	e.ahead.mu.Lock()
	for len(todo.order) > 0 {
		id, ins := todo.next()
		r := e.ahead.runs[id]
		if r == nil {
			continue // it has ended since
		}
		was := r.run.Stop
		if e.ahead.decide(id, e.freed(r.run, ins...), &todo, &cancels) != nil {
			for _, in := range ins {
				e.ahead.decide(id, e.freed(r.run, in), &todo, &cancels) // what is refused was heard before
			}
		}
		if r.run.Stop && !was {
			stopped = append(stopped, r.run)
		}
	}
	e.startLocked()
	e.ahead.mu.Unlock()
	for _, run := range stopped {
		e.stop(run)
	}
	return cancels
}

// decide gives one run an input. What others are told goes to todo, if they are
// here too, and to cancels. The caller holds mu.
func (a *ahead) decide(id nestor.ID, in plan.Input, todo *inputs, cancels *[]plan.Tell) error {
	r := a.runs[id]
	run, commands, err := plan.Decide(r.run, in, time.Now())
	if err != nil {
		return err
	}
	r.run = run
	if a.changed[id] == nil {
		r.since = time.Now()
		a.changed[id] = r
	}
	a.urgent = a.urgent || run.State.Ended()
	r.commands = append(r.commands, commands...)
	for _, c := range commands {
		if tell, ok := c.(plan.Tell); ok {
			_, cancel := tell.Input.(plan.Cancel)
			switch {
			case a.runs[tell.Run] != nil:
				todo.add(tell.Run, tell.Input)
				c = nil
			case cancel:
				*cancels = append(*cancels, tell)
				c = nil
			}
		}
		r.left = append(r.left, c)
	}
	return nil
}

// stop has the attempt at a run end that is at work in this process. The cancel
// that wants it is on record above it.
func (e *Engine) stop(run plan.Run) {
	e.mu.Lock()
	x := e.working[run.ID]
	e.mu.Unlock()
	if x != nil {
		x.concludeAhead(run)
	}
}

// giveAhead gives a run what a group brings, if it is decided about ahead of its
// document. They are done when it is written.
func (e *Engine) giveAhead(id nestor.ID, group []*gift) bool {
	var todo inputs
	var cancels []plan.Tell
	e.ahead.mu.Lock()
	r := e.ahead.runs[id]
	if r == nil {
		e.ahead.mu.Unlock()
		return false
	}
	was := r.run.Stop
	for _, g := range group {
		g.err = e.ahead.decide(id, e.freed(r.run, g.in), &todo, &cancels)
		if e.ahead.changed[id] == nil { // nothing is to be written
			g.en = r.base
			close(g.done)
			continue
		}
		r.gifts = append(r.gifts, g)
	}
	e.ahead.urgent = e.ahead.urgent || r.urgent()
	run := r.run
	e.startLocked()
	e.ahead.mu.Unlock()
	if run.Stop && !was {
		e.stop(run)
	}
	if cancels = append(cancels, e.decideAhead(todo)...); len(cancels) > 0 {
		e.behind(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			e.fell(ctx, id, cancels) // if it fails, the outbox has it
		})
	}
	return true
}
