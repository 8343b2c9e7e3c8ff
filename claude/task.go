package claude

import (
	"encoding/json"
	"time"
)

// TaskStatus is the state of a background or subagent task.
type TaskStatus string

// The states of a task. [TaskUpdated] and [TaskNotification] share them, but
// the first says killed where the second says stopped.
const (
	TaskPending   TaskStatus = "pending"
	TaskRunning   TaskStatus = "running"
	TaskPaused    TaskStatus = "paused"
	TaskCompleted TaskStatus = "completed"
	TaskFailed    TaskStatus = "failed"
	TaskKilled    TaskStatus = "killed"
	TaskStopped   TaskStatus = "stopped"
)

// Terminal tells whether the task is over. Unknown states are not.
func (s TaskStatus) Terminal() bool {
	switch s {
	case TaskCompleted, TaskFailed, TaskKilled, TaskStopped:
		return true
	}
	return false
}

// TaskUsage is what a task used so far.
type TaskUsage struct {
	TotalTokens int
	ToolUses    int
	Duration    time.Duration
}

// TaskStarted says that a task began: a subagent, a shell command, a
// workflow, an MCP task.
type TaskStarted struct {
	Header
	TaskID         string
	RunID          string // differs when the same task is resumed; empty from older CLIs
	ToolUseID      string // call that started it; empty if none
	Description    string
	SubagentType   string // empty if it is no subagent
	TaskType       string // "local_agent", "local_bash", "local_workflow", "mcp_task", …
	IsBackgrounded *bool  // whether it runs in the background; nil if not told
	SpawnDepth     int    // 1 for a subagent of the main loop; zero if it is no subagent
	ParentTaskID   string // subagent that started it; empty if the main loop did
	WorkflowName   string
	Prompt         string
	SkipTranscript bool // housekeeping: not for the transcript
	Ambient        bool // not activity: leave it out of "is busy"
}

// TaskProgress says how far a task is.
type TaskProgress struct {
	Header
	TaskID       string
	RunID        string
	ToolUseID    string
	Description  string
	SubagentType string
	Usage        TaskUsage
	LastToolName string // empty if it used none yet
	Summary      string // one line about what it does; empty if not told
}

// TaskUpdated says what changed of a task. The end of a task may come only
// this way: see [TaskStatus.Terminal].
type TaskUpdated struct {
	Header
	TaskID string
	RunID  string
	Patch  TaskPatch // zero if the CLI sent none
}

// TaskPatch holds what changed of a task; zero fields did not.
type TaskPatch struct {
	Status         TaskStatus
	Description    string
	EndTime        time.Time
	TotalPaused    time.Duration
	Error          string
	IsBackgrounded *bool
}

// TaskNotification says that a task ended. A killed task may end without one.
type TaskNotification struct {
	Header
	TaskID         string
	RunID          string
	ToolUseID      string
	Status         TaskStatus // completed, failed or stopped
	Reason         string     // "worker_restart" if that ended it, otherwise empty
	OutputFile     string
	Summary        string
	Usage          *TaskUsage      // nil if not told
	ResourceLinks  json.RawMessage // files that an MCP task returned; nil if none
	SkipTranscript bool
	Ambient        bool
}

// BackgroundTasks lists every live background task: it replaces what an
// earlier one listed. CLI 2.1.203 and later send it.
type BackgroundTasks struct {
	Header
	Tasks []BackgroundTask
}

// BackgroundTask is one live background task.
type BackgroundTask struct {
	TaskID       string
	RunID        string
	TaskType     string
	SubagentType string // empty if it is no subagent
	Description  string
	ParentTaskID string // subagent that started it; empty if the main loop did
	Ambient      bool   // not activity: leave it out of "is busy"
}

// ToolProgress is the heartbeat of a tool that takes long.
type ToolProgress struct {
	Header
	ToolUseID       string
	ToolName        string
	ParentToolUseID string // call that started the subagent; empty in the main loop
	Elapsed         time.Duration
	TaskID          string // empty if the call is no task
	Heartbeat       bool
	SubagentType    string
	SubagentRetry   *SubagentRetry // nil unless the subagent waits to try again
}

// SubagentRetry is a subagent's API call that failed and is tried again.
type SubagentRetry struct {
	AgentID       string
	Attempt       int
	MaxRetries    int
	RetryDelay    time.Duration
	ErrorStatus   int // HTTP status; zero if there was no answer
	ErrorCategory string
}

func (m *TaskStarted) field(s *scanner, key string) bool {
	switch key {
	case "task_id":
		m.TaskID = s.str()
	case "run_id":
		m.RunID = s.str()
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "description":
		m.Description = s.str()
	case "subagent_type":
		m.SubagentType = s.str()
	case "task_type":
		m.TaskType = s.str()
	case "is_backgrounded":
		m.IsBackgrounded = s.optBool()
	case "spawn_depth":
		m.SpawnDepth = s.integer()
	case "parent_task_id":
		m.ParentTaskID = s.str()
	case "workflow_name":
		m.WorkflowName = s.str()
	case "prompt":
		m.Prompt = s.str()
	case "skip_transcript":
		m.SkipTranscript = s.boolean()
	case "ambient":
		m.Ambient = s.boolean()
	default:
		return false
	}
	return true
}

func (m *TaskProgress) field(s *scanner, key string) bool {
	switch key {
	case "task_id":
		m.TaskID = s.str()
	case "run_id":
		m.RunID = s.str()
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "description":
		m.Description = s.str()
	case "subagent_type":
		m.SubagentType = s.str()
	case "usage":
		m.Usage = s.taskUsage()
	case "last_tool_name":
		m.LastToolName = s.str()
	case "summary":
		m.Summary = s.str()
	default:
		return false
	}
	return true
}

func (m *TaskUpdated) field(s *scanner, key string) bool {
	switch key {
	case "task_id":
		m.TaskID = s.str()
	case "run_id":
		m.RunID = s.str()
	case "patch":
		m.Patch = s.taskPatch()
	default:
		return false
	}
	return true
}

func (m *TaskNotification) field(s *scanner, key string) bool {
	switch key {
	case "task_id":
		m.TaskID = s.str()
	case "run_id":
		m.RunID = s.str()
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "status":
		m.Status = TaskStatus(s.str())
	case "reason":
		m.Reason = s.str()
	case "output_file":
		m.OutputFile = s.str()
	case "summary":
		m.Summary = s.str()
	case "usage":
		if s.token() != '{' {
			s.misfit("object")
			break
		}
		m.Usage = new(s.taskUsage())
	case "resource_links":
		m.ResourceLinks = s.raw()
	case "skip_transcript":
		m.SkipTranscript = s.boolean()
	case "ambient":
		m.Ambient = s.boolean()
	default:
		return false
	}
	return true
}

func (m *BackgroundTasks) field(s *scanner, key string) bool {
	if key != "tasks" {
		return false
	}
	m.Tasks = nil
	for ok := s.array(); ok; ok = s.more(']') {
		m.Tasks = append(m.Tasks, s.backgroundTask())
	}
	return true
}

func (m *ToolProgress) field(s *scanner, key string) bool {
	switch key {
	case "tool_use_id":
		m.ToolUseID = s.str()
	case "tool_name":
		m.ToolName = s.str()
	case "parent_tool_use_id":
		m.ParentToolUseID = s.str()
	case "elapsed_time_seconds":
		m.Elapsed = s.duration(time.Second)
	case "task_id":
		m.TaskID = s.str()
	case "heartbeat":
		m.Heartbeat = s.boolean()
	case "subagent_type":
		m.SubagentType = s.str()
	case "subagent_retry":
		m.SubagentRetry = s.subagentRetry()
	default:
		return false
	}
	return true
}

func (s *scanner) taskUsage() (u TaskUsage) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "total_tokens":
			u.TotalTokens = s.integer()
		case "tool_uses":
			u.ToolUses = s.integer()
		case "duration_ms":
			u.Duration = s.millis()
		default:
			s.skip()
		}
	}
	return u
}

func (s *scanner) taskPatch() (p TaskPatch) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "status":
			p.Status = TaskStatus(s.str())
		case "description":
			p.Description = s.str()
		case "end_time":
			p.EndTime = s.unix(time.Millisecond)
		case "total_paused_ms":
			p.TotalPaused = s.millis()
		case "error":
			p.Error = s.str()
		case "is_backgrounded":
			p.IsBackgrounded = s.optBool()
		default:
			s.skip()
		}
	}
	return p
}

func (s *scanner) backgroundTask() (t BackgroundTask) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "task_id":
			t.TaskID = s.str()
		case "run_id":
			t.RunID = s.str()
		case "task_type":
			t.TaskType = s.str()
		case "subagent_type":
			t.SubagentType = s.str()
		case "description":
			t.Description = s.str()
		case "parent_task_id":
			t.ParentTaskID = s.str()
		case "ambient":
			t.Ambient = s.boolean()
		default:
			s.skip()
		}
	}
	return t
}

func (s *scanner) subagentRetry() *SubagentRetry {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	r := new(SubagentRetry)
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "agent_id":
			r.AgentID = s.str()
		case "attempt":
			r.Attempt = s.integer()
		case "max_retries":
			r.MaxRetries = s.integer()
		case "retry_delay_ms":
			r.RetryDelay = s.millis()
		case "error_status":
			r.ErrorStatus = s.integer()
		case "error_category":
			r.ErrorCategory = s.str()
		default:
			s.skip()
		}
	}
	return r
}
