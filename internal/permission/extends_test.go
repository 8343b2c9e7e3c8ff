package permission

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var somewhere = Place{Workspace: "/p/w", Project: "/p", Logs: "/p/logs"}

// A role that extends another has what that one has, and less where it says so.
func TestExtendedRoleHasWhatItDoesNotSay(t *testing.T) {
	table, err := Roles(map[string]RoleSpec{
		"careful": {Extends: "implementer", Web: "no", Deny: []string{"Bash(rm *)"}},
		"timid":   {Extends: "careful", Write: "no"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.For("careful", somewhere)
	if err != nil || p.Role != "careful" || p.Bash != Yes || p.Git != Workspace || p.Web || !slices.Equal(p.Write, []string{"/p/w"}) {
		t.Errorf("careful is %+v, %v", p, err)
	}
	for command, want := range map[string]Verdict{"make": Allow, "rm x": Deny} {
		if d := p.Decide(Call{Tool: "Bash", Input: []byte(`{"command":"` + command + `"}`), Dir: "/p/w"}); d.Verdict != want {
			t.Errorf("%s: %+v", command, d)
		}
	}
	if p, err = table.For("timid", somewhere); err != nil || p.Write != nil || p.Web || p.Bash != Yes {
		t.Errorf("timid is %+v, %v", p, err)
	}
}

// Whatever a role says that extends another, it gets no milder answer than that
// one.
func TestExtendedRoleIsNeverWider(t *testing.T) {
	bases := Table{}.Names()
	cell := func(t *rapid.T, name string) string {
		return rapid.SampledFrom(append(Cells(name), "")).Draw(t, name)
	}
	calls := []Call{
		{Tool: "Read", Input: []byte(`{"file_path":"/p/w/a"}`), Dir: "/p/w"}, {Tool: "Read", Input: []byte(`{"file_path":"/p/a"}`), Dir: "/p/w"},
		{Tool: "Write", Input: []byte(`{"file_path":"/p/w/a"}`), Dir: "/p/w"}, {Tool: "Write", Input: []byte(`{"file_path":"/p/a"}`), Dir: "/p/w"},
		{Tool: "Bash", Input: []byte(`{"command":"ls"}`), Dir: "/p/w"}, {Tool: "Bash", Input: []byte(`{"command":"make"}`), Dir: "/p/w"},
		{Tool: "Bash", Input: []byte(`{"command":"git commit"}`), Dir: "/p/w"}, {Tool: "Bash", Input: []byte(`{"command":"git push"}`), Dir: "/p/w"},
		{Tool: "WebFetch", Input: []byte(`{"url":"https://go.dev"}`), Dir: "/p/w"}, {Tool: "Agent", Input: []byte(`{"subagent_type":"x"}`), Dir: "/p/w"},
		{Tool: "mcp__a__b", Input: []byte(`{}`), Dir: "/p/w"},
	}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom(bases).Draw(t, "base")
		spec := RoleSpec{
			Extends: base, Read: cell(t, "read"), Write: cell(t, "write"), Bash: cell(t, "bash"), Web: cell(t, "web"), Spawn: cell(t, "spawn"),
			Mode: rapid.SampledFrom(append(Modes(), "")).Draw(t, "mode"), Allow: []string{"Bash", "Edit", "WebFetch", "mcp__a"},
		}
		table, err := Roles(map[string]RoleSpec{"own": spec})
		if err != nil {
			t.Fatal(err)
		}
		own, err := table.For("own", somewhere)
		if err != nil {
			t.Fatal(err)
		}
		above, err := table.For(base, somewhere)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			if mine, theirs := own.Decide(c), above.Decide(c); mine.Verdict > theirs.Verdict {
				t.Fatalf("%+v: %s %s says %+v, and %s %+v", spec, c.Tool, c.Input, mine, base, theirs)
			}
		}
	})
}

func TestBadExtensionsAreRefused(t *testing.T) {
	_, err := Roles(map[string]RoleSpec{
		"a": {Extends: "b"}, "b": {Extends: "a"}, "c": {Extends: "implementr"}, "d": {Extends: "d"},
	})
	for _, want := range []string{"role a: extends: a → b → a leads back", `role c: extends: no role "implementr"; did you mean "implementer"?`, "role d: extends: d → d leads back"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
