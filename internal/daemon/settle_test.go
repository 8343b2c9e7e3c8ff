package daemon

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/spawn"
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
			got.Swarm != "dev" || string(got.Schema) != "{}" || o.Role != "critic" || o.Agent.Role != "" {
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

// The role of a definition is that of the run, for those below it too, or bounds it
// besides its own.
func TestRoleOfADefinition(t *testing.T) {
	for _, test := range []struct{ config, own, defined, role, besides string }{
		{"", "", "critic", "critic", ""},
		{"", "implementer", "critic", "implementer", "critic"},
		{"implementer", "", "critic", "implementer", "critic"},
		{"", "critic", "critic", "critic", ""},
		{"", "critic", "", "critic", ""},
		{"", "", "", "", ""},
	} {
		o := api.TaskOptions{Role: test.own}
		a := &agents{own: defaults{role: test.config}}
		if err := a.settle(agentfile.Definition{Role: test.defined}, &nestor.Task{}, &o); err != nil || o.Role != test.role || o.Agent.Role != test.besides {
			t.Errorf("%+v: %q besides %q, %v", test, o.Agent.Role, o.Role, err)
		}
	}
}

// What an agent's definition takes from a run, those that it starts do not have
// either, whatever their own definitions say.
func TestChildrenHaveNoMoreThanTheDefinitionAbove(t *testing.T) {
	dir := t.TempDir()
	for _, config := range []string{"", "implementer"} {
		a := &agents{own: defaults{role: config}}
		p := &policy{own: defaults{role: config}, home: filepath.Join(dir, ".nestor")}
		settled := func(task nestor.Task, d agentfile.Definition) (nestor.Task, api.TaskOptions) {
			t.Helper()
			o, err := api.ParseTaskOptions(task.Data)
			if err == nil {
				err = a.settle(d, &task, &o)
			}
			if err == nil {
				task.Data, err = json.Marshal(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			return task, o
		}
		parent, _ := settled(nestor.Task{Agent: "critic", Dir: dir}, agentfile.Definition{Role: "critic", Tools: []string{"Read", "Write"}})
		child, err := spawn.Narrow(parent, api.TaskOptions{Role: config}, api.Spawn{Agent: "implementer", Task: "write it"})
		if err != nil {
			t.Fatal(err)
		}
		child, o := settled(child, agentfile.Definition{Role: "implementer", Tools: []string{"Read", "Write", "Bash"}})
		role, err := p.bounds(child, o, dir)
		if err != nil || role == nil {
			t.Fatalf("it is bounded by %v, %v", role, err)
		}
		for tool, input := range map[string]string{
			"Write": `{"file_path": "` + dir + `/x", "content": ""}`, "Bash": `{"command": "touch x"}`,
		} {
			if v := role.Decide(permission.Call{Tool: tool, Input: json.RawMessage(input), Dir: dir}); v.Verdict != permission.Deny {
				t.Errorf("below a critic, with the config's role %q, %s is %v: %s", config, tool, v.Verdict, v.Rule)
			}
		}
		if slices.Contains(o.Tools, "Bash") {
			t.Errorf("its tools are %q", o.Tools)
		}
	}
}

// A child has the model that its definition says, and else its parent's.
func TestChildHasTheModelOfItsDefinition(t *testing.T) {
	parent := nestor.Task{Provider: "sdk", Model: "opus", Dir: t.TempDir()}
	for defined, want := range map[string]string{"haiku": "haiku", "": "opus"} {
		child, err := spawn.Narrow(parent, api.TaskOptions{}, api.Spawn{Agent: "a", Task: "x"})
		if err != nil {
			t.Fatal(err)
		}
		o, err := api.ParseTaskOptions(child.Data)
		if err == nil {
			err = new(agents).settle(agentfile.Definition{Model: defined}, &child, &o)
		}
		if err != nil || child.Model != want {
			t.Errorf("a definition with %q: %q, %v", defined, child.Model, err)
		}
	}
}

// A model that came with a provider does not go with another one.
func TestModelGoesWithItsProvider(t *testing.T) {
	task := nestor.Task{Provider: "sdk", Model: "opus"}
	o := api.TaskOptions{Yields: []string{"provider", "model"}}
	if err := new(agents).settle(agentfile.Definition{Provider: "api"}, &task, &o); err != nil || task.Provider != "api" || task.Model != "" {
		t.Errorf("got %+v, %v", task, err)
	}
}

// What the config leaves to tasks that do not say bounds a definition too.
func TestConfigBoundsDefinitions(t *testing.T) {
	a := &agents{own: defaults{tools: []string{"Read", "Bash"}, mode: "plan"}}
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
