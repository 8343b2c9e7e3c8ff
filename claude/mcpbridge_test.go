package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const initializeMessage = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"2.1.325"}}}`

// fakeCLI speaks to a bridge as the CLI does.
type fakeCLI struct {
	*bridge
	t *testing.T

	mu   sync.Mutex
	sent []string // what servers said by themselves
}

// bubble runs a subtest in which no time passes by itself. It fails if a
// goroutine is left at its end: the bridge is closed then, without an error.
func bubble(t *testing.T, name string, servers map[string]*mcp.Server, test func(t *testing.T, cli *fakeCLI)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cli := &fakeCLI{t: t}
			cli.bridge = newBridge(servers, func(_ context.Context, server string, message json.RawMessage) error {
				cli.mu.Lock()
				defer cli.mu.Unlock()
				cli.sent = append(cli.sent, server+" "+string(message))
				return nil
			})
			t.Cleanup(func() {
				if err := cli.close(context.Background()); err != nil {
					t.Errorf("closing: %v", err)
				}
			})
			test(t, cli)
		})
	})
}

// ask returns the reply to a message.
func (c *fakeCLI) ask(server, message string) string {
	c.t.Helper()
	reply, err := c.handle(c.t.Context(), server, json.RawMessage(message))
	if err != nil {
		c.t.Errorf("%s: %v", message, err)
	}
	return string(reply)
}

// later asks in the background, and returns when all is quiet.
func (c *fakeCLI) later(ctx context.Context, server, message string) <-chan string {
	reply := make(chan string, 1)
	go func() {
		data, err := c.handle(ctx, server, json.RawMessage(message))
		reply <- string(data) + errorText(err)
	}()
	synctest.Wait()
	return reply
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}

// said returns what servers have sent so far, when all is quiet.
func (c *fakeCLI) said() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// calc is a server with a tool that adds, and whatever a test needs besides.
func calc(tools ...func(*mcp.Server)) map[string]*mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1.0.0"}, nil)
	s.AddTool(&mcp.Tool{
		Name:        "add",
		Description: "Adds two numbers.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`),
	}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ A, B float64 }
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(in.A + in.B)}}}, nil
	})
	for _, add := range tools {
		add(s)
	}
	return map[string]*mcp.Server{"calc": s}
}

// tool is a tool without input.
func tool(name string, handler func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) func(*mcp.Server) {
	return func(s *mcp.Server) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}, handler)
	}
}

func done() *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}
}

func callMessage(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

func wantReply(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("%q is not JSON: %v", got, err)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%q is not JSON: %v", want, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// wantReplyError checks that a reply is an error with this code whose message holds
// text.
func wantReplyError(t *testing.T, reply, id string, code int, text string) {
	t.Helper()
	var r struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(reply), &r); err != nil || r.Error == nil || r.Result != nil {
		t.Errorf("got %s, want an error", reply)
		return
	}
	if string(r.ID) != id || r.Error.Code != code || !strings.Contains(r.Error.Message, text) {
		t.Errorf("got %s, want id %s, code %d, text %q", reply, id, code, text)
	}
}

const acknowledgement = `{"jsonrpc":"2.0","result":{}}`

func TestBridgeHandshake(t *testing.T) {
	bubble(t, "item 268: initialize tells what the server is", calc(), func(t *testing.T, cli *fakeCLI) {
		wantReply(t, cli.ask("calc", initializeMessage), `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true}},"serverInfo":{"name":"calc","version":"1.0.0"}}}`)
	})
	bubble(t, "item 268: an older protocol is echoed", calc(), func(t *testing.T, cli *fakeCLI) {
		reply := cli.ask("calc", strings.Replace(initializeMessage, "2025-11-25", "2025-03-26", 1))
		if !strings.Contains(reply, `"protocolVersion":"2025-03-26"`) {
			t.Error(reply)
		}
	})
	bubble(t, "items 269, 270: a notification is acknowledged", calc(), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), acknowledgement)
		wantReply(t, cli.ask("calc", callMessage("1", "add", `{"a":2,"b":3}`)), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}`)
	})
	bubble(t, "item 271: an unknown server is named", calc(), func(t *testing.T, cli *fakeCLI) {
		wantReplyError(t, cli.ask("other", initializeMessage), "0", -32601, `"other"`)
		wantReplyError(t, cli.ask("other", `{"jsonrpc":"2.0","method":"notifications/initialized"}`), "null", -32601, `"other"`)
	})
	bubble(t, "item 272: an unknown method", calc(), func(t *testing.T, cli *fakeCLI) {
		wantReplyError(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"tools/fold"}`), "1", -32601, "tools/fold")
	})
	bubble(t, "item 273: malformed messages", calc(), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		for message, id := range map[string]string{
			`{"jsonrpc":"2.0","id":7,"method":5}`:         "7",
			`{"jsonrpc":"2.0","id":"x","method":""}`:      `"x"`,
			`{"jsonrpc":"1.0","id":7,"method":"ping"}`:    "7",
			`{"jsonrpc":"2.0","id":7}`:                    "7",
			`{"jsonrpc":"2.0","result":{}}`:               "null",
			`{"jsonrpc":"2.0","id":7,"method":"pi`:        "null",
			`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`:  "null",
			`{"jsonrpc":["2.0"],"id":7,"method":"ping"}`:  "7",
			`{"jsonrpc":"2.0","id":7,"method":{"a":"b"}}`: "7",
		} {
			wantReplyError(t, cli.ask("calc", message), id, -32603, "malformed")
		}
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":8,"method":"ping"}`), `{"jsonrpc":"2.0","id":8,"result":{}}`)
	})
	bubble(t, "item 274: a message with an illegal id is a notification", calc(), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		for _, id := range []string{"2.5", "1e3", "null", "true", "[1]", `{"a":1}`} {
			wantReply(t, cli.ask("calc", callMessage(id, "add", `{}`)), acknowledgement)
			wantReply(t, cli.ask("calc", strings.Replace(initializeMessage, `"id":0`, `"id":`+id, 1)), acknowledgement)
		}
	})
	bubble(t, "ids come back as they went", calc(), func(t *testing.T, cli *fakeCLI) {
		for _, id := range []string{"0", "-1", "9007199254740993", `"a\u003cb<"`, `""`, `"1"`} {
			reply := cli.ask("calc", `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
			if want := `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`; reply != want {
				t.Errorf("got %s, want %s", reply, want)
			}
		}
	})
	for _, method := range []string{"ping", "tools/list"} {
		bubble(t, "item 276: "+method+" before initialize", calc(), func(t *testing.T, cli *fakeCLI) {
			if reply := cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`); !strings.Contains(reply, `"result":{`) {
				t.Error(reply)
			}
			cli.ask("calc", initializeMessage)
			wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	}
}

func TestBridgeInitializedTwice(t *testing.T) {
	var log bytes.Buffer
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, &mcp.ServerOptions{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	bubble(t, "the CLI repeats what the bridge said for it", map[string]*mcp.Server{"s": server}, func(t *testing.T, cli *fakeCLI) {
		cli.manifests(t.Context())
		cli.ask("s", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		synctest.Wait()
		if log.Len() != 0 {
			t.Errorf("the server complains: %s", &log)
		}
	})
}

func TestBridgeInitializeAgain(t *testing.T) {
	var release chan struct{}
	slow := tool("slow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-release
		return done(), nil
	})
	servers := calc(slow)
	bubble(t, "item 275: a call in flight finishes", servers, func(t *testing.T, cli *fakeCLI) {
		release = make(chan struct{})
		cli.ask("calc", initializeMessage)
		reply := cli.later(t.Context(), "calc", callMessage("1", "slow", `{}`))
		cli.ask("calc", initializeMessage)
		// The ids of the CLI begin anew with the session.
		second := cli.later(t.Context(), "calc", callMessage("1", "slow", `{}`))
		if n := sessions(servers["calc"]); n != 2 {
			t.Errorf("%d sessions, want the old one and the new one", n)
		}
		close(release)
		want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`
		wantReply(t, <-reply, want)
		wantReply(t, <-second, want)
		synctest.Wait()
		if n := sessions(servers["calc"]); n != 1 {
			t.Errorf("%d sessions, want the new one", n)
		}
	})
	bubble(t, "item 301: a session that has ended says so until initialize", servers, func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		for s := range servers["calc"].Sessions() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		wantReplyError(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), "1", -32000, `"calc"`)
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), acknowledgement)
		cli.ask("calc", initializeMessage)
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	bubble(t, "item 301: a call whose session ends meanwhile", calc(tool("quit", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		go req.Session.Close() // which waits for this handler
		time.Sleep(time.Second)
		return done(), nil
	})), func(t *testing.T, cli *fakeCLI) {
		wantReplyError(t, cli.ask("calc", callMessage("1", "quit", `{}`)), "1", -32000, `"calc"`)
	})
}

func sessions(s *mcp.Server) (n int) {
	for range s.Sessions() {
		n++
	}
	return n
}

func TestBridgeSet(t *testing.T) {
	first, second := calc(tool("wait", waitForCancel))["calc"], calc()["calc"]
	bubble(t, "servers come and go", map[string]*mcp.Server{"stays": second, "goes": first}, func(t *testing.T, cli *fakeCLI) {
		cli.ask("stays", initializeMessage)
		cli.ask("goes", initializeMessage)
		reply := cli.later(t.Context(), "goes", callMessage("1", "wait", `{}`))
		cli.set(map[string]*mcp.Server{"stays": second, "new": first, "nil": nil})
		wantReplyError(t, <-reply, "1", -32000, `"goes"`)
		wantReplyError(t, cli.ask("goes", initializeMessage), "0", -32601, `"goes"`)
		wantReplyError(t, cli.ask("nil", initializeMessage), "0", -32601, `"nil"`)
		cli.ask("new", initializeMessage)
		synctest.Wait()
		if a, b := sessions(first), sessions(second); a != 1 || b != 1 {
			t.Errorf("%d and %d sessions, want one each", a, b)
		}
		cli.set(map[string]*mcp.Server{"stays": first})
		synctest.Wait()
		if n := sessions(second); n != 0 {
			t.Errorf("a server that was replaced has %d sessions", n)
		}
	})
	bubble(t, "item 267: two servers at once", map[string]*mcp.Server{"a": first, "b": second}, func(t *testing.T, cli *fakeCLI) {
		reply := cli.later(t.Context(), "a", callMessage("1", "wait", `{}`))
		want := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}`
		wantReply(t, cli.ask("b", callMessage("1", "add", `{"a":2,"b":3}`)), want)
		cli.ask("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		if len(reply) != 0 {
			t.Error("cancelling a call of one server cancelled that of another")
		}
	})
	bubble(t, "after close", map[string]*mcp.Server{}, func(t *testing.T, cli *fakeCLI) {
		if err := cli.close(t.Context()); err != nil {
			t.Error(err)
		}
		cli.set(map[string]*mcp.Server{"a": first})
		if _, err := cli.handle(t.Context(), "a", json.RawMessage(initializeMessage)); !errors.Is(err, errBridgeClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBridgeSwap(t *testing.T) {
	by := func(who string, more ...func(*mcp.Server)) map[string]*mcp.Server {
		return calc(append(more, tool("who", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: who}}}, nil
		}))...)
	}
	who := func(t *testing.T, cli *fakeCLI, want string) {
		t.Helper()
		if got := cli.ask("calc", callMessage("7", "who", "{}")); !strings.Contains(got, want) {
			t.Errorf("%s was called, want %s", got, want)
		}
	}
	bubble(t, "servers that offer the same take the place of others", by("the first"), func(t *testing.T, cli *fakeCLI) {
		if cli.swap(t.Context(), by("the second")) {
			t.Error("the CLI was not told of the first, and has to ask")
		}
		cli.manifests(t.Context())
		for name, other := range map[string]map[string]*mcp.Server{
			"nothing": {}, "another tool": by("the second", tool("more", quick)), "another name": {"other": by("the second")["calc"]},
		} {
			if cli.swap(t.Context(), other) {
				t.Errorf("%s took the place", name)
			}
		}
		who(t, cli, "the first")
		for _, next := range []string{"the second", "the third"} {
			if !cli.swap(t.Context(), by(next)) {
				t.Errorf("%s did not take the place", next)
			}
			who(t, cli, next)
		}
		if said := cli.said(); len(said) > 0 {
			t.Errorf("the CLI was told %q", said)
		}
	})
	first := by("the first")
	bubble(t, "not when the tools have changed since", first, func(t *testing.T, cli *fakeCLI) {
		cli.manifests(t.Context())
		tool("late", quick)(first["calc"])
		synctest.Wait()
		time.Sleep(time.Second) // the server tells a little later
		if cli.swap(t.Context(), by("the second")) {
			t.Error("the CLI knows of a tool that is not there")
		}
	})
}

func TestBridgeManifests(t *testing.T) {
	bubble(t, "item 418: what the CLI need not ask", calc(), func(t *testing.T, cli *fakeCLI) {
		want := `{"initializeResult":` + resultOf(t, cli.ask("calc", initializeMessage)) + `,"toolsListResult":` + resultOf(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)) + `}`
		fresh := newBridge(calc(), nil)
		defer fresh.close(t.Context())
		got, err := json.Marshal(fresh.manifests(t.Context())["calc"])
		if err != nil {
			t.Fatal(err)
		}
		wantReply(t, string(got), want)
		// The CLI may go on from here, or shake hands itself.
		call := json.RawMessage(callMessage("1", "add", `{"a":2,"b":3}`))
		for _, message := range []json.RawMessage{call, json.RawMessage(initializeMessage), call} {
			if reply, err := fresh.handle(t.Context(), "calc", message); err != nil || !strings.Contains(string(reply), `"result"`) {
				t.Error(string(reply), err)
			}
		}
	})

	slow := calc()["calc"]
	slow.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			time.Sleep(time.Second)
			return next(ctx, method, req)
		}
	})
	pages := mcp.NewServer(&mcp.Implementation{Name: "pages"}, &mcp.ServerOptions{PageSize: 1})
	tool("a", quick)(pages)
	tool("b", quick)(pages)
	none := mcp.NewServer(&mcp.Implementation{Name: "none"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}})
	var restless *mcp.Server
	restless = mcp.NewServer(&mcp.Implementation{Name: "restless"}, &mcp.ServerOptions{
		InitializedHandler: func(ctx context.Context, req *mcp.InitializedRequest) {
			if err := req.Session.Ping(ctx, nil); err == nil {
				t.Error("a server reached a CLI that is not ready")
			}
			tool("late", quick)(restless)
			time.Sleep(100 * time.Millisecond)
		},
	})
	tool("early", quick)(restless)
	servers := map[string]*mcp.Server{"fast": calc()["calc"], "slow": slow, "pages": pages, "none": none, "restless": restless}
	bubble(t, "item 418: 250 ms for all, and only what is sure", servers, func(t *testing.T, cli *fakeCLI) {
		start := time.Now()
		got := cli.manifests(t.Context())
		if took := time.Since(start); took != manifestBudget {
			t.Errorf("took %v", took)
		}
		for name, tools := range map[string]bool{"fast": true, "pages": false, "none": false, "restless": false} {
			m, ok := got[name]
			if !ok || (m.Tools != nil) != tools {
				t.Errorf("%s: got %s, %s", name, m.Initialize, m.Tools)
			}
		}
		if _, ok := got["slow"]; ok {
			t.Error("the slow server is there")
		}
		if said := cli.said(); len(said) != 0 {
			t.Errorf("the CLI was told %q before it was ready", said)
		}
		// The handshake with the slow one goes on.
		reply := cli.ask("slow", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		wantReply(t, reply, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func quick(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return done(), nil }

func resultOf(t *testing.T, reply string) string {
	t.Helper()
	var r struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(reply), &r); err != nil {
		t.Fatal(err)
	}
	return string(r.Result)
}
