package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// TaskOptions are what a task says to whoever runs it, in nestor.Task.Data. The
// zero value leaves all to the daemon's config.
type TaskOptions struct {
	// Tools are those that exist for the run, and that it may use without being
	// asked; nil means those of the config.
	Tools          []string         `json:"tools,omitempty"`
	PermissionMode string           `json:"permission_mode,omitempty"` // empty means that of the config
	Role           string           `json:"role,omitempty"`            // that bounds what it may do; empty means that of the config
	Sandbox        string           `json:"sandbox,omitempty"`         // off, files or strict; empty means that of the config
	Env            []string         `json:"env,omitempty"`             // K=V, for what the agent starts
	Session        string           `json:"session_id,omitempty"`      // of the provider, to go on with; empty begins a new one
	Workspace      WorkspaceOptions `json:"workspace,omitzero"`        // what it works in
	Resources      Resources        `json:"resources,omitzero"`        // of the machine that its processes may use together
	// Subdir is the task's folder as its place in the project, with slashes, for
	// workers on other machines. The daemon sets it; empty means that the task
	// names no folder, or one outside of the project.
	Subdir string `json:"subdir,omitempty"`
	// Approves is the run whose work is merged if this one finds it good. The
	// daemon sets it, and takes it from nobody; empty means none.
	Approves nestor.ID `json:"approves,omitempty"`
}

// Resources bound what processes use of a machine, each command of provider api
// with all that it starts, and all of provider sdk's CLI. Zero means as the config
// says.
type Resources struct {
	Memory    int64         `json:"memory,omitempty"`    // bytes
	Processes int           `json:"processes,omitempty"` // at once
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time
}

// ParseTaskOptions reads the Data of a task. It fails if there is something in it
// that nobody would read.
func ParseTaskOptions(data json.RawMessage) (TaskOptions, error) {
	var o TaskOptions
	if len(data) == 0 {
		return o, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return TaskOptions{}, fmt.Errorf("data of the task: %w", err)
	}
	for _, kv := range o.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return TaskOptions{}, fmt.Errorf("data of the task: env %.60q: want NAME=VALUE", kv)
		}
	}
	if o.Subdir != "" && !fs.ValidPath(o.Subdir) {
		return TaskOptions{}, fmt.Errorf("data of the task: subdir %.200q: want a path in the project, such as docs/guide", o.Subdir)
	}
	if o.Resources.Memory < 0 || o.Resources.Processes < 0 || o.Resources.CPU < 0 {
		return TaskOptions{}, fmt.Errorf("data of the task: resources %+v: none may be negative", o.Resources)
	}
	switch o.Workspace.Kind {
	case "", "plain", "swarm", "worktree":
	default:
		return TaskOptions{}, fmt.Errorf("data of the task: workspace kind %.60q: want plain, swarm or worktree", o.Workspace.Kind)
	}
	switch o.Workspace.End {
	case "", "keep", "merge", "drop":
	default:
		return TaskOptions{}, fmt.Errorf("data of the task: workspace end %.60q: want keep, merge or drop", o.Workspace.End)
	}
	return o, nil
}
