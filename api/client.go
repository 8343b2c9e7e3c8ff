package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/dfaf701a/nestor"
)

// Client asks one daemon. Its methods may be called at once.
//
// They fail with [ErrNoDaemon] if nobody listens, with [ErrDisconnected] if
// the daemon goes away, with a [*Problem] if it refuses, and with the cause of
// ctx if that ends first.
type Client struct {
	http      http.Client
	transport *http.Transport
	token     string // of an agent; empty means that the socket says who asks
}

// NewClient returns a client of the daemon that listens on a Unix socket. It
// connects when it is asked something, and to nothing else: no proxy is
// looked for.
func NewClient(socket string) *Client {
	c := &Client{transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", socket)
			if nobodyListens(err) {
				return nil, fmt.Errorf("%w on %s: %w", ErrNoDaemon, socket, err)
			}
			return conn, err
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}}
	c.http = http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// nobodyListens tells what dialling a Unix socket says then.
func nobodyListens(err error) bool {
	const windowsRefused = syscall.Errno(10061)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, windowsRefused)
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Submit hands a task to the daemon and returns its run. The run is on record
// when it returns.
func (c *Client) Submit(ctx context.Context, s Submission) (Run, error) {
	var run Run
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/runs", body: s, again: s.Key != ""}, &run)
	return run, err
}

// Run returns a run as it stands.
func (c *Client) Run(ctx context.Context, id nestor.ID) (Run, error) {
	var run Run
	err := c.do(ctx, request{path: runPath(id, "")}, &run)
	return run, err
}

// pollTime is how long one request of Wait waits.
const pollTime = 30 * time.Second

// Wait returns a run when it has ended.
func (c *Client) Wait(ctx context.Context, id nestor.ID) (Run, error) {
	for {
		var run Run
		err := c.do(ctx, request{path: runPath(id, ""), query: url.Values{"wait": {pollTime.String()}}}, &run)
		if err != nil || run.State.Ended() {
			return run, err
		}
	}
}

// Runs lists runs, the newest first. The next ones are listed with q.After set
// to the Cursor of the last.
func (c *Client) Runs(ctx context.Context, q Query) ([]Run, error) {
	var list struct{ Runs []Run }
	err := c.do(ctx, request{path: "/v1/runs", query: q.Values()}, &list)
	return list.Runs, err
}

// Tree returns a run and all below it, parents before their children.
func (c *Client) Tree(ctx context.Context, id nestor.ID) ([]Run, error) {
	var list struct{ Runs []Run }
	err := c.do(ctx, request{path: runPath(id, "/tree")}, &list)
	return list.Runs, err
}

// Search finds texts in which all the words occur, the newest first, in runs
// that q chooses. The next ones are found with q.After set to the Seq of the
// last.
func (c *Client) Search(ctx context.Context, text string, q Query) ([]Hit, error) {
	var list struct{ Hits []Hit }
	v := q.Values()
	v.Set("q", text)
	err := c.do(ctx, request{path: "/v1/search", query: v}, &list)
	return list.Hits, err
}

// Cancel asks for the end of a run and all below it, and does not wait for it.
// It fails with nestor.ErrEnded if it has ended.
func (c *Client) Cancel(ctx context.Context, id nestor.ID, cancellation Cancellation) error {
	return c.do(ctx, request{method: http.MethodPost, path: runPath(id, "/cancel"), body: cancellation, again: true}, nil)
}

// Send says something to a run. It fails with nestor.ErrEnded if it has ended.
func (c *Client) Send(ctx context.Context, id nestor.ID, m Message) error {
	return c.do(ctx, request{method: http.MethodPost, path: runPath(id, "/messages"), body: m, again: m.ID != ""}, nil)
}

// Changes returns the archive of the files that a run changed on another machine,
// which the caller closes. It fails with a [*Problem] of [TypeNoChanges] if there
// are none.
func (c *Client) Changes(ctx context.Context, id nestor.ID) (io.ReadCloser, error) {
	resp, err := c.open(ctx, request{path: runPath(id, "/changes"), accept: ArchiveMediaType})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ArchiveMediaType is the media type of an archive of files: a gzipped tar, whose
// first entry lists what is changed and removed.
const ArchiveMediaType = "application/gzip"

// Backup writes the daemon's history to a new file. The path is absolute, on
// the daemon's machine.
func (c *Client) Backup(ctx context.Context, path string) error {
	return c.do(ctx, request{method: http.MethodPost, path: "/v1/backup", body: map[string]string{"path": path}}, nil)
}

// Info returns what the daemon is and does.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.do(ctx, request{path: "/v1/info"}, &info)
	return info, err
}

func runPath(id nestor.ID, rest string) string {
	return "/v1/runs/" + url.PathEscape(string(id)) + rest
}

// request is one question to the daemon.
type request struct {
	method string // empty means GET
	path   string
	query  url.Values
	body   any    // nil means none
	accept string // empty means JSON
	again  bool   // to ask twice does what asking once does
}

// maxAnswer bounds what is read of an answer that is no stream.
const maxAnswer = 256 << 20

// do asks and reads the answer into answer, unless that is nil.
func (c *Client) do(ctx context.Context, r request, answer any) error {
	resp, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return disconnected(ctx, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("answer to %s: more than %d bytes", r.path, maxAnswer)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("answer to %s: %w", r.path, err)
	}
	return nil
}

// open asks and returns the answer, whose body the caller closes. An answer
// that is a problem is returned as the error.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("request for %s: %w", r.path, err)
		}
		body = bytes.NewReader(data)
	}
	// The host is in no address: DialContext knows the only one.
	req, err := http.NewRequestWithContext(ctx, r.method, "http://nestor"+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("request for %.100q: %w", r.path, err)
	}
	req.URL.RawQuery = r.query.Encode()
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if r.again {
		req.Header["Idempotency-Key"] = nil // never sent; net/http may ask again when a kept connection turns out to be closed
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, disconnected(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp, nil
}

// disconnected explains an error of the connection.
func disconnected(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // what it adds is a URL that nobody typed
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrNoDaemon):
		return err
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("connecting to the daemon: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// maxProblem bounds what is read of a problem.
const maxProblem = 1 << 20

// readProblem returns the *Problem that resp is. What is no problem, of
// whatever answers there instead of a daemon, becomes one.
func readProblem(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := new(Problem)
	if err := json.Unmarshal(data, p); err != nil {
		p = &Problem{Detail: fmt.Sprintf("answer %s: %.200q", resp.Status, data)}
	}
	p.Status = resp.StatusCode
	return p
}
