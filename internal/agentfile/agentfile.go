// Package agentfile reads agents from Markdown files: the commands, skills and
// agents that people have for Claude Code, unchanged, and what Nestor adds to
// them.
//
// [Parse] makes a [Definition] of one file, and says what is wrong with it, with
// places. A [Library] reads all files of a project and a user, and the built-in
// ones, and knows which of them a name means. [Definition.Render] makes of a
// definition and an input what an agent is told.
//
// Files are hostile: they are bounded, never executed, and read only if they are
// regular. The package starts no processes; what a template wants of git or of a
// command is given by the caller.
package agentfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
)

// Kind is what sort of file a definition comes from.
type Kind string

// The kinds.
const (
	Command Kind = "command" // a prompt: its text is what the agent is told
	Skill   Kind = "skill"   // instructions, with files and tools of its own
	Agent   Kind = "agent"   // instructions, with the tools that its file names
)

// Scope is whose a definition is.
type Scope string

// The scopes. A later one goes over those before it.
const (
	Builtin Scope = "builtin"
	User    Scope = "user"
	Project Scope = "project"
	Swarm   Scope = "swarm" // of the project, too
)

// Source is where a definition came from.
type Source struct {
	Scope Scope  `json:"scope"`
	Swarm string `json:"swarm,omitempty"` // whose agent it is; empty for other scopes
	File  string `json:"file"`            // with slashes: from the project's folder, or from the user's, as ~/.claude/…
	Path  string `json:"path,omitempty"`  // the whole path, where it was read; empty for built-in ones
	Dir   string `json:"dir,omitempty"`   // of a skill's files, likewise as File is
}

// Definition is an agent. It is a value: nobody changes one, and what a Library
// returns is a copy of its own.
type Definition struct {
	Name        string `json:"name"`
	Kind        Kind   `json:"kind"`
	Source      Source `json:"source"`
	Description string `json:"description,omitempty"`
	Role        string `json:"role,omitempty"`     // bounds what it may do; empty means none
	Provider    string `json:"provider,omitempty"` // empty means the configured one
	Model       string `json:"model,omitempty"`    // likewise

	Tools           []string             `json:"tools,omitzero"`             // that exist and need no question, custom ones included; nil means all
	DisallowedTools []string             `json:"disallowed_tools,omitempty"` // rules about what is denied
	CustomTools     []CustomTool         `json:"custom_tools,omitempty"`
	MCPServers      map[string]MCPServer `json:"mcp_servers,omitempty"`
	Hooks           []Hook               `json:"hooks,omitempty"` // in the order of the file

	Skills  []string     `json:"skills,omitempty"`  // whose texts, files and custom tools an agent has from the start
	Carried []Definition `json:"carried,omitempty"` // these skills, in a definition that a Set returns
	Memory  Memory       `json:"memory,omitempty"`  // whose folder it keeps what it learns in; empty means none
	// MemoryTools are those of Tools that are there for the memory alone: they
	// change nothing elsewhere.
	MemoryTools []string `json:"memory_tools,omitempty"`
	// Worktree says that a run works in a git worktree of its own, unless it is told
	// where to work.
	Worktree bool `json:"worktree,omitempty"`

	Template     string          `json:"template,omitempty"` // of what the agent is told; empty means the input as it is
	Inputs       []Input         `json:"inputs,omitempty"`
	Arguments    []string        `json:"arguments,omitempty"` // names of the words of the input, as $name
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`

	Limits         nestor.Limits `json:"limits,omitzero"`
	MaxDepth       int           `json:"max_depth,omitempty"`       // how deep below the root a run may be; zero leaves it open
	Delegates      []string      `json:"delegates,omitzero"`        // agents that it may spawn; nil means any
	Delegation     Delegation    `json:"delegation,omitempty"`      // empty means Pool
	PermissionMode string        `json:"permission_mode,omitempty"` // empty means the configured one

	Prompt string `json:"prompt"` // the text of the file
	Hash   string `json:"hash"`   // SHA-256 of the file, and of a skill's other files, in hex; with Carried, of these too

	skillsLine int // of the file, in which Skills are said
}

// Delegation is how an agent starts others.
type Delegation string

// The ways.
const (
	Pool Delegation = "pool" // by Nestor's tools
	CLI  Delegation = "cli"  // by the Claude CLI's own
)

// CustomTool is a tool that is a command.
type CustomTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	// Command is the program and its arguments. {{field}} in one of them stands
	// for a field of the input; it stays one argument, whatever it holds.
	Command []string      `json:"command"`
	Timeout time.Duration `json:"timeout,omitempty"` // zero means a minute
}

// MCPServer is a server whose tools the agent has. Either Command or URL is set.
type MCPServer struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// CustomServer is the name of the MCP server that custom tools are of: the model
// sees them as mcp__custom__NAME.
const CustomServer = "custom"

// ToolName returns the name by which the model sees a custom tool.
func (t CustomTool) ToolName() string { return "mcp__" + CustomServer + "__" + t.Name }

// BaseTools returns the tools of commands and skills.
func BaseTools() []string { return []string{"Read", "Write", "Edit", "Grep", "Glob"} }

// Clone returns a copy that shares nothing with d.
func (d Definition) Clone() Definition {
	d.Tools = slices.Clone(d.Tools)
	d.DisallowedTools = slices.Clone(d.DisallowedTools)
	d.Delegates = slices.Clone(d.Delegates)
	d.Arguments = slices.Clone(d.Arguments)
	d.OutputSchema = slices.Clone(d.OutputSchema)
	d.CustomTools = slices.Clone(d.CustomTools)
	for i, t := range d.CustomTools {
		d.CustomTools[i].InputSchema, d.CustomTools[i].Command = slices.Clone(t.InputSchema), slices.Clone(t.Command)
	}
	d.Inputs = slices.Clone(d.Inputs)
	for i, in := range d.Inputs {
		d.Inputs[i].Schema, d.Inputs[i].Default = slices.Clone(in.Schema), slices.Clone(in.Default)
	}
	d.Hooks = slices.Clone(d.Hooks)
	for i, h := range d.Hooks {
		d.Hooks[i].Args = slices.Clone(h.Args)
	}
	d.Skills, d.MemoryTools = slices.Clone(d.Skills), slices.Clone(d.MemoryTools)
	d.Carried = slices.Clone(d.Carried)
	for i, c := range d.Carried {
		d.Carried[i] = c.Clone()
	}
	d.MCPServers = maps.Clone(d.MCPServers)
	for name, s := range d.MCPServers {
		s.Args, s.Env, s.Headers = slices.Clone(s.Args), maps.Clone(s.Env), maps.Clone(s.Headers)
		d.MCPServers[name] = s
	}
	return d
}

// Problem is what is wrong with a file. Unless it is a warning, the file is not
// used.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1; zero when the file as a whole is meant
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"` // with the way out
	Warning bool   `json:"warning,omitempty"`
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, max(p.Column, 1), p.Message)
}
