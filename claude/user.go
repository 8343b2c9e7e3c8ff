package claude

import "encoding/json"

// User is a message of the user's side of the conversation that the CLI
// tells about: mostly the results of tools, and, with
// Options.ReplayUserMessages, what the host sent.
type User struct {
	Header
	Content         []Block // a plain string is one Text
	ParentToolUseID string  // call that started the subagent; empty in the main loop

	// ToolUseResult is the structured output of the tool: an object of its own
	// for each tool, not the text that the model reads. Nil if there is none.
	ToolUseResult json.RawMessage

	Synthetic bool    // the CLI wrote it, not the user
	Replay    bool    // the CLI repeats what the host sent
	Origin    *Origin // who wrote it; nil if not told
	Priority  string  // "now", "next" or "later"; empty if not told
	NoQuery   bool    // it starts no turn

	// ClientComposed says that the host composed the text, so that the CLI
	// expands no file mention and runs no slash command in it.
	ClientComposed bool

	AgentID         string // subagent, as the TaskID of its task messages; empty in the main loop
	SubagentType    string // empty in the main loop
	TaskDescription string // empty in the main loop

	Timestamp       string          // ISO 8601, of the clock of who wrote it; empty from older CLIs
	InlinePastes    []string        // what the user pasted into the text
	PastedContent   json.RawMessage // what the user pasted beside the text; nil if nothing
	FileAttachments json.RawMessage // of a replay; nil if there are none
	ToolResultMeta  json.RawMessage // why calls were not executed; nil if all were
}

// Text returns the text blocks, joined. The text of tool results is not part
// of it.
func (m *User) Text() string { return joinText(m.Content) }

// ToolResults returns the results of tool calls in their order.
func (m *User) ToolResults() []*ToolResult { return only[*ToolResult](m.Content) }

// Origin says who wrote a user message. Only those fields are set that its
// kind has.
type Origin struct {
	// Kind is "human", "channel", "peer", "task-notification", "coordinator",
	// "observer", "auto-continuation", "observer-activity", "unclassified" or
	// what a newer CLI says. It is never empty.
	Kind string

	Server          string // of a channel
	From            string // of a peer or observer: where replies go; not proof of identity
	FromMode        string // of a peer: "bypass" or "prompting"
	FromSession     string // of a peer: session to link to
	Name            string // of a peer: what it calls itself
	Body            string // of a peer: the message without its envelope
	SenderTaskID    string // of a peer or observer: subagent that sent it
	VerifiedPeerPID int    // of a peer: process that connected, from the kernel; zero if not verified
	Subkind         string // of a task notification
	FireReason      string // of a scheduled task: why it ran
	RunID           string // of a task notification: run of the task

	raw string
}

// Human tells whether a human wrote the message. Nil and every kind but
// "human" say no.
func (o *Origin) Human() bool { return o != nil && o.Kind == "human" }

// Raw returns a copy of the origin as it was sent.
func (o *Origin) Raw() json.RawMessage { return json.RawMessage(o.raw) }

func (m *User) field(s *scanner, key string) bool {
	switch key {
	case "message":
		m.message(s)
	case "parent_tool_use_id":
		m.ParentToolUseID = s.str()
	case "tool_use_result":
		m.ToolUseResult = s.raw()
	case "isSynthetic":
		m.Synthetic = s.boolean()
	case "isReplay":
		m.Replay = s.boolean()
	case "origin":
		m.Origin = s.origin()
	case "priority":
		m.Priority = s.str()
	case "shouldQuery":
		query := s.optBool()
		m.NoQuery = query != nil && !*query
	case "client_composed":
		m.ClientComposed = s.boolean()
	case "agent_id":
		m.AgentID = s.str()
	case "subagent_type":
		m.SubagentType = s.str()
	case "task_description":
		m.TaskDescription = s.str()
	case "timestamp":
		m.Timestamp = s.str()
	case "inline_pastes":
		m.InlinePastes = s.strs()
	case "pasted_content":
		m.PastedContent = s.raw()
	case "file_attachments":
		m.FileAttachments = s.raw()
	case "tool_result_meta":
		m.ToolResultMeta = s.raw()
	default:
		return false
	}
	return true
}

func (m *User) message(s *scanner) {
	for ok := s.object(); ok; ok = s.more('}') {
		if s.key() == "content" {
			m.Content = s.blocks()
		} else {
			s.skip()
		}
	}
}

// origin returns nil for what is not an object with a kind.
func (s *scanner) origin() *Origin {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	o := new(Origin)
	start := s.pos
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "kind":
			o.Kind = s.str()
		case "server":
			o.Server = s.str()
		case "from":
			o.From = s.str()
		case "fromMode":
			o.FromMode = s.str()
		case "fromSession":
			o.FromSession = s.str()
		case "name":
			o.Name = s.str()
		case "body":
			o.Body = s.str()
		case "senderTaskId":
			o.SenderTaskID = s.str()
		case "verifiedPeerPid":
			o.VerifiedPeerPID = s.integer()
		case "subkind":
			o.Subkind = s.str()
		case "fireReason":
			o.FireReason = s.str()
		case "runId":
			o.RunID = s.str()
		default:
			s.skip()
		}
	}
	if o.Kind == "" {
		return nil
	}
	o.raw = s.text[start:s.pos]
	return o
}
