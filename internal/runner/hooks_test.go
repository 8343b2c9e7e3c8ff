package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/runner"
)

// hooked returns the hooks that a run with these has, and its host.
func hooked(t *testing.T, ctx context.Context, rights runner.Rights, hooks ...runner.Hook) (claude.Hooks, *records) {
	t.Helper()
	made := &spy{Provider: scripted.New(scripted.Echo()...)}
	providers, err := agent.NewProviders(made)
	if err != nil {
		t.Fatal(err)
	}
	r := runner.New(runner.Options{
		Providers: providers, Provider: scripted.Type, Policy: fixed{rights},
		Brief: func(context.Context, runner.Run, runner.Place, runner.Rights) (runner.Brief, error) {
			return runner.Brief{Hooks: hooks}, nil
		},
	})
	host := &records{}
	if result := r.Execute(ctx, runner.Run{Task: nestor.Task{Agent: "ada", Input: "go"}}, host); result.Status != nestor.Success && ctx.Err() == nil {
		t.Fatalf("it is %+v", result)
	}
	return made.config.Hooks, host
}

// says returns a hook whose command says that.
func says(event string, a runner.Answer, err error) runner.Hook {
	return runner.Hook{Name: "h", Event: event, Timeout: time.Minute, Run: func(context.Context, []byte) (runner.Answer, error) { return a, err }}
}

func bash(command string) *claude.PreToolUseInput {
	in := &claude.PreToolUseInput{Tool: "Bash", ToolUseID: "u1", ToolInput: json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))}
	in.Raw = json.RawMessage(`{"tool_name":"Bash","hook_event_name":"PreToolUse"}`)
	return in
}

// activities returns what was said of hooks.
func activities(host *records) (list []string) {
	host.mu.Lock()
	defer host.mu.Unlock()
	for _, e := range host.events {
		if p, ok := e.(*nestor.ExecutionProgress); ok && strings.HasPrefix(p.Activity, "hook ") {
			list = append(list, p.Activity)
		}
	}
	return list
}

func TestWhatHooksSayBeforeACall(t *testing.T) {
	role := func(_ string, input json.RawMessage) runner.Verdict {
		return runner.Verdict{Allowed: !strings.Contains(string(input), "rm"), Reason: "No rm.", Rule: "role"}
	}
	for _, test := range []struct {
		name   string
		answer runner.Answer
		err    error
		guards bool
		want   string // permission, reason, changed input, context
		note   string
	}{
		{name: "nothing", want: "|||"},
		{name: "a text", answer: runner.Answer{Stdout: "fine\n"}, want: "|||"},
		{name: "exit 2", answer: runner.Answer{Code: 2, Stdout: "ignored", Stderr: "not that\n"}, want: "deny|not that||"},
		{name: "exit 2 without a word", answer: runner.Answer{Code: 2}, want: "deny|The hook h says no, and not why.||"},
		{name: "exit 1", answer: runner.Answer{Code: 1, Stderr: "oops\n"}, want: "|||", note: "hook h: it ended with code 1. oops"},
		{name: "exit 1 of a guard", answer: runner.Answer{Code: 1, Stderr: "oops"}, guards: true, want: "deny|The hook h failed: it ended with code 1. oops||", note: "hook h: it ended with code 1. oops"},
		{name: "late", err: errors.New("it took too long"), want: "|||", note: "hook h: it took too long"},
		{name: "block", answer: runner.Answer{Stdout: `{"decision":"block","reason":"no"}`}, want: "deny|no||"},
		{name: "approve", answer: runner.Answer{Stdout: `{"decision":"approve","reason":"yes"}`}, want: "allow|yes||"},
		{name: "deny", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`}, want: "deny|no||"},
		{name: "deny without a word", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"deny"}}`}, want: "deny|A hook denies it.||"},
		{name: "ask", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"ask"}}`}, want: "ask|||"},
		{name: "what is not known", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"shrug"}}`}, want: "|||"},
		{name: "changed", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"command":"ls"},"additionalContext":"it lists"}}`}, want: `allow||{"command":"ls"}|it lists`},
		{name: "changed to what is denied", answer: runner.Answer{Stdout: `{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"command":"rm x"}}}`}, want: "deny|A hook changed the call, and so No rm.||"},
		{name: "no JSON", answer: runner.Answer{Stdout: `{"decision":`}, want: "|||"},
		{name: "for people", answer: runner.Answer{Stdout: `{"systemMessage":"look here"}`}, want: "|||", note: "hook h: look here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := says("PreToolUse", test.answer, test.err)
			h.Guards = test.guards
			hooks, host := hooked(t, t.Context(), runner.Rights{Decide: role}, h)
			out, err := hooks.PreToolUse[len(hooks.PreToolUse)-1].Func(t.Context(), bash("echo"))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s|%s|%s|%s", out.Permission, out.PermissionReason, out.Input, out.Context); got != test.want {
				t.Errorf("it says %s, want %s", got, test.want)
			}
			if got := strings.Join(activities(host), "\n"); got != test.note {
				t.Errorf("on record is %q, want %q", got, test.note)
			}
			denied := 0
			for _, e := range host.events {
				if d, ok := e.(*nestor.Decision); ok && !d.Allowed {
					denied++
				}
			}
			if want := out.Permission == claude.HookDeny; want != (denied == 1) {
				t.Errorf("%d denials are on record", denied)
			}
		})
	}
	stop := says("PreToolUse", runner.Answer{Stdout: `{"continue":false,"stopReason":"enough"}`}, nil)
	hooks, _ := hooked(t, t.Context(), runner.Rights{}, stop)
	if out, err := hooks.PreToolUse[0].Func(t.Context(), bash("ls")); err != nil || !out.Stop || out.StopReason != "enough" {
		t.Errorf("it says %+v, %v", out, err)
	}
}

// What a hook says elsewhere reaches whom it is for.
func TestWhatHooksSayOfOtherEvents(t *testing.T) {
	no, context := runner.Answer{Code: 2, Stderr: "no"}, runner.Answer{Stdout: `{"hookSpecificOutput":{"additionalContext":"by the way"}}`}
	raw := claude.HookInput{Raw: json.RawMessage(`{"session_id":"s"}`)}
	ctx := t.Context()
	post, _ := hooked(t, ctx, runner.Rights{}, says("PostToolUse", no, nil), says("PostToolUse", context, nil))
	if out, err := post.PostToolUse[0].Func(ctx, &claude.PostToolUseInput{HookInput: raw}); err != nil || !out.Block || out.Reason != "no" {
		t.Errorf("PostToolUse: %+v, %v", out, err)
	}
	if out, err := post.PostToolUse[1].Func(ctx, &claude.PostToolUseInput{HookInput: raw}); err != nil || out.Block || out.Context != "by the way" {
		t.Errorf("PostToolUse: %+v, %v", out, err)
	}
	failure, _ := hooked(t, ctx, runner.Rights{}, says("PostToolUseFailure", no, nil))
	if out, err := failure.PostToolUseFailure[0].Func(ctx, &claude.PostToolUseFailureInput{HookInput: raw}); err != nil || out.Block || out.Context != "no" {
		t.Errorf("PostToolUseFailure: %+v, %v", out, err)
	}
	prompt, _ := hooked(t, ctx, runner.Rights{}, says("UserPromptSubmit", no, nil), says("UserPromptSubmit", runner.Answer{Stdout: "it is Monday\n"}, nil))
	if out, err := prompt.UserPromptSubmit[0].Func(ctx, &claude.UserPromptSubmitInput{HookInput: raw}); err != nil || !out.Block || out.Reason != "no" {
		t.Errorf("UserPromptSubmit: %+v, %v", out, err)
	}
	if out, err := prompt.UserPromptSubmit[1].Func(ctx, &claude.UserPromptSubmitInput{HookInput: raw}); err != nil || out.Context != "it is Monday" {
		t.Errorf("UserPromptSubmit: %+v, %v", out, err)
	}
	for _, event := range []string{"Stop", "SubagentStop"} {
		end, _ := hooked(t, ctx, runner.Rights{}, says(event, no, nil))
		if out, err := end.Stop[0].Func(ctx, &claude.StopInput{HookInput: raw}); err != nil || !out.Block || out.Reason != "no" {
			t.Errorf("%s: %+v, %v", event, out, err)
		}
	}
}

// The start of a session is told once, with the first prompt, and a compaction when
// it comes.
func TestStartIsToldOnce(t *testing.T) {
	for _, event := range []string{"SessionStart", "SubagentStart"} {
		var told []string
		h := runner.Hook{Name: "h", Event: event, Timeout: time.Minute, Run: func(_ context.Context, input []byte) (runner.Answer, error) {
			told = append(told, string(input))
			return runner.Answer{Stdout: "welcome"}, nil
		}}
		hooks, _ := hooked(t, t.Context(), runner.Rights{}, h)
		prompt := &claude.UserPromptSubmitInput{HookInput: claude.HookInput{Raw: json.RawMessage(`{"session_id":"s","prompt":"secret","hook_event_name":"UserPromptSubmit"}`)}}
		out, err := hooks.UserPromptSubmit[0].Func(t.Context(), prompt)
		if err != nil || out == nil || out.Context != "welcome" || out.Block {
			t.Errorf("%s: it says %+v, %v", event, out, err)
		}
		if out, err := hooks.UserPromptSubmit[0].Func(t.Context(), prompt); out != nil || err != nil {
			t.Errorf("%s: the second time it says %+v, %v", event, out, err)
		}
		for _, source := range []string{"startup", "resume", "compact"} {
			if _, err := hooks.SessionStart[0].Func(t.Context(), &claude.SessionStartInput{Source: source, HookInput: claude.HookInput{Raw: json.RawMessage(`{"source":"` + source + `"}`)}}); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{
			`{"agent_type":"ada","hook_event_name":"` + event + `","session_id":"s","source":"startup"}`,
			`{"agent_type":"ada","hook_event_name":"` + event + `","source":"compact"}`,
		}
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Errorf("it is told %q, want %q", told, want)
		}
	}
}

func TestHooksAreForWhatTheySay(t *testing.T) {
	runs := 0
	h := runner.Hook{Name: "h", Event: "PreToolUse", Timeout: time.Minute, Once: true,
		For: func(tool string, input json.RawMessage) bool {
			return tool == "Bash" && strings.Contains(string(input), "rm")
		},
		Run: func(context.Context, []byte) (runner.Answer, error) { runs++; return runner.Answer{}, nil },
	}
	hooks, _ := hooked(t, t.Context(), runner.Rights{}, h)
	for i, command := range []string{"ls", "rm x", "rm y"} {
		if _, err := hooks.PreToolUse[0].Func(t.Context(), bash(command)); err != nil {
			t.Fatal(err)
		}
		if want := min(i, 1); runs != want {
			t.Errorf("after %s it was run %d times, want %d", command, runs, want)
		}
	}
}

// A hook that runs ends with its run, whatever it is called with.
func TestHookEndsWithItsRun(t *testing.T) {
	began := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	h := runner.Hook{Name: "h", Event: "PostToolUse", Timeout: time.Hour, Guards: true, Run: func(ctx context.Context, _ []byte) (runner.Answer, error) {
		close(began)
		<-ctx.Done()
		return runner.Answer{}, context.Cause(ctx)
	}}
	hooks, host := hooked(t, ctx, runner.Rights{}, h)
	done := make(chan error, 1)
	go func() {
		_, err := hooks.PostToolUse[0].Func(context.Background(), &claude.PostToolUseInput{HookInput: claude.HookInput{Raw: json.RawMessage(`{}`)}})
		done <- err
	}()
	<-began
	stop()
	if err := <-done; err != nil || len(activities(host)) > 0 {
		t.Errorf("it fails with %v, and says %q", err, activities(host))
	}
}
