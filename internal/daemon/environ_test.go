package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// offline is a role with commands, and without git and the web.
var offline = map[string]permission.RoleSpec{"offline": {Extends: "researcher", Web: "no"}}

// A run's commands see of the daemon's environment what all do, what its role is
// granted and what the config names: no secret of whoever started the daemon.
func TestCommandsGetNoSecretOfTheDaemon(t *testing.T) {
	for name, value := range map[string]string{
		"NESTOR_TEST_SECRET": "s1", "MY_PASSWORD": "s2", "AWS_SECRET_ACCESS_KEY": "s3", "ANTHROPIC_AUTH_TOKEN": "s4",
		"GITHUB_TOKEN": "gh-token", "GIT_AUTHOR_NAME": "ada", "HTTPS_PROXY": "", "no_proxy": "127.0.0.1", "OPENED_UP": "opened",
	} {
		t.Setenv(name, value)
	}
	const script = `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "env", description: look}}]
      - text: "{{.ToolResult}}"`
	for _, test := range []struct {
		role      string
		want, not []string
	}{
		{"", []string{"GITHUB_TOKEN=gh-token", "GIT_AUTHOR_NAME=ada", "no_proxy="}, nil},
		{"implementer", []string{"GIT_AUTHOR_NAME=ada", "no_proxy="}, []string{"gh-token"}},
		{"offline", nil, []string{"gh-token", "GIT_AUTHOR_NAME="}},
	} {
		for _, provider := range []string{"api", "sdk"} {
			t.Run(provider+" "+test.role, func(t *testing.T) {
				dir := place(t)
				model := scriptmodel.Start(t, script)
				s := settings{Dir: dir, Pass: []string{"OPENED_*"}}.with(t, provider, model.URL)
				s.Roles = offline
				client, _ := serving(t, s)
				run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"permission_mode":"bypassPermissions","env":["GIVEN=given"],"role":"` + test.role + `"}`)})
				env := run.Result.Output
				for _, want := range append(test.want, "PATH=", "HOME=", "OPENED_UP=opened", "GIVEN=given", "NESTOR_RUN_ID="+string(run.ID), "AGENT_WORKSPACE="+dir) {
					if !strings.Contains(env, want) {
						t.Errorf("%s is missing in\n%s", want, env)
					}
				}
				not := append(test.not, "=s1", "=s2", "=s3", "=s4")
				if provider == "api" && test.role == "offline" {
					not = append(not, "no_proxy=")
				}
				for _, not := range not {
					if strings.Contains(env, not) {
						t.Errorf("%s is in\n%s", not, env)
					}
				}
			})
		}
	}
}

// The command that makes a worktree ready gets what the run's processes do, and the
// ports.
func TestSetupGetsNoSecretOfTheDaemon(t *testing.T) {
	for name, value := range map[string]string{"MY_PASSWORD": "s1", "ANTHROPIC_AUTH_TOKEN": "s2", "GITHUB_TOKEN": "gh-token", "OPENED_UP": "opened"} {
		t.Setenv(name, value)
	}
	dir := checkout(t)
	client, _ := serving(t, settings{
		Dir: dir, Provider: "scripted", Pass: []string{"OPENED_*"}, Roles: offline,
		Workspace: daemon.Workspaces{Kind: "worktree", Ports: 2, Setup: []string{"sh", "-c", "env > env.txt"}},
	})
	for role, token := range map[string]bool{"": true, "offline": false} {
		run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(`{"role":"` + role + `"}`)})
		w, _ := api.WorkspaceOf(run.Result)
		text, err := os.ReadFile(filepath.Join(w.Dir, "env.txt"))
		if err != nil {
			t.Fatal(err)
		}
		env := string(text)
		for _, want := range []string{"PATH=", "HOME=", "OPENED_UP=opened", "NESTOR_PORT_BASE=", "NESTOR_RUN_ID=" + string(run.ID)} {
			if !strings.Contains(env, want) {
				t.Errorf("role %q: %s is missing in\n%s", role, want, env)
			}
		}
		if strings.Contains(env, "=s1") || strings.Contains(env, "=s2") || strings.Contains(env, "gh-token") != token {
			t.Errorf("role %q: it has\n%s", role, env)
		}
	}
}
