package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// TaskOptions are what a task says to whoever runs it, in nestor.Task.Data. The
// zero value leaves all to the daemon's config.
type TaskOptions struct {
	// Tools are those that exist for the run, and that it may use without being
	// asked; nil means those of the config.
	Tools          []string `json:"tools,omitzero"`
	PermissionMode string   `json:"permission_mode,omitempty"` // empty means that of the config
	Role           string   `json:"role,omitempty"`            // that bounds what it may do; empty means that of the config
	Sandbox        string   `json:"sandbox,omitempty"`         // off, files or strict; empty means that of the config
	Env            []string `json:"env,omitempty"`             // K=V, for what the agent starts
	Session        string   `json:"session_id,omitempty"`      // of the provider, to go on with; empty begins a new one
	// Delegation says who starts agents for the run: pool, the default, or cli,
	// which leaves the Claude CLI its own tool for it.
	Delegation string `json:"delegation,omitempty"`
	// AskFor is how long a person may take to answer whether a tool may be used that
	// the policy asks about; zero means that nobody is there to be asked.
	AskFor time.Duration `json:"ask_for,omitempty"`
	// Trace is the W3C traceparent that the tree of runs belongs to; empty means
	// that its root begins one.
	Trace string `json:"traceparent,omitempty"`
	// Above bounds the run by what the runs above it may do, besides its own role
	// and tools. The daemon sets it.
	Above []Bounds `json:"above,omitempty"`
	// Subdir is the task's folder as its place in the project, with slashes, for
	// workers on other machines. The daemon sets it; empty means that the task
	// names no folder, or one outside of the project.
	Subdir string `json:"subdir,omitempty"`
}

// Bounds are what a run may do, for those below it.
type Bounds struct {
	Role  string   `json:"role,omitempty"` // empty means none
	Tools []string `json:"tools,omitzero"` // nil means all
	Swarm string   `json:"swarm,omitempty"`
	Dir   string   `json:"dir,omitempty"` // where it works
}

// The values of TaskOptions.Delegation.
const (
	DelegationPool = "pool"
	DelegationCLI  = "cli"
)

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
	if o.Delegation != "" && o.Delegation != DelegationPool && o.Delegation != DelegationCLI {
		return TaskOptions{}, fmt.Errorf("data of the task: delegation %.60q: there are %s and %s", o.Delegation, DelegationPool, DelegationCLI)
	}
	if o.Trace != "" {
		if _, err := ParseTrace(o.Trace); err != nil {
			return TaskOptions{}, fmt.Errorf("data of the task: %w", err)
		}
	}
	if o.Subdir != "" && !fs.ValidPath(o.Subdir) {
		return TaskOptions{}, fmt.Errorf("data of the task: subdir %.200q: want a path in the project, such as docs/guide", o.Subdir)
	}
	return o, nil
}
