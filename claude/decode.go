package claude

import (
	"errors"
	"strconv"
)

// Decode reads one line of the CLI's output. It fails, with a [*DecodeError],
// only if the line is not one JSON object with a string "type". A field of an
// unexpected JSON type is no error: see [Header.Mismatch].
//
// Frames that are not messages, which are those of the control protocol,
// keep_alive and transcript_mirror, come back as [*Unknown].
//
// The message does not refer to line.
func Decode(line []byte) (Message, error) { return new(scanner).message(string(line), "") }

// message decodes one line, whose type is known or empty. A scanner that reads one
// after the other spares an allocation for each.
func (s *scanner) message(line, typ string) (Message, error) {
	m, err := s.decode(line, typ)
	if err != nil {
		return nil, &DecodeError{Line: []byte(line[:min(len(line), maxErrorLine)]), Err: err}
	}
	return m, nil
}

func (s *scanner) decode(text, typ string) (Message, error) {
	subtype := ""
	if typ == "" || typ == "system" {
		typ, subtype = kind(text)
	}
	for {
		m, essential := newMessage(typ, subtype)
		h := m.Head()
		h.raw = text
		if err := s.decodeInto(m, text, essential); err != nil {
			return nil, err
		}
		if h.Type == typ && (typ != "system" || h.Subtype == subtype) {
			return m, nil
		}
		// A later "type" or "subtype" overrules the one that kind saw.
		typ, subtype = h.Type, h.Subtype
	}
}

var errNoType = errors.New(`no string "type"`)

// decodeInto fills m from text. Without the key essential m means nothing.
func (s *scanner) decodeInto(m Message, text, essential string) error {
	*s = scanner{text: text}
	if s.token() != '{' {
		return errors.New("not a JSON object")
	}
	h := m.Head()
	typed, complete := false, essential == ""
	for ok := s.object(); ok; ok = s.more('}') {
		key := s.key()
		if key == essential {
			complete = s.token() != 'n'
		}
		switch key {
		case "type":
			typed = s.token() == '"'
			h.Type = s.str()
		case "subtype":
			h.Subtype = s.str()
		case "uuid":
			h.UUID = s.str()
		case "session_id":
			h.SessionID = s.str()
		default:
			if !m.field(s, key) {
				s.skip()
			}
		}
	}
	switch {
	case s.err != nil:
		return s.err
	case !s.done():
		return errors.New("more after the object at byte " + strconv.Itoa(s.pos))
	case !typed:
		return errNoType
	}
	h.Mismatch = s.mismatch
	if h.Mismatch == "" && !complete {
		h.Mismatch = essential + ": missing"
	}
	return nil
}

// kind returns the type of the object in text and, of a system message, its
// subtype. It reads no further than it must, so it may miss an error.
func kind(text string) (typ, subtype string) {
	s := scanner{text: text}
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "type":
			typ = s.str()
		case "subtype":
			subtype = s.str()
		default:
			s.skip()
		}
		if typ != "" && (typ != "system" || subtype != "") {
			break
		}
	}
	return typ, subtype
}

// peek returns the type of the frame in line, empty if it has none. It is
// how the transport tells the frames that are not messages, and costs next to
// nothing when "type" comes first, as CLI 2.1.325 writes it.
func peek(line []byte) string {
	const start = `{"type":"`
	if len(line) > len(start) && string(line[:len(start)]) == start {
		rest := line[len(start):]
		for i, c := range rest {
			if c != '"' {
				continue
			}
			switch string(rest[:i]) { // does not allocate
			case "control_request":
				return "control_request"
			case "control_response":
				return "control_response"
			case "control_cancel_request":
				return "control_cancel_request"
			case "keep_alive":
				return "keep_alive"
			case "transcript_mirror":
				return "transcript_mirror"
			case "assistant":
				return "assistant"
			case "user":
				return "user"
			case "stream_event":
				return "stream_event"
			case "system":
				return "system"
			case "result":
				return "result"
			}
			break
		}
	}
	typ, _ := kind(string(line))
	return typ
}

// newMessage returns an empty message of the Go type for a wire type, and the
// key without which such a message means nothing.
func newMessage(typ, subtype string) (m Message, essential string) {
	switch typ {
	case "assistant":
		return new(Assistant), "message"
	case "user":
		return new(User), "message"
	case "stream_event":
		return new(StreamEvent), "event"
	case "result":
		return new(Result), "subtype"
	case "system":
		return newSystem(subtype), ""
	case "tool_progress":
		return new(ToolProgress), "tool_use_id"
	case "rate_limit_event":
		return new(RateLimit), "rate_limit_info"
	case "conversation_reset":
		return new(ConversationReset), "new_conversation_id"
	case "tool_use_summary":
		return new(ToolUseSummary), "summary"
	case "auth_status":
		return new(AuthStatus), ""
	case "prompt_suggestion":
		return new(PromptSuggestion), "suggestion"
	case "active_goal":
		return new(ActiveGoal), ""
	}
	return new(Unknown), ""
}

func newSystem(subtype string) Message {
	switch subtype {
	case "init":
		return new(Init)
	case "status":
		return new(Status)
	case "compact_boundary":
		return new(CompactBoundary)
	case "api_retry":
		return new(APIRetry)
	case "control_request_progress":
		return new(ControlProgress)
	case "model_refusal_fallback":
		return new(ModelRefusalFallback)
	case "model_refusal_no_fallback":
		return new(ModelRefusalNoFallback)
	case "model_fallback":
		return new(ModelFallback)
	case "local_command_output":
		return new(LocalCommandOutput)
	case "hook_started":
		return new(HookStarted)
	case "hook_progress":
		return new(HookProgress)
	case "hook_response":
		return new(HookResponse)
	case "plugin_install":
		return new(PluginInstall)
	case "task_started":
		return new(TaskStarted)
	case "task_progress":
		return new(TaskProgress)
	case "task_updated":
		return new(TaskUpdated)
	case "task_notification":
		return new(TaskNotification)
	case "background_tasks_changed":
		return new(BackgroundTasks)
	case "thinking_tokens":
		return new(ThinkingTokens)
	case "session_state_changed":
		return new(SessionState)
	case "worker_shutting_down":
		return new(WorkerShutdown)
	case "commands_changed":
		return new(CommandsChanged)
	case "notification":
		return new(Notification)
	case "files_persisted":
		return new(FilesPersisted)
	case "memory_recall":
		return new(MemoryRecall)
	case "elicitation_complete":
		return new(ElicitationComplete)
	case "permission_denied":
		return new(PermissionDenied)
	case "mirror_error":
		return new(MirrorError)
	case "informational":
		return new(Informational)
	case "session_writes_lost":
		return new(SessionWritesLost)
	}
	return new(Unknown)
}
