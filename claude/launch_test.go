package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mustLaunch returns what o means on Linux without an environment.
func mustLaunch(t *testing.T, o Options) *launch {
	t.Helper()
	l, err := o.launchOn("linux", "/bin/claude", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cleanup)
	return l
}

// wantSaid checks that err says each of these.
func wantSaid(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one that says %q", says)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

// wantJSON compares v, encoded, with want.
func wantJSON(t *testing.T, v any, want string) {
	t.Helper()
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// recorded returns the control requests with this subtype that the real CLI
// sent in the recorded conversations.
func recorded(t *testing.T, subtype string) []json.RawMessage {
	t.Helper()
	var requests []json.RawMessage
	for _, line := range recordedLines(t) {
		var m struct {
			Type    string          `json:"type"`
			Request json.RawMessage `json:"request"`
		}
		var r struct {
			Subtype string `json:"subtype"`
		}
		if json.Unmarshal([]byte(line), &m) != nil || m.Type != "control_request" {
			continue
		}
		if json.Unmarshal(m.Request, &r) == nil && r.Subtype == subtype {
			requests = append(requests, m.Request)
		}
	}
	if len(requests) == 0 {
		t.Fatalf("no %s in the transcripts", subtype)
	}
	return requests
}

var baseArguments = []string{"--output-format=stream-json", "--verbose", "--input-format=stream-json"}

func TestCommandLine(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want []string // after the base arguments
	}{
		{"items 11, 12, 24, 31, 38, 45: nothing but the base", Options{}, nil},
		{"item 18: a system prompt in a file", Options{SystemPrompt: SystemPrompt{File: "p.md"}}, []string{"--system-prompt-file=p.md"}},
		{"item 19: hook events", Options{HookEvents: true}, []string{"--include-hook-events"}},
		{"item 20: strict MCP", Options{StrictMCP: true}, []string{"--strict-mcp-config"}},
		{"item 21: resume is one token", Options{Resume: "abc"}, []string{"--resume=abc"}},
		{"item 22: dash-leading resume stays one token", Options{Resume: "--evil"}, []string{"--resume=--evil"}},
		{"item 22: dash-leading session id stays one token", Options{SessionID: "-r"}, []string{"--session-id=-r"}},
		{"item 23: resume at", Options{Resume: "a", ResumeAt: "--b", ResumeDropsTurn: new("-c")},
			[]string{"--resume=a", "--resume-session-at=--b", "--resume-drops-turn=-c"}},
		{"item 25: an empty drops-turn is forwarded", Options{ResumeDropsTurn: new("")}, []string{"--resume-drops-turn="}},
		{"item 26: effort", Options{Effort: EffortXHigh}, []string{"--effort=xhigh"}},
		{"item 27: rules for tools", Options{AutoApprove: []string{"Read", "Bash(git *)"}, RemoveTools: []string{"WebFetch", "mcp__x"}},
			[]string{"--allowedTools=Read,Bash(git *)", "--disallowedTools=WebFetch,mcp__x"}},
		{"item 28: model, mode and turns", Options{Model: "opus", PermissionMode: ModeAcceptEdits, MaxTurns: 3},
			[]string{"--model=opus", "--max-turns=3", "--permission-mode=acceptEdits"}},
		{"item 29: dontAsk", Options{PermissionMode: ModeDontAsk}, []string{"--permission-mode=dontAsk"}},
		{"item 30: fallback models", Options{FallbackModels: []string{"sonnet", "haiku"}}, []string{"--fallback-model=sonnet,haiku"}},
		{"item 31: task budget", Options{TaskBudget: 20000}, []string{"--task-budget=20000"}},
		{"items 32, 34: thinking with a budget", Options{Thinking: ThinkingConfig{Mode: ThinkingEnabled, Budget: 4000}}, []string{"--max-thinking-tokens=4000"}},
		{"thinking without a budget is adaptive", Options{Thinking: ThinkingConfig{Mode: ThinkingEnabled}}, []string{"--thinking=adaptive"}},
		{"item 33: adaptive thinking", Options{Thinking: ThinkingConfig{Mode: ThinkingAdaptive}}, []string{"--thinking=adaptive"}},
		{"item 35: no thinking", Options{Thinking: ThinkingConfig{Mode: ThinkingDisabled}}, []string{"--thinking=disabled"}},
		{"item 36: display of adaptive thinking", Options{Thinking: ThinkingConfig{Mode: ThinkingAdaptive, Display: ThinkingSummarized}},
			[]string{"--thinking=adaptive", "--thinking-display=summarized"}},
		{"item 37: display of thinking with a budget", Options{Thinking: ThinkingConfig{Mode: ThinkingEnabled, Budget: 1, Display: ThinkingOmitted}},
			[]string{"--max-thinking-tokens=1", "--thinking-display=omitted"}},
		{"item 40: directories in order", Options{AddDirs: []string{"/b", "/a"}}, []string{"--add-dir=/b", "--add-dir=/a"}},
		{"item 41: continue", Options{Continue: true, Fork: true}, []string{"--continue", "--fork-session"}},
		{"item 42: session id", Options{SessionID: "5c0e"}, []string{"--session-id=5c0e"}},
		{"item 43, 56: settings as a path", Options{Settings: "/no/such/file.json"}, []string{"--settings=/no/such/file.json"}},
		{"item 44: settings as JSON", Options{Settings: `{"a": 1}`}, []string{`--settings={"a": 1}`}},
		{"item 46: no setting sources", Options{SettingSources: []SettingSource{}}, []string{"--setting-sources="}},
		{"item 47: setting sources", Options{SettingSources: []SettingSource{SourceUser, SourceProject}}, []string{"--setting-sources=user,project"}},
		{"items 48, 49: extra arguments come last as they are", Options{Agent: "a", ExtraArgs: []string{"--x", "-y", "--z=-1"}},
			[]string{"--agent=a", "--x", "-y", "--z=-1"}},
		{"item 50: servers", Options{MCPServers: map[string]MCPServer{"a": StdioServer{Command: "run", Args: []string{"-x"}}}},
			[]string{`--mcp-config={"mcpServers":{"a":{"type":"stdio","command":"run","args":["-x"]}}}`}},
		{"item 51: servers in a file", Options{MCPConfig: "/etc/mcp.json"}, []string{"--mcp-config=/etc/mcp.json"}},
		{"item 52: servers as JSON", Options{MCPConfig: `{"mcpServers": {}}`}, []string{`--mcp-config={"mcpServers": {}}`}},
		{"item 53: a server in this process is not there", Options{MCPServers: map[string]MCPServer{"calc": &InProcess{Server: testServer()}}}, nil},
		{"item 58: tools", Options{Tools: []string{"Read", "Bash"}}, []string{"--tools=Read,Bash"}},
		{"item 58: no tools", Options{Tools: []string{}}, []string{"--tools="}},
		{"item 58: the CLI's tools by name", Options{Tools: []string{"default"}}, []string{"--tools=default"}},
		{"item 61: budget", Options{MaxBudgetUSD: 0.0001}, []string{"--max-budget-usd=0.0001"}},
		{"a callback makes the CLI ask", Options{CanUseTool: allowAll}, []string{"--permission-prompt-tool=stdio"}},
		{"plugins", Options{Plugins: []Plugin{{Path: "/p"}, {Path: "/q", WithoutMCP: true}}}, []string{"--plugin-dir=/p", "--plugin-dir-no-mcp=/q"}},
		{"a debug file implies debug", Options{Debug: true, DebugFile: "/d"}, []string{"--debug-file=/d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustLaunch(t, tt.o).args
			want := slices.Concat(baseArguments, tt.want)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func testServer() *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1"}, nil)
}

func allowAll(context.Context, *PermissionRequest) (Decision, error) { return Allow{}, nil }

func TestInitialize(t *testing.T) {
	own := func(fields string) string { return `{"systemPrompt":[""]` + fields + `}` }
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"items 14, 62, 168, 207, 208, 209: an empty system prompt and nothing else", Options{}, own("")},
		{"item 15: a text", Options{SystemPrompt: SystemPrompt{Text: "be kind"}}, `{"systemPrompt":["be kind"]}`},
		{"item 170: blocks", Options{SystemPrompt: SystemPrompt{Blocks: []string{"a", DynamicBoundary, "b"}}},
			`{"systemPrompt":["a","__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__","b"]}`},
		{"no blocks are an empty prompt", Options{SystemPrompt: SystemPrompt{Blocks: []string{}}}, own("")},
		{"item 16: Claude Code's prompt", Options{SystemPrompt: SystemPrompt{ClaudeCode: true}}, `{}`},
		{"item 17: Claude Code's prompt and more", Options{SystemPrompt: SystemPrompt{ClaudeCode: true, Append: "x"}}, `{"appendSystemPrompt":"x"}`},
		{"item 170: without what differs", Options{SystemPrompt: SystemPrompt{ClaudeCode: true, ExcludeDynamic: true, Snapshot: new(false)}},
			`{"excludeDynamicSections":true,"systemPromptSnapshot":false}`},
		{"item 18: a prompt in a file", Options{SystemPrompt: SystemPrompt{File: "f"}}, `{}`},
		{"item 64: no skills", Options{Skills: []string{}}, own(`,"skills":[]`)},
		{"item 65: skills", Options{Skills: []string{"pdf"}}, own(`,"skills":["pdf"]`)},
		{"items 63, 208: all skills", Options{AllSkills: true}, own("")},
		{"item 53: servers in this process", Options{MCPServers: map[string]MCPServer{
			"b": &InProcess{Server: testServer()},
			"a": &InProcess{Server: testServer(), Timeout: 90 * time.Second, Tools: []ToolPolicy{{Name: "add", Policy: AlwaysAsk}}},
		}}, own(`,"sdkMcpServers":["a","b"],"sdkMcpServerConfigs":{"a":{"timeout":90000,"tools":[{"name":"add","permission_policy":"always_ask"}]}}`)},
		{"items 194, 209: what subagents say", Options{ForwardSubagentText: true}, own(`,"forwardSubagentText":true`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantJSON(t, mustLaunch(t, tt.o).init, tt.want)
		})
	}
}

// Every field of Options reaches the CLI, or is known to stay on this side.
// Item 60: a store asks for the session mirror.
func TestEveryOptionIsWired(t *testing.T) {
	here := []string{ // read by the session, the process or the caller's callbacks
		"Path", "User", "Grace", "InitTimeout", "MaxLine", "Stderr", "OnFrame", "OnDebugLine", "Log",
		"OnElicitation", "OnDialog", "VerbatimPrompts", "Spawn", "Wrap", "StoreMode",
		"Unset", // takes away; see TestEnvironment
	}
	reaches := map[string]struct {
		set  func(*Options)
		want string // an argument, a variable, or part of initialize
	}{
		"Dir":                  {func(o *Options) { o.Dir = "/tmp" }, "PWD=/tmp"},
		"Env":                  {func(o *Options) { o.Env = []string{"A=1"} }, "A=1"},
		"ReplaceEnv":           {func(o *Options) { o.ReplaceEnv = true; o.Env = []string{"B=1"} }, "B=1"},
		"ExtraArgs":            {func(o *Options) { o.ExtraArgs = []string{"--x"} }, "--x"},
		"Model":                {func(o *Options) { o.Model = "m" }, "--model=m"},
		"FallbackModels":       {func(o *Options) { o.FallbackModels = []string{"m"} }, "--fallback-model=m"},
		"Thinking":             {func(o *Options) { o.Thinking.Mode = ThinkingAdaptive }, "--thinking=adaptive"},
		"Effort":               {func(o *Options) { o.Effort = EffortLow }, "--effort=low"},
		"MaxTurns":             {func(o *Options) { o.MaxTurns = 1 }, "--max-turns=1"},
		"MaxBudgetUSD":         {func(o *Options) { o.MaxBudgetUSD = 2.5 }, "--max-budget-usd=2.5"},
		"TaskBudget":           {func(o *Options) { o.TaskBudget = 1 }, "--task-budget=1"},
		"Betas":                {func(o *Options) { o.Betas = []string{"b"} }, "--betas=b"},
		"SystemPrompt":         {func(o *Options) { o.SystemPrompt.Text = "t" }, `"systemPrompt":["t"]`},
		"PlanInstructions":     {func(o *Options) { o.PlanInstructions = "p" }, `"planModeInstructions":"p"`},
		"Schema":               {func(o *Options) { o.Schema = json.RawMessage(`{"a":1}`) }, `"jsonSchema":{"a":1}`},
		"Tools":                {func(o *Options) { o.Tools = []string{"Read"} }, "--tools=Read"},
		"AutoApprove":          {func(o *Options) { o.AutoApprove = []string{"Read"} }, "--allowedTools=Read"},
		"RemoveTools":          {func(o *Options) { o.RemoveTools = []string{"Read"} }, "--disallowedTools=Read"},
		"ToolAliases":          {func(o *Options) { o.ToolAliases = map[string]string{"a": "b"} }, `"toolAliases":{"a":"b"}`},
		"PermissionMode":       {func(o *Options) { o.PermissionMode = ModePlan }, "--permission-mode=plan"},
		"AllowBypass":          {func(o *Options) { o.AllowBypass = true }, "--allow-dangerously-skip-permissions"},
		"PermissionPromptTool": {func(o *Options) { o.PermissionPromptTool = "mcp__a__b" }, "--permission-prompt-tool=mcp__a__b"},
		"DenyPrompts":          {func(o *Options) { o.DenyPrompts = true }, "--permission-prompts=none"},
		"QuestionPreview":      {func(o *Options) { o.QuestionPreview = "html" }, "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT=html"},
		"CanUseTool":           {func(o *Options) { o.CanUseTool = allowAll }, "--permission-prompt-tool=stdio"},
		"OnQuestion": {func(o *Options) {
			o.OnQuestion = func(context.Context, *Questions) (*Answers, error) { return nil, nil }
		}, "--permission-prompt-tool=stdio"},
		"Hooks": {func(o *Options) { o.Hooks.PreToolUse = []Hook[PreToolUseInput, PreToolUseOutput]{GateEveryCall(nil)} },
			`"hooks":{"PreToolUse":[{"hookCallbackIds":["hook_0"],"timeout":70,"onFailure":"block"}]}`},
		"MCPServers": {func(o *Options) { o.MCPServers = map[string]MCPServer{"h": HTTPServer{URL: "u"}} },
			`--mcp-config={"mcpServers":{"h":{"type":"http","url":"u"}}}`},
		"MCPConfig":           {func(o *Options) { o.MCPConfig = "f" }, "--mcp-config=f"},
		"StrictMCP":           {func(o *Options) { o.StrictMCP = true }, "--strict-mcp-config"},
		"Agents":              {func(o *Options) { o.Agents = map[string]AgentDefinition{"a": {Description: "d", Prompt: "p"}} }, `"agents":{"a":{"description":"d","prompt":"p"}}`},
		"Agent":               {func(o *Options) { o.Agent = "a" }, "--agent=a"},
		"Skills":              {func(o *Options) { o.Skills = []string{"s"} }, "--allowedTools=Skill(s)"},
		"AllSkills":           {func(o *Options) { o.AllSkills = true }, "--allowedTools=Skill"},
		"Plugins":             {func(o *Options) { o.Plugins = []Plugin{{Path: "p"}} }, "--plugin-dir=p"},
		"SettingSources":      {func(o *Options) { o.SettingSources = []SettingSource{SourceLocal} }, "--setting-sources=local"},
		"Settings":            {func(o *Options) { o.Settings = "s" }, "--settings=s"},
		"Sandbox":             {func(o *Options) { o.Sandbox = &Sandbox{Enabled: new(false)} }, `--settings={"sandbox":{"enabled":false}}`},
		"ManagedSettings":     {func(o *Options) { o.ManagedSettings = json.RawMessage(`{}`) }, "--managed-settings={}"},
		"AddDirs":             {func(o *Options) { o.AddDirs = []string{"d"} }, "--add-dir=d"},
		"ProjectConfigRoot":   {func(o *Options) { o.ProjectConfigRoot = "d" }, "--project-config-root=d"},
		"SessionID":           {func(o *Options) { o.SessionID = "i" }, "--session-id=i"},
		"Resume":              {func(o *Options) { o.Resume = "i" }, "--resume=i"},
		"Continue":            {func(o *Options) { o.Continue = true }, "--continue"},
		"Fork":                {func(o *Options) { o.Continue = true; o.Fork = true }, "--fork-session"},
		"ResumeAt":            {func(o *Options) { o.ResumeAt = "i" }, "--resume-session-at=i"},
		"ResumeDropsTurn":     {func(o *Options) { o.ResumeDropsTurn = new("i") }, "--resume-drops-turn=i"},
		"Store":               {func(o *Options) { o.Store = &MemoryStore{} }, "--session-mirror"},
		"NoPersistence":       {func(o *Options) { o.NoPersistence = true }, "--no-session-persistence"},
		"Title":               {func(o *Options) { o.Title = "t" }, `"title":"t"`},
		"FileCheckpoints":     {func(o *Options) { o.FileCheckpoints = true }, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true"},
		"PartialMessages":     {func(o *Options) { o.PartialMessages = true }, "--include-partial-messages"},
		"HookEvents":          {func(o *Options) { o.HookEvents = true }, "--include-hook-events"},
		"ForwardSubagentText": {func(o *Options) { o.ForwardSubagentText = true }, `"forwardSubagentText":true`},
		"PromptSuggestions":   {func(o *Options) { o.PromptSuggestions = true }, `"promptSuggestions":true`},
		"ProgressSummaries":   {func(o *Options) { o.ProgressSummaries = true }, `"agentProgressSummaries":true`},
		"ReplayUserMessages":  {func(o *Options) { o.ReplayUserMessages = true }, "--replay-user-messages"},
		"DialogKinds": {func(o *Options) {
			o.DialogKinds = []string{"k"}
			o.OnDialog = func(context.Context, *Dialog) (*DialogReply, error) { return nil, nil }
		}, `"supportedDialogKinds":["k"]`},
		"PerTaskStop": {func(o *Options) { o.PerTaskStop = true }, `"perTaskStopAffordance":true`},
		"Debug":       {func(o *Options) { o.Debug = true }, "--debug"},
		"DebugFile":   {func(o *Options) { o.DebugFile = "f" }, "--debug-file=f"},
		"TraceParent": {func(o *Options) { o.TraceParent = "00-1" }, "TRACEPARENT=00-1"},
		"TraceState":  {func(o *Options) { o.TraceParent = "00-1"; o.TraceState = "s" }, "TRACESTATE=s"},
	}
	for field := range reflect.TypeFor[Options]().Fields() {
		test, ok := reaches[field.Name]
		if ok == slices.Contains(here, field.Name) {
			t.Errorf("Options.%s: say in this test how it reaches the CLI", field.Name)
		}
		if !ok {
			continue
		}
		said := func(o Options) bool {
			l := mustLaunch(t, o)
			init, err := json.Marshal(l.init)
			if err != nil {
				t.Fatal(err)
			}
			return slices.Contains(l.args, test.want) || slices.Contains(l.env, test.want) || bytes.Contains(init, []byte(test.want))
		}
		var o Options
		test.set(&o)
		if !said(o) || said(Options{}) {
			t.Errorf("Options.%s: %s is not due to it", field.Name, test.want)
		}
	}
}

func TestLongValuesStayOffTheCommandLine(t *testing.T) {
	long := strings.Repeat("x", 260<<10)
	t.Run("items 13, 59: prompts and agents are sent, never --print, never --agents", func(t *testing.T) {
		agents := map[string]AgentDefinition{}
		for name := range strings.FieldsSeq("a b c d e f g h i j") {
			agents[name] = AgentDefinition{Description: name, Prompt: long}
		}
		l := mustLaunch(t, Options{SystemPrompt: SystemPrompt{Text: long}, Agents: agents, Schema: json.RawMessage(`{"title":"` + long + `"}`)})
		if !slices.Equal(l.args, baseArguments) {
			t.Errorf("the command line is %.200q", l.args)
		}
		if len(l.init.Agents) != 10 || l.init.SystemPrompt[0] != long || l.init.Schema == nil {
			t.Error("initialize lacks them")
		}
	})
	t.Run("servers and settings go into private files", func(t *testing.T) {
		l := mustLaunch(t, Options{MCPConfig: `{"mcpServers":{},"x":"` + long + `"}`, Settings: `{"x":"` + long + `"}`})
		var paths []string
		for _, arg := range l.args {
			flag, path, _ := strings.Cut(arg, "=")
			if flag != "--mcp-config" && flag != "--settings" {
				continue
			}
			paths = append(paths, path)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 || info.Size() < int64(len(long)) {
				t.Errorf("%s is %v with %d bytes", path, info.Mode(), info.Size())
			}
			if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
				t.Errorf("its directory: %v, %v", dir, err)
			}
		}
		if len(paths) != 2 || paths[0] == paths[1] {
			t.Fatalf("files %q", paths)
		}
		l.cleanup()
		l.cleanup()
		if _, err := os.Stat(filepath.Dir(paths[0])); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after cleanup: %v", err)
		}
	})
	t.Run("what cannot go elsewhere is an error, and leaves no file", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		_, err := (&Options{Settings: `{"x":"` + long + `"}`, ManagedSettings: json.RawMessage(`{"x":"` + long + `"}`)}).launchOn("linux", "c", nil)
		wantSaid(t, err, "--managed-settings", "bytes")
		if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
	t.Run("another user could not read the file", func(t *testing.T) {
		_, err := (&Options{User: "nobody", Settings: `{"x":"` + long + `"}`}).launchOn("linux", "c", nil)
		wantSaid(t, err, "--settings", "bytes")
	})
	t.Run("Windows takes less", func(t *testing.T) {
		_, err := (&Options{AutoApprove: []string{long[:33000]}}).launchOn("windows", "c", nil)
		wantSaid(t, err, "Windows")
	})
}

func TestLaunchLeavesOptionsAlone(t *testing.T) {
	t.Run("item 68: nothing of the caller's is changed", func(t *testing.T) {
		rules := append(make([]string, 0, 8), "Read")
		o := Options{
			AutoApprove: rules,
			AllSkills:   true,
			Env:         append(make([]string, 0, 8), "A=1"),
			ExtraArgs:   append(make([]string, 0, 8), "--x"),
			Settings:    `{"sandbox":{"filesystem":{"disabled":true}}}`,
			Sandbox:     &Sandbox{Enabled: new(true), Filesystem: &SandboxFilesystem{DenyRead: []string{"/a"}}},
			CanUseTool:  allowAll,
		}
		mustLaunch(t, o)
		if spare := rules[:2]; spare[1] != "" {
			t.Errorf("wrote %q behind the caller's list", spare[1])
		}
		if o.Env[:2][1] != "" || o.ExtraArgs[:2][1] != "" {
			t.Error("wrote behind the caller's lists")
		}
		if o.Sandbox.FailIfUnavailable != nil {
			t.Error("changed the caller's sandbox")
		}
	})
}

func TestWorkingDirectoryIsChecked(t *testing.T) {
	t.Run("item 8: a missing directory is named", func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "gone")
		_, err := startLocal(Command{Path: "/bin/claude", Dir: missing})
		wantSaid(t, err, "starting in", missing)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a file is no directory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := startLocal(Command{Path: "/bin/claude", Dir: file})
		wantSaid(t, err, file, "not a directory")
	})
}
