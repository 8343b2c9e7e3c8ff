package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/server"
	"github.com/dfaf701a/nestor/internal/spawn"
)

// attempt names an attempt of a run.
type attempt struct {
	run   nestor.ID
	fence uint64
}

// room is what an attempt does with others. It lasts as long as the attempt, in
// which the run may be executed several times.
type room struct {
	x     *engine.Execution
	run   *spawn.Run
	token string

	mu   sync.Mutex // guards what follows
	host *host      // of the current execution
	read int        // the number of the last letter that the agent asked for itself
	last int        // of the last that it was told
}

// enter gives an execution its room: the agent gets the tools, and what it starts
// the token.
func (w *worker) enter(x *engine.Execution, h *host, r *runner.Run) error {
	run := x.Run()
	key := attempt{run.ID, x.Fence()}
	w.mu.Lock()
	m := w.rooms[key]
	if m == nil {
		m = &room{x: x}
		m.run = spawn.New(run.ID, m, w.engine, spawn.Options{Task: w.childTask, MaxResult: w.opts.MaxResult})
		m.token = w.tokens.Grant(m.run)
		w.rooms[key] = m
	}
	w.mu.Unlock()
	m.mu.Lock()
	m.host = h
	m.mu.Unlock()
	h.room = m

	options, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return err
	}
	delegates := w.delegates(run, options) == nil
	r.Servers = map[string]agent.MCPServer{spawn.ServerName: spawn.Server(m.run, delegates)}
	r.Approved = spawn.Tools(delegates)
	if delegates && w.alike(run, options) {
		own := ""
		if options.Agent != nil {
			own = run.Task.Agent
		}
		r.Spawner = agent.Spawner{Tool: spawn.SpawnTool, Alike: func(input string) (alike, known bool) {
			other, known := spawn.AgentOf(input)
			return other == own, known
		}}
	}
	delegation := cmp.Or(options.Delegation, w.opts.Delegation, api.DelegationPool)
	if delegation == api.DelegationPool {
		r.Denied = []string{"Task", "Agent"} // the tool has either name, by the version
	}
	if w.folders != nil {
		if r.Folder, err = w.folders.Session(context.Background(), run.Root); err != nil {
			return err
		}
		r.Own = append(r.Own, "NESTOR_SESSION_DIR="+r.Folder)
	}
	if options.AskFor > 0 {
		role := cmp.Or(options.Role, w.policy.own.role)
		if options.Agent != nil {
			role = cmp.Or(options.Agent.Role, role)
		}
		r.Ask = func(ctx context.Context, tool string, input json.RawMessage, reason string) (runner.Verdict, error) {
			return w.permit(ctx, m, spawn.Call{Tool: tool, Input: input, Reason: reason, Role: role, Within: options.AskFor})
		}
	}
	r.Own = append(r.Own, "TRACEPARENT="+api.TraceOf(options.Trace, run.Root, run.ID).String(), api.TokenVariable+"="+m.token)
	return nil
}

// alike tells whether what a run works on can be as that of one it starts: neither
// has a share of a budget, a form of its result or a sandbox of its own.
func (w *worker) alike(run plan.Run, o api.TaskOptions) bool {
	level, err := w.policy.levelOf(o)
	return err == nil && level == sandbox.Off && w.policy.limitsOf(o) == (sandbox.Limits{}) && run.Task.Limits.BudgetUSD == 0 && run.Task.Schema == nil
}

// permit asks a person about a call.
func (w *worker) permit(ctx context.Context, m *room, c spawn.Call) (runner.Verdict, error) {
	a, err := m.run.Permit(ctx, c, &w.permits)
	if err != nil {
		return runner.Verdict{}, err
	}
	v := runner.Verdict{Allowed: a.Decision == "allow", Rule: "answer of " + a.By + " for " + a.Scope}
	switch {
	case v.Allowed:
	case a.By == "time-out":
		v.Reason = "Permission to use " + c.Tool + " was not given: nobody has answered in time. Do it another way, or say what you would need."
	default:
		v.Reason = "Permission to use " + c.Tool + " was denied by a person. Do it another way, or say what you would need."
	}
	return v, nil
}

// keep keeps the whole of an output that is longer than what goes up.
func (w *worker) keep(ctx context.Context, run plan.Run, result *nestor.Result) {
	if w.folders == nil || len(result.Output) <= cmp.Or(w.opts.MaxResult, spawn.MaxResult) {
		return
	}
	file, err := w.folders.Output(ctx, run.Root, run.ID, result.Output)
	if err != nil {
		w.notes.Warn("the whole output of a run is not kept", "run", run.ID, "error", err)
		return
	}
	result.File = file
}

// leave takes back what an attempt was given.
func (w *worker) leave(x *engine.Execution) {
	key := attempt{x.Run().ID, x.Fence()}
	w.mu.Lock()
	m := w.rooms[key]
	delete(w.rooms, key)
	w.mu.Unlock()
	if m != nil {
		w.tokens.Revoke(m.run)
	}
}

// decideOurs decides about a tool of ours; it is bounded by what it does, not by
// rules about tools.
func decideOurs(tool string, role *permission.Policy) (v runner.Verdict, ours bool) {
	if !slices.Contains(spawn.Tools(true), tool) {
		return v, false
	}
	if !role.Spawn && !slices.Contains(spawn.Tools(false), tool) {
		return runner.Verdict{Reason: "This run starts no agents.", Rule: "role " + role.Role + ": spawn no"}, true
	}
	return runner.Verdict{Allowed: true, Rule: "tool " + strings.TrimPrefix(tool, "mcp__")}, true
}

func (m *room) Start(ctx context.Context, s spawn.Start) (nestor.ID, error) {
	if err := m.said(ctx); err != nil {
		return "", err
	}
	return m.x.Submit(ctx, engine.Submission{Task: s.Task, Key: s.Key, Name: s.Name, Background: s.Background})
}

func (m *room) Await(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error) {
	return m.x.Await(ctx, runs...)
}

func (m *room) AwaitAny(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error) {
	return m.x.AwaitAny(ctx, runs...)
}

func (m *room) Collect(ctx context.Context, runs ...nestor.ID) error {
	return m.x.Collect(ctx, runs...)
}

func (m *room) Ask(ctx context.Context, ask nestor.Ask) (*nestor.Answer, error) {
	if err := m.said(ctx); err != nil {
		return nil, err
	}
	return m.x.Ask(ctx, ask)
}

func (m *room) Append(ctx context.Context, events ...nestor.Event) error {
	return m.current().Append(ctx, events...)
}

// said waits until what the run has said is in the log, so that what others write
// there for it comes behind.
func (m *room) said(ctx context.Context) error {
	if err := m.current().writer.Flush(ctx); err != nil {
		return fmt.Errorf("writing what was said before: %w", err)
	}
	return nil
}

// current returns the host of the current execution.
func (m *room) current() *host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.host
}

// Read returns the letters that the agent has not read. It has then.
func (m *room) Read() []plan.Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, _ := m.x.Letters(max(m.read, m.last))
	if len(list) > 0 {
		m.read = list[len(list)-1].N
		m.x.Heard(m.read)
	}
	return list
}

// unread returns the number of the last letter that need not be said, of one that
// was and those that the agent has read itself.
func (m *room) unread(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = max(m.last, n)
	return max(n, m.read)
}

// visitors are the agents that ask on the socket.
type visitors struct {
	w    *worker
	runs runs
}

// runs tells how runs stand.
type runs interface {
	Run(context.Context, nestor.ID) (api.Run, error)
	// Tree returns a run and all below it, each behind its parent.
	Tree(context.Context, nestor.ID) ([]api.Run, error)
}

// Agent returns the one with a token.
func (v visitors) Agent(token string) server.Agent {
	if run := v.w.tokens.Find(token); run != nil {
		return visitor{run, v.runs, v.w.notes}
	}
	return nil
}

// visitor is an agent that asks on the socket.
type visitor struct {
	*spawn.Run
	runs  runs
	notes *slog.Logger
}

func (v visitor) Look(ctx context.Context, id nestor.ID) (api.Run, error) {
	if err := v.Reach(ctx, id); err != nil {
		return api.Run{}, err
	}
	return v.runs.Run(ctx, id)
}

func (v visitor) Tree(ctx context.Context, id nestor.ID) ([]api.Run, error) {
	if err := v.Reach(ctx, id); err != nil {
		return nil, err
	}
	return v.runs.Tree(ctx, id)
}

// Refused takes note of a refusal, in the log of the run.
func (v visitor) Refused(ctx context.Context, why string) {
	if err := v.Run.Refused(ctx, why); err != nil {
		v.notes.Warn("a refusal is not on record", "run", v.ID(), "error", err)
	}
}
