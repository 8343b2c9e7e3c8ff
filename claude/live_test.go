package claude_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// live returns options for the real CLI with a model that follows script, in
// which $WORK stands for the working directory.
func live(t testing.TB, script string) (claude.Options, *scriptmodel.Server) {
	t.Helper()
	cli := claudetest.Real(t, runVariable+"="+os.Getenv(runVariable))
	model := scriptmodel.Start(t, strings.ReplaceAll(script, "$WORK", cli.Dir))
	return claude.Options{
		Path: cli.Path, Dir: cli.Dir, ReplaceEnv: true, Env: append(cli.Env, scriptmodel.ClientEnv(model.URL)...),
		PermissionMode: claude.ModeDefault,
	}, model
}

const echo = `rules: [{repeat: true, turns: [{text: "You said: {{.Prompt}}"}]}]`

func bounded(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

func TestLiveQuery(t *testing.T) {
	t.Parallel()
	opts, model := live(t, echo)
	var kinds []string
	var result *claude.Result
	for msg, err := range claude.Query(bounded(t), "hello", opts) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, fmt.Sprintf("%T", msg))
		if r, ok := msg.(*claude.Result); ok {
			result = r
		}
	}
	if result == nil || result.Result != "You said: hello" || result.Failed() {
		t.Fatalf("result %+v among %v", result, kinds)
	}
	if asked := model.Requests(); len(asked) != 1 || asked[0].Prompt != "hello" {
		t.Errorf("the model was asked %d times", len(asked))
	}
}

func TestLiveSession(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, echo)
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Info().Version == "" || len(s.Commands()) == 0 || len(s.Info().Models) == 0 {
		t.Errorf("the CLI says of itself %+v", s.Info())
	}
	for _, prompt := range []string{"one", "two"} {
		var got string
		for msg, err := range s.Prompt(bounded(t), prompt) {
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := msg.(*claude.Result); ok {
				got = r.Result
			}
		}
		if got != "You said: "+prompt {
			t.Errorf("%s was answered %q", prompt, got)
		}
	}
	if err := s.SetPermissionMode(bounded(t), "nonsense"); err == nil {
		t.Error("a mode that does not exist was accepted")
	}
	usage, err := s.ContextUsage(bounded(t), "summary")
	if err != nil || usage.TotalTokens == 0 {
		t.Errorf("context usage %+v, %v", usage, err)
	}
}

func TestLivePermissionsHooksAndTools(t *testing.T) {
	t.Parallel()
	opts, model := live(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "touch $WORK/denied", description: a file}}]
      - tools: [{name: Bash, input: {command: "touch $WORK/allowed", description: a file}}]
      - tools: [{name: mcp__calc__add, input: {a: 2, b: 3}}]
      - text: "{{.ToolResult}}"`)
	var asked, hooked []string
	opts.CanUseTool = func(_ context.Context, r *claude.PermissionRequest) (claude.Decision, error) {
		asked = append(asked, string(r.Input))
		if strings.Contains(string(r.Input), "denied") {
			return claude.Deny{Message: "not this one"}, nil
		}
		return claude.Allow{}, nil
	}
	opts.Hooks.PostToolUse = []claude.Hook[claude.PostToolUseInput, claude.PostToolUseOutput]{{
		Func: func(_ context.Context, in *claude.PostToolUseInput) (*claude.PostToolUseOutput, error) {
			hooked = append(hooked, in.Tool)
			return nil, nil
		},
	}}
	server := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "adds"}, func(_ context.Context, _ *mcp.CallToolRequest, n map[string]float64) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n["a"] + n["b"])}}}, nil, nil
	})
	opts.MCPServers = map[string]claude.MCPServer{"calc": &claude.InProcess{Server: server}}
	var result *claude.Result
	for msg, err := range claude.Query(bounded(t), "go", opts) {
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := msg.(*claude.Result); ok {
			result = r
		}
	}
	if result == nil || result.Result != "5" || len(result.PermissionDenials) != 1 {
		t.Errorf("result %+v", result)
	}
	if len(asked) != 3 || fmt.Sprint(hooked) != "[Bash mcp__calc__add]" {
		t.Errorf("asked %q, hooked %q", asked, hooked)
	}
	if _, err := os.Stat(filepath.Join(opts.Dir, "allowed")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(opts.Dir, "denied")); err == nil {
		t.Error("the denied command ran")
	}
	if n := len(model.Requests()); n != 4 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestLiveRun(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, `rules: [{turns: [{tools: [{name: StructuredOutput, input: {answer: 42}}]}, {text: done}]}]`)
	type answer struct {
		Answer int `json:"answer" jsonschema:"the answer"`
	}
	got, result, err := claude.Run[answer](bounded(t), "what is it?", opts)
	if err != nil || got.Answer != 42 || result == nil {
		t.Errorf("got %+v, %v, %v", got, result, err)
	}
}

func TestLiveBackgroundWorkKeepsTheInputOpen(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, `
rules:
  - when: {user: delegate}
    turns:
      - tools: [{name: Agent, input: {description: look, prompt: look closely, subagent_type: general-purpose, run_in_background: true}}]
      - text: It is on its way.
  - when: {user: look closely}
    turns:
      - tools: [{name: Bash, input: {command: "touch $WORK/late", description: a file}}]
        wait: 300ms
      - text: I saw it.
  - repeat: true
    turns: [{text: so I heard}]`)
	opts.CanUseTool = func(context.Context, *claude.PermissionRequest) (claude.Decision, error) { return claude.Allow{}, nil }
	var results []string
	for msg, err := range claude.Query(bounded(t), "delegate", opts) {
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := msg.(*claude.Result); ok {
			results = append(results, r.Result)
		}
	}
	if fmt.Sprint(results) != "[It is on its way. so I heard]" {
		t.Errorf("results %q", results)
	}
	if _, err := os.Stat(filepath.Join(opts.Dir, "late")); err != nil {
		t.Errorf("what the background agent asked for after the first result was not allowed: %v", err)
	}
}

func TestLiveBreakInterrupts(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, `
rules:
  - when: {user: for ever}
    turns: [{text: "and on ", endless: true, delay: 10ms}]
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]`)
	opts.PartialMessages = true
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for msg, err := range s.Prompt(bounded(t), "for ever") {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := msg.(*claude.StreamEvent); ok && e.Kind == claude.EventContentBlockDelta {
			break
		}
	}
	var got []string
	for msg, err := range s.Prompt(bounded(t), "still there?") {
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := msg.(*claude.Result); ok {
			got = append(got, r.Result)
		}
	}
	if fmt.Sprint(got) != "[You said: still there?]" {
		t.Errorf("after breaking out the results are %q", got)
	}
}

func TestLiveErrors(t *testing.T) {
	t.Parallel()
	t.Run("API error", func(t *testing.T) {
		t.Parallel()
		opts, _ := live(t, `rules: [{turns: [{fail: {status: 400, message: this cannot be}}]}]`)
		var result *claude.Result
		var last error
		for msg, err := range claude.Query(bounded(t), "go", opts) {
			if r, ok := msg.(*claude.Result); ok {
				result = r
			}
			last = err
		}
		re, ok := errors.AsType[*claude.ResultError](last)
		if !ok || result == nil || !strings.Contains(re.Error(), "this cannot be") || re.APIErrorStatus != 400 {
			t.Errorf("result %+v, error %v", result, last)
		}
		if pe, ok := errors.AsType[*claude.ProcessError](last); !ok || pe.ExitCode != 1 {
			t.Errorf("error %#v", last)
		}
	})
	t.Run("missing session", func(t *testing.T) {
		t.Parallel()
		opts, _ := live(t, echo)
		opts.Resume = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
		_, err := claude.Start(bounded(t), opts)
		if re, ok := errors.AsType[*claude.ResultError](err); !ok || !strings.Contains(err.Error(), "No conversation found") {
			t.Errorf("error %v, %+v", err, re)
		}
	})
	t.Run("no such directory", func(t *testing.T) {
		t.Parallel()
		opts, _ := live(t, echo)
		opts.Dir = filepath.Join(opts.Dir, "nowhere")
		_, err := claude.Start(bounded(t), opts)
		if _, ok := errors.AsType[*claude.ConnectionError](err); !ok || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("error %v", err)
		}
	})
}

func TestLiveStore(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, echo)
	store := &claude.MemoryStore{}
	opts.Store = store
	opts.SessionID = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
	ask := func(opts claude.Options, prompt string) {
		t.Helper()
		for msg, err := range claude.Query(bounded(t), prompt, opts) {
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := msg.(*claude.Result); ok {
				entries, err := store.Load(t.Context(), claude.SessionKey{Project: claude.ProjectKey(opts.Dir), Session: r.SessionID})
				if err != nil || len(entries) == 0 {
					t.Errorf("the store holds %d entries when the result is seen, %v", len(entries), err)
				}
			}
		}
	}
	ask(opts, "first")
	// Another machine knows the session from the store alone.
	other, model := live(t, echo)
	other.Dir, other.Store, other.Resume = opts.Dir, store, opts.SessionID
	ask(other, "second")
	asked := model.Requests()
	if len(asked) != 1 || !strings.Contains(string(asked[0].Body), "You said: first") {
		t.Errorf("the resumed session asked the model %d times, without what was said before", len(asked))
	}
	messages, err := claude.Transcripts{Store: store}.Messages(t.Context(), opts.SessionID, claude.MessageOptions{Dir: opts.Dir})
	if err != nil || len(messages) != 4 {
		for _, m := range messages {
			t.Logf("%s", m.Raw)
		}
		t.Errorf("the store holds %d messages, %v", len(messages), err)
	}
}

// Killed in the middle of a command, the CLI and all that it started are gone.
func TestLiveCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	opts, _ := live(t, `rules: [{turns: [{tools: [{name: Bash, input: {command: "while true; do date > $WORK/tick; sleep 0.05; done", description: tick}}]}]}]`)
	opts.PermissionMode, opts.AllowBypass = claude.ModeBypass, true
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	tick := filepath.Join(opts.Dir, "tick")
	for { // wait for the command itself
		if _, err := os.Stat(tick); err == nil {
			break
		}
		if err := bounded(t).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := processesIn(t, opts.Dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	for _, err := range s.Messages() {
		if err != nil && !errors.Is(err, claude.ErrClosed) {
			t.Errorf("the session ended with %v", err)
		}
	}
}

// processesIn lists the processes that work in dir.
func processesIn(t testing.TB, dir string) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil || len(links) == 0 {
		t.Skip("there is no /proc here: not tested that nothing is left")
	}
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && cwd == dir {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	return found
}
