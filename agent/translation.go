package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/claude"
)

// MaxToolResult is how many bytes of a tool's result a message holds. A longer
// one is cut before the rune that would go beyond; its metadata then has
// "truncated" and, as "size", the bytes of the whole.
const MaxToolResult = 16 << 10

// meta is what a message tells besides its text.
type meta = map[string]any

// Translate makes messages of what a provider says in Claude's types, as an agent
// of that name: one for each block that means something, none if nothing does. What each is, "sdk_type" says; all have
// "session_id", what a subagent says has "parent_tool_use_id", and what is part of
// an answer of the model has its "message_id" and its "usage" so far:
//
//	assistant_text    chat    what the model said
//	thinking          system  what it thought
//	partial_text      system  how a text grows, if that was asked for
//	partial_thinking  system  how a thought grows
//	tool_use          system  tool_name, tool_input, tool_use_id
//	tool_result       system  tool_use_id, is_error, truncated, size
//	result            chat    the end of a turn, with subtype "success"; reason,
//	                          usage, total_cost_usd (of the process so far) or
//	                          cost_unknown, num_turns, duration_ms, structured_output,
//	                          permission_denials
//	                  system  or "error", with api_error_status
//	init              system  model, tools, permission_mode, cwd, version
//	api_retry         system  a call of the API failed and is tried again: attempt,
//	                          max_retries, delay_ms, api_error_status (zero if there
//	                          was no answer), error, and message if more is known
//	unknown           system  raw: what this version does not know
//
// The others are system too: resumed, task_started, task_notification,
// task_killed, permission_denied, rate_limit, model_fallback, model_refusal,
// compacted, conversation_reset, notice, session_writes_lost.
func Translate(msg claude.Message, sender string) []Message {
	one := func(sdkType, content string, m meta) []Message {
		return []Message{part(msg, sender, System, sdkType, content, m)}
	}
	switch m := msg.(type) {
	case *claude.Assistant:
		return blocksOf(m, sender)
	case *claude.User:
		return toolResultsOf(m, sender)
	case *claude.Result:
		return []Message{resultOf(m, sender)}
	case *claude.StreamEvent:
		parent := meta{"parent_tool_use_id": m.ParentToolUseID}
		switch {
		case m.Delta.Text != "":
			return one("partial_text", m.Delta.Text, parent)
		case m.Delta.Thinking != "":
			return one("partial_thinking", m.Delta.Thinking, parent)
		}
	case *claude.Init:
		return one("init", "", meta{
			"model": m.Model, "tools": m.Tools, "permission_mode": m.PermissionMode, "cwd": m.CWD, "version": m.Version,
		})
	case *claude.TaskStarted:
		if !m.SkipTranscript && !m.Ambient {
			return one("task_started", m.Description, meta{
				"task_id": m.TaskID, "task_type": m.TaskType, "tool_use_id": m.ToolUseID, "subagent_type": m.SubagentType,
			})
		}
	case *claude.TaskNotification:
		if !m.SkipTranscript && !m.Ambient {
			return one("task_notification", m.Summary, meta{
				"task_id": m.TaskID, "tool_use_id": m.ToolUseID, "status": string(m.Status), "output_file": m.OutputFile,
			})
		}
	case *claude.TaskUpdated: // of other ends a notification tells
		if m.Patch.Status == claude.TaskKilled {
			return one("task_killed", m.Patch.Error, meta{"task_id": m.TaskID})
		}
	case *claude.PermissionDenied:
		return one("permission_denied", m.Message, meta{
			"tool_name": m.ToolName, "tool_use_id": m.ToolUseID, "reason_type": m.ReasonType, "reason": m.Reason,
		})
	case *claude.RateLimit:
		return one("rate_limit", "Rate limit: "+m.Info.Status, rateLimit(m.Info))
	case *claude.APIRetry:
		var more struct {
			Message string `json:"message"` // of our own loop; not seen in CLI 2.1.325
		}
		json.Unmarshal(m.Raw(), &more) // if it has none, it is empty
		return one("api_retry", fmt.Sprintf("API error, attempt %d of %d follows in %v", m.Attempt, m.MaxRetries, m.RetryDelay), meta{
			"attempt": m.Attempt, "max_retries": m.MaxRetries, "delay_ms": m.RetryDelay.Milliseconds(),
			"api_error_status": m.ErrorStatus, "error": string(m.Error), "message": more.Message,
		})
	case *claude.ModelFallback:
		return one("model_fallback", m.Content, meta{"from": m.OriginalModel, "to": m.FallbackModel, "trigger": m.Trigger})
	case *claude.ModelRefusalFallback:
		return one("model_fallback", m.Content, meta{
			"from": m.OriginalModel, "to": m.FallbackModel, "trigger": m.Trigger,
			"category": m.RefusalCategory, "retracted": m.RetractedUUIDs,
		})
	case *claude.ModelRefusalNoFallback:
		return one("model_refusal", m.Content, meta{"from": m.OriginalModel, "category": m.RefusalCategory})
	case *claude.CompactBoundary:
		return one("compacted", "", meta{"trigger": m.Compact.Trigger, "pre_tokens": m.Compact.PreTokens, "post_tokens": m.Compact.PostTokens})
	case *claude.ConversationReset:
		return one("conversation_reset", "", meta{"trigger": m.Trigger, "new_session_id": m.NewConversationID})
	case *claude.Notification:
		return one("notice", m.Text, meta{"priority": m.Priority})
	case *claude.Informational:
		return one("notice", m.Content, meta{"level": m.Level, "tool_use_id": m.ToolUseID})
	case *claude.LocalCommandOutput:
		return one("notice", m.Content, nil)
	case *claude.AuthStatus:
		if m.Error != "" {
			return one("notice", m.Error, meta{"level": "warning"})
		}
	case *claude.SessionWritesLost:
		return one("session_writes_lost", "the disk is full: "+m.ErrorCode, meta{"lost": m.Lost})
	case *claude.Unknown:
		if m.Type != "command_lifecycle" { // what became of a prompt
			return []Message{unknown(m, sender)}
		}
	}
	return nil // the protocol's own affairs, and what was not asked for
}

// part makes a message of part of msg. Empty strings are left out of its
// metadata.
func part(msg claude.Message, sender string, kind Kind, sdkType, content string, more meta) Message {
	m := NewMessage(sender, content)
	m.Kind = kind
	m.Metadata = meta{"sdk_type": sdkType, "session_id": msg.Head().SessionID}
	maps.Copy(m.Metadata, more)
	maps.DeleteFunc(m.Metadata, func(_ string, v any) bool { return v == "" })
	return m
}

// blocksOf makes a message of each block.
func blocksOf(m *claude.Assistant, sender string) (list []Message) {
	add := func(kind Kind, sdkType, content string, more meta) {
		all := meta{
			"parent_tool_use_id": m.ParentToolUseID, "subagent_type": m.SubagentType, "model": m.Model, "error": string(m.Error),
			"message_id": m.MessageID, "usage": usage(m.Usage),
		}
		maps.Copy(all, more)
		if m.Aborted {
			all["aborted"] = true
		}
		if len(m.Supersedes) > 0 {
			all["supersedes"] = m.Supersedes
		}
		list = append(list, part(m, sender, kind, sdkType, content, all))
	}
	use := func(id, name, server string, input any) {
		add(System, "tool_use", "Using tool: "+name, meta{
			"tool_name": name, "tool_input": input, "tool_use_id": id, "server_name": server,
		})
	}
	for _, block := range m.Content {
		switch b := block.(type) {
		case *claude.Text:
			if b.Text != "" {
				add(Chat, "assistant_text", b.Text, nil)
			}
		case *claude.Thinking:
			if b.Thinking != "" {
				add(System, "thinking", b.Thinking, nil)
			}
		case *claude.ToolUse:
			use(b.ID, b.Name, "", b.Input)
		case *claude.ServerToolUse:
			use(b.ID, b.Name, "", b.Input)
		case *claude.MCPToolUse:
			use(b.ID, b.Name, b.ServerName, b.Input)
		case *claude.MCPToolResult:
			content, more := cut((*claude.ToolResult)(b).Text())
			more["tool_use_id"], more["is_error"] = b.ToolUseID, b.IsError
			add(System, "tool_result", content, more)
		case *claude.ServerToolResult:
			content, more := cut(string(b.Content))
			more["tool_use_id"], more["is_error"] = b.ToolUseID, false
			add(System, "tool_result", content, more)
		case *claude.UnknownBlock:
			add(System, "unknown", "", meta{"type": b.Type, "raw": b.Raw})
		}
	}
	return list
}

// toolResultsOf makes a message of each result of a tool. Other things on the
// user's side are what the host or the CLI itself told the model.
func toolResultsOf(m *claude.User, sender string) (list []Message) {
	for _, r := range m.ToolResults() {
		content, more := cut(r.Text())
		more["tool_use_id"], more["is_error"] = r.ToolUseID, r.IsError
		more["parent_tool_use_id"], more["subagent_type"] = m.ParentToolUseID, m.SubagentType
		list = append(list, part(m, sender, System, "tool_result", content, more))
	}
	return list
}

// cut shortens text to MaxToolResult bytes.
func cut(text string) (string, meta) {
	if len(text) <= MaxToolResult {
		return text, meta{}
	}
	end := MaxToolResult
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]), meta{"truncated": true, "size": len(text)}
}

func resultOf(m *claude.Result, sender string) Message {
	more := meta{
		"subtype": "success", "reason": string(m.TerminalReason), "usage": usage(m.Usage), "total_cost_usd": m.TotalCostUSD,
		"num_turns": m.NumTurns, "duration_ms": m.Duration.Milliseconds(),
	}
	kind, content := Chat, m.Result
	if failure, failed := m.Err().(*claude.ResultError); failed {
		more["subtype"] = "error"
		kind, content = System, failure.Text()
		if m.Subtype != claude.ResultSuccess {
			more["reason"] = m.Subtype
		}
		if m.APIErrorStatus != 0 {
			more["api_error_status"] = m.APIErrorStatus
		}
	}
	for _, u := range m.ModelUsage {
		if u.CostBasis == "unknown" { // and so is the sum, whatever it says
			more["cost_unknown"] = true
			delete(more, "total_cost_usd")
		}
	}
	if m.Interrupted() {
		more["interrupted"] = true
	}
	if m.StructuredOutput != nil {
		more["structured_output"] = m.StructuredOutput
	}
	if m.Origin != nil {
		more["origin"] = m.Origin.Kind
	}
	var denials []meta
	for _, d := range m.PermissionDenials {
		denials = append(denials, meta{"tool_name": d.ToolName, "tool_use_id": d.ToolUseID, "tool_input": d.ToolInput})
	}
	if denials != nil {
		more["permission_denials"] = denials
	}
	return part(m, sender, kind, "result", content, more)
}

func usage(u claude.Usage) map[string]int {
	return map[string]int{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens,
		"cache_read_input_tokens": u.CacheReadInputTokens, "cache_creation_input_tokens": u.CacheCreationInputTokens,
	}
}

func rateLimit(info claude.RateLimitInfo) meta {
	more := meta{"status": info.Status, "limit": info.Type}
	if !info.ResetsAt.IsZero() {
		more["resets_at"] = info.ResetsAt.UTC().Format(time.RFC3339)
	}
	if info.Utilization != nil {
		more["utilization"] = *info.Utilization
	}
	return more
}

func unknown(m *claude.Unknown, sender string) Message {
	more := meta{"type": m.Type, "subtype": m.Subtype, "raw": m.Raw()}
	if m.Err != nil {
		more["error"] = m.Err.Error()
	}
	return part(m, sender, System, "unknown", "", more)
}
