package claude

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestResult(t *testing.T) {
	t.Run("item 155: the required fields", func(t *testing.T) {
		m := mustDecode[*Result](t, sample(t, "result"))
		equal(t, "Subtype", m.Subtype, ResultSuccess)
		equal(t, "Result", m.Result, "All tests pass now.")
		equal(t, "Duration", m.Duration, 5120*time.Millisecond)
		equal(t, "APIDuration", m.APIDuration, 4800*time.Millisecond)
		equal(t, "TTFT", m.TTFT, 900*time.Millisecond)
		equal(t, "NumTurns", m.NumTurns, 3)
		equal(t, "TotalCostUSD", m.TotalCostUSD, 0.04127225)
		equal(t, "Usage.OutputTokens", m.Usage.OutputTokens, 431)
		equal(t, "Index", *m.Index, 0)
		equal(t, "Failed", m.Failed(), false)
		equal(t, "Err", m.Err(), nil)
	})
	t.Run("item 155: stop_reason", func(t *testing.T) {
		for value, want := range map[string]string{`"stop_reason":"end_turn",`: "end_turn", `"stop_reason":null,`: "", ``: ""} {
			equal(t, value, mustDecode[*Result](t, `{"type":"result",`+value+`"subtype":"success"}`).StopReason, want)
		}
	})
	t.Run("item 156: terminal_reason", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"success","terminal_reason":"max_turns"}`)
		equal(t, "TerminalReason", m.TerminalReason, TerminalMaxTurns)
		equal(t, "Interrupted", m.Interrupted(), false)
		m = mustDecode[*Result](t, `{"type":"result","subtype":"error_during_execution","terminal_reason":"aborted_tools"}`)
		equal(t, "Interrupted", m.Interrupted(), true)
		equal(t, "absent", mustDecode[*Result](t, `{"type":"result","subtype":"success"}`).TerminalReason, "")
	})
	t.Run("item 157: origin", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"success","origin":{"kind":"human"}}`)
		equal(t, "Human", m.Origin.Human(), true)
	})
	t.Run("item 158: model usage, denials, uuid", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"success","uuid":"u","modelUsage":{"a":{"inputTokens":1,"outputTokens":2,"thinkingTokens":3,"cacheReadInputTokens":4,"cacheCreationInputTokens":5,"cacheCreationEphemeral5mInputTokens":6,"cacheCreationEphemeral1hInputTokens":7,"webSearchRequests":8,"costUSD":9.5,"contextWindow":10,"maxOutputTokens":11,"canonicalModel":"c","provider":"p","costBasis":"list"},"b":{}},"permission_denials":[{"tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"rm"}}]}`)
		equal(t, "UUID", m.UUID, "u")
		equal(t, "model a", m.ModelUsage["a"], ModelUsage{1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10, 11, "c", "p", "list"})
		equal(t, "models", len(m.ModelUsage), 2)
		d := m.PermissionDenials[0]
		equal(t, "denial", d.ToolName+d.ToolUseID+string(d.ToolInput), `Basht{"command":"rm"}`)
		m = mustDecode[*Result](t, `{"type":"result","subtype":"success"}`)
		if m.ModelUsage != nil || m.PermissionDenials != nil || m.UUID != "" || m.Index != nil {
			t.Errorf("absent fields are set: %+v", m)
		}
	})
	t.Run("item 159: deferred tool use", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"success","deferred_tool_use":{"id":"i","name":"n","input":{"a":1}}}`)
		equal(t, "call", m.DeferredToolUse.ID+m.DeferredToolUse.Name+string(m.DeferredToolUse.Input), `in{"a":1}`)
	})
	t.Run("the rest", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"error_during_execution","startup_failure_reason":"config_file_invalid","invalid_config_file":{"path":"p","is_global":true,"backup_searched":true,"backup_path":"b"},"structured_output":[1, 2],"ttft_stream_ms":1,"time_to_request_ms":2,"request_sent_wall_ms":1763000000000,"queued_turn_count":3,"local_command":"/cost","user_message_uuid":"a","user_message_uuids":["a","b"],"resume_reason":"r","fast_mode_state":"on","fast_mode_disabled_reason":"free","credential_expires_at":"2027"}`)
		equal(t, "config", *m.InvalidConfigFile, InvalidConfigFile{"p", true, true, "b"})
		equal(t, "StructuredOutput", string(m.StructuredOutput), "[1, 2]")
		equal(t, "times", m.TTFTStream+m.TimeToRequest, 3*time.Millisecond)
		equal(t, "RequestSent", m.RequestSent.Unix(), 1763000000)
		equal(t, "QueuedTurns", m.QueuedTurns, 3)
		equal(t, "texts", m.StartupFailure+m.LocalCommand+m.UserMessageUUID+m.UserMessageUUIDs[1]+m.ResumeReason+m.FastModeState+m.FastModeDisabledReason+m.CredentialExpiresAt, "config_file_invalid/costabronfree2027")
	})
}

// Items 160, 179 to 181, 236 to 239, 241: the text of a failed turn.
func TestResultErr(t *testing.T) {
	for _, test := range []struct {
		name, fields, want string
		errors             []string
	}{
		{"item 241: several errors", `"subtype":"error_during_execution","is_error":true,"errors":["a","b"]`, "a; b", []string{"a", "b"}},
		{"item 241: no errors", `"subtype":"error_max_turns","is_error":true`, "error_max_turns", nil},
		{"subtype alone is failure", `"subtype":"error_max_budget_usd","is_error":false`, "error_max_budget_usd", nil},
		{"item 236: success that failed", `"subtype":"success","is_error":true,"result":" Invalid API key ","api_error_status":401`, "Invalid API key", nil},
		{"item 237: only a status", `"subtype":"success","is_error":true,"result":"","api_error_status":529`, "API error (HTTP 529)", nil},
		{"nothing", `"subtype":"success","is_error":true,"api_error_status":null`, "unknown error", nil},
		{"item 238: blank errors", `"subtype":"error_during_execution","is_error":true,"errors":["", "  "]`, "error_during_execution", nil},
		{"items 181, 239: errors is a string", `"subtype":"error_during_execution","is_error":true,"errors":"boom"`, "boom", []string{"boom"}},
		{"items 180, 239: errors is a number", `"subtype":"error_during_execution","is_error":true,"errors":7`, "error_during_execution", nil},
		{"item 181: errors of other types", `"subtype":"error_during_execution","is_error":true,"errors":[1,"x",null,{},"y"]`, "x; y", []string{"x", "y"}},
		{"item 180: all of wrong types", `"subtype":"success","is_error":true,"errors":{},"result":[],"api_error_status":"x","terminal_reason":4`, "unknown error", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := mustDecode[*Result](t, `{"type":"result","session_id":"s",`+test.fields+`}`)
			equal(t, "Failed", m.Failed(), true)
			err, ok := errors.AsType[*ResultError](m.Err())
			if !ok {
				t.Fatalf("error is %T", m.Err())
			}
			equal(t, "Text", err.Text(), test.want)
			equal(t, "Error", err.Error(), "claude code returned an error result: "+test.want)
			if !slices.Equal(err.Errors, test.errors) {
				t.Errorf("Errors = %q, want %q", err.Errors, test.errors)
			}
			equal(t, "SessionID", err.SessionID, "s")
			equal(t, "Raw", string(err.Raw), string(m.Raw()))
		})
	}
	t.Run("item 179: fields", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"success","is_error":true,"result":"busy","api_error_status":529,"terminal_reason":"api_error","session_id":"s"}`)
		err, _ := errors.AsType[*ResultError](m.Err())
		equal(t, "Subtype", err.Subtype, "success")
		equal(t, "Result", err.Result, "busy")
		equal(t, "APIErrorStatus", err.APIErrorStatus, 529)
		equal(t, "TerminalReason", err.TerminalReason, TerminalAPIError)
	})
	t.Run("item 182: wrapped and made again", func(t *testing.T) {
		m := mustDecode[*Result](t, `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["a","b"],"terminal_reason":"api_error","session_id":"s"}`)
		err, ok := errors.AsType[*ResultError](fmt.Errorf("a task: %w", &ProcessError{ExitCode: 1, Result: m.Err().(*ResultError)}))
		if !ok {
			t.Fatal("it is lost in what wraps it")
		}
		if again := mustDecode[*Result](t, string(err.Raw)).Err(); !reflect.DeepEqual(again, error(err)) {
			t.Errorf("from its bytes comes %+v, want %+v", again, err)
		}
	})
}

// sample returns the sample line of that name.
func sample(t *testing.T, name string) string {
	t.Helper()
	for _, s := range samples {
		if s.name == name {
			return s.line
		}
	}
	t.Fatalf("no sample %q", name)
	return ""
}
