package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// Agents says which definitions of agents there are. The zero value has those of
// the project, and trusts none of what they want to be executed or approved.
type Agents struct {
	// User is the user's folder of agents, commands and skills, as ~/.claude; empty
	// means none.
	User string
	// Trusts tells whether the user trusts what a project's definition wants, see
	// [agentfile.Definition.Wishes]; nil trusts nothing. It may be called from any
	// goroutine.
	Trusts func(agentfile.Definition) bool
}

// agents knows the definitions, and makes tasks of them.
type agents struct {
	opts    Agents
	library *agentfile.Library
	log     *eventlog.Log
	models  map[string]string // by tier
	own     defaults          // of tasks that do not say
}

// newAgents returns the definitions of a project, for a worker with these options.
func newAgents(project string, o Agents, w Worker, log *eventlog.Log) *agents {
	return &agents{
		opts: o, log: log, models: w.Models, own: defaults{tools: w.Tools, mode: w.Mode, role: w.Role},
		library: agentfile.NewLibrary(agentfile.Options{Project: project, User: o.User, Roles: slices.Sorted(maps.Keys(w.Roles))}),
	}
}

// definitionsRoot is where definitions are kept beside the log: they belong to no
// tree, so that those of a thousand runs are kept once.
const definitionsRoot = "agents"

// define makes of a task that names an agent one that says all that the agent's
// definition does, and keeps the definition, so that the run has it whatever
// becomes of its file. A task without an agent stays as it is.
func (a *agents) define(ctx context.Context, t *nestor.Task) error {
	o, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return err
	}
	o.Agent = nil // nobody else says what is in it
	if t.Agent != "" {
		set, err := a.library.Load()
		d, findErr := set.Find(t.Agent, t.Swarm)
		if findErr != nil {
			return findErr
		}
		if err != nil {
			return err
		}
		if err := a.allowed(d); err != nil {
			return err
		}
		if err := a.settle(d, t, &o); err != nil {
			return err
		}
		data, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if o.Agent.Definition, err = a.log.PutBlob(ctx, definitionsRoot, data); err != nil {
			return fmt.Errorf("keeping the definition of agent %s: %w", t.Agent, err)
		}
	}
	t.Data, err = json.Marshal(o)
	return err
}

// allowed fails for a definition that wants what the user does not trust.
func (a *agents) allowed(d agentfile.Definition) error {
	for _, skill := range d.Carried {
		if err := a.allowed(skill); err != nil {
			return fmt.Errorf("agent %s carries a skill: %w", d.Name, err)
		}
	}
	wishes := d.Wishes()
	if len(wishes) == 0 || a.opts.Trusts != nil && a.opts.Trusts(d) {
		return nil
	}
	var list []string
	for _, w := range wishes {
		list = append(list, w.Key+" "+w.Value)
	}
	return fmt.Errorf("agent %s: %s wants what counts only if you trust it: %s; see it with 'nestor agents show %s', then run 'nestor config trust' (where nobody can, set NESTOR_TRUST_PROJECT=1)",
		d.Name, d.Source.File, clipList(list, 10), d.Name)
}

func clipList(list []string, most int) string {
	if len(list) > most {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
	}
	return strings.Join(list, ", ")
}

// settle makes of a task and a definition what is run. What the task says goes
// over the definition, unless it yields; tools and roles count both.
func (a *agents) settle(d agentfile.Definition, t *nestor.Task, o *api.TaskOptions) error {
	yields := func(key string) bool { return slices.Contains(o.Yields, key) }
	over := func(own *string, key, defined string) {
		if defined != "" && (*own == "" || yields(key)) {
			*own = defined
		}
	}
	before := t.Provider
	over(&t.Provider, "provider", d.Provider)
	if t.Provider != before && before != "" && yields("model") {
		t.Model = "" // which was another provider's
	}
	over(&t.Model, "model", d.Model)
	if name, tier := a.models[t.Model]; tier {
		t.Model = name
	}
	if t.Swarm == "" {
		t.Swarm = d.Source.Swarm
	}
	if t.Schema == nil {
		t.Schema = d.OutputSchema
	}
	defined := d.Limits
	if defined.Depth == 0 {
		defined.Depth = d.MaxDepth
	}
	t.Limits = settleLimits(t.Limits, defined, yields)
	if o.PermissionMode == "" {
		o.PermissionMode = a.own.mode
	}
	switch {
	case d.PermissionMode == "":
	case o.PermissionMode == "" || yields("permission_mode"):
		o.PermissionMode = d.PermissionMode
	default:
		o.PermissionMode = permission.StricterMode(o.PermissionMode, d.PermissionMode)
	}
	if o.Tools == nil {
		o.Tools = a.own.tools
	}
	o.Tools = permission.MeetTools(o.Tools, d.Tools)
	var err error
	if o.Inputs, err = d.CheckInputs(o.Inputs); err != nil {
		return err
	}
	o.Agent = &api.AgentOptions{Hash: d.Hash, Delegates: d.Delegates}
	switch o.Role = cmp.Or(o.Role, a.own.role); o.Role {
	case "":
		o.Role = d.Role
	case d.Role:
	default:
		o.Agent.Role = d.Role
	}
	over(&o.Delegation, "delegation", string(d.Delegation))
	if d.Worktree {
		over(&o.Workspace.Kind, "workspace.kind", string(workspace.Worktree))
	}
	if len(d.CustomTools) > 0 || slices.ContainsFunc(d.Carried, func(s agentfile.Definition) bool { return len(s.CustomTools) > 0 }) {
		o.Agent.Servers = append(o.Agent.Servers, agentfile.CustomServer)
	}
	for name := range d.MCPServers {
		o.Agent.Servers = append(o.Agent.Servers, name)
	}
	slices.Sort(o.Agent.Servers)
	return nil
}

// settleLimits returns the limits of a task over those of a definition, except
// those that yield. Of two budgets the smaller counts, unless the task does not
// yield.
func settleLimits(own, defined nestor.Limits, yields func(string) bool) nestor.Limits {
	budget := own.BudgetUSD
	if yields("limits.max_budget_usd") && own.BudgetUSD > 0 && defined.BudgetUSD > 0 {
		budget = min(own.BudgetUSD, defined.BudgetUSD)
	}
	first := own // what goes over the definition
	for key, zero := range map[string]func(){
		"limits.max_turns":       func() { first.Turns = 0 },
		"limits.timeout":         func() { first.Timeout = 0 },
		"limits.max_depth":       func() { first.Depth = 0 },
		"limits.max_children":    func() { first.Children = 0 },
		"limits.max_descendants": func() { first.Descendants = 0 },
		"limits.max_attempts":    func() { first.Attempts = 0 },
		"limits.max_resumes":     func() { first.Resumes = 0 },
		"limits.backoff":         func() { first.Backoff = 0 },
		"limits.silence":         func() { first.Silence = 0 },
		"limits.limit_wait":      func() { first.LimitWait = 0 },
	} {
		if yields(key) {
			zero()
		}
	}
	first.BudgetUSD = budget
	return first.Or(defined).Or(own)
}

// meetRoles returns the policy of a run whose agent's definition has a role of its
// own, or brings tools: what both roles allow, and what the list of tools says.
// The role of the run itself may be nil.
func meetRoles(own *permission.Policy, o api.TaskOptions, place permission.Place, roles permission.Table) (*permission.Policy, error) {
	if o.Agent == nil {
		return own, nil
	}
	if o.Agent.Role != "" {
		role, err := roles.For(o.Agent.Role, place)
		if err != nil {
			return nil, err
		}
		if own != nil {
			role = permission.Narrow(*own, role)
		}
		own = &role
	}
	if own == nil {
		return nil, nil
	}
	// What the agent brings is part of no role: nobody is asked about it.
	var brought []permission.Rule
	for _, name := range o.Agent.Servers {
		brought = append(brought, permission.Rule{Tool: "mcp__" + name})
	}
	own.Allow = append(slices.Clip(own.Allow), brought...)
	own.Also = slices.Clone(own.Also)
	for i := range own.Also {
		own.Also[i].Allow = append(slices.Clip(own.Also[i].Allow), brought...)
	}
	if o.Tools == nil {
		return own, nil
	}
	own.Tools = permission.MeetTools(own.Tools, toolNames(o.Tools))
	listed := permission.Grant{Mode: o.PermissionMode}
	for _, text := range o.Tools {
		rule, err := permission.ParseRule(text)
		if err != nil {
			return nil, err
		}
		listed.Allow = append(listed.Allow, rule)
	}
	own.Also = append(own.Also, listed)
	return own, nil
}

// toolNames returns the tools that rules are about.
func toolNames(rules []string) []string {
	names := []string{}
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "(")
		if name = strings.TrimSpace(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
