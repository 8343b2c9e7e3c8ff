package claude_test

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
)

type terms struct {
	A int `json:"a" jsonschema:"the first number"`
	B int `json:"b" jsonschema:"the second number"`
}

func add(ctx context.Context, r *mcp.CallToolRequest, t terms) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(t.A + t.B)}}}, nil, nil
}

// A tool that is a function of this program. Claude calls it as
// mcp__calculator__add.
func ExampleInProcess() {
	server := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "adds two numbers"}, add)

	opts := demo("adds")
	opts.MCPServers = map[string]claude.MCPServer{"calculator": &claude.InProcess{Server: server}}
	opts.AutoApprove = []string{claude.ToolName("calculator", "add")}
	printAnswers(claude.Query(context.Background(), "What is 19 + 23?", opts))
	// Output: The tool says 42
}
