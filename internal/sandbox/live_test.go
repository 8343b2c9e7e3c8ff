//go:build linux

package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// work is a conversation: a file is written in the workspace, what is there is
// read by a command, what is outside is not, and what was heard is repeated.
const work = `
rules:
  - repeat: true
    turns:
      - tools: [{name: Write, input: {file_path: "$WORK/made.txt", content: "made inside"}}]
      - tools: [{name: Bash, input: {command: "cat $WORK/made.txt; cat $SECRET; echo x > $OUTSIDE/new; touch $TMPDIR/mine && ls $TMPDIR; echo done", description: "look around"}}]
      - text: "Heard: {{.ToolResult}}"
`

// TestRealCLIWorksInside runs the real Claude CLI (seen in 2.1.325) confined.
func TestRealCLIWorksInside(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		if level == Off && testing.Short() {
			t.Skip("-short: without confinement it is tested elsewhere")
		}
		cli := claudetest.Real(t)
		outside, model := scriptOf(t, cli.Dir)
		path, err := filepath.EvalSymlinks(cli.Path)
		if err != nil {
			t.Fatal(err)
		}
		p := claudecode.New(claudecode.Options{Path: path, ReplaceEnv: true, Env: slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL), []string{"GORACE=" + quickExit})})
		tmp := filepath.Join(filepath.Dir(cli.Home), "tmp")
		wrap := wrapped(t, Profile{Level: level, Network: Web, Read: []string{path}, Write: []string{cli.Dir, cli.Home, tmp}}, private)
		converse(t, p, agent.Config{Name: "ada", Dir: cli.Dir, Wrap: wrap}, level, cli.Dir, outside)
	})
}

// TestOwnLoopWorksInside runs our own loop, whose commands are confined without
// any network.
func TestOwnLoopWorksInside(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		dir, spool := t.TempDir(), t.TempDir()
		outside, model := scriptOf(t, dir)
		p := anthropic.New(anthropic.Options{BaseURL: model.URL, APIKey: "any", Spool: spool})
		tmp := filepath.Join(dir, "tmp")
		if err := os.Mkdir(tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		wrap := wrapped(t, Profile{Level: level, Write: []string{dir, spool}}, private)
		converse(t, p, agent.Config{
			Name: "ada", Dir: dir, Env: []string{"TMPDIR=" + tmp}, Wrap: wrap,
			Credentials: map[string]string{"base_url": model.URL, "api_key": "any"},
		}, level, dir, outside)
	})
}

// scriptOf makes what is outside, and a model that has it looked at.
func scriptOf(t *testing.T, dir string) (outside string, model *scriptmodel.Server) {
	t.Helper()
	outside = t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("the-secret-outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("$WORK", dir, "$SECRET", outside+"/secret", "$OUTSIDE", outside).Replace(work)
	return outside, scriptmodel.Start(t, script)
}

func converse(t *testing.T, p agent.Provider, c agent.Config, level Level, dir, outside string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c.AllowedTools = []string{"Write", "Bash"}
	a, err := p.Create(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for m, err := range a.Handle(ctx, agent.NewMessage("tester", "look around")) {
		if err != nil {
			t.Fatalf("after %q: %v", said, err)
		}
		said = append(said, m.Content)
	}
	if err := a.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	heard := strings.Join(said, "\n")
	made, err := os.ReadFile(dir + "/made.txt")
	if string(made) != "made inside" || !strings.Contains(heard, "made inside") || !strings.Contains(heard, "mine") || !strings.Contains(heard, "done") {
		t.Errorf("it could not work: %q, %v\n%s", made, err, heard)
	}
	_, err = os.Stat(outside + "/new")
	read, wrote := strings.Contains(heard, "the-secret-outside"), err == nil
	if free := level == Off; read != free || wrote != free {
		t.Errorf("at level %s it read what is outside: %v; it wrote there: %v\n%s", level, read, wrote, heard)
	}
}
