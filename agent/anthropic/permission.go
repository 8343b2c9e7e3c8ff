package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/permission"
)

// gate is what decides about tool calls, and what was decided for good. Its
// methods may be called from any goroutine.
type gate struct {
	mu               sync.Mutex // guards what follows
	mode             claude.PermissionMode
	allow, deny, ask []permission.Rule
	hosts            map[string]bool // that calls were allowed to talk to
}

// grant remembers a host that somebody allowed.
func (g *gate) grant(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hosts == nil {
		g.hosts = map[string]bool{}
	}
	g.hosts[host] = true
}

// mayReach tells whether a tool may talk to a host: one that a call was allowed
// to, or a rule allows. Tools ask it when they do, also for where they are
// redirected to.
func (s *session) mayReach(host string) bool {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	t := permission.Target{Tool: "WebFetch", Host: host, Dir: s.dir}
	if slices.ContainsFunc(s.gate.deny, func(r permission.Rule) bool { return r.Stops(t) }) {
		return false
	}
	return s.gate.mode == claude.ModeBypass || s.gate.hosts[host] || allowed(s.gate.allow, t, false)
}

// inner are tools that touch nothing but the session itself.
var inner = []string{"TodoWrite", "TaskOutput", "TaskStop"}

func (g *gate) current() claude.PermissionMode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode
}

// update keeps what somebody decided for later calls too. Where the CLI would
// write it down does not matter: it holds for this agent.
func (g *gate) update(updates []claude.PermissionUpdate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range updates {
		list := map[claude.RuleBehavior]*[]permission.Rule{claude.RuleAllow: &g.allow, claude.RuleDeny: &g.deny, claude.RuleAsk: &g.ask}[u.Behavior]
		switch u.Type {
		case claude.UpdateSetMode:
			if slices.Contains(permissionModes, u.Mode) {
				g.mode = u.Mode
			}
		case claude.UpdateAddRules, claude.UpdateReplaceRules:
			if list == nil {
				continue
			}
			if u.Type == claude.UpdateReplaceRules {
				*list = nil
			}
			for _, r := range u.Rules {
				*list = append(*list, ruleOf(r))
			}
		case claude.UpdateRemoveRules:
			if list != nil {
				*list = slices.DeleteFunc(*list, func(r permission.Rule) bool {
					return slices.ContainsFunc(u.Rules, func(gone claude.PermissionRule) bool { return ruleOf(gone) == r })
				})
			}
		}
	}
}

// verdict is what was decided about a call.
type verdict struct {
	allowed   bool
	input     json.RawMessage // what the tool is given
	message   string          // why not, for the model
	by        string          // who says no: hook, rule, mode, other
	known     bool            // the host said no itself, and need not be told
	interrupt bool            // the turn is to end
	stop      bool            // a hook ends the turn
	why       string          // of stop
	contexts  []string
}

// asked is a call that waits for a verdict.
type asked struct {
	call
	tool   tools.Tool
	access tools.Access
}

// look finds out what the call would touch.
func (q *asked) look() (err error) {
	q.access = tools.Access{}
	if q.tool.Access != nil {
		q.access, err = accessOf(q.tool, q.Input)
	}
	if err == nil && q.access.Input != nil {
		q.Input = q.access.Input
	}
	if err == nil && (!isObject(q.Input) || deep(q.Input)) {
		err = fmt.Errorf("the input of %s is not a JSON object that can be read", q.Name)
	}
	return err
}

// accessOf asks a tool what a call would touch. Its panic is an error of the
// call.
func accessOf(tool tools.Tool, input json.RawMessage) (a tools.Access, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = tools.Access{}, fmt.Errorf("%s broke: %v", tool.Name, p)
		}
	}()
	return tool.Access(input)
}

// judge decides about a call, in the CLI's order: hooks, rules that deny, rules
// that ask, the mode, rules that allow, and who is asked last. Its error is for
// the model: the input is wrong.
func (s *session) judge(ctx context.Context, c call, tool tools.Tool) (verdict, error) {
	q := &asked{call: c, tool: tool}
	if err := q.look(); err != nil {
		return verdict{}, err
	}
	if tool.Name == outputTool && s.set.schema != nil {
		return verdict{allowed: true, input: q.Input}, nil
	}
	v, said, err := s.askHooks(ctx, q)
	if err != nil || v.message != "" || v.stop {
		return v, err
	}
	s.gate.mu.Lock()
	mode, allow, deny, ask := s.gate.mode, s.gate.allow, s.gate.deny, s.gate.ask
	s.gate.mu.Unlock()
	about := target(tool.Name, q.Input, q.access, s.dir)
	stops := func(r permission.Rule) bool { return r.Stops(about) }

	v.input = q.Input
	no := func(by, format string, args ...any) (verdict, error) {
		v.by, v.message = by, fmt.Sprintf(format, args...)
		return v, nil
	}
	if i := slices.IndexFunc(deny, stops); i >= 0 {
		return no("rule", "Permission to use %s was denied by the rule %s. Do it another way, or say what you would need.", tool.Name, deny[i])
	}
	why := "no rule allows it"
	if said == claude.HookAsk || slices.ContainsFunc(ask, stops) {
		why = "a hook or a rule wants it asked about"
	} else {
		switch {
		case said == claude.HookAllow, mode == claude.ModeBypass, slices.Contains(inner, tool.Name):
			v.allowed = true
		case q.access.Outside: // of no mode's own accord
		case tool.ReadOnly && q.access.Host == "" && origin(tool.Name) == nil:
			v.allowed = true
		case mode == claude.ModeAcceptEdits && q.access.Edits && q.access.Path != "":
			v.allowed = true
		}
		if !v.allowed && mode == claude.ModePlan && !tool.ReadOnly {
			return no("mode", "This is plan mode: look, but change nothing. %s was not run. Say what you plan to do.", tool.Name)
		}
		v.allowed = v.allowed || allowed(allow, about, q.access.Outside)
	}
	if v.allowed {
		return s.granted(q, v), nil
	}
	if mode == claude.ModeDontAsk {
		return no("mode", "Permission to use %s was not given: %s, and this session asks nobody. Do it another way, or say what you would need.", tool.Name, why)
	}
	return s.granted(q, s.askHost(ctx, q, v, why)), nil
}

// granted lets the tool reach what it was allowed to.
func (s *session) granted(q *asked, v verdict) verdict {
	if v.allowed && q.access.Host != "" {
		s.gate.grant(q.access.Host)
	}
	return v
}

// askHooks asks the hooks about a call. They may change its input.
func (s *session) askHooks(ctx context.Context, q *asked) (v verdict, said claude.HookPermission, err error) {
	var input json.RawMessage
	rank := map[claude.HookPermission]int{claude.HookAllow: 1, claude.HookAsk: 2, claude.HookDefer: 3, claude.HookDeny: 3}
	reason := ""
	h := hear(ctx, s, "PreToolUse", q.Name, q.ID, s.set.Hooks.PreToolUse,
		claude.PreToolUseInput{HookInput: s.about("PreToolUse"), Tool: q.Name, ToolInput: q.Input, ToolUseID: q.ID, MCPServer: origin(q.Name)},
		func(o *claude.PreToolUseOutput) (claude.HookOutput, string) {
			p := o.Permission
			if p == "" && o.Approve {
				p = claude.HookAllow
			}
			if !o.Async && rank[p] > rank[said] {
				said, reason = p, o.PermissionReason
			}
			if !o.Async && o.Input != nil {
				input = o.Input
			}
			return o.HookOutput, o.Context
		})
	v.contexts, v.stop, v.why = h.contexts, h.stop, h.why
	switch {
	case h.block:
		v.by, v.message, v.known = "hook", fmt.Sprintf("PreToolUse:%s hook error: %s", q.Name, h.reason), true
	case said == claude.HookDeny:
		v.by, v.message, v.known = "hook", fmt.Sprintf("PreToolUse:%s hook error: %s", q.Name, or(reason, "the call was denied")), true
	case said == claude.HookDefer:
		v.by, v.message = "hook", "The call was put off by a hook, which this session cannot do: it was not run."
	case input != nil && !isObject(input):
		v.by, v.message = "hook", "A hook changed the input to what is not a JSON object: the call was not run."
	case input != nil:
		q.Input = input
		err = q.look()
	}
	return v, said, err
}

// askHost asks who is there to be asked: hooks, then Config.CanUseTool.
func (s *session) askHost(ctx context.Context, q *asked, v verdict, why string) verdict {
	r := s.requestOf(q, why)
	var decision claude.Decision
	h := hear(ctx, s, "PermissionRequest", q.Name, q.ID, s.set.Hooks.PermissionRequest,
		claude.PermissionRequestInput{HookInput: s.about("PermissionRequest"), Tool: q.Name, ToolInput: q.Input, MCPServer: r.MCPServer, Suggestions: r.Suggestions},
		func(o *claude.PermissionRequestOutput) (claude.HookOutput, string) {
			if decision == nil && !o.Async {
				decision = value(o.Decision)
			}
			return o.HookOutput, ""
		})
	if h.block {
		decision = claude.Deny{Message: h.reason}
	}
	var err error
	asked := decision != nil || s.set.CanUseTool != nil
	if _, open := decision.(claude.Elsewhere); decision == nil || open {
		switch s.set.CanUseTool {
		case nil:
			decision = claude.Deny{Message: fmt.Sprintf("Permission to use %s was not given: %s, and nobody is there to be asked. Do it another way, or say what you would need.", q.Name, why)}
		default:
			s.hookNotification(ctx, "permission_prompt", "Permission is needed to use "+q.Name)
			decision, err = s.canUse(ctx, r)
			decision = value(decision)
		}
	}
	v.by, v.known = "other", v.known || asked
	switch d := decision.(type) {
	case claude.Allow:
		if d.Input != nil && !isObject(d.Input) {
			v.message = "The call was allowed with an input that is not a JSON object: it was not run."
			return v
		}
		if d.Input != nil {
			q.Input = d.Input
			if err := q.look(); err != nil {
				v.message = "The call was allowed with another input, which is wrong: " + err.Error()
				return v
			}
			v.input = q.Input
		}
		s.gate.update(d.Updates)
		v.allowed = true
	case claude.Deny:
		v.message, v.interrupt = or(d.Message, "The call was denied."), d.Interrupt
	default:
		v.message = "Nobody decided about the call: it was not run."
		if err != nil {
			v.message = "Tool permission request failed: Error: " + err.Error()
		}
	}
	return v
}

// canUse asks Config.CanUseTool, whose panic is a failure to decide.
func (s *session) canUse(ctx context.Context, r *claude.PermissionRequest) (d claude.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	d, err = s.set.CanUseTool(ctx, r)
	if err != nil {
		d = nil
	}
	return d, err
}

// value returns the decision that a pointer points to.
func value(d claude.Decision) claude.Decision {
	switch p := d.(type) {
	case *claude.Allow:
		if p != nil {
			return *p
		}
	case *claude.Deny:
		if p != nil {
			return *p
		}
	case *claude.Elsewhere:
	default:
		return d
	}
	return nil
}

// requestOf is the question about a call, as the CLI would ask it.
func (s *session) requestOf(q *asked, why string) *claude.PermissionRequest {
	r := &claude.PermissionRequest{
		ID: newUUID(), Tool: q.Name, Input: q.Input, ToolUseID: q.ID, MCPServer: origin(q.Name), DisplayName: q.Name,
		Reason: why, ReasonType: "other",
	}
	var about struct {
		Description string `json:"description"`
	}
	if json.Unmarshal(q.Input, &about) == nil {
		r.Description = about.Description
	}
	if q.access.Outside || q.access.Edits {
		r.BlockedPath = q.access.Path
	}
	always := claude.PermissionRule{Tool: q.Name}
	command, ok := commandOf(q.Input)
	switch {
	case q.Name == "Bash" && ok && permission.Simple(command):
		always.Content = command
	case q.Name == "Bash": // what cannot be told apart cannot be allowed for good
		always.Tool = ""
	case q.access.Host != "":
		always.Content = "domain:" + q.access.Host
	case q.access.Edits && !q.access.Outside:
		always.Tool = ""
		r.Suggestions = append(r.Suggestions, claude.PermissionUpdate{Type: claude.UpdateSetMode, Mode: claude.ModeAcceptEdits, Destination: claude.ToSession})
	}
	if always.Tool != "" {
		r.Suggestions = append(r.Suggestions, claude.PermissionUpdate{
			Type: claude.UpdateAddRules, Rules: []claude.PermissionRule{always}, Behavior: claude.RuleAllow, Destination: claude.ToSession,
		})
	}
	raw, err := json.Marshal(struct {
		Subtype string `json:"subtype"`
		*claude.PermissionRequest
	}{"can_use_tool", r})
	if err == nil {
		r.Raw = raw
	}
	return r
}

// hookDenied tells hooks that a call was denied. It returns what the model is
// told.
func (s *session) hookDenied(ctx context.Context, c call, v verdict) string {
	retry := false
	hear(ctx, s, "PermissionDenied", c.Name, c.ID, s.set.Hooks.PermissionDenied,
		claude.PermissionDeniedInput{HookInput: s.about("PermissionDenied"), Tool: c.Name, ToolInput: c.Input, ToolUseID: c.ID, MCPServer: origin(c.Name), Reason: v.message},
		func(o *claude.PermissionDeniedOutput) (claude.HookOutput, string) {
			retry = retry || o.Retry && !o.Async
			return o.HookOutput, ""
		})
	if retry {
		return strings.TrimSpace(v.message + "\nYou may try again.")
	}
	return v.message
}
