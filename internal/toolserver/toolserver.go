// Package toolserver makes tools of commands. [Run] runs one such command: confined as
// the run is, bounded in time and output, its process group ended with it.
package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor/agent"
)

// Tool is a tool that is a command.
type Tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage // of type object
	// Argv returns the command line for an input that follows the schema.
	Argv    func(input json.RawMessage) ([]string, error)
	Timeout time.Duration // zero means a minute
}

// New returns the tools as agents have them, whose commands run as o says. A command
// gets the whole input, as JSON, on its standard input. What it says is the
// result; if it fails, the result is an error that holds what it said.
func New(tools []Tool, o Options) ([]agent.Tool, error) {
	var list []agent.Tool
	for _, t := range tools {
		var schema jsonschema.Schema
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			return nil, fmt.Errorf("tool %s: its input schema: %w", t.Name, err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			return nil, fmt.Errorf("tool %s: its input schema: %w", t.Name, err)
		}
		if schema.Type != "object" {
			return nil, fmt.Errorf("tool %s: its input schema is of type %q; it must be object", t.Name, schema.Type)
		}
		list = append(list, agent.Tool{
			Name: t.Name, Description: t.Description, Schema: t.InputSchema,
			Call: func(ctx context.Context, input json.RawMessage) (string, error) {
				return t.call(ctx, resolved, input, o)
			},
		})
	}
	return list, nil
}

// call runs the command for an input.
func (t Tool) call(ctx context.Context, schema *jsonschema.Resolved, input json.RawMessage, o Options) (string, error) {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	var value any
	if err := json.Unmarshal(input, &value); err != nil {
		return "", fmt.Errorf("the input is no JSON: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return "", fmt.Errorf("the input does not follow its schema: %w", err)
	}
	argv, err := t.Argv(input)
	if err != nil {
		return "", err
	}
	out, err := Run(ctx, argv, input, t.Timeout, o)
	if err != nil && out != "" {
		err = errors.New(err.Error() + "\n" + out)
	}
	return out, err
}
