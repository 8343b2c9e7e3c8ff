package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Hook runs Func inside this process when an event happens in the CLI. All
// hooks of an event run at the same time: none may depend on another.
type Hook[In, Out any] struct {
	// Match says which tools (sources, triggers …) the hook is for; zero means
	// all. Events without such a thing refuse it.
	Match Matcher
	// Timeout is how long Func may take. Zero leaves it to the CLI, and means
	// a minute with BlockOnFailure. Func's context ends with it.
	Timeout time.Duration
	// BlockOnFailure blocks what the hook guards (the tool call, the
	// permission request, the prompt) when Func returns an error, panics or is
	// late. Without it the CLI goes on as if there were no hook.
	BlockOnFailure bool
	// Func is called for the event. A nil output means no opinion. It may be
	// called again before it returned.
	Func func(context.Context, *In) (*Out, error)
}

// RawHook is a hook for an event that this package has no types for. Its
// input is in HookInput.Raw, and its output is sent as it is.
type RawHook = Hook[HookInput, json.RawMessage]

// Hooks are the hooks of a session, by event. The zero value has none.
//
// The CLI asks them before anything else: hooks, then deny rules, ask rules,
// the permission mode, allow rules, and Options.CanUseTool last. A hook that
// allows a tool call does not skip deny and ask rules.
type Hooks struct {
	// Tools.
	PreToolUse         []Hook[PreToolUseInput, PreToolUseOutput]
	PostToolUse        []Hook[PostToolUseInput, PostToolUseOutput]
	PostToolUseFailure []Hook[PostToolUseFailureInput, ContextOutput]
	PostToolBatch      []Hook[PostToolBatchInput, ContextOutput] // after the tools of one answer
	PermissionRequest  []Hook[PermissionRequestInput, PermissionRequestOutput]
	PermissionDenied   []Hook[PermissionDeniedInput, PermissionDeniedOutput]

	// Prompts and answers.
	UserPromptSubmit    []Hook[UserPromptSubmitInput, UserPromptSubmitOutput]
	UserPromptExpansion []Hook[UserPromptExpansionInput, UserPromptExpansionOutput]
	MessageDisplay      []Hook[MessageDisplayInput, MessageDisplayOutput]
	Notification        []Hook[NotificationInput, ContextOutput]
	Stop                []Hook[StopInput, ContextOutput]
	StopFailure         []Hook[StopFailureInput, HookOutput]

	// The session.
	Setup              []Hook[SetupInput, ContextOutput]
	SessionStart       []Hook[SessionStartInput, SessionStartOutput]
	SessionEnd         []Hook[SessionEndInput, HookOutput]
	PreCompact         []Hook[PreCompactInput, HookOutput]
	PostCompact        []Hook[PostCompactInput, HookOutput]
	PreModelSwitch     []Hook[ModelSwitchInput, PreModelSwitchOutput]
	PostModelSwitch    []Hook[ModelSwitchInput, ContextOutput]
	ConfigChange       []Hook[ConfigChangeInput, HookOutput]
	InstructionsLoaded []Hook[InstructionsLoadedInput, HookOutput]

	// Agents and tasks.
	SubagentStart []Hook[SubagentStartInput, ContextOutput]
	SubagentStop  []Hook[SubagentStopInput, ContextOutput]
	TaskCreated   []Hook[TaskInput, HookOutput]
	TaskCompleted []Hook[TaskInput, HookOutput]
	TeammateIdle  []Hook[TeammateIdleInput, HookOutput]

	// Questions of MCP servers.
	Elicitation       []Hook[ElicitationInput, ElicitationOutput]
	ElicitationResult []Hook[ElicitationResultInput, ElicitationOutput]

	// Files and directories.
	WorktreeCreate []Hook[WorktreeCreateInput, WorktreeCreateOutput]
	WorktreeRemove []Hook[WorktreeRemoveInput, HookOutput]
	CwdChanged     []Hook[CwdChangedInput, WatchOutput]
	FileChanged    []Hook[FileChangedInput, WatchOutput]
	DirectoryAdded []Hook[DirectoryAddedInput, HookOutput]

	// Other holds hooks for the events that a newer CLI adds.
	Other map[string][]RawHook
}

// GateEveryCall returns a hook for Hooks.PreToolUse that asks decide about
// every tool call, also those that Options.CanUseTool never sees because a
// rule or the mode has decided them. A call that decide fails to judge, or
// does not judge within a minute (or Timeout, once set), is blocked.
//
// [Elsewhere] leaves the call to the CLI's rules. An [Allow] cannot carry
// Updates or a Class here, and does not skip the deny and ask rules.
func GateEveryCall(decide func(context.Context, *PreToolUseInput) (Decision, error)) Hook[PreToolUseInput, PreToolUseOutput] {
	return Hook[PreToolUseInput, PreToolUseOutput]{
		BlockOnFailure: true,
		Func: func(ctx context.Context, in *PreToolUseInput) (*PreToolUseOutput, error) {
			d, err := decide(ctx, in)
			if err != nil {
				return nil, err
			}
			switch d := d.(type) {
			case Allow:
				if d.Updates != nil || d.Class != "" {
					return nil, errors.New("a gate cannot update permissions: Allow carries an Input only")
				}
				return &PreToolUseOutput{Permission: HookAllow, Input: d.Input}, nil
			case Deny:
				out := &PreToolUseOutput{Permission: HookDeny, PermissionReason: d.Message}
				if d.Interrupt {
					out.Stop, out.StopReason = true, d.Message
				}
				return out, nil
			case Elsewhere:
				return nil, nil
			}
			return nil, fmt.Errorf("%T is not a decision; return Allow, Deny or Elsewhere", d)
		},
	}
}

// hookFunc answers one hook_callback request, whose fields it is given.
type hookFunc func(ctx context.Context, input json.RawMessage, toolUseID string) (json.RawMessage, error)

// hookMatcher is how a hook is registered with the CLI.
type hookMatcher struct {
	Matcher   string   `json:"matcher,omitempty"`
	IDs       []string `json:"hookCallbackIds"`
	Timeout   float64  `json:"timeout,omitempty"` // seconds
	OnFailure string   `json:"onFailure,omitempty"`
}

// hookRegistry collects hooks.
type hookRegistry struct {
	wire  map[string][]hookMatcher // by event, as initialize carries it
	funcs map[string]hookFunc      // by callback id
	errs  []error
}

// register returns what initialize tells the CLI about the hooks, and the
// functions that answer for them by callback id. Both are nil without hooks.
func (h *Hooks) register() (map[string][]hookMatcher, map[string]hookFunc, error) {
	r := &hookRegistry{}
	addHooks(r, "PreToolUse", h.PreToolUse)
	addHooks(r, "PostToolUse", h.PostToolUse)
	addHooks(r, "PostToolUseFailure", h.PostToolUseFailure)
	addHooks(r, "PostToolBatch", h.PostToolBatch)
	addHooks(r, "PermissionRequest", h.PermissionRequest)
	addHooks(r, "PermissionDenied", h.PermissionDenied)
	addHooks(r, "UserPromptSubmit", h.UserPromptSubmit)
	addHooks(r, "UserPromptExpansion", h.UserPromptExpansion)
	addHooks(r, "MessageDisplay", h.MessageDisplay)
	addHooks(r, "Notification", h.Notification)
	addHooks(r, "Stop", h.Stop)
	addHooks(r, "StopFailure", h.StopFailure)
	addHooks(r, "Setup", h.Setup)
	addHooks(r, "SessionStart", h.SessionStart)
	addHooks(r, "SessionEnd", h.SessionEnd)
	addHooks(r, "PreCompact", h.PreCompact)
	addHooks(r, "PostCompact", h.PostCompact)
	addHooks(r, "PreModelSwitch", h.PreModelSwitch)
	addHooks(r, "PostModelSwitch", h.PostModelSwitch)
	addHooks(r, "ConfigChange", h.ConfigChange)
	addHooks(r, "InstructionsLoaded", h.InstructionsLoaded)
	addHooks(r, "SubagentStart", h.SubagentStart)
	addHooks(r, "SubagentStop", h.SubagentStop)
	addHooks(r, "TaskCreated", h.TaskCreated)
	addHooks(r, "TaskCompleted", h.TaskCompleted)
	addHooks(r, "TeammateIdle", h.TeammateIdle)
	addHooks(r, "Elicitation", h.Elicitation)
	addHooks(r, "ElicitationResult", h.ElicitationResult)
	addHooks(r, "WorktreeCreate", h.WorktreeCreate)
	addHooks(r, "WorktreeRemove", h.WorktreeRemove)
	addHooks(r, "CwdChanged", h.CwdChanged)
	addHooks(r, "FileChanged", h.FileChanged)
	addHooks(r, "DirectoryAdded", h.DirectoryAdded)
	for _, event := range slices.Sorted(maps.Keys(h.Other)) {
		addHooks(r, event, h.Other[event])
	}
	return r.wire, r.funcs, errors.Join(r.errs...)
}

// Events whose hooks the CLI calls whatever the matcher says, and those where
// it ignores that a hook failed.
var (
	matchless = []string{
		"CwdChanged", "MessageDisplay", "PostToolBatch", "Stop", "TaskCompleted", "TaskCreated",
		"TeammateIdle", "UserPromptSubmit", "WorktreeCreate", "WorktreeRemove",
	}
	unguarded = []string{"Stop", "SubagentStop", "TaskCompleted", "TeammateIdle"}
)

// How long a hook with BlockOnFailure has, and how much later the CLI may give
// up on it: the CLI goes on when a hook is late, so it has to hear of the
// failure before.
const (
	blockTimeout = time.Minute
	blockMargin  = 10 * time.Second
)

func addHooks[In, Out any](r *hookRegistry, event string, hooks []Hook[In, Out]) {
	for i, h := range hooks {
		if err := h.check(event); err != nil {
			r.errs = append(r.errs, badOption("Hooks.%s[%d]: %w", event, i, err))
			continue
		}
		if r.wire == nil {
			r.wire, r.funcs = map[string][]hookMatcher{}, map[string]hookFunc{}
		}
		id := "hook_" + strconv.Itoa(len(r.funcs))
		m := hookMatcher{Matcher: h.Match.pattern, IDs: []string{id}, Timeout: h.Timeout.Seconds()}
		if h.BlockOnFailure {
			if h.Timeout == 0 {
				h.Timeout = blockTimeout
			}
			m.OnFailure, m.Timeout = "block", (h.Timeout + blockMargin).Seconds()
		}
		r.wire[event] = append(r.wire[event], m)
		r.funcs[id] = h.answer(event)
	}
}

func (h Hook[In, Out]) check(event string) error {
	switch {
	case event == "":
		return errors.New("the event has no name")
	case h.Func == nil:
		return errors.New("it needs a Func")
	case h.Timeout < 0:
		return errors.New("its Timeout is negative: zero leaves it to the CLI")
	case h.Match.err != nil:
		return fmt.Errorf("its Match: %w", h.Match.err)
	case h.Match.pattern != "" && slices.Contains(matchless, event):
		return fmt.Errorf("its Match: the CLI calls every %s hook: leave it zero and look at the input", event)
	case h.BlockOnFailure && slices.Contains(unguarded, event):
		return fmt.Errorf("its BlockOnFailure: the CLI ignores it on %s", event)
	}
	return nil
}

// answer returns the function that decodes the input, calls Func and encodes
// its output.
func (h Hook[In, Out]) answer(event string) hookFunc {
	return func(ctx context.Context, raw json.RawMessage, toolUseID string) (json.RawMessage, error) {
		in, err := decodeHookInput[In](raw, toolUseID)
		if err != nil {
			return nil, fmt.Errorf("%s hook: %w", event, err)
		}
		call := h.Func
		if h.BlockOnFailure {
			call = h.inTime
		}
		out, err := call(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("%s hook: %w", event, err)
		}
		if out == nil {
			return json.RawMessage("{}"), nil
		}
		return encodeHookOutput(event, out)
	}
}

// inTime calls Func and does not wait for it longer than Timeout, even when it
// ignores its context: a guard that sleeps must not let the action pass. Then
// its goroutine ends when Func returns.
func (h Hook[In, Out]) inTime(ctx context.Context, in *In) (*Out, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout, fmt.Errorf("no answer within %s", h.Timeout))
	defer cancel()
	type outcome struct {
		out *Out
		err error
	}
	done := make(chan outcome, 1) // sent to once by the goroutine, never closed
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o = outcome{err: fmt.Errorf("panic: %v", p)}
			}
			done <- o
		}()
		o.out, o.err = h.Func(ctx, in)
	}()
	select {
	case o := <-done:
		return o.out, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
