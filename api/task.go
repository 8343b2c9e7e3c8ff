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
	// Whole says that the limits of the task, and Resources, are all that it is to have:
	// zero is none, and not what the config of whoever has the project says. Rights that
	// are left open are those of the config in any case.
	Whole bool `json:"whole,omitempty"`
	// Tools are those that exist for the run, and that it may use without being
	// asked; nil means those of the config.
	Tools          []string `json:"tools,omitzero"`
	PermissionMode string   `json:"permission_mode,omitempty"` // empty means that of the config
	Role           string   `json:"role,omitempty"`            // that bounds what it may do; empty means that of the config
	Sandbox        string   `json:"sandbox,omitempty"`         // off, files or strict; empty means that of the config
	// Hosts are those that its processes may reach, and no others, at level strict: see
	// docs/sandbox.md. Nil means those of the config.
	Hosts   []string `json:"hosts,omitzero"`
	Env     []string `json:"env,omitempty"`        // K=V, for what the agent starts
	Session string   `json:"session_id,omitempty"` // of the provider, to go on with; empty begins a new one
	// Resumes is the run that this one goes on with: what Given does not name is as
	// it was there, its agent included, as that was defined then. Given are keys of
	// the config, such as role. Empty means none.
	Resumes nestor.ID `json:"resumes,omitempty"`
	Given   []string  `json:"given,omitempty"`
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
	// Graph is what the run is if it is no agent's: its tasks are the runs below
	// it. Fresh says that what they gave before does not count.
	Graph     *nestor.Graph    `json:"graph,omitempty"`
	Fresh     bool             `json:"fresh,omitempty"`
	Workspace WorkspaceOptions `json:"workspace,omitzero"` // what it works in
	Resources Resources        `json:"resources,omitzero"` // of the machine that its processes may use together
	// Subdir is the task's folder as its place in the project, with slashes, for
	// workers on other machines. The daemon sets it; empty means that the task
	// names no folder, or one that other machines have not.
	Subdir string `json:"subdir,omitempty"`
	// Approves is the run whose work is merged if this one finds it good. The
	// daemon sets it, and takes it from nobody; empty means none.
	Approves nestor.ID `json:"approves,omitempty"`

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
	Definition string   `json:"definition"`         // a reference to it, as it was when the task was submitted
	Hash       string   `json:"hash"`               // of its source
	Role       string   `json:"role,omitempty"`     // that bounds the run besides that of its options; empty means none
	Servers    []string `json:"servers,omitempty"`  // names of the MCP servers that it brings
	Delegates  []string `json:"delegates,omitzero"` // agents that it may start; nil means any
	// Resumed says that the run goes on with a conversation of the agent: it is told
	// the task's input as it is. First is what the conversation began with, which its
	// instructions are made for; empty means that nobody knows.
	Resumed bool   `json:"resumed,omitempty"`
	First   string `json:"first,omitempty"`
}

// Bounds are what a run may do, for those below it.
type Bounds struct {
	Role  string   `json:"role,omitempty"` // empty means none
	Tools []string `json:"tools,omitzero"` // nil means all
	Swarm string   `json:"swarm,omitempty"`
	Dir   string   `json:"dir,omitempty"` // where it works
	// Subdir is that folder as its place in the project, which counts if it is
	// given: other machines have another folder there.
	Subdir string `json:"subdir,omitempty"`
}

// The values of TaskOptions.Delegation.
const (
	DelegationPool = "pool"
	DelegationCLI  = "cli"
)

// Resources bound what processes use of a machine, each command of provider api
// with all that it starts, and all of provider sdk's CLI. Zero means as the config
// says.
type Resources struct {
	Memory    int64         `json:"memory,omitempty"`    // bytes
	Processes int           `json:"processes,omitempty"` // at once
	CPU       time.Duration `json:"cpu,omitempty"`       // processor time
	// Processors is how many may be used at once, such as 1.5. Only control groups can
	// limit that.
	Processors float64 `json:"processors,omitempty"`
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
	if o.Delegation != "" && o.Delegation != DelegationPool && o.Delegation != DelegationCLI {
		return TaskOptions{}, fmt.Errorf("data of the task: delegation %.60q: there are %s and %s", o.Delegation, DelegationPool, DelegationCLI)
	}
	if o.Trace != "" {
		if _, err := ParseTrace(o.Trace); err != nil {
			return TaskOptions{}, fmt.Errorf("data of the task: %w", err)
		}
	}
	places := []string{o.Subdir}
	for _, b := range o.Above {
		places = append(places, b.Subdir)
	}
	for _, place := range places {
		if place != "" && !fs.ValidPath(place) {
			return TaskOptions{}, fmt.Errorf("data of the task: subdir %.200q: want a path in the project, such as docs/guide", place)
		}
	}
	if o.Resources.Memory < 0 || o.Resources.Processes < 0 || o.Resources.CPU < 0 || o.Resources.Processors < 0 {
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
