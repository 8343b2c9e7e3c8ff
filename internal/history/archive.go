package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// Log is what Archive needs of the log: see [eventlog.Log].
type Log interface {
	Read(ctx context.Context, filter eventlog.Filter, after eventlog.Position) iter.Seq2[eventlog.Event, error]
	Purge(ctx context.Context, root string, last eventlog.Position) error
}

// Forget removes the documents of ended runs from the engine. It is called
// again for runs that were forgotten if it is not known that they were.
type Forget func(ctx context.Context, root nestor.ID, runs []nestor.ID) error

// IncompleteError says that a tree has ended but not all of its events are here:
// they are missing from the log. It is not archived, and stays in the stream.
type IncompleteError struct {
	Root, Run  nestor.ID
	Have, Want uint64 // events
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("tree %s cannot be archived: run %s has %d of %d events: the others are missing from the log, where it stays until a copy of the broker's folder is put back", e.Root, e.Run, e.Have, e.Want)
}

// Archive archives the trees that have ended longer than older ago, and lets the
// engine and then the stream forget them; then it finishes what an earlier call
// began. It returns how many trees were settled. What is wrong with one tree
// keeps none of the others; all that was wrong is returned, an
// [*IncompleteError] among it.
//
// The engine forgets first: a document whose events are gone would be told so,
// should it still have to append them.
//
// Only one caller at a time should archive. A crash at any moment leaves a tree
// in the stream, here, or both.
func (h *History) Archive(ctx context.Context, log Log, forget Forget, older time.Duration) (n int, err error) {
	var after string
	var failures []error
	before := time.Now().Add(-older)
	for {
		page, err := h.unsettled(ctx, after, before)
		if err != nil {
			return n, errors.Join(append(failures, fmt.Errorf("archiving into %w", h.explain(err)))...)
		}
		if len(page) == 0 {
			return n, errors.Join(failures...)
		}
		for _, t := range page {
			after = t.root
			switch done, err := h.settle(ctx, log, forget, t, before); {
			case err != nil && ctx.Err() != nil:
				return n, errors.Join(append(failures, context.Cause(ctx))...)
			case err != nil:
				failures = append(failures, fmt.Errorf("archiving tree %s: %w", t.root, err))
			case done:
				n++
			}
		}
	}
}

// tree is a row of trees.
type tree struct {
	root      string
	last      eventlog.Position
	archived  eventlog.Position
	purged    eventlog.Position
	forgotten bool
}

// unsettled returns some trees for which something is left to do, in the order
// of their roots: those whose root ended before a time, and those that were archived
// before and not forgotten since.
func (h *History) unsettled(ctx context.Context, after string, before time.Time) (list []tree, err error) {
	rows, err := h.read.QueryContext(ctx, `SELECT t.root, t.last, t.archived, t.purged, t.forgotten FROM trees t JOIN runs r ON r.id = t.root
		WHERE t.settled = 0 AND t.root > ? AND r.state IN (?, ?, ?, ?) AND (r.ended <= ? OR t.archived >= t.last) ORDER BY t.root LIMIT 100`,
		after, string(nestor.Success), string(nestor.Partial), string(nestor.Error), string(nestor.Cancelled), micros(before))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var t tree
		if err := rows.Scan(&t.root, &t.last, &t.archived, &t.purged, &t.forgotten); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, rows.Err()
}

// settle does all that is left to do for a tree, and tells whether it has. Trees
// that ended after before are left alone.
func (h *History) settle(ctx context.Context, log Log, forget Forget, t tree, before time.Time) (bool, error) {
	runs, err := h.Tree(ctx, nestor.ID(t.root))
	if err != nil {
		return false, err
	}
	if t.archived < t.last {
		for _, r := range runs {
			if !r.State.Ended() || r.Ended.After(before) {
				return false, nil
			}
		}
		if all, err := projected(ctx, log, t); err != nil || !all {
			return false, err
		}
		if t.archived, err = h.mark(ctx, t); err != nil {
			return false, err
		}
	}
	if !t.forgotten {
		if err := h.forget(ctx, forget, t.root, runs); err != nil {
			return false, err
		}
	}
	if t.purged < t.archived {
		if err := h.purge(ctx, log, t.root, t.archived); err != nil {
			return false, err
		}
	}
	return h.finish(ctx, t.root)
}

// projected tells whether the log has no event of the tree that is not here.
// Part of a chunk may be here, and a chunk is purged as a whole.
func projected(ctx context.Context, log Log, t tree) (bool, error) {
	for _, err := range log.Read(ctx, eventlog.Filter{Root: t.root}, t.last) {
		return false, err
	}
	return true, nil
}

// mark verifies that all events of a tree up to its last are here and marks it
// as archived up to there, which it returns.
func (h *History) mark(ctx context.Context, t tree) (eventlog.Position, error) {
	err := h.change(ctx, func(tx *sql.Tx) error {
		if err := complete(ctx, tx, t.root); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE trees SET archived = ? WHERE root = ?", int64(t.last), t.root)
		return err
	})
	if err != nil {
		return 0, h.failed(err)
	}
	return t.last, nil
}

// complete fails if a run of the tree has not ended, or not all of its events
// from the first to the last are here.
func complete(ctx context.Context, tx *sql.Tx, root string) (err error) {
	rows, err := tx.QueryContext(ctx, `SELECT r.id, r.state, COUNT(e.position), COALESCE(MIN(e.n), 0), COALESCE(MAX(e.n) + 1, 1)
		FROM runs r LEFT JOIN events e ON e.run = r.id AND e.root = r.root WHERE r.root = ? GROUP BY r.id, r.state`, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id nestor.ID
		var state nestor.State
		var have, first, want uint64
		if err := rows.Scan(&id, &state, &have, &first, &want); err != nil {
			return err
		}
		if !state.Ended() {
			return fmt.Errorf("run %s has not ended", id)
		}
		if first != 0 || have != want {
			return &IncompleteError{Root: nestor.ID(root), Run: id, Have: have, Want: want}
		}
	}
	return rows.Err()
}

// forget has the engine forget the runs of an archived tree.
func (h *History) forget(ctx context.Context, forget Forget, root string, runs []RunInfo) error {
	ids := make([]nestor.ID, len(runs))
	for i, r := range runs {
		ids[i] = r.ID
	}
	if err := forget(ctx, nestor.ID(root), ids); err != nil {
		return fmt.Errorf("forgetting its documents: %w", err)
	}
	_, err := h.write.ExecContext(ctx, "UPDATE trees SET forgotten = 1 WHERE root = ?", root)
	return h.failed(err)
}

// purge has the stream forget a tree up to where it is archived.
func (h *History) purge(ctx context.Context, log Log, root string, last eventlog.Position) error {
	if err := log.Purge(ctx, root, last); err != nil {
		return err
	}
	_, err := h.write.ExecContext(ctx, "UPDATE trees SET purged = ? WHERE root = ?", int64(last), root)
	return h.failed(err)
}

// finish notes that nothing is left to do for a tree, and tells whether that is
// so: events may have come meanwhile.
func (h *History) finish(ctx context.Context, root string) (bool, error) {
	result, err := h.write.ExecContext(ctx, "UPDATE trees SET settled = 1 WHERE root = ? AND forgotten = 1 AND purged = last AND archived = last", root)
	if err != nil {
		return false, h.failed(err)
	}
	n, err := result.RowsAffected()
	return n == 1, h.failed(err)
}

// failed explains an error of the file, if it is one.
func (h *History) failed(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*IncompleteError](err); ok {
		return err
	}
	return h.explain(err)
}

// pageEvents is how many events are read at once, so that a slow reader holds no
// connection and keeps the journal from no checkpoint.
const pageEvents = 256

// Events yields the events of archived trees that pass the filter with positions
// after the one and up to the other, in order. It is an eventlog.Archive: a tree
// that is marked as archived, be it still in the stream or not, is yielded; one
// that is not is in the stream, and not yielded here.
//
// The iterator is single-use; an error is the last thing it yields; breaking out
// stops the work.
func (h *History) Events(ctx context.Context, filter eventlog.Filter, after, upTo eventlog.Position) iter.Seq2[eventlog.Event, error] {
	return func(yield func(eventlog.Event, error) bool) {
		for {
			page, err := h.page(ctx, filter, after, upTo)
			if err != nil {
				yield(eventlog.Event{}, fmt.Errorf("reading events of %w", h.explain(err)))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Position
			}
			if len(page) < pageEvents {
				return
			}
		}
	}
}

func (h *History) page(ctx context.Context, filter eventlog.Filter, after, upTo eventlog.Position) (list []eventlog.Event, err error) {
	c := &conditions{}
	c.add("e.position > ? AND e.position <= ? AND e.position <= t.archived", int64(after), int64(upTo))
	if filter.Root != "" {
		c.add("e.root = ?", clean(filter.Root))
	}
	if filter.Run != "" {
		c.add("e.run = ?", clean(filter.Run))
	}
	rows, err := h.read.QueryContext(ctx, pageQuery(c), append(c.args, pageEvents)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e eventlog.Event
		if err := rows.Scan(&e.Position, &e.Root, &e.Run, &e.N, &e.Data); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

func pageQuery(c *conditions) string {
	return "SELECT e.position, e.root, e.run, e.n, e.data FROM events e JOIN trees t ON t.root = e.root " + c.String() + " ORDER BY e.position LIMIT ?"
}
