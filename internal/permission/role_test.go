package permission

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var place = Place{Workspace: "/p/swarms/s/workspace", Project: "/p", Logs: "/p/logs"}

// in makes a call in the workspace.
func in(c Call) Call {
	c.Dir = place.Workspace
	return c
}

// The table of roles, cell by cell, by what a run of each role may do.
func TestRoleTable(t *testing.T) {
	probes := []struct {
		name string
		call Call
	}{
		{"read workspace", in(call("Read", "file_path", "a.go"))},
		{"read project", in(call("Read", "file_path", "/p/backend/a.go"))},
		{"read logs", in(call("Read", "file_path", "/p/logs/run.log"))},
		{"write workspace", in(call("Write", "file_path", "a.go"))},
		{"write project", in(call("Edit", "file_path", "/p/backend/a.go"))},
		{"bash any", in(bash("make all"))},
		{"bash reads workspace", in(bash("cat a.go"))},
		{"bash reads logs", in(bash("tail -n 20 /p/logs/run.log"))},
		{"git reads", in(bash("git log --oneline"))},
		{"git commits", in(bash("git commit -m x"))},
		{"git pushes", in(bash("git push origin x"))},
		{"git elsewhere", in(bash("git -C /p commit -m x"))},
		{"web", call("WebFetch", "url", "https://example.com/x")},
		{"web search", call("WebSearch", "query", "x")},
		{"spawn", call("Task", "prompt", "x")},
	}
	const a, d, q = Allow, Deny, Ask
	for role, want := range map[string][]Verdict{
		// read: w, p, l; write: w, p; bash: any, w, l; git: reads, commits, pushes, elsewhere; web, search; spawn
		"orchestrator": {a, d, d, a, d, a, a, a, a, d, d, d, a, a, a},
		"implementer":  {a, d, d, a, d, a, a, a, a, a, d, d, a, a, a},
		"researcher":   {a, d, d, a, d, a, a, a, a, d, d, d, a, a, a},
		"critic":       {a, d, d, d, d, d, d, d, d, d, d, d, a, a, a},
		"reviewer":     {a, d, d, d, d, d, a, d, a, d, d, d, a, a, a},
		"monitor":      {d, d, a, d, d, d, d, a, d, d, d, d, d, d, d},
	} {
		p, err := ForRole(role, place)
		if err != nil {
			t.Fatal(err)
		}
		for i, probe := range probes {
			if got := p.Decide(probe.call); got.Verdict != want[i] || got.Reason == "" || got.Rule == "" {
				t.Errorf("%s, %s: %+v, want %v", role, probe.name, got, want[i])
			}
		}
	}
	if len(builtin) != 6 {
		t.Error("a role has no line in this test")
	}

	dev := place
	dev.SwarmDev = true
	for role, want := range map[string][]Verdict{
		"orchestrator": {a, a, a, a, a, a, a, a, a, a, q, a, a, a, a},
		"implementer":  {a, a, a, a, a, a, a, a, a, a, q, a, a, a, a},
		"critic":       {a, a, a, d, d, d, d, d, d, d, d, d, a, a, a},
		"reviewer":     {a, a, a, d, d, d, a, a, a, d, d, d, a, a, a},
	} {
		p, err := ForRole(role, dev)
		if err != nil {
			t.Fatal(err)
		}
		for i, probe := range probes {
			if got := p.Decide(probe.call); got.Verdict != want[i] {
				t.Errorf("%s of swarm_dev, %s: %+v, want %v", role, probe.name, got, want[i])
			}
		}
	}
}

// What develops the project itself stays off its main branch.
func TestSwarmDevBranches(t *testing.T) {
	p, err := ForRole("implementer", Place{Workspace: "/w", Project: "/p", SwarmDev: true})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]Verdict{
		"git commit -am 'fix it'":                      Allow,
		"git switch -c fix-it && git commit -am x":     Allow,
		"go test ./... && go vet ./...":                Allow,
		"git checkout main":                            Deny,
		"git switch master":                            Deny,
		"git switch main && git merge fix-it":          Deny,
		"git push origin main":                         Deny,
		"git push origin HEAD:main":                    Deny,
		"git push --force origin fix-it":               Deny,
		"git branch -f main HEAD":                      Deny,
		"git update-ref refs/heads/main HEAD":          Deny,
		"sh -c 'git checkout main'":                    Deny,
		"env -i git push origin master":                Deny,
		"git push -f":                                  Deny,
		"git push --mirror origin":                     Deny,
		"git checkout maintenance":                     Allow,
		"git checkout -b x main":                       Allow,
		"git push origin my-fix":                       Ask,
		"git push origin fix-it":                       Ask,
		"git merge main":                               Ask,
		"git worktree add ../other main":               Ask,
		"git log main..fix-it && git diff main --stat": Allow,
	} {
		if got := p.Decide(Call{Tool: "Bash", Input: bash(command).Input, Dir: "/p"}); got.Verdict != want {
			t.Errorf("%s: %+v, want %v", command, got, want)
		}
	}
}

func TestUnknownRolesNameTheNearest(t *testing.T) {
	for role, want := range map[string]string{
		"implementor": `did you mean "implementer"?`,
		"Critic":      `did you mean "critic"?`,
		"boss":        "there are critic, implementer, monitor, orchestrator, researcher, reviewer",
		"":            "there are",
	} {
		if _, err := ForRole(role, place); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", role, err)
		}
	}
	if _, err := ForRole("monitor", Place{Workspace: "/w"}); err == nil || !strings.Contains(err.Error(), `the place's logs ""`) {
		t.Errorf("a monitor without logs: %v", err)
	}
	if _, err := ForRole("critic", Place{Workspace: "w"}); err == nil || !strings.Contains(err.Error(), "not an absolute path") {
		t.Errorf("a relative workspace: %v", err)
	}
}

func TestOwnRoles(t *testing.T) {
	own := map[string]RoleSpec{
		"docs-writer": {
			Read: "project", Write: "workspace", Web: "yes", Hosts: []string{"go.dev", "*.go.dev"}, Tools: []string{"Read", "Write", "WebFetch", "mcp__notes"},
			Allow: []string{"mcp__notes__read"}, Deny: []string{"Write(*.go)"}, Ask: []string{"mcp__notes__delete"}, Mode: "dontAsk",
		},
		"nobody": {},
	}
	table, err := Roles(own)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(table.Names(), " "); got != "critic docs-writer implementer monitor nobody orchestrator researcher reviewer" {
		t.Errorf("the roles are %s", got)
	}
	p, err := table.For("docs-writer", place)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		call Call
		want Verdict
		rule string
	}{
		{in(call("Read", "file_path", "/p/backend/x")), Allow, "role docs-writer: read /p"},
		{in(call("Write", "file_path", "a.md")), Deny, "mode dontAsk"},
		{in(call("Write", "file_path", "a.go")), Deny, "deny Write(*.go)"},
		{in(call("Edit", "file_path", "a.md")), Deny, "role docs-writer: tools"},
		{in(call("WebFetch", "url", "https://pkg.go.dev/x")), Allow, "allow WebFetch"},
		{in(call("WebFetch", "url", "https://go.dev.evil.org/x")), Deny, "role docs-writer: hosts"},
		{in(call("mcp__notes__read")), Allow, "allow mcp__notes__read"},
		{in(call("mcp__notes__delete")), Deny, "ask mcp__notes__delete"},
		{in(call("mcp__other__read")), Deny, "role docs-writer: tools"},
		{in(bash("ls")), Deny, "role docs-writer: tools"},
	} {
		if got := p.Decide(test.call); got.Verdict != test.want || got.Rule != test.rule {
			t.Errorf("%s %s: %+v, want %v by %q", test.call.Tool, test.call.Input, got, test.want, test.rule)
		}
	}
	nobody, err := table.For("nobody", Place{})
	if err != nil || len(nobody.Read)+len(nobody.Write) != 0 || nobody.Bash != No {
		t.Errorf("nobody may %+v, %v", nobody, err)
	}
}

// Everything that is wrong with own roles is told at once, with its place.
func TestOwnRolesAreChecked(t *testing.T) {
	_, err := Roles(map[string]RoleSpec{
		"critic":  {Read: "project"},
		"Bad One": {},
		"a": {
			Read: "everything", Write: "logs", Bash: "maybe", Git: "limited", Web: "true", Spawn: "1", Mode: "yolo",
			Hosts: []string{"https://x.org"}, Tools: []string{"Bash(git *)"}, Allow: []string{"Bash(git"}, Deny: []string{"Edit([)"}, Ask: []string{""},
		},
		"b": {Bash: "limited", Git: "workspace"},
	})
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{
		`role critic: it is built in`, `role "Bad One": a name is`, `role a: read: "everything" is not one of workspace, logs, project, no`,
		`role a: write: "logs" is not one of`, `role a: bash: "maybe" is not one of yes, limited, no`, `role a: git: "limited" is not one of`,
		`role a: web: "true"`, `role a: spawn: "1"`, `role a: mode: "yolo"`, `role a: hosts: they need web: yes`, `role a: hosts: "https://x.org"`,
		`role a: tools: "Bash(git *)"`, `role a: allow: "Bash(git"`, `role a: deny: "Edit([)"`, `role a: ask: ""`,
		`role b: git: "workspace" needs bash: yes`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s:\n%v", want, err)
		}
	}
}

// A policy is the same after it was written down and read.
func TestPoliciesAreWrittenAndRead(t *testing.T) {
	p, _ := ForRole("implementer", Place{Workspace: "/w", Project: "/p", SwarmDev: true})
	critic, _ := ForRole("critic", place)
	for _, p := range []Policy{{}, p, Narrow(p, critic), {Tools: []string{}, Hosts: []string{}}} {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Policy
		if err := json.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s became %+v, %v", raw, got, err)
		}
	}
}

func TestOffer(t *testing.T) {
	all := []string{"Agent", "Bash", "Edit", "Grep", "Monitor", "Read", "TodoWrite", "WebFetch", "Write", "mcp__s__t", "Workflow"}
	for role, want := range map[string]string{
		"implementer": "Agent Bash Edit Grep Monitor Read TodoWrite WebFetch Write mcp__s__t Workflow",
		"critic":      "Agent Grep Read TodoWrite WebFetch mcp__s__t Workflow",
		"reviewer":    "Agent Bash Grep Read TodoWrite WebFetch mcp__s__t Workflow",
		"monitor":     "Bash Grep Read TodoWrite mcp__s__t Workflow",
	} {
		p, err := ForRole(role, place)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Offer(all), " "); got != want {
			t.Errorf("%s is offered %s, want %s", role, got, want)
		}
	}
	p := Policy{Read: []string{"/"}, Tools: []string{"Read", "Grep", "mcp__s"}, Deny: rules(t, "Grep", "Read(secret)", "mcp__*")}
	if got := strings.Join(p.Offer(nil), " "); got != "Read" {
		t.Errorf("of Claude Code's tools it is offered %q", got)
	}
	if got := strings.Join(p.Offer([]string{"mcp__s__t"}), " "); got != "" {
		t.Errorf("what is denied is offered: %q", got)
	}
}
