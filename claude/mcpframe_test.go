package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestBridgeRecorded says what CLI 2.1.325 said in recordings, and expects the
// replies that it was content with there.
func TestBridgeRecorded(t *testing.T) {
	paths, err := filepath.Glob("testdata/transcripts/mcp-*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run("items 213, 275: "+filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			asked, answered := recordedMCP(t, string(data))
			synctest.Test(t, func(t *testing.T) {
				b := newBridge(map[string]*mcp.Server{"calc": recordedServer(t, answered)}, nil)
				for i, message := range asked {
					reply, err := b.handle(t.Context(), "calc", message)
					if err != nil {
						t.Fatal(err)
					}
					if missing := lacks(t, reply, answered[i]); missing != "" {
						t.Errorf("%s\nis %s, but was %s: %s", message, reply, answered[i], missing)
					}
				}
				if err := b.close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// lacks returns the path of a value in want that is not the same in got, or
// nothing. What got has besides is the MCP SDK's own.
func lacks(t *testing.T, got, want json.RawMessage) string {
	var g, w any
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		t.Fatal(err)
	}
	return lacking(g, w)
}

func lacking(got, want any) string {
	w, ok := want.(map[string]any)
	if !ok {
		if reflect.DeepEqual(got, want) {
			return ""
		}
		return fmt.Sprintf("is %v", got)
	}
	g, _ := got.(map[string]any)
	for key := range w {
		if path := lacking(g[key], w[key]); path != "" {
			return key + "." + path
		}
	}
	return ""
}

// recordedMCP returns the messages of the CLI to its server and what the host
// answered to each.
func recordedMCP(t *testing.T, transcript string) (asked, answered []json.RawMessage) {
	for line := range strings.Lines(transcript) {
		var l struct {
			Request  struct{ Message json.RawMessage }
			Response struct {
				Response struct {
					Reply json.RawMessage `json:"mcp_response"`
				}
			}
		}
		switch {
		case strings.HasPrefix(line, "< ") && strings.Contains(line, `"subtype":"mcp_message"`):
		case strings.HasPrefix(line, "> ") && strings.Contains(line, `"mcp_response"`):
		default:
			continue
		}
		if err := json.Unmarshal([]byte(line[2:]), &l); err != nil {
			t.Fatal(err)
		}
		if l.Request.Message != nil {
			asked = append(asked, l.Request.Message)
		} else {
			answered = append(answered, l.Response.Response.Reply)
		}
	}
	if len(asked) == 0 || len(asked) != len(answered) {
		t.Fatalf("%d messages, %d replies", len(asked), len(answered))
	}
	return asked, answered
}

// recordedServer is a server like that of the recording: with its tool, which
// returns what it returned there.
func recordedServer(t *testing.T, answered []json.RawMessage) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1.0.0"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	var result *mcp.CallToolResult
	for _, reply := range answered {
		var r struct {
			Result struct {
				Tools   []*mcp.Tool
				Content json.RawMessage
			}
		}
		if err := json.Unmarshal(reply, &r); err != nil {
			t.Fatal(err)
		}
		if r.Result.Content != nil {
			if err := json.Unmarshal([]byte(resultOf(t, string(reply))), &result); err != nil {
				t.Fatal(err)
			}
		}
		for _, recorded := range r.Result.Tools {
			s.AddTool(recorded, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if id := req.Params.Meta["claudecode/toolUseId"]; id != "toolu_01" {
					t.Errorf("_meta came as %v", req.Params.Meta)
				}
				return result, nil
			})
		}
	}
	return s
}

func FuzzBridge(f *testing.F) {
	paths, err := filepath.Glob("testdata/transcripts/mcp-*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var l struct {
				Request struct{ Message json.RawMessage }
			}
			if json.Unmarshal([]byte(strings.TrimPrefix(line, "< ")), &l) == nil && l.Request.Message != nil {
				f.Add([]byte(l.Request.Message))
			}
		}
	}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"1-1","error":{"code":1}}`, `{"jsonrpc":"2.0","id":2.5,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `null`, `{`, `[]`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"x"}}`, `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":null}}`,
	} {
		f.Add([]byte(message))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		synctest.Test(t, func(t *testing.T) {
			b := newBridge(calc(), func(context.Context, string, json.RawMessage) error { return nil })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 { // before and after a handshake
				reply, err := b.handle(ctx, "calc", message)
				if err != nil || !json.Valid(reply) {
					t.Errorf("%q: %s, %v", message, reply, err)
				}
				if _, err := b.handle(t.Context(), "calc", json.RawMessage(initializeMessage)); err != nil {
					t.Error(err)
				}
			}
			if err := b.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}
