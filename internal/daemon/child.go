package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/spawn"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// delegates says why a run may not start others; nil if it may.
func (w *worker) delegates(run plan.Run, o api.TaskOptions) error {
	if limit := run.Task.Limits.Depth; run.Depth()+1 > limit {
		return &nestor.LimitError{Limit: "depth", Max: float64(limit), Asked: float64(run.Depth() + 1)}
	}
	role, err := w.policy.bounds(run.Task, o, w.folder(run.Task, o))
	if err != nil {
		return err
	}
	if role != nil && !role.Spawn {
		return &api.Problem{Status: 403, Detail: "role " + role.Role + " starts no agents"}
	}
	return nil
}

// childTask makes the task of a child that a run asks for.
func (w *worker) childTask(ctx context.Context, parent plan.Run, s api.Spawn) (nestor.Task, error) {
	o, err := api.ParseTaskOptions(parent.Task.Data)
	if err != nil {
		return nestor.Task{}, err
	}
	if err := w.delegates(parent, o); err != nil {
		return nestor.Task{}, err
	}
	if o.Agent != nil && o.Agent.Delegates != nil && !slices.Contains(o.Agent.Delegates, s.Agent) {
		return nestor.Task{}, &api.Problem{Status: 403, Detail: fmt.Sprintf("agent %.60q: this one may start: %s", s.Agent, cmp.Or(strings.Join(o.Agent.Delegates, ", "), "none"))}
	}
	level, err := w.policy.levelOf(o)
	if err != nil {
		return nestor.Task{}, err
	}
	if s.Dir != "" && level != sandbox.Off {
		// A folder could become a link to another one before the child is confined to it.
		return nestor.Task{}, &api.Problem{Status: 403, Detail: fmt.Sprintf("dir %.200q: what a run in a sandbox starts works where it does", s.Dir)}
	}
	above := parent.Task
	above.Dir, above.Provider = w.folder(above, o), w.runner.Provider(above)
	kind := w.beside(parent.ID, &above.Dir)
	if w.copies != nil {
		s.Dir = w.copies.original(parent.ID, s.Dir)
	}
	own := w.policy.own
	t, err := spawn.Narrow(above, api.TaskOptions{
		Tools: own.tools, PermissionMode: cmp.Or(own.mode, "acceptEdits"), Role: own.role, Sandbox: string(own.level), Hosts: own.hosts,
		Subdir: w.placeOf(above.Dir),
	}, s)
	if err != nil {
		return t, err
	}
	if err = w.settle(&t, kind); err != nil {
		return t, err
	}
	if w.copies != nil {
		t.Dir = moved(t.Dir, above.Dir, parent.Task.Dir)
	}
	if name, tier := w.opts.Models[t.Model]; tier {
		t.Model = name
	}
	if err := w.define(ctx, &t); err != nil {
		return t, invalid(err)
	}
	if t.Swarm != above.Swarm && above.Dir != w.dir {
		return t, &api.Problem{Status: 403, Detail: fmt.Sprintf("agent %.60q works for swarm %s, in a folder that is not in that of its parent, %s", s.Agent, t.Swarm, above.Dir)}
	}
	if err := t.Check(); err != nil {
		return t, invalid(fmt.Errorf("task: %w", err))
	}
	if err := runner.CheckSchema(t.Schema); err != nil {
		return t, invalid(err)
	}
	if err := w.knows(t); err != nil {
		return t, invalid(err)
	}
	return t, nil
}

// beside sets dir to the folder that a run works in, if it is one of ours, and returns
// the kind of workspace for those who are to work there too.
func (w *worker) beside(run nestor.ID, dir *string) string {
	if w.copies != nil {
		return "" // what it starts has a copy of its own
	}
	w.spaces.mu.Lock()
	defer w.spaces.mu.Unlock()
	sp := w.spaces.open[run]
	switch {
	case sp == nil && w.spaces.opts.Kind == "", sp != nil && sp.Kind == workspace.Swarm:
		return "" // the folder that it names, or that of its swarm
	case sp != nil:
		*dir = sp.Dir
	}
	return string(workspace.Plain)
}

// projectLabel is what the machine with the project has when there may be others.
const projectLabel = "project"

// folder returns where a task works: on another machine, where it would if it had no
// copy of its own.
func (w *worker) folder(t nestor.Task, o api.TaskOptions) string {
	if w.copies != nil {
		return filepath.Join(w.dir, filepath.FromSlash(o.Subdir))
	}
	return cmp.Or(t.Dir, w.dir)
}

// placeOf returns the place of a folder in the project; empty if it has none, or none
// on other machines.
func (w *worker) placeOf(dir string) string {
	if w.copies != nil {
		place, _ := within(w.dir, dir)
		return place
	}
	if _, private := within(w.policy.home, dir); private {
		return ""
	}
	place, _ := within(w.project, dir)
	return place
}

// moved returns dir, which is in one folder, as it is in another; empty if that is not
// known.
func moved(dir, from, to string) string {
	below, err := filepath.Rel(from, dir)
	if err != nil || to == "" {
		return ""
	}
	return filepath.Join(to, below)
}

// settle says where in the project a child works, for workers on other machines, and
// in which kind of workspace; empty chooses as for others. If only this machine has
// its folder it is for this one.
func (w *worker) settle(t *nestor.Task, kind string) error {
	o, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return err
	}
	if o.Subdir = w.placeOf(t.Dir); o.Subdir == "" && w.shared {
		t.Label = projectLabel
	}
	if kind != "" {
		o.Workspace = api.WorkspaceOptions{Kind: kind}
	}
	t.Data, err = json.Marshal(o)
	return err
}

// narrowed returns what a policy leaves below others, in a project that is in root;
// nil means no bounds.
func (p *policy) narrowed(own *permission.Policy, above []api.Bounds, root string) (*permission.Policy, error) {
	for _, b := range above {
		if b.Role == "" {
			continue // its tools are in those of the run
		}
		dir := b.Dir
		if b.Subdir != "" {
			dir = filepath.Join(root, filepath.FromSlash(b.Subdir))
		}
		up, err := p.bounds(nestor.Task{Swarm: b.Swarm}, api.TaskOptions{Role: b.Role, Tools: b.Tools}, dir)
		if err != nil {
			return own, err
		}
		if own != nil {
			*up = permission.Narrow(*up, *own)
		}
		own = up
	}
	return own, nil
}
