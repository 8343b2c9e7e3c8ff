package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	more chan struct{} // capacity 1: wakes who writes when a run has ended

	mu      sync.Mutex // guards all that follows
	runs    map[nestor.ID]*falling
	changed map[nestor.ID]*falling // those of them that are not written as they were decided
	ended   bool                   // of those, some have ended
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
		if e.ahead.decide(id, plan.Together(ins), &todo, &cancels) != nil {
			for _, in := range ins {
				e.ahead.decide(id, in, &todo, &cancels) // what is refused was heard before
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
	a.ended = a.ended || run.State.Ended()
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
		x.conclude(run)
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
		g.err = e.ahead.decide(id, g.in, &todo, &cancels)
		if e.ahead.changed[id] == nil { // nothing is to be written
			g.en = r.base
			close(g.done)
			continue
		}
		r.gifts = append(r.gifts, g)
	}
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

// startLocked has somebody write what was decided.
func (e *Engine) startLocked() {
	if e.ahead.ended {
		select {
		case e.ahead.more <- struct{}{}:
		default:
		}
	}
	if e.ahead.writing || len(e.ahead.changed) == 0 {
		return
	}
	e.ahead.writing = true
	e.behind(e.writeAhead)
}

// writeAhead writes what was decided, until all is.
func (e *Engine) writeAhead() {
	ctx := context.Background()
	for {
		list, wait := e.ahead.due()
		if len(list) == 0 && wait == 0 {
			return
		}
		if len(list) == 0 {
			later := time.NewTimer(wait)
			select {
			case <-later.C:
			case <-e.ahead.more:
				later.Stop()
			}
			continue
		}
		for ; len(list) > 0; list = list[min(maxWrites, len(list)):] {
			if err := e.writeRuns(ctx, list[:min(maxWrites, len(list))]); err != nil {
				e.abandon(list, err)
				return
			}
		}
	}
}

// writing is a document that is about to be written.
type writing struct {
	id         nestor.ID
	run        *falling
	base, next *entry
	left       []plan.Command // what is to be done about it
	gifts      []*gift
}

// maxWrites is how many documents are written in one batch; a server takes no more
// than a thousand messages.
const maxWrites = 256

// due takes out what is to be written now, the runs furthest down first, and tells
// how long the rest can wait; zero if there is none, and nobody writes any more.
func (a *ahead) due() (list []writing, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, r := range a.changed {
		if left := soon - time.Since(r.since); left > 0 && !r.run.State.Ended() {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		next := &entry{doc: document{Run: r.run, Serial: r.base.doc.Serial + 1, Outbox: r.outbox()}, sent: make(chan struct{})}
		if len(r.commands) > 0 {
			next.doc.Outbox = append(next.doc.Outbox, batch{next.doc.Serial, r.commands})
		}
		list = append(list, writing{id, r, r.base, next, r.left, r.gifts})
		r.commands, r.left, r.gifts = nil, nil, nil
		delete(a.changed, id)
	}
	a.ended = false
	slices.SortFunc(list, func(x, y writing) int {
		return cmp.Or(cmp.Compare(y.next.doc.Run.Depth(), x.next.doc.Run.Depth()), cmp.Compare(x.id, y.id))
	})
	a.writing = len(list) > 0 || wait > 0
	return list, wait
}

// outbox returns what the document that is written commands, and may not have been
// carried out, or heard by those whose documents are not written. When a run ends,
// those that it told to end have: that need not be said again.
func (r *falling) outbox() []batch {
	list := slices.Clone(r.base.doc.Outbox)
	if !r.run.State.Ended() {
		return list
	}
	for i, b := range list {
		list[i].Commands = slices.DeleteFunc(slices.Clone(b.Commands), func(c plan.Command) bool {
			tell, ok := c.(plan.Tell)
			_, cancel := tell.Input.(plan.Cancel)
			return ok && cancel
		})
	}
	return list
}

// writeRuns writes documents, and has their commands carried out.
func (e *Engine) writeRuns(ctx context.Context, list []writing) error {
	docs := make([]draft, len(list))
	for i, w := range list {
		data, err := json.Marshal(w.next.doc)
		if err != nil {
			return fmt.Errorf("run %s: %w", w.id, err)
		}
		docs[i] = draft{docName(w.id), data, w.base.revision}
	}
	revisions, err := e.writeAll(ctx, docs)
	if err != nil {
		return err
	}
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	for i, w := range list {
		w.next.revision = revisions[i]
		w.run.base = w.next
		e.remember(w.id, w.next)
		if w.next.doc.Run.State.Ended() && e.ahead.changed[w.id] == nil {
			delete(e.ahead.runs, w.id)
		}
		e.notify(w.id, w.next)
		for _, g := range w.gifts {
			g.en, g.wrote = w.next, true
			close(g.done)
		}
	}
	before, after := e.ahead.sent, make(chan struct{})
	e.ahead.sent = after
	e.behind(func() {
		defer close(after)
		<-before
		e.sendAll(list)
	})
	return nil
}

// sendAll carries out what documents command. Their events come together, those of
// the runs furthest down first: who sees the end of a run in the log has seen those
// of all below it.
func (e *Engine) sendAll(list []writing) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var ready []writing
	var marks []uint64
	var events [][]nestor.Event
	for _, w := range list {
		if err := e.flush(ctx, w.id, w.base); err != nil { // of what it replaced
			e.sent(w.id, w.next, err)
			continue
		}
		ready, marks, events = append(ready, w), append(marks, w.next.doc.Serial), append(events, eventsOf(w.left))
	}
	err := e.log.OnceAll(ctx, marks, events)
	var all sync.WaitGroup
	for _, w := range ready {
		all.Go(func() {
			err := err
			if err == nil {
				err = e.send(ctx, w.id, w.next.doc.Run, []batch{{w.next.doc.Serial, withoutEvents(w.left)}})
			}
			e.sent(w.id, w.next, err)
		})
	}
	all.Wait()
}

func eventsOf(list []plan.Command) (events []nestor.Event) {
	for _, c := range list {
		if emit, ok := c.(plan.Emit); ok {
			events = append(events, emit.Event)
		}
	}
	return events
}

// withoutEvents returns commands with nil for those that are events.
func withoutEvents(list []plan.Command) []plan.Command {
	left := slices.Clone(list)
	for i, c := range left {
		if _, ok := c.(plan.Emit); ok {
			left[i] = nil
		}
	}
	return left
}

// abandon gives up what could not be written: whoever waits for it is told so, and
// what is decided next is so by the documents.
func (e *Engine) abandon(list []writing, err error) {
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	var gifts []*gift
	for _, w := range list {
		gifts = append(gifts, w.gifts...)
	}
	for id, r := range e.ahead.runs {
		e.forget(id)
		gifts = append(gifts, r.gifts...)
	}
	for _, g := range gifts {
		g.err = err
		close(g.done)
	}
	clear(e.ahead.runs)
	clear(e.ahead.changed)
	e.ahead.ended, e.ahead.writing = false, false
}
