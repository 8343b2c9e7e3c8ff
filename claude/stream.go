package claude

import (
	"encoding/json"
	"time"
)

// The kinds of stream events, as in the Messages API.
const (
	EventMessageStart      = "message_start"
	EventContentBlockStart = "content_block_start"
	EventContentBlockDelta = "content_block_delta"
	EventContentBlockStop  = "content_block_stop"
	EventMessageDelta      = "message_delta"
	EventMessageStop       = "message_stop"
	EventPing              = "ping"
)

// StreamEvent is one event of a response as it streams. The CLI sends it only
// with Options.PartialMessages; the complete [Assistant] still follows.
type StreamEvent struct {
	Header
	Kind  string // one of the Event constants, or what a newer API says
	Index int    // of the content block; events of a block only
	Block Block  // as it starts, without its content; nil but on content_block_start
	Delta Delta  // on content_block_delta

	MessageID  string // on message_start
	Model      string // on message_start
	StopReason string // on message_delta
	Usage      Usage  // of the API call so far; on message_start and message_delta

	ParentToolUseID  string        // call that started the subagent; empty in the main loop
	TTFT             time.Duration // time to the first token; zero if not told
	UserMessageUUID  string        // user message that this answers; not on every event
	UserMessageUUIDs []string      // all user messages that this turn has taken up so far
	ResumeReason     string        // why the turn continues one that a restart cut; empty if it does not

	event string
}

// Delta is the growth of a content block. Only the field is set that its kind
// has.
type Delta struct {
	Kind            string // "text_delta", "input_json_delta", "thinking_delta", "signature_delta", …
	Text            string
	PartialJSON     string // of the input of a tool call; not JSON by itself
	Thinking        string
	Signature       string
	EstimatedTokens int             // of thinking that is not shown; zero if not told
	Citation        json.RawMessage // nil but on citations_delta
}

// Event returns a copy of the API's event.
func (m *StreamEvent) Event() json.RawMessage { return json.RawMessage(m.event) }

func (m *StreamEvent) field(s *scanner, key string) bool {
	switch key {
	case "event":
		s.token()
		start := s.pos
		m.read(s)
		m.event = s.text[start:s.pos]
	case "parent_tool_use_id":
		m.ParentToolUseID = s.str()
	case "ttft_ms":
		m.TTFT = s.millis()
	case "user_message_uuid":
		m.UserMessageUUID = s.str()
	case "user_message_uuids":
		m.UserMessageUUIDs = s.strs()
	case "resume_reason":
		m.ResumeReason = s.str()
	default:
		return false
	}
	return true
}

// read reads the event itself. No two kinds use one key for different things,
// except "delta", where the keys inside tell them apart.
func (m *StreamEvent) read(s *scanner) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "type":
			m.Kind = s.str()
		case "index":
			m.Index = s.integer()
		case "content_block":
			m.Block = s.block(nil)
		case "delta":
			m.delta(s)
		case "message":
			m.message(s)
		case "usage":
			s.usage(&m.Usage)
		default:
			s.skip()
		}
	}
}

func (m *StreamEvent) delta(s *scanner) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "type":
			m.Delta.Kind = s.str()
		case "text":
			m.Delta.Text = s.str()
		case "partial_json":
			m.Delta.PartialJSON = s.str()
		case "thinking":
			m.Delta.Thinking = s.str()
		case "signature":
			m.Delta.Signature = s.str()
		case "estimated_tokens":
			m.Delta.EstimatedTokens = s.integer()
		case "citation":
			m.Delta.Citation = s.raw()
		case "stop_reason":
			m.StopReason = s.str()
		default:
			s.skip()
		}
	}
}

func (m *StreamEvent) message(s *scanner) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "id":
			m.MessageID = s.str()
		case "model":
			m.Model = s.str()
		case "usage":
			s.usage(&m.Usage)
		default:
			s.skip()
		}
	}
}
