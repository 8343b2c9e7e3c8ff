package nestor

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	ErrRunNotFound = errors.New("run not found")
	ErrEnded       = errors.New("the run has ended")
	ErrStale       = errors.New("another attempt has taken the run over")
)

// LimitError is a refusal: what was asked for goes beyond a limit.
type LimitError struct {
	Limit  string  // depth, children, descendants, budget, failures, recursion
	Max    float64 // what the limit is
	Left   float64 // what is left of it
	Asked  float64 // what was asked for
	Reason string  // where numbers do not say it; empty means that they do
}

func (e *LimitError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("limit of %s: %s", e.Limit, e.Reason)
	}
	return fmt.Sprintf("limit of %s: %v of %v left, %v asked for", e.Limit, e.Left, e.Max, e.Asked)
}
