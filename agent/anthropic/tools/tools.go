// Package tools are what agents of the provider "api" do things with: Claude
// Code's tools, with its names and input schemas.
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
