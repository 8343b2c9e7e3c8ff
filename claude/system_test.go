package claude

import (
	"testing"
	"time"
)

func TestTasks(t *testing.T) {
	t.Run("item 148: started without optional fields", func(t *testing.T) {
		m := mustDecode[*TaskStarted](t, `{"type":"system","subtype":"task_started","task_id":"t","description":"d"}`)
		equal(t, "TaskID", m.TaskID, "t")
		equal(t, "ToolUseID", m.ToolUseID, "")
		equal(t, "IsBackgrounded", m.IsBackgrounded, nil)
		equal(t, "not in the background", *mustDecode[*TaskStarted](t, sample(t, "task started")).IsBackgrounded, false)
	})
	t.Run("item 149: progress", func(t *testing.T) {
		m := mustDecode[*TaskProgress](t, sample(t, "task progress"))
		equal(t, "Usage", m.Usage, TaskUsage{TotalTokens: 12000, ToolUses: 4, Duration: 9 * time.Second})
		equal(t, "LastToolName", m.LastToolName, "Grep")
	})
	t.Run("item 150: notification", func(t *testing.T) {
		m := mustDecode[*TaskNotification](t, `{"type":"system","subtype":"task_notification","task_id":"t","status":"completed","output_file":"/o","summary":"x"}`)
		equal(t, "Usage", m.Usage, nil)
		equal(t, "terminal", m.Status.Terminal(), true)
		m = mustDecode[*TaskNotification](t, sample(t, "task notification"))
		equal(t, "Usage", *m.Usage, TaskUsage{1, 2, 3 * time.Millisecond})
		equal(t, "terminal", m.Status.Terminal(), true)
	})
	t.Run("item 151: which states are terminal", func(t *testing.T) {
		for status, want := range map[string]bool{
			"pending": false, "running": false, "paused": false, "of_tomorrow": false,
			"completed": true, "failed": true, "killed": true,
		} {
			m := mustDecode[*TaskUpdated](t, `{"type":"system","subtype":"task_updated","task_id":"t","patch":{"status":"`+status+`"}}`)
			equal(t, status, m.Patch.Status.Terminal(), want)
		}
	})
	t.Run("item 152: update without a usable patch", func(t *testing.T) {
		for _, patch := range []string{``, `,"patch":null`, `,"patch":"x"`, `,"patch":[1]`, `,"patch":{}`, `,"patch":{"status":3}`} {
			m := mustDecode[*TaskUpdated](t, `{"type":"system","subtype":"task_updated","task_id":"t"`+patch+`}`)
			equal(t, "TaskID", m.TaskID, "t")
			equal(t, "Patch", m.Patch, TaskPatch{})
		}
	})
}

func TestHookMessages(t *testing.T) {
	t.Run("item 167: minimal", func(t *testing.T) {
		m := mustDecode[*HookResponse](t, `{"type":"system","subtype":"hook_response","hook_event":"Stop"}`)
		equal(t, "HookEvent", m.HookEvent, "Stop")
		equal(t, "ExitCode", m.ExitCode, nil)
		equal(t, "exit zero", *mustDecode[*HookResponse](t, sample(t, "hook response")).ExitCode, 0)
		equal(t, "started", mustDecode[*HookStarted](t, `{"type":"system","subtype":"hook_started","hook_event":"Stop"}`).HookEvent, "Stop")
	})
}

func TestRateLimit(t *testing.T) {
	t.Run("item 161: minimal", func(t *testing.T) {
		m := mustDecode[*RateLimit](t, `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}`)
		equal(t, "Info", m.Info, RateLimitInfo{Status: "allowed"})
	})
	t.Run("item 161: warning", func(t *testing.T) {
		m := mustDecode[*RateLimit](t, `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","utilization":0.91}}`)
		equal(t, "Utilization", *m.Info.Utilization, 0.91)
		equal(t, "ResetsAt", m.Info.ResetsAt.IsZero(), true)
	})
	t.Run("item 161: rejected with overage, unknown keys in raw", func(t *testing.T) {
		m := mustDecode[*RateLimit](t, sample(t, "rate limit"))
		equal(t, "Utilization of zero", *m.Info.Utilization, 0)
		equal(t, "ResetsAt", m.Info.ResetsAt.Unix(), 1763000000)
		equal(t, "OverageDisabledReason", m.Info.OverageDisabledReason, "out_of_credits")
	})
}

func TestInit(t *testing.T) {
	m := mustDecode[*Init](t, sample(t, "init"))
	equal(t, "Version", m.Version, "2.1.325")
	equal(t, "texts", m.CWD+m.Model+m.PermissionMode+m.APIKeySource+m.OutputStyle+m.Effort, "/workclaude-opus-4-7defaultANTHROPIC_API_KEYdefaulthigh")
	equal(t, "server", m.MCPServers[0], InitMCPServer{"nestor", "connected", "sdk"})
	equal(t, "plugin", m.Plugins[0], InitPlugin{"p", "/p", "1.0"})
	equal(t, "plugin error", m.PluginErrors[0], PluginError{"q", "missing", "no such file", "/q"})
	equal(t, "lists", m.Tools[0]+m.SlashCommands[1]+m.Agents[0]+m.Capabilities[0], "TaskcompactExploreinterrupt_receipt_v1")
	equal(t, "no effort", mustDecode[*Init](t, `{"type":"system","subtype":"init","effort":null}`).Effort, "")
}

func TestActiveGoalCleared(t *testing.T) {
	equal(t, "Goal", mustDecode[*ActiveGoal](t, `{"type":"active_goal","value":null}`).Goal, nil)
}
