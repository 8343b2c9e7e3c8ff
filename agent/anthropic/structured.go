package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// outputTool is the tool with which the model gives its result in a schema. The
// CLI has it by this name; seen in 2.1.325.
const outputTool = "StructuredOutput"

// maxOutputs is how often the model may try to follow the schema.
const maxOutputs = 5

// schema is what a result must follow.
type schema struct {
	raw json.RawMessage
	all *jsonschema.Resolved
}

func newSchema(raw json.RawMessage) (*schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("the schema of the result: %w", err)
	}
	if s.Type != "object" {
		return nil, errors.New(`the schema of the result: its type is not "object": wrap it in one`)
	}
	all, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of the result: %w", err)
	}
	return &schema{raw: raw, all: all}, nil
}

// check tells what is wrong with a result.
func (s *schema) check(output json.RawMessage) error {
	var value map[string]any
	if err := json.Unmarshal(output, &value); err != nil {
		return said("Output does not match required schema: " + err.Error())
	}
	if err := s.all.Validate(value); err != nil {
		return said("Output does not match required schema: " + err.Error())
	}
	return nil
}

// tool is the tool that takes the result and gives it to accept.
func (s *schema) tool(accept func(json.RawMessage), refuse func(error)) tools.Tool {
	return tools.Tool{
		Name:        outputTool,
		Description: "Return the final result in the structure that was asked for. Call this exactly once, at the end.",
		Schema:      s.raw,
		ReadOnly:    true,
		Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
			if err := s.check(input); err != nil {
				refuse(err)
				return tools.Result{}, err
			}
			accept(input)
			return tools.Result{Text: "Structured output provided successfully"}, nil
		},
	}
}
