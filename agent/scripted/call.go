package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// splitTool returns the server and the tool that a name stands for.
func splitTool(name string) (server, tool string, ok bool) {
	rest, ok := strings.CutPrefix(name, "mcp__")
	if !ok {
		return "", "", false
	}
	server, tool, ok = strings.Cut(rest, "__")
	return server, tool, ok && server != "" && tool != ""
}

// call runs a tool of one of the agent's servers, and returns what it says and
// whether that is what went wrong.
func (a *player) call(ctx context.Context, name string, input json.RawMessage) (text string, failed bool) {
	answer, err := a.send(ctx, name, input)
	if err != nil {
		return err.Error(), true
	}
	var all []string
	for _, c := range answer.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n"), answer.IsError
}

func (a *player) send(ctx context.Context, name string, input json.RawMessage) (*mcp.CallToolResult, error) {
	server, tool, ok := splitTool(name)
	if !ok {
		return nil, fmt.Errorf("%s is no tool of an MCP server", name)
	}
	session, err := a.connect(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", name, err)
	}
	return session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: input})
}

// connect returns a connection to a server, which lasts as long as the agent.
func (a *player) connect(ctx context.Context, name string) (*mcp.ClientSession, error) {
	if s := a.servers[name]; s != nil {
		return s, nil
	}
	server := a.config.MCPServers[name].InProcess(name)
	if server == nil {
		return nil, errors.New("the agent has no such server in this process")
	}
	here, there := mcp.NewInMemoryTransports()
	lasting := context.WithoutCancel(ctx)
	if _, err := server.Connect(lasting, there, nil); err != nil {
		return nil, err
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: Type, Version: "1"}, nil).Connect(lasting, here, nil)
	if err != nil {
		return nil, err
	}
	if a.servers == nil {
		a.servers = map[string]*mcp.ClientSession{}
	}
	a.servers[name] = session
	return session, nil
}

// hangUp ends the connections.
func (a *player) hangUp() {
	for _, s := range a.servers {
		s.Close()
	}
	a.servers = nil
}
