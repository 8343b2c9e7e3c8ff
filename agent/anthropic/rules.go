package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/permission"
)

func ruleOf(r claude.PermissionRule) permission.Rule {
	return permission.Rule{Tool: r.Tool, Content: r.Content}
}

// target is what a call is about, for rules.
func target(tool string, input json.RawMessage, a tools.Access, dir string) permission.Target {
	t := permission.Target{Tool: tool, Path: a.Path, Host: a.Host, Dir: dir}
	if tool == "Bash" {
		t.Command, _ = commandOf(input)
	}
	return t
}

// allowed tells whether the rules allow a call. A file outside of the agent's
// folders is allowed by those that name it from the root, or all calls.
func allowed(rules []permission.Rule, t permission.Target, outside bool) bool {
	if outside && t.Path != "" {
		rules = slices.DeleteFunc(slices.Clone(rules), func(r permission.Rule) bool {
			return r.Content != "" && !strings.HasPrefix(r.Content, "//")
		})
	}
	_, ok := permission.Allowed(rules, t)
	return ok
}

// commandOf returns the command of a call of Bash, if it has one.
func commandOf(input json.RawMessage) (string, bool) {
	var bash struct {
		Command *string `json:"command"`
	}
	if json.Unmarshal(input, &bash) != nil || bash.Command == nil {
		return "", false
	}
	return strings.TrimSpace(*bash.Command), true
}
