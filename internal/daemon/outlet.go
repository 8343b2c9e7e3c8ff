package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/proxy"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/sandbox"
)

// hostsOf returns the hosts that a run may reach; nil means that no list bounds it.
func (p *policy) hostsOf(o api.TaskOptions) []string {
	if o.Hosts != nil {
		return o.Hosts
	}
	return p.own.hosts
}

// levelOf returns the level of a run's sandbox. Who names hosts wants them enforced.
func (p *policy) levelOf(o api.TaskOptions) (sandbox.Level, error) {
	if p.hostsOf(o) != nil {
		return sandbox.Strict, nil
	}
	if o.Sandbox != "" {
		return sandbox.ParseLevel(o.Sandbox)
	}
	return p.own.level, nil
}

// letOut gives a run a network of its own, whose only way out leads to these hosts,
// as far as its role may reach them, and to the model that its CLI speaks to.
func (p *policy) letOut(s *sandbox.Profile, r *runner.Rights, run runner.Run, hosts []string, role *permission.Policy, provider string) error {
	if role != nil {
		hosts = permission.MeetHosts(hosts, role.Hosts)
		if !role.Web {
			hosts = nil
		}
	}
	o := proxy.Options{Hosts: hosts, Hint: "whoever starts the run can allow it, with --allow-host or sandbox_hosts in the config"}
	if provider == claudecode.Type {
		model, err := modelHost(slices.Concat(r.BaseEnv, p.cli.Env, run.Env))
		if err != nil {
			return err
		}
		o.Own = []string{model}
	}
	s.Network, s.Outlet = sandbox.Hosts, p.temp(run.ID, run.Attempt)+".outlet"
	dial, err := p.outlets.open(attempt{run.ID, run.Attempt}, s.Outlet, o)
	if err != nil {
		return err
	}
	r.Dial = dial
	r.Env = append(r.Env, outletVariables()...)
	return nil
}

// outletVariables tell programs the way out. Nothing goes around it, also not what is
// said to be on the same machine.
func outletVariables() (env []string) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		for _, name := range []string{name, strings.ToLower(name)} {
			env = append(env, name+"=http://"+sandbox.OutletAddress)
		}
	}
	return append(env, "NO_PROXY=", "no_proxy=", "NODE_USE_ENV_PROXY=1")
}

// modelHost returns the host of the model that the Claude CLI speaks to with that
// environment, with its port.
func modelHost(env []string) (string, error) {
	const variable = "ANTHROPIC_BASE_URL"
	base := ""
	for _, kv := range env { // the last one counts
		if value, ok := strings.CutPrefix(kv, variable+"="); ok {
			base = value
		}
	}
	u, err := url.Parse(cmp.Or(base, "https://api.anthropic.com"))
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s is %.100q, which names no host: want a URL such as https://api.anthropic.com", variable, base)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// outlets are the ways out of the networks of runs.
type outlets struct {
	// record puts on record what an attempt's processes reached. It is set before runs
	// are executed.
	record func(attempt, nestor.Event)

	mu   sync.Mutex // guards what follows
	list map[attempt]*outlet
}

// outlet is the way out of one attempt's networks, of which each of its commands may
// have one.
type outlet struct {
	socket *sandbox.Outlet
	proxy  *proxy.Proxy
	done   chan error // what serving it ended with, sent once
}

// open opens the way out of an attempt at a socket, unless it is open, and returns
// what goes the same way in this process.
func (a *outlets) open(of attempt, path string, o proxy.Options) (agent.Dial, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if out := a.list[of]; out != nil {
		return out.proxy.Dial, nil
	}
	o.Report = func(c proxy.Connection) { a.record(of, connectionOf(c)) }
	p, err := proxy.New(o)
	if err != nil {
		return nil, err
	}
	socket, err := sandbox.ListenOutlet(path)
	if err != nil {
		return nil, err
	}
	out := &outlet{socket: socket, proxy: p, done: make(chan error, 1)}
	go func() { // close waits for it
		var failed error
		var mu sync.Mutex
		err := socket.Serve(context.Background(), func(ctx context.Context, l net.Listener) {
			err := p.Serve(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
		out.done <- errors.Join(err, failed)
	}()
	if a.list == nil {
		a.list = map[attempt]*outlet{}
	}
	a.list[of] = out
	return p.Dial, nil
}

// close closes the way out of an attempt, if it has one, and returns when all that
// went there is over and on record.
func (a *outlets) close(of attempt) error {
	a.mu.Lock()
	out := a.list[of]
	delete(a.list, of)
	a.mu.Unlock()
	if out == nil {
		return nil
	}
	return errors.Join(out.socket.Close(), <-out.done)
}

func connectionOf(c proxy.Connection) *nestor.NetworkDial {
	e := &nestor.NetworkDial{
		Host: c.Host, Port: c.Port, Allowed: c.Allowed, Rule: c.Rule, Reason: c.Reason, Sent: c.Sent, Received: c.Received, Millis: c.Took.Milliseconds(),
	}
	if c.Address.IsValid() {
		e.Address = c.Address.String()
	}
	return e
}

// record puts an event of an attempt that is being executed on record.
func (w *worker) record(of attempt, e nestor.Event) {
	w.mu.Lock()
	m := w.rooms[of]
	w.mu.Unlock()
	if m == nil {
		w.notes.Warn("a connection is not on record", "run", of.run, "error", "the attempt is over")
		return
	}
	m.mu.Lock()
	h := m.host
	m.mu.Unlock()
	*e.Head() = nestor.Header{Time: time.Now().UTC(), Run: h.run.ID, Root: h.run.Root, Depth: h.run.Depth()}
	ctx, stop := context.WithTimeout(context.Background(), flushFor)
	defer stop()
	if err := h.Append(ctx, e); err != nil {
		w.notes.Warn("a connection is not on record", "run", of.run, "error", err)
	}
}
