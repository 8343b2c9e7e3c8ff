package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/toolserver"
)

// hookTimeout is how long a hook may take that does not say it.
const hookTimeout = time.Minute

// hooks returns the hooks of a definition. Their commands run as custom tools do:
// in the run's folder, with its environment, confined as it is.
func (w *worker) hooks(d agentfile.Definition, run runner.Run, dir string, o toolserver.Options) (list []runner.Hook, err error) {
	o.Env = append(slices.Clip(o.Env), "CLAUDE_PROJECT_DIR="+w.projectDir(run, dir))
	if skill := w.skillDir(d, run); skill != "" {
		o.Env = append(o.Env, "CLAUDE_SKILL_DIR="+skill)
	}
	for _, h := range d.Hooks {
		if (h.Event == agentfile.SubagentStart || h.Event == agentfile.SubagentStop) && !h.Fits(d.Name) {
			continue // it is for other agents
		}
		only, err := denied(rulesOf(h.If), dir)
		if err != nil {
			return nil, fmt.Errorf("hook %s of %s: %w", h, d.Source.File, err)
		}
		timeout := h.Timeout
		if timeout == 0 {
			timeout = hookTimeout
		}
		list = append(list, runner.Hook{
			Name: h.Event + " of " + d.Source.File, Event: h.Event, Once: h.Once, Guards: h.Guards, Timeout: timeout,
			For: func(subject string, input json.RawMessage) bool { return fitsHook(h, only, subject, input) },
			Run: func(ctx context.Context, input []byte) (runner.Answer, error) {
				argv := []string{shellProgram, "-c", h.Command}
				if h.Args != nil {
					argv = append([]string{h.Command}, h.Args...)
				}
				e, err := toolserver.Exec(ctx, argv, input, timeout, o)
				if err != nil && e.Stderr != "" {
					err = errors.New(err.Error() + ": " + e.Stderr)
				}
				return runner.Answer{Code: e.Code, Stdout: e.Stdout, Stderr: e.Stderr}, err
			},
		})
	}
	return list, nil
}

func rulesOf(rule string) []string {
	if rule == "" {
		return nil
	}
	return []string{rule}
}

// fitsHook tells whether a hook is for a call, or a session. Events that are about
// neither have no matcher.
func fitsHook(h agentfile.Hook, only func(string, json.RawMessage) bool, subject string, input json.RawMessage) bool {
	switch h.Event {
	case agentfile.UserPromptSubmit, agentfile.Stop, agentfile.SubagentStart, agentfile.SubagentStop:
		return true
	case agentfile.SessionStart:
		return h.Fits(subject)
	}
	return h.Fits(subject) && (only == nil || only(subject, input))
}
