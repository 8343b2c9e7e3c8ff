package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// Query chooses runs. Its zero value chooses all.
type Query struct {
	Root   nestor.ID    // empty means of every tree
	Parent nestor.ID    // whose children; empty means anybody's
	Roots  bool         // only those that have no parent
	State  nestor.State // empty means any
	Agent  string       // empty means any
	Swarm  string       // empty means any
	Since  time.Time    // queued then or later; zero means always
	Until  time.Time    // queued before; zero means always
	Text   string       // words that occur together in one of its events, see Search; empty means any

	Limit int               // how many are returned; zero means 100, and there are never more than 1000
	After eventlog.Position // go on behind the run with this First, or the hit with this Position; zero means begin
}

// The number of rows that a query without a limit, and any, returns.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (q Query) limit() int {
	if q.Limit <= 0 {
		return defaultLimit
	}
	return min(q.Limit, maxLimit)
}

// conditions are joined by AND.
type conditions struct {
	list []string
	args []any
}

func (c *conditions) add(condition string, args ...any) {
	c.list, c.args = append(c.list, condition), append(c.args, args...)
}

func (c *conditions) String() string {
	if len(c.list) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.list, " AND ")
}

// where chooses the runs of q, whatever After and Text say.
func (q Query) where() *conditions {
	c := &conditions{}
	for _, equal := range []struct{ column, value string }{
		{"root", string(q.Root)}, {"parent", string(q.Parent)}, {"state", string(q.State)}, {"agent", q.Agent}, {"swarm", q.Swarm},
	} {
		if equal.value != "" {
			c.add("runs."+equal.column+" = ?", clean(equal.value))
		}
	}
	if q.Roots {
		c.add("runs.parent = ''")
	}
	if !q.Since.IsZero() {
		c.add("runs.queued >= ?", micros(q.Since))
	}
	if !q.Until.IsZero() {
		c.add("runs.queued < ?", micros(q.Until))
	}
	return c
}

// Runs lists runs, the newest first: those that were first seen later in the
// log, whatever clocks say. The next ones are listed with After set to the First
// of the last.
func (h *History) Runs(ctx context.Context, q Query) ([]RunInfo, error) {
	c := q.where()
	if q.After > 0 {
		c.add("runs.first < ?", int64(q.After))
	}
	if q.Text != "" {
		match, ok := matchExpression(q.Text)
		if !ok {
			return nil, nil
		}
		c.add(runsWithText, match)
	}
	list, err := selectRuns(ctx, h.read, c.String()+" ORDER BY runs.first DESC LIMIT ?", append(c.args, q.limit())...)
	if err != nil {
		return nil, fmt.Errorf("listing runs of %w", h.explain(err))
	}
	return list, nil
}

// Tree returns all runs of a tree, in the order in which they were first seen.
// It fails with nestor.ErrRunNotFound if there are none.
func (h *History) Tree(ctx context.Context, root nestor.ID) ([]RunInfo, error) {
	list, err := selectRuns(ctx, h.read, "WHERE runs.root = ? ORDER BY runs.first", clean(string(root)))
	if err != nil {
		return nil, fmt.Errorf("reading tree %.60q of %w", root, h.explain(err))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("tree %.60q: %w", root, nestor.ErrRunNotFound)
	}
	return list, nil
}

// Run returns one run. It fails with nestor.ErrRunNotFound if it is not there.
func (h *History) Run(ctx context.Context, id nestor.ID) (RunInfo, error) {
	list, err := selectRuns(ctx, h.read, "WHERE runs.id = ?", clean(string(id)))
	if err != nil {
		return RunInfo{}, fmt.Errorf("reading run %.60q of %w", id, h.explain(err))
	}
	if len(list) == 0 {
		return RunInfo{}, fmt.Errorf("run %.60q: %w", id, nestor.ErrRunNotFound)
	}
	return list[0], nil
}

// Below returns what all that is below some runs has cost, by their ids.
func (h *History) Below(ctx context.Context, of []RunInfo) (usd map[nestor.ID]float64, err error) {
	usd = map[nestor.ID]float64{}
	if len(of) == 0 {
		return usd, nil
	}
	var roots []any
	for _, r := range of {
		if !slices.Contains(roots, any(string(r.Root))) {
			roots = append(roots, string(r.Root))
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading costs of %w", h.explain(err))
		}
	}()
	rows, err := h.read.QueryContext(ctx, "SELECT id, parent, cost FROM runs WHERE root IN (?"+strings.Repeat(", ?", len(roots)-1)+") AND parent <> '' ORDER BY depth DESC", roots...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id, parent nestor.ID
		var cost float64
		if err := rows.Scan(&id, &parent, &cost); err != nil {
			return nil, err
		}
		usd[parent] += cost + usd[id]
	}
	return usd, rows.Err()
}

// Ended tells how a run ended; false if it has not, or is not known.
func (h *History) Ended(ctx context.Context, id nestor.ID) (nestor.State, bool) {
	var state nestor.State
	err := h.read.QueryRowContext(ctx, "SELECT state FROM runs WHERE id = ?", clean(string(id))).Scan(&state)
	return state, err == nil && state.Ended()
}

const runColumns = `id, first, last, events, root, parent, depth, agent, swarm, title, state, reason, attempt, queued, started, ended,
	cost, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, summary, error_kind, error_message`

var (
	putRun = "INSERT INTO runs (" + runColumns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(runColumns, ",")) + ") ON CONFLICT (id) DO UPDATE SET " + excluded(runColumns)

	getRuns = "SELECT runs." + strings.ReplaceAll(runColumns, ", ", ", runs.") + ", COALESCE(trees.archived, 0) FROM runs LEFT JOIN trees ON trees.root = runs.root "
)

// excluded sets each column to what was to be inserted.
func excluded(columns string) string {
	var b strings.Builder
	for i, c := range strings.Split(columns, ",") {
		if i > 0 {
			b.WriteString(", ")
		}
		c = strings.TrimSpace(c)
		b.WriteString(c + " = excluded." + c)
	}
	return b.String()
}

// values are those of runColumns.
func (r *RunInfo) values() []any {
	var failure nestor.Failure
	if r.Error != nil {
		failure = *r.Error
	}
	return []any{
		string(r.ID), int64(r.First), int64(r.Last), int64(r.Events), string(r.Root), string(r.Parent), r.Depth, r.Agent, r.Swarm, r.Title,
		string(r.State), r.Reason, r.Attempt, micros(r.Queued), micros(r.Started), micros(r.Ended), r.CostUSD,
		r.Usage.Input, r.Usage.Output, r.Usage.CacheRead, r.Usage.CacheWrite, r.Summary, string(failure.Kind), failure.Message,
	}
}

// selectRuns reads the runs that the rest of the statement chooses.
func selectRuns(ctx context.Context, q querier, rest string, args ...any) (list []RunInfo, err error) {
	rows, err := q.QueryContext(ctx, getRuns+rest, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRun(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func scanRun(rows *sql.Rows) (r RunInfo, err error) {
	var failure nestor.Failure
	var queued, started, ended int64
	var archived eventlog.Position
	err = rows.Scan(
		&r.ID, &r.First, &r.Last, &r.Events, &r.Root, &r.Parent, &r.Depth, &r.Agent, &r.Swarm, &r.Title,
		&r.State, &r.Reason, &r.Attempt, &queued, &started, &ended, &r.CostUSD,
		&r.Usage.Input, &r.Usage.Output, &r.Usage.CacheRead, &r.Usage.CacheWrite, &r.Summary, &failure.Kind, &failure.Message, &archived,
	)
	r.Queued, r.Started, r.Ended = fromMicros(queued), fromMicros(started), fromMicros(ended)
	if failure != (nestor.Failure{}) {
		r.Error = &failure
	}
	r.Archived = r.Last > 0 && archived >= r.Last
	return r, err
}
