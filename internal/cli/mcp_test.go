package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Any MCP client can start agents by 'nestor mcp'.
func TestMCPOutsideOfAnAgent(t *testing.T) {
	p := newPlaces(t, false)
	writeNew(t, filepath.Join(p.Dir, ".nestor", "config.yaml"), "provider: scripted\n")
	cmd := exec.Command("nestor", "mcp")
	cmd.Dir, cmd.Env, cmd.Stderr = p.Dir, append(p.Env, quickExit), os.Stderr
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var names []string
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"ask_person", "inbox", "progress", "send", "spawn", "wait"}) {
		t.Errorf("it has the tools %v", names)
	}
	call := func(name string, args map[string]any) (string, bool) {
		t.Helper()
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return r.Content[0].(*mcp.TextContent).Text, r.IsError
	}
	text, failed := call("spawn", map[string]any{"task": "hello"})
	if failed || !strings.Contains(text, `"output":"you said: hello"`) || !strings.Contains(text, `"status":"success"`) {
		t.Errorf("a spawn says %s", text)
	}
	text, failed = call("spawn", map[string]any{"task": "later", "background": true, "limits": map[string]any{"timeout": "1m"}})
	var started struct{ Run string }
	if err := json.Unmarshal([]byte(text), &started); err != nil || failed {
		t.Fatalf("in the background it says %s, %v", text, err)
	}
	if text, failed := call("wait", map[string]any{"runs": []string{started.Run}}); failed || !strings.Contains(text, "you said: later") {
		t.Errorf("to wait says %s", text)
	}
	for name, args := range map[string]map[string]any{
		"inbox": {}, "ask_person": {"question": "who?"}, "progress": {"activity": "x"}, "wait": {}, "spawn": {"task": " "},
	} {
		if text, failed := call(name, args); !failed {
			t.Errorf("%s says %s", name, text)
		}
	}
}
