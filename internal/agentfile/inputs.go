package agentfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

// Input is a value that whoever starts the agent gives it by name.
type Input struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the value
}

// maxInputs is how many inputs a definition may have.
const maxInputs = 100

var types = []string{"string", "number", "integer", "boolean", "array", "object"}

// readInputs reads a mapping of names to types, or to schemas that may say
// required, too.
func readInputs(p *parser, f field) error {
	fields, err := f.value.Fields()
	errs := []error{err}
	if len(fields) > maxInputs {
		return f.value.Errorf("there are more than %d inputs", maxInputs)
	}
	for _, one := range fields {
		in, err := readInput(one)
		errs = append(errs, err)
		if err == nil {
			p.d.Inputs = append(p.d.Inputs, in)
		}
	}
	return join(errs)
}

func readInput(f yamltree.Field) (Input, error) {
	in := Input{Name: f.Key}
	if !argumentName.MatchString(f.Key) || strings.Contains(f.Key, "-") {
		return in, f.Place.Errorf("%.60q is no name of an input; want letters, digits and _", f.Key)
	}
	if !f.Value.Mapping() {
		word, err := oneOf(f.Value, types)
		in.Schema = json.RawMessage(fmt.Sprintf(`{"type":%q}`, word))
		return in, err
	}
	value, err := f.Value.Any()
	if err != nil {
		return in, err
	}
	schema := value.(map[string]any)
	if required, ok := schema["required"].(bool); ok {
		in.Required = required
		delete(schema, "required")
	}
	in.Description, _ = schema["description"].(string)
	if fallback, ok := schema["default"]; ok {
		if in.Default, err = json.Marshal(fallback); err != nil {
			return in, f.Value.Errorf("default: %w", err)
		}
		delete(schema, "default")
	}
	if word, ok := schema["type"].(string); ok && !slices.Contains(types, word) {
		return in, f.Value.Errorf("input %s: there is no type %.60q; there are: %s", f.Key, word, strings.Join(types, ", "))
	}
	if in.Schema, err = json.Marshal(schema); err != nil {
		return in, f.Value.Errorf("input %s: %w", f.Key, err)
	}
	resolved, err := resolve(in.Schema)
	if err != nil {
		return in, f.Value.Errorf("input %s: %w", f.Key, err)
	}
	if in.Default != nil {
		if err := validate(resolved, in.Default); err != nil {
			return in, f.Value.Errorf("input %s: the default does not follow the schema: %w", f.Key, err)
		}
		if in.Required {
			return in, f.Value.Errorf("input %s: it is required and has a default; keep one of the two", f.Key)
		}
	}
	return in, nil
}

// readSchema reads a JSON Schema.
func readSchema(n *yamltree.Node) (json.RawMessage, error) {
	if !n.Mapping() {
		return nil, n.Errorf("want a JSON Schema, such as {type: object, properties: {…}}, got %s", n.What())
	}
	value, err := n.Any()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(value)
	if err == nil {
		_, err = resolve(raw)
	}
	if err != nil {
		return nil, n.Errorf("it is no JSON Schema: %w", err)
	}
	return raw, nil
}

func resolve(raw json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

func validate(s *jsonschema.Resolved, raw json.RawMessage) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return s.Validate(v)
}

// CheckInputs returns the inputs of a run: those given, with defaults for those
// that are not. A text counts as the value that it writes, where another type is
// wanted. The error tells all that is wrong.
func (d Definition) CheckInputs(given map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(d.Inputs, func(in Input) bool { return in.Name == name }) {
			errs = append(errs, fmt.Errorf("agent %s has no input %.60q%s", d.Name, name, d.inputs()))
		}
	}
	for _, in := range d.Inputs {
		value, ok := given[in.Name]
		switch {
		case !ok && in.Required:
			errs = append(errs, fmt.Errorf("agent %s needs the input %s%s; give it with --set %s=…", d.Name, in.Name, about(in.Description), in.Name))
			continue
		case !ok && in.Default == nil:
			continue
		case !ok:
			values[in.Name] = in.Default
			continue
		}
		value, err := in.read(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("input %s of agent %s: %w", in.Name, d.Name, err))
			continue
		}
		values[in.Name] = value
	}
	return values, errors.Join(errs...)
}

func about(description string) string {
	if description == "" {
		return ""
	}
	return fmt.Sprintf(" (%.200s)", description)
}

// inputs ends a sentence about an input that there is not.
func (d Definition) inputs() string {
	var names []string
	for _, in := range d.Inputs {
		names = append(names, in.Name)
	}
	if names == nil {
		return ": it has none"
	}
	return "; there are: " + strings.Join(names, ", ")
}

// absent is what an input that was not given is in a template: nothing, of a kind
// that can be used as the type can.
func (in Input) absent() any {
	var s struct{ Type any }
	if json.Unmarshal(in.Schema, &s) != nil {
		return ""
	}
	switch s.Type {
	case "array":
		return []any{}
	case "object":
		return map[string]any{}
	}
	return ""
}

// read returns value if it follows the schema, or else what it writes as a text.
func (in Input) read(value json.RawMessage) (json.RawMessage, error) {
	schema, err := resolve(in.Schema)
	if err != nil {
		return nil, err
	}
	err = validate(schema, value)
	var text string
	if err == nil || json.Unmarshal(value, &text) != nil {
		return value, err
	}
	if written := json.RawMessage(strings.TrimSpace(text)); json.Valid(written) && validate(schema, written) == nil {
		return written, nil
	}
	return nil, err
}

// join joins errors, those that are nil left out.
func join(errs []error) error {
	return yamltree.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}
