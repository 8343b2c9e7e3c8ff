package agentfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// agentText is a file whose description is what it is told by.
func agentText(description string) string {
	return "---\ndescription: " + description + "\n---\nText.\n"
}

// newProject returns a library of a project and a user with these files.
func newProject(t *testing.T, project, user map[string]string) (*agentfile.Library, string, string) {
	t.Helper()
	dir, home := t.TempDir(), filepath.Join(t.TempDir(), ".claude")
	write(t, dir, project)
	write(t, home, user)
	return agentfile.NewLibrary(agentfile.Options{Project: dir, User: home}), dir, home
}

func load(t *testing.T, l *agentfile.Library) agentfile.Set {
	t.Helper()
	s, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t *testing.T, s agentfile.Set, name, swarm string) agentfile.Definition {
	t.Helper()
	d, err := s.Find(name, swarm)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBuiltinAgentsAreGood(t *testing.T) {
	s := load(t, agentfile.NewLibrary(agentfile.Options{}))
	var names []string
	for _, e := range s.Entries() {
		names = append(names, e.Name)
		d, ok := e.Definition()
		if !ok || len(e.Problems) > 0 || d.Description == "" || d.Role != d.Name {
			t.Errorf("%s: %v, %+v", e.Name, e.Problems, d)
		}
	}
	if want := []string{"critic", "implementer", "monitor", "orchestrator", "researcher", "reviewer"}; !slices.Equal(names, want) {
		t.Errorf("there are %v, want %v", names, want)
	}
}

func TestProjectGoesOverUserAndUserOverBuiltin(t *testing.T) {
	l, _, _ := newProject(t, map[string]string{
		".claude/agents/critic.md":          agentText("the project's"),
		".claude/agents/deep/below/it.md":   agentText("it"),
		".claude/commands/git/commit.md":    "Commit.",
		".claude/commands/review.md":        "A command.",
		".claude/skills/review/SKILL.md":    agentText("a skill"),
		"swarms/dev/agents/critic.md":       agentText("the swarm's"),
		"swarms/dev/agents/only.md":         agentText("only here"),
		".claude/agents/.hidden.md":         agentText("hidden"),
		".claude/agents/notes.txt":          "no agent",
		".claude/skills/no-skill/readme.md": "no skill",
	}, map[string]string{
		"agents/critic.md":   agentText("the user's"),
		"agents/reviewer.md": agentText("the user's"),
	})
	s := load(t, l)
	for _, test := range []struct{ name, swarm, want string }{
		{"critic", "", "the project's"},
		{"critic", "dev", "the swarm's"},
		{"dev/critic", "", "the swarm's"},
		{"dev/critic", "other", "the swarm's"},
		{"critic", "other", "the project's"},
		{"reviewer", "dev", "the user's"},
		{"agent:critic", "", "the project's"},
		{"review", "", "a skill"},
		{"command:review", "", ""},
		{"git:commit", "", ""},
		{"command:git:commit", "", ""},
		{"it", "", "it"},
		{"only", "dev", "only here"},
	} {
		if d := find(t, s, test.name, test.swarm); d.Description != test.want {
			t.Errorf("%s, seen from swarm %q, is %q, want %q", test.name, test.swarm, d.Description, test.want)
		}
	}
	var shadows []string
	for _, e := range s.Entries() {
		if e.ShadowedBy != "" {
			shadows = append(shadows, e.Source.File+" < "+e.ShadowedBy)
		}
	}
	want := []string{
		"~/.claude/agents/critic.md < .claude/agents/critic.md",
		"builtin/critic.md < .claude/agents/critic.md",
		"builtin/reviewer.md < ~/.claude/agents/reviewer.md",
	}
	if !slices.Equal(shadows, want) {
		t.Errorf("shadowed are %q", shadows)
	}
}

func TestUnknownNamesAreToldWithTheNearest(t *testing.T) {
	l, _, _ := newProject(t, map[string]string{"swarms/dev/agents/only.md": agentText("d")}, nil)
	s := load(t, l)
	for name, want := range map[string]string{
		"crtic": `there is no agent "crtic"; did you mean critic? 'nestor agents list' shows all`,
		"only":  `there is no agent "only"; did you mean dev/only? 'nestor agents list' shows all`,
		"zzzzz": `there is no agent "zzzzz"; there are: critic, dev/only, implementer, monitor, orchestrator, researcher, reviewer`,
	} {
		_, err := s.Find(name, "")
		if _, ok := errors.AsType[*agentfile.UnknownError](err); !ok || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestABrokenFileHidesNoOther(t *testing.T) {
	l, _, _ := newProject(t, map[string]string{
		".claude/agents/bad.md":    "---\nrole: nobody\n---\nText.",
		".claude/agents/critic.md": "---\nrole: nobody\n---\nText.",
		".claude/agents/good.md":   agentText("good"),
	}, nil)
	s := load(t, l)
	find(t, s, "good", "")
	for _, name := range []string{"bad", "critic"} { // nor is another one used in its place
		_, err := s.Find(name, "")
		if err == nil || !strings.Contains(err.Error(), ".claude/agents/"+name+".md:2:7: there is no \"nobody\"") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestChangedFilesAreReadAgain(t *testing.T) {
	l, dir, _ := newProject(t, map[string]string{
		".claude/agents/a.md":              agentText("first"),
		".claude/skills/s/SKILL.md":        agentText("skill"),
		".claude/skills/s/scripts/tool.sh": "echo one",
	}, nil)
	s := load(t, l)
	before, skill := find(t, s, "a", ""), find(t, s, "s", "")
	if again := find(t, load(t, l), "a", ""); !reflect.DeepEqual(again, before) {
		t.Errorf("it was not changed, and is %+v", again)
	}
	write(t, dir, map[string]string{".claude/agents/a.md": agentText("second one"), ".claude/skills/s/scripts/tool.sh": "echo another"})
	s2 := load(t, l)
	after, skill2 := find(t, s2, "a", ""), find(t, s2, "s", "")
	if after.Description != "second one" || after.Hash == before.Hash || skill2.Hash == skill.Hash {
		t.Errorf("it is %+v, and the skill's hash %s", after, skill2.Hash)
	}
	if d := find(t, s, "a", ""); d.Description != "first" {
		t.Errorf("what was loaded before is now %q", d.Description)
	}
	if err := os.Remove(filepath.Join(dir, ".claude/agents/a.md")); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, l).Find("a", ""); err == nil {
		t.Error("it is gone, and is found")
	}
}

func TestWhatALibraryReturnsIsNobodyElses(t *testing.T) {
	text := `---
description: d
tools: [Read]
disallowed_tools: [Write]
delegates: [a]
inputs: {a: {type: string, default: x}}
mcp_servers: {s: {command: x, args: [y], env: {A: b}}}
custom_tools: [{name: t, command: [x, y]}]
output_schema: {type: object}
---
Text.
`
	l, _, _ := newProject(t, map[string]string{".claude/skills/a/SKILL.md": text}, nil)
	s := load(t, l)
	want := find(t, s, "a", "")
	d := find(t, s, "a", "")
	d.Tools[0], d.DisallowedTools[0], d.Delegates[0] = "changed", "changed", "changed"
	d.Inputs[0].Schema[0], d.Inputs[0].Default[0] = 'c', 'c'
	d.MCPServers["s"].Args[0], d.MCPServers["s"].Env["A"] = "changed", "changed"
	d.CustomTools[0].Command[0], d.CustomTools[0].InputSchema[0] = "changed", 'c'
	d.OutputSchema[0] = 'c'
	delete(d.MCPServers, "s")
	if got := find(t, s, "a", ""); !reflect.DeepEqual(got, want) {
		t.Errorf("it is now %+v", got)
	}
}

func TestLinksAndPipes(t *testing.T) {
	l, dir, home := newProject(t, map[string]string{
		".claude/agents/real.md": agentText("real"),
		"shared/inside.md":       agentText("inside"),
		"shared/skill/SKILL.md":  agentText("linked skill"),
	}, map[string]string{"agents/mine.md": agentText("mine")})
	outside := filepath.Join(t.TempDir(), "outside.md")
	if err := os.WriteFile(outside, []byte(agentText("outside")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".claude/skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		filepath.Join(dir, ".claude/agents/inside.md"):  "../../shared/inside.md",
		filepath.Join(dir, ".claude/agents/outside.md"): outside,
		filepath.Join(dir, ".claude/agents/loop"):       ".",
		filepath.Join(dir, ".claude/skills/linked"):     "../../shared/skill",
		filepath.Join(home, "agents/linked.md"):         outside,
	} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 { // looked through in each order, they would take for ever
		if err := os.Symlink(".", filepath.Join(dir, fmt.Sprint(".claude/agents/again", i))); err != nil {
			t.Fatal(err)
		}
	}
	makePipe(t, filepath.Join(dir, ".claude/agents/pipe.md"))
	s := load(t, l)
	var here int
	for _, e := range s.Entries() {
		if e.Name == "real" {
			here++
		}
	}
	if here != 1 {
		t.Errorf("one file is found %d times", here)
	}
	for name, want := range map[string]string{"real": "real", "inside": "inside", "linked": "outside", "mine": "mine", "skill:linked": "linked skill"} {
		if d := find(t, s, name, ""); d.Description != want {
			t.Errorf("%s is %q", name, d.Description)
		}
	}
	for name, want := range map[string]string{
		"outside": "links are followed inside of it alone",
		"pipe":    "it is no regular file",
	} {
		if _, err := s.Find(name, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestWishesOfProjects(t *testing.T) {
	text := "---\ndescription: d\nallowed-tools: Bash(git status:*), Read\npermission_mode: bypassPermissions\n" +
		"mcp_servers: {s: {command: serve, args: [--all]}}\ncustom_tools: [{name: t, command: [x, y]}]\n---\nSee !`git status`.\n"
	l, _, _ := newProject(t, map[string]string{
		".claude/skills/a/SKILL.md": text,
		".claude/agents/tame.md":    agentText("tame"),
		".claude/commands/tame.md":  "Tame.",
	}, map[string]string{"skills/mine/SKILL.md": text})
	s := load(t, l)
	want := []agentfile.Wish{
		{Key: "custom_tools", Value: `t: ["x" "y"]`}, {Key: "mcp_servers", Value: `s: ["serve" "--all"]`}, {Key: "text", Value: "!`git status`"},
		{Key: "tools", Value: "Bash(git status:*)"}, {Key: "tools", Value: "mcp__s"}, {Key: "permission_mode", Value: "bypassPermissions"},
	}
	d := find(t, s, "a", "")
	if got := d.Wishes(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"tame", "command:tame", "mine", "reviewer"} {
		if d := find(t, s, name, ""); d.Wishes() != nil || d.Fingerprint() != "" {
			t.Errorf("%s wishes %q", name, d.Wishes())
		}
	}
	before := d.Fingerprint()
	d.Prompt += " And more."
	if d.Fingerprint() != before {
		t.Error("a text that is changed changes the fingerprint")
	}
	d.CustomTools[0].Timeout++
	if d.Fingerprint() == before {
		t.Error("a custom tool that is changed does not")
	}
}
