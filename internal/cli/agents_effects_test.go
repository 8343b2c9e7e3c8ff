package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/soak"
)

// confined returns flags of a run that is confined, or bounded by a role; a test
// is skipped where it cannot be.
func confined(t *testing.T, how string) []string {
	t.Helper()
	switch how {
	case "":
		return nil
	case "sandbox":
		if _, err := sandbox.Wrap(sandbox.Profile{Level: sandbox.Files}); err != nil {
			t.Skipf("no sandbox here: %v", err)
		}
		return []string{"--sandbox", "files"}
	}
	return []string{"--role", how}
}

// The skills that an agent carries are told to it, and their tools and files are
// there, wherever it works; so are those of a skill that is run itself.
func TestSkillsAreCarriedIntoARun(t *testing.T) {
	const script = `
rules:
  - when: {system: Count with the tool}
    turns:
      - {text: I count., tools: [{name: mcp__custom__count, input: {text: "to be"}}]}
      - {text: "It said {{.ToolResult}}", tools: [{name: Read, input: {file_path: "$WORK/.claude/skills/counting/more.md"}}]}
      - text: "It reads {{.ToolResult}}"
  - turns: [{text: "I was told nothing of it: {{.System}}"}]`
	for _, provider := range realProviders {
		for _, how := range soak.Draw(t, 1, []string{"", "critic", "sandbox"}) {
			t.Run(strings.TrimSpace(provider+" "+how), func(t *testing.T) {
				t.Parallel()
				p := newRealProject(t, provider, script, "")
				skill := filepath.Join(p.dir, ".claude", "skills", "counting")
				writeNew(t, filepath.Join(skill, "SKILL.md"), strings.Replace(countingSkill, "%", "", 1))
				writeNew(t, filepath.Join(skill, "count.sh"), "set -- $1\necho \"<$#>\"\n")
				writeNew(t, filepath.Join(skill, "more.md"), "There is more.\n")
				writeNew(t, filepath.Join(p.dir, ".claude", "agents", "carrier.md"), "---\ndescription: d\ntools: Read\nskills: [counting]\n---\nYou carry.\n")
				writeNew(t, filepath.Join(p.dir, "below", "file"), "")
				for _, name := range []string{"carrier", "counting"} {
					e := p.run(t, append(confined(t, how), "--dir", "below", "--agent", name, "go")...)
					if !strings.Contains(e.stdout, `"content":"It said \u003c2\u003e`) && !strings.Contains(e.stdout, `"content":"It said <2>`) || !strings.Contains(e.run.Result.Output, "There is more.") {
						t.Errorf("%s: it is %s, %v: %q; %s", name, e.run.State, e.run.Error, e.run.Result.Output, e.stderr)
					}
				}
			})
		}
	}
}

// An agent finds again what it has written into its memory, whatever bounds it, and
// may write nowhere else by that.
func TestAgentRemembers(t *testing.T) {
	for _, provider := range realProviders {
		for _, how := range soak.Draw(t, 1, []string{"", "critic", "sandbox"}) {
			for _, memory := range []string{"user", "project", "local"} {
				if memory == "local" && how != "" {
					continue // as in the project
				}
				t.Run(strings.TrimSpace(provider+" "+memory+" "+how), func(t *testing.T) {
					t.Parallel()
					const script = `
rules:
  - when: {system: it rains in Bergen}
    turns:
      - {text: I look., tools: [{name: Read, input: {file_path: "MEMORY/MEMORY.md"}}]}
      - {text: I remember., tools: [{name: Edit, input: {file_path: "MEMORY/MEMORY.md", old_string: Bergen, new_string: Oslo}}]}
      - text: "I had it wrong: {{.ToolResult}}"
  - when: {system: The folder .* is yours}
    turns:
      - {text: I write., tools: [{name: Write, input: {file_path: "MEMORY/MEMORY.md", content: "it rains in Bergen\n"}}]}
      - {text: "First: {{.ToolResult}}", tools: [{name: Write, input: {file_path: "$WORK/below/elsewhere.txt", content: x}}]}
      - text: "Second: {{.ToolResult}}"
  - turns: [{text: "I was told nothing of it: {{.System}}"}]`
					p := newMemoryProject(t, provider, script, memory)
					args := append(confined(t, how), "--dir", "below", "--agent", "elephant", "go")
					for i, want := range []string{"it rains in Bergen\n", "it rains in Oslo\n"} {
						e := p.run(t, args...)
						data, err := os.ReadFile(filepath.Join(p.memory, "MEMORY.md"))
						if err != nil || string(data) != want {
							t.Fatalf("run %d: its memory is %q, %v; it says %q; %s", i, data, err, e.run.Result.Output, e.stderr)
						}
					}
					if _, err := os.Stat(filepath.Join(p.dir, "below", "elsewhere.txt")); err == nil {
						t.Error("it writes elsewhere")
					}
				})
			}
		}
	}
}

type memoryProject struct {
	*realProject
	memory string
}

// newMemoryProject makes a project with an agent that has a memory, and a tool to
// read alone. In the script MEMORY is its folder.
func newMemoryProject(t *testing.T, provider, script, memory string) *memoryProject {
	t.Helper()
	// The script is read when the model starts, before the folders are known.
	p := &memoryProject{}
	place := map[string]string{"user": "$HOME/.claude/agent-memory/elephant", "project": "$WORK/.claude/agent-memory/elephant", "local": "$WORK/.claude/agent-memory-local/elephant"}[memory]
	p.realProject = newRealProject(t, provider, strings.ReplaceAll(script, "MEMORY/", place+"/"), "")
	p.memory = strings.NewReplacer("$HOME", p.home, "$WORK", p.dir).Replace(place)
	writeNew(t, filepath.Join(p.dir, ".claude", "agents", "elephant.md"), fmt.Sprintf("---\nname: elephant\ndescription: d\ntools: Read\nmemory: %s\n---\nRemember.\n", memory))
	writeNew(t, filepath.Join(p.dir, "below", "file"), "")
	return p
}

// An agent that wants to be alone works in a worktree, unless a flag says otherwise.
func TestAgentInAWorktree(t *testing.T) {
	const script = `
rules:
  - repeat: true
    turns:
      - {text: I write., tools: [{name: Write, input: {file_path: made.txt, content: made}}]}
      - text: done`
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "workspace: {kind: plain}\n")
			writeNew(t, filepath.Join(p.dir, ".claude", "agents", "alone.md"), "---\ndescription: d\nisolation: worktree\n---\nWrite.\n")
			for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "-q", "-m", "first"}} {
				cmd := exec.Command("git", args...)
				cmd.Dir, cmd.Env = p.dir, p.env
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v: %s", args, err, out)
				}
			}
			made := filepath.Join(p.dir, "made.txt")
			e := p.run(t, "--agent", "alone", "go")
			w, ok := api.WorkspaceOf(e.run.Result)
			if _, err := os.Stat(made); !ok || w.Kind != "worktree" || err == nil {
				t.Errorf("it works in %+v: %s", w, e.stderr)
			}
			if data, err := os.ReadFile(filepath.Join(w.Dir, "made.txt")); err != nil || string(data) != "made" {
				t.Errorf("there is %q, %v", data, err)
			}
			e = p.run(t, "--agent", "alone", "--workspace", "plain", "go")
			if w, _ := api.WorkspaceOf(e.run.Result); w.Kind == "worktree" {
				t.Errorf("it works in %+v, though a flag says otherwise", w)
			}
			if _, err := os.Stat(made); err != nil {
				t.Errorf("%v: %s", err, e.stderr)
			}
		})
	}
}

// A conversation goes on with its agent: with its instructions, its memory of what
// was said, its tools and its hooks.
func TestResumedRunHasItsAgent(t *testing.T) {
	const script = `
rules:
  - when: {system: You are Ada, user: ^second$}
    turns:
      - {text: I go on., tools: [{name: Bash, input: {command: "touch forbidden", description: try}}]}
      - text: "Ada again: {{.ToolResult}}"
  - when: {system: You are Ada, user: ^first$}
    turns: [{text: I am Ada.}]
  - turns: [{text: "Who am I? {{.Prompt}}"}]`
	const text = "---\ndescription: d\ntools: Read, Bash\nhooks: {PreToolUse: [{hooks: [{type: command, command: 'echo never >&2; exit 2'}]}]}\n---\nYou are Ada.\n"
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			file := filepath.Join(p.dir, ".claude", "agents", "ada.md")
			writeNew(t, file, text)
			first := p.run(t, "--agent", "ada", "first")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			second := p.run(t, "--resume", string(first.run.ID), "second")
			if first.run.Result.Output != "I am Ada." || !strings.Contains(second.run.Result.Output, "Ada again: ") || !strings.Contains(second.run.Result.Output, "never") {
				t.Errorf("it says %q, then %q; %s", first.run.Result.Output, second.run.Result.Output, second.stderr)
			}
			if first.run.Session != second.run.Session || second.run.Agent != "ada" {
				t.Errorf("it is session %s of %s, after %s", second.run.Session, second.run.Agent, first.run.Session)
			}
		})
	}
}
