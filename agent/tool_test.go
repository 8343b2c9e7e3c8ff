package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/agent"
)

// Who speaks the protocol has the tools of this process by it, with what they say and
// what goes wrong.
func TestToolsAreServed(t *testing.T) {
	s := agent.MCPServer{Instructions: "Use them.", Tools: []agent.Tool{
		{Name: "say", ReadOnly: true, Schema: json.RawMessage(`{"type":"object"}`), Call: func(_ context.Context, input json.RawMessage) (string, error) { return string(input), nil }},
		{Name: "fail", Schema: json.RawMessage(`{"type":"object"}`), Call: func(context.Context, json.RawMessage) (string, error) { return "", errors.New("no") }},
	}}
	here, there := mcp.NewInMemoryTransports()
	if _, err := s.InProcess("own").Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if is := session.InitializeResult(); is.Instructions != "Use them." || is.ServerInfo.Name != "own" {
		t.Errorf("it is %+v", is)
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 2 || list.Tools[0].Name != "fail" || list.Tools[0].Annotations.ReadOnlyHint || !list.Tools[1].Annotations.ReadOnlyHint {
		t.Fatalf("the tools are %+v, %v", list, err)
	}
	for tool, want := range map[string]string{"say": `{"a":1}`, "fail": "no"} {
		answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]int{"a": 1}})
		if err != nil || answer.IsError != (tool == "fail") || answer.Content[0].(*mcp.TextContent).Text != want {
			t.Errorf("%s says %+v, %v", tool, answer, err)
		}
	}
	if (agent.MCPServer{URL: "http://there"}).InProcess("x") != nil {
		t.Error("a server elsewhere is here")
	}
}
