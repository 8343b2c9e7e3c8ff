package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/dfaf701a/nestor"
)

// Host runs the tasks of a graph. Its methods may be called from any goroutine.
type Host interface {
	// Start starts a run, or returns the one that was started under the same key.
	// The name is for people.
	Start(ctx context.Context, key, name string, task nestor.Task) (nestor.ID, error)
	// Await returns how a run ended.
	Await(ctx context.Context, run nestor.ID) (nestor.Result, error)
	// Recall returns what the same task gave before, if that is known, and a hash
	// of all that goes into it, under which its result is kept; the hash is empty
	// if results of the task are not kept.
	Recall(ctx context.Context, node nestor.Node, task nestor.Task) (hash string, before *Kept, err error)
	// Remember keeps a result that counts.
	Remember(ctx context.Context, hash string, k Kept) error
	// Say tells those who follow the graph what happens to it.
	Say(ctx context.Context, what string) error
}

// Kept is a result that is kept for the next time.
type Kept struct {
	Run    nestor.ID     `json:"run"` // that gave it
	Result nestor.Result `json:"result"`
}

// Options say how a graph is run.
type Options struct {
	Parallel int  // how many runs there are at once; zero means 8
	Fresh    bool // earlier results do not count
}

// Status is how a task of a graph ended.
type Status string

// The ends of tasks.
const (
	Done    Status = "success"
	Failed  Status = "error"
	Skipped Status = "skipped"
)

// Outcome is what came of a task of a graph.
type Outcome struct {
	Status Status      `json:"status"`
	Runs   []nestor.ID `json:"runs,omitempty"`  // that it took, the last try of each
	Kept   int         `json:"kept,omitempty"`  // results of earlier runs that counted
	Error  string      `json:"error,omitempty"` // why it failed, or was skipped
	Output any         `json:"-"`               // a text, or what follows its schema; of foreach a list
}

// Run runs a graph that [Parse] has read, and returns what came of each task. It
// fails if the host does; a task that fails is in its outcome.
func Run(ctx context.Context, g nestor.Graph, o Options, host Host) (map[string]Outcome, error) {
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	r := &graphRun{
		graph: g, opts: o, host: host, room: make(chan struct{}, o.Parallel), ended: map[string]chan struct{}{}, outcomes: map[string]Outcome{},
	}
	for name := range g.Tasks {
		r.ended[name] = make(chan struct{})
	}
	inputs := map[string]any{}
	for name, raw := range g.Inputs {
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, fmt.Errorf("input %q: %w", name, err)
		}
		inputs[name] = value
	}
	r.inputs = inputs
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for name, node := range g.Tasks {
		all.Go(func() {
			defer close(r.ended[name])
			outcome, err := r.task(ctx, name, node)
			if err != nil {
				stop(fmt.Errorf("task %q: %w", name, err))
				return
			}
			r.finish(name, node, outcome)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return r.outcomes, context.Cause(ctx)
	}
	return r.outcomes, nil
}

// graphRun is a graph that runs.
type graphRun struct {
	graph  nestor.Graph
	opts   Options
	host   Host
	inputs map[string]any
	room   chan struct{}            // holds one for each run that there is
	ended  map[string]chan struct{} // closed by a task's goroutine when its outcome is known

	mu       sync.Mutex // guards what follows
	outcomes map[string]Outcome
	failed   string // the first task whose failure is the graph's
}

func (r *graphRun) finish(name string, node nestor.Node, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[name] = o
	if o.Status == Failed && (node.OnError == "" || node.OnError == nestor.FailGraph) && r.failed == "" {
		r.failed = name
	}
}

// task has one task run, when those before it have ended. It fails if the host
// does.
func (r *graphRun) task(ctx context.Context, name string, node nestor.Node) (Outcome, error) {
	for _, before := range node.After {
		select {
		case <-r.ended[before]:
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		}
	}
	if ctx.Err() != nil {
		return Outcome{}, context.Cause(ctx)
	}
	s, why := r.scope(node)
	if why != "" {
		return r.skip(ctx, name, why)
	}
	if node.When != "" {
		c, err := parseCondition(node.When)
		if err != nil {
			return Outcome{}, err
		}
		value, err := c.holds(s)
		switch {
		case err != nil:
			return Outcome{Status: Failed, Error: fmt.Sprintf("when: %v", err)}, nil
		case !truth(value):
			return r.skip(ctx, name, "its condition does not hold")
		}
	}
	if node.ForEach != "" {
		return r.each(ctx, name, node, s)
	}
	return r.one(ctx, name, name, node, s)
}

// scope is what a task's texts may refer to; why is not empty if it is to be
// skipped.
func (r *graphRun) scope(node nestor.Node) (s scope, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = scope{"inputs": r.inputs}
	if r.failed != "" {
		return nil, fmt.Sprintf("task %q failed", r.failed)
	}
	for _, before := range node.After {
		o := r.outcomes[before]
		if o.Status == Failed && r.graph.Tasks[before].OnError != nestor.GoOn {
			return nil, fmt.Sprintf("task %q failed", before)
		}
		if o.Status == Skipped && node.When == "" {
			return nil, fmt.Sprintf("task %q was skipped", before)
		}
		s[before] = map[string]any{"output": o.Output, "status": string(o.Status), "error": o.Error}
	}
	return s, ""
}

func (r *graphRun) skip(ctx context.Context, name, why string) (Outcome, error) {
	return Outcome{Status: Skipped, Error: why}, r.host.Say(ctx, fmt.Sprintf("task %s is skipped: %s", name, why))
}

// defaultItems is how many items a list may have if the task does not say.
const defaultItems = 100

// each has a task run for each item of a list.
func (r *graphRun) each(ctx context.Context, name string, node nestor.Node, s scope) (Outcome, error) {
	ref, err := listReference(node.ForEach)
	if err != nil {
		return Outcome{}, err
	}
	value, err := s.find(ref)
	if err != nil {
		return Outcome{Status: Failed, Error: fmt.Sprintf("foreach: %v", err)}, nil
	}
	items, ok := value.([]any)
	if !ok && value != nil {
		return Outcome{Status: Failed, Error: fmt.Sprintf("foreach ${%s}: it is %s, not a list", ref.source, kindOf(value))}, nil
	}
	most := node.MaxItems
	if most == 0 {
		most = defaultItems
	}
	if len(items) > most {
		return Outcome{Status: Failed, Error: fmt.Sprintf("foreach ${%s}: a list of %d items, and %d are allowed: set max_items", ref.source, len(items), most)}, nil
	}
	parallel := node.Parallel
	if parallel == 0 {
		parallel = max(1, len(items))
	}
	turn := make(chan struct{}, parallel)
	outcomes, errs := make([]Outcome, len(items)), make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() {
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				errs[i] = context.Cause(ctx)
				return
			}
			defer func() { <-turn }()
			own := scope{"item": item, "index": float64(i)}
			maps.Copy(own, s)
			n := strconv.Itoa(i)
			outcomes[i], errs[i] = r.one(ctx, name+"/"+n, name+"["+n+"]", node, own)
		})
	}
	all.Wait()
	return together(outcomes), errors.Join(errs...)
}

// together is the outcome of all items.
func together(list []Outcome) Outcome {
	whole, outputs, failed := Outcome{Status: Done}, make([]any, len(list)), 0
	for i, o := range list {
		outputs[i] = o.Output
		whole.Runs, whole.Kept = append(whole.Runs, o.Runs...), whole.Kept+o.Kept
		if o.Status == Failed {
			failed++
			if whole.Error == "" {
				whole.Error = o.Error
			}
		}
	}
	whole.Output = outputs
	if failed > 0 {
		whole.Status = Failed
		whole.Error = fmt.Sprintf("%d of %d items failed, the first: %s", failed, len(list), whole.Error)
	}
	return whole
}

// one has a task run once, and again if it fails and may be.
func (r *graphRun) one(ctx context.Context, key, name string, node nestor.Node, s scope) (Outcome, error) {
	t, err := parseText(node.Task.Input)
	if err != nil {
		return Outcome{}, err
	}
	task := node.Task
	if task.Input, err = t.render(s); err != nil {
		return Outcome{Status: Failed, Error: fmt.Sprintf("input: %v", err)}, nil
	}
	hash, before, err := r.host.Recall(ctx, node, task)
	if err != nil {
		return Outcome{}, err
	}
	if before != nil && !r.opts.Fresh && !node.Fresh {
		if err := r.host.Say(ctx, fmt.Sprintf("task %s: the result of run %s counts", name, before.Run)); err != nil {
			return Outcome{}, err
		}
		return Outcome{Status: Done, Runs: []nestor.ID{before.Run}, Kept: 1, Output: outputOf(task, before.Result)}, nil
	}
	select {
	case r.room <- struct{}{}:
	case <-ctx.Done():
		return Outcome{}, context.Cause(ctx)
	}
	defer func() { <-r.room }()
	for try := 0; ; try++ {
		if why := r.over(); why != "" {
			return Outcome{Status: Skipped, Error: why}, nil
		}
		attempt := key
		if try > 0 {
			attempt += "#" + strconv.Itoa(try+1)
		}
		run, err := r.host.Start(ctx, attempt, name, task)
		if err != nil {
			if limit, refused := errors.AsType[*nestor.LimitError](err); refused {
				return Outcome{Status: Failed, Error: limit.Error()}, nil
			}
			return Outcome{}, err
		}
		result, err := r.host.Await(ctx, run)
		if err != nil {
			return Outcome{}, err
		}
		if result.Status == nestor.Success {
			if hash != "" {
				if err := r.host.Remember(ctx, hash, Kept{Run: run, Result: result}); err != nil {
					return Outcome{}, err
				}
			}
			return Outcome{Status: Done, Runs: []nestor.ID{run}, Output: outputOf(task, result)}, nil
		}
		if try == node.Retry {
			return Outcome{Status: Failed, Runs: []nestor.ID{run}, Error: whyOf(result)}, nil
		}
		if err := r.host.Say(ctx, fmt.Sprintf("task %s failed, and is run again: %s", name, whyOf(result))); err != nil {
			return Outcome{}, err
		}
	}
}

// over says why nothing more is begun; empty if it is.
func (r *graphRun) over() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == "" {
		return ""
	}
	return fmt.Sprintf("task %q failed", r.failed)
}

// outputOf is what other tasks see of a result.
func outputOf(t nestor.Task, r nestor.Result) any {
	if t.Schema == nil {
		return r.Output
	}
	var value any
	if json.Unmarshal(r.Structured, &value) != nil {
		return nil
	}
	return value
}

func whyOf(r nestor.Result) string {
	if r.Error != nil {
		return r.Error.Error()
	}
	return "it ended with " + string(r.Status)
}

// Result makes the result of a graph's run: what its last tasks gave, and what came
// of each.
func Result(g nestor.Graph, outcomes map[string]Outcome) nestor.Result {
	result := nestor.Result{Status: nestor.Success, Metadata: map[string]any{"tasks": outcomes}}
	last := map[string]any{} // outputs of tasks that nothing comes after
	for name := range g.Tasks {
		last[name] = outcomes[name].Output
	}
	for _, name := range slices.Sorted(maps.Keys(g.Tasks)) {
		node, o := g.Tasks[name], outcomes[name]
		for _, before := range node.After {
			delete(last, before)
		}
		if o.Status == Failed && (node.OnError == "" || node.OnError == nestor.FailGraph) && result.Error == nil {
			result.Status = nestor.Error
			result.Error = &nestor.Failure{Kind: nestor.Dependency, Message: fmt.Sprintf("task %q: %s", name, o.Error)}
		}
	}
	var value any = last
	if len(last) == 1 {
		for _, only := range last {
			value = only
		}
	}
	if value == nil {
		return result // it failed, or was skipped, and gave nothing
	}
	text, err := show(value)
	if err != nil {
		text = err.Error()
	}
	result.Output = text
	if _, words := value.(string); !words && err == nil {
		result.Structured = json.RawMessage(text)
	}
	return result
}
