package runner

import (
	"context"
	"encoding/json"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/claude"
)

// gate has every tool call decided about, and puts what is decided on record before
// it is carried out. What a person is to decide is left to person, if one is there.
func (c *conversation) gate(decide func(string, json.RawMessage) Verdict, attended bool) claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput] {
	return claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{
		BlockOnFailure: true,
		Func: func(ctx context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
			v := decide(in.Tool, in.ToolInput)
			if v.Ask && attended {
				c.ask(in.ToolUseID, v.Reason)
				return &claude.PreToolUseOutput{Permission: claude.HookAsk, PermissionReason: v.Reason}, nil
			}
			if v.Ask {
				v.Reason += " Nobody is there to be asked."
			}
			if err := c.decided(ctx, in.Tool, in.ToolUseID, v); err != nil {
				return nil, err
			}
			if v.Allowed {
				return &claude.PreToolUseOutput{Permission: claude.HookAllow}, nil
			}
			return &claude.PreToolUseOutput{Permission: claude.HookDeny, PermissionReason: v.Reason}, nil
		},
	}
}

// ask takes note of why a person is asked about a call.
func (c *conversation) ask(use, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[string]string{}
	}
	c.asked[use] = reason
}

// askedFor returns why a person is asked about a call; empty if it was not the
// policy that wants it. It is asked once.
func (c *conversation) askedFor(use string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	reason := c.asked[use]
	delete(c.asked, use)
	return reason
}

// decided puts a decision on record.
func (c *conversation) decided(ctx context.Context, tool, use string, v Verdict) error {
	return c.say(ctx, &nestor.Decision{Tool: tool, ToolUseID: use, Allowed: v.Allowed, Reason: v.Reason, Rule: v.Rule})
}

// person has a person decide about the calls that are asked about.
func (c *conversation) person(ask func(context.Context, string, json.RawMessage, string) (Verdict, error)) func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
	return func(ctx context.Context, r *claude.PermissionRequest) (claude.Decision, error) {
		reason := c.askedFor(r.ToolUseID)
		if reason == "" {
			reason = "May it use " + r.Tool + "?"
		}
		v, err := ask(ctx, r.Tool, r.Input, reason)
		if err != nil {
			return claude.Deny{Message: "nobody could be asked"}, err
		}
		if err := c.decided(ctx, r.Tool, r.ToolUseID, v); err != nil {
			return claude.Deny{Message: "what is decided about it cannot be put on record"}, err
		}
		if v.Allowed {
			return claude.Allow{}, nil
		}
		return claude.Deny{Message: v.Reason}, nil
	}
}
