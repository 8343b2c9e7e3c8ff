package claude

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
)

func TestOptionsThatContradict(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		says []string
	}{
		{"item 254: two that answer", Options{CanUseTool: allowAll, PermissionPromptTool: "mcp__a__b"}, []string{"CanUseTool", "PermissionPromptTool"}},
		{"item 358: a store that would lose files", Options{Store: &MemoryStore{}, FileCheckpoints: true}, []string{"Store", "FileCheckpoints"}},
		{"nobody to ask", Options{CanUseTool: allowAll, DenyPrompts: true}, []string{"DenyPrompts"}},
		{"bypass by accident", Options{PermissionMode: ModeBypass}, []string{"AllowBypass"}},
		{"fallback to itself", Options{Model: "opus", FallbackModels: []string{"sonnet", "opus"}}, []string{"FallbackModels", "opus"}},
		{"dialogs for nobody", Options{DialogKinds: []string{"k"}}, []string{"DialogKinds", "OnDialog"}},
		{"two conversations", Options{Resume: "a", Continue: true}, []string{"Resume", "Continue"}},
		{"an id for an old conversation", Options{Resume: "a", SessionID: "b"}, []string{"SessionID", "Fork"}},
		{"a copy of nothing", Options{Fork: true}, []string{"Fork", "Resume"}},
		{"two prompts", Options{SystemPrompt: SystemPrompt{Text: "a", ClaudeCode: true}}, []string{"SystemPrompt"}},
		{"an addition to nothing", Options{SystemPrompt: SystemPrompt{Append: "a"}}, []string{"ClaudeCode"}},
		{"a negative limit", Options{MaxTurns: -1, MaxBudgetUSD: math.NaN()}, []string{"MaxTurns", "MaxBudgetUSD"}},
		{"a budget without its mode", Options{Thinking: ThinkingConfig{Mode: ThinkingAdaptive, Budget: 1}}, []string{"Thinking.Budget"}},
		{"a display of nothing", Options{Thinking: ThinkingConfig{Mode: ThinkingDisabled, Display: ThinkingOmitted}}, []string{"Thinking.Display"}},
		{"a schema that is none", Options{Schema: json.RawMessage(`[1]`)}, []string{"Schema"}},
		{"managed settings that are none", Options{ManagedSettings: json.RawMessage(`{`)}, []string{"ManagedSettings"}},
		{"two kinds of skills", Options{Skills: []string{"a"}, AllSkills: true}, []string{"Skills", "AllSkills"}},
		{"an environment that is none", Options{Env: []string{"PATH"}}, []string{"Env", "PATH"}},
		{"two tools in one", Options{Tools: []string{"Read,Bash"}}, []string{"Tools", "Read,Bash"}},
		{"a plugin without a place", Options{Plugins: []Plugin{{}}}, []string{"Plugins[0]"}},
		{"an agent without a prompt", Options{Agents: map[string]AgentDefinition{"a": {Description: "d"}}}, []string{`Agents["a"]`, "Prompt"}},
		{"a server without a command", Options{MCPServers: map[string]MCPServer{"s": StdioServer{}}}, []string{`MCPServers["s"]`, "Command"}},
		{"a server without a server", Options{MCPServers: map[string]MCPServer{"s": (*InProcess)(nil)}}, []string{`MCPServers["s"]`, "Server"}},
		{"no server", Options{MCPServers: map[string]MCPServer{"s": nil}}, []string{`MCPServers["s"]`}},
		{"a timeout that the CLI ignores", Options{MCPServers: map[string]MCPServer{"s": HTTPServer{URL: "u", Timeout: time.Millisecond}}}, []string{"Timeout", "second"}},
		{"a hook without a function", Options{Hooks: Hooks{Stop: []Hook[StopInput, ContextOutput]{{}}}}, []string{"Hooks.Stop[0]", "Func"}},
		{"a zero byte", Options{Model: "a\x00b"}, []string{"--model"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.o.launchOn("linux", "claude", nil)
			wantSaid(t, err, append(tt.says, "options: ")...)
		})
	}
}

func TestOptionsThatAreFine(t *testing.T) {
	t.Run("item 168: the zero value", func(t *testing.T) {
		if err := new(Options).validate("windows"); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range []PermissionMode{ModeDefault, ModeAcceptEdits, ModeBypass, ModePlan, ModeDontAsk, ModeAuto} {
		t.Run("item 169: "+string(mode), func(t *testing.T) {
			if err := (&Options{PermissionMode: mode, AllowBypass: true}).validate("linux"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestShellCharactersOnWindows(t *testing.T) {
	for _, char := range []string{"&", "|", "<", ">", "^", "%", "!", `"`, "\r", "\n"} {
		v := "a" + char + "b"
		for field, o := range map[string]Options{
			"Resume": {Resume: v}, "SessionID": {SessionID: v}, "ResumeAt": {ResumeAt: v}, "ResumeDropsTurn": {ResumeDropsTurn: &v},
		} {
			t.Run("item 102: "+field+" with "+char, func(t *testing.T) {
				wantSaid(t, o.validate("windows"), field)
				if err := o.validate("linux"); err != nil {
					t.Errorf("item 103: refused on Linux: %v", err)
				}
			})
		}
	}
	t.Run("item 103: ordinary titles", func(t *testing.T) {
		if err := (&Options{Resume: "Größe (v2), it's #1 ~ done; ok?"}).validate("windows"); err != nil {
			t.Error(err)
		}
	})
}

func TestWholeTool(t *testing.T) {
	for rule, want := range map[string]bool{
		"Read": true, "mcp__s__t": true, "Read()": true, "Read(*)": true, " Read ": true,
		"Bash(ls:*)": false, "Bash(*.py)": false, "Bash(": false, "Bash)": false, "(*)": false, "": false, "  ": false,
	} {
		t.Run("item 255: "+rule, func(t *testing.T) {
			if got := wholeTool(rule); got != want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestShadowedCallback(t *testing.T) {
	const bypass = "CanUseTool is hardly ever called: PermissionMode ModeBypass decides first; use GateEveryCall to see every call"
	rules := func(list string) []string {
		return []string{"CanUseTool is not called for what AutoApprove (or AllSkills) lets pass: " + list + "; use GateEveryCall to see every call"}
	}
	tests := []struct {
		name string
		o    Options
		want []string
	}{
		{"item 256: bypass", Options{PermissionMode: ModeBypass, AllowBypass: true}, []string{bypass}},
		{"item 256: bypass comes first", Options{PermissionMode: ModeBypass, AllowBypass: true, AutoApprove: []string{"Read"}}, []string{bypass}},
		{"item 256: whole tools in order, once", Options{AutoApprove: []string{"Write", "Read", " ", "Bash(ls)", "Write", "Edit(*)"}}, rules("Write, Read, Edit(*)")},
		{"item 256: acceptEdits alone is silent", Options{PermissionMode: ModeAcceptEdits}, nil},
		{"item 256: scoped rules are silent", Options{AutoApprove: []string{"Bash(ls:*)"}}, nil},
		{"item 256: nothing is silent", Options{}, nil},
		{"item 257: all skills are the whole tool, once", Options{AllSkills: true, AutoApprove: []string{"Skill"}}, rules("Skill")},
		{"item 257: named skills are not", Options{Skills: []string{"pdf"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.o
			if got := mustLaunch(t, o).warnings; got != nil {
				t.Errorf("item 258: without a callback: %q", got)
			}
			o.CanUseTool = allowAll
			if got := mustLaunch(t, o).warnings; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
