package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// resultSchema is the JSON Schema of a Go type for Options.Schema. The CLI
// takes the schemas of objects only: any other type is wrapped in an object
// with the one property "value".
type resultSchema struct {
	JSON    json.RawMessage
	wrapped bool
}

// schemaFor derives the schema of T as encoding/json writes it: a field
// without omitempty or omitzero is required, and the tag jsonschema describes
// it. A type that contains itself has no schema.
func schemaFor[T any]() (*resultSchema, error) {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem() // a result is never null
	}
	s, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	listsAreLists(s)
	r := &resultSchema{wrapped: s.Type != "object"}
	if r.wrapped {
		s = &jsonschema.Schema{
			Type:                 "object",
			Properties:           map[string]*jsonschema.Schema{"value": s},
			Required:             []string{"value"},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		}
	}
	if r.JSON, err = json.Marshal(s); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t, err)
	}
	return r, nil
}

// decode reads structured output into v.
func (r *resultSchema) decode(output json.RawMessage, v any) error {
	if r.wrapped {
		var w struct {
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal(output, &w); err != nil {
			return fmt.Errorf("reading structured output: %w", err)
		}
		if w.Value == nil {
			return errors.New(`reading structured output: it has no "value"`)
		}
		output = w.Value
	}
	if err := json.Unmarshal(output, v); err != nil {
		return fmt.Errorf("reading structured output: %w", err)
	}
	return nil
}

// listsAreLists takes back that a slice may be null: true of what Go writes,
// but an empty list is what one wants to be given.
func listsAreLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	for _, p := range s.Properties {
		listsAreLists(p)
	}
	listsAreLists(s.Items)
	listsAreLists(s.AdditionalProperties)
}
