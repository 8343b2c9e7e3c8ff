package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	manifestBudget = 250 * time.Millisecond // what the official SDK grants
	bridgeGrace    = 5 * time.Second        // for handlers to end when the session does

	captureID = "sdk-manifest-capture:" // begins the ids of what the bridge asks by itself
)

// mcpHandshake is what the bridge asks a server for in place of the CLI, with
// the protocol version of CLI 2.1.325.
var mcpHandshake = json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"unknown"}}`)

// mcpAcknowledged answers what has no answer: the control request around a
// notification wants one.
var mcpAcknowledged = json.RawMessage(`{"jsonrpc":"2.0","result":{}}`)

var errBridgeClosed = errors.New("the MCP servers of this session are closed")

// bridge connects the MCP servers inside the host with the CLI. Its methods
// may be called at once.
//
// Each initialize of the CLI opens a session of the server; the one before
// ends when its calls have. A message before the first initialize finds a
// session that the bridge has opened itself.
type bridge struct {
	send      func(ctx context.Context, server string, message json.RawMessage) error
	capturing atomic.Bool // the CLI is not ready for messages of servers

	mu      sync.Mutex
	closed  bool
	servers map[string]*mcpHosted
	conns   []*mcpConn // all that may still run a handler
	opened  int        // how many conns there have been
}

// mcpHosted is a server and its current session.
type mcpHosted struct {
	server *mcp.Server
	conn   *mcpConn     // nil until there is a message; it may have ended
	told   *mcpManifest // what the CLI was told of it when it was started; nil if it asks itself
}

// newBridge starts nothing. send delivers a message of a server to the CLI; it
// may block until ctx ends, and may fail.
func newBridge(servers map[string]*mcp.Server, send func(ctx context.Context, server string, message json.RawMessage) error) *bridge {
	b := &bridge{send: send, servers: make(map[string]*mcpHosted)}
	b.set(servers)
	return b
}

// set replaces the servers. The sessions of those that vanished end, with
// their calls; a server that stays under its name is not disturbed.
func (b *bridge) set(servers map[string]*mcp.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for name, h := range b.servers {
		if servers[name] == h.server {
			continue
		}
		if h.conn != nil {
			h.conn.hangUp()
		}
		delete(b.servers, name)
	}
	for name, server := range servers {
		if server != nil && b.servers[name] == nil {
			b.servers[name] = &mcpHosted{server: server}
		}
	}
}

// swap replaces the servers by others that say of themselves what the CLI was told of
// those when it was started, so that it need not know, and tells whether they do.
func (b *bridge) swap(ctx context.Context, servers map[string]*mcp.Server) bool {
	if len(servers) == 0 || !b.alike(servers, nil) {
		return false
	}
	candidates := newBridge(servers, b.send)
	defer candidates.close(ctx)
	if !b.alike(servers, candidates.manifests(ctx)) {
		return false
	}
	b.mu.Lock()
	told := make(map[string]*mcpManifest)
	for name, h := range b.servers {
		told[name] = h.told
	}
	b.mu.Unlock()
	b.set(servers)
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, h := range b.servers {
		h.told = told[name]
	}
	return true
}

// alike tells whether servers have the names of those that there are, and their
// manifests, if there are any, are what the CLI was told.
func (b *bridge) alike(servers map[string]*mcp.Server, manifests map[string]mcpManifest) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(servers) != len(b.servers) {
		return false
	}
	for name := range servers {
		h := b.servers[name]
		if h == nil || h.told == nil || h.conn != nil && h.conn.toolsChanged() {
			return false
		}
		if m := manifests[name]; manifests != nil && (!bytes.Equal(m.Initialize, h.told.Initialize) || !bytes.Equal(m.Tools, h.told.Tools)) {
			return false
		}
	}
	return true
}

// handle serves one message of the CLI and returns the JSON-RPC reply. It
// fails only after close; what is wrong with the message is in the reply. If
// ctx ends, so does the handler's context, and the reply says so at once.
func (b *bridge) handle(ctx context.Context, server string, message json.RawMessage) (json.RawMessage, error) {
	f, malformed := parseMCPFrame(message)
	if _, err := b.find(server); err != nil {
		return f.reply(nil, err)
	}
	if malformed != nil {
		return f.reply(nil, malformed)
	}
	if f.isResponse() {
		b.respond(server, f)
		return mcpAcknowledged, nil
	}
	c, err := b.session(server, f.isCall() && f.method == methodInitialize)
	if err != nil {
		return f.reply(nil, err)
	}
	if f.isCall() {
		return f.reply(c.call(ctx, string(f.ID), f.method, f.Params))
	}
	switch {
	case f.method == methodCancelled:
		var params struct{ RequestID json.RawMessage }
		if json.Unmarshal(f.Params, &params) == nil {
			c.cancel(string(params.RequestID))
		}
	case f.method == methodInitialized && c.greeting != nil:
		// The bridge has said so itself.
	default:
		c.notify(f.method, f.Params)
	}
	return mcpAcknowledged, nil
}

// find returns a server by its name.
func (b *bridge) find(name string) (*mcpHosted, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.findLocked(name)
}

func (b *bridge) findLocked(name string) (*mcpHosted, error) {
	if b.closed {
		return nil, errBridgeClosed
	}
	h := b.servers[name]
	if h == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("MCP server %q not found", name)}
	}
	return h, nil
}

// session returns the current session of a server. If there is none, or if
// the CLI begins anew, it opens one.
func (b *bridge) session(name string, anew bool) (*mcpConn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, err := b.findLocked(name)
	if err != nil {
		return nil, err
	}
	if h.conn != nil && !anew {
		return h.conn, nil
	}

	b.opened++
	c := newMCPConn(name, strconv.Itoa(b.opened), b.forward)
	if !anew {
		c.greet()
	}
	guard(h.server)
	// The session outlives the message that opens it, and its context.
	c.session, err = h.server.Connect(context.Background(), c, nil)
	if err != nil {
		return nil, fmt.Errorf("opening a session of MCP server %q: %w", name, err)
	}
	b.conns = append(slices.DeleteFunc(b.conns, (*mcpConn).finished), c)
	if h.conn != nil {
		if h.conn.toolsChanged() {
			h.told = nil
		}
		h.conn.retire()
	}
	h.conn = c
	return c, nil
}

// forward sends a message of a server to the CLI.
func (b *bridge) forward(ctx context.Context, server string, message json.RawMessage) error {
	if b.capturing.Load() {
		return errors.New("the CLI is not ready")
	}
	return b.send(ctx, server, message)
}

// respond passes the CLI's answer on to the session that asked. If it is gone
// the answer is dropped.
func (b *bridge) respond(server string, f mcpFrame) {
	var id string
	if json.Unmarshal(f.ID, &id) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		if original, ok := c.inward(id); ok && c.name == server {
			c.deliver(&jsonrpc.Response{ID: original, Result: f.Result, Error: f.err()})
		}
	}
}

// manifests introduces itself to every server, for 250 ms in all, and returns
// by name what those said that were fast enough: what the CLI then need not
// ask. It is called before the CLI is ready for messages of servers, which it
// refuses meanwhile.
func (b *bridge) manifests(ctx context.Context) map[string]mcpManifest {
	b.mu.Lock()
	names := slices.Collect(maps.Keys(b.servers))
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, manifestBudget)
	defer cancel()
	b.capturing.Store(true)
	captures := make([]mcpManifest, len(names))
	conns := make([]*mcpConn, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		c, err := b.session(name, false)
		if err != nil {
			continue
		}
		conns[i] = c
		all.Go(func() { captures[i] = c.capture(ctx) })
	}
	all.Wait()
	// What changes from here on is sent to the CLI; what changed before is
	// known below.
	b.capturing.Store(false)

	found := make(map[string]mcpManifest)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range captures {
		if m.Initialize == nil {
			continue
		}
		if conns[i].toolsChanged() {
			m.Tools = nil
		}
		found[names[i]] = m
		if h := b.servers[names[i]]; h != nil && h.conn == conns[i] && m.Tools != nil {
			h.told = &m
		}
	}
	return found
}

// mcpManifest is what a server says of itself in a handshake.
type mcpManifest struct {
	Initialize json.RawMessage `json:"initializeResult"`
	Tools      json.RawMessage `json:"toolsListResult,omitempty"` // if all fit on a page
}

// capture returns what the server says until ctx ends; it is zero if the
// server did not introduce itself to the bridge.
func (c *mcpConn) capture(ctx context.Context) mcpManifest {
	if c.greeting == nil {
		return mcpManifest{}
	}
	select {
	case <-c.greeting.done:
	case <-ctx.Done():
		return mcpManifest{}
	}
	var hello struct {
		Capabilities struct{ Tools json.RawMessage }
	}
	if c.greeting.err != nil || json.Unmarshal(c.greeting.result, &hello) != nil {
		return mcpManifest{}
	}
	m := mcpManifest{Initialize: c.greeting.result}
	if hello.Capabilities.Tools == nil {
		return m
	}
	tools, err := c.call(ctx, captureID+methodListTools, methodListTools, nil)
	var page struct{ NextCursor string }
	if err == nil && json.Unmarshal(tools, &page) == nil && page.NextCursor == "" {
		m.Tools = tools
	}
	return m
}

// close ends all sessions and the calls in flight. It waits until every
// handler has returned, for five seconds or until ctx ends, and its error
// names the servers that still run one. It may be called again.
func (b *bridge) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	conns := b.conns
	b.mu.Unlock()
	for _, c := range conns {
		c.hangUp()
	}

	ctx, cancel := context.WithTimeout(ctx, bridgeGrace)
	defer cancel()
	var stuck []string
	for _, c := range conns {
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
		if !c.finished() {
			stuck = append(stuck, strconv.Quote(c.name))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	slices.Sort(stuck)
	return fmt.Errorf("closing MCP servers: tools still run in %s", strings.Join(slices.Compact(stuck), ", "))
}
