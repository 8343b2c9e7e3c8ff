package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
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
	// Subdir is the task's folder as its place in the project, with slashes, for
	// workers on other machines. The daemon sets it; empty means that the task
	// names no folder, or one outside of the project.
	Subdir string `json:"subdir,omitempty"`

	// What follows is for tasks that name an agent.

	Inputs    map[string]json.RawMessage `json:"inputs,omitempty"`     // by name; a text may write a value of another type
	FocusFile string                     `json:"focus_file,omitempty"` // what it is about; empty means nothing in particular
	// Yields are what of the task gives way to what the agent's definition says,
	// by keys of the config: provider, model, permission_mode, limits.max_turns.
	// What is not named here goes over the definition.
	Yields []string `json:"yields,omitempty"`
	// Agent is what the definition adds. The daemon sets it; nil means that the
	// task names no agent.
	Agent *AgentOptions `json:"agent,omitempty"`
}

// AgentOptions are what the definition of an agent adds to its task, besides what
// the task says itself then.
type AgentOptions struct {
	Definition string   `json:"definition"`           // a reference to it, as it was when the task was submitted
	Hash       string   `json:"hash"`                 // of its source
	Role       string   `json:"role,omitempty"`       // that bounds the run besides its own; empty means none
	Servers    []string `json:"servers,omitempty"`    // names of the MCP servers that it brings
	Delegates  []string `json:"delegates,omitzero"`   // agents that it may start; nil means any
	Delegation string   `json:"delegation,omitempty"` // pool or cli; empty means pool
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
	return o, nil
}
