package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/server"
)

// WorkOptions are those of Work. Dir and URL are required.
type WorkOptions struct {
	Dir  string // a folder like the project; runs work in copies of it
	Home string // where its own files are, and the copies; empty means .nestor/worker in Dir
	Name string // of the worker, which runs tell; empty means the machine's, with something random

	URL         string // of the daemon's broker, or of a cluster
	Token       string // that the daemon's broker wants; empty means none
	Credentials string // file, for a cluster; empty means none

	Worker Worker        // its Dir is not used
	Agents Agents        // that runs here start, besides those that are defined in Dir
	Lease  time.Duration // see engine.Options; it is to be the same for all who work on a broker
	Ready  func()        // called once, when runs are taken; nil means nobody
	Log    *slog.Logger  // nil discards
}

// Work takes runs of a daemon on another machine and executes them, until ctx ends;
// then those that are going are given back, to go on elsewhere, and it returns nil.
// A broker that is away is waited for. It fails if the broker does not let it in,
// or if another process works in Home.
//
// It does not decide about what runs tell each other (see [engine.Engine.Run]): who
// does must know the runs that were archived, which only a daemon does.
func Work(ctx context.Context, o WorkOptions) (err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Worker.Log = o.Log
	if o.Home == "" {
		o.Home = filepath.Join(o.Dir, ".nestor", "worker")
	}
	if o.Name == "" {
		o.Name = machine() + "-" + rand.Text()[:4]
	}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		return fmt.Errorf("making the worker's folder: %w", err)
	}
	lock, err := broker.Lock(o.Home)
	if errors.Is(err, broker.ErrLocked) {
		return fmt.Errorf("%w, or give this worker a home of its own", err)
	}
	if err != nil {
		return err
	}
	defer closing(&err, lock.Release)
	b, err := o.dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer closing(&err, b.Close)
	log := eventlog.New(b, eventlog.Options{})
	w, err := o.open(log)
	if err != nil {
		return err
	}
	defer w.runner.Wait()
	var e *engine.Engine
	e, err = engine.New(ctx, b, log, engine.Options{
		Name: o.Name, Lease: o.Lease,
		Ended: func(ctx context.Context, id nestor.ID) (nestor.State, bool) { return endedLong(ctx, e, id) },
	})
	if err != nil {
		return ended(ctx, err)
	}
	w.engine = e
	ln, err := server.Listen(w.socket)
	if err != nil {
		return err
	}
	g, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	core, stopCore := context.WithCancel(failed)
	defer stopCore()
	working, stopWork := context.WithCancel(failed)
	defer stopWork()
	defer context.AfterFunc(ctx, stopWork)()
	g.Go(func() error { return ended(core, log.Run(core)) })
	g.Go(func() error { return w.ready(working) })
	g.Go(func() error {
		defer stopCore()
		parts, working := errgroup.WithContext(working)
		parts.Go(func() error {
			return server.NewAgents(visitors{w, living{e}}, server.Options{Log: o.Log}).Serve(working, ln)
		})
		parts.Go(func() error { return ended(working, e.Work(working, w.taking(o.Worker.Labels))) })
		if o.Ready != nil {
			o.Ready()
		}
		return parts.Wait()
	})
	return g.Wait()
}

func (o WorkOptions) open(log *eventlog.Log) (*worker, error) {
	c, err := newCopies(o.Dir, filepath.Join(o.Home, "runs"), log, o.Log)
	if err != nil {
		return nil, err
	}
	w := o.Worker
	w.Dir, w.copies = o.Dir, c
	opened, err := w.open(o.Home, agentSocket(o.Home), log)
	if err != nil {
		return nil, err
	}
	opened.define, opened.user = newAgents(o.Dir, o.Agents, o.Worker, log).define, o.Agents.User
	return opened, nil
}

// dialAgain is how long it takes until a broker that does not answer is asked
// again.
const dialAgain = time.Second

// dial reaches the broker, however long it takes.
func (o WorkOptions) dial(ctx context.Context) (*broker.Broker, error) {
	for told := false; ; told = true {
		b, err := broker.Open(ctx, broker.Options{URL: o.URL, Token: o.Token, Credentials: o.Credentials, Log: o.Log})
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, broker.ErrRefused):
			return nil, fmt.Errorf("%w: a daemon's broker wants what is in .nestor/broker.token of its project, and a cluster a file of credentials", err)
		case !errors.Is(err, broker.ErrAway):
			return nil, err
		case !told:
			o.Log.Warn("waiting for the broker", "error", err)
		}
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// machine returns the name of this machine.
func machine() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "worker"
	}
	return name
}

// forgottenAfter is how old a run is at least that has no document because it was
// forgotten. One that is younger may be about to get it.
const forgottenAfter = 10 * time.Minute

// endedLong tells whether a run has ended and was forgotten. Only a daemon knows the
// archive; but a run whose submission was acknowledged has a document from then on
// until it is forgotten.
func endedLong(ctx context.Context, e *engine.Engine, id nestor.ID) (nestor.State, bool) {
	if time.Since(id.Time()) < forgottenAfter {
		return "", false
	}
	_, err := e.Get(ctx, id)
	return "", errors.Is(err, nestor.ErrRunNotFound)
}

// living knows the runs that are not forgotten, which are all of a tree that goes on:
// what a machine without the history can tell of them.
type living struct{ engine *engine.Engine }

func (l living) Run(ctx context.Context, id nestor.ID) (api.Run, error) {
	r, err := l.engine.Get(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	return runOf(r, doingOf(r, time.Now())), nil
}

func (l living) Tree(ctx context.Context, id nestor.ID) ([]api.Run, error) {
	run, err := l.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	run.Result = nil
	tree := []api.Run{run}
	for _, child := range run.Children {
		below, err := l.Tree(ctx, child)
		if err != nil && !errors.Is(err, nestor.ErrRunNotFound) { // it is being submitted
			return nil, err
		}
		tree = append(tree, below...)
	}
	return tree, nil
}
