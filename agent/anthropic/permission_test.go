package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
)

// Who decides about a call, in which order.
func TestPermissions(t *testing.T) {
	allow, deny := decided(claude.Allow{}), decided(claude.Deny{Message: "not today"})
	pre := func(o claude.PreToolUseOutput) claude.Hooks {
		return claude.Hooks{PreToolUse: []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
			Func: func(context.Context, *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) { return &o, nil },
		}}}
	}
	const (
		look    = `{name: Look, input: {name: a}}`
		write   = `{name: Write, input: {file_path: $DIR/a}}`
		outside = `{name: Write, input: {file_path: /outside/a}}`
		git     = `{name: Bash, input: {command: git status}}`
		mcp     = `{name: mcp__s__look, input: {name: a}}`
		fetch   = `{name: Fetch, input: {}}`
	)
	for _, test := range []struct {
		name   string
		call   string
		config agent.Config
		denied string // part of what the model is told; empty means that it ran
	}{
		{"reading is fine", look, agent.Config{PermissionMode: "default"}, ""},
		{"reading is fine in plan mode", look, agent.Config{PermissionMode: "plan"}, ""},
		{"edits are fine by default", write, agent.Config{}, ""},
		{"edits are asked about in mode default", write, agent.Config{PermissionMode: "default"}, "nobody is there to be asked"},
		{"edits outside are not", outside, agent.Config{}, "nobody is there"},
		{"edits outside may be asked about", outside, agent.Config{CanUseTool: allow}, ""},
		{"commands are not", git, agent.Config{}, "nobody is there"},
		{"plan mode changes nothing", write, agent.Config{PermissionMode: "plan", AllowedTools: []string{"Write"}}, "plan mode"},
		{"bypass allows all", git, agent.Config{PermissionMode: "bypassPermissions"}, ""},
		{"dontAsk asks nobody", git, agent.Config{PermissionMode: "dontAsk", CanUseTool: allow}, "asks nobody"},
		{"dontAsk knows rules", git, agent.Config{PermissionMode: "dontAsk", AllowedTools: []string{"Bash(git *)"}}, ""},
		{"a rule allows", git, agent.Config{AllowedTools: []string{"Bash(git *)"}}, ""},
		{"a rule does not fit", git, agent.Config{AllowedTools: []string{"Bash(go *)"}}, "no rule allows it"},
		{"who is asked allows", git, agent.Config{CanUseTool: allow}, ""},
		{"who is asked denies", git, agent.Config{CanUseTool: deny}, "not today"},
		{"who is asked fails", git, agent.Config{CanUseTool: func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
			return claude.Allow{}, errors.New("no idea")
		}}, "no idea"},
		{"who is asked panics", git, agent.Config{CanUseTool: func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
			panic("ouch")
		}}, "ouch"},
		{"who is asked leaves it", git, agent.Config{CanUseTool: decided(claude.Elsewhere{})}, "Nobody decided"},
		{"a pointer is a decision", git, agent.Config{CanUseTool: decided(&claude.Deny{Message: "pointed"})}, "pointed"},
		{"a server's word that it only reads does not count", mcp, agent.Config{}, "nobody is there"},
		{"a rule for a server", mcp, agent.Config{AllowedTools: []string{"mcp__s"}}, ""},
		{"reading from the net is asked about", fetch, agent.Config{}, "nobody is there"},
		{"a rule for a domain", fetch, agent.Config{AllowedTools: []string{"Fetch(domain:example.com)"}}, ""},
		{"a hook denies what the mode allows", look, agent.Config{
			PermissionMode: "bypassPermissions", Hooks: pre(claude.PreToolUseOutput{Permission: claude.HookDeny, PermissionReason: "hooked"}),
		}, "PreToolUse:Look hook error: hooked"},
		{"a hook blocks the old way", look, agent.Config{
			Hooks: pre(claude.PreToolUseOutput{HookOutput: claude.HookOutput{Block: true, Reason: "blocked"}}),
		}, "blocked"},
		{"a hook allows what nobody else would", git, agent.Config{Hooks: pre(claude.PreToolUseOutput{Permission: claude.HookAllow})}, ""},
		{"a hook wants it asked about", look, agent.Config{
			PermissionMode: "bypassPermissions", CanUseTool: deny, Hooks: pre(claude.PreToolUseOutput{Permission: claude.HookAsk}),
		}, "not today"},
		{"a hook cannot put it off", look, agent.Config{Hooks: pre(claude.PreToolUseOutput{Permission: claude.HookDefer})}, "put off"},
		{"a hook's input is looked at", `{name: Write, input: {file_path: $DIR/a}}`, agent.Config{
			Hooks: pre(claude.PreToolUseOutput{Input: json.RawMessage(`{"file_path":"/outside/b"}`)}),
		}, "nobody is there"},
		{"a failing guard blocks", look, agent.Config{Hooks: claude.Hooks{PreToolUse: []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
			BlockOnFailure: true,
			Func: func(context.Context, *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
				return nil, errors.New("broken")
			},
		}}}}, "broken"},
		{"a failing hook does not", look, agent.Config{Hooks: claude.Hooks{PreToolUse: []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
			Func: func(context.Context, *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
				return nil, errors.New("broken")
			},
		}}}}, ""},
		{"a hook answers the question", git, agent.Config{CanUseTool: deny, Hooks: claude.Hooks{
			PermissionRequest: []claude.Hook[claude.PermissionRequestInput, claude.PermissionRequestOutput]{{
				Match: claude.Tool("Bash"),
				Func: func(context.Context, *claude.PermissionRequestInput) (*claude.PermissionRequestOutput, error) {
					return &claude.PermissionRequestOutput{Decision: claude.Allow{}}, nil
				},
			}},
		}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			b := open(t, `rules: [{turns: [{tools: [`+strings.ReplaceAll(test.call, "$DIR", dir)+`]}, {text: "{{.ToolResult}}"}]}]`)
			var j journal
			fetch := j.reader("Fetch")
			fetch.Access = func(json.RawMessage) (tools.Access, error) { return tools.Access{Host: "example.com"}, nil }
			b.tools = []tools.Tool{j.reader("Look"), j.writer("Write"), j.bash(), j.reader("mcp__s__look"), fetch}
			if test.config.AllowedTools != nil {
				test.config.AllowedTools = append(test.config.AllowedTools, "Look", "Nothing")
			}
			test.config.Dir = dir
			all := answerTo(t, b.create(test.config), "go")
			denied := all.of("permission_denied")
			denials, _ := all.result(t).Metadata["permission_denials"].([]map[string]any)
			if test.denied == "" {
				if j.String() == "" || len(denied) != 0 || len(denials) != 0 {
					t.Errorf("it was not run: %q", all.of("tool_result").texts())
				}
				return
			}
			if j.String() != "" {
				t.Errorf("%v was run", &j)
			}
			if got := all.of("tool_result").texts(); len(got) != 1 || !strings.Contains(got[0], test.denied) {
				t.Errorf("the model is told %q", got)
			}
			// Who said no itself is not told of it.
			byHost := test.config.CanUseTool != nil && test.config.PermissionMode != "dontAsk" ||
				test.config.Hooks.PreToolUse != nil && test.denied != "put off" && test.denied != "nobody is there"
			if len(denials) != 1 || byHost != (len(denied) == 0) || !byHost && denied[0].Metadata["tool_use_id"] != denials[0]["tool_use_id"] {
				t.Errorf("denials are said as %v and %v", denied, denials)
			}
		})
	}
}

// Who is asked learns all there is to know, and what it says for good holds.
func TestAskedAboutCalls(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	b := open(t, `
rules:
  - turns:
      - tools: [{name: Write, id: toolu_1, input: {file_path: `+file+`, description: why}}, {name: Write, id: toolu_2, input: {file_path: `+file+`}}]
      - text: done`)
	var j journal
	b.tools = []tools.Tool{j.writer("Write")}
	var asked []*claude.PermissionRequest
	answerTo(t, b.create(agent.Config{Dir: dir, PermissionMode: "default", CanUseTool: func(_ context.Context, r *claude.PermissionRequest) (claude.Decision, error) {
		asked = append(asked, r)
		return claude.Allow{Input: json.RawMessage(`{"file_path":"` + file + `2"}`), Updates: r.Suggestions}, nil
	}}), "go")
	if len(asked) != 1 {
		t.Fatalf("it was asked %d times", len(asked))
	}
	r := asked[0]
	if r.Tool != "Write" || r.ToolUseID != "toolu_1" || r.BlockedPath != file || r.Description != "why" || r.ID == "" ||
		len(r.Suggestions) != 1 || r.Suggestions[0].Mode != claude.ModeAcceptEdits || !strings.Contains(string(r.Raw), `"tool_use_id":"toolu_1"`) {
		t.Errorf("the question is %+v", r)
	}
	if want := "Write " + file + "2, Write " + file; j.String() != want {
		t.Errorf("made was %s, want %s", &j, want)
	}
}

// A denial can end the turn. Calls behind it are not made.
func TestDenialThatInterrupts(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: Bash, input: {command: a}}, {name: Bash, input: {command: b}}]}]}, {turns: [{text: no}]}]`)
	var j journal
	b.tools = []tools.Tool{j.bash()}
	all := answerTo(t, b.create(agent.Config{CanUseTool: decided(claude.Deny{Message: "stop it", Interrupt: true})}), "go")
	if r := all.result(t); r.Metadata["interrupted"] != true || r.Metadata["num_turns"] != 4 || j.String() != "" {
		t.Errorf("the result is %+v, made was %v", r.Metadata, &j)
	}
	if n := len(b.requests()); n != 1 {
		t.Errorf("there were %d requests", n)
	}
}

// The model sees the tools that are allowed, and those of servers.
func TestOfferedTools(t *testing.T) {
	b := open(t, `rules: [{turns: [{text: hi}]}]`)
	var j journal
	b.tools = []tools.Tool{j.reader("Look"), j.writer("Write"), j.bash(), j.reader("mcp__s__look")}
	all := answerTo(t, b.create(agent.Config{AllowedTools: []string{"Look", "Bash(git *)"}}), "go")
	said := all.of("init")[0].Metadata["tools"].([]string)
	for _, got := range [][]string{b.requests()[0].Tools, said} {
		if got = slices.Sorted(slices.Values(got)); strings.Join(got, " ") != "Bash Look mcp__s__look" {
			t.Errorf("offered are %s", got)
		}
	}
}

// Tools that touch the session alone need no permission.
func TestInnerToolsNeedNoPermission(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: TodoWrite, input: {name: a}}]}, {text: done}]}]`)
	var j journal
	todo := j.reader("TodoWrite")
	todo.ReadOnly = false
	b.tools = []tools.Tool{todo}
	answerTo(t, b.create(agent.Config{PermissionMode: "plan"}), "go")
	if j.String() != "TodoWrite a" {
		t.Errorf("made was %q", &j)
	}
}

// Rules about paths hold for a folder that is reached through a symlink.
func TestPathRulesThroughSymlink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, `rules: [{turns: [{tools: [{name: Write, input: {file_path: `+dir+`/src/a}}]}, {text: done}]}]`)
	var j journal
	b.tools = []tools.Tool{j.writer("Write")}
	answerTo(t, b.create(agent.Config{Dir: link, PermissionMode: "default", AllowedTools: []string{"Write", "Edit(src/**)"}}), "go")
	if j.String() != "Write "+dir+"/src/a" {
		t.Errorf("made was %q", &j)
	}
}

// A tool may talk to hosts that a call was allowed to, or that a rule allows.
func TestReachableHosts(t *testing.T) {
	s := &session{set: &settings{}}
	s.gate.mode = claude.ModeDefault
	s.gate.allow = parseRules(t, "WebFetch(domain:*.good.org)", "Bash(domain:no.org)")
	s.granted(&asked{access: tools.Access{Host: "asked.org"}}, verdict{allowed: true})
	s.granted(&asked{access: tools.Access{Host: "denied.org"}}, verdict{})
	for host, want := range map[string]bool{"a.good.org": true, "good.org": false, "asked.org": true, "denied.org": false, "no.org": false} {
		if got := s.mayReach(host); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	s.gate.mode = claude.ModeBypass
	s.gate.deny = parseRules(t, "WebFetch(domain:bad.org)")
	if !s.mayReach("any.org") || s.mayReach("bad.org") {
		t.Error("bypass does not reach all but what is denied")
	}
}

// A pushed message that a hook keeps back changes nothing.
func TestPushedMessageThatIsBlocked(t *testing.T) {
	b := open(t, `rules: [{repeat: true, turns: [{text: "heard: {{.Prompt}}"}]}]`)
	hooks := claude.Hooks{UserPromptSubmit: []claude.Hook[claude.UserPromptSubmitInput, claude.UserPromptSubmitOutput]{{
		Func: func(_ context.Context, in *claude.UserPromptSubmitInput) (*claude.UserPromptSubmitOutput, error) {
			return &claude.UserPromptSubmitOutput{HookOutput: claude.HookOutput{Block: in.Prompt == "secret", Reason: "hush"}}, nil
		},
	}}}
	a := b.create(agent.Config{Hooks: hooks})
	var all heardAll
	for m, err := range a.Handle(bounded(t), agent.NewMessage("tester", "go")) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		if m.Metadata["sdk_type"] == "assistant_text" {
			a.Push(t.Context(), agent.NewMessage("t", "secret"))
		}
	}
	if notices := all.of("notice"); all.result(t).Content != "heard: go" || len(notices) != 1 || !strings.Contains(notices[0].Content, "hush") || len(b.requests()) != 1 {
		t.Errorf("it says %s: %q after %d requests", all.types(), all.result(t).Content, len(b.requests()))
	}
}

// What is decided for good holds for the calls that follow, until it is taken
// back.
func TestPermissionUpdates(t *testing.T) {
	rules := func(kind claude.UpdateType, behavior claude.RuleBehavior, list ...claude.PermissionRule) claude.PermissionUpdate {
		return claude.PermissionUpdate{Type: kind, Behavior: behavior, Rules: list}
	}
	git, all := claude.PermissionRule{Tool: "Bash", Content: "git *"}, claude.PermissionRule{Tool: "Bash"}
	s := &session{set: &settings{}, dir: "/w"}
	s.gate.mode = claude.ModeBypass
	asked := 0
	s.set.CanUseTool = func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
		asked++
		return claude.Deny{Message: "asked"}, nil
	}
	for _, step := range []struct {
		update  claude.PermissionUpdate
		command string
		want    string // empty means that it is allowed
	}{
		{claude.PermissionUpdate{}, "git status", ""},
		{rules(claude.UpdateAddRules, claude.RuleDeny, git), "ls; git status", "denied by the rule Bash(git *)"},
		{rules(claude.UpdateAddRules, claude.RuleDeny, git), "ls", ""},
		{rules(claude.UpdateRemoveRules, claude.RuleDeny, git), "git status", ""},
		{rules(claude.UpdateAddRules, claude.RuleAsk, git), "git status", "asked"},
		{rules(claude.UpdateReplaceRules, claude.RuleAsk), "git status", ""},
		{claude.PermissionUpdate{Type: claude.UpdateSetMode, Mode: "default"}, "git status", "asked"},
		{rules(claude.UpdateAddRules, claude.RuleAllow, git), "git status", ""},
		{rules(claude.UpdateAddRules, claude.RuleAllow, git), "git status; rm x", "asked"},
		{rules(claude.UpdateReplaceRules, claude.RuleAllow, all), "git status; rm x", ""},
		{rules(claude.UpdateAddRules, claude.RuleDeny, all), "git status", "denied by the rule Bash."},
		{claude.PermissionUpdate{Type: claude.UpdateSetMode, Mode: "nonsense"}, "git status", "denied by the rule Bash."},
		{rules(claude.UpdateAddRules, "nonsense", all), "git status", "denied by the rule Bash."},
	} {
		s.gate.update([]claude.PermissionUpdate{step.update})
		v, err := s.judge(t.Context(), call{ID: "1", Name: "Bash", Input: bashInput(step.command)}, tools.Tool{Name: "Bash"})
		if err != nil || v.allowed != (step.want == "") || !strings.Contains(v.message, step.want) {
			t.Errorf("after %+v %q is %v: %q, %v", step.update, step.command, v.allowed, v.message, err)
		}
	}
	if asked != 3 {
		t.Errorf("it was asked %d times", asked)
	}
}

// Rules that deny stop what nobody can tell.
func TestRulesThatDenyErrOnTheSafeSide(t *testing.T) {
	for _, test := range []struct {
		rule   string
		tool   string
		access tools.Access
		want   bool
	}{
		{"Edit(secret/**)", "Write", tools.Access{Path: "/w/secret/a"}, true},
		{"Edit(secret/**)", "Write", tools.Access{Path: "/w/a"}, false},
		{"Edit(secret/**)", "Edit", tools.Access{}, true},
		{"WebFetch(domain:evil.org)", "WebFetch", tools.Access{Host: "evil.org"}, true},
		{"WebFetch(domain:evil.org)", "WebFetch", tools.Access{Host: "good.org"}, false},
		{"WebFetch(domain:evil.org)", "WebFetch", tools.Access{}, true},
		{"Write", "Edit", tools.Access{}, false},
	} {
		r := parseRules(t, test.rule)[0]
		if got := r.Stops(target(test.tool, nil, test.access, "/w")); got != test.want {
			t.Errorf("%s stops %s of %+v: %v", test.rule, test.tool, test.access, got)
		}
	}
}

// A hook that is told of a denial may let the model try again.
func TestDeniedButMayTryAgain(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: Bash, input: {command: a}}]}, {text: "{{.ToolResult}}"}]}]`)
	var j journal
	b.tools = []tools.Tool{j.bash()}
	c := agent.Config{CanUseTool: decided(claude.Deny{Message: "no"})}
	c.Hooks.PermissionDenied = hooked(&j, func(*claude.PermissionDeniedInput) string { return "" }, &claude.PermissionDeniedOutput{Retry: true})
	if r := answerTo(t, b.create(c), "go").result(t); r.Content != "no\nYou may try again." {
		t.Errorf("the model is told %q", r.Content)
	}
}
