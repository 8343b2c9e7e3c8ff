package claude

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func says(text string) func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) {
	return func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) {
		return &PreToolUseOutput{Context: text}, nil
	}
}

// Those hooks run that are for the tool, and their answers keep their order.
func TestRunHooksThatMatch(t *testing.T) {
	hooks := []Hook[PreToolUseInput, PreToolUseOutput]{
		{Func: says("all")},
		{Match: Tool("Bash", "Edit"), Func: says("listed")},
		{Match: Tool("Write"), Func: says("another")},
		{Match: Pattern("^B.*h$"), Func: says("pattern")},
		{Match: MCPServerTools("github"), Func: says("server")},
		{Match: Exactly("B*"), Func: says("literal")},
	}
	for tool, want := range map[string]string{
		"Bash":               "all listed pattern",
		"Bas":                "all",
		"mcp__github__issue": "all server",
		"mcp__githubs__x":    "all",
		"B*":                 "all literal",
	} {
		var got []string
		for _, a := range RunHooks(t.Context(), "PreToolUse", tool, "toolu_1", hooks, PreToolUseInput{Tool: tool}) {
			if a.Err != nil || a.Out == nil {
				t.Fatalf("%s: %+v", tool, a)
			}
			got = append(got, a.Out.Context)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v answered, want %s", tool, got, want)
		}
	}
}

// Each hook has an input of its own, with the call and the raw bytes in it.
func TestRunHooksInput(t *testing.T) {
	var first *PreToolUseInput
	spoil := Hook[PreToolUseInput, PreToolUseOutput]{Func: func(_ context.Context, in *PreToolUseInput) (*PreToolUseOutput, error) {
		first = in
		in.ToolInput[0] = '['
		return nil, nil
	}}
	in := PreToolUseInput{HookInput: HookInput{Event: "PreToolUse", SessionID: "s"}, Tool: "Bash", ToolInput: []byte(`{"command":"ls"}`)}
	answers := RunHooks(t.Context(), "PreToolUse", "Bash", "toolu_1", []Hook[PreToolUseInput, PreToolUseOutput]{spoil}, in)
	if len(answers) != 1 || answers[0].Out != nil || answers[0].Err != nil {
		t.Errorf("no opinion became %+v", answers)
	}
	if first.CallID != "toolu_1" || first.SessionID != "s" || first.Tool != "Bash" || !strings.Contains(string(first.Raw), `"hook_event_name":"PreToolUse"`) {
		t.Errorf("the hook was told %+v", first)
	}
	if string(in.ToolInput) != `{"command":"ls"}` {
		t.Errorf("a hook changed the caller's input to %s", in.ToolInput)
	}
}

// A hook that fails, panics or is late says so, and blocks only if it is to.
func TestRunHooksThatFail(t *testing.T) {
	fail := func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) { return nil, errors.New("no idea") }
	fall := func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) { panic("ouch") }
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		late := func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) {
			<-ctx.Done()
			return nil, nil
		}
		hooks := []Hook[PreToolUseInput, PreToolUseOutput]{
			{Func: fail},
			{Func: fail, BlockOnFailure: true},
			{Func: fall},
			{Func: fall, BlockOnFailure: true},
			{Func: late, Timeout: time.Second},
			{Func: late, BlockOnFailure: true},
		}
		answers := RunHooks(ctx, "PreToolUse", "Bash", "", hooks, PreToolUseInput{})
		stop()
		for i, want := range []string{"no idea", "no idea", "panic: ouch", "panic: ouch", "no answer within 1s", "no answer within 1m0s"} {
			a := answers[i]
			if a.Err == nil || !strings.HasSuffix(a.Err.Error(), want) || !strings.HasPrefix(a.Err.Error(), "PreToolUse hook: ") {
				t.Errorf("hook %d says %v, want %s", i, a.Err, want)
			}
			if a.Block != hooks[i].BlockOnFailure || a.Out != nil {
				t.Errorf("hook %d: %+v", i, a)
			}
		}
	})
}

func TestHooksCheck(t *testing.T) {
	good := Hooks{PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{{Match: Pattern("^B"), Func: says("")}}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, hooks := range map[string]Hooks{
		"needs a Func":            {PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{{}}},
		"pattern \"^(?!Bash).*\"": {PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{{Match: Pattern("^(?!Bash).*"), Func: says("")}}},
	} {
		if err := hooks.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
