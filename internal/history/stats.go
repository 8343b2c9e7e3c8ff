package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
)

// Stats are figures over the runs of a query.
type Stats struct {
	Runs    int
	States  map[nestor.State]int
	CostUSD float64
	Usage   nestor.Usage
	Agents  []Spent // the most expensive first, at most 100
	Days    []Spent // by the day (UTC) that runs were queued on, the newest first, at most 366

	// Of runs that were started and have ended; zero if there are none.
	Median  time.Duration
	P95     time.Duration
	Longest time.Duration
}

// Spent is what some runs cost.
type Spent struct {
	Name    string // an agent, or a day as 2006-01-02
	Runs    int
	CostUSD float64
	Usage   nestor.Usage
}

const sums = "COUNT(*), COALESCE(SUM(runs.cost), 0), COALESCE(SUM(runs.input_tokens), 0), COALESCE(SUM(runs.output_tokens), 0), COALESCE(SUM(runs.cache_read_tokens), 0), COALESCE(SUM(runs.cache_write_tokens), 0)"

// day is a number that grows by one each day.
const (
	day       = "(runs.queued / 86400000000)"
	daySize   = 86400000000 // microseconds
	maxStates = 20          // there are eight
	maxAgents = 100
	maxDays   = 366
)

// Stats sums up the runs that q chooses; its Limit and After are not used.
func (h *History) Stats(ctx context.Context, q Query) (Stats, error) {
	tx, err := h.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // all of one moment
	if err != nil {
		return Stats{}, fmt.Errorf("summing up %w", h.explain(err))
	}
	s, err := stats(ctx, tx, q)
	if err := errors.Join(err, tx.Rollback()); err != nil {
		return Stats{}, fmt.Errorf("summing up %w", h.explain(err))
	}
	return s, nil
}

func stats(ctx context.Context, tx *sql.Tx, q Query) (s Stats, err error) {
	s.States = map[nestor.State]int{}
	c := q.where()
	if q.Text != "" {
		match, ok := matchExpression(q.Text)
		if !ok {
			return s, nil
		}
		c.add(runsWithText, match)
	}
	states, err := spent(ctx, tx, c, "runs.state", "1", maxStates)
	if err != nil {
		return s, err
	}
	for _, one := range states {
		s.States[nestor.State(one.Name)] = one.Runs
		s.Runs, s.CostUSD, s.Usage = s.Runs+one.Runs, s.CostUSD+one.CostUSD, s.Usage.Add(one.Usage)
	}
	if s.Agents, err = spent(ctx, tx, c, "runs.agent", "3 DESC, 1", maxAgents); err != nil {
		return s, err
	}
	if s.Days, err = spent(ctx, tx, c, day, "1 DESC", maxDays); err != nil {
		return s, err
	}
	for i, d := range s.Days {
		var n int64
		if _, err := fmt.Sscan(d.Name, &n); err != nil {
			return s, err
		}
		s.Days[i].Name = time.UnixMicro(n * daySize).UTC().Format(time.DateOnly)
	}
	return s, durations(ctx, tx, c, &s)
}

// spent sums up by what an expression says.
func spent(ctx context.Context, tx *sql.Tx, c *conditions, by, order string, limit int) (list []Spent, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT "+by+", "+sums+" FROM runs "+c.String()+" GROUP BY 1 ORDER BY "+order+" LIMIT ?", append(slices.Clip(c.args), limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s Spent
		if err := rows.Scan(&s.Name, &s.Runs, &s.CostUSD, &s.Usage.Input, &s.Usage.Output, &s.Usage.CacheRead, &s.Usage.CacheWrite); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// durations sets the median and what follows it.
func durations(ctx context.Context, tx *sql.Tx, c *conditions, s *Stats) error {
	ended := conditions{list: slices.Clip(c.list), args: slices.Clip(c.args)}
	ended.add("runs.started > 0 AND runs.ended > 0")
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM runs "+ended.String(), ended.args...).Scan(&n); err != nil || n == 0 {
		return err
	}
	for _, want := range []struct {
		to *time.Duration
		at int
	}{{&s.Median, (n - 1) / 2}, {&s.P95, (n - 1) * 95 / 100}, {&s.Longest, n - 1}} {
		var took int64
		err := tx.QueryRowContext(ctx, "SELECT runs.ended - runs.started FROM runs "+ended.String()+" ORDER BY 1 LIMIT 1 OFFSET ?", append(slices.Clip(ended.args), want.at)...).Scan(&took)
		if err != nil {
			return err
		}
		*want.to = max(0, time.Duration(took)*time.Microsecond)
	}
	return nil
}
