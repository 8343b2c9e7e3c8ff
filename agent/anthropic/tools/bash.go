package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	defaultTimeout   = 2 * time.Minute
	maxTimeout       = 10 * time.Minute
	backgroundTime   = 30 * time.Minute
	maxBackground    = 2 * time.Hour
	defaultTaskWait  = 30 * time.Second
	maxTaskWait      = 10 * time.Minute
	maxCommandLength = 100_000 // bytes: Linux takes 128 KiB in one argument
)

type bashInput struct {
	Command     string `json:"command"`
	Timeout     *count `json:"timeout"`
	Description string `json:"description"`
	Background  bool   `json:"run_in_background"`
	Unconfined  bool   `json:"dangerouslyDisableSandbox"`
}

func (s *Set) bashTool() Tool {
	t := Tool{
		Name: "Bash",
		Description: "Runs a shell command. The working directory stays from one command to the next; variables do not. Output and " +
			"errors come together, in order; what is long is cut, and the whole is in a file that is named. With run_in_background " +
			"it returns at once: see TaskOutput and TaskStop.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"command":{"type":"string","description":"The command to execute"},
"timeout":{"type":"number","description":"How many milliseconds it may take: 120000 unless given, 600000 at most. In the background 1800000 and 7200000"},
"description":{"type":"string","description":"What the command does, in a few plain words"},
"run_in_background":{"type":"boolean","description":"Run it in the background"},
"dangerouslyDisableSandbox":{"type":"boolean","description":"Has no effect here"}
},"required":["command"],"additionalProperties":false}`),
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[bashInput](t, input)
		if err != nil {
			return Result{}, err
		}
		if len(in.Command) > maxCommandLength {
			return Result{}, tell("The command has %d bytes, and %d are the most. Write it to a file and run that.", len(in.Command), maxCommandLength)
		}
		if strings.ContainsRune(in.Command, 0) {
			return Result{}, tell("The command holds a zero byte.")
		}
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if in.Background {
			return s.background(in)
		}
		return s.bash(ctx, in)
	}
	return t
}

// limit returns how long a command may take.
func (in bashInput) limit(usual, most time.Duration) time.Duration {
	if in.Timeout == nil || *in.Timeout <= 0 {
		return usual
	}
	return min(time.Duration(*in.Timeout)*time.Millisecond, most)
}

func (s *Set) bash(ctx context.Context, in bashInput) (Result, error) {
	f, where, err := s.create("cwd", "")
	if err != nil {
		return Result{}, err
	}
	f.Close()
	defer os.Remove(where)
	t, err := s.start(in.Command, where)
	if err != nil {
		return Result{}, err
	}
	limit := in.limit(defaultTimeout, maxTimeout)
	timedOut, err := t.await(ctx, limit)
	if err != nil {
		t.settled()
		s.forget(t)
		return Result{}, err
	}
	note := ""
	if !timedOut && !s.moveTo(where) {
		note = "Shell cwd was reset to " + s.workingDir()
	}
	s.forget(t)
	text := t.out.text(s.opts.MaxResult - 200)
	if timedOut {
		return Result{}, tell("%s", join(fmt.Sprintf("Exit code %d\nCommand timed out after %s", t.code(), limit), text, note))
	}
	if code := t.code(); code != 0 {
		return Result{}, tell("%s", join(fmt.Sprintf("Exit code %d", code), text, note))
	}
	data := map[string]any{"stdout": text, "stderr": note, "interrupted": false}
	if text = join(text, note); text == "" {
		text = "(Bash completed with no output)"
	}
	return Result{Text: text, Data: data}, nil
}

func join(parts ...string) string {
	text := ""
	for _, p := range parts {
		if p != "" && text != "" {
			text += "\n"
		}
		text += p
	}
	return text
}

// moveTo takes over where the shell was at the end of a command, which the file
// in the spool says, and tells whether it is still in one of the folders. If
// not, the next command starts where the agent works.
func (s *Set) moveTo(file string) bool {
	spool, err := s.spoolFolder()
	if err != nil {
		return true
	}
	f, _, err := s.open(place{path: file, in: spool, rel: filepath.Base(file)})
	if err != nil {
		return true
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 8<<10))
	dir := strings.TrimSuffix(string(data), "\n")
	if err != nil || dir == "" {
		return true // it did not get so far
	}
	p, err := s.locate(dir)
	if err == nil && p.in != nil && p.in.write {
		if info, err := os.Stat(p.path); err == nil && info.IsDir() {
			s.mu.Lock()
			s.cwd = p.path
			s.mu.Unlock()
			return true
		}
	}
	s.mu.Lock()
	s.cwd = s.folders[0].path
	s.mu.Unlock()
	return false
}

// forget lets go of a command that is over, unless it left something running.
func (s *Set) forget(t *task) {
	select {
	case <-t.out.done:
	default:
		return // somebody holds its output
	}
	if groupAlive(t.cmd.Process) {
		return
	}
	t.out.read.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t.id)
}

func (s *Set) background(in bashInput) (Result, error) {
	t, err := s.start(in.Command, "")
	if err != nil {
		return Result{}, err
	}
	path, err := t.out.onDisk()
	if err != nil {
		t.stop("its output could not be kept")
		return Result{}, fmt.Errorf("keeping the output of the command: %w", err)
	}
	limit := in.limit(backgroundTime, maxBackground)
	s.work.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-t.ended:
		case <-timer.C:
			t.stop("timed out after " + limit.String())
		}
	})
	return Result{
		Text: fmt.Sprintf("Command running in background with ID: %s. Output is being written to: %s. "+
			"To see it, use TaskOutput, or Read on that file path. To end it, use TaskStop.", t.id, path),
		Data: map[string]any{"stdout": "", "stderr": "", "interrupted": false, "backgroundTaskId": t.id},
	}, nil
}

type taskOutputInput struct {
	ID      string `json:"task_id"`
	Block   *bool  `json:"block"`
	Timeout *count `json:"timeout"`
}

func (s *Set) taskOutputTool() Tool {
	t := Tool{
		Name:        "TaskOutput",
		Description: "Shows what a command in the background has said so far, and whether it has ended. It waits for its end, for a while, unless block is false.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"task_id":{"type":"string","description":"The ID of the task"},
"block":{"type":"boolean","default":true,"description":"Whether to wait for its end"},
"timeout":{"type":"number","default":30000,"minimum":0,"maximum":600000,"description":"How many milliseconds to wait at most"}
},"required":["task_id"],"additionalProperties":false}`),
		ReadOnly: true,
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[taskOutputInput](t, input)
		if err != nil {
			return Result{}, err
		}
		return s.taskOutput(ctx, in)
	}
	return t
}

func (s *Set) taskOutput(ctx context.Context, in taskOutputInput) (Result, error) {
	t, err := s.task(in.ID)
	if err != nil {
		return Result{}, err
	}
	retrieval := "success"
	if !t.over() {
		retrieval = "not_ready"
		if in.Block == nil || *in.Block {
			timer := time.NewTimer(bashInput{Timeout: in.Timeout}.limit(defaultTaskWait, maxTaskWait))
			defer timer.Stop()
			select {
			case <-t.ended:
				retrieval = "success"
			case <-timer.C:
				retrieval = "timeout"
			case <-ctx.Done():
				return Result{}, context.Cause(ctx)
			}
		}
	}
	status := "running"
	var code *int
	if t.over() {
		t.settled()
		c := t.code()
		status, code = "completed", &c
		switch {
		case t.reason() != "":
			status = "killed (" + t.reason() + ")"
		case c != 0:
			status = "failed"
		}
	}
	parts := []string{tagged("retrieval_status", retrieval), tagged("task_id", t.id), tagged("task_type", "local_bash"), tagged("status", status)}
	if code != nil {
		parts = append(parts, tagged("exit_code", fmt.Sprint(*code)))
	}
	text := t.out.text(s.opts.MaxResult - 400)
	if text != "" {
		parts = append(parts, tagged("output", "\n"+text+"\n"))
	}
	return Result{Text: strings.Join(parts, "\n\n"), Data: map[string]any{
		"retrieval_status": retrieval, "task": map[string]any{"task_id": t.id, "status": status, "exitCode": code, "output": text, "command": t.command},
	}}, nil
}

func tagged(name, text string) string { return "<" + name + ">" + text + "</" + name + ">" }

type taskStopInput struct {
	ID    string `json:"task_id"`
	Shell string `json:"shell_id"`
}

func (s *Set) taskStopTool() Tool {
	t := Tool{
		Name:        "TaskStop",
		Description: "Ends a command in the background, with all that it started.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"task_id":{"type":"string","description":"The ID of the task to stop"},
"shell_id":{"type":"string","description":"Deprecated: use task_id instead"}
},"additionalProperties":false}`),
	}
	t.Run = func(_ context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[taskStopInput](t, input)
		if err != nil {
			return Result{}, err
		}
		id := cmp.Or(in.ID, in.Shell)
		if id == "" {
			return Result{}, tell("Missing required parameter: task_id")
		}
		task, err := s.task(id)
		if err != nil {
			return Result{}, err
		}
		if task.over() && !groupAlive(task.cmd.Process) {
			return Result{}, tell("Task %s is not running (status: completed)", id)
		}
		task.stop("stopped")
		stopped := struct { // the CLI has the model read this; seen in 2.1.325
			Message string `json:"message"`
			ID      string `json:"task_id"`
			Type    string `json:"task_type"`
			Command string `json:"command"`
		}{fmt.Sprintf("Successfully stopped task: %s (%s)", id, clip(task.command, 200)), id, "local_bash", clip(task.command, 1000)}
		text, err := json.Marshal(stopped)
		return Result{Text: string(text), Data: stopped}, err
	}
	return t
}
