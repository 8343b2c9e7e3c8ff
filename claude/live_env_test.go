package claude_test

import (
	"context"
	"strings"
	"testing"
	"time"

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

// A server of this process takes the place of another that offers the same, also while
// the CLI knows of nothing; one on other terms does with its knowledge.
func TestLiveServerIsReplaced(t *testing.T) {
	t.Parallel()
	opts, model := live(t, `
rules:
  - turns:
      - tools: [{name: mcp__s__whose, input: {}}]
      - {text: Done.}
      - tools: [{name: mcp__s__whose, input: {}}]
      - {text: Done again.}
`)
	opts.PermissionMode, opts.AllowBypass = claude.ModeBypass, true
	of := func(whose string, timeout time.Duration) map[string]claude.MCPServer {
		server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
		mcp.AddTool(server, &mcp.Tool{Name: "whose"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "it is " + whose}}}, nil, nil
		})
		return map[string]claude.MCPServer{"s": &claude.InProcess{Server: server, Timeout: timeout}}
	}
	opts.MCPServers = of("the first", 0)
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	change, err := s.SetMCPServers(t.Context(), of("the second", 0))
	if err != nil || len(change.Added)+len(change.Removed)+len(change.Errors) > 0 {
		t.Fatalf("replacing the server: %+v, %v", change, err)
	}
	if _, err := collect(t, s.Prompt(bounded(t), "go")); err != nil {
		t.Fatal(err)
	}
	if change, err := s.SetMCPServers(t.Context(), of("the third", time.Minute)); err != nil || len(change.Errors) > 0 {
		t.Fatalf("setting servers: %+v, %v", change, err)
	}
	if _, err := collect(t, s.Prompt(bounded(t), "go on")); err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{"it is the first": false, "it is the second": true, "it is the third": true} {
		if requested(model, want) != there {
			t.Errorf("the model was told %q: %v, want %v", want, !there, there)
		}
	}
}
