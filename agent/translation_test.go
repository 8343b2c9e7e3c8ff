package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// Each row of the table of messages, on what the CLI said when it was recorded.
func TestTranslation(t *testing.T) {
	for _, test := range []struct {
		row        string
		transcript string
		sdkType    string
		nth        int // of that type in the transcript
		kind       agent.Kind
		content    string // what it begins with
		meta       string // JSON of the metadata, which may hold more
	}{
		{"assistant text", "text", "assistant_text", 0, agent.Chat, "You said: ",
			`{"session_id":"00000000-0000-4000-8000-000000000002"}`},
		{"tool use", "write-file", "tool_use", 0, agent.System, "Using tool: Write",
			`{"tool_name":"Write","tool_use_id":"toolu_01","tool_input":{"file_path":"$WORK/out.txt","content":"hello"}}`},
		{"tool result", "subagent", "tool_result", 0, agent.System, "1\tsomething",
			`{"tool_use_id":"toolu_02","is_error":false,"parent_tool_use_id":"toolu_01","subagent_type":"general-purpose"}`},
		{"tool result that is an error", "tool-error", "tool_result", 0, agent.System, "", `{"is_error":true}`},
		{"result", "subagent", "result", 0, agent.Chat, "it said:",
			`{"subtype":"success","reason":"completed","total_cost_usd":0.02,"session_id":"00000000-0000-4000-8000-000000000002",
			"usage":{"input_tokens":2000,"output_tokens":100,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}}`},
		{"result of an API error", "api-error", "result", 0, agent.System, "API Error: 400 this prompt cannot be",
			`{"subtype":"error","api_error_status":400,"reason":"api_error"}`},
		{"result of a limit", "max-turns", "result", 0, agent.System, "", `{"subtype":"error","reason":"error_max_turns"}`},
		{"result of an interrupt", "interrupt", "result", 0, agent.System, "", `{"subtype":"error","interrupted":true}`},
		{"result with structured output", "structured", "result", 0, agent.Chat, "", `{"structured_output":{"answer":42}}`},
		{"result with denials", "permission-nobody", "result", 0, agent.Chat, "",
			`{"subtype":"success","permission_denials":[{"tool_name":"Bash","tool_use_id":"toolu_01","tool_input":{"command":"touch $WORK/made","description":"make a file"}}]}`},
		{"result of background work", "subagent-background", "result", 1, agent.Chat, "so I heard", `{"origin":"task-notification"}`},
		{"thinking", "thinking", "thinking", 0, agent.System, "let me think about it", `{}`},
		{"partial text", "partial", "partial_text", 0, agent.System, "a text tha", `{}`},
		{"partial thinking", "thinking", "partial_thinking", 0, agent.System, "let me think", `{}`},
		{"what a subagent says", "subagent", "assistant_text", 1, agent.Chat, "I saw it.",
			`{"parent_tool_use_id":"toolu_01","subagent_type":"general-purpose"}`},
		{"what a subagent does", "subagent", "tool_use", 1, agent.System, "Using tool: Read", `{"parent_tool_use_id":"toolu_01"}`},
		{"task that starts", "subagent-background", "task_started", 0, agent.System, "look", `{"task_id":"task-1","task_type":"local_agent","tool_use_id":"toolu_01"}`},
		{"task that ended", "subagent-background", "task_notification", 0, agent.System, "I saw it.", `{"task_id":"task-1","status":"completed","tool_use_id":"toolu_01"}`},
		{"permission denied", "permission-nobody", "permission_denied", 0, agent.System, "", `{"tool_use_id":"toolu_01"}`},
		{"retry", "api-auth", "api_retry", 0, agent.System, "API error, attempt 1 of 1", `{"attempt":1,"max_retries":1,"api_error_status":401,"error":"authentication_failed"}`},
		{"text of a failed API call", "api-auth", "assistant_text", 0, agent.Chat, "Invalid API key", `{"error":"authentication_failed"}`},
		{"init", "text", "init", 0, agent.System, "", `{"model":"claude-opus-5-5","session_id":"00000000-0000-4000-8000-000000000002","version":"2.1.325"}`},
		{"refusal", "refusal", "model_refusal", 0, agent.System, "", `{}`},
		{"compaction", "compact", "compacted", 0, agent.System, "", `{"trigger":"manual"}`},
		{"reset", "clear", "conversation_reset", 0, agent.System, "", `{"trigger":"clear"}`},
	} {
		t.Run(test.row, func(t *testing.T) {
			list := of(translated(t, test.transcript), test.sdkType)
			if len(list) <= test.nth {
				t.Fatalf("%s has %d of it", test.transcript, len(list))
			}
			m := list[test.nth]
			if m.Kind != test.kind || !strings.HasPrefix(m.Content, test.content) {
				t.Errorf("it became %s %q", m.Kind, m.Content)
			}
			contains(t, m.Metadata, test.meta)
			if m.Sender != "ada" || !reflect.DeepEqual(m.Recipients, []string{agent.Everybody}) || m.ID == "" || time.Since(m.Time) > time.Minute || m.Time.Location() != time.UTC {
				t.Errorf("it is no whole message: %+v", m)
			}
		})
	}
}

// Rows that no recording has, since the CLI that is recorded has no subscription
// and no other version.
func TestTranslationOfRareMessages(t *testing.T) {
	for _, test := range []struct {
		line, sdkType, content, meta string
	}{
		{`{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"allowed_warning","rateLimitType":"five_hour","resetsAt":1700000000,"utilization":0.9}}`,
			"rate_limit", "Rate limit: allowed_warning", `{"status":"allowed_warning","limit":"five_hour","resets_at":"2023-11-14T22:13:20Z","utilization":0.9}`},
		{`{"type":"system","subtype":"task_updated","task_id":"t","patch":{"status":"killed","error":"stopped"}}`, "task_killed", "stopped", `{"task_id":"t"}`},
		{`{"type":"from_the_future","subtype":"x","n":[1]}`, "unknown", "", `{"type":"from_the_future","subtype":"x","raw":{"type":"from_the_future","subtype":"x","n":[1]}}`},
		{`{"type":"assistant","message":{"content":[{"type":"hologram","n":1}]}}`, "unknown", "", `{"type":"hologram","raw":{"type":"hologram","n":1}}`},
		{`{"type":"assistant","message":{"content":[{"type":"server_tool_use","id":"a","name":"web_search","input":{"q":"x"}}]}}`, "tool_use", "Using tool: web_search", `{"tool_name":"web_search","tool_input":{"q":"x"},"tool_use_id":"a"}`},
		{`{"type":"assistant","message":{"content":[{"type":"web_search_tool_result","tool_use_id":"a","content":[{"url":"u"}]}]}}`, "tool_result", `[{"url":"u"}]`, `{"tool_use_id":"a"}`},
		{`{"type":"assistant","message":{"content":[{"type":"mcp_tool_use","id":"a","name":"add","server_name":"calc","input":{}}]}}`, "tool_use", "Using tool: add", `{"tool_name":"add","server_name":"calc"}`},
		{`{"type":"assistant","message":{"content":[{"type":"mcp_tool_result","tool_use_id":"a","is_error":true,"content":"no"}]}}`, "tool_result", "no", `{"tool_use_id":"a","is_error":true}`},
		{`{"type":"system","subtype":"model_refusal_fallback","original_model":"a","fallback_model":"b","trigger":"refusal","retracted_message_uuids":["u"],"content":"now b"}`, "model_fallback", "now b", `{"from":"a","to":"b","retracted":["u"]}`},
		{`{"type":"system","subtype":"notification","text":"look","priority":"high"}`, "notice", "look", `{"priority":"high"}`},
		{`{"type":"system","subtype":"informational","content":"mind","level":"warning"}`, "notice", "mind", `{"level":"warning"}`},
		{`{"type":"system","subtype":"local_command_output","content":"out"}`, "notice", "out", `{}`},
		{`{"type":"auth_status","isAuthenticating":false,"error":"expired"}`, "notice", "expired", `{"level":"warning"}`},
		{`{"type":"system","subtype":"session_writes_lost","error_code":"ENOSPC","lost":["transcript"]}`, "session_writes_lost", "the disk is full: ENOSPC", `{"lost":["transcript"]}`},
		{`{"type":"system","subtype":"model_fallback","original_model":"a","fallback_model":"b","trigger":"overloaded","content":"now b"}`, "model_fallback", "now b", `{"from":"a","to":"b","trigger":"overloaded"}`},
	} {
		t.Run(test.sdkType, func(t *testing.T) {
			list := agent.Translate(decode(t, test.line), "ada")
			if len(list) != 1 || list[0].Metadata["sdk_type"] != test.sdkType || list[0].Content != test.content || list[0].Kind != agent.System {
				t.Fatalf("it became %+v", list)
			}
			contains(t, list[0].Metadata, test.meta)
		})
	}
}

// What is internal says nothing, and what the CLI was seen to send is known.
func TestTranslationSkips(t *testing.T) {
	for _, line := range []string{
		`{"type":"system","subtype":"session_state_changed","state":"idle"}`,
		`{"type":"system","subtype":"status","status":"requesting"}`,
		`{"type":"auth_status","isAuthenticating":true}`,
		`{"type":"system","subtype":"background_tasks_changed","tasks":[]}`,
		`{"type":"system","subtype":"task_updated","task_id":"t","patch":{"status":"completed"}}`,
		`{"type":"system","subtype":"task_started","task_id":"t","ambient":true}`,
		`{"type":"system","subtype":"thinking_tokens","estimated_tokens":3}`,
		`{"type":"command_lifecycle","command_uuid":"u","state":"completed"}`,
		`{"type":"user","message":{"content":"look closely"},"parent_tool_use_id":"t"}`,
		`{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"","signature":"x"},{"type":"redacted_thinking","data":"x"}]}}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}}`,
	} {
		if list := agent.Translate(decode(t, line), "ada"); list != nil {
			t.Errorf("%s became %+v", line, list)
		}
	}
}

// Every recorded message is translated to what can be written as JSON, and no
// more than what this version does not know is passed on raw.
func TestTranslationOfAllRecordings(t *testing.T) {
	files, err := filepath.Glob("../claude/testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no recordings: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		for _, m := range translated(t, name) {
			if _, err := json.Marshal(m); err != nil {
				t.Errorf("%s: %+v: %v", name, m, err)
			}
			if m.Metadata["sdk_type"] == "unknown" && m.Metadata["subtype"] != "session_title_changed" {
				t.Errorf("%s: not known: %s", name, m.Metadata["raw"])
			}
		}
	}
}

func TestLongToolResultIsCutAtARune(t *testing.T) {
	for _, test := range []struct {
		text string
		want int // bytes that are kept
	}{
		{strings.Repeat("a", agent.MaxToolResult), agent.MaxToolResult},
		{strings.Repeat("a", agent.MaxToolResult+1), agent.MaxToolResult},
		{strings.Repeat("a", agent.MaxToolResult-1) + "é", agent.MaxToolResult - 1},
		{strings.Repeat("€", agent.MaxToolResult), agent.MaxToolResult / 3 * 3},
	} {
		content, _ := json.Marshal(test.text)
		line := fmt.Sprintf(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":%s}]}}`, content)
		m := agent.Translate(decode(t, line), "ada")[0]
		if len(m.Content) != test.want || !utf8.ValidString(m.Content) {
			t.Errorf("of %d bytes %d are left, want %d", len(test.text), len(m.Content), test.want)
		}
		if cut := len(test.text) > agent.MaxToolResult; cut != (m.Metadata["truncated"] == true) || cut && m.Metadata["size"] != len(test.text) {
			t.Errorf("of %d bytes the metadata says %v", len(test.text), m.Metadata)
		}
	}
}

func decode(t *testing.T, line string) claude.Message {
	t.Helper()
	m, err := claude.Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// contains checks that the metadata, as JSON, has all of want.
func contains(t *testing.T, metadata map[string]any, want string) {
	t.Helper()
	data, err := json.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	for k, v := range wanted {
		if !reflect.DeepEqual(got[k], v) {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
}

// of returns the messages of one type.
func of(messages []agent.Message, sdkType string) (list []agent.Message) {
	for _, m := range messages {
		if m.Metadata["sdk_type"] == sdkType {
			list = append(list, m)
		}
	}
	return list
}

// recorded returns the messages of the CLI in a recorded conversation.
func recorded(t testing.TB, name string) (list []claude.Message) {
	t.Helper()
	file := filepath.Join("..", "claude", "testdata", "transcripts", name+".txtar")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	transcript, err := claudetest.ParseTranscript(file, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range transcript.Lines {
		if l.From != claudetest.Claude {
			continue
		}
		m, err := claude.Decode(l.JSON)
		if err != nil {
			t.Fatal(err)
		}
		switch m.Head().Type {
		case "control_request", "control_response", "control_cancel_request", "keep_alive", "transcript_mirror":
			continue // package claude keeps these to itself
		}
		list = append(list, m)
	}
	return list
}

// translated returns what the messages of a recorded conversation become.
func translated(t testing.TB, name string) (list []agent.Message) {
	t.Helper()
	for _, m := range recorded(t, name) {
		list = append(list, agent.Translate(m, "ada")...)
	}
	return list
}
