package claude

import (
	"encoding/json"
	"fmt"
)

// HookInput is what every hook is told.
type HookInput struct {
	Event          string         `json:"hook_event_name"`
	SessionID      string         `json:"session_id"`
	TranscriptPath string         `json:"transcript_path"`
	Dir            string         `json:"cwd"`
	PromptID       string         `json:"prompt_id"`       // may be empty
	PermissionMode PermissionMode `json:"permission_mode"` // may be empty
	AgentID        string         `json:"agent_id"`        // the subagent; empty in the main loop
	AgentType      string         `json:"agent_type"`      // may be empty
	Effort         HookEffort     `json:"effort"`

	CallID string          `json:"-"` // the tool call, or what the CLI made up for an event without one
	Raw    json.RawMessage `json:"-"` // the input as the CLI sent it
}

// HookEffort is the effort that Claude works with.
type HookEffort struct {
	Level string `json:"level"` // may be empty
}

func (in *HookInput) base() *HookInput { return in }

// decodeHookInput reads the input of a hook; In is a HookInput or embeds one.
func decodeHookInput[In any](raw json.RawMessage, callID string) (*In, error) {
	in := new(In)
	if err := json.Unmarshal(raw, in); err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	if b, ok := any(in).(interface{ base() *HookInput }); ok {
		b.base().CallID, b.base().Raw = callID, raw
	}
	return in, nil
}

// PreToolUseInput is a tool call about to be made.
type PreToolUseInput struct {
	HookInput
	Tool      string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	MCPServer *ServerOrigin   `json:"mcp_server"` // nil for a built-in tool
}

// PostToolUseInput is a tool call that went well.
type PostToolUseInput struct {
	HookInput
	Tool       string          `json:"tool_name"`
	ToolInput  json.RawMessage `json:"tool_input"`
	ToolUseID  string          `json:"tool_use_id"`
	MCPServer  *ServerOrigin   `json:"mcp_server"`
	Response   json.RawMessage `json:"tool_response"`
	DurationMS float64         `json:"duration_ms"`
}

// PostToolUseFailureInput is a tool call that failed.
type PostToolUseFailureInput struct {
	HookInput
	Tool        string          `json:"tool_name"`
	ToolInput   json.RawMessage `json:"tool_input"`
	ToolUseID   string          `json:"tool_use_id"`
	MCPServer   *ServerOrigin   `json:"mcp_server"`
	Error       string          `json:"error"`
	Interrupted bool            `json:"is_interrupt"`
	DurationMS  float64         `json:"duration_ms"`
}

// PostToolBatchInput is all tool calls of one answer, once they are done.
type PostToolBatchInput struct {
	HookInput
	Calls []BatchCall `json:"tool_calls"`
}

// BatchCall is one call of a [PostToolBatchInput].
type BatchCall struct {
	Tool      string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	Response  json.RawMessage `json:"tool_response"` // nil when there was none
}

// PermissionRequestInput is a question for permission about to be asked.
type PermissionRequestInput struct {
	HookInput
	Tool        string             `json:"tool_name"`
	ToolInput   json.RawMessage    `json:"tool_input"`
	MCPServer   *ServerOrigin      `json:"mcp_server"`
	Suggestions []PermissionUpdate `json:"permission_suggestions"`
}

// PermissionDeniedInput is a tool call that was denied.
type PermissionDeniedInput struct {
	HookInput
	Tool      string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	MCPServer *ServerOrigin   `json:"mcp_server"`
	Reason    string          `json:"reason"`
}

// UserPromptSubmitInput is a prompt about to be sent to Claude.
type UserPromptSubmitInput struct {
	HookInput
	Prompt       string `json:"prompt"`
	Source       string `json:"source"` // user, sdk, system, loop_wakeup …; may be empty
	SessionTitle string `json:"session_title"`
}

// UserPromptExpansionInput is a slash command about to become a prompt.
type UserPromptExpansionInput struct {
	HookInput
	Type    string `json:"expansion_type"` // slash_command or mcp_prompt
	Command string `json:"command_name"`
	Args    string `json:"command_args"`
	Source  string `json:"command_source"`
	Prompt  string `json:"prompt"`
}

// MessageDisplayInput is a piece of an answer about to be shown.
type MessageDisplayInput struct {
	HookInput
	TurnID    string `json:"turn_id"`
	MessageID string `json:"message_id"`
	Index     int    `json:"index"`
	Final     bool   `json:"final"`
	Delta     string `json:"delta"`
}

// NotificationInput is something that the CLI tells the user.
type NotificationInput struct {
	HookInput
	Message string `json:"message"`
	Title   string `json:"title"` // may be empty
	Type    string `json:"notification_type"`
}

// StopInput is the end of a turn.
type StopInput struct {
	HookInput
	Active      bool          `json:"stop_hook_active"` // this hook already kept the turn going
	LastMessage string        `json:"last_assistant_message"`
	Tasks       []RunningTask `json:"background_tasks"`
	Crons       []SessionCron `json:"session_crons"`
}

// SubagentStopInput is the end of a subagent, named by AgentID and AgentType.
type SubagentStopInput struct {
	StopInput
	AgentTranscriptPath string `json:"agent_transcript_path"`
}

// SubagentStartInput is the start of a subagent, named by AgentID and AgentType.
type SubagentStartInput struct{ HookInput }

// RunningTask is a task that runs in the background.
type RunningTask struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Status      string `json:"status"`
	Description string `json:"description"`
	Command     string `json:"command"`    // of a shell
	AgentType   string `json:"agent_type"` // of a subagent
	Server      string `json:"server"`     // of an MCP call
	Tool        string `json:"tool"`       // of an MCP call
	Name        string `json:"name"`
}

// SessionCron is a prompt that the session will send itself.
type SessionCron struct {
	ID        string `json:"id"`
	Schedule  string `json:"schedule"`
	Recurring bool   `json:"recurring"`
	Prompt    string `json:"prompt"`
}

// StopFailureInput is a turn that ended in an API error.
type StopFailureInput struct {
	HookInput
	Error       string `json:"error"`
	Details     string `json:"error_details"`
	LastMessage string `json:"last_assistant_message"`
}

// SetupInput is a run of the project's setup.
type SetupInput struct {
	HookInput
	Trigger string `json:"trigger"` // init or maintenance
}

// SessionStartInput is a conversation that starts or goes on.
type SessionStartInput struct {
	HookInput
	Source                   string  `json:"source"` // startup, resume, clear, compact or fork
	Model                    string  `json:"model"`
	SessionTitle             string  `json:"session_title"`
	SecondsSinceLastResponse float64 `json:"seconds_since_last_response"`
	ContextTokens            int     `json:"context_tokens"`
	CacheLikelyExpired       bool    `json:"prompt_cache_likely_expired"`
	CacheWriteUSD            float64 `json:"estimated_cache_write_usd"`
}

// SessionEndInput is a conversation that ends.
type SessionEndInput struct {
	HookInput
	Reason string `json:"reason"` // clear, resume, logout, prompt_input_exit or other
}

// PreCompactInput is a conversation about to be summarized.
type PreCompactInput struct {
	HookInput
	Trigger      string `json:"trigger"` // manual or auto
	Instructions string `json:"custom_instructions"`
}

// PostCompactInput is a conversation that was summarized.
type PostCompactInput struct {
	HookInput
	Trigger string `json:"trigger"`
	Summary string `json:"compact_summary"`
}

// ModelSwitchInput is a change of the model.
type ModelSwitchInput struct {
	HookInput
	From          string  `json:"from_model"`
	To            string  `json:"to_model"`
	Requested     string  `json:"requested_model"` // empty when it is the default
	Source        string  `json:"source"`          // command, picker, sdk; afterwards also auto, resume
	ContextTokens int     `json:"context_tokens"`
	CacheWarm     bool    `json:"prompt_cache_warm"`
	CacheTTL      string  `json:"cache_ttl"` // 5m or 1h
	CacheWriteUSD float64 `json:"estimated_cache_write_usd"`
	Pricing       string  `json:"pricing"` // configured, catalog or default
}

// ConfigChangeInput is a settings file that changed.
type ConfigChangeInput struct {
	HookInput
	Source string `json:"source"`    // user_settings, project_settings, local_settings, policy_settings or skills
	Path   string `json:"file_path"` // may be empty
}

// InstructionsLoadedInput is a memory file that was read.
type InstructionsLoadedInput struct {
	HookInput
	Path        string   `json:"file_path"`
	MemoryType  string   `json:"memory_type"` // User, Project, Local or Managed
	Reason      string   `json:"load_reason"` // session_start, nested_traversal, path_glob_match, include or compact
	Globs       []string `json:"globs"`
	TriggerPath string   `json:"trigger_file_path"`
	ParentPath  string   `json:"parent_file_path"`
}

// TaskInput is an entry of a task list, made or done.
type TaskInput struct {
	HookInput
	TaskID      string `json:"task_id"`
	Subject     string `json:"task_subject"`
	Description string `json:"task_description"`
	Teammate    string `json:"teammate_name"`
	Team        string `json:"team_name"`
}

// TeammateIdleInput is a teammate without work.
type TeammateIdleInput struct {
	HookInput
	Teammate string `json:"teammate_name"`
	Team     string `json:"team_name"`
}

// ElicitationInput is a question of an MCP server about to be asked.
type ElicitationInput struct {
	HookInput
	Server        string          `json:"mcp_server_name"`
	Message       string          `json:"message"`
	Mode          ElicitationMode `json:"mode"`
	URL           string          `json:"url"`
	ElicitationID string          `json:"elicitation_id"`
	Schema        json.RawMessage `json:"requested_schema"`
}

// ElicitationResultInput is the user's answer to an MCP server.
type ElicitationResultInput struct {
	HookInput
	Server        string            `json:"mcp_server_name"`
	ElicitationID string            `json:"elicitation_id"`
	Mode          ElicitationMode   `json:"mode"`
	Action        ElicitationAction `json:"action"`
	Content       json.RawMessage   `json:"content"`
}

// WorktreeCreateInput is a worktree to be made: the hook makes it.
type WorktreeCreateInput struct {
	HookInput
	Name string `json:"name"`
}

// WorktreeRemoveInput is a worktree to be removed.
type WorktreeRemoveInput struct {
	HookInput
	Path string `json:"worktree_path"`
}

// CwdChangedInput is a new working directory.
type CwdChangedInput struct {
	HookInput
	From string `json:"old_cwd"`
	To   string `json:"new_cwd"`
}

// FileChangedInput is a watched file that changed.
type FileChangedInput struct {
	HookInput
	Path   string `json:"file_path"`
	Change string `json:"event"` // change, add or unlink
}

// DirectoryAddedInput is a directory that the session may now use.
type DirectoryAddedInput struct {
	HookInput
	Directory string `json:"directory"`
	Source    string `json:"source"` // slash_command or register_repo_root
}
