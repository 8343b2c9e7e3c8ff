package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"unicode/utf16"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxResultSize lets results of tool reach the model whole up to this many
// characters, and returns tool. Without it the CLI writes a result over 50,000
// characters into a file and shows the model its beginning.
func MaxResultSize(tool *mcp.Tool, chars int) *mcp.Tool {
	return setMeta(tool, "anthropic/maxResultSizeChars", chars)
}

// AlwaysLoad shows tool to the model from the start, where the CLI would
// leave it to be found by tool search, and returns tool.
func AlwaysLoad(tool *mcp.Tool) *mcp.Tool {
	return setMeta(tool, "anthropic/alwaysLoad", true)
}

// EndTurn asks the CLI to end the turn after a call of tool, and returns tool.
func EndTurn(tool *mcp.Tool) *mcp.Tool {
	return setMeta(tool, "claude/endTurn", true)
}

// setMeta leaves the map that tool came with alone: tools may share one.
func setMeta(tool *mcp.Tool, key string, value any) *mcp.Tool {
	meta := maps.Clone(tool.Meta)
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[key] = value
	tool.Meta = meta
	return tool
}

// ToolName returns the name by which the model, permission rules and hooks
// know a tool of an MCP server. The server's name is its key in the options,
// whatever it calls itself.
func ToolName(server, tool string) string {
	return "mcp__" + nameForModel(server) + "__" + nameForModel(tool)
}

// nameForModel replaces as the CLI does: one underscore for each UTF-16 unit
// that is no ASCII letter or digit, underscore or hyphen.
func nameForModel(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			b.WriteRune(r)
		default:
			b.WriteString("__"[:utf16.RuneLen(r)])
		}
	}
	return b.String()
}

// guarded holds the servers that have the middleware safely. It is global
// because middleware cannot be taken off a server again, and a server may
// serve any number of sessions, one after the other or at once.
var guarded struct {
	sync.Mutex
	servers map[weak.Pointer[mcp.Server]]bool
}

// guard makes a server answer whatever its handlers do, once per server.
func guard(server *mcp.Server) {
	guarded.Lock()
	defer guarded.Unlock()
	key := weak.Make(server)
	if guarded.servers[key] {
		return
	}
	if guarded.servers == nil {
		guarded.servers = make(map[weak.Pointer[mcp.Server]]bool)
	}
	guarded.servers[key] = true
	runtime.AddCleanup(server, func(key weak.Pointer[mcp.Server]) {
		guarded.Lock()
		defer guarded.Unlock()
		delete(guarded.servers, key)
	}, key)
	server.AddReceivingMiddleware(safely)
}

// ConnectServer connects a server in this process to transport, as its Connect
// does, in a session that survives what its handlers do: a panic is an error of
// the call, a result that is no JSON too, and the model reads why a call failed.
// Sessions for the CLI are such sessions. Others of the server are left as they
// are. The caller closes the session.
func ConnectServer(ctx context.Context, server *mcp.Server, transport mcp.Transport) (*mcp.ServerSession, error) {
	guard(server)
	return server.Connect(ctx, guardedTransport{transport}, nil)
}

// guardedTransport makes sessions that safely takes for ours.
type guardedTransport struct{ mcp.Transport }

// Connect connects.
func (t guardedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return guardedConn{c}, nil
}

type guardedConn struct{ mcp.Connection }

func (c guardedConn) SessionID() string { return sessionPrefix + c.Connection.SessionID() }

// safely makes sessions of ours survive what the MCP SDK (1.8.0) does not: a
// panic of a handler, which would end the host, and a result that is missing
// or no JSON, which would leave the call without an answer. It also has the
// model read why a tool failed: errors of a call are results that say so,
// except those that the handler made for the CLI, with a code.
func safely(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		if !strings.HasPrefix(req.GetSession().ID(), sessionPrefix) {
			return next(ctx, method, req)
		}
		defer func() {
			if v := recover(); v != nil {
				result, err = nil, fmt.Errorf("panic: %v", v)
			}
			if err != nil && method == methodCallTool && forModel(err) {
				failure := new(mcp.CallToolResult)
				failure.SetError(err)
				result, err = failure, nil
			}
		}()
		result, err = next(ctx, method, req)
		if err != nil || result == nil {
			return nil, err
		}
		if r, ok := result.(*mcp.CallToolResult); ok && r == nil {
			return nil, errors.New("the tool returned no result")
		}
		if _, err := json.Marshal(result); err != nil {
			return nil, fmt.Errorf("encoding the result: %w", err)
		}
		return result, nil
	}
}

// forModel reports whether the model should read an error of a tool. An
// unknown tool is a wrong parameter to the MCP SDK.
func forModel(err error) bool {
	coded, ok := err.(*jsonrpc.Error) // not wrapped: the code may be of another call
	return !ok || coded.Code == jsonrpc.CodeInvalidParams
}
