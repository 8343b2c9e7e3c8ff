package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/pool"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/spawn"
)

// Worker says how runs are executed. Its zero value executes five at once, on
// provider "sdk".
type Worker struct {
	Dir      string                         // where runs work that name no folder; empty means the project
	Provider string                         // of tasks that name none; empty means sdk
	Slots    int                            // how many run at once; zero means 5
	Labels   []string                       // of tasks that it takes besides those without
	Tools    []string                       // that runs have which do not say; nil means all
	Mode     string                         // of permissions, likewise; empty means acceptEdits
	Role     string                         // of runs that name none; empty means none
	Roles    map[string]permission.RoleSpec // own ones, by their names
	Sandbox  string                         // level, likewise: off, files or strict; empty means off
	Hosts    []string                       // that runs may reach which do not say; nil means that no list bounds them
	Models   map[string]string              // that high-tier and its kin stand for, in definitions and runs that agents start; nil means none
	Settings []string                       // sources of the provider's settings: user, project, local; nil means none

	Workspace Workspaces     // what runs work in
	Limits    sandbox.Limits // of what processes use, of runs that set none
	Pass      []string       // variables of this process that runs get besides those that all do; a * at the end stands for anything

	Delegation string // who starts agents for runs that do not say: pool or cli; empty means pool
	MaxResult  int    // bytes of a result that go up to who has started a run; zero means 32 KiB

	SDK    claudecode.Options // its Warm and Expect are set here
	Warm   int                // how many CLIs are kept ready at most, for runs like those before; zero means none
	API    anthropic.Options  // its Records and Spool are set here
	Script []scripted.Turn    // of provider scripted; nil means that it repeats what it is told

	Log *slog.Logger // nil discards

	copies *copies // where runs work on another machine; nil means in the project
}

// worker executes runs.
type worker struct {
	log       *eventlog.Log
	runner    *runner.Runner
	providers *agent.Providers
	slots     *pool.Slots
	warm      *pool.Warm // nil means that no CLI is kept ready
	socket    string
	dir       string
	project   string  // whose definitions runs have
	user      string  // the user's folder of agents; empty means none. It is set before runs are executed
	copies    *copies // nil in the daemon
	shared    bool    // workers on other machines may take what runs here start; set before runs are executed
	spaces    *spaces // of the project
	policy    *policy
	opts      Worker
	engine    *engine.Engine // set before runs are executed
	// define makes of a task that names an agent one that says what its definition
	// does. It is set before runs are executed.
	define  func(context.Context, *nestor.Task) error
	tokens  spawn.Tokens
	permits spawn.Permits
	folders *spawn.Folders // of sessions; set with engine, nil in a worker elsewhere
	notes   *slog.Logger

	mu    sync.Mutex                // guards what follows
	holds map[string]nestor.Failure // by provider: until when its usage limit is met
	rooms map[attempt]*room         // of the attempts that are being executed
}

// open makes a worker that keeps its files in home.
func (o Worker) open(home, socket string, log *eventlog.Log) (*worker, error) {
	if o.Provider == "" {
		o.Provider = claudecode.Type
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dir == "" {
		o.Dir = filepath.Dir(home)
	}
	o.API.Records = anthropic.DirRecords(filepath.Join(home, "api", "sessions"))
	o.API.Spool = filepath.Join(home, "api", "spool")
	o.API.Log, o.SDK.Log = o.Log, o.Log
	o.SDK.PathKey = "providers.sdk.path"
	script := o.Script
	if script == nil {
		script = scripted.Echo()
	}
	var warm *pool.Warm
	if o.Warm > 0 {
		warm = pool.NewWarm(pool.WarmOptions{Max: o.Warm, Learn: keepReady, Pause: calm, Log: o.Log})
		o.SDK.Warm, o.SDK.Expect = warm.Take, warm.Expect
	}
	providers, err := agent.NewProviders(claudecode.New(o.SDK), anthropic.New(o.API), scripted.New(script...))
	if err != nil {
		return nil, err
	}
	rules, err := newPolicy(o, home)
	if err != nil {
		return nil, err
	}
	rules.door = socket
	if o.copies != nil {
		rules.copies = o.copies.home
	}
	own := newSpaces(o.Workspace, filepath.Dir(home), o.Dir, log, o.Log)
	own.environ = rules.environ
	var place runner.Workspace = own
	if o.copies != nil {
		place = o.copies
	}
	w := &worker{
		log: log, socket: socket, dir: o.Dir, project: filepath.Dir(home), copies: o.copies, spaces: own, notes: o.Log, warm: warm, providers: providers, policy: rules, opts: o,
		slots: pool.NewSlots(pool.SlotLimits{Total: o.Slots}),
		holds: map[string]nestor.Failure{}, rooms: map[attempt]*room{},
	}
	rules.outlets.record = w.record
	w.runner = runner.New(runner.Options{
		Providers: providers, Provider: o.Provider, Workspace: equipped{place, w}, Policy: rules, Brief: w.brief,
		Settings: o.Settings, Log: o.Log,
	})
	return w, nil
}

const (
	keepReady = 5 * time.Minute // how long CLIs are kept ready for runs like those before
	calm      = 2 * time.Second // without the start of a run, until one is started ahead
)

// ready keeps CLIs ready until ctx ends, and none is left.
func (w *worker) ready(ctx context.Context) error {
	if w.warm == nil {
		return nil
	}
	return w.warm.Run(ctx)
}

// taking returns how the engine has tasks executed here.
func (w *worker) taking(labels []string) engine.Worker {
	return engine.Worker{
		Acquire: func(ctx context.Context) (engine.Slot, error) {
			s, err := w.slots.Acquire(ctx)
			return slot{s, w}, err
		},
		TryAcquire: func() engine.Slot {
			if s := w.slots.TryAcquire(); s != nil {
				return slot{s, w}
			}
			return nil
		},
		Labels:  labels,
		Execute: w.execute,
		Over:    w.over,
	}
}

// over lets go of what an attempt had.
func (w *worker) over(x *engine.Execution) {
	w.leave(x)
	w.policy.over(x.Run().ID, x.Fence())
	if w.copies != nil {
		w.copies.remove(x.Run().ID, x.Fence())
	}
}

// slot is a slot of the pool, for the engine.
type slot struct {
	*pool.Slot
	w *worker
}

// Claim says what the slot is used for.
func (s slot) Claim(ctx context.Context, root nestor.ID, task nestor.Task) error {
	return s.Slot.Claim(ctx, pool.Claim{
		Tree: string(root), Provider: s.w.runner.Provider(task), Swarm: task.Swarm, Rank: task.Priority.Rank(),
	})
}

// execute executes an attempt.
func (w *worker) execute(ctx context.Context, x *engine.Execution) nestor.Result {
	run := x.Run()
	provider := w.runner.Provider(run.Task)
	if f, held := w.held(provider); held {
		return nestor.Result{Status: nestor.Error, Error: &f}
	}
	writer, err := w.log.Writer(string(run.Root), string(run.ID), x.Fence())
	if err != nil {
		return failed(err)
	}
	options, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return failed(err)
	}
	session := run.Session
	if w.copies != nil && !w.copies.has(run.ID, x.Fence()) {
		session = "" // what was done in it is in a copy that is gone: the run begins anew
	}
	r := runner.Run{
		ID: run.ID, Root: run.Root, Depth: run.Depth(), Task: run.Task, Attempt: x.Fence(),
		Session: session, Interrupted: session != "", Env: slices.Concat(options.Env, w.env()), Own: names(run),
	}
	if r.Session == "" {
		r.Session = options.Session
	}
	h := &host{x: x, writer: writer, log: w.log, run: run, begun: make(chan struct{}), told: map[string]bool{}}
	if err := w.enter(x, h, &r); err != nil {
		return failed(err)
	}
	go h.begin(ctx) // it ends with the first change of the run, at the latest with its end
	var result nestor.Result
	if options.Graph != nil {
		result = w.executeGraph(ctx, x, h, r, options)
	} else {
		result = w.runner.Execute(ctx, r, h)
	}
	<-h.begun
	if err := w.policy.outlets.close(attempt{run.ID, x.Fence()}); err != nil {
		w.notes.Warn("the network of a run did not end well", "run", run.ID, "error", err)
	}
	w.explain(ctx, run, &result)
	flushing, stop := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
	defer stop()
	w.keep(flushing, run, &result)
	w.keepForResume(flushing, run, options, &result)
	if err := h.finish(flushing, result); err != nil && ctx.Err() == nil {
		return failed(fmt.Errorf("writing the log of the run: %w", err))
	}
	if options.Approves != "" && ctx.Err() == nil {
		w.spaces.judged(ctx, options.Approves, run.ID, &result)
	}
	if f := result.Error; f != nil && f.Kind == nestor.Limited {
		w.hold(provider, run.ID, *f)
	}
	return result
}

// flushFor is how long the last events of a run may take to be written.
const flushFor = 10 * time.Second

func failed(err error) nestor.Result {
	f, ok := errors.AsType[*nestor.Failure](err)
	if !ok {
		f = &nestor.Failure{Kind: nestor.Internal, Message: err.Error()}
	}
	return nestor.Result{Status: nestor.Error, Error: f}
}

// names is what a run's processes are told of it.
func names(run plan.Run) []string {
	return []string{
		"NESTOR_RUN_ID=" + string(run.ID), "NESTOR_ROOT_ID=" + string(run.Root), "NESTOR_DEPTH=" + strconv.Itoa(run.Depth()),
		"AGENT_NAME=" + run.Task.Agent, "AGENT_SWARM=" + run.Task.Swarm,
	}
}

// env is what the processes of all runs are told. By it, what is left of a process
// that was killed is found.
func (w *worker) env() []string {
	env := []string{api.SocketVariable + "=" + w.socket}
	if w.copies != nil {
		// With the second, git does not find the repository around the copy.
		env = append(env, w.copies.mark(), "GIT_CEILING_DIRECTORIES="+w.copies.home)
	}
	return env
}

// hold keeps runs from a provider until its usage limit is reset.
func (w *worker) hold(provider string, by nestor.ID, f nestor.Failure) {
	if f.Until.IsZero() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds[provider] = nestor.Failure{
		Kind: nestor.Held, Until: f.Until, Message: fmt.Sprintf("the usage limit of provider %s is met, as run %s has found: %s", provider, by, f.Message),
	}
	w.notes.Warn("usage limit", "provider", provider, "run", by, "until", f.Until)
}

// held tells whether runs are kept from a provider.
func (w *worker) held(provider string) (nestor.Failure, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.holds[provider]
	if ok && !time.Now().Before(f.Until) {
		delete(w.holds, provider)
		return f, false
	}
	return f, ok
}

// host is what a run is told and tells.
type host struct {
	x      *engine.Execution
	writer *eventlog.Writer
	log    *eventlog.Log
	run    plan.Run
	room   *room
	begun  chan struct{} // closed when the beginning of the attempt is in the log

	lost error // why what was early could not be written; set before begun is closed

	mu    sync.Mutex      // guards what follows
	wrote bool            // what was early is written
	early [][]byte        // events that came before that
	told  map[string]bool // files of the project that it was said to change
}

// maxEarly is how many events may wait for the beginning of their attempt.
const maxEarly = 100

// begin writes what came early, once the beginning of the attempt is in the log.
func (h *host) begin(ctx context.Context) {
	defer close(h.begun)
	h.x.Begun(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = true
	h.lost = h.writer.Write(context.WithoutCancel(ctx), h.early...)
	h.early = nil
}

// Append writes events, behind the one that the attempt has begun, which the
// agent does not wait for. They are flushed when the run's result is known.
func (h *host) Append(ctx context.Context, events ...nestor.Event) error {
	for _, e := range events {
		if w, ok := e.(*nestor.WorkspaceWrite); ok {
			h.mu.Lock()
			h.told[w.Path] = true
			h.mu.Unlock()
		}
	}
	lines, err := eventlog.Fit(events...)
	if err != nil {
		return err
	}
	h.mu.Lock()
	if !h.wrote && len(h.early) < maxEarly {
		defer h.mu.Unlock()
		h.early = append(h.early, lines...)
		return nil
	}
	h.mu.Unlock()
	select {
	case <-h.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.lost != nil {
		return h.lost
	}
	return h.writer.Write(ctx, lines...)
}

// finish says what is left to be said when there is a result, and returns when all that
// was said is durable.
func (h *host) finish(ctx context.Context, r nestor.Result) error {
	if h.lost != nil {
		return h.lost
	}
	if err := h.tell(ctx, r); err != nil {
		return err
	}
	return h.writer.Flush(ctx)
}

// Delta publishes what is live only. What cannot be sent is not waited for.
func (h *host) Delta(e nestor.Event) {
	if line, err := nestor.EncodeEvent(e); err == nil {
		h.log.Publish(string(h.run.Root), string(h.run.ID), line)
	}
}

// tell says in the log which files came back with a result.
func (h *host) tell(ctx context.Context, r nestor.Result) error {
	changes, _ := api.ChangesOf(&r)
	var events []nestor.Event
	for _, c := range changes.Files {
		if h.told[c.Path] {
			continue
		}
		events = append(events, &nestor.WorkspaceWrite{
			Header: nestor.Header{Time: time.Now().UTC(), Run: h.run.ID, Root: h.run.Root, Depth: h.run.Depth()},
			Agent:  h.run.Task.Agent, Path: c.Path, Action: c.Action,
		})
	}
	if len(events) == 0 {
		return nil
	}
	return h.Append(ctx, events...)
}

func (h *host) Began(ctx context.Context, session string) error {
	return h.x.Note(ctx, plan.Note{Session: session})
}

// Spent takes note of money. What cannot be noted now is with the result.
func (h *host) Spent(usd float64) {
	ctx, stop := context.WithTimeout(context.Background(), flushFor)
	defer stop()
	h.x.Note(ctx, plan.Note{Spent: usd})
}

func (h *host) Letters(n int) ([]runner.Letter, <-chan struct{}) {
	letters, more := h.x.Letters(h.room.unread(n))
	list := make([]runner.Letter, len(letters))
	for i, l := range letters {
		list[i] = runner.Letter{N: l.N, From: l.From, Content: l.Content}
	}
	return list, more
}

func (h *host) Heard(n int) { h.x.Heard(n) }

func (h *host) Expect(ctx context.Context, n int) (bool, error) {
	return h.x.Expect(ctx, h.room.unread(n))
}

func (h *host) Rested() time.Time { return h.x.Rested() }

// knows fails for a task of a provider, or of a role, that there is not.
func (w *worker) knows(t nestor.Task) error {
	if _, err := w.providers.Get(w.runner.Provider(t)); err != nil {
		return err
	}
	o, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return err
	}
	for _, host := range o.Hosts {
		if _, err := permission.ParseHost(host); err != nil {
			return fmt.Errorf("hosts: %w", err)
		}
	}
	_, err = w.policy.bounds(t, o, w.dir)
	return err
}
