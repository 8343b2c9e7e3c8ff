package nestor

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Task is what is submitted to get a run.
type Task struct {
	Agent    string            `json:"agent,omitempty"`    // the definition's name; empty means none: Input is all
	Input    string            `json:"input,omitempty"`    // what the agent is told
	Provider string            `json:"provider,omitempty"` // empty means the configured one
	Model    string            `json:"model,omitempty"`    // empty means the provider's
	Swarm    string            `json:"swarm,omitempty"`    // empty means none
	Dir      string            `json:"dir,omitempty"`      // empty means the project
	Schema   json.RawMessage   `json:"schema,omitempty"`   // of the result; nil means free text
	Limits   Limits            `json:"limits,omitzero"`
	After    []ID              `json:"after,omitempty"`    // runs that must end first
	Despite  bool              `json:"despite,omitempty"`  // run also if one of After did not succeed
	Priority Priority          `json:"priority,omitempty"` // empty means normal
	Label    string            `json:"label,omitempty"`    // only workers with it take the task; empty means any
	Metadata map[string]string `json:"metadata,omitempty"` // for whoever submits; nobody here reads it
	Data     json.RawMessage   `json:"data,omitempty"`     // for whoever runs it; nobody else reads it
}

// Priority says which of the waiting tasks goes first.
type Priority string

// The priorities.
const (
	High   Priority = "high" // a person waits for it
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Priorities returns all priorities, the highest first.
func Priorities() []Priority { return []Priority{High, Normal, Low} }

// Rank returns the place of p among the priorities, zero for the highest.
func (p Priority) Rank() int {
	if i := slices.Index(Priorities(), p); i >= 0 {
		return i
	}
	return 1
}

// Check tells what is wrong with t.
func (t *Task) Check() error {
	if t.Priority != "" && !slices.Contains(Priorities(), t.Priority) {
		return fmt.Errorf("priority %q: there are high, normal and low", t.Priority)
	}
	if err := checkLabel(t.Label); err != nil {
		return err
	}
	for _, id := range t.After {
		if err := id.check(); err != nil {
			return fmt.Errorf("after %.60q: %w", id, err)
		}
	}
	if err := checkSchema(t.Schema); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	return t.Limits.Check()
}

func checkLabel(label string) error {
	for _, c := range []byte(label) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("label %.60q: want letters, digits, - and _", label)
		}
	}
	if len(label) > 60 {
		return fmt.Errorf("label %.60q…: want 60 characters at most", label)
	}
	return nil
}

// Limits bound a run and all below it. Zero means the default of whoever
// applies them; see [Limits.Or].
type Limits struct {
	Turns       int           `json:"max_turns,omitempty"`
	Timeout     time.Duration `json:"timeout,omitempty"`         // from its start; of all attempts together
	BudgetUSD   float64       `json:"max_budget_usd,omitempty"`  // of it and all below; zero means unlimited
	Depth       int           `json:"max_depth,omitempty"`       // how deep below the root a run may be
	Children    int           `json:"max_children,omitempty"`    // that live at once
	Descendants int           `json:"max_descendants,omitempty"` // in all
	Failures    int           `json:"max_failures,omitempty"`    // of children in a row, after which it gets no more
	Attempts    int           `json:"max_attempts,omitempty"`    // in all, when connections fail
	Backoff     time.Duration `json:"backoff,omitempty"`         // before the second attempt; doubled for each that follows
	Resumes     int           `json:"max_resumes,omitempty"`     // after a worker was lost
	Silence     time.Duration `json:"silence,omitempty"`         // without a sign of life; zero means no limit
	// LimitWait is how far ahead the reset of a provider's usage limit may be for
	// the run to wait for it; zero means that it does not wait.
	LimitWait time.Duration `json:"limit_wait,omitempty"`
}

// DefaultLimits are those of a run that sets none.
func DefaultLimits() Limits {
	return Limits{
		Turns: 25, Timeout: 600 * time.Second, Depth: 3, Children: 8, Descendants: 64, Failures: 5, Attempts: 3, Resumes: 3, Backoff: time.Second,
	}
}

// Or returns l with what it leaves open taken from d.
func (l Limits) Or(d Limits) Limits {
	return Limits{
		Turns: or(l.Turns, d.Turns), Timeout: or(l.Timeout, d.Timeout), BudgetUSD: or(l.BudgetUSD, d.BudgetUSD),
		Depth: or(l.Depth, d.Depth), Children: or(l.Children, d.Children), Descendants: or(l.Descendants, d.Descendants),
		Failures: or(l.Failures, d.Failures),
		Attempts: or(l.Attempts, d.Attempts), Backoff: or(l.Backoff, d.Backoff), Resumes: or(l.Resumes, d.Resumes), Silence: or(l.Silence, d.Silence),
		LimitWait: or(l.LimitWait, d.LimitWait),
	}
}

func or[T int | float64 | time.Duration](a, b T) T {
	if a != 0 {
		return a
	}
	return b
}

// Check tells what is wrong with l.
func (l Limits) Check() error {
	for name, n := range map[string]float64{
		"max_turns": float64(l.Turns), "timeout": float64(l.Timeout), "max_budget_usd": l.BudgetUSD, "max_depth": float64(l.Depth),
		"max_children": float64(l.Children), "max_descendants": float64(l.Descendants), "max_failures": float64(l.Failures), "max_attempts": float64(l.Attempts),
		"max_resumes": float64(l.Resumes), "backoff": float64(l.Backoff), "silence": float64(l.Silence), "limit_wait": float64(l.LimitWait),
	} {
		if !(n >= 0) || n > 1e18 { // also not a number
			return fmt.Errorf("%s is %v: want zero or more", name, n)
		}
	}
	return nil
}
