package cli_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/soak"
)

// metadataOf returns an entry of the metadata of a run's result.
func metadataOf(t *testing.T, e ending, key string, into any) {
	t.Helper()
	data, err := json.Marshal(e.run.Result.Metadata[key])
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

const countingSkill = `---
description: Counts.
%custom_tools:
  - name: count
    description: Count the words of a text.
    input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
    command: [sh, "${CLAUDE_SKILL_DIR}/count.sh", "{{text}}"]
---
Count with the tool.
`

// A skill's custom tool is called by the CLI and by our own loop, also where a role
// bounds the run and a sandbox confines it, and what it says is in the result.
func TestCustomToolIsCalled(t *testing.T) {
	const script = `
rules:
  - turns:
      - {text: I count., tools: [{name: mcp__custom__count, input: {text: "to be; exit 9 or not"}}]}
      - text: "It said {{.ToolResult}}"`
	for _, provider := range realProviders {
		for _, role := range soak.Draw(t, 1, []string{"", "critic", "sandbox"}) {
			t.Run(strings.TrimSpace(provider+" "+role), func(t *testing.T) {
				t.Parallel()
				args := []string{"--agent", "counting", "go"}
				if role == "sandbox" {
					if _, err := sandbox.Wrap(sandbox.Profile{Level: sandbox.Files}); err != nil {
						t.Skipf("no sandbox here: %v", err)
					}
					role, args = "", append([]string{"--sandbox", "files"}, args...)
				}
				p := newRealProject(t, provider, script, "")
				said := ""
				if role != "" {
					said = "role: " + role + "\n"
				}
				writeNew(t, filepath.Join(p.dir, ".claude", "skills", "counting", "SKILL.md"), strings.Replace(countingSkill, "%", said, 1))
				writeNew(t, filepath.Join(p.dir, ".claude", "skills", "counting", "count.sh"), "set -f\nset -- $1\necho \"<$# in $AGENT_NAME>\"\n")
				e := p.run(t, args...)
				if e.code != 0 || e.run.State != nestor.Success || !strings.Contains(e.run.Result.Output, "It said <6 in counting>") {
					t.Errorf("it is %s, %v: %q; %s", e.run.State, e.run.Error, e.run.Result.Output, e.stderr)
				}
				var definition struct{ Name, Kind, File, SHA256 string }
				metadataOf(t, e, "definition", &definition)
				if definition.Name != "counting" || definition.Kind != "skill" || definition.File != ".claude/skills/counting/SKILL.md" || len(definition.SHA256) != 64 {
					t.Errorf("its definition is %+v", definition)
				}
				if tools, ok := e.run.Result.Metadata["missing_tools"]; ok {
					t.Errorf("these are missing: %v", tools)
				}
			})
		}
	}
}

// What a definition denies is denied, and what it asks for and is not there is told.
func TestToolsThatAreDeniedOrMissing(t *testing.T) {
	const script = `
rules:
  - turns:
      - {text: I try., tools: [{name: Bash, input: {command: "touch $WORK/denied", description: try}}]}
      - {text: "One: {{.ToolResult}}", tools: [{name: Bash, input: {command: "echo allowed", description: try}}]}
      - text: "Two: {{.ToolResult}}"`
	const text = "---\ndescription: Tries.\ntools: Read, Bash, Telepathy\ndisallowedTools: Bash(touch *)\n---\nTry.\n"
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			writeNew(t, filepath.Join(p.dir, ".claude", "agents", "trier.md"), text)
			e := p.run(t, "--agent", "trier", "go")
			if e.code != 0 || !strings.Contains(e.run.Result.Output, "Two: allowed") {
				t.Errorf("it says %q; %s", e.run.Result.Output, e.stderr)
			}
			if !strings.Contains(e.stdout, "the definition of the agent trier denies it Bash") {
				t.Errorf("nothing is denied: %s", e.stdout)
			}
			var missing []string
			metadataOf(t, e, "missing_tools", &missing)
			if !slices.Equal(missing, []string{"Telepathy"}) {
				t.Errorf("missing are %q", missing)
			}
		})
	}
}

// The text of an agent is its system prompt, and its model is asked for.
func TestAgentIsInstructed(t *testing.T) {
	const script = `
rules:
  - when: {system: You are Ada, model: haiku}
    turns: [{text: I am Ada.}]
  - turns: [{text: "Who am I?"}]`
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			writeNew(t, filepath.Join(p.dir, ".claude", "agents", "ada.md"), "---\nname: ada\ndescription: Use her when: asked\nmodel: haiku\n---\nYou are Ada.\n")
			if e := p.run(t, "--agent", "ada", "who are you?"); e.run.Result.Output != "I am Ada." {
				t.Errorf("it says %q; %s", e.run.Result.Output, e.stderr)
			}
		})
	}
}

// A command's text has commands executed, if they are allowed.
func TestCommandsOfATextAreExecuted(t *testing.T) {
	const script = `
rules:
  - when: {user: "<a b> in"}
    turns: [{text: I see it.}]
  - turns: [{text: "No: {{.Prompt}}"}]`
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			writeNew(t, filepath.Join(p.dir, ".claude", "commands", "look.md"), "---\nallowed-tools: Bash(printf:*)\n---\nSee !`printf '<%s>' \"$1\"` in.\n")
			writeNew(t, filepath.Join(p.dir, ".claude", "commands", "blind.md"), "See !`touch blind` in.\n")
			if e := p.run(t, "--agent", "look", "'a b' c"); e.run.Result.Output != "I see it." {
				t.Errorf("it says %q; %s", e.run.Result.Output, e.stderr)
			}
			e := p.run(t, "--agent", "blind", "raw input")
			var problem string
			metadataOf(t, e, "template_error", &problem)
			if !strings.Contains(problem, "allow it with allowed-tools: Bash(touch blind)") || !strings.Contains(e.run.Result.Output, "raw input") {
				t.Errorf("it says %q, and the problem is %q", e.run.Result.Output, problem)
			}
		})
	}
}
