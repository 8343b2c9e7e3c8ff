package engine_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/engine"
)

// A worker that is killed is replaced after a lease by another one.
func TestLostWorker(t *testing.T) {
	s := alone(t)
	client := open(t, s.connect(t), short, 0, nil)
	a := start(t, "worker", "URLS="+strings.Join(s.urls, ","), "NAME=a")
	a.expect("ready")
	id := client.submit(t, nestor.Task{Input: "hang once"})
	a.expect("began " + string(id))
	b := start(t, "worker", "URLS="+strings.Join(s.urls, ","), "NAME=b")
	b.expect("ready")
	a.kill()
	if run := client.wait(t, id); run.State != nestor.Success || run.Result.Output != "by b" || run.Resumes != 1 || run.Fence != 2 {
		t.Errorf("it is %s, %+v, resumed %d times", run.State, run.Result, run.Resumes)
	}
}

// What workers are lost with too often is given up.
func TestLostTooOften(t *testing.T) {
	s := alone(t)
	client := open(t, s.connect(t), short, 0, nil)
	id := client.submit(t, nestor.Task{Input: "hang", Limits: nestor.Limits{Resumes: 1}})
	for range 2 {
		w := start(t, "worker", "URLS="+strings.Join(s.urls, ","))
		w.expect("began " + string(id))
		w.kill()
	}
	w := start(t, "worker", "URLS="+strings.Join(s.urls, ","))
	w.expect("ready")
	if run := client.wait(t, id); run.State != nestor.Error || run.Result.Error.Kind != nestor.Interrupted {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}

// proxy forwards connections to a server until it is cut, and again once it is
// mended.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex // guards what follows
	cut   chan struct{}
	conns []net.Conn
	all   sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, cut: make(chan struct{})}
	close(p.cut) // open: nothing waits for it
	p.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			p.all.Go(func() { p.copy(out, in) })
			p.all.Go(func() { p.copy(in, out) })
		}
	})
	t.Cleanup(func() {
		p.mend()
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	return p
}

// copy copies bytes, and holds them back while the line is cut: nothing is lost
// and nobody is told, as when a network is away.
func (p *proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		<-cut
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			to.Close()
			return
		}
	}
}

func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = make(chan struct{})
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.cut:
	default:
		close(p.cut)
	}
}

// A worker that is cut off is told to let go, and when it comes back it does not
// finish what another has taken over: its late words and acks change nothing.
func TestCutOffWorkerComesBack(t *testing.T) {
	s := alone(t)
	address := s.urls[0][strings.LastIndex(s.urls[0], "@")+1:]
	line := newProxy(t, address)
	began, causes, back := make(chan struct{}), make(chan error, 1), make(chan struct{})
	a := open(t, dial(t, strings.Replace(s.urls[0], address, line.Addr().String(), 1)), short, 1,
		func(ctx context.Context, _ *engine.Execution) nestor.Result {
			close(began)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-back // it does not know yet, and works on
			return success("by a")
		})
	client := open(t, s.connect(t), short, 0, nil)
	id := client.submit(t, nestor.Task{})
	<-began
	line.sever()
	release := make(chan struct{})
	b := open(t, s.connect(t), short, 1, func(context.Context, *engine.Execution) nestor.Result {
		<-release
		return success("by b")
	})
	if cause := <-causes; !errors.Is(cause, engine.ErrCutOff) && !errors.Is(cause, nestor.ErrStale) {
		t.Errorf("it was told %v", cause)
	}
	waitFor(t, func() bool {
		run, err := client.Get(within(t), id)
		return err == nil && run.Fence == 2
	}, "another worker has it")
	line.mend()
	close(back)
	a.stop()
	if run, err := client.Get(within(t), id); err != nil || run.State.Ended() {
		t.Errorf("who was cut off finished it: %s, %v", run.State, err)
	}
	close(release)
	if run := b.wait(t, id); run.Result.Output != "by b" {
		t.Errorf("it was finished %s", run.Result.Output)
	}
}

// waitFor waits until something holds.
func waitFor(t *testing.T, holds func() bool, what string) {
	t.Helper()
	ctx := within(t)
	for tick := time.NewTicker(10 * time.Millisecond); !holds(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// A server that is killed and comes back loses nothing; those who work for it go
// on.
func TestServerRestart(t *testing.T) {
	s := alone(t)
	gate := make(chan struct{})
	n := open(t, s.connect(t), engine.Options{Lease: 5 * time.Second}, 2, func(ctx context.Context, x *engine.Execution) nestor.Result {
		if x.Run().Task.Input == "first" {
			<-gate
		}
		return success(x.Run().Task.Input)
	})
	first := n.submit(t, nestor.Task{Input: "first"})
	second := n.submit(t, nestor.Task{Input: "second", After: []nestor.ID{first}})
	waitFor(t, func() bool {
		run, err := n.Get(within(t), first)
		return err == nil && run.Worker != ""
	}, "it is being run")
	s.servers[0].restart()
	s.servers[0].expect("ready")
	close(gate)
	for _, id := range []nestor.ID{first, second} {
		if run := n.wait(t, id); run.State != nestor.Success || run.Fence != 1 {
			t.Errorf("it is %s, fence %d", run.State, run.Fence)
		}
	}
}

// A daemon that is killed goes on at once when it is started again, whatever
// state its runs were in: it does not wait for a lease, which is an hour here.
func TestRestartInEveryState(t *testing.T) {
	port := freePorts(t, 1)[0]
	d := start(t, "daemon", "DIR="+t.TempDir(), "PORT="+strconv.Itoa(port))
	d.expect("ready")
	client := open(t, dial(t, url(port)), engine.Options{Lease: time.Hour}, asker, nil)
	ids := map[string]nestor.ID{}
	for _, what := range []string{"block", "parent", "ask", "ask before", "retry", "cancel"} {
		ids[what] = client.submit(t, nestor.Task{Input: what, Limits: nestor.Limits{Backoff: 2 * time.Second}})
		d.expect("began " + string(ids[what]))
	}
	ids["after"] = client.submit(t, nestor.Task{Input: "after", After: []nestor.ID{ids["block"]}})
	ids["queued"] = client.submit(t, nestor.Task{Input: "queued", Label: "nobody"})
	for what, state := range map[string]nestor.WaitFor{"parent": nestor.ForChildren, "ask": nestor.ForPerson, "ask before": nestor.ForPerson, "retry": nestor.ForRetry, "after": nestor.ForRuns, "queued": nestor.ForSlot} {
		waitFor(t, func() bool {
			run, err := client.Get(within(t), ids[what])
			return err == nil && run.Wait != nil && run.Wait.For == state
		}, what+" waits for "+string(state))
	}
	if err := client.Cancel(within(t), ids["cancel"], nestor.Cause{By: "ada"}, false); err != nil {
		t.Fatal(err)
	}
	if err := client.Answer(within(t), ids["ask before"], nestor.Answer{AskID: "q", Decision: "before"}); err != nil {
		t.Fatal(err)
	}
	d.restart()
	d.expect("ready")
	if err := client.Answer(within(t), ids["ask"], nestor.Answer{AskID: "q", Decision: "after"}); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{"block": "block", "parent": "with child", "ask": "after", "ask before": "before", "retry": "retry", "after": "after"} {
		if run := client.wait(t, ids[what]); run.State != nestor.Success || run.Result.Output != want {
			t.Errorf("%s is %s, %+v", what, run.State, run.Result)
		}
	}
	if run := client.wait(t, ids["cancel"]); run.State != nestor.Cancelled {
		t.Errorf("what was cancelled is %s", run.State)
	}
	if run, err := client.Get(within(t), ids["queued"]); err != nil || run.State != nestor.Queued {
		t.Errorf("what nobody takes is %s, %v", run.State, err)
	}
}

// The deadline that a run has from the one above it ends it, also if whoever works on
// that one is lost and nobody takes its place.
func TestDeadlineOutlivesWhoKeepsIt(t *testing.T) {
	s := alone(t)
	address := s.urls[0][strings.LastIndex(s.urls[0], "@")+1:]
	line := newProxy(t, address)
	began := make(chan nestor.ID, 1)
	near := open(t, s.connect(t), short, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		began <- x.Run().ID
		<-ctx.Done()
		return nestor.Result{Status: nestor.Error}
	}, "near")
	far := dial(t, strings.Replace(s.urls[0], address, line.Addr().String(), 1))
	open(t, far, short, 1, func(ctx context.Context, x *engine.Execution) nestor.Result {
		x.Spawn(ctx, nestor.Task{Label: "near"}, "", 0)
		<-ctx.Done()
		return nestor.Result{Status: nestor.Error}
	}, "far")
	near.submit(t, nestor.Task{Label: "far", Limits: nestor.Limits{Timeout: 2 * time.Second}})
	child := <-began
	line.sever()
	defer line.mend()
	if run := near.wait(t, child); run.State != nestor.Error || run.Result.Error.Kind != nestor.Timeout || run.Cancel.Run != child {
		t.Errorf("it is %s, %+v", run.State, run.Result)
	}
}
