package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// transcriptsByName reads every recorded conversation.
func transcriptsByName(t testing.TB) map[string]*claudetest.Transcript {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	all := map[string]*claudetest.Transcript{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all[file], err = claudetest.ParseTranscript(file, data); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// undocumented are the kinds of messages that the CLI sends (2.1.325) and does
// not describe. They arrive as Unknown; a test fails if one is not seen any
// more.
var undocumented = []string{"command_lifecycle", "system/session_title_changed"}

// toHost tells whether the line is for the session, and never for who reads
// its messages.
func toHost(line json.RawMessage) bool {
	kind, _, _ := strings.Cut(claudetest.Kind(line), "/")
	return slices.Contains([]string{"control_request", "control_response", "control_cancel_request", "transcript_mirror", "keep_alive"}, kind)
}

func TestRecordedLinesAreTyped(t *testing.T) {
	seen := map[string]bool{}
	for file, tr := range transcriptsByName(t) {
		for _, l := range tr.Lines {
			if l.From != claudetest.Claude || toHost(l.JSON) {
				continue
			}
			m, err := claude.Decode(l.JSON)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if m.Head().Mismatch != "" {
				t.Errorf("%s: %s in %.300s", file, m.Head().Mismatch, l.JSON)
			}
			if _, unknown := m.(*claude.Unknown); unknown {
				kind := claudetest.Kind(l.JSON)
				if seen[kind] = true; !slices.Contains(undocumented, kind) {
					t.Errorf("%s: there is no type for %.300s", file, l.JSON)
				}
			}
		}
	}
	for _, kind := range undocumented {
		if !seen[kind] {
			t.Errorf("%s is listed as undocumented and was not recorded", kind)
		}
	}
}

// notReplayed are the processes that a session of ours cannot have, by
// transcript, with the reason.
var notReplayed = map[string]string{
	"resume-missing": "the CLI ends before it is ready, so there is no session: see TestReplayWithoutSession",
}

// Whoever has a recorded conversation through the SDK reads all that the CLI
// said, in its order, and nothing else. The input may be closed as soon as the
// last prompt is sent (items 211, 213, 410): it stays open for what the CLI
// asks of hooks, callbacks and servers until the run is over.
func TestReplay(t *testing.T) {
	left := len(notReplayed)
	for file, tr := range transcriptsByName(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if reason := notReplayed[name]; reason != "" {
			t.Logf("%s is not replayed: %s", name, reason)
			left--
			continue
		}
		for i, act := range acts(tr) {
			t.Run(fmt.Sprintf("%s/%d", name, i+1), func(t *testing.T) {
				t.Parallel()
				path, env := claudetest.ReplayAct(file, i+1)
				replaySession(t, path, env, act)
			})
		}
	}
	if left != 0 {
		t.Error("a transcript that is not replayed does not exist")
	}
}

// acts are the lines of each process.
func acts(tr *claudetest.Transcript) (all [][]claudetest.Line) {
	for _, l := range tr.Lines {
		if l.From == claudetest.Program && strings.HasPrefix(l.Note, "start") {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], l)
	}
	return all
}

// hostLine is what a recorded host said.
type hostLine struct {
	Type      string
	RequestID string `json:"request_id"`
	Request   struct {
		Subtype    string
		Hooks      map[string][]json.RawMessage
		SDKServers []string `json:"sdkMcpServers"`
	}
	Response struct {
		RequestID string `json:"request_id"`
		Response  json.RawMessage
	}
	Message struct{ Content json.RawMessage }
	UUID    string
	Origin  struct{ Kind string }
	Query   *bool `json:"shouldQuery"`
}

func replaySession(t *testing.T, path string, env []string, lines []claudetest.Line) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// With folders of these names the fake CLI says what was recorded.
	env = append(env, "HOME=$HOME", "TMPDIR=$TMP")
	r := &replayed{t: t, opts: claude.Options{Path: path, Env: env, Dir: dir}, answers: map[string]json.RawMessage{}}
	var want []string
	exit := ""
	for _, l := range lines {
		switch {
		case l.From == claudetest.Host:
			r.host(l.JSON)
		case l.From == claudetest.Program:
			exit = l.Note
		case claudetest.Kind(l.JSON) == "control_request/can_use_tool" || claudetest.Kind(l.JSON) == "control_request/hook_callback":
			r.asked = append(r.asked, l.JSON)
		case !toHost(l.JSON) && !strings.Contains(string(l.JSON), `"sdk_host_only":true`):
			want = append(want, string(l.JSON))
		}
	}
	s := start(t, r.opts)
	said := make(chan error, 1)
	go func() {
		said <- r.say(bounded(t), s)
		s.CloseInput()
	}()
	var got []string
	messages, err := collect(t, s.Messages())
	for _, m := range messages {
		got = append(got, strings.ReplaceAll(string(m.Raw()), dir, "$WORK"))
	}
	if saidErr := <-said; saidErr != nil {
		t.Error(saidErr)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d messages, want %d; number %d is %.300s, want %.300s", len(got), len(want), i, at(got, i), at(want, i))
		}
	}
	code := 0
	if pe, ok := errors.AsType[*claude.ProcessError](err); ok {
		code = pe.ExitCode
	} else if err != nil {
		t.Errorf("the session ended with %v", err)
	}
	if exit != fmt.Sprintf("exit %d", code) {
		t.Errorf("the session ended with %v, want %s", err, exit)
	}
	r.done()
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "none"
}

// replayed plays the recorded host by means of the SDK.
type replayed struct {
	t       *testing.T
	opts    claude.Options
	script  []hostLine                 // prompts and requests
	raw     []json.RawMessage          // the lines of script
	asked   []json.RawMessage          // what the CLI asks of callbacks
	answers map[string]json.RawMessage // what the host answered, by request
	used    chan string                // requests that a callback answered
}

// host takes note of a line of the recorded host.
func (r *replayed) host(line json.RawMessage) {
	var l hostLine
	if err := json.Unmarshal(line, &l); err != nil {
		r.t.Fatal(err)
	}
	switch {
	case l.Type == "control_response":
		r.answers[l.Response.RequestID] = l.Response.Response
	case l.Request.Subtype == "initialize" && len(r.script) == 0:
		r.options(l)
	default:
		r.script, r.raw = append(r.script, l), append(r.raw, line)
	}
}

// options are those that make the SDK initialize as the recorded host did.
func (r *replayed) options(l hostLine) {
	r.used = make(chan string, 1000)
	r.opts.CanUseTool = func(_ context.Context, p *claude.PermissionRequest) (claude.Decision, error) {
		return r.decide(p.ToolUseID)
	}
	r.opts.Hooks.Other = map[string][]claude.RawHook{}
	for event, matchers := range l.Request.Hooks {
		for range matchers {
			r.opts.Hooks.Other[event] = append(r.opts.Hooks.Other[event], claude.RawHook{
				Func: func(_ context.Context, in *claude.HookInput) (*json.RawMessage, error) {
					answer, err := r.answer("hook_callback", func(request json.RawMessage) bool { return string(request) == string(in.Raw) })
					return &answer, err
				},
			})
		}
	}
	r.opts.MCPServers = map[string]claude.MCPServer{}
	for _, name := range l.Request.SDKServers {
		server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil)
		mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
		r.opts.MCPServers[name] = &claude.InProcess{Server: server}
	}
}

// answer returns what the recorded host answered to the request of that kind
// whose input is the right one.
func (r *replayed) answer(subtype string, right func(input json.RawMessage) bool) (json.RawMessage, error) {
	for _, line := range r.asked {
		var l struct {
			RequestID string `json:"request_id"`
			Request   struct {
				Subtype   string
				Input     json.RawMessage
				ToolUseID json.RawMessage `json:"tool_use_id"`
			}
		}
		text := strings.ReplaceAll(string(line), "$WORK", r.opts.Dir)
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return nil, err
		}
		input := l.Request.Input
		if subtype == "can_use_tool" {
			input = l.Request.ToolUseID
		}
		if l.Request.Subtype == subtype && right(input) {
			r.used <- l.RequestID
			return r.answers[l.RequestID], nil
		}
	}
	return nil, errors.New("nobody recorded such a request")
}

func (r *replayed) decide(toolUse string) (claude.Decision, error) {
	answer, err := r.answer("can_use_tool", func(id json.RawMessage) bool { return string(id) == fmt.Sprintf("%q", toolUse) })
	if err != nil || answer == nil {
		return claude.Elsewhere{}, err
	}
	var d struct {
		Behavior  string
		Input     json.RawMessage           `json:"updatedInput"`
		Updates   []claude.PermissionUpdate `json:"updatedPermissions"`
		Class     claude.DecisionClass      `json:"decisionClassification"`
		Message   string
		Interrupt bool
	}
	if err := json.Unmarshal(answer, &d); err != nil {
		return nil, err
	}
	if d.Behavior == "deny" {
		return claude.Deny{Message: d.Message, Interrupt: d.Interrupt}, nil
	}
	return claude.Allow{Input: d.Input, Updates: d.Updates, Class: d.Class}, nil
}

// say sends what the recorded host sent.
func (r *replayed) say(ctx context.Context, s *claude.Session) error {
	for i, l := range r.script {
		if l.Type != "user" {
			var request struct{ Request map[string]any }
			if err := json.Unmarshal(r.raw[i], &request); err != nil {
				return err
			}
			delete(request.Request, "subtype")
			// An error answer was recorded as well; that there is one is enough.
			_, err := s.Control(ctx, l.Request.Subtype, request.Request)
			_, refused := errors.AsType[*claude.ControlError](err)
			_, unsupported := errors.AsType[*claude.UnsupportedError](err)
			if err != nil && !refused && !unsupported {
				return err
			}
			continue
		}
		m := claude.UserMessage{UUID: l.UUID, Human: l.Origin.Kind == "human", NoQuery: l.Query != nil && !*l.Query}
		if json.Unmarshal(l.Message.Content, &m.Text) != nil {
			m.Text = "blocks of any kind" // the fake CLI does not read them
		}
		if err := s.Send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// done fails the test for a request that no callback answered.
func (r *replayed) done() {
	close(r.used)
	asked := map[string]bool{}
	for id := range r.used {
		asked[id] = true
	}
	for _, line := range r.asked {
		var l hostLine
		if err := json.Unmarshal(line, &l); err != nil {
			r.t.Fatal(err)
		}
		if !asked[l.RequestID] {
			r.t.Errorf("no callback was asked %.300s", line)
		}
	}
}

func TestReplayWithoutSession(t *testing.T) {
	t.Parallel()
	path, env := claudetest.Replay("testdata/transcripts/resume-missing.txtar")
	_, err := claude.Start(bounded(t), claude.Options{Path: path, Env: env})
	re, ok := errors.AsType[*claude.ResultError](err)
	if !ok || len(re.Errors) != 1 || !strings.Contains(re.Errors[0], "No conversation found") {
		t.Errorf("item 242: got %v", err)
	}
}
