package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// playServer is an MCP server that the test binary plays.
func playServer(kind string) {
	switch kind {
	case "broken":
		fmt.Fprintln(os.Stderr, "I cannot find\nmy config")
		os.Exit(3)
	case "mute":
		select {}
	case "stubborn": // neither the end of its input nor a child's fate moves it
		exec.Command("sleep", "1000").Start()
	}
	newServer().Run(context.Background(), &mcp.StdioTransport{})
	if kind == "stubborn" {
		select {}
	}
}

// newServer returns a server with tools of every kind.
func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, run func(ctx context.Context, req *mcp.CallToolRequest, text string) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{
			Name: name, Description: "does " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: name == "echo"},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct {
				Text string `json:"text"`
			}
			json.Unmarshal(req.Params.Arguments, &in)
			return run(ctx, req, in.Text)
		})
	}
	text := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	add("echo", func(_ context.Context, _ *mcp.CallToolRequest, in string) (*mcp.CallToolResult, error) {
		return text(in), nil
	})
	add("odd.näme", func(_ context.Context, _ *mcp.CallToolRequest, in string) (*mcp.CallToolResult, error) {
		return text("odd"), nil
	})
	add("fail", func(_ context.Context, _ *mcp.CallToolRequest, in string) (*mcp.CallToolResult, error) {
		r := text("it went wrong")
		r.IsError = true
		return r, nil
	})
	add("die", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "farewell")
		os.Exit(4)
		return nil, nil
	})
	add("rich", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "text"},
			&mcp.ImageContent{Data: []byte("\x89PNG\r\n\x1a\nrest"), MIMEType: "image/png"},
			&mcp.ImageContent{Data: []byte("nothing"), MIMEType: "image/x"},
			&mcp.AudioContent{Data: []byte("la"), MIMEType: "audio/wav"},
			&mcp.ResourceLink{URI: "file:///x", Name: "x"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///y", Text: "why"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///z.pdf", Blob: []byte("%PDF-1.1"), MIMEType: "application/pdf"}},
		}}, nil
	})
	add("structured", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: map[string]any{"n": 1}}, nil
	})
	add("grow", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, error) {
		add("grown", func(context.Context, *mcp.CallToolRequest, string) (*mcp.CallToolResult, error) {
			return text("tall"), nil
		})
		return text("growing"), nil
	})
	add("slow", func(ctx context.Context, req *mcp.CallToolRequest, _ string) (*mcp.CallToolResult, error) {
		req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "half"})
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "cancelled")
		return nil, ctx.Err()
	})
	return s
}

// stdio is a server that the test binary plays.
func stdio(t testing.TB, kind string) agent.MCPServer {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return agent.MCPServer{Command: exe, Env: map[string]string{"MCP_TEST_SERVER": kind, "MARK": t.Name()}}
}

func newServers(t testing.TB, configs map[string]agent.MCPServer, opts ServersOptions) *Servers {
	t.Helper()
	s := NewServers(configs, opts)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// offers connects, and returns the tools by their names; all servers must work.
func offers(t testing.TB, s *Servers) map[string]Tool {
	t.Helper()
	list, statuses := s.Tools(t.Context())
	for _, st := range statuses {
		if st.Status != "connected" || st.Error != "" {
			t.Fatalf("%+v", st)
		}
	}
	tools := map[string]Tool{}
	for _, tool := range list {
		tools[tool.Name] = tool
	}
	return tools
}

func TestMCP(t *testing.T) {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer web.Close()
	for kind, config := range map[string]agent.MCPServer{
		"stdio": stdio(t, "good"),
		"http":  {URL: web.URL, Headers: map[string]string{"Authorization": "Bearer token"}},
		"local": {Server: newServer()},
	} {
		t.Run(kind, func(t *testing.T) {
			s := newServers(t, map[string]agent.MCPServer{"my server": config}, ServersOptions{})
			tools := offers(t, s)
			echo := tools["mcp__my_server__echo"]
			if !echo.ReadOnly || tools["mcp__my_server__fail"].ReadOnly || echo.Description != "does echo" || echo.Access != nil {
				t.Errorf("%+v", echo)
			}
			if !json.Valid(echo.Schema) || !strings.Contains(string(echo.Schema), `"text"`) {
				t.Errorf("schema %s", echo.Schema)
			}
			if _, ok := tools["mcp__my_server__odd_n_me"]; !ok {
				t.Errorf("tools %v", tools)
			}
			call := func(tool, input string) (Result, error) {
				return tools["mcp__my_server__"+tool].Run(t.Context(), json.RawMessage(input))
			}
			if r, err := call("echo", `{"text":"hallo"}`); err != nil || r.Text != "hallo" {
				t.Errorf("%+v, %v", r, err)
			}
			if r, err := call("odd_n_me", ``); err != nil || r.Text != "odd" {
				t.Errorf("%+v, %v", r, err)
			}
			if _, err := call("fail", `{}`); err == nil || err.Error() != "it went wrong" {
				t.Errorf("%v", err)
			}
			if _, err := call("echo", `[1]`); err == nil || !strings.Contains(err.Error(), "not a JSON object") {
				t.Errorf("%v", err)
			}
			if r, err := call("structured", `{}`); err != nil || r.Text != `{"n":1}` || r.Data == nil {
				t.Errorf("%+v, %v", r, err)
			}
			r, err := call("rich", `{}`)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "rich", r.Text, "text\n[Image of type image/x, 7 bytes, which cannot be shown]\n[Audio of type audio/wav, 2 bytes]\n[Resource link: x] file:///x\n[Resource from file:///y]\nwhy")
			if len(r.Blocks) != 2 {
				t.Errorf("%d blocks", len(r.Blocks))
			} else if _, ok := r.Blocks[1].(*claude.Document); !ok {
				t.Errorf("%T", r.Blocks[1])
			}
		})
	}
}

func TestMCPListChanges(t *testing.T) {
	t.Parallel()
	s := newServers(t, map[string]agent.MCPServer{"a": stdio(t, "good")}, ServersOptions{})
	tools := offers(t, s)
	if _, ok := tools["mcp__a__grown"]; ok {
		t.Fatal("it is grown already")
	}
	if _, err := tools["mcp__a__grow"].Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second) // until the notice has come
	for {
		if tool, ok := offers(t, s)["mcp__a__grown"]; ok {
			if r, err := tool.Run(t.Context(), nil); err != nil || r.Text != "tall" {
				t.Errorf("%+v, %v", r, err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the new tool does not come")
		}
		runtime.Gosched()
	}
}

func TestMCPFailuresAreAStatus(t *testing.T) {
	t.Parallel()
	s := newServers(t, map[string]agent.MCPServer{
		"absent": {Command: "/no/such/program"}, "broken": stdio(t, "broken"), "good": stdio(t, "good"),
		"mute": stdio(t, "mute"), "nothing": {}, "refused": {URL: "http://127.0.0.1:1/"}, "two": {Command: "x", URL: "y"},
	}, ServersOptions{ConnectTimeout: 2 * time.Second})
	tools, statuses := s.Tools(t.Context())
	if len(tools) == 0 {
		t.Error("no tools of the good one")
	}
	for i, want := range []string{"no such file", "I cannot find my config", "", "it took more than 2s", "one of Command, URL, Server and Tools", "refused", "one of Command, URL, Server and Tools"} {
		st := statuses[i]
		if (want == "") != (st.Status == "connected") || !strings.Contains(st.Error, want) {
			t.Errorf("%+v", st)
		}
	}
}

func TestMCPServerThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := newServers(t, map[string]agent.MCPServer{"a": stdio(t, "good")}, ServersOptions{})
	tools := offers(t, s)
	_, err := tools["mcp__a__die"].Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "MCP server a ended during the call") || !strings.Contains(err.Error(), "farewell") {
		t.Errorf("%v", err)
	}
	r, err := tools["mcp__a__echo"].Run(t.Context(), json.RawMessage(`{"text":"back"}`))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "after", r.Text, "(MCP server a had ended and was started again: what it knew of earlier calls is gone.)\nback")
	r, err = tools["mcp__a__echo"].Run(t.Context(), json.RawMessage(`{"text":"still"}`))
	if err != nil || r.Text != "still" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMCPProgressAndCancellation(t *testing.T) {
	for kind, config := range map[string]agent.MCPServer{"stdio": stdio(t, "good"), "local": {Server: newServer()}} {
		cause := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		var mu sync.Mutex
		var got []Progress
		s := newServers(t, map[string]agent.MCPServer{"a": config}, ServersOptions{Progress: func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, p)
			stop(cause)
		}})
		tools := offers(t, s)
		_, err := tools["mcp__a__slow"].Run(ctx, nil)
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", kind, err)
		}
		mu.Lock()
		if !slices.Equal(got, []Progress{{Tool: "mcp__a__slow", Done: 1, Total: 2, Message: "half"}}) {
			t.Errorf("%s: %+v", kind, got)
		}
		mu.Unlock()
		if r, err := tools["mcp__a__echo"].Run(t.Context(), json.RawMessage(`{"text":"on"}`)); err != nil || r.Text != "on" {
			t.Errorf("%s: afterwards %+v, %v", kind, r, err)
		}
	}
}

func TestMCPCallTimeout(t *testing.T) {
	s := newServers(t, map[string]agent.MCPServer{"a": {Server: newServer()}}, ServersOptions{CallTimeout: 50 * time.Millisecond})
	_, err := offers(t, s)["mcp__a__slow"].Run(t.Context(), nil)
	if err == nil || err.Error() != "calling mcp__a__slow took more than 50ms" {
		t.Errorf("%v", err)
	}
}

func TestMCPNothingIsLeftAfterClose(t *testing.T) {
	t.Parallel()
	s := newServers(t, map[string]agent.MCPServer{"a": stdio(t, "good"), "b": stdio(t, "stubborn"), "never": stdio(t, "good")}, ServersOptions{})
	tools := offers(t, s)
	if left := survivors(t, "MARK="+t.Name()); len(left) < 4 {
		t.Errorf("alive are %q", left)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	none(t, "MARK="+t.Name())
	if _, err := tools["mcp__a__echo"].Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Close does not wait for a server that never answers.
func TestMCPCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	s := newServers(t, map[string]agent.MCPServer{"a": stdio(t, "mute")}, ServersOptions{ConnectTimeout: time.Hour})
	done := make(chan []ServerStatus)
	go func() {
		_, statuses := s.Tools(context.Background())
		done <- statuses
	}()
	for len(survivors(t, "MARK="+t.Name())) == 0 {
		runtime.Gosched()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if st := (<-done)[0]; st.Status != "failed" || !strings.Contains(st.Error, "closed") {
		t.Errorf("%+v", st)
	}
	none(t, "MARK="+t.Name())
}

func TestMCPToolsThatCannotBeUsed(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	for _, name := range []string{"a.b", "a_b", strings.Repeat("x", 128), "good"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	s := newServers(t, map[string]agent.MCPServer{"a": {Server: server}}, ServersOptions{})
	tools, statuses := s.Tools(t.Context())
	if len(tools) != 2 || statuses[0].Status != "connected" {
		t.Errorf("%d tools, %+v", len(tools), statuses)
	}
	contains(t, "status", statuses[0].Error, "a_b (another tool has the same name)")
	contains(t, "status", statuses[0].Error, "has more than 128 characters")
}

// A server behind a URL that was started anew does not know our session.
func TestMCPServerBehindURLStartedAnew(t *testing.T) {
	var mu sync.Mutex
	old := newServer()
	handler := http.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return old }, nil))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := handler
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close) // after the servers are closed, which hold a stream
	t.Cleanup(func() {   // what a server that ended would have taken with it
		for session := range old.Sessions() {
			session.Close()
		}
	})
	s := newServers(t, map[string]agent.MCPServer{"a": {URL: web.URL}}, ServersOptions{})
	echo := offers(t, s)["mcp__a__echo"]
	mu.Lock()
	handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil)
	mu.Unlock()
	web.CloseClientConnections()
	var err error
	for range 3 { // at the latest the call after the one that finds out
		var r Result
		if r, err = echo.Run(t.Context(), json.RawMessage(`{"text":"back"}`)); err != nil {
			t.Log(err)
		} else {
			contains(t, "answer", r.Text, "back")
			return
		}
	}
	t.Errorf("it stays away: %v", err)
}

// A handler in this process that panics, or returns nothing, fails its call: the
// host and the server live on.
func TestMCPHandlerThatPanics(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "wild", Version: "1"}, nil)
	calm := false
	server.AddTool(&mcp.Tool{Name: "buck", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if calm {
				return nil, nil
			}
			calm = true
			panic("unseated")
		})
	servers := NewServers(map[string]agent.MCPServer{"wild": {Server: server}}, ServersOptions{})
	t.Cleanup(func() { servers.Close() })
	list, statuses := servers.Tools(t.Context())
	if len(list) != 1 {
		t.Fatalf("the server is %v", statuses)
	}
	for _, want := range []string{"unseated", "no result"} {
		_, err := list[0].Run(t.Context(), json.RawMessage(`{}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the call is answered with %v, want %q", err, want)
		}
	}
}

// Tools of this process are called as they are: nothing is connected, and what they say
// is the result.
func TestToolsOfThisProcess(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	stop, cancel := context.WithCancelCause(t.Context())
	servers := NewServers(map[string]agent.MCPServer{"own": {Tools: []agent.Tool{
		{Name: "say", Description: "Says it.", Schema: schema, Call: func(_ context.Context, input json.RawMessage) (string, error) { return string(input), nil }},
		{Name: "fail", Schema: schema, ReadOnly: true, Call: func(context.Context, json.RawMessage) (string, error) { return "", errors.New("100% wrong") }},
		{Name: "hang", Schema: schema, Call: func(ctx context.Context, _ json.RawMessage) (string, error) {
			cancel(errors.New("enough"))
			<-ctx.Done()
			return "", ctx.Err()
		}},
	}}}, ServersOptions{})
	defer servers.Close()
	list, statuses := servers.Tools(t.Context())
	if len(list) != 3 || statuses[0] != (ServerStatus{Name: "own", Status: "connected"}) {
		t.Fatalf("%d tools: %+v", len(list), statuses)
	}
	fail, hang, say := list[0], list[1], list[2]
	if say.Name != "mcp__own__say" || say.Description != "Says it." || string(say.Schema) != string(schema) || say.ReadOnly || !fail.ReadOnly {
		t.Errorf("they are %+v and %+v", say, fail)
	}
	if r, err := say.Run(t.Context(), json.RawMessage(`{"text":"hi"}`)); err != nil || r.Text != `{"text":"hi"}` {
		t.Errorf("it says %q, %v", r.Text, err)
	}
	if _, err := fail.Run(t.Context(), nil); err == nil || err.Error() != "100% wrong" {
		t.Errorf("it fails with %v", err)
	}
	if _, err := hang.Run(stop, nil); err == nil || err.Error() != "enough" {
		t.Errorf("a call that is given up fails with %v", err)
	}
}
