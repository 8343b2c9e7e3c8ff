package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/graph"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/runner"
)

// graphDescendants is how many runs may be below that of a graph which does not
// say: a list can be long.
const graphDescendants = 1000

// checkGraph tells why a graph cannot be run, before anything of it is.
func (w *worker) checkGraph(ctx context.Context, t *nestor.Task, o api.TaskOptions) error {
	if err := graph.Complete(o.Graph); err != nil {
		return err
	}
	var errs []error
	for _, p := range graph.Check(*o.Graph, func(agent string) error { return w.define(ctx, &nestor.Task{Agent: agent}) }) {
		if !p.Warning {
			errs = append(errs, errors.New(p.String()))
		}
	}
	if t.Limits.Descendants == 0 {
		t.Limits.Descendants = graphDescendants
	}
	parent := plan.Run{Task: *t}
	parent.Task.Limits = t.Limits.Or(nestor.DefaultLimits())
	for _, name := range slices.Sorted(maps.Keys(o.Graph.Tasks)) {
		if len(errs) > 0 {
			break
		}
		if _, err := w.graphTask(ctx, parent, name, o.Graph.Tasks[name].Task); err != nil {
			errs = append(errs, fmt.Errorf("task %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// executeGraph has the tasks of a graph run, as runs below that of x, in the folder that
// the graph works in.
func (w *worker) executeGraph(ctx context.Context, x *engine.Execution, h *host, run runner.Run, o api.TaskOptions) (result nestor.Result) {
	g := &graphHost{w: w, x: x, h: h, dir: w.dir}
	if w.copies == nil { // otherwise each task has a copy of its own
		place, err := w.spaces.Open(ctx, run)
		if err != nil {
			return failed(err)
		}
		g.dir = place.Dir
		defer func() { place.End(&result) }()
	}
	if err := graph.Complete(o.Graph); err != nil {
		return failed(err)
	}
	told, err := json.Marshal(map[string]any{"graph": o.Graph}) // for who runs it again
	if err == nil {
		err = g.say(ctx, &nestor.ChatStart{Message: x.Run().Task.Input}, &nestor.AgentStart{Agent: "graph", AgentType: "graph"}, &nestor.ProviderMessage{Raw: told})
	}
	if err != nil {
		return failed(err)
	}
	outcomes, err := graph.Run(ctx, *o.Graph, graph.Options{Parallel: x.Run().Task.Limits.Children, Fresh: o.Fresh}, g)
	if err != nil {
		r := failed(err)
		if cause, ok := errors.AsType[*nestor.Cause](context.Cause(ctx)); ok {
			r.Error.Kind = cause.Kind
		}
		return r
	}
	return graph.Result(*o.Graph, outcomes)
}

// graphHost runs the tasks of a graph.
type graphHost struct {
	w   *worker
	x   *engine.Execution
	h   *host
	dir string // where the tasks work that name no other
}

// graphTask makes the task of a run below that of a graph.
func (w *worker) graphTask(ctx context.Context, parent plan.Run, name string, t nestor.Task) (nestor.Task, error) {
	var rights graph.Rights
	if t.Data != nil {
		if err := json.Unmarshal(t.Data, &rights); err != nil {
			return t, err
		}
	}
	child, err := w.childTask(ctx, parent, api.Spawn{
		Task: t.Input, Agent: t.Agent, Name: name, Provider: t.Provider, Model: t.Model, Tools: rights.Tools, Role: rights.Role,
		PermissionMode: rights.PermissionMode, Sandbox: rights.Sandbox, Dir: t.Dir, Schema: t.Schema, Limits: t.Limits,
	})
	if t.Swarm != "" {
		child.Swarm = t.Swarm
	}
	if t.Label != "" {
		child.Label = t.Label
	}
	return child, err
}

func (g *graphHost) Start(ctx context.Context, key, name string, t nestor.Task) (nestor.ID, error) {
	child, err := g.w.graphTask(ctx, g.x.Run(), name, t)
	if err != nil {
		return "", err
	}
	return g.x.Submit(ctx, engine.Submission{Task: child, Key: "graph/" + key, Name: name})
}

func (g *graphHost) Await(ctx context.Context, run nestor.ID) (nestor.Result, error) {
	ended, err := g.x.Await(ctx, run)
	if err != nil {
		return nestor.Result{}, err
	}
	r := ended[0]
	if r.Result == nil {
		return nestor.Result{Status: r.State}, nil
	}
	return *r.Result, nil
}

// Recall finds what a task gave before by a hash of all that goes into it.
func (g *graphHost) Recall(ctx context.Context, node nestor.Node, t nestor.Task) (string, *graph.Kept, error) {
	child, err := g.w.graphTask(ctx, g.x.Run(), "", t)
	if err != nil {
		return "", nil, err
	}
	o, err := api.ParseTaskOptions(child.Data)
	if err != nil {
		return "", nil, err
	}
	files, err := hashFiles(os.DirFS(g.dir), node.Files)
	if err != nil {
		return "", nil, err
	}
	o.Trace, o.Above = "", nil // what differs from tree to tree
	if child.Dir != "" {
		o.Subdir = "" // it says the same
	}
	data, err := json.Marshal(struct {
		Agent, Provider, Model, Input, Dir, Swarm string
		Schema                                    json.RawMessage
		Options                                   api.TaskOptions
		Files                                     []string
	}{child.Agent, child.Provider, child.Model, child.Input, child.Dir, child.Swarm, child.Schema, o, files})
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	kept, err := g.w.engine.Recall(ctx, hash)
	if err != nil || kept == nil {
		return hash, nil, err
	}
	k := new(graph.Kept)
	if json.Unmarshal(kept, k) != nil {
		return hash, nil, nil // of another version: it is done anew
	}
	return hash, k, nil
}

func (g *graphHost) Remember(ctx context.Context, hash string, k graph.Kept) error {
	k.Result.Metadata = nil
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return g.w.engine.Remember(ctx, hash, data)
}

func (g *graphHost) Say(ctx context.Context, what string) error {
	return g.say(ctx, &nestor.ExecutionProgress{ExecutionID: string(g.x.Run().ID), Agent: "graph", Activity: what})
}

func (g *graphHost) say(ctx context.Context, events ...nestor.Event) error {
	run := g.x.Run()
	for _, e := range events {
		*e.Head() = nestor.Header{Time: time.Now().UTC(), Run: run.ID, Root: run.Root, Depth: run.Depth()}
	}
	return g.h.Append(ctx, events...)
}

// How much of the project a task may depend on.
const (
	maxHashed      = 10_000
	maxHashedBytes = 256 << 20
)

// hashFiles returns the names and hashes of the files that patterns choose; one that
// names a folder chooses all in it.
func hashFiles(project fs.FS, patterns []string) ([]string, error) {
	var list []string
	var size int64
	add := func(name string) error {
		f, err := project.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		sum := sha256.New()
		n, err := io.Copy(sum, io.LimitReader(f, maxHashedBytes-size+1))
		if err != nil {
			return err
		}
		if size += n; size > maxHashedBytes || len(list) == maxHashed {
			return fmt.Errorf("more than %d files or %d MiB: name fewer", maxHashed, maxHashedBytes>>20)
		}
		list = append(list, name+" "+hex.EncodeToString(sum.Sum(nil)))
		return nil
	}
	for _, pattern := range patterns {
		names, err := fs.Glob(project, path.Clean(strings.TrimSuffix(pattern, "/**")))
		if err != nil {
			return nil, fmt.Errorf("files %q: %w", pattern, err)
		}
		for _, name := range names {
			err := fs.WalkDir(project, name, func(name string, d fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case d.IsDir() && (d.Name() == ".git" || d.Name() == ".nestor"):
					return fs.SkipDir
				case d.Type().IsRegular():
					return add(name)
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("files %q: %w", pattern, err)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
