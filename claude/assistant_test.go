package claude

import "testing"

func TestAssistant(t *testing.T) {
	t.Run("item 141: text and tool use", func(t *testing.T) {
		m := mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[{"type":"text","text":"Let me "},{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"/a b"}},{"type":"text","text":"see."},{"type":"tool_use","id":"t2","name":"Glob"}]}}`)
		equal(t, "Text", m.Text(), "Let me see.")
		uses := m.ToolUses()
		equal(t, "calls", len(uses), 2)
		equal(t, "first", uses[0].ID+" "+uses[0].Name+" "+string(uses[0].Input), `t1 Read {"file_path":"/a b"}`)
		equal(t, "second", uses[1].ID+" "+uses[1].Name+" "+string(uses[1].Input), `t2 Glob `)
	})
	t.Run("item 141: thinking, with and without signature", func(t *testing.T) {
		m := mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"thinking","thinking":"so"},{"type":"redacted_thinking","data":"xx"}]}}`)
		equal(t, "first", *m.Content[0].(*Thinking), Thinking{"hm", "sig"})
		equal(t, "second", *m.Content[1].(*Thinking), Thinking{"so", ""})
		equal(t, "third", *m.Content[2].(*RedactedThinking), RedactedThinking{"xx"})
		equal(t, "Mismatch", m.Mismatch, "")
	})
	t.Run("item 142: server tools", func(t *testing.T) {
		m := mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[{"type":"server_tool_use","id":"s1","name":"advisor","input":{}},{"type":"advisor_tool_result","tool_use_id":"s1","content":{"type":"advisor_result","text":"do"}},{"type":"advisor_tool_result","tool_use_id":"s2","content":{"type":"advisor_redacted_result","encrypted_content":"blob"}},{"type":"web_search_tool_result","tool_use_id":"s3","content":[]}]}}`)
		use := m.Content[0].(*ServerToolUse)
		equal(t, "use", use.ID+use.Name+string(use.Input), "s1advisor{}")
		result := m.Content[1].(*ServerToolResult)
		equal(t, "result", result.Type+result.ToolUseID+string(result.Content), `advisor_tool_results1{"type":"advisor_result","text":"do"}`)
		equal(t, "redacted", string(m.Content[2].(*ServerToolResult).Content), `{"type":"advisor_redacted_result","encrypted_content":"blob"}`)
		equal(t, "search", m.Content[3].(*ServerToolResult).Type, "web_search_tool_result")
		equal(t, "host's calls", len(m.ToolUses()), 0)
	})
	t.Run("MCP tools and unknown blocks", func(t *testing.T) {
		m := mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[{"type":"mcp_tool_use","id":"m1","name":"n","server_name":"srv","input":1},{"type":"mcp_tool_result","tool_use_id":"m1","content":[{"type":"text","text":"ok"}],"is_error":true},{ "type" : "compaction", "content":"x"},{"no":"type"}]}}`)
		equal(t, "server", m.Content[0].(*MCPToolUse).ServerName, "srv")
		result := m.Content[1].(*MCPToolResult)
		equal(t, "result", result.Content[0].(*Text).Text, "ok")
		equal(t, "IsError", result.IsError, true)
		unknown := m.Content[2].(*UnknownBlock)
		equal(t, "type", unknown.Type, "compaction")
		equal(t, "raw", string(unknown.Raw), `{ "type" : "compaction", "content":"x"}`)
		equal(t, "raw without type", string(m.Content[3].(*UnknownBlock).Raw), `{"no":"type"}`)
		equal(t, "Mismatch", m.Mismatch, "")
	})
	t.Run("item 143: usage", func(t *testing.T) {
		m := mustDecode[*Assistant](t, samples[0].line)
		equal(t, "Usage", m.Usage, Usage{InputTokens: 4, OutputTokens: 31, CacheReadInputTokens: 14322, CacheCreationInputTokens: 1520, CacheCreation5m: 1520, ServiceTier: "standard"})
		m = mustDecode[*Assistant](t, `{"type":"assistant","message":{"usage":{"output_tokens":9,"output_tokens_details":{"thinking_tokens":5},"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2},"cache_creation":{"ephemeral_1h_input_tokens":3},"speed":"fast","iterations":[{"x":1}]}}}`)
		equal(t, "Usage", m.Usage, Usage{OutputTokens: 9, ThinkingTokens: 5, WebSearchRequests: 1, WebFetchRequests: 2, CacheCreation1h: 3, Speed: "fast"})
		m = mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[]}}`)
		equal(t, "absent", m.Usage, Usage{})
	})
	t.Run("item 144: ids and stop reason", func(t *testing.T) {
		m := mustDecode[*Assistant](t, `{"type":"assistant","uuid":"u","session_id":"s","message":{"id":"msg_1","model":"m","stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":null},"content":[]},"user_message_uuid":"a","user_message_uuids":["a","b"],"supersedes":["x"],"aborted":true,"timestamp":"2026","resume_reason":"host_draining","resumed_from_incomplete_thinking":true,"context_usage":{"a":1},"usage_report":{"b":2}}`)
		equal(t, "ids", m.UUID+m.SessionID+m.MessageID+m.Model+m.StopReason, "usmsg_1mrefusal")
		equal(t, "StopDetails", *m.StopDetails, StopDetails{Type: "refusal", Category: "bio"})
		equal(t, "UserMessageUUID", m.UserMessageUUID, "a")
		equal(t, "UserMessageUUIDs", m.UserMessageUUIDs[1], "b")
		equal(t, "Supersedes", m.Supersedes[0], "x")
		equal(t, "flags", m.Aborted && m.ResumedFromIncompleteThinking, true)
		equal(t, "rest", m.Timestamp+m.ResumeReason+string(m.ContextUsage())+string(m.UsageReport()), `2026host_draining{"a":1}{"b":2}`)
		m = mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":[]}}`)
		equal(t, "absent", m.UUID+m.SessionID+m.MessageID+m.StopReason, "")
	})
	t.Run("item 145: inside a subagent", func(t *testing.T) {
		m := mustDecode[*Assistant](t, samples[2].line)
		equal(t, "parent", m.ParentToolUseID, "toolu_parent")
		equal(t, "agent", m.AgentID+m.SubagentType+m.TaskDescription, "a1Explorefind it")
	})
	t.Run("item 146: error", func(t *testing.T) {
		equal(t, "absent", mustDecode[*Assistant](t, samples[0].line).Error, "")
		for _, kind := range []AssistantError{ErrorAuthentication, ErrorUnknown, ErrorRateLimit, "of_tomorrow"} {
			m := mustDecode[*Assistant](t, `{"type":"assistant","error":"`+string(kind)+`","request_id":"req_1","message":{"content":[{"type":"text","text":"Invalid API key"}]}}`)
			equal(t, "Error", m.Error, kind)
			equal(t, "RequestID", m.RequestID, "req_1")
			equal(t, "Text", m.Text(), "Invalid API key")
		}
	})
	t.Run("item 166: string content is one text", func(t *testing.T) {
		equal(t, "Text", mustDecode[*Assistant](t, `{"type":"assistant","message":{"content":"hi"}}`).Text(), "hi")
	})
}
