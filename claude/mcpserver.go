package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCPServer is a server of tools: [StdioServer], [SSEServer], [HTTPServer] or
// [*InProcess]. Claude sees a tool as mcp__<server>__<tool>, where the server
// is named as in Options.MCPServers. A timeout is how long one tool call may
// take; zero leaves it to the CLI, and one below a second is refused, because
// the CLI ignores it.
type MCPServer interface {
	check() error
}

// StdioServer is a program that the CLI starts and speaks to.
type StdioServer struct {
	Command    string
	Args       []string
	Env        map[string]string
	Timeout    time.Duration
	AlwaysLoad bool // offers the tools from the start, not through tool search
}

// SSEServer is a server behind a URL that answers with server-sent events.
type SSEServer struct {
	URL        string
	Headers    map[string]string
	Tools      []ToolPolicy
	Timeout    time.Duration
	AlwaysLoad bool
}

// HTTPServer is a server behind a URL that speaks streamable HTTP.
type HTTPServer struct {
	URL        string
	Headers    map[string]string
	Tools      []ToolPolicy
	Timeout    time.Duration
	AlwaysLoad bool
}

// InProcess is a server inside this process.
type InProcess struct {
	Server  *mcp.Server
	Timeout time.Duration
	Tools   []ToolPolicy // only AlwaysAsk and AlwaysDeny have an effect
}

// ToolPolicy says how the calls of one tool of a server are decided.
type ToolPolicy struct {
	Name   string        `json:"name"` // as the server calls it
	Policy ToolApproval  `json:"permission_policy,omitempty"`
	OrgMax OrgPermission `json:"org_max_permission,omitempty"`
}

// ToolApproval is how the calls of a tool are decided.
type ToolApproval string

// The policies for a tool.
const (
	AlwaysAllow ToolApproval = "always_allow"
	AlwaysAsk   ToolApproval = "always_ask"
	AlwaysDeny  ToolApproval = "always_deny"
)

// OrgPermission is the most that an organization lets a tool do.
type OrgPermission string

// The limits of an organization.
const (
	OrgAllow   OrgPermission = "allow"
	OrgAsk     OrgPermission = "ask"
	OrgBlocked OrgPermission = "blocked"
)

// serverWire is a server as --mcp-config, mcp_set_servers and initialize
// have it.
type serverWire struct {
	Type       string            `json:"type,omitempty"`
	Name       string            `json:"name,omitempty"` // of an in-process server
	Command    string            `json:"command,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	URL        string            `json:"url,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Tools      []ToolPolicy      `json:"tools,omitempty"`
	Timeout    int64             `json:"timeout,omitempty"` // milliseconds
	AlwaysLoad bool              `json:"alwaysLoad,omitempty"`
}

// MarshalJSON writes the configuration as the CLI reads it.
func (s StdioServer) MarshalJSON() ([]byte, error) {
	return json.Marshal(serverWire{
		Type: "stdio", Command: s.Command, Args: s.Args, Env: s.Env,
		Timeout: s.Timeout.Milliseconds(), AlwaysLoad: s.AlwaysLoad,
	})
}

// MarshalJSON writes the configuration as the CLI reads it.
func (s SSEServer) MarshalJSON() ([]byte, error) {
	return json.Marshal(serverWire{
		Type: "sse", URL: s.URL, Headers: s.Headers, Tools: s.Tools,
		Timeout: s.Timeout.Milliseconds(), AlwaysLoad: s.AlwaysLoad,
	})
}

// MarshalJSON writes the configuration as the CLI reads it.
func (s HTTPServer) MarshalJSON() ([]byte, error) {
	return json.Marshal(serverWire{
		Type: "http", URL: s.URL, Headers: s.Headers, Tools: s.Tools,
		Timeout: s.Timeout.Milliseconds(), AlwaysLoad: s.AlwaysLoad,
	})
}

func (s StdioServer) check() error {
	if s.Command == "" {
		return errors.New("it needs a Command")
	}
	return checkServerTimeout(s.Timeout)
}

func (s SSEServer) check() error  { return checkServerURL(s.URL, s.Timeout) }
func (s HTTPServer) check() error { return checkServerURL(s.URL, s.Timeout) }

func (s *InProcess) check() error {
	if s == nil || s.Server == nil {
		return errors.New("it needs a Server")
	}
	return checkServerTimeout(s.Timeout)
}

// wire returns the server as mcp_set_servers takes it.
func (s *InProcess) wire(name string) serverWire {
	return serverWire{Type: "sdk", Name: name, Tools: s.Tools, Timeout: s.Timeout.Milliseconds()}
}

func checkServerURL(url string, timeout time.Duration) error {
	if url == "" {
		return errors.New("it needs a URL")
	}
	return checkServerTimeout(timeout)
}

func checkServerTimeout(d time.Duration) error {
	if d != 0 && d < time.Second {
		return fmt.Errorf("its Timeout is %s, and the CLI ignores less than a second", d)
	}
	return nil
}

// encodeServers returns the servers as mcp_set_servers takes them.
func encodeServers(servers map[string]MCPServer) (map[string]any, error) {
	wire := make(map[string]any, len(servers))
	for name, s := range servers {
		if err := checkServer(name, s); err != nil {
			return nil, err
		}
		if in, ok := s.(*InProcess); ok {
			wire[name] = in.wire(name)
			continue
		}
		wire[name] = s
	}
	return wire, nil
}

func checkServer(name string, s MCPServer) error {
	if name == "" {
		return errors.New("MCPServers: a server has an empty name")
	}
	if s == nil {
		return fmt.Errorf("MCPServers[%q] is nil", name)
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("MCPServers[%q]: %w", name, err)
	}
	return nil
}
