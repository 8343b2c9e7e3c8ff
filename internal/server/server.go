// Package server is the daemon's HTTP interface: it translates requests into
// calls of a [Backend] and answers into JSON, server-sent events and problems.
// It decides nothing. Package api has the types, the routes and a client.
package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// Backend is what a daemon does. All of it may be called at once, and returns
// soon after its context ends.
//
// An error that is, or wraps, [*api.Problem] is answered as it is;
// nestor.ErrRunNotFound, nestor.ErrEnded, nestor.ErrStale and
// *nestor.LimitError as the problems of their kind; any other with status 500.
type Backend interface {
	Submit(context.Context, api.Submission) (api.Run, error)
	Run(context.Context, nestor.ID) (api.Run, error)
	// Wait returns the run when it has ended or ctx ends, then as it stands.
	Wait(context.Context, nestor.ID) (api.Run, error)
	Runs(context.Context, api.Query) ([]api.Run, error)
	Tree(context.Context, nestor.ID) ([]api.Run, error)
	Search(context.Context, string, api.Query) ([]api.Hit, error)
	Cancel(context.Context, nestor.ID, api.Cancellation) error
	Send(context.Context, nestor.ID, api.Message) error
	// Asks returns the questions that are open, and Answer answers one.
	Asks(context.Context) ([]api.OpenAsk, error)
	Answer(ctx context.Context, run nestor.ID, ask string, a api.Answer) error
	Backup(ctx context.Context, path string) error
	// Changes returns the archive of the files that a run changed elsewhere.
	Changes(context.Context, nestor.ID) ([]byte, error)
	// Diff returns what a run changed here.
	Diff(context.Context, nestor.ID) (api.Diff, error)
	Workspaces(context.Context) ([]api.Space, error)
	CollectWorkspaces(context.Context, api.Collection) ([]api.Space, error)
	EndWorkspace(context.Context, nestor.ID, api.Ending) (api.Workspace, error)
	ApproveWorkspace(context.Context, nestor.ID, api.Approval) (api.Workspace, error)
	Info(context.Context) (api.Info, error)
	// Events yields events in order. An error is the last thing yielded;
	// when ctx ends, it ends.
	Events(context.Context, nestor.ID, api.EventsQuery) iter.Seq2[api.Event, error]
}

// Options change how a Server works. The zero value is useful.
type Options struct {
	Log   *slog.Logger  // nil discards
	Grace time.Duration // how long requests in flight may take when the server is to end; zero means 5s
}

// Server answers for one daemon. Its methods may be called at once.
type Server struct {
	backend Backend
	agents  Agents // in the place of backend; nil if it serves none
	log     *slog.Logger
	grace   time.Duration
}

// New returns a server. It starts nothing.
func New(b Backend, o Options) *Server {
	s := &Server{backend: b, log: o.Log, grace: o.Grace}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.grace == 0 {
		s.grace = 5 * time.Second
	}
	return s
}

// Handler answers requests, for as long as their own contexts last.
func (s *Server) Handler() http.Handler { return s.handler(newGate()) }

// errStopping is the cause with which requests end when the server is to end.
var errStopping = &api.Problem{
	Type: api.TypeStopping, Status: http.StatusServiceUnavailable, Title: "The daemon ends", Detail: "the daemon ends; ask again when it is back",
}

// Serve answers on ln until ctx ends, and returns nil then. Streams are ended
// at once; other requests in flight get Options.Grace. When it returns, ln is
// closed and no request is under way.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	gate := newGate()
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	srv := &http.Server{
		Handler:           s.handler(gate),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      writeTime, // of what is answered before it comes to a handler
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- err
	}
	// http.Server.Shutdown would wait seconds for a connection on which nothing
	// was asked yet.
	ln.Close()
	idle := gate.close()
	if !within(s.grace, idle) {
		cut(errStopping)
		within(lastWords, idle)
	}
	srv.Close()
	<-idle
	<-served
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// lastWords is how long requests have to say that they were ended.
const lastWords = time.Second

// within waits for done, and tells whether it came in time.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// gate counts the requests that are under way, and lets no more in when it is
// closed.
type gate struct {
	ending chan struct{} // closed by close, once; handlers receive

	mu      sync.Mutex // guards closed, and that nothing enters then
	closed  bool
	running sync.WaitGroup
}

func newGate() *gate { return &gate{ending: make(chan struct{})} }

// enter tells whether a request may be answered. If so, it ends with leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Add(1)
	}
	return !g.closed
}

func (g *gate) leave() { g.running.Done() }

// close lets nothing in any more. What it returns is closed when nothing is
// under way.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	close(g.ending)
	idle := make(chan struct{})
	go func() {
		g.running.Wait()
		close(idle)
	}()
	return idle
}

// untilEnding returns a context that ends with errStopping when g is closed.
func (g *gate) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-g.ending:
			stop(errStopping)
		}
	})
	return ctx, func() { stop(nil); watching.Wait() }
}
