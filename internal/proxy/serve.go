package proxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/internal/permission"
)

const (
	maxHeader = 64 << 10  // bytes of a request before its body
	maxAnswer = 256 << 10 // likewise of a response
	maxDrain  = 1 << 20   // of a request that is refused, so that it is heard why
	drainFor  = time.Second
)

// Serve lets out what connects to l, until ctx ends or l is closed; then it ends
// all connections, and returns when they are over and reported. It closes l.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	defer l.Close()
	for failed := 0; ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			failed = 0
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case failed == maxFailed:
			return fmt.Errorf("taking connections: %w", err)
		default: // this process has too many files open, perhaps
			failed++
			select {
			case <-time.After(againAfter):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return nil
		}
		work.Go(func() {
			defer func() { <-p.slots }()
			p.serve(ctx, conn)
		})
	}
}

const (
	maxFailed  = 100 // times in a row
	againAfter = 100 * time.Millisecond
)

// serve lets one connection out.
func (p *Proxy) serve(ctx context.Context, conn net.Conn) {
	c := &Connection{Began: time.Now()}
	s := &session{proxy: p, c: c}
	s.client = newCounted(conn, s.moved)
	s.mu.Lock() // until idle is set, which close stops
	s.idle = time.AfterFunc(p.opts.Idle, s.close)
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.close)()
	defer s.close()
	ok, first := p.begin()
	if !ok {
		if first {
			p.end(c, p.tooMany())
		}
		return
	}
	err := s.run(ctx)
	s.close()
	if s.remote != nil {
		c.Sent, c.Received = s.remote.wrote.Load(), s.remote.read.Load()
	}
	p.end(c, err)
}

// session is one connection through the proxy.
type session struct {
	proxy  *Proxy
	c      *Connection
	client *counted
	in     *bufio.Reader // of client
	idle   *time.Timer

	mu     sync.Mutex // guards what follows
	remote *counted   // nil until it is connected
	closed bool
}

// close ends both sides. It may be called by anybody, any number of times.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.idle.Stop()
	s.client.Close()
	if s.remote != nil {
		s.remote.Close()
	}
}

// moved takes note that bytes did.
func (s *session) moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.idle.Reset(s.proxy.opts.Idle)
	}
}

// run reads a request and does what it asks for, if it may. The error is why not.
func (s *session) run(ctx context.Context) error {
	head := &io.LimitedReader{R: s.client, N: maxHeader}
	s.in = bufio.NewReader(head)
	s.client.SetReadDeadline(time.Now().Add(s.proxy.opts.Begin))
	req, err := http.ReadRequest(s.in)
	switch {
	case err != nil && head.N <= 0:
		return s.answer(http.StatusRequestHeaderFieldsTooLarge, &refusal{"request", fmt.Sprintf("its head has more than %d bytes", maxHeader)})
	case err != nil:
		return s.answer(http.StatusBadRequest, &refusal{"request", "it is no HTTP request: " + clip(err.Error())})
	}
	s.client.SetReadDeadline(time.Time{})
	head.N = math.MaxInt64
	e, err := target(req)
	if err != nil {
		s.c.Host = clip(req.Host)
		return s.answer(http.StatusBadRequest, &refusal{"request", err.Error()})
	}
	remote, err := s.proxy.connect(ctx, e, s.c)
	if _, refused := errors.AsType[*refusal](err); refused {
		return s.answer(http.StatusForbidden, err)
	}
	if err != nil {
		return s.answer(http.StatusBadGateway, err)
	}
	if !s.connected(remote) {
		return errors.New("it was closed meanwhile")
	}
	if req.Method == http.MethodConnect {
		return s.tunnel()
	}
	return s.forward(req, e)
}

// connected takes over the other side. It fails if the session is over.
func (s *session) connected(remote net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remote = newCounted(remote, s.moved)
	if s.closed {
		remote.Close()
	}
	return !s.closed
}

// target returns what a request wants to reach. What it says in its Host field does
// not count.
func target(req *http.Request) (permission.Endpoint, error) {
	if req.Method == http.MethodConnect {
		host, port, err := net.SplitHostPort(req.RequestURI)
		if err != nil || strings.ContainsAny(host, "/@") {
			return permission.Endpoint{}, fmt.Errorf("CONNECT %q: want a host and a port", clip(req.RequestURI))
		}
		return permission.ParseEndpoint(host, port)
	}
	u := req.URL
	switch {
	case u.Scheme == "" || u.Host == "" || u.Opaque != "":
		return permission.Endpoint{}, fmt.Errorf("%q is not the URL of a page: this is a proxy", clip(req.RequestURI))
	case u.Scheme != "http":
		return permission.Endpoint{}, fmt.Errorf("%q: only http is forwarded; use CONNECT for the rest", clip(req.RequestURI))
	case u.User != nil:
		return permission.Endpoint{}, fmt.Errorf("%q holds a name or password of a user", clip(u.Redacted()))
	}
	return permission.ParseEndpoint(u.Hostname(), cmp.Or(u.Port(), "80"))
}

// tunnel copies both ways until both sides are done, or one fails.
func (s *session) tunnel() error {
	if _, err := io.WriteString(s.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil // who asked is gone
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if pour(s.client, s.remote) != nil {
			s.close()
		}
	}()
	if pour(s.remote, s.in) != nil {
		s.close()
	}
	<-done
	return nil
}

// hopHeaders are about one connection alone.
var hopHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
}

// forward hands on one request and its response. Whatever the client sends behind
// it is not read: it could be meant for another host.
func (s *session) forward(req *http.Request, e permission.Endpoint) error {
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(s.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil
		}
	}
	name := e.String()
	if e.Port == 80 {
		name = e.Host()
		if e.Addr.Is6() {
			name = "[" + name + "]"
		}
	}
	out := &http.Request{
		Method: req.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: name, Close: true,
		URL:    &url.URL{Scheme: "http", Host: name, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery, ForceQuery: req.URL.ForceQuery},
		Header: withoutHops(req.Header), Body: req.Body, ContentLength: req.ContentLength, TransferEncoding: req.TransferEncoding,
	}
	if out.Header["User-Agent"] == nil {
		out.Header["User-Agent"] = []string{""} // or package http gives it one
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		out.Write(s.remote) // if it fails, so does reading
	}()
	defer func() {
		s.close()
		<-sent
	}()
	head := &io.LimitedReader{R: s.remote, N: maxAnswer}
	from := bufio.NewReader(head)
	resp, err := http.ReadResponse(from, out)
	for err == nil && resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(from, out)
	}
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		err = errors.New("it wants to speak another protocol")
	}
	if err != nil {
		s.remote.Close()
		s.client.SetReadDeadline(time.Now()) // what the client still sends is not waited for
		<-sent
		return s.answer(http.StatusBadGateway, fmt.Errorf("reading what %s answers: %w", e, err))
	}
	head.N = math.MaxInt64
	defer resp.Body.Close()
	resp.Header, resp.Close, resp.Trailer = withoutHops(resp.Header), true, nil
	resp.Request = req // whose version decides how it is written
	resp.Write(onlyWriter{s.client})
	s.client.closeWrite()
	return nil
}

// withoutHops returns a header without what is about one connection alone.
func withoutHops(h http.Header) http.Header {
	h = h.Clone()
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopHeaders {
		h.Del(name)
	}
	return h
}

// answer says why a request is not carried out, and returns that.
func (s *session) answer(status int, why error) error {
	text := "nestor: " + why.Error()
	if _, refused := errors.AsType[*refusal](why); refused && s.proxy.opts.Hint != "" {
		text += "; " + s.proxy.opts.Hint
	}
	text += "\n"
	s.client.SetDeadline(time.Now().Add(drainFor))
	_, err := fmt.Fprintf(s.client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text)
	if err == nil {
		// What is not read would take the answer away with the connection.
		s.client.closeWrite()
		io.CopyN(io.Discard, s.in, maxDrain)
	}
	return why
}
