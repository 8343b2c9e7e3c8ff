package history

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// RunInfo is what the history knows of a run.
type RunInfo struct {
	ID      nestor.ID
	Root    nestor.ID
	Parent  nestor.ID // empty for a root
	Depth   int
	Agent   string
	Swarm   string
	Title   string // the beginning of what it was told; empty if that is not known
	State   nestor.State
	Reason  string // why it waits, was tried again or was cancelled; empty if none was given
	Attempt int    // zero if it was never started

	Queued  time.Time // each zero if it did not happen yet; clocks may have been changed in between
	Started time.Time
	Ended   time.Time

	CostUSD float64 // its own, without what is below it
	Usage   nestor.Usage
	Summary string          // the beginning of its output
	Error   *nestor.Failure // nil if there was none

	First    eventlog.Position // where it was first seen: what lists are ordered by
	Last     eventlog.Position // of its own events; zero if there are none yet
	Events   uint64            // how many of its own there are
	Archived bool              // it is here alone
}

// Duration is how long the run went on; zero if it has not ended, or if the
// clock was set back meanwhile.
func (r RunInfo) Duration() time.Duration {
	if r.Started.IsZero() || r.Ended.IsZero() {
		return 0
	}
	return max(0, r.Ended.Sub(r.Started))
}

// read returns an event as its type, and its type and time, nil for one that
// cannot be understood.
func read(e eventlog.Event) (event nestor.Event, kind string, when time.Time) {
	event, err := e.Decode()
	if err != nil {
		return nil, "", time.Time{}
	}
	return event, clean(nestor.TypeOf(event)), event.Head().Time
}

// own counts an event of the run itself. Where it belongs is what the log says,
// not what the event does.
func (r *RunInfo) own(e eventlog.Event) {
	if r.First == 0 {
		r.First = e.Position
	}
	if r.State == "" {
		r.State = nestor.Queued
	}
	r.ID, r.Root, r.Last = nestor.ID(e.Run), nestor.ID(e.Root), e.Position
	r.Events++
}

// announce notes a child that another run speaks of. What its own events say
// counts more.
func (r *RunInfo) announce(e eventlog.Event, child *nestor.AgentSpawn) {
	if r.Title == "" {
		r.Title = clean(child.Description)
	}
	if r.Agent == "" {
		r.Agent = clean(child.Agent)
	}
	if r.First == 0 {
		r.ID, r.First, r.State = child.Child, e.Position, nestor.Queued
		r.Root, r.Parent, r.Depth = nestor.ID(e.Root), nestor.ID(e.Run), child.Depth+1
	}
}

func spawned(event nestor.Event) (*nestor.AgentSpawn, bool) {
	s, ok := event.(*nestor.AgentSpawn)
	if !ok {
		return nil, false
	}
	_, err := nestor.ParseID(string(s.Child))
	return s, err == nil && s.Child != s.Run
}

// titleSize is how many bytes of a message a title has.
const titleSize = 400

// fold takes an event of the run in. An end is final.
func (r *RunInfo) fold(event nestor.Event) {
	head := event.Head()
	r.Depth = max(0, head.Depth)
	to := func(s nestor.State, reason string) {
		if !r.State.Ended() {
			r.State, r.Reason = s, clean(reason)
		}
	}
	switch e := event.(type) {
	case *nestor.RunQueued:
		to(nestor.Queued, e.Reason)
		r.Parent, r.Queued = nestor.ID(clean(string(e.Parent))), head.Time
		if e.Agent != "" {
			r.Agent = clean(e.Agent)
		}
	case *nestor.ChatStart:
		if r.Title == "" {
			r.Title = clean(cut(e.Message, titleSize))
		}
	case *nestor.ExecutionStart:
		to(nestor.Running, "")
		r.Agent, r.Swarm, r.Attempt = clean(e.Agent), clean(e.Swarm), e.Attempt
		if r.Started.IsZero() {
			r.Started = head.Time
		}
	case *nestor.RunWaiting:
		reason := e.Reason
		if reason == "" {
			reason = strings.TrimSpace(string(e.Wait.For) + " " + e.Wait.Reason)
		}
		to(nestor.Waiting, reason)
	case *nestor.RunResumed:
		to(nestor.Running, e.Reason)
	case *nestor.RunRetry:
		to(nestor.Waiting, e.Reason)
	case *nestor.RunCancelled:
		if !r.State.Ended() {
			r.Reason = clean(e.Cause.Error())
		}
	case *nestor.ExecutionComplete:
		if r.State.Ended() || !e.Status.Ended() {
			return
		}
		to(e.Status, r.Reason)
		r.Ended, r.CostUSD, r.Usage, r.Summary = head.Time, e.CostUSD, e.Usage, clean(e.ResultSummary)
		if e.Agent != "" {
			r.Agent = clean(e.Agent)
		}
		if e.Error != nil {
			r.Error = &nestor.Failure{Kind: nestor.Kind(clean(string(e.Error.Kind))), Message: clean(e.Error.Message)}
		}
	}
}

// textOf returns what is searched of an event; empty if nothing is.
func textOf(event nestor.Event) string {
	switch e := event.(type) {
	case *nestor.ChatStart:
		return clean(e.Message)
	case *nestor.AgentComplete:
		return clean(e.Content)
	case *nestor.ToolStart:
		return clean(e.Description)
	case *nestor.ToolComplete:
		return clean(e.Summary)
	case *nestor.AgentSpawn:
		return clean(e.Description)
	case *nestor.ExecutionComplete:
		text := e.ResultSummary
		if e.Error != nil {
			text += "\n" + e.Error.Message
		}
		return clean(strings.TrimSpace(text))
	case *nestor.ErrorEvent:
		return clean(e.Message)
	case *nestor.Ask:
		return clean(e.Question)
	case *nestor.Letter:
		return clean(e.Content)
	}
	return ""
}

// clean makes a text one that every database takes: Postgres has no zero
// character.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cut shortens text to n bytes, before the rune that would go beyond.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// micros is how times are stored. One that JSON can hold fits.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
