package plan

import (
	"math"
	"time"

	"github.com/dfaf701a/nestor"
)

// Spawn asks for a child. It is refused with a *nestor.LimitError; one that was
// granted before is granted again.
type Spawn struct {
	Fence uint64      `json:"fence,omitempty"` // of who asks
	Child nestor.ID   `json:"child"`
	Key   string      `json:"key,omitempty"` // as in Submit
	Task  nestor.Task `json:"task"`
	Spent float64     `json:"spent_usd,omitempty"` // by this attempt, so far

	Name       string `json:"name,omitempty"`       // by which the parent speaks of it; empty means none
	Background bool   `json:"background,omitempty"` // the parent is told of its end by a letter
}

func (in Spawn) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	if d.Children[in.Child] != nil {
		return nil
	}
	if d.Cancel != nil {
		return d.Cancel
	}
	for _, id := range in.Task.After {
		if id == in.Child || id == d.ID || d.Path.Contains(id) {
			return ErrAncestor
		}
		if d.Children[id] == nil {
			return ErrStranger
		}
	}
	for _, c := range d.Children {
		if in.Name != "" && c.Name == in.Name && c.Status == "" {
			return ErrNamed
		}
	}
	if err := d.recurs(in.Task); err != nil {
		return err
	}
	if err := d.breaks(); err != nil {
		return err
	}
	d.spend(in.Spent)
	limits, err := d.grant(in.Task.Limits)
	if err != nil {
		return err
	}
	path, err := d.Path.with(d.ID)
	if err != nil {
		return err
	}
	task := in.Task
	task.Limits = limits
	d.Children[in.Child] = &Child{Agent: task.Agent, Name: in.Name, Background: in.Background, Granted: limits.BudgetUSD, Descendants: limits.Descendants}
	d.emit(&nestor.AgentSpawn{Agent: task.Agent, Description: cut(task.Input, summarySize), Child: in.Child})
	if limits.BudgetUSD > 0 {
		d.emit(&nestor.Lease{Child: in.Child, Granted: limits.BudgetUSD})
	}
	d.tell(in.Child, Submit{
		ID: in.Child, Key: in.Key, Path: path, Lineage: d.Lineage.with(fingerprint(d.Task)),
		Task: task, Deadline: d.Deadline,
	})
	return nil
}

// grant returns the limits of a child that asks for some.
func (d *decision) grant(asked nestor.Limits) (nestor.Limits, error) {
	mine, live := d.Task.Limits, d.alive()
	granted := asked.Or(nestor.Limits{
		Turns: mine.Turns, Timeout: mine.Timeout, Depth: mine.Depth, Children: mine.Children, Failures: mine.Failures, Attempts: mine.Attempts,
		Backoff: mine.Backoff, Resumes: mine.Resumes, Silence: mine.Silence, LimitWait: mine.LimitWait,
	})
	granted.Depth, granted.Children = min(granted.Depth, mine.Depth), min(granted.Children, mine.Children)
	granted.Turns, granted.Timeout = within(granted.Turns, mine.Turns), within(granted.Timeout, mine.Timeout)
	granted.Attempts, granted.Resumes = within(granted.Attempts, mine.Attempts), within(granted.Resumes, mine.Resumes)
	granted.Failures, granted.Silence = within(granted.Failures, mine.Failures), within(granted.Silence, mine.Silence)
	granted.LimitWait = min(granted.LimitWait, mine.LimitWait)
	if d.Depth()+1 > mine.Depth {
		return granted, &nestor.LimitError{Limit: "depth", Max: float64(mine.Depth), Asked: float64(d.Depth() + 1)}
	}
	if live >= mine.Children {
		return granted, &nestor.LimitError{Limit: "children", Max: float64(mine.Children), Asked: 1}
	}
	// Who does not say how much it needs gets its share of what is left, and
	// enough descendants to get as deep as it may.
	shares := mine.Children - live
	room := d.room()
	if granted.Descendants == 0 {
		granted.Descendants = max(0, min(room-1, max((room-1)/shares, granted.Depth-d.Depth()-1)))
		if granted.Depth == d.Depth()+1 {
			granted.Descendants = 0
		}
	}
	if 1+granted.Descendants > room {
		return granted, &nestor.LimitError{Limit: "descendants", Max: float64(mine.Descendants), Left: float64(room), Asked: float64(1 + granted.Descendants)}
	}
	if mine.BudgetUSD > 0 {
		left := d.Left()
		if granted.BudgetUSD == 0 {
			granted.BudgetUSD = left / float64(shares)
		}
		if granted.BudgetUSD <= 0 || granted.BudgetUSD > left {
			return granted, &nestor.LimitError{Limit: "budget", Max: mine.BudgetUSD, Left: max(0, left), Asked: granted.BudgetUSD}
		}
	}
	return granted, nil
}

// within returns what is asked for, but no more than there is; zero is no limit.
func within[T int | time.Duration](asked, limit T) T {
	if limit == 0 {
		return asked
	}
	return min(asked, limit)
}

// spend takes note of what the current attempt has spent.
func (d *decision) spend(usd float64) {
	if usd > 0 && !math.IsInf(usd, 1) {
		d.Spent = max(d.Spent, d.Prior+usd)
	}
}

// tolerance is what sums of money may be off by.
const tolerance = 1e-9
