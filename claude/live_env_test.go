package claude_test

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
)

// What a CLI is given after its start is there for its first prompt: variables
// for the commands that it starts, and servers of this process.
func TestLiveGivenAfterTheStart(t *testing.T) {
	t.Parallel()
	opts, model := live(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "echo later is $LATER", description: "print"}}]
      - tools: [{name: mcp__late__shout, input: {text: hello}}]
      - {text: Done.}
`)
	opts.PermissionMode, opts.AllowBypass = claude.ModeBypass, true
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ApplyFlagSettings(t.Context(), map[string]any{"env": map[string]string{"LATER": "o'clock"}}); err != nil {
		t.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "late"}, nil)
	type shout struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "shout"}, func(_ context.Context, _ *mcp.CallToolRequest, in shout) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.ToUpper(in.Text)}}}, nil, nil
	})
	change, err := s.SetMCPServers(t.Context(), map[string]claude.MCPServer{"late": &claude.InProcess{Server: server}})
	if err != nil || len(change.Errors) > 0 {
		t.Fatalf("setting servers: %+v, %v", change, err)
	}
	if _, err := collect(t, s.Prompt(bounded(t), "go")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"later is o'clock", "HELLO"} {
		if !requested(model, want) {
			t.Errorf("the model was not told %q", want)
		}
	}
}
