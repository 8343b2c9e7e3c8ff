package agent

import (
	"errors"
	"fmt"
)

// The kinds of errors of a provider. Every *[Error] is [ErrProvider]; some are
// one of the others too.
var (
	ErrProvider = errors.New("provider error")
	ErrAuth     = errors.New("not authenticated") // what the agent runs on is missing, or has no credentials
	ErrMissing  = errors.New("not installed")     // an ErrAuth, too: what the agent runs on is missing
	ErrAPI      = errors.New("API error")         // the model's API, or the process that talks to it, failed; see Error.Status
	ErrTimeout  = errors.New("timed out")
	// ErrNoSession says that there is nothing to resume.
	ErrNoSession = errors.New("no such session")
)

// Error is what went wrong between an agent and what it runs on. It is tested
// with [errors.Is] and the kinds above, and with [errors.As] for its Status.
type Error struct {
	Provider string // the type of the provider
	Kind     error  // ErrAuth, ErrMissing, ErrAPI, ErrTimeout or ErrNoSession; nil for none of these
	Status   int    // of an ErrAPI: the HTTP status, or the exit code of the process; zero if unknown
	Err      error
}

func (e *Error) Error() string {
	kind := e.Kind
	if kind == nil {
		kind = ErrProvider
	}
	if kind == ErrAPI && e.Status != 0 && e.Status < 400 { // an exit code, which the cause tells
		return fmt.Sprintf("%s: %v", e.Provider, e.Err)
	}
	if e.Status != 0 {
		return fmt.Sprintf("%s: %v (%d): %v", e.Provider, kind, e.Status, e.Err)
	}
	return fmt.Sprintf("%s: %v: %v", e.Provider, kind, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is tells whether e is an error of that kind.
func (e *Error) Is(kind error) bool {
	return kind == ErrProvider || e.Kind != nil && kind == e.Kind || e.Kind == ErrMissing && kind == ErrAuth
}
