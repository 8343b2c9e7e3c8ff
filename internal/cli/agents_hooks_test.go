package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/soak"
)

const guardedAgent = `---
name: guarded
description: Its calls are looked at.
tools: Bash
%hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - {type: command, command: 'bash "$CLAUDE_PROJECT_DIR/.claude/hooks/guard.sh"'}
        - {type: command, command: "exit 1", if: "Bash(echo *)"}
    - matcher: Read
      hooks: [{type: command, command: "touch never"}]
  PostToolUse:
    - matcher: Bash|Edit
      hooks: [{type: command, command: "cat > post.json"}]
  SessionStart:
    - hooks: [{type: command, command: "cat > start.json"}]
  UserPromptSubmit:
    - hooks: [{type: command, command: "cat > prompt.json; echo remember the milk", once: true}]
  Stop:
    - hooks: [{type: command, command: 'tee stop.json | grep -q ''"stop_hook_active":true'' || { echo "now say goodbye" >&2; exit 2; }'}]
---
Work.
`

const guardScript = `input=$(cat)
case $input in
*forbidden*) echo "that is forbidden" >&2; exit 2;;
*rewrite*) echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"echo rewritten","description":"x"}}}';;
esac
`

// What a definition's hooks say is heard, by the CLI and by our own loop, also
// where a sandbox confines the run: they block, change and comment on calls, and
// keep the agent going.
func TestHooksOfADefinition(t *testing.T) {
	const script = `
rules:
  - when: {user: now say goodbye}
    turns: [{text: Goodbye.}]
  - turns:
      - {text: I try., tools: [{name: Bash, input: {command: "touch forbidden", description: try}}]}
      - {text: "One: {{.ToolResult}}", tools: [{name: Bash, input: {command: "echo allowed", description: try}}]}
      - {text: "Two: {{.ToolResult}}", tools: [{name: Bash, input: {command: "touch rewrite", description: try}}]}
      - text: "Three: {{.ToolResult}}"`
	for _, provider := range realProviders {
		for _, where := range soak.Draw(t, 1, []string{"", "role", "sandbox"}) {
			t.Run(strings.TrimSpace(provider+" "+where), func(t *testing.T) {
				t.Parallel()
				args, keys := []string{"--agent", "guarded", "go"}, ""
				switch where {
				case "sandbox":
					if _, err := sandbox.Wrap(sandbox.Profile{Level: sandbox.Files}); err != nil {
						t.Skipf("no sandbox here: %v", err)
					}
					args = append([]string{"--sandbox", "files"}, args...)
				case "role":
					keys = "role: implementer\n"
				}
				p := newRealProject(t, provider, script, "")
				writeNew(t, filepath.Join(p.dir, ".claude", "agents", "guarded.md"), strings.Replace(guardedAgent, "%", keys, 1))
				writeNew(t, filepath.Join(p.dir, ".claude", "hooks", "guard.sh"), guardScript)
				e := p.run(t, args...)
				for _, want := range []string{"One: .*that is forbidden", "Two: allowed", "Three: rewritten", "Goodbye."} {
					if !regexp.MustCompile(`"content":"` + want).MatchString(e.stdout) {
						t.Errorf("it is %s, %v, and does not say %q: %s%s", e.run.State, e.run.Error, want, e.stdout, e.stderr)
					}
				}
				for _, name := range []string{"forbidden", "rewrite", "never"} {
					if _, err := os.Stat(filepath.Join(p.dir, name)); err == nil {
						t.Errorf("there is a file %s", name)
					}
				}
				if !strings.Contains(e.stdout, "hook PreToolUse of .claude/agents/guarded.md: it ended with code 1.") {
					t.Errorf("a hook failed, and nobody is told: %s", e.stdout)
				}
				if denials := decisions(t, e, "hook PreToolUse of .claude/agents/guarded.md"); len(denials) != 1 || denials[0].Allowed || denials[0].Reason != "that is forbidden" {
					t.Errorf("on record is %+v", denials)
				}
				for file, want := range map[string]map[string]string{
					"post.json":   {"hook_event_name": `"PostToolUse"`, "tool_name": `"Bash"`, "tool_input": "echo rewritten", "tool_response": "rewritten"},
					"start.json":  {"hook_event_name": `"SessionStart"`, "source": `"startup"`},
					"prompt.json": {"hook_event_name": `"UserPromptSubmit"`, "prompt": `"go"`},
					"stop.json":   {"hook_event_name": `"Stop"`, "stop_hook_active": "true"},
				} {
					checkHookInput(t, p, file, want)
				}
			})
		}
	}
}

func checkHookInput(t *testing.T, p *realProject, file string, want map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		t.Error(err)
		return
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(data, &got); err != nil {
		t.Errorf("%s: %v: %s", file, err, data)
	}
	want["agent_type"] = `"guarded"`
	for key, value := range want {
		if !strings.Contains(string(got[key]), value) {
			t.Errorf("%s: %s is %s, want %s", file, key, got[key], value)
		}
	}
	var dir, session string
	json.Unmarshal(got["cwd"], &dir)
	json.Unmarshal(got["session_id"], &session)
	if dir != p.dir || session == "" {
		t.Errorf("%s: it is in %q, session %q", file, dir, session)
	}
}

// decisions returns those that a rule made.
func decisions(t *testing.T, e ending, rule string) (list []*nestor.Decision) {
	t.Helper()
	for line := range strings.Lines(e.stdout) {
		event, err := nestor.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := event.(*nestor.Decision); ok && d.Rule == rule {
			list = append(list, d)
		}
	}
	return list
}

// A hook cannot make of a call what the role does not allow.
func TestHookDoesNotWiden(t *testing.T) {
	const script = `
rules:
  - turns:
      - {text: I try., tools: [{name: Bash, input: {command: "ls", description: try}}]}
      - text: "It said: {{.ToolResult}}"`
	const text = `---
description: Its call is changed.
role: reviewer
hooks:
  PreToolUse:
    - hooks:
        - type: command
          command: >-
            echo '{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"command":"touch wide","description":"x"}}}'
---
Work.
`
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			writeNew(t, filepath.Join(p.dir, ".claude", "agents", "wide.md"), text)
			e := p.run(t, "--agent", "wide", "go")
			if !strings.Contains(e.run.Result.Output, "It said:") || !strings.Contains(e.run.Result.Output, "A hook changed the call, and so") {
				t.Errorf("it says %q; %s", e.run.Result.Output, e.stderr)
			}
			if _, err := os.Stat(filepath.Join(p.dir, "wide")); err == nil {
				t.Error("the file is there")
			}
		})
	}
}

// A hook that takes too long is ended, which is told, and blocks only if it guards.
func TestHookThatTakesTooLong(t *testing.T) {
	const script = `
rules:
  - turns:
      - {text: I try., tools: [{name: Bash, input: {command: "echo fine", description: try}}]}
      - text: "It said: {{.ToolResult}}"`
	for _, provider := range realProviders {
		for more, want := range map[string]string{"": "It said: fine", ", onFailure: block": "bash took longer than 50ms, and was ended"} {
			t.Run(provider+more, func(t *testing.T) {
				t.Parallel()
				p := newRealProject(t, provider, script, "")
				writeNew(t, filepath.Join(p.dir, ".claude", "agents", "slow.md"),
					"---\ndescription: d\ntools: Bash\nhooks: {PreToolUse: [{hooks: [{type: command, command: sleep 600, timeout: 0.05"+more+"}]}]}\n---\nWork.\n")
				e := p.run(t, "--agent", "slow", "go")
				if !strings.Contains(e.run.Result.Output, want) {
					t.Errorf("it says %q; %s", e.run.Result.Output, e.stderr)
				}
				if !strings.Contains(e.stdout, `"activity":"hook PreToolUse of .claude/agents/slow.md: bash took longer than 50ms, and was ended"`) {
					t.Errorf("nobody is told: %s", e.stdout)
				}
			})
		}
	}
}
