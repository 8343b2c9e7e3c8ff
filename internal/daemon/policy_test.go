package daemon_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// A run in a sandbox works in its folder, and reaches nothing else: neither the
// files of others, nor those of the daemon.
func TestSandboxHoldsRuns(t *testing.T) {
	if err := sandbox.Check().Refuses(sandbox.Files, sandbox.Web); err != nil {
		t.Skip(err)
	}
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			secret := filepath.Join(place(t), "secret.txt")
			if err := os.WriteFile(secret, []byte("the secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			dir := place(t)
			model := scriptmodel.Start(t, strings.NewReplacer("$SECRET", secret, "$DIR", dir).Replace(`
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "echo mine > mine.txt; cat $SECRET; cat .nestor/history.db | head -c 20; echo more >> $SECRET; echo tmp > $TMPDIR/x && echo temporary; true", description: try}}]
      - text: "It said: {{.ToolResult}}"`))
			s := settings{Dir: dir, URL: model.URL, Provider: provider}
			if provider == "sdk" {
				cli := claudetest.Real(t)
				s.Path, s.Env = cli.Path, slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))
			}
			client, end := serving(t, s)
			id := submit(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"permission_mode":"bypassPermissions","sandbox":"files"}`)})
			run, err := client.Wait(t.Context(), id)
			if err != nil || run.State != nestor.Success {
				t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
			}
			out := run.Result.Output
			if strings.Contains(out, "the secret") || strings.Contains(out, "SQLite") || !strings.Contains(out, "temporary") {
				t.Errorf("it got out: %s", out)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "mine.txt")); err != nil || string(data) != "mine\n" {
				t.Errorf("its own file holds %q, %v", data, err)
			}
			if data, err := os.ReadFile(secret); err != nil || string(data) != "the secret\n" {
				t.Errorf("the other's file holds %q, %v", data, err)
			}
			end() // when all that it has begun is over
			if left, err := os.ReadDir(filepath.Join(dir, ".nestor", "tmp")); err == nil && len(left) > 0 {
				t.Errorf("left in the folder for temporary files: %v", left)
			}
		})
	}
}

// What a run leaves in the background ends with it, whatever the sandbox.
func TestNothingOutlivesARun(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "(setsid nohup sleep 1000 >/dev/null 2>&1 &) ; echo started", description: leave}}]
      - text: Done.`)
	client, _ := serving(t, settings{Dir: dir, URL: model.URL, Provider: "api"})
	id := submit(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"permission_mode":"bypassPermissions"}`)})
	if run, err := client.Wait(t.Context(), id); err != nil || run.State != nestor.Success {
		t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
	}
	if !vanish(t.Context(), t, dir) {
		t.Errorf("left running: %q", leftovers(t, dir))
	}
}

func TestUnknownSandboxIsRefused(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t), Provider: "scripted"})
	id := submit(t, client, nestor.Task{Input: "go", Data: []byte(`{"sandbox":"glass"}`)})
	run := until(t, client, id, func(r api.Run) bool { return r.State.Ended() })
	if run.State != nestor.Error || run.Error.Kind != nestor.Refused || !strings.Contains(run.Error.Message, `no sandbox level "glass"`) {
		t.Errorf("it is %s, %+v", run.State, run.Error)
	}
}
