package claude

import "context"

// StopTask stops a task that runs in the background; a [TaskNotification]
// follows. It is no error if the task has ended or never was.
func (s *Session) StopTask(ctx context.Context, taskID string) error {
	return s.call(ctx, "stop_task", struct {
		TaskID string `json:"task_id"`
	}{taskID}, nil)
}

// MoveToBackground sends the commands and subagents that the turn waits for to
// the background, where they go on: the one that the tool call with that id
// started, or all if it is empty. It is false if there was nothing to send.
func (s *Session) MoveToBackground(ctx context.Context, toolUseID string) (bool, error) {
	type reply struct {
		Reply
		Backgrounded *bool `json:"backgrounded"` // absent means true
	}
	r, err := ask[reply](ctx, s, "background_tasks", struct {
		ToolUseID string `json:"tool_use_id,omitempty"`
	}{toolUseID})
	return err == nil && (r.Backgrounded == nil || *r.Backgrounded), err
}

// TaskOutput is the end of what a background command printed.
type TaskOutput struct {
	Reply
	Output     string `json:"output"`      // at most 8 KiB, as it was printed
	TotalBytes int    `json:"total_bytes"` // of the whole output
	Truncated  bool   `json:"truncated"`   // Output is not all of it
}

// TaskOutput reads the end of what a command or monitor in the background has
// printed, while it runs and after. Another kind of task, or none of this
// session, is a [*ControlError].
func (s *Session) TaskOutput(ctx context.Context, taskID string) (*TaskOutput, error) {
	return ask[TaskOutput](ctx, s, "get_task_output", struct {
		TaskID string `json:"task_id"`
	}{taskID})
}
