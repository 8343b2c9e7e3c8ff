// Package proxy lets programs out to the hosts of a list, and reports every
// connection that they make or want to make.
//
// It speaks HTTP/1.1 as proxies do: CONNECT for whatever is encrypted, and requests
// with an absolute URL for what is not, one for each connection. Names are resolved
// here, and the address that was looked at is the one that is connected to.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/internal/permission"
)

// Options are those of a Proxy. The zero value lets nothing out.
type Options struct {
	// Hosts are those that may be reached, see [permission.ParseHost]. A name whose
	// address is private, such as that of this machine, needs the address in the list
	// too.
	Hosts []string
	// Own are hosts that may be reached wherever they are.
	Own []string
	// Report is called for each connection when it is over, also for one that was
	// refused, from any goroutine. The proxy goes on when it returns. Nil tells nobody.
	Report func(Connection)

	Most  int           // connections in all, beyond which all are refused; zero means 10,000
	Once  int           // connections at once, beyond which they wait; zero means 64
	Begin time.Duration // how long a request, and connecting, may take; zero means 30 s
	Idle  time.Duration // without a byte, after which a connection is closed; zero means 10 minutes

	// Hint is what who is refused is told behind the reason: what to do about it. Empty
	// means nothing.
	Hint string

	// Resolve returns the addresses of a name, and Dial connects to one of them; nil
	// asks the system.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// Connection is one that was made, or refused.
type Connection struct {
	Host     string         // as it was asked for; empty if that cannot be told
	Port     int            // zero if it cannot be told
	Address  netip.AddrPort // that was connected to; not valid if none was
	Allowed  bool           // by the list
	Rule     string         // what allowed it, or refused it
	Reason   string         // why it was refused, or failed; empty if it did not
	Sent     int64          // bytes, to the host
	Received int64          // bytes, from it
	Began    time.Time
	Took     time.Duration
}

// Proxy lets connections out. Its methods may be called from any goroutine.
type Proxy struct {
	opts  Options
	hosts []permission.Host
	own   []permission.Host
	slots chan struct{} // one is in it for each connection that is being served

	mu    sync.Mutex // guards what follows
	count int        // connections so far
}

// New returns a proxy. It fails if the options name what is no host.
func New(o Options) (*Proxy, error) {
	o.Most, o.Once = cmp.Or(o.Most, 10_000), cmp.Or(o.Once, 64)
	o.Begin, o.Idle = cmp.Or(o.Begin, 30*time.Second), cmp.Or(o.Idle, 10*time.Minute)
	if o.Report == nil {
		o.Report = func(Connection) {}
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	p := &Proxy{opts: o, slots: make(chan struct{}, o.Once)}
	for _, list := range []struct {
		from []string
		to   *[]permission.Host
	}{{o.Hosts, &p.hosts}, {o.Own, &p.own}} {
		for _, text := range list.from {
			h, err := permission.ParseHost(text)
			if err != nil {
				return nil, fmt.Errorf("hosts of the proxy: %w", err)
			}
			*list.to = append(*list.to, h)
		}
	}
	return p, nil
}

// refusal is why an endpoint may not be reached.
type refusal struct{ rule, reason string }

func (r *refusal) Error() string { return r.reason }

// allowed returns what lets an endpoint be reached, and whether wherever it is.
func (p *Proxy) allowed(e permission.Endpoint) (rule string, anywhere bool, err error) {
	holds := func(h permission.Host) bool { return h.Holds(e) }
	if i := slices.IndexFunc(p.own, holds); i >= 0 {
		return "own " + p.own[i].String(), true, nil
	}
	if i := slices.IndexFunc(p.hosts, holds); i >= 0 {
		return "host " + p.hosts[i].String(), e.Addr.IsValid(), nil
	}
	return "", false, &refusal{"hosts", fmt.Sprintf("%s is not among the hosts that may be reached: %s", e, p.named())}
}

// named lists the hosts that may be reached, for people.
func (p *Proxy) named() string {
	const most = 20
	var list []string
	for _, h := range slices.Concat(p.own, p.hosts) {
		if len(list) == most {
			list = append(list, "…")
			break
		}
		list = append(list, h.String())
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// listed tells whether the list says an address itself.
func (p *Proxy) listed(addr netip.Addr, port uint16) bool {
	e := permission.Endpoint{Addr: addr, Port: port}
	return slices.ContainsFunc(p.hosts, func(h permission.Host) bool { return h.Holds(e) })
}

// maxTries is how many addresses of a name are tried.
const maxTries = 4

// connect connects to an endpoint that is allowed, and takes down in c what came
// of it.
func (p *Proxy) connect(ctx context.Context, e permission.Endpoint, c *Connection) (net.Conn, error) {
	c.Host, c.Port = e.Host(), int(e.Port)
	rule, anywhere, err := p.allowed(e)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, p.opts.Begin, fmt.Errorf("connecting to %s took more than %v", e, p.opts.Begin))
	defer stop()
	addrs := []netip.Addr{e.Addr}
	if !e.Addr.IsValid() {
		if addrs, err = p.opts.Resolve(ctx, e.Name); err != nil {
			c.Allowed, c.Rule = true, rule
			return nil, fmt.Errorf("finding %s: %w", e.Name, err)
		}
	}
	var open []netip.Addr
	for _, addr := range addrs {
		addr = addr.Unmap()
		if anywhere || public(addr) || p.listed(addr, e.Port) {
			open = append(open, addr)
		}
	}
	if len(open) == 0 {
		return nil, &refusal{"private address", fmt.Sprintf("%s is at %v, a private address: who wants it to be reached allows the address itself", e.Name, addrs)}
	}
	c.Allowed, c.Rule = true, rule
	for _, addr := range open[:min(len(open), maxTries)] {
		var conn net.Conn
		to := netip.AddrPortFrom(addr, e.Port)
		if conn, err = p.opts.Dial(ctx, "tcp", to.String()); err == nil {
			c.Address = to
			return conn, nil
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}

// special are addresses that package netip calls global and that are not, or that
// stand for others.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fec0::/10"),
}

// public tells whether an address is neither this machine's nor of a network around
// it.
func public(addr netip.Addr) bool {
	return addr.IsGlobalUnicast() && !addr.IsPrivate() && addr.Zone() == "" && !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// begin counts a connection, and tells whether it may be made.
func (p *Proxy) begin() (ok, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	return p.count <= p.opts.Most, p.count == p.opts.Most+1
}

// end reports a connection that is over.
func (p *Proxy) end(c *Connection, err error) {
	c.Took = time.Since(c.Began)
	if err != nil {
		c.Reason = err.Error()
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		c.Allowed, c.Rule = false, r.rule
	}
	p.opts.Report(*c)
}

// Dial connects to an address as somebody behind the proxy could, for what is done
// in this process on their behalf. The connection is reported when it is closed.
func (p *Proxy) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c := &Connection{Began: time.Now()}
	fail := func(err error) (net.Conn, error) {
		p.end(c, err)
		return nil, err
	}
	if ok, _ := p.begin(); !ok {
		return nil, p.tooMany()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || network != "tcp" {
		return fail(&refusal{"request", fmt.Sprintf("%s %q is no address of a host", network, clip(address))})
	}
	e, err := permission.ParseEndpoint(host, port)
	if err != nil {
		return fail(&refusal{"request", err.Error()})
	}
	conn, err := p.connect(ctx, e, c)
	if err != nil {
		return fail(err)
	}
	counting := newCounted(conn, nil)
	return &dialled{counting, sync.OnceValue(func() error {
		err := conn.Close()
		c.Sent, c.Received = counting.wrote.Load(), counting.read.Load()
		p.end(c, nil)
		return err
	})}, nil
}

// tooMany is why nothing more is let out.
func (p *Proxy) tooMany() error {
	return &refusal{"number of connections", fmt.Sprintf("more than %d connections were made, and no more are", p.opts.Most)}
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), 200)], "\ufffd") }
