// Package tools are what agents of the provider "api" do things with: Claude
// Code's tools, with its names and input schemas, and the tools of MCP servers.
//
// A [Set] is the toolbox of one agent: Read, Write, Edit, MultiEdit, Bash,
// TaskOutput, TaskStop, Glob, Grep, WebFetch and TodoWrite. [Servers] are the
// MCP servers of one agent. Names, inputs and the texts of results are those of
// Claude Code 2.1.325, so that prompts that were written for it hold; where they
// differ, docs/api-tools.md says why.
//
// # What keeps the file tools inside
//
// A path is resolved through all symlinks, which tells the folder that it is in
// and what a policy is asked about. What is then opened is not that path: it is
// reached from a handle of the folder, an [os.Root], one name at a time, and
// each name must be the folder or file that it was when it was looked at, not a
// link. So whatever somebody changes meanwhile, the call fails or touches what
// was decided about. Writes make a new file and rename it. Files with a second
// hard link, which may be anywhere, are not read. Devices, pipes, sockets, /proc,
// /dev and /sys are never read.
//
// Bash is not kept inside by this package: its commands can do what the process
// may. What confines them is given by the caller in Options.Command.
//
// # What was taken from anthropic-sdk-go
//
// Its package tools/agenttoolset (1.84.0) has bash, read, write, edit, glob and
// grep. None of it is used, for these reasons. The names and inputs are those of
// another tool set, with lower-case names. Its paths are checked as strings and
// opened afterwards, which its comments call a residual race. Its shell is one
// pseudo terminal, a new dependency, without background commands, and is started
// by the package itself, where nothing can confine it. Nothing is asked to have
// been read before it is edited, and what is cut is lost.
// The MCP client is the official SDK's.
package tools

import (
	"context"
	"encoding/json"

	"github.com/dfaf701a/nestor/claude"
)

// Tool is something that a model can have done.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the input, an object

	// ReadOnly says that calls change nothing: they may run side by side.
	ReadOnly bool

	// Access says what a call would touch, before anybody decides about it. Its
	// error is for the model: the input is wrong. Nil means nothing but what
	// the input says.
	Access func(input json.RawMessage) (Access, error)

	// Run does it. Its error is for the model, which goes on. When ctx ends,
	// Run returns soon, with the context's cause and nothing left running.
	// It checks for itself what it touches, at the moment when it does.
	Run func(ctx context.Context, input json.RawMessage) (Result, error)
}

// Access is what a call of a tool would touch.
type Access struct {
	Input   json.RawMessage // the call's input, with its paths as Path; nil if nothing changed
	Path    string          // the file or folder, absolute and through all symlinks; empty if there is none
	Host    string          // the host; empty if there is none
	Edits   bool            // it changes a file
	Outside bool            // Path is not below any folder that the agent may use
}

// Result is what came of a call.
type Result struct {
	Text   string         // what the model is told
	Blocks []claude.Block // behind Text: *claude.Image, *claude.Document
	Data   any            // what hooks are told, as JSON; nil means Text
}
