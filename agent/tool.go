package agent

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tool is something in this process that an agent may call.
type Tool struct {
	Name        string // within its server
	Description string
	Schema      json.RawMessage // of its input, which is an object
	ReadOnly    bool            // it may be called while others are
	// Call does it, and returns what the agent is told. So is its error. Whether the
	// input follows the schema is for it to check. It may be called from any goroutine.
	Call func(ctx context.Context, input json.RawMessage) (string, error)
}

// InProcess returns the server in this process for who speaks the protocol: Server, or
// one of that name that has Tools; nil if it is elsewhere.
func (s MCPServer) InProcess(name string) *mcp.Server {
	if s.Tools == nil {
		return s.Server
	}
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{Instructions: s.Instructions})
	for _, t := range s.Tools {
		server.AddTool(&mcp.Tool{
			Name: t.Name, Description: t.Description, InputSchema: t.Schema, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly},
		}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := t.Call(ctx, req.Params.Arguments)
			if err != nil {
				text = err.Error()
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: err != nil}, nil
		})
	}
	return server
}
