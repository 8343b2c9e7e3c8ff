package claude

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// samples holds one line of every kind that the CLI prints, written from the
// type definitions of CLI 2.1.325, and the Go type that it decodes to.
var samples = []struct {
	name string
	line string
	want Message
}{
	{"assistant text", `{"type":"assistant","message":{"model":"claude-opus-4-7","id":"msg_01","type":"message","role":"assistant","content":[{"type":"text","text":"I'll look at the failing test first, then at the code it covers."}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":1520,"cache_read_input_tokens":14322,"cache_creation":{"ephemeral_5m_input_tokens":1520,"ephemeral_1h_input_tokens":0},"output_tokens":31,"service_tier":"standard"}},"parent_tool_use_id":null,"session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","uuid":"b6b7b8b9-0000-4000-8000-000000000001"}`, new(Assistant)},
	{"assistant tool", `{"type":"assistant","message":{"model":"claude-opus-4-7","id":"msg_01","type":"message","role":"assistant","content":[{"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command":"go test ./...","description":"Run the tests"}}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":1520,"cache_read_input_tokens":14322,"cache_creation":{"ephemeral_5m_input_tokens":1520,"ephemeral_1h_input_tokens":0},"output_tokens":31,"service_tier":"standard"}},"parent_tool_use_id":null,"session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","uuid":"b6b7b8b9-0000-4000-8000-000000000002"}`, new(Assistant)},
	{"assistant thinking", `{"type":"assistant","message":{"model":"claude-opus-4-7","id":"msg_02","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"The test expects an error.\nThe function returns nil.","signature":"EqQBCkYIBRgCKkBx"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":4,"output_tokens":31}},"parent_tool_use_id":"toolu_parent","subagent_type":"Explore","task_description":"find it","agent_id":"a1","session_id":"s","uuid":"u"}`, new(Assistant)},
	{"user tool result", `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_01","type":"tool_result","content":"ok  \tgithub.com/dfaf701a/nestor/claude\t0.412s\nok  \tgithub.com/dfaf701a/nestor\t0.020s","is_error":false}]},"parent_tool_use_id":null,"session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","uuid":"b6b7b8b9-0000-4000-8000-000000000003","tool_use_result":{"stdout":"ok  \tgithub.com/dfaf701a/nestor/claude\t0.412s\nok  \tgithub.com/dfaf701a/nestor\t0.020s","stderr":"","interrupted":false,"isImage":false}}`, new(User)},
	{"user replay", `{"type":"user","message":{"role":"user","content":"fix the failing test"},"parent_tool_use_id":null,"session_id":"s","uuid":"u","isReplay":true,"origin":{"kind":"human"}}`, new(User)},
	{"stream text", `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look at the failing"}},"session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","parent_tool_use_id":null,"uuid":"b6b7b8b9-0000-4000-8000-000000000004"}`, new(StreamEvent)},
	{"stream json", `{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":\"go"}},"session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","parent_tool_use_id":null,"uuid":"b6b7b8b9-0000-4000-8000-000000000005"}`, new(StreamEvent)},
	{"stream start", `{"type":"stream_event","event":{"type":"message_start","message":{"model":"claude-opus-4-7","id":"msg_01","type":"message","role":"assistant","content":[],"stop_reason":null,"usage":{"input_tokens":4,"output_tokens":1}}},"session_id":"s","parent_tool_use_id":null,"uuid":"u","ttft_ms":812.5}`, new(StreamEvent)},
	{"result", `{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"duration_ms":5120,"duration_api_ms":4800,"ttft_ms":900,"num_turns":3,"result":"All tests pass now.","stop_reason":"end_turn","session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","total_cost_usd":0.04127225,"usage":{"input_tokens":12,"cache_creation_input_tokens":3520,"cache_read_input_tokens":44322,"output_tokens":431,"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0},"service_tier":"standard","cache_creation":{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":3520}},"modelUsage":{"claude-opus-4-7":{"inputTokens":12,"outputTokens":431,"cacheReadInputTokens":44322,"cacheCreationInputTokens":3520,"webSearchRequests":0,"costUSD":0.04127225,"contextWindow":200000,"maxOutputTokens":64000}},"permission_denials":[],"terminal_reason":"completed","fast_mode_state":"off","result_index":0,"uuid":"b6b7b8b9-0000-4000-8000-000000000006"}`, new(Result)},
	{"init", `{"type":"system","subtype":"init","cwd":"/work","session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","tools":["Task","Bash","Read"],"mcp_servers":[{"name":"nestor","status":"connected","source":"sdk"}],"model":"claude-opus-4-7","permissionMode":"default","slash_commands":["clear","compact"],"apiKeySource":"ANTHROPIC_API_KEY","claude_code_version":"2.1.325","output_style":"default","agents":["Explore"],"skills":["pdf"],"terminal_slash_commands":["exit"],"betas":["context-1m-2025-08-07"],"view_mode":"focus","fast_mode_state":"off","fast_mode_disabled_reason":"free","plugins":[{"name":"p","path":"/p","version":"1.0"}],"plugin_errors":[{"plugin":"q","type":"missing","message":"no such file","path":"/q"}],"capabilities":["interrupt_receipt_v1"],"effort":"high","uuid":"u"}`, new(Init)},
	{"status", `{"type":"system","subtype":"status","status":"compacting","permissionMode":"plan","session_id":"s","uuid":"u"}`, new(Status)},
	{"session state", `{"type":"system","subtype":"session_state_changed","state":"idle","session_id":"s","uuid":"u"}`, new(SessionState)},
	{"compact boundary", `{"type":"system","subtype":"compact_boundary","compact_metadata":{"trigger":"auto","pre_tokens":150000,"post_tokens":20000,"duration_ms":1500,"preserved_messages":{"anchor_uuid":"a","uuids":["b","c"]}},"session_id":"s","uuid":"u"}`, new(CompactBoundary)},
	{"commands changed", `{"type":"system","subtype":"commands_changed","commands":[{"name":"usage","description":"d","argumentHint":"<day>","aliases":["cost"],"builtin":true}],"session_id":"s","uuid":"u"}`, new(CommandsChanged)},
	{"files persisted", `{"type":"system","subtype":"files_persisted","files":[{"filename":"a","file_id":"f1"}],"failed":[{"filename":"b","error":"e"}],"processed_at":"2026-11-13T00:00:00Z","session_id":"s","uuid":"u"}`, new(FilesPersisted)},
	{"session writes lost", `{"type":"system","subtype":"session_writes_lost","error_code":"ENOSPC","lost":["transcript"],"transcript_session_ids":["s"],"session_id":"s","uuid":"u"}`, new(SessionWritesLost)},
	{"mirror error", `{"type":"system","subtype":"mirror_error","error":"e","key":{"projectKey":"p","sessionId":"s2","subpath":"x"},"session_id":"s","uuid":"u"}`, new(MirrorError)},
	{"worker shutdown", `{"type":"system","subtype":"worker_shutting_down","reason":"host_exit","session_id":"s","uuid":"u"}`, new(WorkerShutdown)},
	{"api retry", `{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"retry_delay_ms":1200,"error_status":529,"error":"overloaded","no_response":{"waited_ms":1000,"retry_wait_ms":2000},"session_id":"s","uuid":"u"}`, new(APIRetry)},
	{"control progress", `{"type":"system","subtype":"control_request_progress","request_id":"r","status":"api_retry","attempt":1,"max_retries":3,"retry_delay_ms":500,"error_status":null,"session_id":"s","uuid":"u"}`, new(ControlProgress)},
	{"refusal fallback", `{"type":"system","subtype":"model_refusal_fallback","trigger":"refusal","direction":"retry","scope":"session","original_model":"a","fallback_model":"b","request_id":null,"api_refusal_category":"bio","api_refusal_explanation":"x","retracted_message_uuids":["m1"],"refused_user_message_uuid":"um","content":"c","session_id":"s","uuid":"u"}`, new(ModelRefusalFallback)},
	{"refusal no fallback", `{"type":"system","subtype":"model_refusal_no_fallback","original_model":"a","request_id":"r","api_refusal_category":"cyber","api_refusal_explanation":"x","refused_user_message_uuid":"um","content":"c","session_id":"s","uuid":"u"}`, new(ModelRefusalNoFallback)},
	{"model fallback", `{"type":"system","subtype":"model_fallback","trigger":"overloaded","original_model":"a","fallback_model":"b","content":"c","session_id":"s","uuid":"u"}`, new(ModelFallback)},
	{"local command output", `{"type":"system","subtype":"local_command_output","content":"c","session_id":"s","uuid":"u"}`, new(LocalCommandOutput)},
	{"hook started", `{"type":"system","subtype":"hook_started","hook_id":"h","hook_name":"n","hook_event":"PreToolUse","session_id":"s","uuid":"u"}`, new(HookStarted)},
	{"hook progress", `{"type":"system","subtype":"hook_progress","hook_id":"h","hook_name":"n","hook_event":"PreToolUse","stdout":"o","stderr":"e","output":"oe","session_id":"s","uuid":"u"}`, new(HookProgress)},
	{"hook response", `{"type":"system","subtype":"hook_response","hook_id":"h","hook_name":"n","hook_event":"PreToolUse","stdout":"o","stderr":"e","output":"oe","exit_code":0,"outcome":"success","session_id":"s","uuid":"u"}`, new(HookResponse)},
	{"plugin install", `{"type":"system","subtype":"plugin_install","status":"failed","name":"m","error":"e","session_id":"s","uuid":"u"}`, new(PluginInstall)},
	{"task started", `{"type":"system","subtype":"task_started","task_id":"t","run_id":"r","tool_use_id":"toolu_1","description":"d","subagent_type":"Explore","is_backgrounded":false,"spawn_depth":1,"parent_task_id":"p","task_type":"local_agent","workflow_name":"w","prompt":"do","skip_transcript":true,"ambient":true,"session_id":"s","uuid":"u"}`, new(TaskStarted)},
	{"task progress", `{"type":"system","subtype":"task_progress","task_id":"t","run_id":"r","tool_use_id":"toolu_1","description":"Reading the code","subagent_type":"Explore","usage":{"total_tokens":12000,"tool_uses":4,"duration_ms":9000},"last_tool_name":"Grep","summary":"reads","session_id":"6f1c2f0a-63f1-4d1c-9b3e-0a6ad3a9b001","uuid":"u"}`, new(TaskProgress)},
	{"task updated", `{"type":"system","subtype":"task_updated","task_id":"t","run_id":"r","patch":{"status":"killed","description":"d","end_time":1763000000000,"total_paused_ms":10,"error":"e","is_backgrounded":true},"session_id":"s","uuid":"u"}`, new(TaskUpdated)},
	{"task notification", `{"type":"system","subtype":"task_notification","task_id":"t","run_id":"r","tool_use_id":"toolu_1","status":"stopped","reason":"worker_restart","output_file":"/o","summary":"x","usage":{"total_tokens":1,"tool_uses":2,"duration_ms":3},"resource_links":[{"uri":"u","name":"n"}],"skip_transcript":true,"ambient":true,"session_id":"s","uuid":"u"}`, new(TaskNotification)},
	{"background tasks", `{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"t","run_id":"r","task_type":"local_bash","subagent_type":"x","description":"d","parent_task_id":"p","ambient":true}],"session_id":"s","uuid":"u"}`, new(BackgroundTasks)},
	{"thinking tokens", `{"type":"system","subtype":"thinking_tokens","estimated_tokens":300,"estimated_tokens_delta":50,"user_message_uuid":"um","session_id":"s","uuid":"u"}`, new(ThinkingTokens)},
	{"notification", `{"type":"system","subtype":"notification","key":"k","text":"t","priority":"high","color":"red","timeout_ms":3000,"session_id":"s","uuid":"u"}`, new(Notification)},
	{"memory recall", `{"type":"system","subtype":"memory_recall","mode":"select","memories":[{"path":"/m","scope":"personal","content":"c"}],"session_id":"s","uuid":"u"}`, new(MemoryRecall)},
	{"elicitation complete", `{"type":"system","subtype":"elicitation_complete","mcp_server_name":"m","elicitation_id":"e","session_id":"s","uuid":"u"}`, new(ElicitationComplete)},
	{"permission denied", `{"type":"system","subtype":"permission_denied","tool_name":"Bash","tool_use_id":"toolu_1","agent_id":"a","decision_reason_type":"rule","decision_reason":"r","message":"m","session_id":"s","uuid":"u"}`, new(PermissionDenied)},
	{"informational", `{"type":"system","subtype":"informational","content":"c","level":"warning","tool_use_id":"toolu_1","prevent_continuation":true,"tag":"t","session_id":"s","uuid":"u"}`, new(Informational)},
	{"rate limit", `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1763000000,"rateLimitType":"five_hour","utilization":0,"overageStatus":"rejected","overageResetsAt":1763000001,"overageDisabledReason":"out_of_credits","isUsingOverage":true,"overageInUse":true,"overageEnabled":true,"surpassedThreshold":0.75,"limitScope":"group_pool","errorCode":"credits_required","canUserPurchaseCredits":true,"hasChargeableSavedPaymentMethod":true},"session_id":"s","uuid":"u"}`, new(RateLimit)},
	{"conversation reset", `{"type":"conversation_reset","new_conversation_id":"n","trigger":"clear","user_message_uuid":"um","timestamp":"2026-11-13T00:00:00Z","session_id":"s","uuid":"u"}`, new(ConversationReset)},
	{"tool progress", `{"type":"tool_progress","tool_use_id":"toolu_1","tool_name":"Bash","parent_tool_use_id":"toolu_0","elapsed_time_seconds":30.5,"task_id":"t","heartbeat":true,"subagent_type":"x","subagent_retry":{"agent_id":"a","attempt":1,"max_retries":2,"retry_delay_ms":3,"error_status":429,"error_category":"rate_limit"},"session_id":"s","uuid":"u"}`, new(ToolProgress)},
	{"tool use summary", `{"type":"tool_use_summary","summary":"x","preceding_tool_use_ids":["a","b"],"session_id":"s","uuid":"u"}`, new(ToolUseSummary)},
	{"auth status", `{"type":"auth_status","isAuthenticating":true,"output":["a"],"error":"e","session_id":"s","uuid":"u"}`, new(AuthStatus)},
	{"prompt suggestion", `{"type":"prompt_suggestion","suggestion":"commit it","session_id":"s","uuid":"u"}`, new(PromptSuggestion)},
	{"active goal", `{"type":"active_goal","value":{"condition":"tests pass","iterations":2,"set_at":1763000000000,"tokens_at_start":5,"last_reason":"no"},"session_id":"s","uuid":"u"}`, new(ActiveGoal)},
	{"unknown type", `{"type":"command_lifecycle","state":"queued","session_id":"s","uuid":"u"}`, new(Unknown)},
	{"unknown subtype", `{"type":"system","subtype":"session_title_changed","title":"t","session_id":"s","uuid":"u"}`, new(Unknown)},
	{"keep alive", `{"type":"keep_alive"}`, new(Unknown)},
	{"control request", `{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool"}}`, new(Unknown)},
}

// recordedLines returns every line that the CLI said in a recorded
// conversation.
func recordedLines(t testing.TB) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if said, ok := strings.CutPrefix(line, "< {"); ok {
				lines = append(lines, "{"+strings.TrimRight(said, "\n"))
			}
		}
	}
	if len(lines) < 500 {
		t.Fatalf("only %d lines are recorded in %d files", len(lines), len(files))
	}
	return lines
}
