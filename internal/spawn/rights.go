package spawn

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
)

// Narrow returns the task of a child: what is asked for, as far as the parent may
// have it itself. Where a parent's task leaves something open, it has what defaults
// say; the place of the parent in the project, if they know it, is that of the bounds
// of its role. Limits are not looked at: the plan grants them.
//
// A tool, a host, a mode or a level beyond the parent's becomes the parent's; a folder
// outside of its own, and a variable that it does not have, are refused.
func Narrow(parent nestor.Task, defaults api.TaskOptions, s api.Spawn) (nestor.Task, error) {
	has, err := api.ParseTaskOptions(parent.Data)
	if err != nil {
		return nestor.Task{}, err
	}
	has.PermissionMode, has.Sandbox = or(has.PermissionMode, defaults.PermissionMode), or(has.Sandbox, defaults.Sandbox)
	has.Role, has.Delegation = or(has.Role, defaults.Role), or(has.Delegation, defaults.Delegation)
	if has.Tools == nil {
		has.Tools = defaults.Tools
	}
	if has.Hosts == nil {
		has.Hosts = defaults.Hosts
	}
	for _, host := range s.Hosts {
		if _, err := permission.ParseHost(host); err != nil {
			return nestor.Task{}, invalid("hosts: %v", err)
		}
	}
	t := nestor.Task{
		Agent: s.Agent, Input: s.Task, Provider: or(s.Provider, parent.Provider), Model: s.Model, Swarm: parent.Swarm, Schema: s.Schema, Limits: s.Limits,
		Priority: parent.Priority, Label: parent.Label,
	}
	if t.Model == "" && t.Provider == parent.Provider {
		t.Model = parent.Model
	}
	if t.Dir, err = within(parent.Dir, s.Dir); err != nil {
		return t, err
	}
	o := api.TaskOptions{
		Whole: has.Whole,
		Tools: permission.MeetTools(has.Tools, s.Tools), Role: or(s.Role, has.Role), Delegation: has.Delegation, Trace: has.Trace, AskFor: has.AskFor, Resources: has.Resources,
		PermissionMode: permission.StricterMode(has.PermissionMode, s.PermissionMode), Sandbox: stricter(has.Sandbox, s.Sandbox),
		Above: has.Above, Hosts: permission.MeetHosts(has.Hosts, s.Hosts),
	}
	if o.Hosts != nil {
		o.Sandbox = "strict" // which is what they are enforced at
	}
	// What has no role bounds those below by its tools, which are in theirs; and what
	// is bounded alike need not be said at each level.
	roles := []string{has.Role}
	if has.Agent != nil {
		roles = append(roles, has.Agent.Role)
	}
	for _, role := range roles {
		b := api.Bounds{Role: role, Tools: has.Tools, Swarm: parent.Swarm, Dir: parent.Dir, Subdir: defaults.Subdir}
		if role != "" && !slices.ContainsFunc(o.Above, func(a api.Bounds) bool { return reflect.DeepEqual(a, b) }) {
			o.Above = append(slices.Clip(o.Above), b)
		}
	}
	// What the child has of its parent gives way to what its own definition says.
	if s.Provider == "" {
		o.Yields = append(o.Yields, "provider")
	}
	if s.Model == "" {
		o.Yields = append(o.Yields, "model")
	}
	for _, choice := range []struct {
		of, name string
		list     []string
	}{{"permission_mode", s.PermissionMode, permission.Modes()}, {"sandbox", s.Sandbox, levels}} {
		if choice.name != "" && !slices.Contains(choice.list, choice.name) {
			return t, invalid("%s %.60q: there are %s", choice.of, choice.name, strings.Join(choice.list, ", "))
		}
	}
	for _, rule := range s.Tools {
		if _, err := permission.ParseRule(rule); err != nil && rule != "*" {
			return t, invalid("tools: %v", err)
		}
	}
	if o.Env, err = environment(has.Env, s.Env); err != nil {
		return t, err
	}
	if t.Data, err = json.Marshal(o); err != nil {
		return t, err
	}
	return t, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// levels are those of sandboxes, the strictest first.
var levels = []string{"strict", "files", "off"}

// stricter returns the level that is asked for, unless that of the parent is
// stricter. An unknown word, which may mean anything, is the strictest.
func stricter(has, asked string) string {
	if asked == "" {
		return has
	}
	if has == "" {
		return asked
	}
	return levels[min(max(0, slices.Index(levels, has)), max(0, slices.Index(levels, asked)))]
}

// within returns a folder of a child: below that of the parent, or the same.
func within(parent, asked string) (string, error) {
	if asked == "" {
		return parent, nil
	}
	if !filepath.IsAbs(asked) {
		asked = filepath.Join(parent, asked)
	}
	rest, err := filepath.Rel(parent, filepath.Clean(asked))
	if err != nil || !filepath.IsLocal(rest) {
		return "", forbidden("dir %.200q: a child works in the folder of its parent, %s, or below it", asked, parent)
	}
	return filepath.Clean(asked), nil
}

// environment returns the variables of a child: those of the parent, or of these the
// ones that are asked for.
func environment(has, asked []string) ([]string, error) {
	if asked == nil {
		return has, nil
	}
	for _, kv := range asked {
		if !slices.Contains(has, kv) {
			name, _, _ := strings.Cut(kv, "=")
			return nil, forbidden("env %.60s: the parent was not given it with this value, so its children are not", fmt.Sprintf("%q", name))
		}
	}
	return asked, nil
}
