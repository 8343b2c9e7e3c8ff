// Package daemon builds the parts of Nestor and runs them: the broker, the log,
// the engine, the history, a worker with its providers, and the server on a Unix
// socket. It is the only place that knows them all.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/history"
	"github.com/dfaf701a/nestor/internal/server"
	"github.com/dfaf701a/nestor/internal/spawn"
)

// Options are those of a Daemon. Dir is required.
type Options struct {
	Dir     string // the project; its folder .nestor is made
	Version string // of this program, for those who ask
	Lone    bool   // it lives as long as one command
	Idle    bool   // it answers, and executes no runs

	Worker Worker
	Agents Agents
	Broker Broker
	Limits nestor.Limits // of runs that set none; zero means nestor.DefaultLimits
	// ArchiveAfter is how long a tree stays in the log when it has ended; zero
	// means an hour.
	ArchiveAfter time.Duration
	ArchiveEvery time.Duration // how often such trees are looked for, after a first time soon; zero means a minute
	Lease        time.Duration // see engine.Options

	Log *slog.Logger // nil discards
}

// Broker says which broker is used. Its zero value is one in this process.
type Broker struct {
	URL         string // of a cluster; empty means one in this process
	Credentials string // file, for URL
	Listen      string // host:port for workers elsewhere, of one in this process; empty opens none
}

// Daemon owns a project. It may be run once.
type Daemon struct {
	opts  Options
	ready chan struct{} // closed by Run when requests are answered
	addr  string        // of the broker, for workers elsewhere; set before that
}

// ErrOwned says that another process owns the project.
var ErrOwned = errors.New("another process owns the project")

// New returns a daemon. It starts nothing.
func New(o Options) *Daemon {
	if o.ArchiveAfter == 0 {
		o.ArchiveAfter = time.Hour
	}
	if o.ArchiveEvery == 0 {
		o.ArchiveEvery = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Worker.Log = o.Log
	return &Daemon{opts: o, ready: make(chan struct{})}
}

// Ready is closed when the daemon answers.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// BrokerAddr returns where workers elsewhere reach the broker, once the daemon is
// ready; empty if nowhere.
func (d *Daemon) BrokerAddr() string { return d.addr }

// Run opens everything and serves until ctx ends or a part fails; then runs that
// are going are given back, to go on when the project is opened again, and it
// returns. If another process owns the project it fails with ErrOwned.
func (d *Daemon) Run(ctx context.Context) (err error) {
	home := filepath.Join(d.opts.Dir, ".nestor")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("making the project's folder: %w", err)
	}
	if err := ignore(home); err != nil {
		return err
	}
	lock, err := broker.Lock(home)
	if errors.Is(err, broker.ErrLocked) {
		return fmt.Errorf("%w: %w", ErrOwned, err)
	}
	if err != nil {
		return err
	}
	defer closing(&err, lock.Release)
	left, rest, err := begin(home)
	if err != nil {
		return err
	}
	defer rest(&err)
	b, h, err := d.open(ctx, home, left)
	if err != nil {
		return err
	}
	defer closing(&err, func() error { return atOnce(h.Close, b.Close) })
	log := eventlog.New(b, eventlog.Options{Archive: h})
	private := d.opts.Broker == Broker{} // no other process reaches it
	e, err := engine.New(ctx, b, log, engine.Options{
		Sole: private, Alone: private, Settled: settled(home, private), Ended: h.Ended, Lease: d.opts.Lease,
	})
	if err != nil {
		return err
	}
	socket, inside := SocketPath(d.opts.Dir), AgentSocketPath(d.opts.Dir)
	w, err := d.opts.Worker.open(home, inside, log)
	if err != nil {
		return err
	}
	defer w.runner.Wait()
	w.engine, w.shared = e, !private
	ln, err := server.Listen(socket)
	if err != nil {
		return err
	}
	agentLn, err := server.Listen(inside)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	back := &backend{opts: d.opts, broker: b, log: log, engine: e, history: h, worker: w, agents: newAgents(d.opts.Dir, d.opts.Agents, d.opts.Worker, log), began: time.Now()}
	w.define, w.user = back.agents.define, d.opts.Agents.User
	w.spaces.follow = back.critic
	w.folders = spawn.NewFolders(filepath.Join(home, "sessions"), back.topic)

	// What is asked for ends first, then what works, then what it is written down
	// with.
	g, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	core, stopCore := context.WithCancel(failed)
	defer stopCore()
	working, stopWork := context.WithCancel(failed)
	defer context.AfterFunc(ctx, stopWork)()
	g.Go(func() error { return ended(core, log.Run(core)) })
	g.Go(func() error { d.opts.calm(core); return ended(core, e.Run(core)) })
	g.Go(func() error { d.opts.calm(core); return ended(core, h.Project(core, log)) })
	g.Go(func() error { return ended(core, d.archive(core, back)) })
	g.Go(back.sessions(core))
	g.Go(func() error { return watch(core, b) })
	g.Go(func() error { return ended(core, w.spaces.collect(core)) })
	g.Go(func() error { return w.ready(working) })
	g.Go(func() error {
		defer stopCore()
		defer stopWork()
		parts, working := errgroup.WithContext(working)
		if !d.opts.Idle {
			labels := d.opts.Worker.Labels
			if w.shared {
				labels = append(labels[:len(labels):len(labels)], projectLabel)
			}
			parts.Go(func() error { return ended(working, e.Work(working, w.taking(labels))) })
		}
		parts.Go(func() error { return server.New(back, server.Options{Log: d.opts.Log}).Serve(working, ln) })
		parts.Go(func() error {
			return server.NewAgents(visitors{w, back}, server.Options{Log: d.opts.Log}).Serve(working, agentLn)
		})
		return parts.Wait()
	})
	d.addr = b.Addr()
	close(d.ready)
	if err := g.Wait(); err != nil || !private {
		return err
	}
	if err := settle(context.WithoutCancel(ctx), home, e); err != nil {
		d.opts.Log.Warn("noting that nothing is left undone", "error", err)
	}
	return nil
}

// open opens the broker and the history, and kills what an earlier owner of the project
// may have left running, all at once.
func (d *Daemon) open(ctx context.Context, home string, left bool) (b *broker.Broker, h *history.History, err error) {
	var g errgroup.Group
	g.Go(func() (err error) {
		b, err = d.openBroker(ctx, home)
		return err
	})
	g.Go(func() (err error) {
		o := history.Options{Path: filepath.Join(home, "history.db")}
		if d.opts.Lone {
			o.Late = loneLate
		}
		h, err = history.Open(ctx, o)
		return err
	})
	g.Go(func() error {
		if !left {
			return nil
		}
		if n := sweep(api.SocketVariable + "=" + AgentSocketPath(d.opts.Dir)); n > 0 {
			d.opts.Log.Warn("killed what an earlier owner of the project left running", "processes", n)
		}
		return nil
	})
	if err = g.Wait(); err == nil {
		return b, h, nil
	}
	if b != nil {
		closing(&err, b.Close)
	}
	if h != nil {
		closing(&err, h.Close)
	}
	return nil, nil, err
}

func (d *Daemon) openBroker(ctx context.Context, home string) (*broker.Broker, error) {
	o := broker.Options{URL: d.opts.Broker.URL, Credentials: d.opts.Broker.Credentials, Log: d.opts.Log}
	if o.URL == "" {
		o.Dir = filepath.Join(home, "broker")
	}
	if d.opts.Broker.Listen != "" {
		var err error
		if o.Listen, err = listen(home, d.opts.Broker.Listen); err != nil {
			return nil, err
		}
	}
	return broker.Open(ctx, o)
}

// loneLate is how late the history of a command that works alone may be while events
// keep coming: hardly anybody but the command is there, and each batch takes processor
// time from its run.
const loneLate = 5 * time.Second

// calmFor is how long a command that works alone has the machine for the start of its
// run. Parts that it does not need for that would take as much of two processors.
const calmFor = 15 * time.Millisecond

// calm waits for so long.
func (o Options) calm(ctx context.Context) {
	if !o.Lone || o.Idle {
		return
	}
	select {
	case <-time.After(calmFor):
	case <-ctx.Done():
	}
}

// archiveFirst is when trees to archive are first looked for: commands that end
// within a minute should leave no log that only grows.
const archiveFirst = time.Second

// archive archives trees until ctx ends.
func (d *Daemon) archive(ctx context.Context, back *backend) error {
	tick := time.NewTicker(min(archiveFirst, d.opts.ArchiveEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(d.opts.ArchiveEvery)
			if err := back.archive(ctx, d.opts.ArchiveAfter); err != nil && ctx.Err() == nil {
				d.opts.Log.Warn("archiving", "error", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// watch fails when the broker does.
func watch(ctx context.Context, b *broker.Broker) error {
	select {
	case <-b.Failed():
		return b.Explain(errors.New("the broker has failed"))
	case <-ctx.Done():
		return nil
	}
}

// ended is the error of a part that should run until ctx ends.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// closing closes a part, and joins what goes wrong to err.
func closing(err *error, close func() error) {
	*err = errors.Join(*err, close())
}

// atOnce does several things at once.
func atOnce(do ...func() error) error {
	errs := make([]error, len(do))
	var all sync.WaitGroup
	for i, f := range do {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Owner returns the process that has a project, or had it last; zero if that is not
// known.
func Owner(project string) (pid int) {
	text, err := os.ReadFile(filepath.Join(project, ".nestor", "lock"))
	if err != nil {
		return 0
	}
	pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}
