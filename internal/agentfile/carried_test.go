package agentfile_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

const carrying = "---\ndescription: It carries.\ntools: Read\nskills: [one, two]\n---\nWork.\n"

func TestSkillsAreCarried(t *testing.T) {
	files := map[string]string{
		".claude/agents/a.md":           carrying,
		".claude/skills/one/SKILL.md":   "---\ndescription: d\ncustom_tools: [{name: count, command: [wc, -w]}]\n---\nOne, in ${CLAUDE_SKILL_DIR}, about $ARGUMENTS.\n",
		"swarms/s/agents/b.md":          carrying,
		".claude/commands/one.md":       "No skill.\n",
		".claude/skills/one/details.md": "More.\n",
	}
	l, dir, _ := newProject(t, files, map[string]string{
		"skills/two/SKILL.md": agentText("mine"), "skills/one/SKILL.md": agentText("shadowed"),
	})
	s := load(t, l)
	for _, name := range []string{"a", "s/b"} {
		d := find(t, s, name, "")
		if len(d.Carried) != 2 || d.Carried[0].Source.File != ".claude/skills/one/SKILL.md" || d.Carried[1].Source.File != "~/.claude/skills/two/SKILL.md" {
			t.Fatalf("%s carries %+v", name, d.Carried)
		}
		if !slices.Equal(d.Tools, []string{"Read", "mcp__custom__count"}) {
			t.Errorf("its tools are %q", d.Tools)
		}
		told := d.Render(t.Context(), agentfile.Facts{Input: "do it", SkillDir: "", Carried: []string{"/skills/one", "/skills/two"}})
		want := "Work.\n\n# Skill one\n\nBase directory for this skill: /skills/one\n\nOne, in /skills/one, about .\n\n# Skill two\n\nBase directory for this skill: /skills/two\n\nText."
		if told.Instructions != want || told.Message != "do it" || told.Problem != nil {
			t.Errorf("it is told %q and %q, %v", told.Instructions, told.Message, told.Problem)
		}
	}
	before := find(t, s, "a", "").Hash
	write(t, dir, map[string]string{".claude/skills/one/details.md": "Changed.\n"})
	if after := find(t, load(t, l), "a", "").Hash; after == before {
		t.Error("a skill has changed, and the hash of its carrier has not")
	}
	if d := find(t, load(t, l), "a", ""); len(d.Carried) != 2 || len(d.Tools) != 2 {
		t.Errorf("read again it carries %d skills, with tools %q", len(d.Carried), d.Tools)
	}
}

// Commands in the text of a carried skill go through whom the caller says, too.
func TestCommandsOfCarriedSkillsAreAskedFor(t *testing.T) {
	l, _, _ := newProject(t, map[string]string{
		".claude/agents/a.md":         "---\ndescription: d\nskills: one\n---\nWork.\n",
		".claude/skills/one/SKILL.md": "---\ndescription: d\n---\nSee !`date`.\n",
	}, nil)
	d := find(t, load(t, l), "a", "")
	told := d.Render(t.Context(), agentfile.Facts{Run: func(_ context.Context, c agentfile.ShellCommand) (string, error) { return "<" + c.Line + ">", nil }})
	if !strings.Contains(told.Instructions, "See <date>.") || told.Problem != nil {
		t.Errorf("it is told %q, %v", told.Instructions, told.Problem)
	}
	if told := d.Render(t.Context(), agentfile.Facts{}); told.Problem == nil || !strings.Contains(told.Problem.Error(), ".claude/skills/one/SKILL.md") {
		t.Errorf("nobody allows it, and it is %v", told.Problem)
	}
}

func TestSkillsThatCannotBeCarried(t *testing.T) {
	skill := func(more, text string) string { return "---\ndescription: d\n" + more + "---\n" + text + "\n" }
	tool := "custom_tools: [{name: count, command: [wc]}]\n"
	for _, test := range []struct {
		name  string
		agent string // keys of it
		one   string
		two   string
		want  string
	}{
		{"typo", "skills: [one, twoo]\n", skill("", "x"), skill("", "x"), `.claude/agents/a.md:3:1: there is no skill "twoo"; did you mean "two"?`},
		{"unknown", "skills: [telepathy]\n", skill("", "x"), skill("", "x"), `there is no skill "telepathy"; make .claude/skills/telepathy/SKILL.md, or remove it here`},
		{"broken", "skills: [one]\n", skill("role: x\n", "x"), skill("", "x"), "the skill one cannot be used: see what is wrong with .claude/skills/one/SKILL.md"},
		{"too long", "skills: [one, two]\n", skill("", strings.Repeat("x", 200<<10)), skill("", strings.Repeat("x", 100<<10)), "the texts of its skills have more than 262144 bytes together, from two on"},
		{"two tools", "skills: [one, two]\n", skill(tool, "x"), skill(tool, "x"), "both the skill one and the skill two have a custom tool count"},
		{"own tool", tool + "skills: [one]\n", skill(tool, "x"), skill("", "x"), "both the agent and the skill one have a custom tool count"},
		{"own server", "mcp_servers: {custom: {command: x}}\nskills: [one]\n", skill(tool, "x"), skill("", "x"), `an MCP server "custom" is what the custom tools of the skill one become`},
		{"too many", "skills: [" + strings.Repeat("a,", 21) + "]\n", skill("", "x"), skill("", "x"), "there are more than 20 skills"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, _, _ := newProject(t, map[string]string{
				".claude/agents/a.md": skill(test.agent, "Work."), ".claude/agents/b.md": agentText("fine"),
				".claude/skills/one/SKILL.md": test.one, ".claude/skills/two/SKILL.md": test.two,
			}, nil)
			s := load(t, l)
			if _, err := s.Find("a", ""); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it fails with %v, want %s", err, test.want)
			}
			find(t, s, "b", "") // which has nothing to do with it
		})
	}
}
