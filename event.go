package nestor

import (
	"encoding/json"
	"time"
)

// Event is one thing that happened in a run: one of the types below, as a
// pointer, or [*UnknownEvent].
type Event interface {
	Head() *Header
	wire() string // its type in JSON
}

// Header is what all events have.
type Header struct {
	Seq   uint64    `json:"seq,omitempty"` // its position in the log; zero for what is live only, or not appended yet
	Time  time.Time `json:"time"`
	Run   ID        `json:"run"`
	Root  ID        `json:"root"`
	Depth int       `json:"depth"`
}

// Head returns the header, also for writing.
func (h *Header) Head() *Header { return h }

// The events of a conversation.
type (
	// ChatStart is the message that a person or a run begins with.
	ChatStart struct {
		Header
		Message string `json:"message"`
	}
	// ChatComplete is the end of what ChatStart began.
	ChatComplete struct {
		Header
		Success bool `json:"success"`
	}
	// AgentStart is an agent that begins to work.
	AgentStart struct {
		Header
		Agent     string `json:"agent"`
		AgentType string `json:"agent_type,omitempty"`
	}
	// AgentDelta is how a text grows. It is live only.
	AgentDelta struct {
		Header
		Agent string `json:"agent"`
		Delta string `json:"delta"`
	}
	// AgentComplete is a finished text.
	AgentComplete struct {
		Header
		Agent    string `json:"agent"`
		Content  string `json:"content"`
		Thinking string `json:"thinking,omitempty"`
	}
	// ThinkingStart is a thought that begins.
	ThinkingStart struct {
		Header
		Agent string `json:"agent"`
	}
	// ThinkingDelta is how a thought grows. It is live only.
	ThinkingDelta struct {
		Header
		Agent string `json:"agent"`
		Delta string `json:"delta"`
	}
	// ThinkingComplete is a finished thought.
	ThinkingComplete struct {
		Header
		Agent    string `json:"agent"`
		Thinking string `json:"thinking"`
	}
	// ToolStart is a tool call.
	ToolStart struct {
		Header
		Tool        string          `json:"tool"`
		Description string          `json:"description,omitempty"`
		Input       json.RawMessage `json:"input,omitempty"`
		ToolUseID   string          `json:"tool_use_id"`
	}
	// ToolComplete is the result of a tool call.
	ToolComplete struct {
		Header
		Tool      string `json:"tool"`
		Success   bool   `json:"success"`
		Summary   string `json:"summary,omitempty"`
		ToolUseID string `json:"tool_use_id"`
		Output    *Blob  `json:"output,omitempty"` // the whole, if Summary is not all
	}
	// Decision says whether a tool call may be made.
	Decision struct {
		Header
		Tool      string `json:"tool"`
		ToolUseID string `json:"tool_use_id,omitempty"`
		Allowed   bool   `json:"allowed"`
		Reason    string `json:"reason,omitempty"`
		Rule      string `json:"rule,omitempty"` // what made it
	}
	// ProviderMessage is something of a provider that has no event of its own.
	ProviderMessage struct {
		Header
		Raw json.RawMessage `json:"raw"`
	}
	// ErrorEvent is something that went wrong.
	ErrorEvent struct {
		Header
		Message string `json:"message"`
		Kind    Kind   `json:"kind,omitempty"`
	}
)

// Blob refers to bytes that are too large for an event.
type Blob struct {
	Ref  string `json:"ref"`
	Size int    `json:"size"`
	Type string `json:"media_type,omitempty"`
}

// The events of a run's life.
type (
	// AgentSpawn is a child that a run was granted.
	AgentSpawn struct {
		Header
		Agent       string `json:"agent"`
		Description string `json:"description,omitempty"`
		Child       ID     `json:"child"`
	}
	// ExecutionStart is an attempt that begins.
	ExecutionStart struct {
		Header
		ExecutionID string `json:"execution_id"`
		Agent       string `json:"agent"`
		Swarm       string `json:"swarm,omitempty"`
		Workspace   string `json:"workspace,omitempty"`
		Attempt     int    `json:"attempt,omitempty"`
	}
	// ExecutionProgress says what a run does.
	ExecutionProgress struct {
		Header
		ExecutionID string  `json:"execution_id"`
		Agent       string  `json:"agent"`
		Progress    float64 `json:"progress,omitempty"` // 0 to 1; zero if it is not known
		Activity    string  `json:"activity,omitempty"`
		Turns       int     `json:"num_turns,omitempty"` // so far; this and what follows zero if it is not known
		CostUSD     float64 `json:"cost_usd,omitempty"`  // so far, its own
		Usage       *Usage  `json:"usage,omitempty"`     // likewise
	}
	// ExecutionComplete is the end of a run. There is exactly one.
	ExecutionComplete struct {
		Header
		ExecutionID   string   `json:"execution_id"`
		Agent         string   `json:"agent"`
		Success       bool     `json:"success"`
		Status        State    `json:"status"`
		ResultSummary string   `json:"result_summary,omitempty"`
		CostUSD       float64  `json:"cost_usd"`
		Usage         Usage    `json:"usage"`
		Error         *Failure `json:"error,omitempty"`
		Turns         int      `json:"num_turns,omitempty"`
		Result        *Result  `json:"result,omitempty"` // all of it, as far as it is kept
	}
	// RunQueued is a task that was accepted.
	RunQueued struct {
		Header
		Parent ID     `json:"parent,omitempty"`
		Agent  string `json:"agent,omitempty"`
		Reason string `json:"reason,omitempty"`
		Wait   *Wait  `json:"wait,omitempty"`
	}
	// RunWaiting is a run that cannot go on by itself.
	RunWaiting struct {
		Header
		Reason string `json:"reason,omitempty"`
		Wait   Wait   `json:"wait"`
	}
	// RunResumed is a run that goes on, after a wait or on another worker.
	RunResumed struct {
		Header
		Reason string `json:"reason,omitempty"`
	}
	// RunRetry is an attempt that failed and is made again.
	RunRetry struct {
		Header
		Reason  string    `json:"reason,omitempty"`
		Attempt int       `json:"attempt"` // the next
		At      time.Time `json:"at"`
	}
	// RunCancelled is a run that is to end.
	RunCancelled struct {
		Header
		Reason string `json:"reason,omitempty"`
		Cause  Cause  `json:"cause"`
	}
	// Lease is a part of a run's budget that a child got, or gave back.
	Lease struct {
		Header
		Child    ID      `json:"child"`
		Granted  float64 `json:"granted_usd"`
		Spent    float64 `json:"spent_usd"`
		Returned float64 `json:"returned_usd"`
	}
	// WorkspaceWrite is a file that a run changed.
	WorkspaceWrite struct {
		Header
		Agent  string `json:"agent"`
		Path   string `json:"path"`
		Action string `json:"action"`
	}
	// NetworkDial is a connection that a run's processes made out of a network of their
	// own, or that they were refused. It is told when it is over.
	NetworkDial struct {
		Header
		Host     string `json:"host,omitempty"`    // as it was asked for; empty if that cannot be told
		Port     int    `json:"port,omitempty"`    // likewise zero
		Address  string `json:"address,omitempty"` // that was connected to, with the port; empty if none was
		Allowed  bool   `json:"allowed"`
		Rule     string `json:"rule,omitempty"`   // what allowed it, or refused it
		Reason   string `json:"reason,omitempty"` // why it was refused, or failed
		Sent     int64  `json:"bytes_out"`
		Received int64  `json:"bytes_in"`
		Millis   int64  `json:"duration_ms"`
	}
	// Ask is a question to a person.
	Ask struct {
		Header
		AskID        string            `json:"ask_id"`
		Tool         string            `json:"tool,omitempty"`
		Input        json.RawMessage   `json:"input,omitempty"`
		Question     string            `json:"question,omitempty"`
		Options      []string          `json:"options,omitempty"` // of which one is chosen; none means any answer
		Default      string            `json:"default,omitempty"` // the answer when nobody gives one in time
		Until        time.Time         `json:"until,omitzero"`    // when that is; zero means never
		PathFromRoot []ID              `json:"path_from_root,omitempty"`
		Suggestions  []json.RawMessage `json:"suggestions,omitempty"`
	}
	// Answer is the answer to an Ask.
	Answer struct {
		Header
		AskID    string          `json:"ask_id"`
		Decision string          `json:"decision"` // allow, deny, or what was chosen
		By       string          `json:"by,omitempty"`
		Scope    string          `json:"scope,omitempty"` // once, run, role
		Data     json.RawMessage `json:"data,omitempty"`  // more, for who asked
	}
	// Letter is a message from one agent to another, or to all.
	Letter struct {
		Header
		From    string `json:"from"`
		To      string `json:"to"`
		Content string `json:"content"`
	}
)

// UnknownEvent is an event of a newer Nestor. It is passed on as it came.
type UnknownEvent struct {
	Header
	Type string
	Raw  json.RawMessage // all of it
}

func (*ChatStart) wire() string         { return "chat_start" }
func (*ChatComplete) wire() string      { return "chat_complete" }
func (*AgentStart) wire() string        { return "agent_start" }
func (*AgentDelta) wire() string        { return "agent_delta" }
func (*AgentComplete) wire() string     { return "agent_complete" }
func (*ThinkingStart) wire() string     { return "thinking_start" }
func (*ThinkingDelta) wire() string     { return "thinking_delta" }
func (*ThinkingComplete) wire() string  { return "thinking_complete" }
func (*ToolStart) wire() string         { return "tool_start" }
func (*ToolComplete) wire() string      { return "tool_complete" }
func (*Decision) wire() string          { return "decision" }
func (*ProviderMessage) wire() string   { return "provider_message" }
func (*ErrorEvent) wire() string        { return "error" }
func (*AgentSpawn) wire() string        { return "agent_spawn" }
func (*ExecutionStart) wire() string    { return "agent_execution_start" }
func (*ExecutionProgress) wire() string { return "agent_execution_progress" }
func (*ExecutionComplete) wire() string { return "agent_execution_complete" }
func (*RunQueued) wire() string         { return "run_queued" }
func (*RunWaiting) wire() string        { return "run_waiting" }
func (*RunResumed) wire() string        { return "run_resumed" }
func (*RunRetry) wire() string          { return "run_retry" }
func (*RunCancelled) wire() string      { return "run_cancelled" }
func (*Lease) wire() string             { return "lease" }
func (*WorkspaceWrite) wire() string    { return "workspace_write" }
func (*NetworkDial) wire() string       { return "network_dial" }
func (*Ask) wire() string               { return "ask" }
func (*Answer) wire() string            { return "answer" }
func (*Letter) wire() string            { return "letter" }
func (e *UnknownEvent) wire() string    { return e.Type }

// newEvent returns an empty event of a type in JSON, nil for one that is not
// known.
func newEvent(wire string) Event {
	switch wire {
	case "chat_start":
		return new(ChatStart)
	case "chat_complete":
		return new(ChatComplete)
	case "agent_start":
		return new(AgentStart)
	case "agent_delta":
		return new(AgentDelta)
	case "agent_complete":
		return new(AgentComplete)
	case "thinking_start":
		return new(ThinkingStart)
	case "thinking_delta":
		return new(ThinkingDelta)
	case "thinking_complete":
		return new(ThinkingComplete)
	case "tool_start":
		return new(ToolStart)
	case "tool_complete":
		return new(ToolComplete)
	case "decision":
		return new(Decision)
	case "provider_message":
		return new(ProviderMessage)
	case "error":
		return new(ErrorEvent)
	case "agent_spawn":
		return new(AgentSpawn)
	case "agent_execution_start":
		return new(ExecutionStart)
	case "agent_execution_progress":
		return new(ExecutionProgress)
	case "agent_execution_complete":
		return new(ExecutionComplete)
	case "run_queued":
		return new(RunQueued)
	case "run_waiting":
		return new(RunWaiting)
	case "run_resumed":
		return new(RunResumed)
	case "run_retry":
		return new(RunRetry)
	case "run_cancelled":
		return new(RunCancelled)
	case "lease":
		return new(Lease)
	case "workspace_write":
		return new(WorkspaceWrite)
	case "network_dial":
		return new(NetworkDial)
	case "ask":
		return new(Ask)
	case "answer":
		return new(Answer)
	case "letter":
		return new(Letter)
	}
	return nil
}
