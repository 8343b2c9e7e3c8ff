// Package runner executes one run: it opens the workspace, makes the agent that
// the task asks for, gives it the input, turns what it says into events, keeps
// the limits, and makes the result. There is exactly one.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
)

// Run is what is to be executed.
type Run struct {
	ID, Root nestor.ID
	Depth    int
	Task     nestor.Task // with its limits as they were granted
	Attempt  uint64      // which attempt this is, from 1
	// Session is the provider's session of an attempt that was cut off, which this
	// one goes on with; empty begins anew.
	Session string
	Env     []string // K=V, for what the agent starts
}

// Log is where the events of a run go.
type Log interface {
	// Append returns when the events are durable.
	Append(ctx context.Context, events ...nestor.Event) error
	// Delta says what is live only. It does not wait.
	Delta(event nestor.Event)
}

// Workspace is where runs work.
type Workspace interface {
	// Open returns the folder of a run. Close is called once, when nothing of the
	// run uses it any more.
	Open(ctx context.Context, run Run) (dir string, close func() error, err error)
}

// Policy says what runs may do.
type Policy interface {
	Rights(run Run) Rights
}

// Rights are what a run may do.
type Rights struct {
	Tools []string     // that exist for it, and need no question; nil means all
	Mode  string       // of permissions; empty means acceptEdits
	Ask   agent.Config // CanUseTool and Hooks of it decide about the rest; zero denies
}

// Options are those of a Runner. Providers is required.
type Options struct {
	Providers *agent.Providers
	Provider  string    // of tasks that name none; required if such tasks come
	Workspace Workspace // nil means Dir("")
	Policy    Policy    // nil means that all tools exist and none is approved
	// Grace is how long an agent that was told to stop may take until it is
	// given up; zero means 10 s.
	Grace time.Duration
	Log   *slog.Logger // gets what can be said nowhere else; nil discards
}

// Runner executes runs. Its methods may be called from any goroutine.
type Runner struct{ opts Options }

// New returns a runner.
func New(opts Options) *Runner {
	if opts.Workspace == nil {
		opts.Workspace = Dir("")
	}
	if opts.Grace == 0 {
		opts.Grace = 10 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Runner{opts: opts}
}

// Dir is a Workspace in which a run works in the folder that its task names, or
// else in this one; empty means the current directory.
type Dir string

// Open returns the folder.
func (d Dir) Open(_ context.Context, run Run) (string, func() error, error) {
	dir := string(d)
	if run.Task.Dir != "" {
		dir = run.Task.Dir
	}
	return dir, func() error { return nil }, nil
}

// errSilent ends the work of an agent that gives no sign of life.
var errSilent = errors.New("no sign of life")

// Execute executes a run and returns its result. When ctx ends, the agent is
// stopped, and the result says what there is; a *nestor.Cause as the context's
// cause is what ended it. What the run has spent so far is told to spent, in USD;
// nil tells nobody.
func (r *Runner) Execute(ctx context.Context, run Run, log Log, spent func(usd float64)) nestor.Result {
	if spent == nil {
		spent = func(float64) {}
	}
	c := &conversation{run: run, log: log, spent: spent, tools: map[string]string{}}
	err := r.converse(ctx, run, c)
	result := c.result(ctx, err)
	if f := result.Error; f != nil {
		// What ended it is on record also if the context has ended.
		note, stop := context.WithTimeout(context.WithoutCancel(ctx), r.opts.Grace)
		defer stop()
		if err := c.say(note, &nestor.ErrorEvent{Message: f.Message, Kind: f.Kind}); err != nil {
			r.opts.Log.Warn("the end of a run is not on record", "run", run.ID, "error", err)
		}
	}
	return result
}

// converse has the agent work, and returns what went wrong.
func (r *Runner) converse(ctx context.Context, run Run, c *conversation) (failure error) {
	name := run.Task.Provider
	if name == "" {
		name = r.opts.Provider
	}
	provider, err := r.opts.Providers.Get(name)
	if err != nil {
		return &nestor.Failure{Kind: nestor.Provider, Message: err.Error()}
	}
	dir, closeDir, err := r.opts.Workspace.Open(ctx, run)
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", err)
	}
	defer func() {
		if err := closeDir(); err != nil {
			failure = errors.Join(failure, fmt.Errorf("closing the workspace: %w", err))
		}
	}()
	a, err := provider.Create(ctx, r.config(run, name, dir))
	if err != nil {
		return err
	}
	defer func() {
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), r.opts.Grace)
		defer stop()
		if err := a.Shutdown(ending); err != nil {
			r.opts.Log.Warn("an agent did not end in time", "run", run.ID, "error", err)
		}
	}()
	c.agent = a.Name()
	if err := c.say(ctx, &nestor.ChatStart{Message: run.Task.Input}, &nestor.AgentStart{Agent: a.Name(), AgentType: name}); err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	alive := watch(run.Task.Limits.Silence, func() { stop(errSilent) })
	defer alive.stop()
	for m, err := range a.Handle(work, message(run)) {
		if err != nil {
			if errors.Is(context.Cause(work), errSilent) {
				return errSilent
			}
			return err
		}
		alive.sign()
		if err := c.hear(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// message is what the agent is given.
func message(run Run) agent.Message {
	m := agent.NewMessage("nestor", run.Task.Input)
	if run.Session != "" {
		m.Content = "You were interrupted. Go on with what you were asked to do; look first at what is already done."
	}
	return m
}

// config makes the agent's config of a task.
func (r *Runner) config(run Run, provider, dir string) agent.Config {
	t := run.Task
	c := agent.Config{
		Name: t.Agent, Provider: provider, Model: t.Model, Dir: dir, Schema: t.Schema, Env: run.Env, Resume: run.Session,
		Limits: agent.Limits{MaxTurns: t.Limits.Turns, MaxBudgetUSD: t.Limits.BudgetUSD},
		// Texts come also as they are written.
		Credentials: map[string]string{"partial": "true"},
	}
	if c.Name == "" {
		c.Name = "agent"
	}
	if r.opts.Policy != nil {
		rights := r.opts.Policy.Rights(run)
		c.AllowedTools, c.PermissionMode = rights.Tools, rights.Mode
		c.CanUseTool, c.Hooks = rights.Ask.CanUseTool, rights.Ask.Hooks
	}
	return c
}
