package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// What a run in a worktree starts works there too, not in the project.
func TestChildWorksWhereItsParentDoes(t *testing.T) {
	dir := checkout(t)
	model := scriptmodel.Start(t, `
rules:
  - when: {user: "^child$"}
    turns:
      - tools: [{name: Bash, input: {command: "echo child > child.txt; pwd", description: write}}]
      - text: "{{.ToolResult}}"
  - turns:
      - tools: [{name: mcp__nestor__spawn, input: {task: child}}]
      - tools: [{name: Bash, input: {command: "cat child.txt; pwd", description: look}}]
      - text: "{{.ToolResult}}"`)
	for _, sandbox := range []string{"off", "files"} {
		s := settings{Dir: dir, URL: model.URL, Provider: "api"}
		client, end := serving(t, s)
		run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"workspace":{"kind":"worktree","end":"keep"},"tools":["Bash"],"sandbox":"` + sandbox + `"}`)})
		if out := run.Result.Output; !strings.HasPrefix(out, "child\n") || !strings.Contains(out, string(run.ID)) {
			t.Errorf("%s: the parent finds %q", sandbox, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "child.txt")); err == nil {
			t.Errorf("%s: the child wrote to the project", sandbox)
		}
		end()
	}
}

// The role of an agent's definition bounds what it starts, whoever that is.
func TestRoleOfADefinitionReachesDown(t *testing.T) {
	dir := place(t)
	writeAgent(t, dir, ".claude/agents/judge.md", "---\ndescription: d\nrole: critic\n---\nText.\n")
	writeAgent(t, dir, ".claude/agents/hand.md", "---\ndescription: d\nrole: implementer\n---\nText.\n")
	model := scriptmodel.Start(t, `
rules:
  - when: {user: "^deeper$"}
    turns:
      - tools: [{name: Write, input: {file_path: deeper.txt, content: x}}]
      - text: "{{.ToolResult}}"
  - when: {user: "^child (.*)$"}
    turns:
      - tools: [{name: Bash, input: {command: "touch by-bash.txt", description: try}}]
      - tools: [{name: Write, input: {file_path: by-write.txt, content: x}}]
      - tools: [{name: mcp__nestor__spawn, input: {task: deeper, role: implementer, permission_mode: bypassPermissions}}]
      - text: done
  - turns:
      - tools: [{name: mcp__nestor__spawn, input: {task: child plain}}]
      - tools: [{name: mcp__nestor__spawn, input: {task: child hand, agent: hand}}]
      - tools: [{name: mcp__nestor__spawn, input: {task: child role, role: orchestrator, permission_mode: bypassPermissions, tools: [Bash, Write]}}]
      - text: done`)
	s := settings{Dir: dir, URL: model.URL, Provider: "api"}
	client, _ := serving(t, s)
	run := finish(t, client, nestor.Task{Agent: "judge", Input: "go", Dir: dir, Data: []byte(`{"permission_mode":"bypassPermissions"}`)})
	tree, err := client.Tree(t.Context(), run.ID)
	if err != nil || len(tree) != 7 {
		for _, r := range tree {
			t.Logf("%+v", r)
		}
		t.Errorf("the tree has %d runs, %v", len(tree), err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(left) > 0 {
		t.Errorf("below a critic was written: %v, %v", left, err)
	}
}
