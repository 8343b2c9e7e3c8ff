package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
)

// maxParallel is how many calls that only read run side by side.
const maxParallel = 10

// The results of calls that were not made.
const (
	notRun         = "The call was not run: the turn was stopped before it."
	rejected       = "The call was not run: it was rejected, and the turn was stopped. Wait for what you are told next."
	overBudget     = "The call was not run: the budget for this message is spent."
	userInterrupt  = "[Request interrupted by user]"
	toolsInterrupt = "[Request interrupted by user for tool use]"
)

// said is an error in the very words that the model reads.
type said string

func (s said) Error() string { return string(s) }

// outcome is what became of a call.
type outcome struct {
	call
	result    tools.Result
	err       error // for the model
	ran       bool
	denied    *verdict // nil if it was not denied
	interrupt bool     // the turn is to end, as if the user had stopped it
	stop      bool     // a hook ends the turn
	why       string
	contexts  []string
}

// runCalls makes the calls of an answer: those that only read side by side, the
// others alone, in their order. Every call gets a result, whatever happens. It
// returns whether and why a hook or a person ended the turn.
func (t *turn) runCalls(ctx context.Context, calls []call) (ended *outcome, err error) {
	var batch []claude.BatchCall
	var contexts []string
	for len(calls) > 0 {
		group := calls[:t.side(calls)]
		calls = calls[len(group):]
		outcomes := make(chan *outcome, len(group)) // sent to once for each call
		var running sync.WaitGroup
		if ended != nil || ctx.Err() != nil {
			for _, c := range group {
				outcomes <- &outcome{call: c, err: said(notRun)}
			}
		} else {
			slots := make(chan struct{}, maxParallel)
			for _, c := range group {
				running.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					outcomes <- t.s.make(ctx, c, t.tools)
				})
			}
		}
		for range group {
			o := <-outcomes
			if failed := t.report(o); failed != nil && err == nil {
				err, ended = failed, o
			}
			if (o.interrupt || o.stop) && ended == nil {
				ended = o
			}
			contexts = append(contexts, o.contexts...)
			batch = append(batch, claude.BatchCall{Tool: o.Name, ToolInput: o.Input, ToolUseID: o.ID, Response: o.response()})
		}
		running.Wait()
	}
	if err != nil {
		return ended, err
	}
	if ctx.Err() == nil && ended == nil {
		h := hear(ctx, t.s, "PostToolBatch", "", "", t.s.set.Hooks.PostToolBatch,
			claude.PostToolBatchInput{HookInput: t.s.about("PostToolBatch"), Calls: batch}, withContext)
		contexts = append(contexts, h.contexts...)
		if h.block {
			contexts = append(contexts, "PostToolBatch hook feedback: "+h.reason)
		}
		if h.stop {
			ended = &outcome{stop: true, why: h.why}
		}
	}
	if len(contexts) > 0 {
		err = t.hint(reminder(strings.Join(contexts, "\n")))
	}
	return ended, err
}

// side returns how many of the first calls may run side by side, at least one.
func (t *turn) side(calls []call) int {
	n := 0
	for n < len(calls) && t.tools[calls[n].Name].ReadOnly {
		n++
	}
	return max(n, 1)
}

// report records and says the result of a call.
func (t *turn) report(o *outcome) error {
	text, isError := o.result.Text, o.err != nil
	if isError {
		text = o.err.Error()
	}
	meta := fields{"id": o.ID}
	if o.denied != nil {
		t.denials = append(t.denials, fields{"tool_name": o.Name, "tool_use_id": o.ID, "tool_input": o.Input})
		meta["non_execution_kind"] = "permission-rule"
		meta["permission_decision"] = fields{"decision": "reject", "source": o.denied.by}
		if !o.denied.known { // seen in 2.1.325
			t.say(systemLine(t.s.id, "permission_denied", fields{
				"tool_name": o.Name, "tool_use_id": o.ID, "message": text,
				"decision_reason_type": o.denied.by, "decision_reason": o.denied.message,
			}))
		}
	}
	if o.interrupt {
		text = rejected
	}
	short, err := t.s.kit.bound(o.ID, text)
	if err != nil {
		t.s.log.Warn("a long result could not be kept", "session", t.s.id, "call", o.ID, "error", err)
		short = cut(or(short, text))
	}
	data := any(o.result.Data)
	if data == nil || isError {
		data = short
	}
	if isError {
		data = "Error: " + short
	}
	if raw, err := json.Marshal(data); err != nil || deep(raw) {
		data = short
	}
	t.turns++
	return t.tell(userLine(t.s.id, []json.RawMessage{resultBlock(o.ID, short, o.result.Blocks, isError)}, fields{
		"tool_use_result": data, "tool_result_meta": []fields{meta},
	}))
}

// response is what hooks are told of the result of a call, nil if there was
// none.
func (o *outcome) response() json.RawMessage {
	if o.err != nil {
		return nil
	}
	data := o.result.Data
	if data == nil {
		data = o.result.Text
	}
	raw, err := json.Marshal(data)
	if err != nil || deep(raw) {
		raw, _ = json.Marshal(o.result.Text) // a text always marshals
	}
	return raw
}

// make decides about a call and makes it. It may be called from any goroutine.
func (s *session) make(ctx context.Context, c call, all map[string]tools.Tool) *outcome {
	o := &outcome{call: c}
	tool, ok := all[c.Name]
	switch {
	case !ok:
		o.err = said("Error: No such tool available: " + c.Name)
		return o
	case malformed(c.Input):
		o.err = fmt.Errorf("the input of %s was not a JSON object: write it again", c.Name)
		return o
	}
	v, err := s.judge(ctx, c, tool)
	o.contexts, o.stop, o.why = v.contexts, v.stop, v.why
	switch {
	case err != nil:
		o.err = err
	case ctx.Err() != nil:
		o.err = said(notRun)
	case v.stop && v.message == "":
		o.err = said("The call was not run: a hook stopped the turn. " + v.why)
	case !v.allowed:
		o.denied, o.interrupt = &v, v.interrupt
		o.err = said(s.hookDenied(ctx, c, v))
	default:
		o.Input = v.input
		s.run(ctx, o, tool)
	}
	return o
}

// run makes a call that was allowed, and tells hooks how it went.
func (s *session) run(ctx context.Context, o *outcome, tool tools.Tool) {
	start := time.Now()
	o.ran = true
	living := s.living()
	o.result, o.err = guarded(ctx, tool, o.Input)
	living()
	took := float64(time.Since(start).Milliseconds())
	cancelled := o.err != nil && ctx.Err() != nil
	if cancelled {
		o.err = said(interruptedCall)
	}
	if o.err != nil {
		h := hear(context.WithoutCancel(ctx), s, "PostToolUseFailure", o.Name, o.ID, s.set.Hooks.PostToolUseFailure,
			claude.PostToolUseFailureInput{
				HookInput: s.about("PostToolUseFailure"), Tool: o.Name, ToolInput: o.Input, ToolUseID: o.ID, MCPServer: origin(o.Name),
				Error: o.err.Error(), Interrupted: cancelled, DurationMS: took,
			}, withContext)
		o.contexts = append(o.contexts, h.contexts...)
		return
	}
	var output json.RawMessage
	h := hear(context.WithoutCancel(ctx), s, "PostToolUse", o.Name, o.ID, s.set.Hooks.PostToolUse,
		claude.PostToolUseInput{
			HookInput: s.about("PostToolUse"), Tool: o.Name, ToolInput: o.Input, ToolUseID: o.ID, MCPServer: origin(o.Name),
			Response: o.response(), DurationMS: took,
		},
		func(p *claude.PostToolUseOutput) (claude.HookOutput, string) {
			if out := p.ToolOutput; out != nil && !p.Async {
				output = out
			} else if out := p.MCPToolOutput; out != nil && !p.Async {
				output = out
			}
			return p.HookOutput, p.Context
		})
	if output != nil {
		o.result = tools.Result{Text: textOf(output), Data: output}
	}
	o.contexts = append(o.contexts, h.contexts...)
	if h.block {
		o.contexts = append(o.contexts, fmt.Sprintf("PostToolUse:%s hook feedback: %s", o.Name, h.reason))
	}
	if h.stop && !o.stop {
		o.stop, o.why = true, h.why
	}
}

// pulse is how often a tool that runs is a sign of life.
const pulse = 5 * time.Second

// living gives signs of life until stop is called: a tool runs in this process,
// and has limits of its own.
func (s *session) living() (stop func()) {
	if s.set.OnFrame == nil {
		return func() {}
	}
	s.set.OnFrame()
	var mu sync.Mutex // held while a sign is given; guards timer and stopped
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(pulse, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		s.set.OnFrame()
		timer.Reset(pulse)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// guarded runs a tool, whose panic is an error of the call.
func guarded(ctx context.Context, tool tools.Tool, input json.RawMessage) (r tools.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = tools.Result{}, fmt.Errorf("%s broke: %v", tool.Name, p)
		}
	}()
	return tool.Run(ctx, input)
}

// textOf is a hook's output for the model: a text, or JSON.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
