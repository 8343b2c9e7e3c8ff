package claude

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A hook cannot be forgotten in register: every field of Hooks registers.
func TestEveryHookRegisters(t *testing.T) {
	typ := reflect.TypeFor[Hooks]()
	events := 0
	for field := range typ.Fields() {
		if field.Name == "Other" {
			continue
		}
		events++
		t.Run("item 264: "+field.Name, func(t *testing.T) {
			var h Hooks
			slice := reflect.ValueOf(&h).Elem().FieldByIndex(field.Index)
			slice.Set(reflect.MakeSlice(slice.Type(), 1, 1))
			fn := slice.Index(0).FieldByName("Func")
			fn.Set(reflect.MakeFunc(fn.Type(), func(args []reflect.Value) []reflect.Value {
				in := args[1].Interface().(interface{ base() *HookInput }).base()
				if in.Event != field.Name || in.CallID != "call" || in.Raw == nil || in.SessionID != "s" {
					t.Errorf("the input is %+v", in)
				}
				out := reflect.New(fn.Type().Out(0).Elem())
				out.Interface().(interface{ common() *HookOutput }).common().SystemMessage = "hi"
				return []reflect.Value{out, reflect.Zero(fn.Type().Out(1))}
			}))
			wire, funcs, err := h.register()
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, wire, `{"`+field.Name+`":[{"hookCallbackIds":["hook_0"]}]}`)
			out, err := funcs["hook_0"](context.Background(), json.RawMessage(`{"hook_event_name":"`+field.Name+`","session_id":"s"}`), "call")
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, out, `{"systemMessage":"hi"}`)
		})
	}
	if events != 33 {
		t.Errorf("there are %d events", events)
	}
}

// callHook registers h alone and calls it with input.
func callHook(t *testing.T, h Hooks, input string) (json.RawMessage, error) {
	t.Helper()
	_, funcs, err := h.register()
	if err != nil {
		t.Fatal(err)
	}
	return funcs["hook_0"](t.Context(), json.RawMessage(input), "call")
}

func always[In, Out any](out *Out) []Hook[In, Out] {
	return []Hook[In, Out]{{Func: func(context.Context, *In) (*Out, error) { return out, nil }}}
}

func TestHookOutputs(t *testing.T) {
	tests := []struct {
		name string
		h    Hooks
		want string
	}{
		{"no opinion", Hooks{Stop: always[StopInput, ContextOutput](nil)}, `{}`},
		{"no opinion either", Hooks{Stop: always[StopInput](&ContextOutput{})}, `{}`},
		{"item 260: every common field", Hooks{SessionEnd: always[SessionEndInput](&HookOutput{
			Stop: true, StopReason: "sr", Block: true, Reason: "r", SystemMessage: "m", TerminalSequence: "t", SuppressOutput: true,
		})}, `{"continue":false,"stopReason":"sr","decision":"block","reason":"r","systemMessage":"m","terminalSequence":"t","suppressOutput":true}`},
		{"item 260: approve", Hooks{PreToolUse: always[PreToolUseInput](&PreToolUseOutput{HookOutput: HookOutput{Approve: true}})}, `{"decision":"approve"}`},
		{"item 260: a decision about a tool", Hooks{PreToolUse: always[PreToolUseInput](&PreToolUseOutput{
			Permission: HookDeny, PermissionReason: "no", Input: json.RawMessage(`{"a":1}`), Context: "c",
		})}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no","updatedInput":{"a":1},"additionalContext":"c"}}`},
		{"item 261, 262: async", Hooks{PostToolUse: always[PostToolUseInput](&PostToolUseOutput{
			HookOutput: HookOutput{Async: true, AsyncTimeout: 5 * time.Second}, Context: "too late",
		})}, `{"async":true,"asyncTimeout":5000}`},
		{"item 262: async without a timeout", Hooks{Stop: always[StopInput](&ContextOutput{HookOutput: HookOutput{Async: true}})}, `{"async":true}`},
		{"item 173, 263: Notification", Hooks{Notification: always[NotificationInput](&ContextOutput{Context: "c"})},
			`{"hookSpecificOutput":{"hookEventName":"Notification","additionalContext":"c"}}`},
		{"item 173, 263: SubagentStart", Hooks{SubagentStart: always[SubagentStartInput](&ContextOutput{Context: "c"})},
			`{"hookSpecificOutput":{"hookEventName":"SubagentStart","additionalContext":"c"}}`},
		{"item 173, 263: PostToolUse", Hooks{PostToolUse: always[PostToolUseInput](&PostToolUseOutput{
			MCPToolOutput: json.RawMessage(`[1]`), ToolOutput: json.RawMessage(`"x"`), ClassifierContext: "cc",
		})}, `{"hookSpecificOutput":{"hookEventName":"PostToolUse","updatedMCPToolOutput":[1],"updatedToolOutput":"x","classifierContext":"cc"}}`},
		{"item 173, 263: PermissionRequest allows", Hooks{PermissionRequest: always[PermissionRequestInput](&PermissionRequestOutput{
			Decision: Allow{Input: json.RawMessage(`{}`), Updates: []PermissionUpdate{{Type: UpdateSetMode, Mode: ModePlan, Destination: ToSession}}},
		})}, `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow","updatedInput":{},"updatedPermissions":[{"type":"setMode","mode":"plan","destination":"session"}]}}}`},
		{"item 173, 263: PermissionRequest denies", Hooks{PermissionRequest: always[PermissionRequestInput](&PermissionRequestOutput{
			HookOutput: HookOutput{SystemMessage: "m"}, Decision: Deny{Message: "no", Interrupt: true},
		})}, `{"systemMessage":"m","hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"no","interrupt":true}}}`},
		{"PermissionRequest has no opinion", Hooks{PermissionRequest: always[PermissionRequestInput](&PermissionRequestOutput{})}, `{}`},
		{"PermissionDenied", Hooks{PermissionDenied: always[PermissionDeniedInput](&PermissionDeniedOutput{Retry: true})},
			`{"hookSpecificOutput":{"hookEventName":"PermissionDenied","retry":true}}`},
		{"UserPromptSubmit", Hooks{UserPromptSubmit: always[UserPromptSubmitInput](&UserPromptSubmitOutput{Context: "c", SessionTitle: "t", SuppressPrompt: true})},
			`{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"c","sessionTitle":"t","suppressOriginalPrompt":true}}`},
		{"UserPromptExpansion", Hooks{UserPromptExpansion: always[UserPromptExpansionInput](&UserPromptExpansionOutput{SuppressPrompt: true})},
			`{"hookSpecificOutput":{"hookEventName":"UserPromptExpansion","suppressOriginalPrompt":true}}`},
		{"SessionStart", Hooks{SessionStart: always[SessionStartInput](&SessionStartOutput{
			Context: "c", InitialPrompt: "p", SessionTitle: "t", WatchPaths: []string{"f"}, ReloadSkills: true,
		})}, `{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"c","initialUserMessage":"p","sessionTitle":"t","watchPaths":["f"],"reloadSkills":true}}`},
		{"PreModelSwitch", Hooks{PreModelSwitch: always[ModelSwitchInput](&PreModelSwitchOutput{Permission: HookAsk, PermissionReason: "r"})},
			`{"hookSpecificOutput":{"hookEventName":"PreModelSwitch","permissionDecision":"ask","permissionDecisionReason":"r"}}`},
		{"ElicitationResult", Hooks{ElicitationResult: always[ElicitationResultInput](&ElicitationOutput{Action: ElicitAccept, Content: json.RawMessage(`{"a":1}`)})},
			`{"hookSpecificOutput":{"hookEventName":"ElicitationResult","action":"accept","content":{"a":1}}}`},
		{"FileChanged", Hooks{FileChanged: always[FileChangedInput](&WatchOutput{WatchPaths: []string{"f"}})},
			`{"hookSpecificOutput":{"hookEventName":"FileChanged","watchPaths":["f"]}}`},
		{"WorktreeCreate", Hooks{WorktreeCreate: always[WorktreeCreateInput](&WorktreeCreateOutput{Path: "/w"})},
			`{"hookSpecificOutput":{"hookEventName":"WorktreeCreate","worktreePath":"/w"}}`},
		{"MessageDisplay", Hooks{MessageDisplay: always[MessageDisplayInput](&MessageDisplayOutput{Content: "x"})},
			`{"hookSpecificOutput":{"hookEventName":"MessageDisplay","displayContent":"x"}}`},
		{"item 264: an event of a newer CLI, verbatim", Hooks{Other: map[string][]RawHook{"Brandnew": always[HookInput](new(json.RawMessage(`{"x":[1]}`)))}}, `{"x":[1]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := callHook(t, tt.h, `{}`)
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, out, tt.want)
		})
	}
}

func TestHookFailures(t *testing.T) {
	t.Run("an error names the event", func(t *testing.T) {
		cause := errors.New("disk full")
		_, err := callHook(t, Hooks{Stop: []Hook[StopInput, ContextOutput]{{Func: func(context.Context, *StopInput) (*ContextOutput, error) { return nil, cause }}}}, `{}`)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "Stop hook") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an input of another shape is an error", func(t *testing.T) {
		_, err := callHook(t, Hooks{PreToolUse: always[PreToolUseInput](&PreToolUseOutput{})}, `{"tool_name":7}`)
		wantSaid(t, err, "PreToolUse", "input")
	})
	t.Run("a contradiction is an error", func(t *testing.T) {
		_, err := callHook(t, Hooks{Stop: always[StopInput](&ContextOutput{HookOutput: HookOutput{Block: true, Approve: true}})}, `{}`)
		wantSaid(t, err, "Stop hook")
	})
	t.Run("raw output that is no object is an error", func(t *testing.T) {
		_, err := callHook(t, Hooks{Other: map[string][]RawHook{"X": always[HookInput](new(json.RawMessage("7")))}}, `{}`)
		wantSaid(t, err, "X hook", "object")
	})
}

func TestHookRegistration(t *testing.T) {
	t.Run("item 210: matchers, timeouts and ids", func(t *testing.T) {
		nop := func(context.Context, *PreToolUseInput) (*PreToolUseOutput, error) { return nil, nil }
		h := Hooks{
			PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{
				{Match: Tool("Bash", "Write"), Timeout: 1500 * time.Millisecond, Func: nop},
				{Match: MCPServerTools("x"), Timeout: 20 * time.Second, BlockOnFailure: true, Func: nop},
			},
			Stop:  always[StopInput, ContextOutput](nil),
			Other: map[string][]RawHook{"Z": always[HookInput, json.RawMessage](nil), "A": always[HookInput, json.RawMessage](nil)},
		}
		wire, funcs, err := h.register()
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, wire, `{
			"PreToolUse":[{"matcher":"Bash|Write","hookCallbackIds":["hook_0"],"timeout":1.5},
				{"matcher":"^mcp__x__.*","hookCallbackIds":["hook_1"],"timeout":30,"onFailure":"block"}],
			"Stop":[{"hookCallbackIds":["hook_2"]}],
			"A":[{"hookCallbackIds":["hook_3"]}],
			"Z":[{"hookCallbackIds":["hook_4"]}]}`)
		if len(funcs) != 5 {
			t.Errorf("%d functions", len(funcs))
		}
	})
	t.Run("no hooks register nothing", func(t *testing.T) {
		if wire, funcs, err := new(Hooks).register(); wire != nil || funcs != nil || err != nil {
			t.Errorf("got %v, %v, %v", wire, funcs, err)
		}
	})
	t.Run("what the CLI would ignore is refused", func(t *testing.T) {
		h := Hooks{
			Stop:         []Hook[StopInput, ContextOutput]{{Match: Tool("Bash"), Func: always[StopInput, ContextOutput](nil)[0].Func}},
			SubagentStop: []Hook[SubagentStopInput, ContextOutput]{{BlockOnFailure: true, Func: always[SubagentStopInput, ContextOutput](nil)[0].Func}},
			Setup:        []Hook[SetupInput, ContextOutput]{{Match: Exactly(), Timeout: 1, Func: always[SetupInput, ContextOutput](nil)[0].Func}},
			Other:        map[string][]RawHook{"": always[HookInput, json.RawMessage](nil)},
		}
		_, _, err := h.register()
		wantSaid(t, err, "Hooks.Stop[0]: its Match", "Hooks.SubagentStop[0]: its BlockOnFailure", "Hooks.Setup[0]: its Match", "no name")
	})
}

// The hooks of the recorded conversations, all of them, read and answered.
func TestRecordedHooks(t *testing.T) {
	seen := map[string]int{}
	for _, request := range recorded(t, "hook_callback") {
		var r struct {
			Input     json.RawMessage `json:"input"`
			ToolUseID string          `json:"tool_use_id"`
		}
		var base HookInput
		if err := errors.Join(json.Unmarshal(request, &r), json.Unmarshal(r.Input, &base)); err != nil {
			t.Fatal(err)
		}
		seen[base.Event]++
		field, ok := reflect.TypeFor[Hooks]().FieldByName(base.Event)
		if !ok {
			t.Errorf("Hooks has no %s", base.Event)
			continue
		}
		fn, _ := field.Type.Elem().FieldByName("Func")
		in := reflect.New(fn.Type.In(1).Elem())
		if err := json.Unmarshal(r.Input, in.Interface()); err != nil {
			t.Errorf("%s: %v", base.Event, err)
		}
		unread(t, base.Event, r.Input, in.Interface())
		if r.ToolUseID == "" || base.SessionID == "" || base.TranscriptPath == "" || base.Dir == "" {
			t.Errorf("%s: %s", base.Event, request)
		}
	}
	for event := range strings.FieldsSeq("PreToolUse PostToolUse PostToolUseFailure PostToolBatch UserPromptSubmit Stop SubagentStart SubagentStop PreCompact PostCompact SessionStart SessionEnd MessageDisplay WorktreeCreate") {
		if seen[event] == 0 {
			t.Errorf("no %s was recorded", event)
		}
	}
}

// unread fails for what the CLI sent and v has no field for.
func unread(t *testing.T, event string, sent json.RawMessage, v any) {
	t.Helper()
	known := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for f := range typ.Fields() {
			if f.Anonymous {
				walk(f.Type)
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known[name] = true
		}
	}
	walk(reflect.TypeOf(v).Elem())
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(sent, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		if !known[name] && name != "subtype" {
			t.Errorf("%s has %s, which %T does not read", event, name, v)
		}
	}
}

func TestHookInputs(t *testing.T) {
	t.Run("items 172, 259: PreToolUse in a subagent", func(t *testing.T) {
		var got PreToolUseInput
		h := Hooks{PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{{Func: func(_ context.Context, in *PreToolUseInput) (*PreToolUseOutput, error) {
			got = *in
			return nil, nil
		}}}}
		if _, err := callHook(t, h, `{"hook_event_name":"PreToolUse","agent_id":"a1","agent_type":"Explore","effort":{"level":"low"},"tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"toolu_1","mcp_server":{"name":"n","source":"s"}}`); err != nil {
			t.Fatal(err)
		}
		if got.AgentID != "a1" || got.AgentType != "Explore" || got.Effort.Level != "low" || got.Tool != "Bash" || string(got.ToolInput) != `{"command":"ls"}` ||
			got.ToolUseID != "toolu_1" || got.CallID != "call" || got.MCPServer.Name != "n" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("items 172, 399: optional fields may be missing", func(t *testing.T) {
		n, err := decodeHookInput[NotificationInput](json.RawMessage(`{"message":"m","notification_type":"idle"}`), "")
		if err != nil || n.Title != "" || n.Type != "idle" {
			t.Errorf("got %+v, %v", n, err)
		}
		p, err := decodeHookInput[PermissionRequestInput](json.RawMessage(`{"tool_name":"Bash"}`), "")
		if err != nil || p.Suggestions != nil {
			t.Errorf("got %+v, %v", p, err)
		}
		c, err := decodeHookInput[PreCompactInput](json.RawMessage(`{"trigger":"auto","custom_instructions":null}`), "")
		if err != nil || c.Trigger != "auto" {
			t.Errorf("got %+v, %v", c, err)
		}
	})
}

func TestBlockingHooksEndInTime(t *testing.T) {
	guard := func(timeout time.Duration, f func(context.Context) error) Hooks {
		return Hooks{PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{{BlockOnFailure: true, Timeout: timeout,
			Func: func(ctx context.Context, _ *PreToolUseInput) (*PreToolUseOutput, error) { return nil, f(ctx) }}}}
	}
	for name, f := range map[string]func(context.Context) error{
		"that listens": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"that sleeps":  func(context.Context) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := callHook(t, guard(20*time.Second, f), `{}`)
				wantSaid(t, err, "PreToolUse hook", "no answer within 20s")
				if took := time.Since(start); took != 20*time.Second {
					t.Errorf("took %s", took)
				}
				time.Sleep(time.Hour) // lets the one that sleeps end
			})
		})
	}
	t.Run("a minute by default", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, err := callHook(t, guard(0, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }), `{}`)
			wantSaid(t, err, "no answer within 1m0s")
		})
	})
	t.Run("a panic is a failure", func(t *testing.T) {
		_, err := callHook(t, guard(0, func(context.Context) error { panic("oops") }), `{}`)
		wantSaid(t, err, "oops")
	})
	t.Run("the CLI withdraws", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			withdrawn := errors.New("withdrawn")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(withdrawn)
			h := guard(0, func(ctx context.Context) error { <-ctx.Done(); return nil })
			_, funcs, _ := h.register()
			if _, err := funcs["hook_0"](ctx, json.RawMessage(`{}`), ""); err != nil && !errors.Is(err, withdrawn) {
				t.Errorf("got %v", err)
			}
		})
	})
}

func TestGateEveryCall(t *testing.T) {
	gate := func(d Decision, err error) Hooks {
		return Hooks{PreToolUse: []Hook[PreToolUseInput, PreToolUseOutput]{GateEveryCall(func(context.Context, *PreToolUseInput) (Decision, error) { return d, err })}}
	}
	for name, tt := range map[string]struct {
		d    Decision
		want string
	}{
		"allows":         {Allow{}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`},
		"changes":        {Allow{Input: json.RawMessage(`{}`)}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{}}}`},
		"denies":         {Deny{Message: "no"}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
		"ends the turn":  {Deny{Message: "no", Interrupt: true}, `{"continue":false,"stopReason":"no","hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
		"has no opinion": {Elsewhere{}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := callHook(t, gate(tt.d, nil), `{"tool_name":"Read"}`)
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, out, tt.want)
		})
	}
	t.Run("blocks what it cannot judge", func(t *testing.T) {
		wire, _, _ := new(gate(nil, nil)).register()
		wantJSON(t, wire, `{"PreToolUse":[{"hookCallbackIds":["hook_0"],"timeout":70,"onFailure":"block"}]}`)
		for _, h := range []Hooks{gate(nil, nil), gate(nil, errors.New("x")), gate(Allow{Class: UserPermanent}, nil), gate(&Allow{}, nil)} {
			if out, err := callHook(t, h, `{}`); err == nil {
				t.Errorf("answered %s", out)
			}
		}
	})
}
