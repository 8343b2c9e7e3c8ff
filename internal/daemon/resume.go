package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/plan"
)

// resume makes a task that goes on with an earlier run one that is as that was:
// with its agent, as it was defined then, and within its bounds, except for what is
// given anew. A task that goes on with none is defined as it stands.
func (b *backend) resume(ctx context.Context, t *nestor.Task) error {
	o, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return err
	}
	if o.Resumes == "" {
		return b.agents.define(ctx, t)
	}
	old, err := b.earlier(ctx, o.Resumes)
	if err != nil {
		return err
	}
	given := func(key string) bool { return slices.Contains(o.Given, key) }
	takeOver(t, &o, old, given)
	var d agentfile.Definition
	if old.Options.Agent != nil {
		if d, _, err = b.worker.definition(ctx, old.Options); err != nil {
			return err
		}
		t.Agent = old.Task.Agent
	}
	if t.Data, err = json.Marshal(o); err != nil {
		return err
	}
	if old.Options.Agent == nil { // it has none, or one of which only the name is known
		return b.agents.define(ctx, t)
	}
	// Whoever let the earlier run have this definition trusted it.
	if err := b.agents.settle(d, t, &o); err != nil {
		return err
	}
	o.Agent.Definition, o.Agent.Resumed, o.Agent.First = old.Options.Agent.Definition, true, old.Options.Agent.First
	if !old.Options.Agent.Resumed {
		o.Agent.First = old.Task.Input
	}
	t.Data, err = json.Marshal(o)
	return err
}

// takeOver gives a task what an earlier one had, but for what is given.
func takeOver(t *nestor.Task, o *api.TaskOptions, old resumable, given func(string) bool) {
	for key, take := range map[string]func(){
		"model":             func() { t.Model = old.Task.Model },
		"tools":             func() { o.Tools = old.Options.Tools },
		"permission_mode":   func() { o.PermissionMode = old.Options.PermissionMode },
		"role":              func() { o.Role = old.Options.Role },
		"sandbox":           func() { o.Sandbox = old.Options.Sandbox },
		"sandbox_hosts":     func() { o.Hosts = old.Options.Hosts },
		"delegation":        func() { o.Delegation = old.Options.Delegation },
		"workspace.kind":    func() { o.Workspace.Kind = old.Options.Workspace.Kind },
		"workspace.end":     func() { o.Workspace.End = old.Options.Workspace.End },
		"limits.memory":     func() { o.Resources.Memory = old.Options.Resources.Memory },
		"limits.processes":  func() { o.Resources.Processes = old.Options.Resources.Processes },
		"limits.cpu":        func() { o.Resources.CPU = old.Options.Resources.CPU },
		"limits.processors": func() { o.Resources.Processors = old.Options.Resources.Processors },
	} {
		if !given(key) && old.known {
			take()
		}
	}
	if old.known {
		o.Whole = o.Whole && old.Options.Whole
	}
	t.Limits = settleLimits(t.Limits, old.Task.Limits, func(key string) bool { return !given(key) })
	o.Above, o.Inputs, o.FocusFile, o.Yields = old.Options.Above, old.Options.Inputs, old.Options.FocusFile, nil
}

// resumable is what of a run is needed to go on with it.
type resumable struct {
	Task    nestor.Task     `json:"task"`
	Options api.TaskOptions `json:"options"`

	known bool // more than its name
}

// resumeKey is where the metadata of a result refers to it: the run's document is
// gone when its tree is archived.
const resumeKey = "resume"

// earlier returns the run that is to be gone on with.
func (b *backend) earlier(ctx context.Context, id nestor.ID) (r resumable, err error) {
	run, err := b.engine.Get(ctx, id)
	if err == nil {
		r.Task, r.known = run.Task, true
		r.Options, err = api.ParseTaskOptions(run.Task.Data)
		return r, err
	}
	if !errors.Is(err, nestor.ErrRunNotFound) {
		return r, err
	}
	past, err := b.past(ctx, id)
	if err != nil || past.Result == nil {
		return r, err
	}
	ref, ok := past.Result.Metadata[resumeKey].(string)
	if !ok {
		return r, nil
	}
	data, err := b.blob(ctx, definitionsRoot, ref)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	r.Task.Input = past.Input
	if err != nil {
		return r, fmt.Errorf("run %s: what is kept of it cannot be read: %w", id, err)
	}
	r.known = true
	return r, nil
}

// keepForResume keeps what is needed to go on with a run, if it is more than anybody
// has, and refers to it in the metadata of its result. It is once for all runs that
// are alike: what is a run's own, its input, is in the history.
func (w *worker) keepForResume(ctx context.Context, run plan.Run, o api.TaskOptions, result *nestor.Result) {
	open := (o.Sandbox == "" || o.Sandbox == "off") && o.Hosts == nil
	if result.Session == "" || o.Agent == nil && o.Role == "" && o.Tools == nil && o.Above == nil && open {
		return
	}
	data, err := json.Marshal(resumable{
		Task: nestor.Task{Agent: run.Task.Agent, Model: run.Task.Model, Limits: run.Task.Limits},
		Options: api.TaskOptions{ // without the environment, which may hold secrets
			Agent: o.Agent, Tools: o.Tools, PermissionMode: o.PermissionMode, Role: o.Role, Sandbox: o.Sandbox, Hosts: o.Hosts, Delegation: o.Delegation,
			Workspace: o.Workspace, Resources: o.Resources, Above: o.Above, Inputs: o.Inputs, FocusFile: o.FocusFile,
		},
	})
	ref := ""
	if err == nil {
		ref, err = w.log.PutBlob(ctx, definitionsRoot, data)
	}
	if err != nil {
		w.notes.Warn("what a run was is not kept for who resumes it", "run", run.ID, "error", err)
		return
	}
	if result.Metadata == nil {
		result.Metadata = map[string]any{}
	}
	result.Metadata[resumeKey] = ref
}
