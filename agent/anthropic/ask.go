package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// maxOverloads is how often a model may be overloaded before the fallback model
// takes over.
const maxOverloads = 3

// ask has the model answer, and says the answer block by block. It returns the
// failure that nothing could be done about, or neither that nor an error. When
// ctx ends, the answer is what had come until then.
func (t *turn) ask(ctx context.Context) (*answer, *failure, error) {
	t.said = nil
	each := func(json.RawMessage) {}
	if t.s.set.partial {
		each = func(event json.RawMessage) {
			if grows(event) {
				t.say(line(t.s.id, fields{"type": "stream_event", "event": event, "parent_tool_use_id": nil}))
			}
		}
	}
	return t.try(ctx, func(model string) *request {
		return newRequest(model, t.maxTokens(), t.s.set.Instructions, t.offered, t.s.conv.messages)
	}, each, t.grown)
}

// grows tells whether an event may be one of those that agent.Translate has words
// for: a piece of a text or of a thought.
func grows(event json.RawMessage) bool {
	return bytes.Contains(event, []byte("text_delta")) || bytes.Contains(event, []byte("thinking_delta"))
}

// grown says a block of an answer that is not complete. If an earlier attempt at
// the answer got that far, what it said does not count any more.
func (t *turn) grown(a *answer, block json.RawMessage) {
	more := fields{"uuid": newUUID()}
	if len(a.blocks) == 1 && len(t.said) > 0 {
		more["supersedes"], t.said = t.said, nil
	}
	t.said = append(t.said, more["uuid"].(string))
	t.say(assistantLine(t.s.id, a, []json.RawMessage{block}, nil, more))
}

func (t *turn) maxTokens() int {
	limit := t.s.p.opts.MaxTokens
	if limit <= 0 {
		limit = 32_000
	}
	return min(limit, t.s.p.prices.maxOutput(t.model))
}

// try sends a request until it is answered, there is no sense in another
// attempt, or ctx ends.
func (t *turn) try(ctx context.Context, make func(model string) *request, each func(json.RawMessage), grown func(*answer, json.RawMessage)) (*answer, *failure, error) {
	retries, overloads := max(t.s.p.opts.Retries, 0), 0
	for attempt := 1; ; attempt++ {
		start := time.Now()
		first := func(event json.RawMessage) {
			if t.s.set.OnFrame != nil {
				t.s.set.OnFrame()
			}
			if t.firstByte == 0 {
				t.firstByte = time.Since(t.began)
			}
			each(event)
		}
		a, err := t.s.p.client.stream(ctx, t.s.set.request, make(t.model), first, grown)
		t.apiTime += time.Since(start)
		if err == nil || ctx.Err() != nil {
			return a, nil, nil
		}
		f := failureOf(err)
		if f.request == "" {
			f.request = a.request
		}
		if f.status == 529 {
			overloads++
		}
		if trigger := t.fallback(f, overloads, attempt > retries); trigger != "" {
			t.fallBack(trigger)
			attempt, overloads = 0, 0
			continue
		}
		if f.limited() {
			t.say(line(t.s.id, fields{"type": "rate_limit_event", "rate_limit_info": fields{
				"status": "rejected", "resetsAt": f.reset.Unix(), "rateLimitType": f.kind,
			}}))
			return a, f, nil
		}
		if !f.again || attempt > retries {
			return a, f, nil
		}
		delay := f.delay(attempt)
		t.retrying(f, attempt, retries, delay)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return a, nil, nil
		}
	}
}

// retrying says that a request is sent again.
func (t *turn) retrying(f *failure, attempt, retries int, delay time.Duration) {
	var status any
	if f.status != 0 {
		status = f.status
	}
	t.say(systemLine(t.s.id, "api_retry", fields{
		"attempt": attempt, "max_retries": retries, "retry_delay_ms": delay.Milliseconds(), "error_status": status, "error": f.reason,
		"message": f.text,
	}))
}

// fallback tells why the other model is to take over; empty means that it is
// not.
func (t *turn) fallback(f *failure, overloads int, last bool) string {
	to := t.s.set.fallback
	switch {
	case to == "" || to == t.model || t.model != t.s.set.model:
		return ""
	case f.reason == claude.ErrorModelNotFound:
		return "model_not_found"
	case overloads >= maxOverloads:
		return "overloaded"
	case last && f.status >= 500:
		return "server_error"
	case last && f.again:
		return "last_resort"
	}
	return ""
}

// fallBack has the other model answer from now on, for this message.
func (t *turn) fallBack(trigger string) {
	from := t.model
	t.model = t.s.set.fallback
	t.say(systemLine(t.s.id, "model_fallback", fields{
		"trigger": trigger, "original_model": from, "fallback_model": t.model,
		"content": "Switched to " + t.model + " because " + from + " does not answer (" + trigger + ")",
	}))
}
