package claude

import (
	"context"
	"encoding/json"
	"time"
)

// MCPStatus is the state of all MCP servers of a session.
type MCPStatus struct {
	Reply
	Servers []MCPServerStatus `json:"mcpServers"`
}

// MCPServerStatus is the state of one MCP server.
type MCPServerStatus struct {
	Name         string          `json:"name"`
	Status       string          `json:"status"`       // "connected", "failed", "needs-auth", "pending", "disabled"
	ServerInfo   MCPServerInfo   `json:"serverInfo"`   // zero unless connected
	Error        string          `json:"error"`        // why it failed
	Config       json.RawMessage `json:"config"`       // nil if not told
	Transport    string          `json:"transport"`    // such as "stdio" or "sdk"; empty from older CLIs
	Scope        string          `json:"scope"`        // where it is configured, such as "project"
	Source       string          `json:"source"`       // who configured it, such as "sdk"
	Capabilities json.RawMessage `json:"capabilities"` // nil if not told
	Tools        []MCPToolStatus `json:"tools"`        // empty unless connected
}

// MCPServerInfo is what a server calls itself.
type MCPServerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// MCPToolStatus is a tool of an MCP server.
type MCPToolStatus struct {
	Name        string             `json:"name"` // as the server calls it
	Description string             `json:"description"`
	Annotations MCPToolAnnotations `json:"annotations"`
	Meta        json.RawMessage    `json:"_meta"`
}

// MCPToolAnnotations are what a server says of its tool; nil where it says
// nothing.
type MCPToolAnnotations struct {
	ReadOnly    *bool `json:"readOnly"`
	Destructive *bool `json:"destructive"`
	OpenWorld   *bool `json:"openWorld"`
}

// MCPStatus asks for the state of the MCP servers.
func (s *Session) MCPStatus(ctx context.Context) (*MCPStatus, error) {
	return ask[MCPStatus](ctx, s, "mcp_status", nil)
}

type serverRequest struct {
	Server string `json:"serverName"`
}

// ReconnectMCP connects to a server again and waits until it is connected. A
// server that does not exist or does not connect is a [*ControlError].
func (s *Session) ReconnectMCP(ctx context.Context, server string) error {
	return s.call(ctx, "mcp_reconnect", serverRequest{server}, nil)
}

// ToggleMCP turns a server on or off.
func (s *Session) ToggleMCP(ctx context.Context, server string, enabled bool) error {
	return s.call(ctx, "mcp_toggle", struct {
		serverRequest
		Enabled bool `json:"enabled"`
	}{serverRequest{server}, enabled}, nil)
}

// SetMCPPermissionMode changes how the tools of one server are permitted:
// "default", "auto", or empty for the mode of the session. The warning, if not
// empty, says why the change has no effect yet, as for a server that is not
// connected.
func (s *Session) SetMCPPermissionMode(ctx context.Context, server, mode string) (warning string, err error) {
	type reply struct {
		Reply
		Warning string `json:"warning"`
	}
	request := struct {
		serverRequest
		Mode *string `json:"mode"` // null clears
	}{serverRequest: serverRequest{server}}
	if mode != "" {
		request.Mode = &mode
	}
	r, err := ask[reply](ctx, s, "set_mcp_permission_mode_override", request)
	if err != nil {
		return "", err
	}
	return r.Warning, nil
}

// MCPResource is a resource of an MCP server. It is foreign: show it in a
// sandbox.
type MCPResource struct {
	Reply
	Contents []MCPResourceContents `json:"contents"`
}

// MCPResourceContents is one part of a resource: text or data.
type MCPResourceContents struct {
	URI      string          `json:"uri"`
	MIMEType string          `json:"mimeType"`
	Text     string          `json:"text"`
	Blob     string          `json:"blob"` // base64; empty for text
	Meta     json.RawMessage `json:"_meta"`
}

// ReadMCPResource reads a resource that a server means to be shown, which has
// a ui:// address. An in-process server is refused: the host can read it
// directly.
func (s *Session) ReadMCPResource(ctx context.Context, server, uri string) (*MCPResource, error) {
	return ask[MCPResource](ctx, s, "mcp_read_resource", struct {
		serverRequest
		URI string `json:"uri"`
	}{serverRequest{server}, uri})
}

// MCPCall is a call of an MCP tool without the model.
type MCPCall struct {
	Tool              string         // with its server: "mcp__server__tool"
	Arguments         map[string]any // nil means none
	Timeout           time.Duration  // from 1s to 10m; zero means the server's
	Expires           time.Time      // no longer wanted afterwards; zero means always
	ResultNotForModel bool           // the result as the server sent it, neither cut nor converted
	CheckPermissions  bool           // ask rules, hooks and the host first, as for a call of the model
}

// MCPCallResult is what an MCP tool answered.
type MCPCallResult struct {
	Reply
	Content           json.RawMessage `json:"content"`           // as it would go to the model, mostly a list of blocks
	StructuredContent json.RawMessage `json:"structuredContent"` // nil if there is none
	Meta              json.RawMessage `json:"_meta"`
	Staging           json.RawMessage `json:"staging"` // how a call with Timeout or Expires went; it may have failed
}

// CallMCPTool calls a tool of a server that the CLI is connected to, and
// connects to it first if need be. Nothing asks for permission unless the call
// says so. A [*ControlError] means that the tool did not run or that it failed;
// an in-process server is refused, as the host can call it directly.
func (s *Session) CallMCPTool(ctx context.Context, call MCPCall) (*MCPCallResult, error) {
	request := struct {
		Tool              string         `json:"tool"`
		Arguments         map[string]any `json:"arguments,omitempty"`
		TimeoutMS         int64          `json:"timeout_ms,omitempty"`
		ExpiresAt         string         `json:"expires_at,omitempty"`
		ResultNotForModel bool           `json:"result_not_for_model,omitempty"`
		CheckPermissions  bool           `json:"check_permissions,omitempty"`
	}{
		Tool: call.Tool, Arguments: call.Arguments, TimeoutMS: call.Timeout.Milliseconds(),
		ResultNotForModel: call.ResultNotForModel, CheckPermissions: call.CheckPermissions,
	}
	if !call.Expires.IsZero() {
		request.ExpiresAt = call.Expires.Format(time.RFC3339Nano)
	}
	return ask[MCPCallResult](ctx, s, "mcp_call", request)
}
