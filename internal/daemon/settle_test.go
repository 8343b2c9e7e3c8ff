package daemon

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/permission"
)

func TestTaskGoesOverDefinitionUnlessItYields(t *testing.T) {
	d := agentfile.Definition{
		Name: "a", Provider: "api", Model: "high-tier", Role: "critic", PermissionMode: "plan", MaxDepth: 5, OutputSchema: json.RawMessage(`{}`),
		Limits: nestor.Limits{Turns: 40, Timeout: time.Hour, BudgetUSD: 3}, Source: agentfile.Source{Swarm: "dev"},
	}
	a := &agents{models: map[string]string{"high-tier": "opus"}}
	own := nestor.Task{Provider: "sdk", Model: "haiku", Limits: nestor.Limits{Turns: 7, Timeout: time.Minute, BudgetUSD: 1, Depth: 2}}
	all := []string{"provider", "model", "permission_mode", "limits.max_turns", "limits.timeout", "limits.max_budget_usd", "limits.max_depth"}
	for _, test := range []struct {
		name   string
		task   nestor.Task
		yields []string
		want   nestor.Task
		mode   string
	}{
		{
			name: "nothing said", want: nestor.Task{Provider: "api", Model: "opus", Limits: nestor.Limits{Turns: 40, Timeout: time.Hour, BudgetUSD: 3, Depth: 5}}, mode: "plan",
		},
		{
			name: "all said", task: own, want: nestor.Task{Provider: "sdk", Model: "haiku", Limits: own.Limits}, mode: "plan",
		},
		{
			name: "all yields", task: own, yields: all,
			want: nestor.Task{Provider: "api", Model: "opus", Limits: nestor.Limits{Turns: 40, Timeout: time.Hour, BudgetUSD: 1, Depth: 5}}, mode: "plan",
		},
		{
			name: "turns said", task: own, yields: slices.DeleteFunc(slices.Clone(all), func(key string) bool { return key == "limits.max_turns" }),
			want: nestor.Task{Provider: "api", Model: "opus", Limits: nestor.Limits{Turns: 7, Timeout: time.Hour, BudgetUSD: 1, Depth: 5}}, mode: "plan",
		},
	} {
		o := api.TaskOptions{Yields: test.yields}
		got := test.task
		if err := a.settle(d, &got, &o); err != nil {
			t.Fatal(err)
		}
		if got.Provider != test.want.Provider || got.Model != test.want.Model || got.Limits != test.want.Limits || o.PermissionMode != test.mode ||
			got.Swarm != "dev" || string(got.Schema) != "{}" || o.Agent.Role != "critic" {
			t.Errorf("%s: got %+v, %+v", test.name, got, o)
		}
	}
}

func TestModesOnlyGetStricter(t *testing.T) {
	a := &agents{}
	for _, test := range []struct {
		own, defined string
		yields       bool
		want         string
	}{
		{"", "bypassPermissions", false, "bypassPermissions"},
		{"acceptEdits", "bypassPermissions", false, "acceptEdits"},
		{"acceptEdits", "bypassPermissions", true, "bypassPermissions"},
		{"acceptEdits", "plan", false, "plan"},
		{"plan", "acceptEdits", false, "plan"},
		{"acceptEdits", "", false, "acceptEdits"},
	} {
		o := api.TaskOptions{PermissionMode: test.own}
		if test.yields {
			o.Yields = []string{"permission_mode"}
		}
		if err := a.settle(agentfile.Definition{PermissionMode: test.defined}, &nestor.Task{}, &o); err != nil || o.PermissionMode != test.want {
			t.Errorf("%+v: got %q, %v", test, o.PermissionMode, err)
		}
	}
}

func TestToolsOnlyNarrow(t *testing.T) {
	for _, test := range []struct{ a, b, want []string }{
		{nil, nil, nil},
		{nil, []string{"Read"}, []string{"Read"}},
		{[]string{"Read"}, nil, []string{"Read"}},
		{[]string{"Read"}, []string{}, []string{}},
		{[]string{"Read", "Bash"}, []string{"Bash(git *)", "Write"}, []string{"Bash(git *)"}},
		{[]string{"Bash(git *)"}, []string{"Bash"}, []string{"Bash(git *)"}},
		{[]string{"Bash(git *)"}, []string{"Bash(go *)"}, []string{}},
		{[]string{"mcp__a", "mcp__b__x"}, []string{"mcp__a__y", "mcp__b"}, []string{"mcp__a__y", "mcp__b__x"}},
		{[]string{"mcp__a__*"}, []string{"mcp__a__y"}, []string{"mcp__a__y"}},
		{[]string{"mcp__ab"}, []string{"mcp__a__y"}, []string{}},
	} {
		if got := meetTools(test.a, test.b); !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%q and %q are %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

// An agent that has no tools gets none, which is not the same as all.
func TestNoToolsAreNotAll(t *testing.T) {
	for _, tools := range [][]string{nil, {}} {
		o := api.TaskOptions{}
		if err := new(agents).settle(agentfile.Definition{Tools: tools}, &nestor.Task{}, &o); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := api.ParseTaskOptions(data)
		if err != nil || (again.Tools == nil) != (tools == nil) {
			t.Errorf("of %#v are left %#v, %v", tools, again.Tools, err)
		}
	}
}

// What the config leaves to tasks that do not say bounds a definition too.
func TestConfigBoundsDefinitions(t *testing.T) {
	a := &agents{tools: []string{"Read", "Bash"}, mode: "plan"}
	o := api.TaskOptions{}
	err := a.settle(agentfile.Definition{Tools: []string{"Bash(git *)", "Write"}, PermissionMode: "acceptEdits"}, &nestor.Task{}, &o)
	if err != nil || !slices.Equal(o.Tools, []string{"Bash(git *)"}) || o.PermissionMode != "plan" {
		t.Errorf("got %+v, %v", o, err)
	}
}

// A definition's role and tools take from what a run may do, and add nothing but
// the tools that it brings.
func TestRolesOnlyNarrow(t *testing.T) {
	place := permission.Place{Workspace: "/w", Project: "/p", Logs: "/l"}
	own, err := permission.ForRole("implementer", place)
	if err != nil {
		t.Fatal(err)
	}
	call := func(p *permission.Policy, tool, input string) permission.Verdict {
		return p.Decide(permission.Call{Tool: tool, Input: json.RawMessage(input), Dir: "/w"}).Verdict
	}
	for _, test := range []struct {
		name        string
		own         *permission.Policy
		o           api.TaskOptions
		tool, input string
		want        permission.Verdict
	}{
		{"the run's role alone", &own, api.TaskOptions{Agent: &api.AgentOptions{}}, "Bash", `{"command": "make"}`, permission.Allow},
		{"a stricter role", &own, api.TaskOptions{Agent: &api.AgentOptions{Role: "critic"}}, "Bash", `{"command": "make"}`, permission.Deny},
		{"a role alone", nil, api.TaskOptions{Agent: &api.AgentOptions{Role: "critic"}}, "Bash", `{"command": "make"}`, permission.Deny},
		{"a tool that is not listed", &own, api.TaskOptions{Tools: []string{"Read"}, Agent: &api.AgentOptions{}}, "Bash", `{"command": "make"}`, permission.Deny},
		{"a call that is listed", &own, api.TaskOptions{Tools: []string{"Bash(make *)"}, Agent: &api.AgentOptions{}}, "Bash", `{"command": "make all"}`, permission.Allow},
		{"a call that is not", &own, api.TaskOptions{Tools: []string{"Bash(make *)"}, Agent: &api.AgentOptions{}}, "Bash", `{"command": "rm x"}`, permission.Deny},
		{"a tool that it brings", &own, api.TaskOptions{Agent: &api.AgentOptions{Role: "critic", Servers: []string{"custom"}}}, "mcp__custom__a", `{}`, permission.Allow},
		{"one that it brings and lists", &own, api.TaskOptions{Tools: []string{"mcp__custom__a"}, Agent: &api.AgentOptions{Role: "critic", Servers: []string{"custom"}}}, "mcp__custom__a", `{}`, permission.Allow},
		{"one that it does not list", &own, api.TaskOptions{Tools: []string{"mcp__custom__a"}, Agent: &api.AgentOptions{Servers: []string{"custom"}}}, "mcp__custom__b", `{}`, permission.Deny},
		{"one of another server", &own, api.TaskOptions{Agent: &api.AgentOptions{Role: "critic", Servers: []string{"custom"}}}, "mcp__other__a", `{}`, permission.Ask},
	} {
		var mine *permission.Policy
		if test.own != nil {
			mine = new(*test.own)
		}
		p, err := meetRoles(mine, test.o, place, permission.Table{})
		if err != nil {
			t.Fatal(err)
		}
		if got := call(p, test.tool, test.input); got != test.want && !(test.want == permission.Deny && got == permission.Ask) {
			t.Errorf("%s: %s is %v, want %v", test.name, test.tool, got, test.want)
		}
	}
}
