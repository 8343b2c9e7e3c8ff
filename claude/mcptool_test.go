package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestToolName(t *testing.T) {
	for _, test := range []struct{ server, tool, want string }{
		{"calc", "add", "mcp__calc__add"},
		{"my-server_2", "Get-It", "mcp__my-server_2__Get-It"},
		{"a.b c", "x/y:z", "mcp__a_b_c__x_y_z"},
		{"é", "😀", "mcp_____" + "__"}, // a character outside the BMP is two units
		{"", "", "mcp____"},
	} {
		if got := ToolName(test.server, test.tool); got != test.want {
			t.Errorf("ToolName(%q, %q) = %q, want %q", test.server, test.tool, got, test.want)
		}
	}
}

func TestToolMeta(t *testing.T) {
	shared := mcp.Meta{"own": "kept"}
	tool := EndTurn(AlwaysLoad(MaxResultSize(&mcp.Tool{Name: "t", Meta: shared}, 200_000)))
	got, err := json.Marshal(tool.Meta)
	if err != nil {
		t.Fatal(err)
	}
	wantReply(t, string(got), `{"own":"kept","anthropic/maxResultSizeChars":200000,"anthropic/alwaysLoad":true,"claude/endTurn":true}`)
	if len(shared) != 1 {
		t.Errorf("the map of another tool was changed: %v", shared)
	}
}

type sumInput struct {
	Name  string `json:"name" jsonschema:"who asks"`
	Terms []int  `json:"terms"`
}

func TestBridgeToolsList(t *testing.T) {
	listTools := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	empty := map[string]*mcp.Server{"empty": mcp.NewServer(&mcp.Implementation{Name: "empty"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})}
	bubble(t, "item 265: a server without tools", empty, func(t *testing.T, cli *fakeCLI) {
		if missing := lacks(t, json.RawMessage(cli.ask("empty", listTools)), json.RawMessage(`{"id":1,"result":{"tools":[]}}`)); missing != "" {
			t.Error(missing)
		}
	})
	s := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	no := false
	handler := func(context.Context, *mcp.CallToolRequest, sumInput) (*mcp.CallToolResult, any, error) {
		return done(), nil, nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "a_plain"}, handler)
	mcp.AddTool(s, MaxResultSize(&mcp.Tool{
		Name: "b_full", Title: "Sum", Description: "Adds <numbers>.",
		Annotations: &mcp.ToolAnnotations{Title: "T", ReadOnlyHint: true, DestructiveHint: &no},
	}, 99), handler)
	bubble(t, "items 266, 284, 285, 286, 308: tools as the CLI reads them", map[string]*mcp.Server{"s": s}, func(t *testing.T, cli *fakeCLI) {
		var list struct{ Tools json.RawMessage }
		if err := json.Unmarshal([]byte(resultOf(t, cli.ask("s", listTools))), &list); err != nil {
			t.Fatal(err)
		}
		schema := `{"type":"object","additionalProperties":false,"required":["name","terms"],"properties":{"name":{"type":"string","description":"who asks"},"terms":{"type":["null","array"],"items":{"type":"integer"}}}}`
		wantReply(t, string(list.Tools), `[{"name":"a_plain","inputSchema":`+schema+`},
			{"name":"b_full","title":"Sum","description":"Adds <numbers>.","inputSchema":`+schema+`,
			"annotations":{"title":"T","readOnlyHint":true,"destructiveHint":false,"idempotentHint":false},
			"_meta":{"anthropic/maxResultSizeChars":99}}]`)
	})
}

func TestBridgeToolResults(t *testing.T) {
	full := &mcp.CallToolResult{
		Meta: mcp.Meta{"k": "v"},
		Content: []mcp.Content{
			&mcp.TextContent{Text: "a <b> & c", Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}}},
			&mcp.ImageContent{Data: []byte{1, 2, 3}, MIMEType: "image/png", Meta: mcp.Meta{"i": 1}},
			&mcp.AudioContent{Data: []byte{4, 5}, MIMEType: "audio/wav"},
			&mcp.ResourceLink{URI: "file:///a", Name: "a", Description: "d"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b", Text: "t"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///c", Blob: []byte{6}}},
		},
		StructuredContent: map[string]any{"n": 1},
	}
	servers := calc(tool("full", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return full, nil }))
	bubble(t, "items 288, 289, 299, 309: every kind of content, as it is", servers, func(t *testing.T, cli *fakeCLI) {
		wantReply(t, cli.ask("calc", callMessage("1", "full", `{}`)), `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"k":"v"},"content":[
			{"type":"text","text":"a <b> & c","annotations":{"audience":["user"]}},
			{"type":"image","data":"AQID","mimeType":"image/png","_meta":{"i":1}},
			{"type":"audio","data":"BAU=","mimeType":"audio/wav"},
			{"type":"resource_link","uri":"file:///a","name":"a","description":"d"},
			{"type":"resource","resource":{"uri":"file:///b","text":"t"}},
			{"type":"resource","resource":{"uri":"file:///c","blob":"Bg=="}}],
			"structuredContent":{"n":1}}}`)
	})
	large := strings.Repeat("x", 1<<20)
	servers = calc(tool("large", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: large}}}, nil
	}))
	bubble(t, "item 309: a large result is whole", servers, func(t *testing.T, cli *fakeCLI) {
		if reply := cli.ask("calc", callMessage("1", "large", `{}`)); !strings.Contains(reply, large) {
			t.Errorf("got %d bytes", len(reply))
		}
	})
	typed := mcp.NewServer(&mcp.Implementation{Name: "typed"}, nil)
	mcp.AddTool(typed, &mcp.Tool{
		Name:        "greet",
		InputSchema: json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string","minLength":2}}}`),
	}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Name string `json:"name"`
	}) (*mcp.CallToolResult, any, error) {
		if len(in.Name) < 2 {
			t.Errorf("the handler got %+v", in)
		}
		return nil, map[string]string{"hello": in.Name}, nil
	})
	bubble(t, "item 293: arguments are checked before the handler runs", map[string]*mcp.Server{"typed": typed}, func(t *testing.T, cli *fakeCLI) {
		for arguments, text := range map[string]string{`{}`: "name", `{"name":5}`: "string", `{"name":"x"}`: "minLength", `null`: "name"} {
			wantToolError(t, cli.ask("typed", callMessage("1", "greet", arguments)), text)
		}
		wantReply(t, cli.ask("typed", callMessage("1", "greet", `{"name":"Jo"}`)), `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"hello\":\"Jo\"}"}],"structuredContent":{"hello":"Jo"}}}`)
	})
}

type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { panic("no JSON of me") }

func TestBridgeToolFailures(t *testing.T) {
	say := func(result *mcp.CallToolResult, err error) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return result, err }
	}
	explode := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("boom") }
	crash := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var none *mcp.Tool
		return nil, errors.New(none.Name)
	}
	coded := &jsonrpc.Error{Code: -32042, Message: "go there first"}
	servers := calc(
		tool("unwell", say(&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "cannot"}}}, nil)),
		tool("fails", say(nil, errors.New("disk full"))),
		tool("wraps", say(nil, fmt.Errorf("asking: %w", coded))),
		tool("coded", say(nil, coded)),
		tool("panics", explode),
		tool("crashes", crash),
		tool("nothing", say(nil, nil)),
		tool("nan", say(&mcp.CallToolResult{StructuredContent: math.NaN()}, nil)),
		tool("bad", say(&mcp.CallToolResult{StructuredContent: badJSON{}}, nil)),
		tool("hole", say(&mcp.CallToolResult{Content: []mcp.Content{nil}}, nil)),
	)
	for name, text := range map[string]string{
		"item 290: unwell":  "cannot",
		"item 291: unknown": `"unknown"`,
		"item 292: fails":   "disk full",
		"item 292: wraps":   "asking: go there first",
		"item 292: panics":  "panic: boom",
		"item 292: crashes": "nil pointer",
		"item 292: nothing": "no result",
		"item 292: nan":     "NaN",
		"item 292: bad":     "no JSON of me",
	} {
		bubble(t, name, servers, func(t *testing.T, cli *fakeCLI) {
			_, tool, _ := strings.Cut(name, ": ")
			wantToolError(t, cli.ask("calc", callMessage("1", tool, `{}`)), text)
			wantReply(t, cli.ask("calc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	}
	bubble(t, "an error with a code is for the CLI", servers, func(t *testing.T, cli *fakeCLI) {
		wantReplyError(t, cli.ask("calc", callMessage("1", "coded", `{}`)), "1", -32042, "go there first")
	})
	bubble(t, "a hole in the content is answered", servers, func(t *testing.T, cli *fakeCLI) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if reply, err := cli.handle(ctx, "calc", json.RawMessage(callMessage("1", "hole", `{}`))); err != nil || ctx.Err() != nil {
			t.Errorf("got %s, %v", reply, err)
		}
	})
	prompts := calc()["calc"]
	prompts.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { panic("boom") })
	bubble(t, "a panic of what is no tool", map[string]*mcp.Server{"s": prompts}, func(t *testing.T, cli *fakeCLI) {
		wantReplyError(t, cli.ask("s", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`), "1", -32603, "boom")
	})
}

// wantToolError checks that a reply is a result that the model reads as a
// failure, with this text.
func wantToolError(t *testing.T, reply, text string) {
	t.Helper()
	var r struct {
		Result struct {
			IsError bool
			Content []struct{ Type, Text string }
		}
	}
	if err := json.Unmarshal([]byte(reply), &r); err != nil || !r.Result.IsError || len(r.Result.Content) != 1 {
		t.Errorf("got %s, want an error of the tool", reply)
		return
	}
	if c := r.Result.Content[0]; c.Type != "text" || !strings.Contains(c.Text, text) {
		t.Errorf("got %s, want text %q", reply, text)
	}
}

func TestGuard(t *testing.T) {
	t.Run("a server is guarded once for all its sessions, and forgotten when it is garbage", func(t *testing.T) {
		var layers int
		server := calc(tool("look", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			layers = strings.Count(string(debug.Stack()), "claude.safely.func1(")
			return done(), nil
		}))["calc"]
		for range 3 {
			synctest.Test(t, func(t *testing.T) {
				b := newBridge(map[string]*mcp.Server{"calc": server}, nil)
				if _, err := b.handle(t.Context(), "calc", json.RawMessage(callMessage("1", "look", `{}`))); err != nil {
					t.Error(err)
				}
				if err := b.close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		if layers != 1 {
			t.Errorf("%d guards", layers)
		}
		key := weak.Make(server)
		if !isGuarded(key) {
			t.Error("a server that lives is forgotten")
		}
		runtime.KeepAlive(server)
		for range 100 {
			runtime.GC()
			if !isGuarded(key) {
				return
			}
		}
		t.Error("a server that is garbage is still known")
	})
	t.Run("other sessions of a server are left alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := calc(tool("fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New("disk full")
			}))["calc"]
			guard(server)
			guard(server)
			here, there := mcp.NewInMemoryTransports()
			session, err := server.Connect(t.Context(), there, nil)
			if err != nil {
				t.Fatal(err)
			}
			client, err := mcp.NewClient(&mcp.Implementation{Name: "other"}, nil).Connect(t.Context(), here, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "fails"}); err == nil {
				t.Error("an error of the protocol became a result")
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if err := session.Wait(); err != nil {
				t.Error(err)
			}
		})
	})
}

func isGuarded(key weak.Pointer[mcp.Server]) bool {
	guarded.Lock()
	defer guarded.Unlock()
	return guarded.servers[key]
}
