package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// waitForCancel is a handler that does as it is told.
func waitForCancel(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// stubborn is a tool whose handlers ignore that they are cancelled: each
// returns when it receives from release.
type stubborn struct {
	release   chan struct{}
	cancelled chan struct{}
}

func (s *stubborn) handler(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	go func() {
		<-ctx.Done()
		s.cancelled <- struct{}{}
	}()
	<-s.release
	return done(), nil
}

// reset makes the channels, which belong to a bubble.
func (s *stubborn) reset() {
	s.release, s.cancelled = make(chan struct{}), make(chan struct{}, 10)
}

const cancelFirst = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"changed my mind"}}`

func TestBridgeConcurrentCalls(t *testing.T) {
	var s stubborn
	servers := calc(tool("stubborn", s.handler))
	bubble(t, "item 297: calls run side by side", servers, func(t *testing.T, cli *fakeCLI) {
		s.reset()
		first := cli.later(t.Context(), "calc", callMessage("1", "stubborn", `{}`))
		second := cli.later(t.Context(), "calc", callMessage(`"1"`, "stubborn", `{}`))
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":2,"method":"ping"}`), `{"jsonrpc":"2.0","id":2,"result":{}}`)
		close(s.release)
		wantReply(t, <-first, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)
		wantReply(t, <-second, `{"jsonrpc":"2.0","id":"1","result":{"content":[{"type":"text","text":"done"}]}}`)
	})
	bubble(t, "item 296: an id in flight is refused", servers, func(t *testing.T, cli *fakeCLI) {
		s.reset()
		first := cli.later(t.Context(), "calc", callMessage("1", "stubborn", `{}`))
		wantReplyError(t, cli.ask("calc", callMessage("1", "add", `{"a":2,"b":3}`)), "1", -32600, "already in flight")
		close(s.release)
		if reply := <-first; !strings.Contains(reply, `"done"`) {
			t.Errorf("the call in flight got %s", reply)
		}
		wantReply(t, cli.ask("calc", callMessage("1", "add", `{"a":2,"b":3}`)), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}`)
	})
}

func TestBridgeCancel(t *testing.T) {
	var s stubborn
	servers := calc(tool("stubborn", s.handler), tool("wait", waitForCancel))
	bubble(t, "item 295: a cancelled call is answered once", servers, func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		reply := cli.later(t.Context(), "calc", callMessage("1", "wait", `{}`))
		wantReply(t, cli.ask("calc", cancelFirst), acknowledgement)
		wantReplyError(t, <-reply, "1", -32800, "cancelled")
		wantReply(t, cli.ask("calc", cancelFirst), acknowledgement) // too late is fine
		wantReply(t, cli.ask("calc", callMessage("2", "add", `{"a":2,"b":3}`)), `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"5"}]}}`)
	})
	bubble(t, "item 295: the CLI withdraws the control request", servers, func(t *testing.T, cli *fakeCLI) {
		ctx, cancel := context.WithCancel(t.Context())
		reply := cli.later(ctx, "calc", callMessage("1", "wait", `{}`))
		cancel()
		wantReplyError(t, <-reply, "1", -32800, "cancelled")
	})
	bubble(t, "item 295: a call is cancelled before it runs", servers, func(t *testing.T, cli *fakeCLI) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		reply, err := cli.handle(ctx, "calc", json.RawMessage(callMessage("1", "wait", `{}`)))
		if err != nil {
			t.Fatal(err)
		}
		wantReplyError(t, string(reply), "1", -32800, "cancelled")
		synctest.Wait()
	})
	bubble(t, "a cancellation of nothing is ignored", servers, func(t *testing.T, cli *fakeCLI) {
		for _, params := range []string{`{}`, `{"requestId":9}`, `{"requestId":null}`, `{"requestId":[]}`, `5`, `null`} {
			wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+params+`}`), acknowledgement)
		}
		wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	bubble(t, "items 281, 302, 304: a handler outlives its cancellation", servers, func(t *testing.T, cli *fakeCLI) {
		s.reset()
		reply := cli.later(t.Context(), "calc", callMessage("1", "stubborn", `{}`))
		cli.ask("calc", cancelFirst)
		<-s.cancelled
		wantReplyError(t, <-reply, "1", -32800, "cancelled")
		add := callMessage("1", "add", `{"a":2,"b":3}`)
		wantReplyError(t, cli.ask("calc", add), "1", -32600, "already in flight")
		close(s.release) // its answer is dropped
		synctest.Wait()
		wantReply(t, cli.ask("calc", add), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}`)
	})
}

func TestBridgeClose(t *testing.T) {
	var s stubborn
	servers := calc(tool("stubborn", s.handler), tool("wait", waitForCancel))
	bubble(t, "item 277: messages after close are refused", servers, func(t *testing.T, cli *fakeCLI) {
		if err := cli.close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, message := range []string{initializeMessage, callMessage("1", "add", `{}`), cancelFirst, `{`, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
			if reply, err := cli.handle(t.Context(), "calc", json.RawMessage(message)); !errors.Is(err, errBridgeClosed) {
				t.Errorf("%s: got %s, %v", message, reply, err)
			}
		}
		if len(cli.manifests(t.Context())) != 0 {
			t.Error("manifests after close")
		}
		if n := sessions(servers["calc"]); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
	bubble(t, "items 278, 280: close ends calls in flight, and may be repeated", servers, func(t *testing.T, cli *fakeCLI) {
		start := time.Now()
		reply := cli.later(t.Context(), "calc", callMessage("1", "wait", `{}`))
		for range 2 {
			if err := cli.close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wantReplyError(t, <-reply, "1", -32000, `"calc"`)
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		if n := sessions(servers["calc"]); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
	two := map[string]*mcp.Server{"b": servers["calc"], "a": servers["calc"], "c": servers["calc"]}
	bubble(t, "items 279, 282: handlers that do not end are named", two, func(t *testing.T, cli *fakeCLI) {
		s.reset()
		start := time.Now()
		first := cli.later(t.Context(), "b", callMessage("1", "stubborn", `{}`))
		second := cli.later(t.Context(), "a", callMessage("1", "stubborn", `{}`))
		cli.ask("c", initializeMessage)
		err := cli.close(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), `: tools still run in "a", "b"`) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != bridgeGrace {
			t.Errorf("took %v", took)
		}
		wantReplyError(t, <-first, "1", -32000, `"b"`)
		wantReplyError(t, <-second, "1", -32000, `"a"`)
		close(s.release)
		synctest.Wait()
	})
	bubble(t, "item 279: close waits no longer than its context", servers, func(t *testing.T, cli *fakeCLI) {
		s.reset()
		cli.later(t.Context(), "calc", callMessage("1", "stubborn", `{}`))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := cli.close(ctx); err == nil || time.Since(start) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		close(s.release)
		synctest.Wait()
	})
	var starting chan struct{}
	slow := calc()["calc"]
	slow.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			<-starting
			return next(ctx, method, req)
		}
	})
	bubble(t, "item 283: close while a server starts", map[string]*mcp.Server{"slow": slow}, func(t *testing.T, cli *fakeCLI) {
		starting = make(chan struct{})
		reply := cli.later(t.Context(), "slow", initializeMessage)
		if err := cli.close(t.Context()); err == nil || !strings.Contains(err.Error(), `"slow"`) {
			t.Errorf("got %v", err)
		}
		wantReplyError(t, <-reply, "0", -32000, `"slow"`)
		close(starting)
		synctest.Wait()
	})
	bubble(t, "item 307: close before the first message", servers, func(*testing.T, *fakeCLI) {})
	bubble(t, "keepalive ends with the session", map[string]*mcp.Server{
		"alive": mcp.NewServer(&mcp.Implementation{Name: "alive"}, &mcp.ServerOptions{KeepAlive: time.Hour}),
	}, func(t *testing.T, cli *fakeCLI) {
		start := time.Now()
		cli.ask("alive", initializeMessage)
		cli.ask("alive", initializeMessage)
		if err := cli.close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestBridgeServerMessages(t *testing.T) {
	bubble(t, "item 417: a change of the tools is announced", calc(), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", initializeMessage)
		tool("more", quick)(cli.servers["calc"].server)
		time.Sleep(time.Second) // the MCP SDK gathers changes
		said := cli.said()
		if len(said) != 1 {
			t.Fatalf("got %q", said)
		}
		wantReply(t, strings.TrimPrefix(said[0], "calc "), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`)
	})
	bubble(t, "item 300: progress does not disturb the call", calc(tool("work", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "a < b"})
		return done(), err
	})), func(t *testing.T, cli *fakeCLI) {
		reply := cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":7}}}`)
		wantReply(t, reply, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)
		want := `calc {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"message":"a < b","progress":1}}`
		if said := cli.said(); len(said) != 1 || said[0] != want {
			t.Errorf("got %q", said)
		}
	})
	ask := tool("ask", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who is it?"})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(answer.Content["name"])}}}, nil
	})
	patient := strings.Replace(initializeMessage, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1)
	bubble(t, "item 417: a server asks the CLI", calc(ask), func(t *testing.T, cli *fakeCLI) {
		// Two sessions ask at once; each gets its own answer.
		cli.ask("calc", patient)
		first := cli.later(t.Context(), "calc", callMessage("1", "ask", `{}`))
		cli.ask("calc", patient)
		second := cli.later(t.Context(), "calc", callMessage("1", "ask", `{}`))
		said := cli.said()
		if len(said) != 2 {
			t.Fatalf("got %q", said)
		}
		for i, name := range []string{"Ann", "Bob"} {
			var request struct{ ID, Method, JSONRPC string }
			if err := json.Unmarshal([]byte(strings.TrimPrefix(said[i], "calc ")), &request); err != nil || request.Method != "elicitation/create" {
				t.Fatal(said[i], err)
			}
			answer := `{"jsonrpc":"2.0","id":"` + request.ID + `","result":{"action":"accept","content":{"name":"` + name + `"}}}`
			wantReply(t, cli.ask("calc", answer), acknowledgement)
			wantReply(t, cli.ask("calc", answer), acknowledgement) // nobody waits for it any more
		}
		wantReply(t, <-first, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Ann"}]}}`)
		wantReply(t, <-second, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Bob"}]}}`)
	})
	bubble(t, "item 305: the CLI refuses", calc(ask), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", patient)
		reply := cli.later(t.Context(), "calc", callMessage("1", "ask", `{}`))
		for _, stray := range []string{`1`, `"x"`, `"1-x"`, `"7-1"`} {
			cli.ask("calc", `{"jsonrpc":"2.0","id":`+stray+`,"result":{}}`)
		}
		cli.ask("calc", `{"jsonrpc":"2.0","id":"1-1","error":{"code":-32601,"message":"nobody here"}}`)
		if got := <-reply; !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "nobody here") {
			t.Error(got)
		}
	})
	bubble(t, "a server withdraws what it asked", calc(ask), func(t *testing.T, cli *fakeCLI) {
		cli.ask("calc", patient)
		reply := cli.later(t.Context(), "calc", callMessage("1", "ask", `{}`))
		cli.ask("calc", cancelFirst)
		<-reply
		said := cli.said()
		if len(said) != 2 {
			t.Fatalf("got %q", said)
		}
		wantReply(t, strings.TrimPrefix(said[1], "calc "), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1-1"}}`)
	})

	t.Run("a message that cannot be sent does not end the session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBridge(calc(ask), func(context.Context, string, json.RawMessage) error { return errors.New("no pipe") })
			for _, message := range []string{patient, callMessage("1", "ask", `{}`), `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
				reply, err := b.handle(t.Context(), "calc", json.RawMessage(message))
				if err != nil || !strings.Contains(string(reply), `"result"`) {
					t.Errorf("got %s, %v", reply, err)
				}
			}
			if err := b.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("close ends what is being sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBridge(calc(ask), func(ctx context.Context, _ string, _ json.RawMessage) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if _, err := b.handle(t.Context(), "calc", json.RawMessage(patient)); err != nil {
				t.Fatal(err)
			}
			go b.handle(t.Context(), "calc", json.RawMessage(callMessage("1", "ask", `{}`)))
			synctest.Wait()
			start := time.Now()
			if err := b.close(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("got %v after %v", err, time.Since(start))
			}
		})
	})
}
