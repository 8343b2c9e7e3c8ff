package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// ServersOptions change how MCP servers are reached. The zero value is useful.
type ServersOptions struct {
	Dir     string   // where stdio servers start; empty means the current directory
	Env     []string // K=V, for stdio servers, over what Options.Env is over; a server's own Env wins
	BaseEnv []string // see Options

	// Command prepares the command of a stdio server, as in Options. Nil means
	// exec.Command.
	Command func(name string, arg ...string) *exec.Cmd
	// Wrap returns the command line of a stdio server that is started instead of
	// argv, as in Options. Nil means argv.
	Wrap func(argv []string) []string

	// Dial connects to servers with a URL. Nil leaves it to package http.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	ConnectTimeout time.Duration // for starting a server and listing its tools; zero means 30s
	CallTimeout    time.Duration // for one call; zero means as long as its context

	// Progress is told of the progress of calls, one at a time for each server.
	// Nil means that servers are not asked for it.
	Progress func(Progress)
}

// Progress is how far a call of an MCP tool is.
type Progress struct {
	Tool    string // its name here: mcp__server__tool
	Done    float64
	Total   float64 // zero if it is not known
	Message string
}

// ServerStatus says how an MCP server is.
type ServerStatus struct {
	Name   string
	Status string // "connected" or "failed"
	Error  string // why it failed, or which of its tools cannot be used; empty if there is nothing to say
}

// Servers are the MCP servers of one agent. Its methods may be called from any
// goroutine.
type Servers struct {
	opts ServersOptions
	mark string
	list []*server     // by name
	quit chan struct{} // closed by the first Close
	once sync.Once
}

// NewServers returns servers with these names. It starts and connects nothing:
// the first Tools does.
func NewServers(configs map[string]agent.MCPServer, opts ServersOptions) *Servers {
	opts.Command = wrapped(opts.Command, opts.Wrap)
	opts.ConnectTimeout = cmp.Or(opts.ConnectTimeout, 30*time.Second)
	s := &Servers{opts: opts, mark: newMark(), quit: make(chan struct{})}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		sv := &server{name: name, config: configs[name], all: s, turn: make(chan struct{}, 1)}
		s.list = append(s.list, sv)
	}
	return s
}

var errServersClosed = errors.New("the servers are closed")

const (
	maxMCPTools       = 500    // of one server
	maxMCPDescription = 10_000 // bytes
	maxMCPName        = 128    // what the API takes
)

// Tools connects the servers that are not connected, all at once, and returns
// the tools of those that answered, by the names of servers and tools. What is
// wrong with a server is in its status. The tools stay good after Close or the
// end of a server: calls then connect it again, or fail.
func (s *Servers) Tools(ctx context.Context) ([]Tool, []ServerStatus) {
	statuses := make([]ServerStatus, len(s.list))
	found := make([][]Tool, len(s.list))
	unusable := make([][]string, len(s.list))
	var work sync.WaitGroup
	for i, sv := range s.list {
		statuses[i] = ServerStatus{Name: sv.name, Status: "connected"}
		work.Go(func() {
			var err error
			if found[i], unusable[i], err = sv.tools(ctx); err != nil {
				statuses[i].Status, statuses[i].Error = "failed", err.Error()
			}
		})
	}
	work.Wait()
	var tools []Tool
	taken := map[string]bool{}
	for i := range s.list {
		for _, tool := range found[i] {
			if taken[tool.Name] {
				unusable[i] = append(unusable[i], without(tool.Name, errors.New("another tool has the same name")))
				continue
			}
			taken[tool.Name] = true
			tools = append(tools, tool)
		}
		if unusable[i] != nil {
			statuses[i].Error = clip("tools that cannot be used: "+strings.Join(unusable[i], ", "), 1000)
		}
	}
	return tools, statuses
}

// without says that a tool is left out.
func without(tool string, err error) string { return fmt.Sprintf("%s (%v)", clip(tool, 100), err) }

// tools returns the tools that the server has now, by their names, and says which of
// them cannot be used. Those of this process are called as they are.
func (sv *server) tools(ctx context.Context) (list []Tool, unusable []string, err error) {
	if sv.config.Tools != nil {
		if err := sv.check(); err != nil {
			return nil, nil, err
		}
		for _, t := range sv.config.Tools {
			list = append(list, sv.native(t))
		}
		slices.SortFunc(list, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	} else {
		offered, err := sv.offered(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range offered {
			tool, err := sv.tool(t)
			if err != nil {
				unusable = append(unusable, without(t.Name, err))
				continue
			}
			list = append(list, tool)
		}
	}
	return slices.DeleteFunc(list, func(t Tool) bool {
		long := len(t.Name) > maxMCPName
		if long {
			unusable = append(unusable, without(t.Name, fmt.Errorf("its name has more than %d characters", maxMCPName)))
		}
		return long
	}), unusable, nil
}

// Close ends all servers: the processes that were started, with all that they
// started, and the connections. A second call does nothing.
func (s *Servers) Close() error {
	s.once.Do(func() { close(s.quit) })
	errs := make([]error, len(s.list))
	var work sync.WaitGroup
	for i, sv := range s.list {
		work.Go(func() { errs[i] = sv.close() })
	}
	work.Wait()
	if slices.ContainsFunc(s.list, func(sv *server) bool { return sv.config.Command != "" }) {
		killMarked(markVariable + "=" + s.mark)
	}
	return errors.Join(errs...)
}

// server is one of them.
type server struct {
	name   string
	config agent.MCPServer
	all    *Servers
	turn   chan struct{} // held by who connects or closes; guards conn, lost and closed

	conn   *connection // nil if there is none
	lost   bool        // there was one, which ended by itself
	closed bool
}

// connection is one to a server.
type connection struct {
	session *mcp.ClientSession
	program *program      // nil if none was started
	local   func() error  // closes the other end of a server in this process; nil if there is none
	idle    func()        // closes idle connections; nil if there are none
	gone    chan struct{} // closed when the session has ended

	mu      sync.Mutex // guards what follows
	tools   []*mcp.Tool
	changed bool // the server said that its tools changed
	broken  bool // a call found that it does not work any more
	calls   map[string]string
	next    int
}

// take waits for the turn to connect or close.
func (sv *server) take(ctx context.Context) error {
	select {
	case sv.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connected returns the connection, a new one if there is none that works. It
// tells if an earlier one had ended.
func (sv *server) connected(ctx context.Context) (c *connection, again bool, err error) {
	if err := sv.take(ctx); err != nil {
		return nil, false, err
	}
	defer func() { <-sv.turn }()
	if sv.closed {
		return nil, false, errServersClosed
	}
	if sv.conn != nil && sv.conn.ended() {
		sv.conn.close()
		sv.conn, sv.lost = nil, true
	}
	if sv.conn != nil {
		return sv.conn, false, nil
	}
	if sv.conn, err = sv.connect(ctx); err != nil {
		return nil, false, fmt.Errorf("connecting to MCP server %s: %w", sv.name, err)
	}
	again, sv.lost = sv.lost, false
	return sv.conn, again, nil
}

func (c *connection) ended() bool {
	select {
	case <-c.gone:
		return true
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// offered returns the tools that the server has now.
func (sv *server) offered(ctx context.Context) ([]*mcp.Tool, error) {
	ctx, stop := context.WithTimeoutCause(ctx, sv.all.opts.ConnectTimeout, fmt.Errorf("it took more than %s", sv.all.opts.ConnectTimeout))
	defer stop()
	c, _, err := sv.connected(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	list, fresh := c.tools, c.tools != nil && !c.changed
	c.changed = false // what changes from here on is asked for again
	c.mu.Unlock()
	if fresh {
		return list, nil
	}
	list = []*mcp.Tool{}
	for t, err := range c.session.Tools(ctx, nil) {
		if err != nil {
			c.mu.Lock()
			c.changed = true
			c.mu.Unlock()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("listing the tools of MCP server %s: %w", sv.name, c.explain(err))
		}
		if len(list) == maxMCPTools {
			break
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools = list
	return list, nil
}

// connect starts or reaches the server.
func (sv *server) connect(ctx context.Context) (*connection, error) {
	c := &connection{gone: make(chan struct{}), calls: map[string]string{}}
	transport, err := sv.transport(ctx, c)
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "nestor", Version: "0.1.0"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed = true
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { sv.progress(c, req.Params) },
	})
	ctx, stop := context.WithTimeoutCause(ctx, sv.all.opts.ConnectTimeout, fmt.Errorf("it took more than %s", sv.all.opts.ConnectTimeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-sv.all.quit:
			cancel(errServersClosed)
		case <-ctx.Done():
		}
	})
	c.session, err = client.Connect(ctx, transport, nil)
	cause := context.Cause(ctx)
	cancel(nil)
	watch.Wait()
	if err != nil {
		err = c.explain(cmp.Or(cause, err))
		close(c.gone)
		return nil, errors.Join(err, c.close())
	}
	go func() {
		defer close(c.gone)
		c.session.Wait()
	}()
	return c, nil
}

// check tells whether it is known where the server is.
func (sv *server) check() error {
	kinds := 0
	for _, set := range []bool{sv.config.Command != "", sv.config.URL != "", sv.config.Server != nil, sv.config.Tools != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New("one of Command, URL, Server and Tools has to be set")
	}
	return nil
}

// transport returns how the server is reached, and notes in c what has to be
// closed with it.
func (sv *server) transport(ctx context.Context, c *connection) (mcp.Transport, error) {
	if err := sv.check(); err != nil {
		return nil, err
	}
	config := sv.config
	switch {
	case config.Server != nil:
		ours, theirs := mcp.NewInMemoryTransports()
		session, err := claude.ConnectServer(context.WithoutCancel(ctx), config.Server, theirs)
		if err != nil {
			return nil, err
		}
		c.local = session.Close
		return ours, nil
	case config.URL != "":
		base := http.DefaultTransport.(*http.Transport).Clone()
		if sv.all.opts.Dial != nil {
			base.Proxy, base.DialContext = nil, sv.all.opts.Dial
		}
		c.idle = base.CloseIdleConnections
		return &mcp.StreamableClientTransport{Endpoint: config.URL, HTTPClient: &http.Client{
			Transport: &withHeaders{base, config.Headers},
			// The headers may hold a token, which is for this host alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}, nil
	}
	p, err := sv.all.startProgram(config)
	if err != nil {
		return nil, err
	}
	c.program = p
	return &mcp.IOTransport{Reader: p.stdout, Writer: p.stdin}, nil
}

// withHeaders adds headers to requests.
type withHeaders struct {
	next    http.RoundTripper
	headers map[string]string
}

// RoundTrip sends a copy of req with the headers.
func (w *withHeaders) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for key, value := range w.headers {
		req.Header.Set(key, value)
	}
	return w.next.RoundTrip(req)
}

// explain adds what a program said on its standard error.
func (c *connection) explain(err error) error {
	if c.program == nil {
		return err
	}
	if said := c.program.said(); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

func (c *connection) close() error {
	var errs []error
	if c.session != nil {
		c.session.Close() // an error is that it was closed already, or that the server is not there to be told
		<-c.gone
	}
	if c.program != nil {
		c.program.end()
	}
	if c.local != nil {
		errs = append(errs, c.local())
	}
	if c.idle != nil {
		c.idle()
	}
	return errors.Join(errs...)
}

func (sv *server) close() error {
	sv.turn <- struct{}{}
	defer func() { <-sv.turn }()
	sv.closed = true
	if sv.conn == nil {
		return nil
	}
	err := sv.conn.close()
	sv.conn = nil
	return err
}
