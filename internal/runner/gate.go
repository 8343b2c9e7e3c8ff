package runner

import (
	"context"
	"encoding/json"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/claude"
)

// gate has every tool call decided about, and puts what is decided on record before
// it is carried out.
func (c *conversation) gate(decide func(string, json.RawMessage) Verdict) claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput] {
	return claude.GateEveryCall(func(ctx context.Context, in *claude.PreToolUseInput) (claude.Decision, error) {
		v := decide(in.Tool, in.ToolInput)
		if err := c.say(ctx, &nestor.Decision{Tool: in.Tool, ToolUseID: in.ToolUseID, Allowed: v.Allowed, Reason: v.Reason, Rule: v.Rule}); err != nil {
			return claude.Deny{Message: "what is decided about it cannot be put on record"}, err
		}
		if v.Allowed {
			return claude.Allow{}, nil
		}
		return claude.Deny{Message: v.Reason}, nil
	})
}
