package claude

import (
	"fmt"
	"strings"
	"testing"
)

// What a CLI that does not tell its state has left to do, after each line.
func TestLedger(t *testing.T) {
	const (
		result = `{"type":"result","subtype":"success","result":"x"}`
		woken  = `{"type":"result","subtype":"success","result":"x","origin":{"kind":"task-notification"}}`
		agent  = `{"type":"system","subtype":"task_started","task_id":"a","task_type":"local_agent"}`
	)
	started := func(kind string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"task_started","task_id":"a","task_type":%q}`, kind)
	}
	updated := func(status string) string {
		return fmt.Sprintf(`{"type":"system","subtype":"task_updated","task_id":"a","patch":{"status":%q}}`, status)
	}
	for _, tc := range []struct {
		name  string
		lines []string
		busy  string // after each line, - or b
	}{
		{"a plain turn", []string{result}, "-"},
		{"item 215: an agent that ends by notification", []string{agent, result, `{"type":"system","subtype":"task_notification","task_id":"a","status":"completed"}`, woken}, "bbb-"},
		{"item 215: an agent that ends by update", []string{agent, result, updated("completed"), woken}, "bbb-"},
		{"item 215: an agent that ends within the turn", []string{agent, updated("failed"), result}, "bb-"},
		{"item 216: only an end is the end", []string{agent, result, updated("pending"), updated("running"), updated("paused"), updated("killed"), woken}, "bbbbbb-"},
		{"item 216: a task that nobody knows", []string{agent, result, `{"type":"system","subtype":"task_notification","task_id":"b","status":"completed"}`}, "bbb"},
		{"item 217: a shell", []string{started("local_bash"), result, updated("completed")}, "b--"},
		{"item 217: a monitor", []string{started("monitor"), result}, "b-"},
		{"item 218: a list of tasks adds none", []string{result, `{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"a","task_type":"local_agent"}]}`}, "--"},
		{"item 218: and removes none", []string{agent, result, `{"type":"system","subtype":"background_tasks_changed","tasks":[]}`}, "bbb"},
		{"item 410: a CLI that tells its state knows better", []string{agent, result, `{"type":"system","subtype":"session_state_changed","state":"idle"}`, updated("completed")}, "bb--"},
		{"item 410: also that it is busy", []string{`{"type":"system","subtype":"session_state_changed","state":"running"}`, result, `{"type":"system","subtype":"session_state_changed","state":"requires_action"}`, `{"type":"system","subtype":"session_state_changed","state":"idle"}`}, "bbb-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l ledger
			l.send("p")
			var got strings.Builder
			for _, line := range tc.lines {
				l.observe(mustDecode[Message](t, line))
				if l.busy() {
					got.WriteString("b")
				} else {
					got.WriteString("-")
				}
			}
			if got.String() != tc.busy {
				t.Errorf("busy %s, want %s", got.String(), tc.busy)
			}
		})
	}
}
