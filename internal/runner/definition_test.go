package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/runner"
)

// spy is a provider that tells with what its agents were made.
type spy struct {
	agent.Provider
	config agent.Config
}

func (s *spy) Create(ctx context.Context, c agent.Config) (agent.Agent, error) {
	s.config = c
	return s.Provider.Create(ctx, c)
}

func TestBriefMakesTheAgent(t *testing.T) {
	made := &spy{Provider: scripted.New(scripted.Echo()...)}
	providers, err := agent.NewProviders(made)
	if err != nil {
		t.Fatal(err)
	}
	var seen runner.Rights
	r := runner.New(runner.Options{
		Providers: providers, Provider: scripted.Type, Policy: fixed{runner.Rights{Tools: []string{"Read"}, Env: []string{"A=b"}}},
		Brief: func(_ context.Context, run runner.Run, _ runner.Place, rights runner.Rights) (runner.Brief, error) {
			if run.Task.Input == "fail" {
				return runner.Brief{}, &nestor.Failure{Kind: nestor.Refused, Message: "no such definition"}
			}
			seen = rights
			return runner.Brief{
				Instructions: "Be kind.", Message: "rendered: " + run.Task.Input, Servers: map[string]agent.MCPServer{"s": {Command: "serve"}},
				Approved: []string{"mcp__s"}, Denied: func(tool string, _ json.RawMessage) bool { return tool == "Write" }, Metadata: map[string]any{"k": "v"},
			}, nil
		},
	})
	host := &records{}
	result := r.Execute(t.Context(), runner.Run{Task: nestor.Task{Agent: "ada", Input: "go"}}, host)
	c := made.config
	if result.Output != "you said: rendered: go" || result.Metadata["k"] != "v" || c.Instructions != "Be kind." || c.MCPServers["s"].Command != "serve" || len(seen.Env) != 1 {
		t.Errorf("got %+v of %+v", result, c)
	}
	for tool, want := range map[string]bool{"mcp__s__x": true, "mcp__s": true, "mcp__sx__y": false, "Bash": false} {
		d, err := c.CanUseTool(t.Context(), &claude.PermissionRequest{Tool: tool})
		if _, allowed := d.(claude.Allow); allowed != want || err != nil {
			t.Errorf("%s: %v, %v", tool, d, err)
		}
	}
	for tool, want := range map[string]claude.HookPermission{"Write": claude.HookDeny, "Read": ""} {
		out, err := c.Hooks.PreToolUse[0].Func(t.Context(), &claude.PreToolUseInput{Tool: tool})
		if err != nil || (out == nil) != (want == "") || out != nil && out.Permission != want {
			t.Errorf("%s: %+v, %v", tool, out, err)
		}
	}
	result = r.Execute(t.Context(), runner.Run{Task: nestor.Task{Agent: "ada", Input: "fail"}}, host)
	if result.Status != nestor.Error || result.Error == nil || result.Error.Kind != nestor.Refused {
		t.Errorf("a brief that fails: %+v", result)
	}
}

// fixed is a policy that says the same of all runs.
type fixed struct{ rights runner.Rights }

func (f fixed) Rights(runner.Run, runner.Place) (runner.Rights, error) { return f.rights, nil }

// wordless is a provider whose agents have other tools than they were made with.
type wordless struct{ agent.Provider }

func (w wordless) Create(ctx context.Context, c agent.Config) (agent.Agent, error) {
	c.AllowedTools = []string{"Read", "Task", "mcp__s__a"}
	return w.Provider.Create(ctx, c)
}

func TestMissingToolsAreTold(t *testing.T) {
	providers, err := agent.NewProviders(wordless{scripted.New(scripted.Echo()...)})
	if err != nil {
		t.Fatal(err)
	}
	host := &records{}
	r := runner.New(runner.Options{
		Providers: providers, Provider: scripted.Type,
		Policy: fixed{runner.Rights{Tools: []string{"Read", "Agent", "Bash(git *)", "Bash(go *)", "mcp__s", "mcp__s__*", "mcp__other__x"}}},
		Brief: func(context.Context, runner.Run, runner.Place, runner.Rights) (runner.Brief, error) {
			return runner.Brief{}, nil
		},
	})
	result := r.Execute(t.Context(), runner.Run{Task: nestor.Task{Input: "go"}}, host)
	list, ok := result.Metadata["missing_tools"].([]string)
	if want := []string{"Bash", "mcp__other__x"}; !ok || len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("missing are %q, want %q", list, want)
	}
	told := errors.New("nobody is told")
	for _, e := range host.events {
		if p, ok := e.(*nestor.ExecutionProgress); ok && p.Activity == "it does not have what was asked for: Bash, mcp__other__x" {
			told = nil
		}
	}
	if told != nil {
		t.Error(told)
	}
}
