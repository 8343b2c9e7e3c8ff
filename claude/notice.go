package claude

import "time"

// LocalCommandOutput is what a slash command printed.
type LocalCommandOutput struct {
	Header
	Content string
}

// HookStarted says that a hook runs. It comes with Options.HookEvents, and
// always for SessionStart and Setup.
type HookStarted struct {
	Header
	HookID    string
	HookName  string
	HookEvent string // such as "PreToolUse"
}

// HookProgress is what a hook printed so far.
type HookProgress struct {
	Header
	HookID    string
	HookName  string
	HookEvent string // such as "PreToolUse"
	Stdout    string
	Stderr    string
	Output    string
}

// HookResponse says how a hook ended.
type HookResponse struct {
	Header
	HookID    string
	HookName  string
	HookEvent string // such as "PreToolUse"
	Stdout    string
	Stderr    string
	Output    string
	ExitCode  *int   // nil if it was no process or did not exit
	Outcome   string // "success", "error" or "cancelled"
}

// PluginInstall says how the installation of plugins goes.
type PluginInstall struct {
	Header
	Status string // "started", "installed", "failed" or "completed"
	Name   string // of one marketplace; empty for all
	Error  string // empty if there is none
}

// Notification is a text to show for a while.
type Notification struct {
	Header
	Key      string // a later one with the same key replaces it
	Text     string
	Priority string // "low", "medium", "high" or "immediate"
	Color    string
	Timeout  time.Duration // zero leaves it to the host
}

// Informational is a line of text to show.
type Informational struct {
	Header
	Content             string
	Level               string // "info", "notice", "suggestion" or "warning"
	ToolUseID           string // call that it is about; empty if none
	PreventContinuation bool   // the turn stops here
	Tag                 string // marks lines that a host may treat specially; mostly empty
}

// MemoryRecall says which memories the turn was given.
type MemoryRecall struct {
	Header
	Mode     string // "select" or "synthesize"
	Memories []Memory
}

// ElicitationComplete says that the user finished what an MCP server asked for
// at a URL.
type ElicitationComplete struct {
	Header
	MCPServerName string
	ElicitationID string
}

// PermissionDenied says that a tool call was denied without asking anybody. It
// is a hint; [Result].PermissionDenials is complete.
type PermissionDenied struct {
	Header
	ToolName   string
	ToolUseID  string
	AgentID    string // subagent; empty in the main loop
	ReasonType string // such as "rule", "mode" or "classifier"; empty if not told
	Reason     string // empty if not told
	Message    string // what the model was told
}

// ToolUseSummary sums up tool calls in a line.
type ToolUseSummary struct {
	Header
	Summary    string
	ToolUseIDs []string
}

// PromptSuggestion guesses what the user asks next. It comes after the result.
type PromptSuggestion struct {
	Header
	Suggestion string
}

// Memory is something remembered from earlier sessions.
type Memory struct {
	Path    string // file, "<synthesis:DIR>", or URL of an organization's memory
	Scope   string // "personal", "team" or "organization"
	Content string // empty if it is to be read from Path
}

func (m *LocalCommandOutput) field(s *scanner, key string) bool {
	if key != "content" {
		return false
	}
	m.Content = s.str()
	return true
}

func (m *HookStarted) field(s *scanner, key string) bool {
	switch key {
	case "hook_id":
		m.HookID = s.str()
	case "hook_name":
		m.HookName = s.str()
	case "hook_event":
		m.HookEvent = s.str()
	default:
		return false
	}
	return true
}

func (m *HookProgress) field(s *scanner, key string) bool {
	switch key {
	case "hook_id":
		m.HookID = s.str()
	case "hook_name":
		m.HookName = s.str()
	case "hook_event":
		m.HookEvent = s.str()
	case "stdout":
		m.Stdout = s.str()
	case "stderr":
		m.Stderr = s.str()
	case "output":
		m.Output = s.str()
	default:
		return false
	}
	return true
}

func (m *HookResponse) field(s *scanner, key string) bool {
	switch key {
	case "hook_id":
		m.HookID = s.str()
	case "hook_name":
		m.HookName = s.str()
	case "hook_event":
		m.HookEvent = s.str()
	case "stdout":
		m.Stdout = s.str()
	case "stderr":
		m.Stderr = s.str()
	case "output":
		m.Output = s.str()
	case "exit_code":
		m.ExitCode = s.optInt()
	case "outcome":
		m.Outcome = s.str()
	default:
		return false
	}
	return true
}

func (m *PluginInstall) field(s *scanner, key string) bool {
	switch key {
	case "status":
		m.Status = s.str()
	case "name":
		m.Name = s.str()
	case "error":
		m.Error = s.str()
	default:
		return false
	}
	return true
}

func (m *Notification) field(s *scanner, key string) bool {
	switch key {
	case "key":
		m.Key = s.str()
	case "text":
		m.Text = s.str()
	case "priority":
		m.Priority = s.str()
	case "color":
		m.Color = s.str()
	case "timeout_ms":
		m.Timeout = s.millis()
	default:
		return false
	}
	return true
}

func (m *Informational) field(s *scanner, key string) bool {
	switch key {
	case "content":
		m.Content = s.str()
	case "level":
		m.Level = s.str()
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "prevent_continuation":
		m.PreventContinuation = s.boolean()
	case "tag":
		m.Tag = s.str()
	default:
		return false
	}
	return true
}

func (m *MemoryRecall) field(s *scanner, key string) bool {
	switch key {
	case "mode":
		m.Mode = s.str()
	case "memories":
		m.Memories = s.memories()
	default:
		return false
	}
	return true
}

func (m *ElicitationComplete) field(s *scanner, key string) bool {
	switch key {
	case "mcp_server_name":
		m.MCPServerName = s.str()
	case "elicitation_id":
		m.ElicitationID = s.str()
	default:
		return false
	}
	return true
}

func (m *PermissionDenied) field(s *scanner, key string) bool {
	switch key {
	case "tool_name":
		m.ToolName = s.str()
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "agent_id":
		m.AgentID = s.str()
	case "decision_reason_type":
		m.ReasonType = s.str()
	case "decision_reason":
		m.Reason = s.str()
	case "message":
		m.Message = s.str()
	default:
		return false
	}
	return true
}

func (m *ToolUseSummary) field(s *scanner, key string) bool {
	switch key {
	case "summary":
		m.Summary = s.str()
	case "preceding_tool_use_ids":
		m.ToolUseIDs = s.strs()
	default:
		return false
	}
	return true
}

func (m *PromptSuggestion) field(s *scanner, key string) bool {
	if key != "suggestion" {
		return false
	}
	m.Suggestion = s.str()
	return true
}

func (s *scanner) memories() (list []Memory) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v Memory
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "path":
				v.Path = s.str()
			case "scope":
				v.Scope = s.str()
			case "content":
				v.Content = s.str()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}
