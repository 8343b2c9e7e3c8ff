// Package runner executes one run: it opens the workspace, makes the agent that
// the task asks for, gives it the input, turns what it says into events, keeps
// the limits, and makes the result. There is exactly one.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// Run is what is to be executed.
type Run struct {
	ID, Root nestor.ID
	Depth    int
	Task     nestor.Task // with its limits as they were granted
	Attempt  uint64      // which attempt this is, from 1
	Session  string      // of the provider, which it goes on with; empty begins a new one
	// Interrupted says that Session is that of an earlier attempt at the same task:
	// the agent is told to go on with it, and if the session is gone it begins
	// anew.
	Interrupted bool
	Env         []string // K=V, for what the agent starts
	Own         []string // likewise, that no other run has

	Folder string // that it may read besides its own; empty means none
	// Ask asks a person about a call that the policy wants asked about; nil means
	// that nobody is there. It may be called from any goroutine.
	Ask func(ctx context.Context, tool string, input json.RawMessage, reason string) (Verdict, error)

	Servers  map[string]agent.MCPServer // whose tools it has besides its own, by name; they change no files
	Approved []string                   // tools that need no question, whatever its rights say of others
	Denied   []string                   // tools that do not exist for it, likewise
	Spawner  agent.Spawner              // among them, with which it starts other runs
}

// Host is whom a run is executed for. Its methods may be called from any
// goroutine.
type Host interface {
	// Append takes events down, in order. They are durable before the host takes
	// note of the result.
	Append(ctx context.Context, events ...nestor.Event) error
	// Delta says what is live only. It does not wait.
	Delta(event nestor.Event)
	// Began says which session of the provider the run has. When it returns, a
	// later attempt can go on with it.
	Began(ctx context.Context, session string) error
	// Spent says what the attempt has spent so far, in USD.
	Spent(usd float64)
	// Letters returns what was written to the run behind letter n, in order, and
	// a channel that is closed when there may be more.
	Letters(n int) ([]Letter, <-chan struct{})
	// Heard says that the agent has dealt with the letters up to n.
	Heard(n int)
	// Expect waits for a letter behind number n, if one is to come by itself, of
	// what the run has started. It returns false if none is.
	Expect(ctx context.Context, n int) (bool, error)
	// Rested returns when the run last waited for others, now if it does: an agent
	// gives no sign of life meanwhile. Zero means never.
	Rested() time.Time
}

// Letter is what somebody wrote to a run.
type Letter struct {
	N       int // its number in the run, from 1
	From    string
	Content string
}

// Policy says what runs may do.
type Policy interface {
	// Rights returns what a run may do that works there, or why it may not run.
	Rights(run Run, place Place) (Rights, error)
}

// Rights are what a run may do.
type Rights struct {
	Tools []string     // that exist for it, and need no question; nil means all
	Mode  string       // of permissions; empty means acceptEdits
	Ask   agent.Config // CanUseTool and Hooks of it decide about the rest; zero denies
	Read  []string     // folders elsewhere that it may read
	// Decide decides about every tool call, before all else; nil leaves it to the
	// others. What it decides is on record.
	Decide func(tool string, input json.RawMessage) Verdict
	Env    []string // K=V, for what the agent starts
	// BaseEnv is what Env, that of the run and that of its place are added to; nil
	// means the environment of this process.
	BaseEnv []string
	// Exceeded returns what was stopped since because it used too much of the
	// machine, a line for each; nil means that nothing is.
	Exceeded func() []string
	// Ends says that what the run's processes use is taken away when it ends: they
	// have to be gone by then.
	Ends bool
	// Wrap returns the command line that is started instead of argv, for every
	// process of the run; nil means argv.
	Wrap func(argv []string) []string
	// Dial connects what works for the run in this process to hosts; nil leaves it to
	// the provider.
	Dial agent.Dial
}

// Verdict says whether a tool call may be made.
type Verdict struct {
	Allowed bool
	Ask     bool   // a person decides, if one is there
	Reason  string // that the agent is told, or the person; empty if it is allowed
	Rule    string // what made it, for people
}

// Options are those of a Runner. Providers is required.
type Options struct {
	Providers *agent.Providers
	Provider  string    // of tasks that name none; required if such tasks come
	Workspace Workspace // nil means Dir("")
	Settings  []string  // sources of the provider's settings: user, project, local; nil means none
	Policy    Policy    // nil means that all tools exist and none is approved
	// Brief returns what the definition of its agent makes of a run that works there
	// with these rights; nil means that there are no definitions.
	Brief func(ctx context.Context, run Run, place Place, rights Rights) (Brief, error)
	// Grace is how long an agent that was told to stop may take until it is
	// given up; zero means 10 s.
	Grace time.Duration
	Log   *slog.Logger // gets what can be said nowhere else; nil discards
}

// Runner executes runs. Its methods may be called from any goroutine.
type Runner struct {
	opts    Options
	leaving *leaving // agents that end behind their runs
}

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
	return &Runner{opts: opts, leaving: &leaving{hurry: make(chan struct{}), sessions: map[string]*leaver{}}}
}

// Provider returns the type of the provider that a task runs on.
func (r *Runner) Provider(t nestor.Task) string {
	if t.Provider != "" {
		return t.Provider
	}
	return r.opts.Provider
}

// Execute executes a run and returns its result. When ctx ends, the agent is
// stopped, and the result says what there is; a *nestor.Cause as the context's
// cause is what ended it.
//
// An agent that has said its last may still be ending when Execute returns, if
// nothing that it has started could change anything meanwhile; see [Runner.Wait].
func (r *Runner) Execute(ctx context.Context, run Run, host Host) nestor.Result {
	c := newConversation(run, host)
	place, err := r.opts.Workspace.Open(ctx, run)
	if err != nil {
		err = fmt.Errorf("opening the workspace: %w", err)
	} else {
		c.writes = newWrites(place, c)
		err = r.converse(ctx, run, place, c)
		if err := c.writes.end(ctx, r.opts.Grace); err != nil {
			r.opts.Log.Warn("what a run changed is not all on record", "run", run.ID, "error", err)
		}
	}
	result := c.result(ctx, err)
	if err := c.overrun(ctx, r.opts.Grace, &result); err != nil {
		r.opts.Log.Warn("what a run used too much of is not on record", "run", run.ID, "error", err)
	}
	place.End(&result)
	if result.Error != nil {
		// What ended it is on record also if the context has ended.
		note, stop := context.WithTimeout(context.WithoutCancel(ctx), r.opts.Grace)
		defer stop()
		if err := c.explain(note, ctx, result.Error); err != nil {
			r.opts.Log.Warn("the end of a run is not on record", "run", run.ID, "error", err)
		}
	}
	return result
}

// converse has an agent work, and returns what went wrong. If the session that it
// should go on with is gone, it begins anew.
func (r *Runner) converse(ctx context.Context, run Run, place Place, c *conversation) error {
	name := r.Provider(run.Task)
	provider, err := r.opts.Providers.Get(name)
	if err != nil {
		return &nestor.Failure{Kind: nestor.Provider, Message: err.Error()}
	}
	err = r.talk(ctx, run, provider, place, c)
	if run.Interrupted && errors.Is(err, agent.ErrNoSession) {
		if err := c.progress(ctx, "session "+run.Session+" is gone: it begins anew"); err != nil {
			return err
		}
		run.Session, run.Interrupted = "", false
		err = r.talk(ctx, run, provider, place, c)
	}
	return err
}

// errSilent ends the work of an agent that gives no sign of life.
var errSilent = errors.New("no sign of life")

// talk makes an agent, tells it what it is to do and hears it, until nothing is
// left to be said to it.
func (r *Runner) talk(ctx context.Context, run Run, provider agent.Provider, place Place, c *conversation) (failure error) {
	schema, err := parseSchema(run.Task.Schema)
	if err != nil {
		return &nestor.Failure{Kind: nestor.Invalid, Message: err.Error()}
	}
	if err := r.leaving.gone(ctx, run.Session); err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limit := run.Task.Limits.Silence
	alive := watch(limit, c.host.Rested, func() {
		if err := c.progress(ctx, fmt.Sprintf("no sign of life for %v: it is interrupted", limit)); err != nil {
			r.opts.Log.Warn("silence is not on record", "run", run.ID, "error", err)
		}
		stop(errSilent)
	})
	defer alive.stop()
	config, err := r.config(ctx, run, provider.Type(), place, alive.sign, c)
	if err != nil {
		return err
	}
	a, err := provider.Create(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		end := func() { r.shutdown(ctx, run, a, c, errors.Is(failure, errSilent)) }
		if failure == nil && ctx.Err() == nil && c.mayLinger(place, config) {
			r.leaving.add(c.last.Session, end)
		} else {
			end()
		}
	}()
	c.agent = a.Name()
	m := message(run, c.input())
	if err := c.say(ctx, &nestor.ChatStart{Message: m.Content}, &nestor.AgentStart{Agent: a.Name(), AgentType: provider.Type()}); err != nil {
		return err
	}
	if place.Context != "" {
		m.Content += "\n\n" + place.Context
	}
	for asked := 0; ; {
		if err := r.hear(ctx, work, a, m, c, alive); err != nil || c.failure != nil {
			return err
		}
		if err := c.expect(work); err != nil {
			return err
		}
		switch letters, _ := c.unheard(); {
		case len(letters) > 0:
			m = c.together(letters)
		case schema != nil && !c.conforms(schema) && asked < maxAsked:
			asked++
			m = agent.NewMessage("nestor", "Your result does not follow its schema: "+c.mismatch+"\nGive the result again, so that it does.")
		default:
			return nil
		}
		if err := c.say(ctx, &nestor.ChatStart{Message: m.Content}); err != nil {
			return err
		}
	}
}

// maxAsked is how often an agent is asked again for a result that follows its
// schema.
const maxAsked = 2

// hear has the agent handle one message. What is written to the run meanwhile is
// handed on, if the agent can take it.
func (r *Runner) hear(ctx, work context.Context, a agent.Agent, m agent.Message, c *conversation, alive *watchman) error {
	if pusher, ok := a.(agent.Pusher); ok {
		pushing, stop := context.WithCancel(work)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.push(pushing, pusher)
		}()
		defer func() {
			stop()
			<-done
		}()
	}
	hearing, end := r.beyond(ctx)
	defer end()
	for m, err := range a.Handle(work, m) {
		if err != nil {
			if errors.Is(context.Cause(work), errSilent) {
				return errSilent
			}
			return err
		}
		alive.sign()
		if err := c.hear(hearing, m); err != nil {
			return err
		}
	}
	return nil
}

// beyond returns a context that outlives ctx by the time that an agent has to stop, if a
// decision about the run ends it: what it says of the turn that was stopped, such as what
// that cost, is heard. The caller calls end.
func (r *Runner) beyond(ctx context.Context) (longer context.Context, end func()) {
	longer, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	over := make(chan struct{})
	unbind := context.AfterFunc(ctx, func() {
		defer close(over)
		if _, decided := errors.AsType[*nestor.Cause](context.Cause(ctx)); decided {
			late := time.NewTimer(r.opts.Grace)
			defer late.Stop()
			select {
			case <-late.C:
			case <-longer.Done():
			}
		}
		stop(context.Cause(ctx))
	})
	return longer, func() {
		stop(nil)
		if !unbind() {
			<-over
		}
	}
}

// shutdown ends an agent, also one that does not listen.
func (r *Runner) shutdown(ctx context.Context, run Run, a agent.Agent, c *conversation, silent bool) {
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), r.opts.Grace)
	defer stop()
	if silent {
		if err := c.progress(ending, "it is ended, for it gives no sign of life"); err != nil {
			r.opts.Log.Warn("silence is not on record", "run", run.ID, "error", err)
		}
	}
	if err := a.Shutdown(ending); err != nil {
		r.opts.Log.Warn("an agent did not end in time", "run", run.ID, "error", err)
	}
}

// maxReminder is how much of a task an agent is told again that goes on with it.
const maxReminder = 4 << 10

// message is what the agent is given.
func message(run Run, input string) agent.Message {
	m := agent.NewMessage("nestor", input)
	if run.Interrupted {
		m.Content = "You were interrupted. Go on with what you were asked to do; look first at what is already done. You were asked:\n\n" +
			strings.ToValidUTF8(input[:min(len(input), maxReminder)], "")
	}
	return m
}

// canUse decides about a tool call.
type canUse = func(context.Context, *claude.PermissionRequest) (claude.Decision, error)

// firstAllowed lets then decide about what first, which may be nil, does not allow.
func firstAllowed(first, then canUse) canUse {
	if first == nil {
		return then
	}
	return func(ctx context.Context, q *claude.PermissionRequest) (claude.Decision, error) {
		if d, err := first(ctx, q); err == nil {
			if _, ok := d.(claude.Allow); ok {
				return d, nil
			}
		}
		return then(ctx, q)
	}
}

// config makes the agent's config of a task.
func (r *Runner) config(ctx context.Context, run Run, provider string, place Place, alive func(), talk *conversation) (agent.Config, error) {
	t := run.Task
	c := agent.Config{
		Name: t.Agent, Provider: provider, Model: t.Model, Dir: place.Dir, Files: place.Write, Dirs: place.Folders, Schema: t.Schema, Env: slices.Concat(run.Env, place.Env), Own: run.Own, Resume: run.Session,
		Limits:  agent.Limits{MaxTurns: t.Limits.Turns, MaxBudgetUSD: t.Limits.BudgetUSD},
		OnFrame: alive, SettingSources: r.opts.Settings,
		MCPServers: run.Servers, Approved: slices.Concat(run.Approved, place.rules()), DeniedTools: run.Denied, Spawner: run.Spawner,
		// Texts come also as they are written, and letters find the agent as it was.
		Credentials: map[string]string{"partial": "true", "mode": "client"},
	}
	if c.Name == "" {
		c.Name = "agent"
	}
	var rights Rights
	if r.opts.Policy != nil {
		var err error
		if rights, err = r.opts.Policy.Rights(run, place); err != nil {
			return c, &nestor.Failure{Kind: nestor.Refused, Message: err.Error()}
		}
		c.AllowedTools, c.PermissionMode, c.ReadDirs = rights.Tools, rights.Mode, slices.Concat(rights.Read, place.Read)
		c.CanUseTool, c.Hooks, c.Wrap = rights.Ask.CanUseTool, rights.Ask.Hooks, rights.Wrap
		c.Dial = rights.Dial
		c.Env, c.BaseEnv = append(slices.Clip(c.Env), rights.Env...), rights.BaseEnv
		if run.Ask != nil {
			c.CanUseTool = firstAllowed(c.CanUseTool, talk.person(run.Ask))
		}
		talk.exceeded, talk.bound = rights.Exceeded, rights.Ends
		if rights.Decide != nil {
			c.Hooks.PreToolUse = append([]claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{talk.gate(rights.Decide, run.Ask != nil)}, c.Hooks.PreToolUse...)
		}
	}
	if err := r.brief(ctx, run, place, rights, &c, talk); err != nil {
		return c, err
	}
	if place.Watch != nil {
		others := len(c.SettingSources) > 0 || len(talk.brief.Servers) > 0
		c.Hooks.PreToolUse = append(slices.Clip(c.Hooks.PreToolUse), talk.writes.hook(others))
	}
	return c, nil
}
