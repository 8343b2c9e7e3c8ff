package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/internal/eventlog"
)

// A batch is one transaction, and so one sync.
const (
	batchEvents = 1000
	batchBytes  = 1 << 20
	batchAfter  = 100 * time.Millisecond // an event waits this long for the next
)

// beginAfter is how long the log is left alone at first, unless somebody waits for it: a
// command that begins has other things to do.
const beginAfter = 50 * time.Millisecond

// Project follows the log from where the history has come to, and writes what it
// reads, until ctx ends, when it returns nil. After an error it may be called
// again: it goes on where it was, and nothing is written twice. Readers see an
// event about a tenth of a second later than those of the log, and as late as
// Options says while others keep coming; at once after [History.Hurry].
//
// Events that are missing from the log are passed over: their tree is not
// archived, see [History.Archive].
func (h *History) Project(ctx context.Context, log *eventlog.Log) error {
	err := h.project(ctx, log)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("projecting the log into %w", h.explain(err))
}

func (h *History) project(ctx context.Context, log *eventlog.Log) error {
	begin := time.NewTimer(beginAfter)
	defer begin.Stop()
	select {
	case <-begin.C:
	case <-h.hurry:
	case <-ctx.Done():
		return ctx.Err()
	}
	n, err := getNumber(ctx, h.read, metaProjected)
	if err != nil {
		return err
	}
	after := eventlog.Position(n)
	if err := h.sameLog(ctx, log, after); err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	events := make(chan eventlog.Event, 64) // sent and closed by follow
	var failure error                       // of follow; set before events is closed
	wg.Go(func() {
		defer close(events)
		failure = follow(following, log, after, events)
	})
	pace := eventlog.Pace{Times: 1}
	for {
		batch := h.collect(events)
		if len(batch) == 0 {
			return failure
		}
		began := time.Now()
		if err := h.add(ctx, batch); err != nil {
			return err
		}
		pace.Rest(ctx, began)
	}
}

// sameLog fails if the history has seen more than the log ever had.
func (h *History) sameLog(ctx context.Context, log *eventlog.Log, after eventlog.Position) error {
	stats, err := log.Stats(ctx)
	if err != nil {
		return err
	}
	if after > stats.Last {
		return fmt.Errorf("it has events up to position %d, and the log ends at %d: it is the history of another log: put the broker's folder back that belongs to it, or move the history away", after, stats.Last)
	}
	return nil
}

// follow sends what the log holds and gets, over gaps.
func follow(ctx context.Context, log *eventlog.Log, after eventlog.Position, events chan<- eventlog.Event) error {
	for {
		var gap *eventlog.GapError
		for e, err := range log.Follow(ctx, eventlog.Filter{}, after) {
			if errors.As(err, &gap) {
				after = gap.Next
				break
			}
			if err != nil {
				return err
			}
			select {
			case events <- e:
				after = e.Position
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if gap == nil {
			return context.Cause(ctx)
		}
	}
}

// Hurry has what was read of the log written now: somebody waits for it.
func (h *History) Hurry() {
	select {
	case h.hurry <- struct{}{}:
	default: // it will be
	}
}

// collect waits for an event and returns it with those that come soon after;
// none when events is closed.
func (h *History) collect(events <-chan eventlog.Event) (batch []eventlog.Event) {
	e, ok := <-events
	if !ok {
		return nil
	}
	batch, size := append(batch, e), len(e.Data)
	quiet, late := time.NewTimer(batchAfter), time.NewTimer(h.late)
	defer quiet.Stop()
	defer late.Stop()
	for len(batch) < batchEvents && size < batchBytes {
		select {
		case e, ok := <-events:
			if !ok {
				return batch
			}
			batch, size = append(batch, e), size+len(e.Data)
			quiet.Reset(batchAfter)
		case <-quiet.C:
			return batch
		case <-late.C:
			return batch
		case <-h.hurry:
			return batch
		}
	}
	return batch
}

// Projected returns the position up to which the history has all that the log
// had.
func (h *History) Projected(ctx context.Context) (eventlog.Position, error) {
	n, err := getNumber(ctx, h.read, metaProjected)
	if err != nil {
		return 0, fmt.Errorf("reading %w", h.explain(err))
	}
	return eventlog.Position(n), nil
}

// add writes events of the log, which are in order and all that there were
// behind the last that was written. Those that are here already are passed
// over.
func (h *History) add(ctx context.Context, events []eventlog.Event) error {
	statements, err := h.compile(ctx)
	if err != nil {
		return err
	}
	return h.change(ctx, func(tx *sql.Tx) error {
		q := newCompiled(ctx, tx, statements)
		projected, err := getNumber(ctx, q, metaProjected)
		if err != nil {
			return err
		}
		b := &batch{ctx: ctx, tx: q, runs: map[string]*RunInfo{}, trees: map[string]eventlog.Position{}}
		for _, e := range events {
			if e.Live || uint64(e.Position) <= projected {
				continue
			}
			if err := b.add(e); err != nil {
				return fmt.Errorf("position %d: %w", e.Position, err)
			}
			projected = uint64(e.Position)
		}
		if err := b.finish(); err != nil {
			return err
		}
		return setMeta(ctx, q, metaProjected, strconv.FormatUint(projected, 10))
	})
}

// batch is what one transaction writes. Runs are read when they first occur and
// written at the end.
type batch struct {
	ctx   context.Context
	tx    compiled
	runs  map[string]*RunInfo
	trees map[string]eventlog.Position // the last of each
}

const (
	insertEvent = "INSERT INTO events (position, root, run, n, type, time, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
	putTree     = "INSERT INTO trees (root, last) VALUES (?, ?) ON CONFLICT (root) DO UPDATE SET last = excluded.last, settled = 0"
	oneRun      = "WHERE runs.id = ?"
)

// compile returns the statements of a batch, by their texts. A batch may hold a few
// events only, and then to compile its statements is most of what it costs: they
// are kept.
func (h *History) compile(ctx context.Context) (map[string]*sql.Stmt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.compiled != nil {
		return h.compiled, nil
	}
	all := map[string]*sql.Stmt{}
	for _, text := range []string{selectMeta, putMeta, insertEvent, insertText, getRuns + oneRun, putRun, putTree} {
		s, err := h.write.PrepareContext(ctx, text)
		if err != nil {
			for _, s := range all {
				s.Close()
			}
			return nil, err
		}
		all[text] = s
	}
	h.compiled = all
	return all, nil
}

// compiled is a transaction with statements that were compiled before it, by their
// texts. It compiles others itself.
type compiled struct {
	*sql.Tx
	by map[string]*sql.Stmt
}

// newCompiled returns tx with statements of its connection.
func newCompiled(ctx context.Context, tx *sql.Tx, statements map[string]*sql.Stmt) compiled {
	c := compiled{tx, make(map[string]*sql.Stmt, len(statements))}
	for text, s := range statements {
		c.by[text] = tx.StmtContext(ctx, s)
	}
	return c
}

func (c compiled) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := c.by[query]; s != nil {
		return s.QueryContext(ctx, args...)
	}
	return c.Tx.QueryContext(ctx, query, args...)
}

func (c compiled) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := c.by[query]; s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return c.Tx.QueryRowContext(ctx, query, args...)
}

func (c compiled) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s := c.by[query]; s != nil {
		return s.ExecContext(ctx, args...)
	}
	return c.Tx.ExecContext(ctx, query, args...)
}

func (b *batch) add(e eventlog.Event) error {
	event, kind, when := read(e)
	if _, err := b.tx.ExecContext(b.ctx, insertEvent, int64(e.Position), e.Root, e.Run, int64(e.N), kind, micros(when), e.Data); err != nil {
		return err
	}
	b.trees[e.Root] = e.Position
	r, err := b.run(e.Run)
	if err != nil {
		return err
	}
	r.own(e)
	if event == nil {
		return nil // foreign bytes: kept, and not understood
	}
	r.fold(event)
	if child, ok := spawned(event); ok {
		c, err := b.run(string(child.Child))
		if err != nil {
			return err
		}
		c.announce(e, child)
	}
	if text := textOf(event); text != "" {
		_, err := b.tx.ExecContext(b.ctx, insertText, int64(e.Position), text)
		return err
	}
	return nil
}

// run returns a run as it stands in this transaction; an empty one if it is
// new.
func (b *batch) run(id string) (*RunInfo, error) {
	if r := b.runs[id]; r != nil {
		return r, nil
	}
	list, err := selectRuns(b.ctx, b.tx, oneRun, id)
	if err != nil {
		return nil, err
	}
	r := &RunInfo{}
	if len(list) == 1 {
		r = &list[0]
	}
	b.runs[id] = r
	return r, nil
}

// finish writes the runs and the trees.
func (b *batch) finish() error {
	if len(b.runs) == 0 {
		return nil
	}
	for _, r := range b.runs {
		if _, err := b.tx.ExecContext(b.ctx, putRun, r.values()...); err != nil {
			return fmt.Errorf("run %s: %w", r.ID, err)
		}
	}
	for root, last := range b.trees {
		if _, err := b.tx.ExecContext(b.ctx, putTree, root, int64(last)); err != nil {
			return fmt.Errorf("tree %s: %w", root, err)
		}
	}
	return nil
}
