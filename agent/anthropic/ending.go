package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// ending is how a turn ends.
type ending struct {
	subtype  string
	failed   bool
	terminal claude.TerminalReason
	text     string   // of a result that is not an error_…
	errors   []string // of one that is
	status   int
}

// noOutput is the end of a turn whose result never followed the schema.
func (t *turn) noOutput(tries int, last error) *ending {
	return &ending{
		subtype: claude.ResultErrorMaxStructuredOutputRetries, failed: true, terminal: claude.TerminalStructuredOutputRetryExhausted,
		errors: []string{fmt.Sprintf("Failed to provide valid structured output after %d attempts — last %s error: %v", tries, outputTool, last)},
	}
}

// overBudget ends a turn that cost too much. Its calls are not made.
func (t *turn) overBudget(limit float64) (*ending, error) {
	if err := t.skipCalls(overBudget); err != nil {
		return nil, err
	}
	return &ending{
		subtype: claude.ResultErrorMaxBudget, failed: true, terminal: claude.TerminalBudgetExhausted,
		errors: []string{fmt.Sprintf("Reached maximum budget ($%v)", limit)},
	}, nil
}

// skipCalls gives the calls that are not made their results.
func (t *turn) skipCalls(why said) error {
	for _, c := range t.s.conv.open() {
		if err := t.report(&outcome{call: c, err: why}); err != nil {
			return err
		}
	}
	return nil
}

// refused decides what follows when the API stopped the answer: once the model
// goes on with that noted, as in CLI 2.1.325.
func (t *turn) refused(ctx context.Context, a *answer) (*ending, error) {
	s := t.s
	if err := t.skipCalls(notRun); err != nil {
		return nil, err
	}
	if t.refusals++; t.refusals == 1 {
		t.say(systemLine(s.id, "informational", fields{
			"content": "The safeguards of " + t.model + " stopped the response above · continuing once with that noted", "level": "notice",
		}))
		return nil, t.note(refusedText)
	}
	var details struct {
		Category    *string `json:"category"`
		Explanation *string `json:"explanation"`
	}
	json.Unmarshal(a.stopDetails, &details)
	t.say(systemLine(s.id, "model_refusal_no_fallback", fields{
		"original_model": t.model, "request_id": a.request, "api_refusal_category": details.Category,
		"api_refusal_explanation": details.Explanation, "refused_user_message_uuid": s.prompt, "content": "",
	}))
	return t.failed(ctx, &failure{
		reason: claude.ErrorInvalidRequest, request: a.request,
		text: "API Error: the safeguards of " + t.model + " stopped the answer twice. Rephrase the request in a new session, or use another model.",
	})
}

// failed ends a turn that the API would not go on with.
func (t *turn) failed(ctx context.Context, f *failure) (*ending, error) {
	s := t.s
	t.reason = f.reason
	s.hookStopFailure(ctx, f)
	a := &answer{id: newUUID(), model: synthetic, request: f.request}
	stop := "stop_sequence"
	if t.refusals > 1 {
		stop = "refusal"
	}
	more := fields{"error": f.reason, "is_api_error_message": true}
	if f.status != 0 {
		more["api_error_status"], more["api_error_type"] = f.status, f.kind
	}
	if err := t.tell(assistantLine(s.id, a, []json.RawMessage{textBlock(f.text)}, stop, more)); err != nil {
		return nil, err
	}
	t.stopReason = stop
	end := &ending{subtype: claude.ResultSuccess, failed: true, terminal: claude.TerminalAPIError, text: f.text, status: f.status}
	if f.tooLong() {
		end.terminal = claude.TerminalPromptTooLong
	}
	return end, nil
}

// refilled ends a turn whose conversation is too long again each time that it
// was shortened.
func (t *turn) refilled() (*ending, error) {
	text := fmt.Sprintf("API Error: the conversation was too long for the window of %s %d times in a row, however it was shortened. Read less at once, or use a model with a larger window.", t.model, t.refills)
	a := &answer{id: newUUID(), model: synthetic}
	t.reason = claude.ErrorInvalidRequest
	return &ending{subtype: claude.ResultSuccess, failed: true, terminal: claude.TerminalRapidRefillBreaker, text: text},
		t.tell(assistantLine(t.s.id, a, []json.RawMessage{textBlock(text)}, "stop_sequence", fields{"error": t.reason, "is_api_error_message": true}))
}

// cutShort ends a turn whose answer was cut by the end of its context. What the
// model had said stays said.
func (t *turn) cutShort(a *answer) (*ending, error) {
	if spoken := a.spoken(); len(spoken) > 0 {
		l := assistantLine(t.s.id, &answer{id: a.id, model: a.model, request: a.request}, spoken, nil, fields{"aborted": true})
		if err := t.s.record(l); err != nil {
			return nil, err
		}
		if a.partial != nil { // the others were said
			t.say(assistantLine(t.s.id, a, spoken[len(spoken)-1:], nil, fields{"aborted": true}))
		}
	}
	return t.interrupted(claude.TerminalAbortedStreaming)
}

// interrupted ends a turn that somebody stopped.
func (t *turn) interrupted(reason claude.TerminalReason) (*ending, error) {
	text := userInterrupt
	if reason == claude.TerminalAbortedTools {
		text = toolsInterrupt
	}
	t.turns++
	return &ending{
		subtype: claude.ResultErrorDuringExecution, failed: true, terminal: reason,
		errors: []string{"the turn was interrupted"},
	}, t.tell(userLine(t.s.id, []json.RawMessage{textBlock(text)}, nil))
}

// resultLine is the result of the turn, as the CLI writes it.
func (t *turn) resultLine(end *ending) json.RawMessage {
	s := t.s
	f := fields{
		"type": "result", "subtype": end.subtype, "is_error": end.failed, "num_turns": t.turns,
		"duration_ms": time.Since(t.began).Milliseconds(), "duration_api_ms": t.apiTime.Milliseconds(),
		"usage": t.used.wire(), "modelUsage": s.conv.spent.wire(s.p.prices), "total_cost_usd": nil,
		"permission_denials": t.denials, "stop_reason": nil,
		"queued_turn_count": 0, "result_index": s.conv.results, "user_message_uuid": s.prompt,
	}
	if end.terminal != "" {
		f["terminal_reason"] = end.terminal
	}
	if t.denials == nil {
		f["permission_denials"] = []fields{}
	}
	if usd, known := s.conv.spent.cost(); known {
		f["total_cost_usd"] = usd
	}
	if t.stopReason != "" {
		f["stop_reason"] = t.stopReason
	}
	if t.firstByte > 0 {
		f["ttft_ms"] = t.firstByte.Milliseconds()
	}
	if end.errors != nil {
		f["errors"] = end.errors
	} else {
		f["result"], f["api_error_status"] = end.text, nil
	}
	if end.status != 0 {
		f["api_error_status"] = end.status
	}
	if output, _, _ := t.given(); output != nil && !end.failed {
		f["structured_output"] = output
	}
	return line(s.id, f)
}
