package claude

import "time"

// Init describes the session. The CLI sends it at the start of each turn, not
// before the first prompt.
type Init struct {
	Header
	Version                string // of the CLI
	CWD                    string
	Model                  string
	PermissionMode         string
	Tools                  []string // the agent tool is "Task" or "Agent", by version
	MCPServers             []InitMCPServer
	SlashCommands          []string
	TerminalSlashCommands  []string // those of SlashCommands that need a terminal
	Agents                 []string // names of subagents
	Skills                 []string
	Plugins                []InitPlugin
	PluginErrors           []PluginError
	OutputStyle            string
	APIKeySource           string // such as "ANTHROPIC_API_KEY"; "none" for a login
	Betas                  []string
	Effort                 string // empty if the model has none or it is not told
	ViewMode               string // "focus" or "default"; empty if not told
	FastModeState          string // "off", "cooldown" or "on"; empty if not told
	FastModeDisabledReason string
	Capabilities           []string // what this CLI can do, such as "interrupt_receipt_v1"
}

// Status says what the CLI is busy with.
type Status struct {
	Header
	Status         string // "compacting" or "requesting"; empty means nothing of note
	PermissionMode string // empty if not told
	CompactResult  string // "success" or "failed" after a compaction, otherwise empty
	CompactError   string
}

// SessionState says whether the session is busy. Idle is the one true sign that
// all is done. This package reads it itself and passes it on only if the CLI's
// environment has CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1.
type SessionState struct {
	Header
	State    string // "idle", "running" or "requires_action"
	HostOnly bool   // meant for the host itself, not for its users
}

// CompactBoundary says that the conversation so far was replaced by a summary.
type CompactBoundary struct {
	Header
	Compact Compact
}

// ConversationReset says that the conversation was discarded, as by /clear. Its
// SessionID is that of the old one; later messages carry a new one.
type ConversationReset struct {
	Header
	NewConversationID string
	Trigger           string // "clear", "plan_mode_exit", "fresh_session", "onboarding"; empty if not told
	UserMessageUUID   string // message that held the /clear; empty if none
	Timestamp         string // ISO 8601, for display; empty from older CLIs
}

// CommandsChanged lists all slash commands: it replaces what the host knew.
type CommandsChanged struct {
	Header
	Commands []SlashCommand
}

// FilesPersisted says which files were saved outside of the session.
type FilesPersisted struct {
	Header
	Files       []PersistedFile
	Failed      []PersistedFile
	ProcessedAt string // ISO 8601
}

// SessionWritesLost says that the disk was full: a later resume may miss part of
// the conversation. It comes at most once, after the last result.
type SessionWritesLost struct {
	Header
	ErrorCode            string   // "ENOSPC" or "EDQUOT"
	Lost                 []string // "transcript", "global_config"
	TranscriptSessionIDs []string // sessions that lost lines
}

// MirrorError says that part of the transcript could not be copied to the
// session store. This package makes it; the CLI does not send it.
type MirrorError struct {
	Header
	Error          string
	ProjectKey     string
	StoreSessionID string // session whose lines were lost
	Subpath        string // part of the session; empty means its main transcript
}

// WorkerShutdown says that a hosted worker goes away.
type WorkerShutdown struct {
	Header
	Reason string // such as "host_exit"
}

// AuthStatus says how a login goes.
type AuthStatus struct {
	Header
	IsAuthenticating bool
	Output           []string
	Error            string // empty if there is none
}

// ActiveGoal says what the session works towards, as set by /goal.
type ActiveGoal struct {
	Header
	Goal *Goal // nil if there is none any more
}

// InitMCPServer is an MCP server as the session starts.
type InitMCPServer struct {
	Name   string
	Status string // "connected", "failed", "pending", …
	Source string // "sdk", "plugin" or a config scope; empty from older CLIs
}

// InitPlugin is a plugin that was loaded.
type InitPlugin struct {
	Name    string
	Path    string
	Version string // as the plugin says; empty if it does not
}

// PluginError is what went wrong when a plugin was loaded.
type PluginError struct {
	Plugin  string
	Type    string
	Message string
	Path    string // of an entry that was not loaded at all, otherwise empty
}

// Compact describes a compaction.
type Compact struct {
	Trigger    string // "manual" or "auto"
	PreTokens  int
	PostTokens int           // zero if not told
	Duration   time.Duration // zero if not told

	// AnchorUUID is the message that the kept ones follow, and KeptUUIDs lists
	// these in their order; empty if all was summarized or the CLI is older.
	AnchorUUID string
	KeptUUIDs  []string
}

// SlashCommand is a command or skill that a prompt can start with.
type SlashCommand struct {
	Name         string   `json:"name"` // without the slash
	Description  string   `json:"description"`
	ArgumentHint string   `json:"argumentHint"`
	Aliases      []string `json:"aliases,omitempty"`
	Builtin      bool     `json:"builtin,omitempty"` // the CLI's own
}

// PersistedFile is a file that was saved, or was to be.
type PersistedFile struct {
	Filename string
	FileID   string // empty if it failed
	Error    string // empty if it did not
}

// Goal is what a session works towards.
type Goal struct {
	Condition     string
	Iterations    int
	SetAt         time.Time
	TokensAtStart int
	LastReason    string // why it is not reached yet; empty if not told
}

func (m *Init) field(s *scanner, key string) bool {
	switch key {
	case "claude_code_version":
		m.Version = s.str()
	case "cwd":
		m.CWD = s.str()
	case "model":
		m.Model = s.str()
	case "permissionMode":
		m.PermissionMode = s.str()
	case "tools":
		m.Tools = s.strs()
	case "mcp_servers":
		m.MCPServers = s.initMCPServers()
	case "slash_commands":
		m.SlashCommands = s.strs()
	case "terminal_slash_commands":
		m.TerminalSlashCommands = s.strs()
	case "agents":
		m.Agents = s.strs()
	case "skills":
		m.Skills = s.strs()
	case "plugins":
		m.Plugins = s.initPlugins()
	case "plugin_errors":
		m.PluginErrors = s.pluginErrors()
	case "output_style":
		m.OutputStyle = s.str()
	case "apiKeySource":
		m.APIKeySource = s.str()
	case "betas":
		m.Betas = s.strs()
	case "effort":
		m.Effort = s.str()
	case "view_mode":
		m.ViewMode = s.str()
	case "fast_mode_state":
		m.FastModeState = s.str()
	case "fast_mode_disabled_reason":
		m.FastModeDisabledReason = s.str()
	case "capabilities":
		m.Capabilities = s.strs()
	default:
		return false
	}
	return true
}

func (m *Status) field(s *scanner, key string) bool {
	switch key {
	case "status":
		m.Status = s.str()
	case "permissionMode":
		m.PermissionMode = s.str()
	case "compact_result":
		m.CompactResult = s.str()
	case "compact_error":
		m.CompactError = s.str()
	default:
		return false
	}
	return true
}

func (m *SessionState) field(s *scanner, key string) bool {
	switch key {
	case "state":
		m.State = s.str()
	case "sdk_host_only":
		m.HostOnly = s.boolean()
	default:
		return false
	}
	return true
}

func (m *CompactBoundary) field(s *scanner, key string) bool {
	if key != "compact_metadata" {
		return false
	}
	m.Compact = s.compact()
	return true
}

func (m *ConversationReset) field(s *scanner, key string) bool {
	switch key {
	case "new_conversation_id":
		m.NewConversationID = s.str()
	case "trigger":
		m.Trigger = s.str()
	case "user_message_uuid":
		m.UserMessageUUID = s.str()
	case "timestamp":
		m.Timestamp = s.str()
	default:
		return false
	}
	return true
}

func (m *CommandsChanged) field(s *scanner, key string) bool {
	if key != "commands" {
		return false
	}
	m.Commands = s.slashCommands()
	return true
}

func (m *FilesPersisted) field(s *scanner, key string) bool {
	switch key {
	case "files":
		m.Files = s.persistedFiles()
	case "failed":
		m.Failed = s.persistedFiles()
	case "processed_at":
		m.ProcessedAt = s.str()
	default:
		return false
	}
	return true
}

func (m *SessionWritesLost) field(s *scanner, key string) bool {
	switch key {
	case "error_code":
		m.ErrorCode = s.str()
	case "lost":
		m.Lost = s.strs()
	case "transcript_session_ids":
		m.TranscriptSessionIDs = s.strs()
	default:
		return false
	}
	return true
}

func (m *MirrorError) field(s *scanner, key string) bool {
	switch key {
	case "error":
		m.Error = s.str()
	case "key":
		s.mirrorKey(m)
	default:
		return false
	}
	return true
}

func (m *WorkerShutdown) field(s *scanner, key string) bool {
	if key != "reason" {
		return false
	}
	m.Reason = s.str()
	return true
}

func (m *AuthStatus) field(s *scanner, key string) bool {
	switch key {
	case "isAuthenticating":
		m.IsAuthenticating = s.boolean()
	case "output":
		m.Output = s.strs()
	case "error":
		m.Error = s.str()
	default:
		return false
	}
	return true
}

func (m *ActiveGoal) field(s *scanner, key string) bool {
	if key != "value" {
		return false
	}
	m.Goal = s.goal()
	return true
}

func (s *scanner) mirrorKey(m *MirrorError) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "projectKey":
			m.ProjectKey = s.str()
		case "sessionId":
			m.StoreSessionID = s.str()
		case "subpath":
			m.Subpath = s.str()
		default:
			s.skip()
		}
	}
}

func (s *scanner) initMCPServers() (list []InitMCPServer) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v InitMCPServer
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "name":
				v.Name = s.str()
			case "status":
				v.Status = s.str()
			case "source":
				v.Source = s.str()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) initPlugins() (list []InitPlugin) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v InitPlugin
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "name":
				v.Name = s.str()
			case "path":
				v.Path = s.str()
			case "version":
				v.Version = s.str()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) pluginErrors() (list []PluginError) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v PluginError
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "plugin":
				v.Plugin = s.str()
			case "type":
				v.Type = s.str()
			case "message":
				v.Message = s.str()
			case "path":
				v.Path = s.str()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) compact() (c Compact) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "trigger":
			c.Trigger = s.str()
		case "pre_tokens":
			c.PreTokens = s.integer()
		case "post_tokens":
			c.PostTokens = s.integer()
		case "duration_ms":
			c.Duration = s.millis()
		case "preserved_messages":
			for ok := s.object(); ok; ok = s.more('}') {
				switch s.key() {
				case "anchor_uuid":
					c.AnchorUUID = s.str()
				case "uuids":
					c.KeptUUIDs = s.strs()
				default:
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
	return c
}

func (s *scanner) slashCommands() (list []SlashCommand) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v SlashCommand
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "name":
				v.Name = s.str()
			case "description":
				v.Description = s.str()
			case "argumentHint":
				v.ArgumentHint = s.str()
			case "aliases":
				v.Aliases = s.strs()
			case "builtin":
				v.Builtin = s.boolean()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) persistedFiles() (list []PersistedFile) {
	for ok := s.array(); ok; ok = s.more(']') {
		var v PersistedFile
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "filename":
				v.Filename = s.str()
			case "file_id":
				v.FileID = s.str()
			case "error":
				v.Error = s.str()
			default:
				s.skip()
			}
		}
		list = append(list, v)
	}
	return list
}

func (s *scanner) goal() *Goal {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	g := new(Goal)
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "condition":
			g.Condition = s.str()
		case "iterations":
			g.Iterations = s.integer()
		case "set_at":
			g.SetAt = s.unix(time.Millisecond)
		case "tokens_at_start":
			g.TokensAtStart = s.integer()
		case "last_reason":
			g.LastReason = s.str()
		default:
			s.skip()
		}
	}
	return g
}
