package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// Workspaces say what runs work in. The zero value is the folder that they name,
// or the workspace of their swarm.
type Workspaces struct {
	Kind    string   // of runs that name none: plain, swarm or worktree; empty chooses
	Base    string   // where branches of worktrees begin; empty means HEAD
	Setup   []string // a command that makes a new worktree ready; empty means none
	Copy    []string // files and folders of the project that are copied into one
	Ports   int      // that a run gets; zero means none
	End     string   // of worktrees: keep, merge or drop; empty means keep
	Approve string   // who has to find work good before it is merged: none, critic or person; empty means none
	Collect workspace.Policy
}

// spaces is where runs work on the machine of the project.
type spaces struct {
	opts    Workspaces
	project string
	dir     string // where runs work that name no folder
	all     *workspace.Spaces
	log     *eventlog.Log
	notes   *slog.Logger

	// environ is what a run's set-up gets of this process's environment; nil means all.
	// It is set before runs are executed.
	environ func(run runner.Run) ([]string, error)

	// follow has a critic look at work; nil means that nobody can be asked. It is
	// set before runs are executed.
	follow func(ctx context.Context, of runner.Run, w api.Workspace) error

	mu   sync.Mutex // guards what follows
	open map[nestor.ID]*space
}

// space is the folder of a run that is being executed.
type space struct {
	mu sync.RWMutex // held for writing while the folder is closed
	*workspace.Space
}

func newSpaces(o Workspaces, project, dir string, log *eventlog.Log, notes *slog.Logger) *spaces {
	return &spaces{
		opts: o, project: project, dir: dir, log: log, notes: notes, open: map[nestor.ID]*space{},
		all: workspace.New(workspace.SpaceOptions{
			Project: project, Base: o.Base, Setup: o.Setup, Copy: o.Copy, Ports: o.Ports, End: workspace.End(o.End), Log: notes,
		}),
	}
}

// Open gives a run its folder. One that names neither a kind nor a swarm works in
// the folder that it names, of which nothing is noted before: that would take as
// long as the folder is large.
func (s *spaces) Open(ctx context.Context, run runner.Run) (runner.Place, error) {
	o, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return runner.Place{}, err
	}
	kind := s.opts.Kind
	if o.Workspace.Kind != "" {
		kind = o.Workspace.Kind
	}
	if kind == "" && run.Task.Swarm == "" || o.Approves != "" { // who approves looks at the folder of another
		return s.plain(run), nil
	}
	var env []string
	if s.environ != nil {
		if env, err = s.environ(run); err != nil {
			return runner.Place{}, &nestor.Failure{Kind: nestor.Refused, Message: err.Error()}
		}
	}
	opened, err := s.all.Open(ctx, workspace.Request{
		Env: env,
		Run: run.ID, Root: run.Root, Slug: run.Task.Input[:min(len(run.Task.Input), 200)], Swarm: run.Task.Swarm, Dir: run.Task.Dir, Kind: workspace.Kind(kind),
	})
	if err != nil {
		return runner.Place{}, &nestor.Failure{Kind: nestor.Refused, Message: err.Error()}
	}
	sp := &space{Space: opened}
	place, err := sp.place()
	if err != nil {
		return runner.Place{}, errors.Join(err, opened.Leave())
	}
	s.mu.Lock()
	s.open[run.ID] = sp
	s.mu.Unlock()
	place.Close = func(r *nestor.Result) error { return s.close(ctx, run, o, sp, r) }
	return place, nil
}

// plain is the folder that a run names, or else that of the worker.
func (s *spaces) plain(run runner.Run) runner.Place {
	dir := s.dir
	if run.Task.Dir != "" {
		dir = run.Task.Dir
	}
	below, _ := within(s.project, dir)
	return runner.Place{Dir: dir, Below: below, Env: []string{"AGENT_WORKSPACE=" + dir}, Watch: watching(dir)}
}

// watching returns what watches a folder.
func watching(dir string) func(context.Context) (runner.Watcher, error) {
	return func(ctx context.Context) (runner.Watcher, error) {
		w, err := workspace.NewWatcher(ctx, dir)
		return watcher{w}, err
	}
}

// watcher is a watcher, as package runner knows it.
type watcher struct{ *workspace.Watcher }

func (w watcher) Run(ctx context.Context, report func(path, action string)) error {
	return w.Watcher.Run(ctx, func(w workspace.Write) { report(w.Path, w.Action) })
}

// place says what a run is told of its folder.
func (sp *space) place() (runner.Place, error) {
	p := runner.Place{Dir: sp.Dir, Below: sp.Below, Env: append([]string{"AGENT_WORKSPACE=" + sp.Dir}, sp.Env...), Watch: watching(sp.Dir)}
	if sp.StateFile != "" {
		if err := sp.MakeState(); err != nil {
			return p, err
		}
		p.Write = append(p.Write, sp.StateFile)
		p.Context = fmt.Sprintf("The state of your swarm is in %s, which you may write to. ", sp.StateFile)
		if sp.State == "" {
			p.Context += "It is empty."
		} else {
			p.Context += "It says:\n\n" + sp.State
		}
	}
	repo, err := sp.Repository()
	if err != nil {
		return p, err
	}
	if repo.Dir != "" {
		p.Repository = runner.Repository{Dir: repo.Dir, Write: repo.Write}
	}
	return p, nil
}

// goesOn tells whether a run that ends here goes on elsewhere, or later.
func goesOn(ctx context.Context, r *nestor.Result) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, nestor.ErrStale) || errors.Is(cause, engine.ErrCutOff) || errors.Is(cause, engine.ErrShutdown) && r.Status != nestor.Success
}

// close takes down what the run changed, and sees to what becomes of it.
func (s *spaces) close(ctx context.Context, run runner.Run, o api.TaskOptions, sp *space, r *nestor.Result) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	s.mu.Lock()
	delete(s.open, run.ID)
	s.mu.Unlock()
	if goesOn(ctx, r) {
		return sp.Leave()
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), bringFor)
	defer stop()
	w := api.Workspace{Kind: string(sp.Kind), Dir: sp.Dir}
	if err := s.keepDiff(ctx, run.Root, sp, &w); err != nil {
		w.NoDiff = err.Error()
		s.notes.Warn("what a run changed is not kept", "run", run.ID, "error", err)
	}
	end, why := s.ending(o, sp, r, &w)
	out, err := sp.Close(ctx, end)
	told(&w, out)
	if w.Why == "" {
		w.Why = why
	}
	api.SetWorkspace(r, w)
	if err == nil && w.Approval == "critic" && s.follow != nil {
		if err := s.follow(ctx, run, w); err != nil {
			s.notes.Warn("no critic looks at the work of a run", "run", run.ID, "error", err)
		}
	}
	return err
}

// ending says what becomes of the folder of a run with that result, and why it is
// not what the run was to end with.
func (s *spaces) ending(o api.TaskOptions, sp *space, r *nestor.Result, w *api.Workspace) (workspace.End, string) {
	end := workspace.End(s.opts.End)
	if o.Workspace.End != "" {
		end = workspace.End(o.Workspace.End)
	}
	again := r.Error != nil && (r.Error.Kind == nestor.Connection || r.Error.Kind == nestor.Limited || r.Error.Kind == nestor.Held)
	switch {
	case sp.Kind != workspace.Worktree || end == workspace.Keep || end == "":
		return workspace.Keep, ""
	case end == workspace.Drop && again:
		return workspace.Keep, "the run may be tried again"
	case end == workspace.Drop:
		return workspace.Drop, ""
	case r.Status != nestor.Success:
		return workspace.Keep, "the run is no success"
	case s.approve() != "" && sp.Approved() == nil && w.Changed > 0:
		w.Approval = s.approve()
		return workspace.Keep, "it waits for the approval of a " + w.Approval
	}
	return workspace.Merge, ""
}

// approve says whose approval is needed; empty means nobody's.
func (s *spaces) approve() string {
	if s.opts.Approve == "none" {
		return ""
	}
	return s.opts.Approve
}

// told takes over what became of a folder.
func told(w *api.Workspace, out workspace.Outcome) {
	w.End, w.Branch, w.Commit, w.Beside, w.Into, w.Merged = string(out.End), out.Branch, out.Commit, out.Beside, out.Into, out.Merged
	w.Why, w.Conflicts = out.Why, out.Conflicts[:min(len(out.Conflicts), maxFiles)]
}

// keepDiff puts what a run changed into the log's store.
func (s *spaces) keepDiff(ctx context.Context, root nestor.ID, sp *space, w *api.Workspace) error {
	diff, err := sp.Diff(ctx)
	if err != nil {
		return err
	}
	if w.Changed = len(diff.Files); w.Changed == 0 && len(diff.Left) == 0 {
		return nil
	}
	data, err := json.Marshal(diffOf(diff))
	if err != nil {
		return err
	}
	w.Diff, err = s.log.PutBlob(ctx, string(root), data)
	return err
}

func diffOf(d workspace.Diff) api.Diff {
	told := api.Diff{Patch: d.Patch, Cut: d.Cut, Left: d.Left, Files: []api.FileDiff{}}
	for _, f := range d.Files {
		told.Files = append(told.Files, api.FileDiff{Path: f.Path, Action: f.Action, Size: f.Size, Link: f.Link})
	}
	return told
}

// live returns what a run has changed so far that is being executed here.
func (s *spaces) live(ctx context.Context, run nestor.ID) (d api.Diff, ok bool, err error) {
	s.mu.Lock()
	sp := s.open[run]
	s.mu.Unlock()
	if sp == nil {
		return d, false, nil
	}
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	diff, err := sp.Diff(ctx)
	d = diffOf(diff)
	d.Live = true
	return d, true, err
}

const (
	collectFirst = time.Minute // after the start: who only runs one command has no time for it
	collectEvery = 24 * time.Hour
)

// collect removes old folders of runs, from time to time, until ctx ends.
func (s *spaces) collect(ctx context.Context) error {
	timer := time.NewTimer(collectFirst)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if _, err := s.all.Collect(ctx, s.opts.Collect); err != nil && ctx.Err() == nil {
				s.notes.Warn("workspaces are not collected", "error", err)
			}
			timer.Reset(collectEvery)
		case <-ctx.Done():
			return nil
		}
	}
}
