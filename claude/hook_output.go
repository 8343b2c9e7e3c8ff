package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// HookOutput is what any hook may say. The zero value says nothing.
type HookOutput struct {
	Stop       bool   // ends the turn
	StopReason string // what the user is told about Stop

	Block   bool   // blocks what the event is about; on Stop, Claude goes on
	Approve bool   // the old way to allow a tool call; see PreToolUseOutput.Permission
	Reason  string // what Claude is told about Block

	SystemMessage    string // shown to the user
	TerminalSequence string // written to the user's terminal
	SuppressOutput   bool   // keeps the hook out of the transcript

	// Async tells the CLI not to wait: of the other fields only AsyncTimeout
	// counts then.
	Async        bool
	AsyncTimeout time.Duration // zero leaves it to the CLI
}

func (o *HookOutput) common() *HookOutput { return o }

// HookPermission is what a hook says about a tool call or a model switch.
type HookPermission string

// What hooks say.
const (
	HookAllow HookPermission = "allow"
	HookDeny  HookPermission = "deny"
	HookAsk   HookPermission = "ask"
	HookDefer HookPermission = "defer" // ends the run with the call undone; PreToolUse only
)

// PreToolUseOutput judges a tool call before it is made.
type PreToolUseOutput struct {
	HookOutput       `json:"-"`
	Permission       HookPermission  `json:"permissionDecision,omitempty"` // empty means no opinion
	PermissionReason string          `json:"permissionDecisionReason,omitempty"`
	Input            json.RawMessage `json:"updatedInput,omitempty"` // what the tool is given instead
	Context          string          `json:"additionalContext,omitempty"`
}

// PostToolUseOutput comments on a tool call, or changes what Claude sees of it.
type PostToolUseOutput struct {
	HookOutput        `json:"-"`
	Context           string          `json:"additionalContext,omitempty"`
	ClassifierContext string          `json:"classifierContext,omitempty"`    // at most 2000 UTF-16 units
	ToolOutput        json.RawMessage `json:"updatedToolOutput,omitempty"`    // as the tool would have answered
	MCPToolOutput     json.RawMessage `json:"updatedMCPToolOutput,omitempty"` // the old way, for MCP tools
}

// ContextOutput adds a text to what Claude reads next.
type ContextOutput struct {
	HookOutput `json:"-"`
	Context    string `json:"additionalContext,omitempty"`
}

// PermissionRequestOutput answers a question for permission before it is asked.
type PermissionRequestOutput struct {
	HookOutput `json:"-"`
	Decision   Decision `json:"-"` // Allow without Class, or Deny; nil means no opinion
}

// PermissionDeniedOutput comments on a denial.
type PermissionDeniedOutput struct {
	HookOutput `json:"-"`
	Retry      bool `json:"retry,omitempty"` // Claude may try again
}

// UserPromptSubmitOutput adds to a prompt.
type UserPromptSubmitOutput struct {
	HookOutput     `json:"-"`
	Context        string `json:"additionalContext,omitempty"`
	SessionTitle   string `json:"sessionTitle,omitempty"`
	SuppressPrompt bool   `json:"suppressOriginalPrompt,omitempty"`
}

// UserPromptExpansionOutput adds to what a slash command became.
type UserPromptExpansionOutput struct {
	HookOutput     `json:"-"`
	Context        string `json:"additionalContext,omitempty"`
	SuppressPrompt bool   `json:"suppressOriginalPrompt,omitempty"`
}

// SessionStartOutput prepares a session.
type SessionStartOutput struct {
	HookOutput    `json:"-"`
	Context       string   `json:"additionalContext,omitempty"`
	InitialPrompt string   `json:"initialUserMessage,omitempty"`
	SessionTitle  string   `json:"sessionTitle,omitempty"`
	WatchPaths    []string `json:"watchPaths,omitempty"` // files for FileChanged
	ReloadSkills  bool     `json:"reloadSkills,omitempty"`
}

// PreModelSwitchOutput judges a change of the model.
type PreModelSwitchOutput struct {
	HookOutput       `json:"-"`
	Permission       HookPermission `json:"permissionDecision,omitempty"`
	PermissionReason string         `json:"permissionDecisionReason,omitempty"`
}

// ElicitationOutput answers an MCP server, or changes the user's answer.
type ElicitationOutput struct {
	HookOutput `json:"-"`
	Action     ElicitationAction `json:"action,omitempty"`
	Content    json.RawMessage   `json:"content,omitempty"`
}

// WatchOutput names the files for FileChanged.
type WatchOutput struct {
	HookOutput `json:"-"`
	WatchPaths []string `json:"watchPaths,omitempty"`
}

// WorktreeCreateOutput says where the hook made the worktree.
type WorktreeCreateOutput struct {
	HookOutput `json:"-"`
	Path       string `json:"worktreePath,omitempty"`
}

// MessageDisplayOutput changes what is shown of an answer.
type MessageDisplayOutput struct {
	HookOutput `json:"-"`
	Content    string `json:"displayContent,omitempty"`
}

// MarshalJSON writes the part of the output that is special to the event.
func (o *PermissionRequestOutput) MarshalJSON() ([]byte, error) {
	type decision struct {
		Behavior  string             `json:"behavior"`
		Input     json.RawMessage    `json:"updatedInput,omitempty"`
		Updates   []PermissionUpdate `json:"updatedPermissions,omitempty"`
		Message   string             `json:"message,omitempty"`
		Interrupt bool               `json:"interrupt,omitempty"`
	}
	switch d := o.Decision.(type) {
	case nil, Elsewhere:
		return []byte("{}"), nil
	case Allow:
		return json.Marshal(map[string]decision{"decision": {Behavior: "allow", Input: d.Input, Updates: d.Updates}})
	case Deny:
		return json.Marshal(map[string]decision{"decision": {Behavior: "deny", Message: d.Message, Interrupt: d.Interrupt}})
	default:
		return nil, fmt.Errorf("%T is not a decision; use Allow, Deny or Elsewhere", d)
	}
}

// encodeHookOutput returns what the CLI is told. Out is a RawMessage, a
// HookOutput, or a struct that embeds one and holds what is special to the
// event.
func encodeHookOutput[Out any](event string, out *Out) (json.RawMessage, error) {
	if raw, ok := any(out).(*json.RawMessage); ok {
		if !isObject(*raw) {
			return nil, fmt.Errorf("%s hook: the output is not a JSON object: %.80q", event, *raw)
		}
		return *raw, nil
	}
	o, ok := any(out).(interface{ common() *HookOutput })
	if !ok {
		return nil, fmt.Errorf("%s hook: %T is not an output", event, out)
	}
	common, plain := o.common(), any(out) == any(o.common())
	if common.Async {
		return json.Marshal(asyncHookWire{Async: true, Timeout: common.AsyncTimeout.Milliseconds()})
	}
	wire, err := common.wire()
	if err == nil && !plain {
		wire.Specific, err = specificOutput(event, out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s hook: %w", event, err)
	}
	return json.Marshal(wire)
}

type asyncHookWire struct {
	Async   bool  `json:"async"`
	Timeout int64 `json:"asyncTimeout,omitempty"` // milliseconds
}

type hookWire struct {
	Continue         *bool                      `json:"continue,omitempty"`
	StopReason       string                     `json:"stopReason,omitempty"`
	Decision         string                     `json:"decision,omitempty"`
	Reason           string                     `json:"reason,omitempty"`
	SystemMessage    string                     `json:"systemMessage,omitempty"`
	TerminalSequence string                     `json:"terminalSequence,omitempty"`
	SuppressOutput   bool                       `json:"suppressOutput,omitempty"`
	Specific         map[string]json.RawMessage `json:"hookSpecificOutput,omitempty"`
}

func (o *HookOutput) wire() (hookWire, error) {
	w := hookWire{
		StopReason:       o.StopReason,
		Reason:           o.Reason,
		SystemMessage:    o.SystemMessage,
		TerminalSequence: o.TerminalSequence,
		SuppressOutput:   o.SuppressOutput,
	}
	if o.Stop {
		w.Continue = new(false)
	}
	switch {
	case o.Block && o.Approve:
		return w, errors.New("the output blocks and approves")
	case o.Block:
		w.Decision = "block"
	case o.Approve:
		w.Decision = "approve"
	}
	return w, nil
}

// specificOutput returns nil when out says nothing that is special to event.
func specificOutput(event string, out any) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, nil
	}
	name, err := json.Marshal(event)
	fields["hookEventName"] = name
	return fields, err
}
