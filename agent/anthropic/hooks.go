package anthropic

import (
	"context"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor/claude"
)

// about is what every hook is told.
func (s *session) about(event string) claude.HookInput {
	return claude.HookInput{Event: event, SessionID: s.id, Dir: s.set.Dir, PromptID: s.prompt, PermissionMode: s.gate.current()}
}

// heard is what the hooks of an event said together.
type heard struct {
	stop     bool // the turn is to end
	why      string
	block    bool // what the event is about is not to happen
	reason   string
	contexts []string // for the model
}

// hear runs the hooks of an event and adds up what all events have in common.
// Each is called with every output, in the order of the hooks.
func hear[In, Out any](ctx context.Context, s *session, event, subject, callID string, hooks []claude.Hook[In, Out], in In, each func(*Out) (claude.HookOutput, string)) (h heard) {
	label := event
	if subject != "" {
		label += ":" + subject
	}
	for _, a := range claude.RunHooks(ctx, event, subject, callID, hooks, in) {
		if a.Err != nil {
			if a.Block {
				h.block, h.reason = true, join(h.reason, a.Err.Error())
			}
			s.log.Warn("a hook failed", "session", s.id, "hook", label, "error", a.Err)
			continue
		}
		if a.Out == nil {
			continue
		}
		out, more := each(a.Out)
		if out.Async {
			continue
		}
		if out.Stop && !h.stop {
			h.stop, h.why = true, out.StopReason
		}
		if out.Block {
			h.block, h.reason = true, join(h.reason, out.Reason)
		}
		if more != "" {
			h.contexts = append(h.contexts, fmt.Sprintf("%s hook additional context: %s", label, more))
		}
	}
	return h
}

// plain is each for outputs that have nothing special.
func plain(o *claude.HookOutput) (claude.HookOutput, string) { return *o, "" }

// withContext is each for outputs that add a text.
func withContext(o *claude.ContextOutput) (claude.HookOutput, string) { return o.HookOutput, o.Context }

// reminder is how hooks speak to the model.
func reminder(text string) string { return "<system-reminder>\n" + text + "\n</system-reminder>" }

func join(a, b string) string { return strings.Trim(a+"\n"+b, "\n") }

func (s *session) hookStart(ctx context.Context, source string) heard {
	return hear(ctx, s, "SessionStart", source, "", s.set.Hooks.SessionStart,
		claude.SessionStartInput{HookInput: s.about("SessionStart"), Source: source, Model: s.set.model, ContextTokens: s.conv.size()},
		func(o *claude.SessionStartOutput) (claude.HookOutput, string) { return o.HookOutput, o.Context })
}

func (s *session) hookEnd(ctx context.Context) {
	hear(ctx, s, "SessionEnd", "other", "", s.set.Hooks.SessionEnd,
		claude.SessionEndInput{HookInput: s.about("SessionEnd"), Reason: "other"}, plain)
}

// hookPrompt also tells whether a prompt that is blocked is not to be shown.
func (s *session) hookPrompt(ctx context.Context, text string) (h heard, hide bool) {
	h = hear(ctx, s, "UserPromptSubmit", "", "", s.set.Hooks.UserPromptSubmit,
		claude.UserPromptSubmitInput{HookInput: s.about("UserPromptSubmit"), Prompt: text, Source: "sdk"},
		func(o *claude.UserPromptSubmitOutput) (claude.HookOutput, string) {
			hide = hide || o.SuppressPrompt && !o.Async
			return o.HookOutput, o.Context
		})
	return h, hide
}

func (s *session) hookStop(ctx context.Context, active bool) heard {
	return hear(ctx, s, "Stop", "", "", s.set.Hooks.Stop,
		claude.StopInput{HookInput: s.about("Stop"), Active: active, LastMessage: s.conv.last}, withContext)
}

func (s *session) hookStopFailure(ctx context.Context, f *failure) {
	hear(ctx, s, "StopFailure", string(f.reason), "", s.set.Hooks.StopFailure,
		claude.StopFailureInput{HookInput: s.about("StopFailure"), Error: string(f.reason), Details: f.text, LastMessage: s.conv.last}, plain)
}

func (s *session) hookNotification(ctx context.Context, kind, text string) {
	hear(ctx, s, "Notification", kind, "", s.set.Hooks.Notification,
		claude.NotificationInput{HookInput: s.about("Notification"), Message: text, Type: kind}, withContext)
}

func (s *session) hookPreCompact(ctx context.Context) heard {
	return hear(ctx, s, "PreCompact", "auto", "", s.set.Hooks.PreCompact,
		claude.PreCompactInput{HookInput: s.about("PreCompact"), Trigger: "auto"}, plain)
}

func (s *session) hookPostCompact(ctx context.Context, summary string) {
	hear(ctx, s, "PostCompact", "auto", "", s.set.Hooks.PostCompact,
		claude.PostCompactInput{HookInput: s.about("PostCompact"), Trigger: "auto", Summary: summary}, plain)
}

// origin returns the server of an MCP tool, nil for another.
func origin(tool string) *claude.ServerOrigin {
	rest, ok := strings.CutPrefix(tool, "mcp__")
	if !ok {
		return nil
	}
	server, _, _ := strings.Cut(rest, "__")
	return &claude.ServerOrigin{Name: server, Source: "sdk"}
}
