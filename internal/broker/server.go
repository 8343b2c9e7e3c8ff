package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Listen is how others reach the embedded server. Clients and other servers
// of the cluster show the token; nobody is let in without.
type Listen struct {
	Host  string // empty means 127.0.0.1
	Port  int    // for clients; zero means none is opened, -1 a free one
	Token string // required with Port; clients dial nats://nestor:TOKEN@host:port

	// Cluster is the name of the cluster that the server forms with others;
	// empty means that it stands alone.
	Cluster     string
	Name        string   // of this server, which must stay the same and be its own; required in a cluster
	ClusterPort int      // for the other servers; required in a cluster
	Routes      []string // host:port of other servers; those that they know are found
}

// user is the name that a client of a listening server gives with its token.
const user = "nestor"

func (l Listen) check() error {
	switch {
	case l.Port == 0 && (l.Cluster != "" || l.Token != ""):
		return errors.New("listen: no port for clients is given")
	case l.Port != 0 && l.Token == "":
		return errors.New("listen: a port without a token would let everybody in: set one")
	case l.Cluster != "" && (l.Name == "" || l.ClusterPort == 0):
		return fmt.Errorf("listen: a server of the cluster %s needs a name of its own and a port for the others", l.Cluster)
	case l.Cluster == "" && len(l.Routes) > 0:
		return errors.New("listen: routes without the name of a cluster")
	}
	return nil
}

// embeddedTimeout is how long a server in this process may take to answer: it is slow
// where the whole machine is.
const embeddedTimeout = 30 * time.Second

// embed starts the server, and checks that it found what was in the folder. It
// returns what it found if the last user of the folder left it in order.
func (b *Broker) embed(ctx context.Context, o Options) (left streams, err error) {
	if err := o.Listen.check(); err != nil {
		return nil, fmt.Errorf("opening the broker in %s: %w", o.Dir, err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the broker's folder: %w", err)
	}
	if b.lock, err = Lock(o.Dir); err != nil {
		return nil, err
	}
	options, err := serverOptions(o)
	if err != nil {
		return nil, fmt.Errorf("opening the broker in %s: %w", o.Dir, err)
	}
	single := o.Listen.Cluster == "" // a cluster repairs its members
	var before inventory
	var clean bool
	var srv *server.Server // made meanwhile: it looks at no file before it is started
	var g errgroup.Group
	g.Go(func() (err error) {
		if single {
			before, clean, err = b.examine(o)
		}
		return err
	})
	g.Go(func() (err error) {
		if srv, err = server.NewServer(options); err != nil {
			return fmt.Errorf("making the broker's server in %s: %w", o.Dir, err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	b.log = &serverLog{to: o.Log, failed: make(chan struct{})}
	srv.SetLoggerV2(b.log, false, false, false)
	b.srv = srv
	if single {
		g.Go(func() error { return b.marks.use(o.AcceptDamage) })
	}
	if o.Listen.Port != 0 { // who dials may store something at once; else it only reads meanwhile
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	srv.Start()
	if err := errors.Join(b.ready(ctx), g.Wait()); err != nil {
		return nil, err
	}
	if b.nc, err = nats.Connect("", append(connection(o.Log), nats.InProcessServer(srv), nats.Timeout(embeddedTimeout), nats.UserInfo(user, o.Listen.Token))...); err != nil {
		return nil, fmt.Errorf("connecting to the broker in %s: %w", o.Dir, b.Explain(err))
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return nil, err
	}
	if !single {
		return nil, b.clusterReady(ctx)
	}
	state, err := b.state()
	if err != nil {
		return nil, err
	}
	if lost := b.marks.lost(before, state); len(lost) > 0 {
		if !o.AcceptDamage {
			return nil, b.damaged(lost)
		}
		o.Log.Warn("going on with damaged files of the broker", "dir", o.Dir, "lost", strings.Join(lost, "; "))
		return nil, before.putAside(o.Dir, state)
	}
	if !clean {
		return nil, nil
	}
	return state, nil
}

// examine compares the files with the marks before the server touches them. It returns
// what is there, and whether its last user ended in order.
func (b *Broker) examine(o Options) (before inventory, clean bool, err error) {
	if b.marks, err = readMarks(o.Dir); err != nil {
		return nil, false, err
	}
	if o.AcceptDamage {
		b.first = b.marks.beyond()
	}
	clean = b.marks.Clean && !o.AcceptDamage
	before, err = b.marks.begin(o.AcceptDamage)
	return before, clean, err
}

func serverOptions(o Options) (*server.Options, error) {
	s := &server.Options{
		ServerName: "nestor",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   o.Dir,

		// Without this a power cut loses what was acknowledged in the last two
		// minutes. It is not an option of ours.
		SyncAlways:   true,
		SyncInterval: 2 * time.Minute, // of what is not a message, such as a consumer's state between syncs

		// By default the limits are three quarters of the memory and of what is
		// free on disk when the server starts, and what it holds already counts.
		JetStreamMaxMemory: 16 << 20,
		JetStreamMaxStore:  1 << 50,

		// What may wait for one stream's disk. The default is 128 MiB.
		StreamMaxBufferedSize: 32 << 20,
		MaxClosedClients:      16, // kept for monitoring, which is not on; the default is 10,000

		DisableJetStreamBanner: true,
	}
	l := o.Listen
	if l.Port == 0 {
		return s, nil
	}
	s.DontListen = false
	s.Host, s.Port = "127.0.0.1", l.Port
	if l.Host != "" {
		s.Host = l.Host
	}
	s.Username, s.Password = user, l.Token
	if l.Name != "" {
		s.ServerName = l.Name
	}
	if l.Cluster == "" {
		return s, nil
	}
	s.Cluster = server.ClusterOpts{
		Name: l.Cluster, Host: s.Host, Port: l.ClusterPort,
		Username: user, Password: l.Token,
	}
	for _, route := range l.Routes {
		s.Routes = append(s.Routes, &url.URL{Scheme: "nats-route", Host: route, User: url.UserPassword(user, l.Token)})
	}
	return s, nil
}

// ready waits until the server can be used or has given up.
func (b *Broker) ready(ctx context.Context) error {
	for !b.srv.ReadyForConnections(25 * time.Millisecond) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("starting the broker in %s: %w", b.dir, context.Cause(ctx))
		case <-b.log.failed:
		default:
			continue
		}
		break
	}
	if line := b.log.failure(); line != "" || !b.srv.JetStreamEnabled() {
		if line == "" {
			line = "the server did not start"
		}
		return fmt.Errorf("starting the broker in %s: %s: see that the folder is writable, its disk has space and its ports are free", b.dir, line)
	}
	return nil
}

// clusterReady waits until the cluster has a leader that answers.
func (b *Broker) clusterReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := b.js.AccountInfo(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster of the broker in %s: %w (%v): start the other servers", b.dir, context.Cause(ctx), err)
		}
	}
}

// Addr is where clients dial the embedded server, without the token; empty if
// it opened no port.
func (b *Broker) Addr() string {
	if b.srv == nil || b.srv.Addr() == nil {
		return ""
	}
	return b.srv.Addr().String()
}

// redacted hides the passwords in a list of URLs.
func redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, one := range list {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			list[i] = u.Redacted()
		} else {
			list[i] = "(not a URL)"
		}
	}
	return strings.Join(list, ",")
}

// serverLog is where the embedded server writes. It hands warnings on and
// remembers the first sign that the server cannot go on.
type serverLog struct {
	to *slog.Logger

	failed chan struct{} // closed by fail

	mu    sync.Mutex
	first string // of the errors that close failed
}

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

func (l *serverLog) Warnf(format string, args ...any) {
	line := strings.TrimSpace(fmt.Sprintf(format, args...))
	if strings.HasPrefix(line, "Plaintext passwords") {
		return // it means the token, which nobody could write better
	}
	l.to.Warn("broker's server warns", "message", line)
}

func (l *serverLog) Errorf(format string, args ...any) {
	line := strings.TrimSpace(fmt.Sprintf(format, args...))
	l.to.Error("broker's server failed", "message", line)
	// The server has no other way to say so (seen in 2.15.2).
	if strings.Contains(strings.ToLower(line), "critical write error") || strings.Contains(line, "will be DISABLED") {
		l.fail(line)
	}
}

// Fatalf does not end the process, as the server expects it to.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.fail(strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l *serverLog) fail(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = line
		close(l.failed)
	}
}

func (l *serverLog) failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
