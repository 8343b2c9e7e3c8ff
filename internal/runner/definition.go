package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// Brief is what the definition of its agent makes of a run. The zero value is that
// of a run without one: the task's input is all.
type Brief struct {
	Instructions string                     // the system prompt; empty means none
	Message      string                     // what the agent is told; empty means the task's input
	Servers      map[string]agent.MCPServer // that the agent has, by name
	Approved     []string                   // tools that need no question, though the rights do not name them
	// Denied tells which calls of tools the agent may not make; nil means none.
	Denied   func(tool string, input json.RawMessage) bool
	Hooks    []Hook         // what is run when something happens
	Metadata map[string]any // of the result
}

// brief makes of c the config of the agent that the definition describes.
func (r *Runner) brief(ctx context.Context, run Run, place Place, rights Rights, c *agent.Config, talk *conversation) error {
	if r.opts.Brief == nil {
		return nil
	}
	b, err := r.opts.Brief(ctx, run, place, rights)
	if err != nil {
		return err
	}
	talk.brief = b
	c.Instructions = b.Instructions
	if len(b.Servers) > 0 {
		c.MCPServers = maps.Clone(c.MCPServers)
		if c.MCPServers == nil {
			c.MCPServers = map[string]agent.MCPServer{}
		}
		maps.Copy(c.MCPServers, b.Servers)
	}
	if len(b.Approved) > 0 {
		c.CanUseTool = approving(b.Approved, c.CanUseTool)
	}
	if b.Denied != nil {
		c.Hooks.PreToolUse = append(slices.Clip(c.Hooks.PreToolUse), denying(run.Task.Agent, b.Denied))
	}
	talk.wanted = c.AllowedTools
	return r.addHooks(ctx, talk, b.Hooks, func(tool string, input json.RawMessage) Verdict {
		switch {
		case b.Denied != nil && b.Denied(tool, input):
			return Verdict{Reason: deniedBy(run.Task.Agent, tool), Rule: "definition"}
		case rights.Decide != nil:
			return rights.Decide(tool, input)
		}
		return Verdict{Allowed: true}
	}, &c.Hooks)
}

func deniedBy(agent, tool string) string {
	return fmt.Sprintf("the definition of the agent %s denies it %s", agent, tool)
}

// approving approves tools, and leaves the others to ask, or denies them.
func approving(tools []string, ask func(context.Context, *claude.PermissionRequest) (claude.Decision, error)) func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
	return func(ctx context.Context, q *claude.PermissionRequest) (claude.Decision, error) {
		if slices.ContainsFunc(tools, func(name string) bool { return q.Tool == name || strings.HasPrefix(q.Tool, name+"__") }) {
			return claude.Allow{}, nil
		}
		if ask != nil {
			return ask(ctx, q)
		}
		return claude.Deny{Message: "no rule allows it, and nobody is there to be asked"}, nil
	}
}

// denying denies tools, and leaves the others to those who decide about them.
func denying(name string, denied func(string, json.RawMessage) bool) claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput] {
	return claude.GateEveryCall(func(_ context.Context, in *claude.PreToolUseInput) (claude.Decision, error) {
		if denied(in.Tool, in.ToolInput) {
			return claude.Deny{Message: deniedBy(name, in.Tool)}, nil
		}
		return claude.Elsewhere{}, nil
	})
}

// missing returns which of the tools that an agent is to have are not among those
// that there are. The names of some differ by the CLI's version.
func missing(wanted, there []string) []string {
	var list []string
	for _, rule := range wanted {
		name, _, _ := strings.Cut(rule, "(")
		name = strings.TrimSpace(name)
		found := slices.ContainsFunc(there, func(tool string) bool {
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				return strings.HasPrefix(tool, prefix)
			}
			return tool == name || sameTool(tool) == sameTool(name) || strings.HasPrefix(name, "mcp__") && strings.HasPrefix(tool, name+"__")
		})
		if !found && name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// sameTool returns one name for tools that have two.
func sameTool(name string) string {
	switch name {
	case "Task":
		return "Agent"
	case "KillShell", "KillBash":
		return "TaskStop"
	case "BashOutput":
		return "TaskOutput"
	}
	return name
}

// lacking takes note of tools that the agent is to have and does not.
func (c *conversation) lacking(ctx context.Context, there []string) error {
	list := missing(c.wanted, there)
	if len(list) == 0 {
		return nil
	}
	c.note("missing_tools", list)
	return c.progress(ctx, "it does not have what was asked for: "+strings.Join(list, ", "))
}

// note puts something into the metadata of the result.
func (c *conversation) note(key string, value any) {
	if c.last.Metadata == nil {
		c.last.Metadata = map[string]any{}
	}
	c.last.Metadata[key] = value
}

// input is what the agent is told.
func (c *conversation) input() string {
	if c.brief.Message != "" {
		return c.brief.Message
	}
	return c.run.Task.Input
}
