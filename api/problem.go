package api

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/dfaf701a/nestor"
)

// Errors of the connection to a daemon.
var (
	// ErrNoDaemon says that nobody listens on the socket.
	ErrNoDaemon = errors.New("no daemon listens")
	// ErrDisconnected says that the daemon went away before it had answered
	// in full. What was asked may have been done.
	ErrDisconnected = errors.New("the daemon went away")
)

// ProblemMediaType is the media type of a Problem.
const ProblemMediaType = "application/problem+json"

// The types of problems that clients branch on.
const (
	TypeRunNotFound = "urn:nestor:problem:run-not-found"
	TypeRunEnded    = "urn:nestor:problem:run-ended"
	TypeStale       = "urn:nestor:problem:stale"
	TypeLimit       = "urn:nestor:problem:limit"
	TypeNoChanges   = "urn:nestor:problem:no-changes" // the run has brought no files back
	TypeStopping    = "urn:nestor:problem:stopping"   // the daemon ends
	TypeToken       = "urn:nestor:problem:token"      // no run has the token that was shown
)

// Problem is an answer that is an error, as RFC 9457 has it. Through it
// [errors.Is] and [errors.As] find [nestor.ErrRunNotFound],
// [nestor.ErrEnded], [nestor.ErrStale], [*nestor.LimitError] and
// [ErrDisconnected], by its Type.
type Problem struct {
	Type   string             // empty means that Status says it all
	Title  string             // what kind of problem it is; empty means the text of Status
	Status int                // of HTTP
	Detail string             // what is wrong, and the way out
	Limit  *nestor.LimitError // the limit that refuses; nil if none does
}

func (p *Problem) Error() string {
	switch {
	case p.Detail != "":
		return p.Detail
	case p.Title != "":
		return p.Title
	}
	return http.StatusText(p.Status)
}

// Unwrap returns the error of this program that p stands for; nil if there is
// none.
func (p *Problem) Unwrap() error {
	switch p.Type {
	case TypeRunNotFound:
		return nestor.ErrRunNotFound
	case TypeRunEnded:
		return nestor.ErrEnded
	case TypeStale:
		return nestor.ErrStale
	case TypeStopping:
		return ErrDisconnected
	case TypeLimit:
		if p.Limit != nil {
			return p.Limit
		}
	}
	return nil
}

// wireProblem is a Problem in JSON.
type wireProblem struct {
	Type   string     `json:"type,omitempty"`
	Title  string     `json:"title,omitempty"`
	Status int        `json:"status,omitempty"`
	Detail string     `json:"detail,omitempty"`
	Limit  *wireLimit `json:"limit,omitempty"`
}

type wireLimit struct {
	Limit  string  `json:"limit"`
	Max    float64 `json:"max"`
	Left   float64 `json:"left"`
	Asked  float64 `json:"asked"`
	Reason string  `json:"reason,omitempty"`
}

// MarshalJSON writes p with the names of RFC 9457.
func (p Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireProblem{p.Type, p.Title, p.Status, p.Detail, (*wireLimit)(p.Limit)})
}

// UnmarshalJSON reads what MarshalJSON writes. Members that it does not know
// are not looked at.
func (p *Problem) UnmarshalJSON(data []byte) error {
	var w wireProblem
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*p = Problem{w.Type, w.Title, w.Status, w.Detail, (*nestor.LimitError)(w.Limit)}
	return nil
}
