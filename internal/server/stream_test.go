package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

// cutting accepts connections that are cut when so many bytes were written to
// them.
type cutting struct {
	net.Listener
	after int
}

func (l cutting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &cut{Conn: conn, left: l.after}, err
}

type cut struct {
	net.Conn
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && err == nil {
		err = errors.Join(net.ErrClosed, c.Close())
	}
	return n, err
}

func TestStreamGoesOnAfterItWasCut(t *testing.T) {
	d := newDaemon()
	id := d.add(100)
	d.end(id)
	path := socket(t)
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := serveOn(t, d, cutting{ln, 3000}, path, server.Options{})
	q := api.EventsQuery{Follow: true}
	cuts, next := 0, uint64(1)
	for again := true; again; {
		again = false
		for e, err := range c.Events(t.Context(), id, q) {
			if errors.Is(err, api.ErrDisconnected) {
				cuts, again = cuts+1, true
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Head().Seq != next {
				t.Fatalf("event %d follows %d", e.Head().Seq, next-1)
			}
			q.After = next
			next++
		}
	}
	if next != 101 || cuts < 3 {
		t.Errorf("%d events and %d cuts, want 100 and some", next-1, cuts)
	}
}

func TestTwoHundredFollowers(t *testing.T) {
	const followers, events = 200, 50
	d := newDaemon()
	d.inside = make(chan struct{})
	id := d.add(5)
	c, _ := serve(t, d, socket(t), server.Options{})
	var following sync.WaitGroup
	for range followers {
		following.Go(func() {
			next := uint64(1)
			for e, err := range c.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
				if err != nil {
					t.Error(err)
					return
				}
				if e.Head().Seq != next {
					t.Errorf("event %d instead of %d", e.Head().Seq, next)
				}
				next++
			}
			if next != events+1 {
				t.Errorf("got %d events, want %d", next-1, events)
			}
		})
	}
	for range followers {
		<-d.inside
	}
	for range events - 5 {
		d.say(id, "more")
	}
	d.end(id)
	following.Wait()
}

func TestBreakingOutEndsTheStream(t *testing.T) {
	d := newDaemon()
	id := d.add(3)
	ended := make(chan struct{})
	c, _ := serve(t, watched{d, ended}, socket(t), server.Options{})
	for _, err := range c.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	<-ended
}

// watched tells when a stream of its daemon has ended.
type watched struct {
	*daemon
	ended chan struct{}
}

func (w watched) Events(ctx context.Context, id nestor.ID, q api.EventsQuery) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		w.daemon.Events(ctx, id, q)(yield)
		close(w.ended)
	}
}

// pipes is a listener without a network, for bubbles of synctest.
type pipes struct {
	conns  chan net.Conn // dial sends, Accept receives
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// follow connects and asks for the events of a run.
func (p *pipes) follow(t *testing.T, id nestor.ID) net.Conn {
	t.Helper()
	conn, far := net.Pipe()
	p.conns <- far
	if _, err := fmt.Fprintf(conn, "GET /v1/runs/%s/events?follow HTTP/1.1\r\nHost: nestor\r\n\r\n", id); err != nil {
		t.Fatal(err)
	}
	return conn
}

// serveBubble serves in a bubble until what it returns is called.
func serveBubble(t *testing.T, d *daemon) (ln *pipes, stop func()) {
	ln = newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.New(d, server.Options{}).Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	return ln, func() { cancel(); serving.Wait() }
}

func TestQuietStreamShowsThatItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon()
		id := d.add(0)
		ln, stop := serveBubble(t, d)
		begin := time.Now()
		conn := ln.follow(t, id)
		lines := bufio.NewReader(conn)
		var signs []time.Duration
		for len(signs) < 3 {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == ":\n" {
				signs = append(signs, time.Since(begin))
			}
		}
		if got := fmt.Sprint(signs); got != "[1s 16s 31s]" {
			t.Errorf("signs of life came at %s", got)
		}
		conn.Close()
		stop()
	})
}

func TestReaderThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon()
		id := d.add(1)
		ln, stop := serveBubble(t, d)
		conn := ln.follow(t, id)
		time.Sleep(29 * time.Second)
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("cut after 29 seconds: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("reading what is left: %v", err)
		}
		// The pipe is closed by the server: had it not been, ReadAll would have
		// waited for ever, and the bubble failed.
		conn.Close()
		stop()
	})
}

func TestBodyThatDoesNotComeIsAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stop := serveBubble(t, newDaemon())
		conn, far := net.Pipe()
		ln.conns <- far
		begin := time.Now()
		if _, err := io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: nestor\r\nContent-Length: 10\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || answer != "HTTP/1.1 408 Request Timeout\r\n" || time.Since(begin) != 30*time.Second {
			t.Errorf("got %q, %v after %v", answer, err, time.Since(begin))
		}
		conn.Close()
		stop()
	})
}

// exchange sends a request and returns the answer, read to its end.
func exchange(t *testing.T, conn net.Conn, request string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("answer to %.20q: %v", request, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatalf("answer to %.20q: %v", request, err)
	}
	return resp
}

const submission = "POST /v1/runs HTTP/1.1\r\nHost: nestor\r\nContent-Length: 11\r\n\r\n{\"task\":{}}"

func TestBackendMayTakeLongerThanBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon()
		d.held = make(chan struct{})
		ln, stop := serveBubble(t, d)
		conn, far := net.Pipe()
		ln.conns <- far
		time.AfterFunc(time.Hour, func() { close(d.held) })
		if resp := exchange(t, conn, submission); resp.StatusCode != http.StatusCreated {
			t.Errorf("got %s", resp.Status)
		}
		conn.Close()
		stop()
	})
}

func TestOneRequestWaitsAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon()
		id := d.add(0)
		ln, stop := serveBubble(t, d)
		conn, far := net.Pipe()
		ln.conns <- far
		begin := time.Now()
		resp := exchange(t, conn, "GET /v1/runs/"+string(id)+"?wait=1h HTTP/1.1\r\nHost: nestor\r\n\r\n")
		if resp.StatusCode != http.StatusOK || time.Since(begin) != time.Minute {
			t.Errorf("got %s after %v", resp.Status, time.Since(begin))
		}
		conn.Close()
		stop()
	})
}

// The time that a connection had for one request is not what the next one has
// left.
func TestConnectionIsGoodForTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stop := serveBubble(t, newDaemon())
		conn, far := net.Pipe()
		ln.conns <- far
		for _, request := range []string{
			submission, "GET /v1//runs HTTP/1.1\r\nHost: nestor\r\n\r\n", "GET /v1/runs HTTP/1.1\r\nHost: nestor\r\n\r\n",
		} {
			exchange(t, conn, request)
			time.Sleep(40 * time.Second)
		}
		conn.Close()
		stop()
	})
}

func TestSilentConnectionDoesNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stop := serveBubble(t, newDaemon())
		conn, far := net.Pipe()
		ln.conns <- far
		synctest.Wait()
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end took %v", took)
		}
		conn.Close()
	})
}

func TestServeEndsWhileStreamsAreOpen(t *testing.T) {
	d := newDaemon()
	d.inside = make(chan struct{})
	id := d.add(1)
	c, stop := serve(t, d, socket(t), server.Options{})
	var following sync.WaitGroup
	for range 20 {
		following.Go(func() {
			var last error
			for _, err := range c.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
				last = err
			}
			if !errors.Is(last, api.ErrDisconnected) {
				t.Errorf("a stream ended with %v", last)
			}
		})
		following.Go(func() {
			if _, err := c.Wait(t.Context(), id); !errors.Is(err, api.ErrDisconnected) {
				t.Errorf("a wait ended with %v", err)
			}
		})
	}
	for range 40 {
		<-d.inside
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	following.Wait()
	if _, err := c.Info(t.Context()); !errors.Is(err, api.ErrNoDaemon) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestRequestsInFlightAreAnswered(t *testing.T) {
	d := newDaemon()
	d.held, d.inside = make(chan struct{}), make(chan struct{})
	path := socket(t)
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	told := closing{ln, make(chan struct{}), new(sync.Once)}
	c, stop := serveOn(t, d, told, path, server.Options{Grace: time.Hour})
	answered := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.Submission{})
		answered <- err
	}()
	<-d.inside
	go stop()
	<-told.closed // the server ends
	close(d.held)
	if err := <-answered; err != nil {
		t.Errorf("a request that came before the end: %v", err)
	}
}

// closing tells when it is closed.
type closing struct {
	net.Listener
	closed chan struct{}
	once   *sync.Once
}

func (l closing) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func TestRequestsThatOutlastTheGraceAreEnded(t *testing.T) {
	d := newDaemon()
	d.held, d.inside = make(chan struct{}), make(chan struct{})
	c, stop := serve(t, d, socket(t), server.Options{Grace: time.Millisecond})
	answered := make(chan error, 1)
	go func() {
		_, err := c.Submit(t.Context(), api.Submission{})
		answered <- err
	}()
	<-d.inside
	if err := stop(); err != nil {
		t.Error(err)
	}
	err := <-answered
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 503 || !errors.Is(err, api.ErrDisconnected) {
		t.Errorf("got %v, want that the daemon ends", err)
	}
}

func TestServeFailsWithItsListener(t *testing.T) {
	ln, err := server.Listen(socket(t))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	err = server.New(newDaemon(), server.Options{}).Serve(t.Context(), ln)
	if err == nil || !strings.HasPrefix(err.Error(), "serving on ") {
		t.Errorf("got %v", err)
	}
}
