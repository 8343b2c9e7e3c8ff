package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodListTools   = "tools/list"
	methodCallTool    = "tools/call"
	methodToolsChange = "notifications/tools/list_changed"
)

const (
	codeCancelled = -32800 // as in the Language Server Protocol
	codeEnded     = -32000 // "connection closed" of the MCP SDKs

	// codeRejected fails one write. The MCP SDK (1.8.0) takes any other error
	// of a write for the end of the connection.
	codeRejected = -32005
)

// sessionPrefix begins the ids that servers see of our sessions.
const sessionPrefix = "claude-code-"

// mcpConn is the pipe between the CLI and one session of a server. The MCP SDK
// holds one end, as [mcp.Transport] and [mcp.Connection]; the bridge holds the
// other. Its methods may be called at once.
//
// Ids of the CLI are kept as it wrote them, so "1" and 1 are two, and a number
// of any size comes back as it went.
type mcpConn struct {
	name    string // of the server
	label   string // tells apart what sessions of one server ask the CLI
	send    func(ctx context.Context, server string, message json.RawMessage) error
	session *mcp.ServerSession

	// greeting is the bridge's own initialize; nil if the CLI sent one.
	greeting *mcpCall

	wake  chan struct{} // one token when queue has grown; push sends, Read receives
	gone  chan struct{} // closed by hangUp: nothing goes in or out any more
	ended chan struct{} // closed by the MCP SDK, through Close: no handler is left

	mu      sync.Mutex
	queue   []jsonrpc.Message   // what Read has yet to return
	calls   map[string]*mcpCall // what the server has not answered, by id
	retired bool                // to hang up when calls is empty
	closed  bool                // gone is closed
	stopped bool                // ended is closed
	changed bool                // the server said that its tools have changed
}

// mcpCall is a request to the server. The mutex of its conn guards the answer
// until done is closed; then it is fixed.
type mcpCall struct {
	method   string
	done     chan struct{} // closed when there is an answer; it may come before the server's
	answered bool
	result   json.RawMessage
	err      error
}

func newMCPConn(name, label string, send func(context.Context, string, json.RawMessage) error) *mcpConn {
	return &mcpConn{
		name:  name,
		label: label,
		send:  send,
		wake:  make(chan struct{}, 1),
		gone:  make(chan struct{}),
		ended: make(chan struct{}),
		calls: make(map[string]*mcpCall),
	}
}

// call asks the server and waits for its answer. If ctx ends first the server
// is told, and the answer is that the request was cancelled.
func (c *mcpConn) call(ctx context.Context, id, method string, params json.RawMessage) (json.RawMessage, error) {
	w, err := c.ask(id, method, params)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		c.cancel(id)
		<-w.done
	}
	return w.result, w.err
}

// ask queues a request. Its id is taken until the server has answered, even
// if the caller gave up before.
func (c *mcpConn) ask(id, method string, params json.RawMessage) (*mcpCall, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.endedError()
	}
	if c.calls[id] != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("request id %s is already in flight", id)}
	}
	w := &mcpCall{method: method, done: make(chan struct{})}
	c.calls[id] = w
	c.push(&jsonrpc.Request{ID: textID(id), Method: method, Params: params})
	return w, nil
}

// greet does the handshake in place of the CLI, on a conn that is new. What is
// asked later queues behind it.
func (c *mcpConn) greet() {
	c.greeting, _ = c.ask(captureID+methodInitialize, methodInitialize, mcpHandshake)
	c.notify(methodInitialized, nil)
}

// notify queues a notification; a session that is gone drops it.
func (c *mcpConn) notify(method string, params json.RawMessage) {
	c.deliver(&jsonrpc.Request{Method: method, Params: params})
}

// cancel answers the request of this id, if it waits, and has the server
// cancel the handler.
func (c *mcpConn) cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.calls[id]
	if w == nil || w.answered {
		return
	}
	w.settle(nil, &jsonrpc.Error{Code: codeCancelled, Message: "request cancelled"})
	if w.method != methodInitialize { // which cannot be, says MCP
		c.push(&jsonrpc.Request{Method: methodCancelled, Params: cancelledParams(id)})
	}
}

// deliver queues a message for the server; a session that is gone drops it.
func (c *mcpConn) deliver(msg jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.push(msg)
	}
}

// push is called with c.mu held.
func (c *mcpConn) push(msg jsonrpc.Message) {
	c.queue = append(c.queue, msg)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// retire hangs up as soon as no call is in flight.
func (c *mcpConn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.hangUpIfIdle()
}

// hangUp ends the session: the MCP SDK cancels its handlers, and who waits for
// one gets an error. It does not wait.
func (c *mcpConn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUpLocked()
}

func (c *mcpConn) hangUpIfIdle() {
	if c.retired && len(c.calls) == 0 {
		c.hangUpLocked()
	}
}

func (c *mcpConn) hangUpLocked() {
	if c.closed {
		return
	}
	c.closed = true
	close(c.gone)
	for _, w := range c.calls {
		w.settle(nil, c.endedError())
	}
}

func (c *mcpConn) endedError() error {
	return &jsonrpc.Error{Code: codeEnded, Message: fmt.Sprintf("the session of MCP server %q has ended", c.name)}
}

// toolsChanged reports whether the server said that its tools have changed.
func (c *mcpConn) toolsChanged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// settle answers w unless it is answered.
func (w *mcpCall) settle(result json.RawMessage, err error) {
	if w.answered {
		return
	}
	w.answered, w.result, w.err = true, result, err
	close(w.done)
}

// Connect is called by the MCP SDK.
func (c *mcpConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID is called by the MCP SDK.
func (c *mcpConn) SessionID() string { return sessionPrefix + c.label }

// Read is called by the MCP SDK, from one goroutine.
func (c *mcpConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if msg := c.next(); msg != nil {
			return msg, nil
		}
		select {
		case <-c.wake:
		case <-c.gone:
			return nil, io.EOF
		}
	}
}

func (c *mcpConn) next() jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) == 0 {
		return nil
	}
	msg := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	return msg
}

// Write is called by the MCP SDK for answers and for what the server has to
// say by itself.
func (c *mcpConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		c.answer(msg)
		return nil
	case *jsonrpc.Request:
		if err := c.forward(ctx, msg); err != nil {
			return &jsonrpc.Error{Code: codeRejected, Message: fmt.Sprintf("sending %s to the CLI: %v", msg.Method, err)}
		}
		return nil
	}
	return fmt.Errorf("unexpected message %T", msg)
}

// answer passes a response on, or drops it if nobody waits any more.
func (c *mcpConn) answer(msg *jsonrpc.Response) {
	id, _ := msg.ID.Raw().(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.calls[id]
	if w == nil {
		return
	}
	delete(c.calls, id)
	w.settle(msg.Result, msg.Error)
	c.hangUpIfIdle()
}

// forward sends a message of the server to the CLI. It gives up when the
// session ends.
func (c *mcpConn) forward(ctx context.Context, req *jsonrpc.Request) error {
	out := &jsonrpc.Request{Method: req.Method, Params: req.Params}
	switch {
	case req.IsCall():
		out.ID = textID(c.outward(req.ID.Raw()))
	case req.Method == methodCancelled:
		var params struct{ RequestID any }
		if err := json.Unmarshal(req.Params, &params); err != nil {
			return err
		}
		out.Params = cancelledParams(c.outward(params.RequestID))
	case req.Method == methodToolsChange:
		c.mu.Lock()
		c.changed = true
		c.mu.Unlock()
	}
	data, err := jsonrpc.EncodeMessage(out)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-c.gone:
			cancel()
		case <-ctx.Done():
		}
	})
	return c.send(ctx, c.name, data)
}

// outward makes an id of this session one that no other session has.
func (c *mcpConn) outward(id any) string { return fmt.Sprintf("%s-%v", c.label, id) }

// inward reverses outward, and reports whether id is one of this session.
func (c *mcpConn) inward(id string) (jsonrpc.ID, bool) {
	rest, ours := strings.CutPrefix(id, c.label+"-")
	n, err := strconv.Atoi(rest)
	if !ours || err != nil {
		return jsonrpc.ID{}, false
	}
	original, err := jsonrpc.MakeID(float64(n))
	return original, err == nil
}

// finished reports whether no handler is left, and if so lets go of what the
// MCP SDK keeps for the session.
func (c *mcpConn) finished() bool {
	select {
	case <-c.ended:
		_ = c.session.Close() // there is nothing left that could fail
		return true
	default:
		return false
	}
}

// Close is called by the MCP SDK when no handler is left.
func (c *mcpConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUpLocked()
	if !c.stopped {
		c.stopped = true
		close(c.ended)
	}
	return nil
}

func textID(id string) jsonrpc.ID {
	made, _ := jsonrpc.MakeID(id) // a string always is one
	return made
}

func cancelledParams(id string) json.RawMessage {
	return json.RawMessage(`{"requestId":` + string(jsonString(id)) + `}`)
}
