package nestor

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// State is where a run stands.
type State string

// The states of a run: queued → starting → running ⇄ waiting → one of the ends.
const (
	Queued    State = "queued"   // for what it comes after, or for a slot
	Starting  State = "starting" // a worker has it
	Running   State = "running"
	Waiting   State = "waiting"   // see Wait
	Success   State = "success"   // ended well
	Partial   State = "partial"   // a limit ended it, and there is output
	Error     State = "error"     // the provider or a limit ended it, and there is none
	Cancelled State = "cancelled" // somebody ended it
)

// Ended tells whether s is an end.
func (s State) Ended() bool { return slices.Contains([]State{Success, Partial, Error, Cancelled}, s) }

// Wait says what a run waits for, and since when.
type Wait struct {
	For    WaitFor   `json:"for"`
	Runs   []ID      `json:"runs,omitempty"`   // those waited for
	Ask    string    `json:"ask,omitempty"`    // the question that is open
	Until  time.Time `json:"until,omitzero"`   // when it goes on by itself; zero if it does not
	Since  time.Time `json:"since,omitzero"`   //
	Reason string    `json:"reason,omitempty"` // for people
}

// WaitFor is what a run can wait for.
type WaitFor string

// What runs wait for.
const (
	ForRuns     WaitFor = "runs"     // those that it comes after
	ForSlot     WaitFor = "slot"     // a worker
	ForChildren WaitFor = "children" // it holds no slot while it does
	ForPerson   WaitFor = "person"   // an answer
	ForLimit    WaitFor = "limit"    // the provider's usage limit is reset
	ForRetry    WaitFor = "retry"    // the next attempt
)

// Usage counts tokens.
type Usage struct {
	Input      int `json:"input_tokens"`
	Output     int `json:"output_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// Result is what came of a run.
type Result struct {
	Status     State           `json:"status"` // an end
	Output     string          `json:"output,omitempty"`
	Structured json.RawMessage `json:"structured_output,omitempty"`
	Error      *Failure        `json:"error,omitempty"` // why it is no success; nil if it is
	CostUSD    float64         `json:"cost_usd"`        // its own, without what is below it
	Usage      Usage           `json:"usage"`           // likewise
	Turns      int             `json:"num_turns"`
	Session    string          `json:"session_id,omitempty"`  // the provider's
	Truncated  bool            `json:"truncated,omitempty"`   // Output is not all
	File       string          `json:"result_file,omitempty"` // where all of it is
	Metadata   map[string]any  `json:"metadata,omitempty"`
}

// Failure says why a run did not succeed.
type Failure struct {
	Kind    Kind      `json:"kind"`
	Message string    `json:"message"`
	Until   time.Time `json:"until,omitzero"` // of Limited and Held: when the limit is reset
}

func (f *Failure) Error() string {
	rest, said := strings.CutPrefix(f.Message, string(f.Kind)) // as that of a [Cause]
	if said && (strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " by ")) {
		return f.Message
	}
	return string(f.Kind) + ": " + f.Message
}

// Kind is the kind of a failure.
type Kind string

// The kinds of failures.
const (
	Connection  Kind = "connection"  // to the model or its process; such a run is tried again
	Provider    Kind = "provider"    // the provider said no
	Timeout     Kind = "timeout"     // of the run, or of one above it
	Budget      Kind = "budget"      //
	Turns       Kind = "turns"       //
	Silence     Kind = "silence"     // no sign of life
	Interrupted Kind = "interrupted" // workers were lost too often
	Dependency  Kind = "dependency"  // a run that it came after did not succeed
	Stopped     Kind = "cancelled"   // by a person, or by the end of the run above
	Invalid     Kind = "invalid"     // the result does not follow its schema
	Internal    Kind = "internal"    // a fault of ours
	Limited     Kind = "limit"       // the provider's usage limit
	Resources   Kind = "resources"   // memory, processes or processor time
	Refused     Kind = "refused"     // a policy, or a sandbox that cannot be had, forbids it
	Held        Kind = "held"        // likewise, as another run has found: it was not even tried
)

// Cause says who ended something, and why. Every log line and event of a
// cancellation carries it.
type Cause struct {
	Kind   Kind   `json:"kind"`
	By     string `json:"by,omitempty"`  // a person, a run, "deadline"
	Run    ID     `json:"run,omitempty"` // where it began
	Reason string `json:"reason,omitempty"`
}

func (c *Cause) Error() string {
	text := string(c.Kind)
	if c.By != "" {
		text += " by " + c.By
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}
