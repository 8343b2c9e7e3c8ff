package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/claude"
)

// Hook is a command that is asked, or told, when something happens in a run. It
// says what it has to say as one of Claude Code does: with its exit code, or with
// JSON on its standard output.
type Hook struct {
	Name string // for people
	// Event is PreToolUse, PostToolUse, PostToolUseFailure, UserPromptSubmit,
	// SessionStart or Stop, as Claude Code names them. SubagentStart and
	// SubagentStop are the start and the stop of the run itself.
	Event string
	// For tells whether it is for a call of a tool; or for a session by its source,
	// without an input. Nil means that it is for all.
	For     func(subject string, input json.RawMessage) bool
	Once    bool          // it is run the first time alone
	Guards  bool          // if it fails, what it is asked about does not happen
	Timeout time.Duration // within which Run returns
	// Run runs the command with that on its standard input. The error is why it
	// could not be run to its end.
	Run func(ctx context.Context, input []byte) (Answer, error)
}

// Answer is what a command said.
type Answer struct {
	Code           int
	Stdout, Stderr string
}

// blocking is the exit code by which a hook says no.
const blocking = 2

// hookMargin is how much later than the command itself the provider gives up
// waiting for it.
const hookMargin = 10 * time.Second

// asking is a hook of a run.
type asking struct {
	Hook
	talk *conversation
	log  *slog.Logger
	run  context.Context // that of the run: the command ends with it
	// judge judges a call whose input a hook has changed; nil allows all.
	judge func(tool string, input json.RawMessage) Verdict
	spent atomic.Bool // it is not to be run again
	begun atomic.Bool // it was told of the start of the session
}

// addHooks adds the hooks of a run to those that there are. Those are asked too,
// and whoever says no is heard.
func (r *Runner) addHooks(run context.Context, c *conversation, list []Hook, judge func(string, json.RawMessage) Verdict, to *claude.Hooks) error {
	for _, one := range list {
		h := &asking{Hook: one, talk: c, log: r.opts.Log, run: run, judge: judge}
		switch one.Event {
		case "PreToolUse":
			to.PreToolUse = append(slices.Clip(to.PreToolUse), hookOf(h, func(ctx context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
				return h.beforeCall(ctx, in)
			}))
		case "PostToolUse":
			to.PostToolUse = append(slices.Clip(to.PostToolUse), hookOf(h, func(ctx context.Context, in *claude.PostToolUseInput) (*claude.PostToolUseOutput, error) {
				s, err := h.ask(ctx, in.Tool, in.ToolInput, in.Raw)
				return &claude.PostToolUseOutput{HookOutput: s.output(), Context: s.context, ToolOutput: s.Specific.ToolOutput, MCPToolOutput: s.Specific.MCPToolOutput}, err
			}))
		case "PostToolUseFailure":
			to.PostToolUseFailure = append(slices.Clip(to.PostToolUseFailure), hookOf(h, func(ctx context.Context, in *claude.PostToolUseFailureInput) (*claude.ContextOutput, error) {
				s, err := h.ask(ctx, in.Tool, in.ToolInput, in.Raw)
				s.context = strings.TrimSpace(s.context + "\n" + s.Reason) // there is nothing left to block
				return &claude.ContextOutput{HookOutput: claude.HookOutput{Stop: s.stops(), StopReason: s.StopReason}, Context: s.context}, err
			}))
		case "UserPromptSubmit":
			to.UserPromptSubmit = append(slices.Clip(to.UserPromptSubmit), hookOf(h, func(ctx context.Context, in *claude.UserPromptSubmitInput) (*claude.UserPromptSubmitOutput, error) {
				s, err := h.ask(ctx, "", nil, in.Raw)
				return &claude.UserPromptSubmitOutput{HookOutput: s.output(), Context: s.context}, err
			}))
		case "SessionStart", "SubagentStart":
			to.UserPromptSubmit = append(slices.Clip(to.UserPromptSubmit), hookOf(h, h.begin))
			to.SessionStart = append(slices.Clip(to.SessionStart), hookOf(h, func(ctx context.Context, in *claude.SessionStartInput) (*claude.SessionStartOutput, error) {
				if in.Source == startup || in.Source == resume {
					return nil, nil
				}
				s, err := h.ask(ctx, in.Source, nil, in.Raw)
				return &claude.SessionStartOutput{Context: s.context}, err
			}))
		case "Stop", "SubagentStop":
			to.Stop = append(slices.Clip(to.Stop), hookOf(h, func(ctx context.Context, in *claude.StopInput) (*claude.ContextOutput, error) {
				s, err := h.ask(ctx, "", nil, in.Raw)
				return &claude.ContextOutput{HookOutput: s.output(), Context: s.context}, err
			}))
		default:
			return fmt.Errorf("hook %s: there is no event %q", one.Name, one.Event)
		}
	}
	return nil
}

func hookOf[In, Out any](h *asking, ask func(context.Context, *In) (*Out, error)) claude.Hook[In, Out] {
	return claude.Hook[In, Out]{Timeout: h.Timeout + hookMargin, Func: ask}
}

// How a session starts, as Claude Code says it.
const (
	startup = "startup"
	resume  = "resume"
)

// begin tells of the start of the session, with the first prompt: the CLI tells
// nobody outside of it before (seen in 2.1.325), and then it has a session to tell
// of with either provider. There is nothing to block.
func (h *asking) begin(ctx context.Context, in *claude.UserPromptSubmitInput) (*claude.UserPromptSubmitOutput, error) {
	if h.begun.Swap(true) {
		return nil, nil
	}
	source := startup
	if h.talk.run.Session != "" {
		source = resume
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(in.Raw, &fields); err != nil {
		return nil, err
	}
	delete(fields, "prompt")
	fields["source"] = json.RawMessage(strconv.Quote(source))
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	s, err := h.ask(ctx, source, nil, raw)
	if s.blocks() {
		h.note(ctx, s.Reason)
	}
	return &claude.UserPromptSubmitOutput{Context: s.context}, err
}

// beforeCall asks about a call. What it denies is on record; what it changes has to
// be allowed as what the agent wanted has.
func (h *asking) beforeCall(ctx context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
	s, err := h.ask(ctx, in.Tool, in.ToolInput, in.Raw)
	if err != nil {
		return nil, err
	}
	out := &claude.PreToolUseOutput{
		HookOutput: claude.HookOutput{Stop: s.stops(), StopReason: s.StopReason}, Context: s.context, Input: s.Specific.Input,
		PermissionReason: s.Specific.PermissionReason,
	}
	switch p := claude.HookPermission(s.Specific.Permission); p {
	case claude.HookAllow, claude.HookDeny, claude.HookAsk:
		out.Permission = p
	}
	switch {
	case s.blocks():
		out.Permission, out.PermissionReason = claude.HookDeny, s.Reason
	case s.Decision == "approve" && out.Permission == "":
		out.Permission, out.PermissionReason = claude.HookAllow, s.Reason
	}
	rule := "hook " + h.Name
	if out.Input != nil && out.Permission != claude.HookDeny && h.judge != nil {
		if v := h.judge(in.Tool, out.Input); v.Ask {
			out.Permission, out.PermissionReason = claude.HookAsk, v.Reason
			h.talk.ask(in.ToolUseID, v.Reason)
		} else if !v.Allowed {
			out.Permission, out.PermissionReason, rule = claude.HookDeny, "A hook changed the call, and so "+v.Reason, v.Rule
		}
	}
	if out.Permission == claude.HookDeny {
		out.Input, out.PermissionReason = nil, cmp.Or(out.PermissionReason, "A hook denies it.")
		if err := h.talk.decided(ctx, in.Tool, in.ToolUseID, Verdict{Reason: out.PermissionReason, Rule: rule}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// saying is the JSON that a hook may say.
type saying struct {
	Continue      *bool  `json:"continue"`
	StopReason    string `json:"stopReason"`
	Decision      string `json:"decision"` // approve or block
	Reason        string `json:"reason"`
	SystemMessage string `json:"systemMessage"`
	Specific      struct {
		Permission       string          `json:"permissionDecision"`
		PermissionReason string          `json:"permissionDecisionReason"`
		Input            json.RawMessage `json:"updatedInput"`
		Context          string          `json:"additionalContext"`
		ToolOutput       json.RawMessage `json:"updatedToolOutput"`
		MCPToolOutput    json.RawMessage `json:"updatedMCPToolOutput"`
	} `json:"hookSpecificOutput"`

	context string // for the agent
}

func (s saying) blocks() bool { return s.Decision == "block" }
func (s saying) stops() bool  { return s.Continue != nil && !*s.Continue }

func (s saying) output() claude.HookOutput {
	return claude.HookOutput{Stop: s.stops(), StopReason: s.StopReason, Block: s.blocks(), Reason: s.Reason}
}

// ask runs the command, if it is for that. A command that fails says nothing, unless
// it guards; that it failed is on record.
func (h *asking) ask(ctx context.Context, subject string, input, raw json.RawMessage) (s saying, err error) {
	if h.For != nil && !h.For(subject, input) || h.Once && h.spent.Swap(true) {
		return s, nil
	}
	// Some hooks are called with a context that outlives the run.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.run, func() { stop(context.Cause(h.run)) })()
	told, err := h.told(raw)
	if err != nil {
		return s, err
	}
	a, err := h.Run(ctx, told)
	failed := ""
	switch {
	case err != nil && ctx.Err() != nil:
		return s, nil // the run ends
	case err != nil:
		failed = err.Error()
	case a.Code == 0:
		s = h.heard(a.Stdout)
	case a.Code == blocking:
		s.Decision, s.Reason = "block", cmp.Or(strings.TrimSpace(a.Stderr), "The hook "+h.Name+" says no, and not why.")
	default:
		failed = strings.TrimSpace(fmt.Sprintf("it ended with code %d. %s", a.Code, strings.TrimSpace(a.Stderr)))
	}
	if failed != "" {
		h.note(ctx, failed)
		if h.Guards {
			s.Decision, s.Reason = "block", "The hook "+h.Name+" failed: "+failed
		}
	}
	if s.SystemMessage != "" {
		h.note(ctx, s.SystemMessage)
	}
	return s, nil
}

// told is what the command is told: what the provider says, of the event that the
// definition names, for the agent that it is of.
func (h *asking) told(raw json.RawMessage) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("hook %s: its input: %w", h.Name, err)
	}
	for key, text := range map[string]string{"hook_event_name": h.Event, "agent_type": h.talk.run.Task.Agent} {
		value, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		fields[key] = value
	}
	return json.Marshal(fields)
}

// heard reads what a command that went well said: JSON, or a text, which the agent
// is told of some events.
func (h *asking) heard(text string) (s saying) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &s) == nil {
		s.context = s.Specific.Context
		return s
	}
	switch h.Event {
	case "UserPromptSubmit", "SessionStart", "SubagentStart":
		return saying{context: text}
	}
	return saying{}
}

// maxNote bounds what is put on record of what a hook said to people.
const maxNote = 2 << 10

// note puts on record what people are to know of the hook. It cannot fail the run.
func (h *asking) note(ctx context.Context, text string) {
	text = strings.ToValidUTF8(text[:min(len(text), maxNote)], "")
	err := h.talk.say(ctx, &nestor.ExecutionProgress{
		ExecutionID: string(h.talk.run.ID), Agent: h.talk.run.Task.Agent, Activity: "hook " + h.Name + ": " + text,
	})
	if err != nil {
		h.log.Warn("what a hook said is not on record", "run", h.talk.run.ID, "error", err)
	}
}
