package claude

import "encoding/json"

// Assistant is what the model said or did. While a response streams, the CLI
// sends one Assistant for each content block as it completes: several in a
// row then share MessageID, StopReason is empty and Usage is not final. See
// [Meter] for counting these once.
type Assistant struct {
	Header
	MessageID       string // the API's id of the whole response
	Model           string // "<synthetic>" if the CLI itself wrote the message
	Content         []Block
	StopReason      string       // empty until the response is complete
	StopDetails     *StopDetails // nil unless the model refused
	Usage           Usage        // zero if absent
	ParentToolUseID string       // call that started the subagent; empty in the main loop

	Error     AssistantError // why the API call failed; empty if it did not
	RequestID string         // the API's id of the request
	Aborted   bool           // cut short by an interrupt; may end mid-word

	// Supersedes lists the UUIDs of earlier messages that this one replaces.
	Supersedes []string

	UserMessageUUID  string   // user message that this answers; not on every message
	UserMessageUUIDs []string // all user messages that this turn has taken up so far
	ResumeReason     string   // why the turn continues one that a restart cut; empty if it does not

	// ResumedFromIncompleteThinking says that the turn goes on inside the
	// thinking of the one before it.
	ResumedFromIncompleteThinking bool

	AgentID         string // subagent, as the TaskID of its task messages; empty in the main loop
	SubagentType    string // empty in the main loop
	TaskDescription string // empty in the main loop

	Timestamp string // ISO 8601, of the CLI's clock; for display, not for ordering

	place place // of Content, so that most messages are one allocation
}

// ContextUsage returns what the answer to /context carries, otherwise nil.
func (m *Assistant) ContextUsage() json.RawMessage { return m.value("context_usage") }

// UsageReport returns what the answer to /usage carries, otherwise nil.
func (m *Assistant) UsageReport() json.RawMessage { return m.value("usage_report") }

// Text returns the text blocks, joined.
func (m *Assistant) Text() string { return joinText(m.Content) }

// ToolUses returns the tool calls in their order.
func (m *Assistant) ToolUses() []*ToolUse { return only[*ToolUse](m.Content) }

// StopDetails says why the model refused.
type StopDetails struct {
	Type        string // "refusal"
	Category    string // such as "cyber" or "bio"; empty if the API gives none
	Explanation string // for display; empty if the API gives none
}

// AssistantError is why an API call failed.
type AssistantError string

// The kinds of API errors of CLI 2.1.325. A newer one may send others.
const (
	ErrorAuthentication       AssistantError = "authentication_failed"
	ErrorOAuthOrgNotAllowed   AssistantError = "oauth_org_not_allowed"
	ErrorAccountOnHold        AssistantError = "account_on_hold"
	ErrorVerificationRequired AssistantError = "verification_required"
	ErrorBilling              AssistantError = "billing_error"
	ErrorRateLimit            AssistantError = "rate_limit"
	ErrorOverloaded           AssistantError = "overloaded"
	ErrorInvalidRequest       AssistantError = "invalid_request"
	ErrorModelNotFound        AssistantError = "model_not_found"
	ErrorServer               AssistantError = "server_error"
	ErrorMaxOutputTokens      AssistantError = "max_output_tokens"
	ErrorCloudCredential      AssistantError = "cloud_credential_error"
	ErrorUnknown              AssistantError = "unknown"
)

func (m *Assistant) field(s *scanner, key string) bool {
	switch key {
	case "message":
		m.message(s)
	case "parent_tool_use_id":
		m.ParentToolUseID = s.str()
	case "error":
		m.Error = AssistantError(s.str())
	case "request_id":
		m.RequestID = s.str()
	case "aborted":
		m.Aborted = s.boolean()
	case "supersedes":
		m.Supersedes = s.strs()
	case "user_message_uuid":
		m.UserMessageUUID = s.str()
	case "user_message_uuids":
		m.UserMessageUUIDs = s.strs()
	case "resume_reason":
		m.ResumeReason = s.str()
	case "resumed_from_incomplete_thinking":
		m.ResumedFromIncompleteThinking = s.boolean()
	case "agent_id":
		m.AgentID = s.str()
	case "subagent_type":
		m.SubagentType = s.str()
	case "task_description":
		m.TaskDescription = s.str()
	case "timestamp":
		m.Timestamp = s.str()
	default:
		return false
	}
	return true
}

func (m *Assistant) message(s *scanner) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "id":
			m.MessageID = s.str()
		case "model":
			m.Model = s.str()
		case "content":
			m.Content = s.blocksIn(&m.place)
		case "stop_reason":
			m.StopReason = s.str()
		case "stop_details":
			m.StopDetails = s.stopDetails()
		case "usage":
			s.usage(&m.Usage)
		default:
			s.skip()
		}
	}
}

func (s *scanner) stopDetails() *StopDetails {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	d := new(StopDetails)
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "type":
			d.Type = s.str()
		case "category":
			d.Category = s.str()
		case "explanation":
			d.Explanation = s.str()
		default:
			s.skip()
		}
	}
	return d
}

// only returns the blocks of one type.
func only[T Block](blocks []Block) (list []T) {
	for _, b := range blocks {
		if t, ok := b.(T); ok {
			list = append(list, t)
		}
	}
	return list
}
