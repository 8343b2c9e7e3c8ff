package anthropic

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
)

// hooked returns a hook that notes its event and says out.
func hooked[In, Out any](j *journal, note func(*In) string, out *Out) []claude.Hook[In, Out] {
	return []claude.Hook[In, Out]{{Func: func(_ context.Context, in *In) (*Out, error) {
		j.add("%s", note(in))
		return out, nil
	}}}
}

// Every event comes, once, in its order, with what it is about.
func TestHooksAreTold(t *testing.T) {
	b := open(t, `
rules:
  - turns:
      - tools: [{name: Look, input: {name: a}}, {name: Bash, input: {command: "false"}}, {name: Write, input: {file_path: /outside/x}}]
      - text: bye`)
	var j, tool journal
	b.tools = []tools.Tool{tool.reader("Look"), tool.bash(), tool.writer("Write")}
	hooks := claude.Hooks{
		SessionStart:     hooked[claude.SessionStartInput, claude.SessionStartOutput](&j, func(in *claude.SessionStartInput) string { return "start " + in.Source }, nil),
		UserPromptSubmit: hooked[claude.UserPromptSubmitInput, claude.UserPromptSubmitOutput](&j, func(in *claude.UserPromptSubmitInput) string { return "prompt " + in.Prompt }, nil),
		PreToolUse:       hooked[claude.PreToolUseInput, claude.PreToolUseOutput](&j, func(in *claude.PreToolUseInput) string { return "pre " + in.Tool }, nil),
		PostToolUse: hooked[claude.PostToolUseInput, claude.PostToolUseOutput](&j, func(in *claude.PostToolUseInput) string {
			return "post " + in.Tool + " " + string(in.Response)
		}, nil),
		PostToolUseFailure: hooked[claude.PostToolUseFailureInput, claude.ContextOutput](&j, func(in *claude.PostToolUseFailureInput) string { return "failure " + in.Error }, nil),
		PostToolBatch: hooked[claude.PostToolBatchInput, claude.ContextOutput](&j, func(in *claude.PostToolBatchInput) string {
			return "batch " + in.Calls[0].Tool + " " + in.Calls[2].Tool
		}, nil),
		PermissionRequest: hooked[claude.PermissionRequestInput, claude.PermissionRequestOutput](&j, func(in *claude.PermissionRequestInput) string { return "request " + in.Tool }, nil),
		PermissionDenied:  hooked[claude.PermissionDeniedInput, claude.PermissionDeniedOutput](&j, func(in *claude.PermissionDeniedInput) string { return "denied " + in.Tool }, nil),
		Stop:              hooked[claude.StopInput, claude.ContextOutput](&j, func(in *claude.StopInput) string { return "stop " + in.LastMessage }, nil),
		SessionEnd:        hooked[claude.SessionEndInput, claude.HookOutput](&j, func(in *claude.SessionEndInput) string { return "end " + in.Reason }, nil),
	}
	answerTo(t, b.create(agent.Config{Hooks: hooks, AllowedTools: []string{"Look", "Bash", "Write(x)"}}), "hi")
	want := `start startup, prompt hi, pre Look, post Look "read a", pre Bash, failure exit status 1, pre Write, request Write, denied Write, batch Look Write, stop bye, end other`
	if j.String() != want {
		t.Errorf("hooks were told\n%s\nwant\n%s", &j, want)
	}
}

// What hooks add reaches the model.
func TestHooksSpeakToTheModel(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: Look, input: {name: a}}]}, {text: "{{.ToolResult}}"}]}]`)
	var j, tool journal
	b.tools = []tools.Tool{tool.reader("Look")}
	hooks := claude.Hooks{
		SessionStart:     hooked(&j, func(*claude.SessionStartInput) string { return "" }, &claude.SessionStartOutput{Context: "at the start"}),
		UserPromptSubmit: hooked(&j, func(*claude.UserPromptSubmitInput) string { return "" }, &claude.UserPromptSubmitOutput{Context: "with the prompt"}),
		PreToolUse: hooked(&j, func(*claude.PreToolUseInput) string { return "" }, &claude.PreToolUseOutput{
			Context: "before the call", Input: json.RawMessage(`{"name":"b"}`),
		}),
		PostToolUse: hooked(&j, func(*claude.PostToolUseInput) string { return "" }, &claude.PostToolUseOutput{
			Context: "after the call", ToolOutput: json.RawMessage(`"changed"`), HookOutput: claude.HookOutput{Block: true, Reason: "mind this"},
		}),
		PostToolBatch: hooked(&j, func(*claude.PostToolBatchInput) string { return "" }, &claude.ContextOutput{Context: "after all"}),
	}
	if r := answerTo(t, b.create(agent.Config{Hooks: hooks}), "hi").result(t); r.Content != "changed" || tool.String() != "Look b" {
		t.Errorf("the tool got %v, the model %q", &tool, r.Content)
	}
	last := string(b.requests()[1].Body)
	for _, want := range []string{"at the start", "with the prompt", "before the call", "after the call", "mind this", "after all"} {
		if !strings.Contains(last, want) {
			t.Errorf("the model does not hear %q", want)
		}
	}
}

// A stop hook that blocks keeps the turn going; one that stops ends it.
func TestStopHooks(t *testing.T) {
	b := open(t, `rules: [{when: {user: "^go"}, turns: [{text: I think I am done}]}, {turns: [{text: now I am}]}]`)
	var seen []bool
	hooks := claude.Hooks{Stop: []claude.Hook[claude.StopInput, claude.ContextOutput]{{Func: func(_ context.Context, in *claude.StopInput) (*claude.ContextOutput, error) {
		seen = append(seen, in.Active)
		return &claude.ContextOutput{HookOutput: claude.HookOutput{Block: !in.Active, Reason: "not yet"}}, nil
	}}}}
	all := answerTo(t, b.create(agent.Config{Hooks: hooks}), "go")
	if r := all.result(t); r.Content != "now I am" || r.Metadata["num_turns"] != 2 || len(seen) != 2 || seen[0] || !seen[1] {
		t.Errorf("the result is %q, %+v; hooks saw %v", r.Content, r.Metadata, seen)
	}
	if body := string(b.requests()[1].Body); !strings.Contains(body, `Stop hook feedback:\nnot yet`) {
		t.Errorf("the model is told %s", body)
	}

	hooks.Stop[0].Func = func(context.Context, *claude.StopInput) (*claude.ContextOutput, error) {
		return &claude.ContextOutput{HookOutput: claude.HookOutput{Stop: true, Block: true}}, nil
	}
	if r := answerTo(t, b.create(agent.Config{Hooks: hooks}), "go").result(t); r.Content != "I think I am done" || r.Metadata["reason"] != "stop_hook_prevented" {
		t.Errorf("the result is %q, %+v", r.Content, r.Metadata)
	}
}

// A hook can keep a prompt back, and end a turn at a call.
func TestHooksThatEndTheTurn(t *testing.T) {
	b := open(t, `rules: [{turns: [{text: one, tools: [{name: Look, input: {name: a}}, {name: Bash, input: {command: b}}]}, {text: two}]}]`)
	var j, tool journal
	b.tools = []tools.Tool{tool.reader("Look"), tool.bash()}
	c := agent.Config{PermissionMode: "bypassPermissions"}
	c.Hooks.UserPromptSubmit = hooked(&j, func(*claude.UserPromptSubmitInput) string { return "" },
		&claude.UserPromptSubmitOutput{HookOutput: claude.HookOutput{Block: true, Reason: "not this"}})
	if r := answerTo(t, b.create(c), "go").result(t); !strings.Contains(r.Content, "not this") || len(b.requests()) != 0 {
		t.Errorf("the result is %q after %d requests", r.Content, len(b.requests()))
	}
	c.Hooks = claude.Hooks{PostToolUse: hooked(&j, func(*claude.PostToolUseInput) string { return "" },
		&claude.PostToolUseOutput{HookOutput: claude.HookOutput{Stop: true, StopReason: "that is enough"}})}
	all := answerTo(t, b.create(c), "go")
	if r := all.result(t); r.Content != "that is enough" || r.Metadata["reason"] != "hook_stopped" || tool.String() != "Look a" || len(all.of("tool_result")) != 2 {
		t.Errorf("the result is %q, %+v; made was %v", r.Content, r.Metadata, &tool)
	}
}

// What a stop hook adds is heard once.
func TestStopHookThatAddsContext(t *testing.T) {
	b := open(t, `rules: [{turns: [{text: one}, {text: two}]}]`)
	var j journal
	hooks := claude.Hooks{Stop: hooked(&j, func(in *claude.StopInput) string { return in.LastMessage }, &claude.ContextOutput{Context: "one more thing"})}
	r := answerTo(t, b.create(agent.Config{Hooks: hooks}), "go").result(t)
	if r.Content != "two" || j.String() != "one, two" || !strings.Contains(string(b.requests()[1].Body), "one more thing") {
		t.Errorf("the result is %q; hooks saw %v", r.Content, &j)
	}
}
