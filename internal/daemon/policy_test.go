package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/permission"
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

// What a role forbids is refused, whatever the mode, and what is decided is on
// record with the rule that made it.
func TestRoleBoundsARun(t *testing.T) {
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			dir := place(t)
			model := scriptmodel.Start(t, strings.ReplaceAll(`
rules:
  - turns:
      - tools: [{name: Read, input: {file_path: $DIR/a.txt}}]
      - tools: [{name: Write, input: {file_path: $DIR/b.txt, content: no}}]
      - tools: [{name: Bash, input: {command: "touch $DIR/c.txt", description: try}}]
      - tools: [{name: Bash, input: {command: "cat a.txt", description: read}}]
      - text: "It said: {{.ToolResult}}"`, "$DIR", dir))
			if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := settings{Dir: dir, URL: model.URL, Provider: provider}
			if provider == "sdk" {
				cli := claudetest.Real(t)
				s.Path, s.Env = cli.Path, slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))
			}
			client, _ := serving(t, s)
			id := submit(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"permission_mode":"bypassPermissions","role":"reviewer"}`)})
			run, err := client.Wait(t.Context(), id)
			if err != nil || run.State != nestor.Success || run.Result.Output != "It said: hello" {
				t.Fatalf("it is %s, %+v, %+v, %v", run.State, run.Result, run.Error, err)
			}
			var decided []string
			for e, err := range client.Events(t.Context(), id, api.EventsQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if d, ok := e.(*nestor.Decision); ok {
					decided = append(decided, fmt.Sprint(d.Tool, " ", d.Allowed))
					if d.Rule == "" || !d.Allowed && d.Reason == "" {
						t.Errorf("%+v names no rule, or no reason", d)
					}
				}
			}
			if got := strings.Join(decided, ", "); got != "Read true, Write false, Bash false, Bash true" {
				t.Errorf("it was decided: %s", got)
			}
			for _, name := range []string{"b.txt", "c.txt"} {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					t.Errorf("%s was written", name)
				}
			}
		})
	}
}

func TestUnknownRoleIsRefused(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t), Provider: "scripted"})
	_, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Data: []byte(`{"role":"reviwer"}`)}})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 400 || !strings.Contains(err.Error(), "reviewer") {
		t.Errorf("got %v", err)
	}
}

// An own role bounds a run like a built-in one, and is found by its name.
func TestOwnRoleBoundsARun(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: Write, input: {file_path: a.md, content: yes}}, {name: Write, input: {file_path: a.go, content: no}}]
      - text: done`)
	s := settings{Dir: dir, URL: model.URL, Provider: "api"}
	s.Roles = map[string]permission.RoleSpec{"docs-writer": {Extends: "implementer", Deny: []string{"Edit(*.go)"}}}
	client, _ := serving(t, s)
	finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"role":"docs-writer"}`)})
	if _, err := os.Stat(filepath.Join(dir, "a.md")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a.go")); err == nil {
		t.Error("it has written what it may not")
	}
	_, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Data: []byte(`{"role":"docs-writr"}`)}})
	if err == nil || !strings.Contains(err.Error(), `did you mean "docs-writer"?`) {
		t.Errorf("got %v", err)
	}
}
