package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// startLocked has somebody write what was decided.
func (e *Engine) startLocked() {
	if e.ahead.urgent {
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

// due takes out what is to be written now, of each tree the runs furthest down first, and
// tells how long the rest can wait; zero if there is none, and nobody writes any more.
func (a *ahead) due() (list []writing, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, r := range a.changed {
		if left := soon - time.Since(r.since); left > 0 && !r.urgent() {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		next := &entry{doc: document{Run: r.run, Serial: r.base.doc.Serial + 1, Outbox: r.outbox()}, sent: make(chan struct{})}
		if len(r.commands) > 0 {
			next.doc.Outbox = append(next.doc.Outbox, batch{Serial: next.doc.Serial, Commands: r.commands})
		}
		list = append(list, writing{id, r, r.base, next, r.left, r.gifts})
		r.commands, r.left, r.gifts = nil, nil, nil
		delete(a.changed, id)
	}
	a.urgent = false
	slices.SortFunc(list, func(x, y writing) int { // trees of one bucket behind each other, for large batches
		return cmp.Or(
			cmp.Compare(bucketOf(x.next.doc.Run.Root), bucketOf(y.next.doc.Run.Root)),
			cmp.Compare(y.next.doc.Run.Depth(), x.next.doc.Run.Depth()),
			cmp.Compare(bucketOf(x.id), bucketOf(y.id)),
			cmp.Compare(x.id, y.id),
		)
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
		list[i].encoded = nil
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
		data, err := w.next.doc.encode()
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
		e.notify(w.id, w.next.doc.Serial)
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
				err = e.send(ctx, w.id, w.next.doc.Run, []batch{{Serial: w.next.doc.Serial, Commands: withoutEvents(w.left)}})
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

// abandon gives up what could not be written: what is decided next is so by the
// documents. What these command is done again, since some of it was only heard by
// runs as they are not any more; whoever waits is told then.
func (e *Engine) abandon(list []writing, err error) {
	e.unsettle()
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	var gifts []*gift
	for _, w := range list {
		gifts = append(gifts, w.gifts...)
	}
	var ids []nestor.ID
	for id, r := range e.ahead.runs {
		e.forget(id)
		ids, gifts = append(ids, id), append(gifts, r.gifts...)
	}
	clear(e.ahead.runs)
	clear(e.ahead.changed)
	e.ahead.urgent, e.ahead.writing = false, false
	before := e.ahead.sent
	e.behind(func() {
		<-before
		e.redo(ids)
		for _, g := range gifts {
			g.err = err
			close(g.done)
		}
	})
}

// redo carries out what the documents of runs command, and those of the runs that
// they wait for: these may have told them of their end.
func (e *Engine) redo(ids []nestor.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := map[nestor.ID]document{}
	for len(ids) > 0 {
		id := ids[len(ids)-1]
		ids = ids[:len(ids)-1]
		if _, ok := found[id]; ok {
			continue
		}
		en, err := e.load(ctx, id)
		if err != nil {
			continue // it is done when it is needed, or by the next process
		}
		found[id] = en.doc
		if run := en.doc.Run; !run.State.Ended() {
			ids = append(append(ids, run.Live()...), run.After...)
		}
	}
	lowest := func(x, y nestor.ID) int {
		return cmp.Compare(found[y].Run.Depth(), found[x].Run.Depth())
	}
	for _, id := range slices.SortedFunc(maps.Keys(found), lowest) {
		e.carryOut(ctx, id, found[id])
	}
}

// draft is a document that is to replace the one of a revision.
type draft struct {
	name     string
	data     []byte
	revision uint64 // zero if there is none
}

// writeAll writes documents in that order, in batches, and returns their revisions. It
// tries for as long as the broker may be away.
func (e *Engine) writeAll(ctx context.Context, list []draft) ([]uint64, error) {
	for began := time.Now(); ; {
		revisions, err := e.writeTogether(ctx, list)
		if err != nil && !isAway(err) {
			revisions, err = e.writeEach(ctx, list) // it says what is wrong with which
		}
		if err == nil || !e.patient(ctx, began, err) {
			return revisions, err
		}
	}
}

// writeEach writes documents one by one. What was written before is not again.
func (e *Engine) writeEach(ctx context.Context, list []draft) ([]uint64, error) {
	revisions := make([]uint64, len(list))
	for i, d := range list {
		var err error
		if revisions[i], err = e.write(ctx, d.name, d.data, d.revision); errors.Is(err, errConflict) {
			var is *jetstream.RawStreamMsg
			if is, err = e.get(ctx, d.name); err == nil {
				revisions[i] = is.Sequence
				if !bytes.Equal(is.Data, d.data) {
					err = fmt.Errorf("%s: %w", d.name, errConflict)
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return revisions, nil
}

// writeTogether writes documents in that order, those of one bucket that follow each
// other as one batch. All of a tree are in one, unless an older version has made it.
func (e *Engine) writeTogether(ctx context.Context, list []draft) (revisions []uint64, err error) {
	for len(list) > 0 {
		n := 1
		for n < len(list) && broker.RunsOf(list[n].name) == broker.RunsOf(list[0].name) {
			n++
		}
		some, err := e.writeBatch(ctx, list[:n])
		if err != nil {
			return nil, err
		}
		revisions, list = append(revisions, some...), list[n:]
	}
	return revisions, nil
}

// writeBatch writes documents of one bucket, all or none.
func (e *Engine) writeBatch(ctx context.Context, list []draft) ([]uint64, error) {
	messages := make([]*nats.Msg, len(list))
	for i, d := range list {
		messages[i] = &nats.Msg{Subject: broker.RunsSubject(d.name), Data: d.data}
		broker.Expect(messages[i], d.revision)
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	last, err := e.b.Together(ctx, messages)
	if err != nil {
		return nil, err
	}
	revisions := make([]uint64, len(list))
	for i := range revisions {
		revisions[i] = last - uint64(len(list)-1-i)
	}
	return revisions, nil
}
