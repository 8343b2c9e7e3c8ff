package claude

import (
	"testing"
	"time"
)

func TestServersOnTheWire(t *testing.T) {
	wire, err := encodeServers(map[string]MCPServer{
		"stdio": StdioServer{Command: "c", Args: []string{"a"}, Env: map[string]string{"K": "V"}, Timeout: 2 * time.Second, AlwaysLoad: true},
		"sse":   SSEServer{URL: "u", Headers: map[string]string{"H": "V"}, Tools: []ToolPolicy{{Name: "t", Policy: AlwaysDeny, OrgMax: OrgAsk}}},
		"http":  HTTPServer{URL: "u", Timeout: time.Minute},
		"here":  &InProcess{Server: testServer(), Timeout: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, wire, `{
		"stdio":{"type":"stdio","command":"c","args":["a"],"env":{"K":"V"},"timeout":2000,"alwaysLoad":true},
		"sse":{"type":"sse","url":"u","headers":{"H":"V"},"tools":[{"name":"t","permission_policy":"always_deny","org_max_permission":"ask"}]},
		"http":{"type":"http","url":"u","timeout":60000},
		"here":{"type":"sdk","name":"here","timeout":60000}}`)
	if _, err := encodeServers(map[string]MCPServer{"": HTTPServer{URL: "u"}}); err == nil {
		t.Error("a server without a name passed")
	}
}

func TestServersOfBothKinds(t *testing.T) {
	t.Run("items 53, 267: each goes its way", func(t *testing.T) {
		l := mustLaunch(t, Options{MCPServers: map[string]MCPServer{"here": &InProcess{Server: testServer()}, "there": HTTPServer{URL: "u"}}})
		if got := l.args[len(l.args)-1]; got != `--mcp-config={"mcpServers":{"there":{"type":"http","url":"u"}}}` {
			t.Errorf("got %s", got)
		}
		if len(l.servers) != 1 || l.servers["here"] == nil || len(l.init.SDKServers) != 1 {
			t.Errorf("got %v and %v", l.servers, l.init.SDKServers)
		}
	})
}
