package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// answers is a CLI that answers every request as the test told it to with
// test_next, and tells with test_asked what the request was.
func answers(c *claudetest.Conn) {
	c.AcceptInitialize()
	var next struct {
		Answer map[string]json.RawMessage `json:"answer"`
	}
	var asked json.RawMessage
	for {
		l, err := c.Next()
		if err != nil {
			return
		}
		var m struct {
			Request json.RawMessage `json:"request"`
		}
		if err := json.Unmarshal(l.Raw, &m); err != nil {
			panic(err)
		}
		switch l.Subtype {
		case "test_next":
			next.Answer = nil
			if err := json.Unmarshal(m.Request, &next); err != nil {
				panic(err)
			}
			c.Answer(l, nil)
		case "test_asked":
			c.Answer(l, asked)
		default:
			asked = m.Request
			next.Answer["request_id"], _ = json.Marshal(l.ID)
			c.Send(map[string]any{"type": "control_response", "response": next.Answer})
		}
	}
}

// wire is a session with the CLI that answers as it is told.
type wire struct {
	*claude.Session
	t *testing.T
}

func newWire(t *testing.T) *wire {
	t.Helper()
	path, env := claudetest.Fake("answers")
	// The test's context ends before its cleanup.
	s, err := claude.Start(context.WithoutCancel(t.Context()), claude.Options{Path: path, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return &wire{s, t}
}

// next says how the next request is answered: with this response object.
func (w *wire) next(response string) {
	w.t.Helper()
	if _, err := w.Control(w.t.Context(), "test_next", map[string]any{"answer": json.RawMessage(response)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) asked() string {
	w.t.Helper()
	raw, err := w.Control(w.t.Context(), "test_asked", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(raw)
}

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	return json.Unmarshal([]byte(got), &g) == nil && reflect.DeepEqual(g, w)
}

// sends is what each method writes. A name is that of the method, then the
// number of a conformance item or what is special about the case.
var sends = []struct {
	name string
	call func(ctx context.Context, s *claude.Session) error
	want string
}{
	{"Interrupt 199", func(ctx context.Context, s *claude.Session) error { return second(s.Interrupt(ctx)) },
		`{"subtype":"interrupt"}`},
	{"InterruptAll", func(ctx context.Context, s *claude.Session) error { return second(s.InterruptAll(ctx)) },
		`{"subtype":"interrupt","cancel_queued":true}`},
	{"CancelMessage", func(ctx context.Context, s *claude.Session) error { return second(s.CancelMessage(ctx, "u")) },
		`{"subtype":"cancel_async_message","message_uuid":"u"}`},
	{"SetPermissionMode 396", func(ctx context.Context, s *claude.Session) error { return s.SetPermissionMode(ctx, "plan") },
		`{"subtype":"set_permission_mode","mode":"plan"}`},
	{"SetModel 396", func(ctx context.Context, s *claude.Session) error { return s.SetModel(ctx, "opus") },
		`{"subtype":"set_model","model":"opus"}`},
	{"SetModel 396 back", func(ctx context.Context, s *claude.Session) error { return s.SetModel(ctx, "") },
		`{"subtype":"set_model"}`},
	{"SetThinking", func(ctx context.Context, s *claude.Session) error {
		return s.SetThinking(ctx, claude.ThinkingChange{MaxTokens: new(1024)})
	}, `{"subtype":"set_max_thinking_tokens","max_thinking_tokens":1024}`},
	{"SetThinking off", func(ctx context.Context, s *claude.Session) error {
		return s.SetThinking(ctx, claude.ThinkingChange{MaxTokens: new(0), Display: "omitted"})
	}, `{"subtype":"set_max_thinking_tokens","max_thinking_tokens":0,"thinking_display":"omitted"}`},
	{"SetThinking reset", func(ctx context.Context, s *claude.Session) error {
		return s.SetThinking(ctx, claude.ThinkingChange{MaxTokens: new(1), ResetMaxTokens: true, Display: "x", ResetDisplay: true})
	}, `{"subtype":"set_max_thinking_tokens","max_thinking_tokens":null,"thinking_display":null}`},
	{"SetThinking display", func(ctx context.Context, s *claude.Session) error {
		return s.SetThinking(ctx, claude.ThinkingChange{Display: "summarized"})
	}, `{"subtype":"set_max_thinking_tokens","thinking_display":"summarized"}`},
	{"Rename", func(ctx context.Context, s *claude.Session) error { return s.Rename(ctx, "a title") },
		`{"subtype":"rename_session","title":"a title","source":"host"}`},
	{"GenerateTitle", func(ctx context.Context, s *claude.Session) error {
		return second(s.GenerateTitle(ctx, "about", false))
	},
		`{"subtype":"generate_session_title","description":"about"}`},
	{"GenerateTitle persist", func(ctx context.Context, s *claude.Session) error { return second(s.GenerateTitle(ctx, "about", true)) },
		`{"subtype":"generate_session_title","description":"about","persist":true}`},
	{"SetColor", func(ctx context.Context, s *claude.Session) error { return s.SetColor(ctx, "blue") },
		`{"subtype":"set_color","color":"blue"}`},
	{"SetHasSubscribers", func(ctx context.Context, s *claude.Session) error { return s.SetHasSubscribers(ctx, false) },
		`{"subtype":"set_has_subscribers","has_subscribers":false}`},

	{"StopTask 200", func(ctx context.Context, s *claude.Session) error { return s.StopTask(ctx, "t") },
		`{"subtype":"stop_task","task_id":"t"}`},
	{"MoveToBackground", func(ctx context.Context, s *claude.Session) error { return second(s.MoveToBackground(ctx, "")) },
		`{"subtype":"background_tasks"}`},
	{"MoveToBackground one", func(ctx context.Context, s *claude.Session) error { return second(s.MoveToBackground(ctx, "toolu_1")) },
		`{"subtype":"background_tasks","tool_use_id":"toolu_1"}`},
	{"TaskOutput", func(ctx context.Context, s *claude.Session) error { return second(s.TaskOutput(ctx, "t")) },
		`{"subtype":"get_task_output","task_id":"t"}`},

	{"RewindFiles", func(ctx context.Context, s *claude.Session) error { return second(s.RewindFiles(ctx, "u")) },
		`{"subtype":"rewind_files","user_message_id":"u"}`},
	{"PreviewRewind", func(ctx context.Context, s *claude.Session) error { return second(s.PreviewRewind(ctx, "u")) },
		`{"subtype":"rewind_files","user_message_id":"u","dry_run":true}`},
	{"SeedReadState", func(ctx context.Context, s *claude.Session) error {
		return s.SeedReadState(ctx, "/a", time.Unix(1, 2_999_999))
	}, `{"subtype":"seed_read_state","path":"/a","mtime":1002}`},
	{"ReadFile", func(ctx context.Context, s *claude.Session) error { return second(s.ReadFile(ctx, "/a", 0)) },
		`{"subtype":"read_file","path":"/a","encoding":"base64"}`},
	{"ReadFile part", func(ctx context.Context, s *claude.Session) error { return second(s.ReadFile(ctx, "/a", 10)) },
		`{"subtype":"read_file","path":"/a","max_bytes":10,"encoding":"base64"}`},
	{"FileSuggestions", func(ctx context.Context, s *claude.Session) error { return second(s.FileSuggestions(ctx, "ma")) },
		`{"subtype":"file_suggestions","query":"ma"}`},

	{"MCPStatus 201", func(ctx context.Context, s *claude.Session) error { return second(s.MCPStatus(ctx)) },
		`{"subtype":"mcp_status"}`},
	{"ReconnectMCP 200", func(ctx context.Context, s *claude.Session) error { return s.ReconnectMCP(ctx, "calc") },
		`{"subtype":"mcp_reconnect","serverName":"calc"}`},
	{"ToggleMCP 200 on", func(ctx context.Context, s *claude.Session) error { return s.ToggleMCP(ctx, "calc", true) },
		`{"subtype":"mcp_toggle","serverName":"calc","enabled":true}`},
	{"ToggleMCP 200 off", func(ctx context.Context, s *claude.Session) error { return s.ToggleMCP(ctx, "calc", false) },
		`{"subtype":"mcp_toggle","serverName":"calc","enabled":false}`},
	{"SetMCPPermissionMode", func(ctx context.Context, s *claude.Session) error {
		return second(s.SetMCPPermissionMode(ctx, "calc", "auto"))
	}, `{"subtype":"set_mcp_permission_mode_override","serverName":"calc","mode":"auto"}`},
	{"SetMCPPermissionMode back", func(ctx context.Context, s *claude.Session) error {
		return second(s.SetMCPPermissionMode(ctx, "calc", ""))
	}, `{"subtype":"set_mcp_permission_mode_override","serverName":"calc","mode":null}`},
	{"ReadMCPResource", func(ctx context.Context, s *claude.Session) error {
		return second(s.ReadMCPResource(ctx, "calc", "ui://x"))
	}, `{"subtype":"mcp_read_resource","serverName":"calc","uri":"ui://x"}`},
	{"CallMCPTool", func(ctx context.Context, s *claude.Session) error {
		return second(s.CallMCPTool(ctx, claude.MCPCall{Tool: "mcp__calc__add"}))
	}, `{"subtype":"mcp_call","tool":"mcp__calc__add"}`},
	{"CallMCPTool all", func(ctx context.Context, s *claude.Session) error {
		return second(s.CallMCPTool(ctx, claude.MCPCall{
			Tool: "mcp__calc__add", Arguments: map[string]any{"a": 1}, Timeout: 2 * time.Second,
			Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ResultNotForModel: true, CheckPermissions: true,
		}))
	}, `{"subtype":"mcp_call","tool":"mcp__calc__add","arguments":{"a":1},"timeout_ms":2000,
		"expires_at":"2026-01-02T03:04:05Z","result_not_for_model":true,"check_permissions":true}`},

	{"Settings", func(ctx context.Context, s *claude.Session) error { return second(s.Settings(ctx)) },
		`{"subtype":"get_settings"}`},
	{"ApplyFlagSettings", func(ctx context.Context, s *claude.Session) error {
		return s.ApplyFlagSettings(ctx, map[string]any{"effortLevel": "low", "model": nil})
	}, `{"subtype":"apply_flag_settings","settings":{"effortLevel":"low","model":null}}`},
	{"ApplyFlagSettings none", func(ctx context.Context, s *claude.Session) error { return s.ApplyFlagSettings(ctx, nil) },
		`{"subtype":"apply_flag_settings","settings":{}}`},
	{"UpdateSettings", func(ctx context.Context, s *claude.Session) error {
		return s.UpdateSettings(ctx, "localSettings", map[string]any{"outputStyle": "default"})
	}, `{"subtype":"update_settings","source":"localSettings","settings":{"outputStyle":"default"}}`},
	{"HookListing", func(ctx context.Context, s *claude.Session) error { return second(s.HookListing(ctx)) },
		`{"subtype":"get_hooks_listing"}`},
	{"PermissionRules", func(ctx context.Context, s *claude.Session) error { return second(s.PermissionRules(ctx)) },
		`{"subtype":"list_permission_rules"}`},
	{"ListModels", func(ctx context.Context, s *claude.Session) error { return second(s.ListModels(ctx)) },
		`{"subtype":"list_models"}`},
	{"BinaryVersion", func(ctx context.Context, s *claude.Session) error { return second(s.BinaryVersion(ctx)) },
		`{"subtype":"get_binary_version"}`},

	{"ContextUsage 201", func(ctx context.Context, s *claude.Session) error { return second(s.ContextUsage(ctx, "")) },
		`{"subtype":"get_context_usage"}`},
	{"ContextUsage summary", func(ctx context.Context, s *claude.Session) error { return second(s.ContextUsage(ctx, "summary")) },
		`{"subtype":"get_context_usage","detail":"summary"}`},
	{"SessionCost", func(ctx context.Context, s *claude.Session) error { return second(s.SessionCost(ctx)) },
		`{"subtype":"get_session_cost"}`},
	{"PlanUsage", func(ctx context.Context, s *claude.Session) error { return second(s.PlanUsage(ctx, false)) },
		`{"subtype":"get_usage","skip_behaviors":true}`},
	{"PlanUsage behaviors", func(ctx context.Context, s *claude.Session) error { return second(s.PlanUsage(ctx, true)) },
		`{"subtype":"get_usage"}`},

	{"RegisterRepoRoot", func(ctx context.Context, s *claude.Session) error {
		return s.RegisterRepoRoot(ctx, "/a", claude.RepoRootOptions{})
	}, `{"subtype":"register_repo_root","directory":"/a"}`},
	{"RegisterRepoRoot all", func(ctx context.Context, s *claude.Session) error {
		return s.RegisterRepoRoot(ctx, "/a", claude.RepoRootOptions{ReloadClaudeMD: true, ReloadPlugins: true, ReloadSkills: true})
	}, `{"subtype":"register_repo_root","directory":"/a","reload_claude_md":true,"reload_plugins":true,"reload_skills":true}`},
	{"ReloadPlugins", func(ctx context.Context, s *claude.Session) error {
		return second(s.ReloadPlugins(ctx, claude.ReloadPluginsOptions{}))
	}, `{"subtype":"reload_plugins"}`},
	{"ReloadPlugins all", func(ctx context.Context, s *claude.Session) error {
		return second(s.ReloadPlugins(ctx, claude.ReloadPluginsOptions{Add: []string{"/p"}, HoldOnCacheImpact: true, RefuseIfBusy: true}))
	}, `{"subtype":"reload_plugins","add_plugins":[{"type":"local","path":"/p"}],"hold_on_cache_impact":true,"refuse_if_busy":true}`},
	{"ReloadSkills", func(ctx context.Context, s *claude.Session) error { return second(s.ReloadSkills(ctx)) },
		`{"subtype":"reload_skills"}`},
	{"ReloadOutputStyles", func(ctx context.Context, s *claude.Session) error { return second(s.ReloadOutputStyles(ctx)) },
		`{"subtype":"reload_output_styles"}`},
	{"Control", func(ctx context.Context, s *claude.Session) error {
		return second(s.Control(ctx, "set_cwd", struct{ Cwd string }{"/a"}))
	},
		`{"subtype":"set_cwd","Cwd":"/a"}`},
}

func second[T any](_ T, err error) error { return err }

// Items 199 to 201.
func TestRequestsSend(t *testing.T) {
	w := newWire(t)
	for _, tc := range sends {
		t.Run(tc.name, func(t *testing.T) {
			w.next(`{"subtype":"success","response":{}}`)
			if err := tc.call(t.Context(), w.Session); err != nil {
				t.Fatal(err)
			}
			if got := w.asked(); !sameJSON(t, got, tc.want) {
				t.Errorf("it sends\n  %s, want\n  %s", got, tc.want)
			}
			// A CLI may leave the payload of a success out.
			w.next(`{"subtype":"success"}`)
			if err := tc.call(t.Context(), w.Session); err != nil {
				t.Errorf("with an empty answer: %v", err)
			}
			w.next(`{"subtype":"error","error":"no","error_code":"busy"}`)
			e, ok := errors.AsType[*claude.ControlError](tc.call(t.Context(), w.Session))
			if !ok || e.Code != "busy" || e.Message != "no" || !strings.Contains(tc.want, `"subtype":"`+e.Request+`"`) {
				t.Errorf("refused: %+v", e)
			}
		})
	}
}

// No method is forgotten in the table.
func TestRequestsSendCoversEveryMethod(t *testing.T) {
	files, err := filepath.Glob("requests*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v", files, err)
	}
	tested := map[string]bool{}
	for _, tc := range sends {
		name, _, _ := strings.Cut(tc.name, " ")
		tested[name] = true
	}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
			if !ok || star.X.(*ast.Ident).Name != "Session" {
				continue
			}
			if !tested[f.Name.Name] {
				t.Errorf("%s: %s is not tested", file, f.Name.Name)
			}
			delete(tested, f.Name.Name)
		}
	}
	for name := range tested {
		t.Errorf("%s is no method", name)
	}
}

// recordedAnswer returns the response object with which the CLI answered the request
// with that id.
func recordedAnswer(t *testing.T, transcript, id string) string {
	t.Helper()
	file := filepath.Join("testdata", "transcripts", transcript+".txtar")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := claudetest.ParseTranscript(file, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range tr.Lines {
		if l.From == claudetest.Claude && claudetest.Kind(l.JSON) == "control_response/"+id {
			var m struct{ Response json.RawMessage }
			if err := json.Unmarshal(l.JSON, &m); err != nil {
				t.Fatal(err)
			}
			return string(m.Response)
		}
	}
	t.Fatalf("%s holds no answer to %s", file, id)
	return ""
}
