package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// decode reads the input of a call. It is strict as the CLI is: what the schema
// does not name is an error, as is what it requires and is not there. Numbers
// and booleans may come as strings; a null is as good as nothing.
func decode[T any](tool Tool, input json.RawMessage) (T, error) {
	var in T
	var schema struct {
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(tool.Schema, &schema); err != nil {
		return in, fmt.Errorf("schema of %s: %w", tool.Name, err)
	}
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(input, &given); err != nil {
		return in, inputError(tool.Name, []string{"The input is not a JSON object: " + err.Error()})
	}
	var issues []string
	for _, name := range schema.Required {
		if value, ok := given[name]; !ok || isNull(value) {
			issues = append(issues, fmt.Sprintf("The required parameter `%s` is missing", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		property, known := schema.Properties[name]
		if !known {
			issues = append(issues, fmt.Sprintf("An unexpected parameter `%s` was provided", clip(name, 100)))
			continue
		}
		if isNull(given[name]) {
			delete(given, name)
			continue
		}
		value, ok := coerce(property.Type, given[name])
		if !ok {
			issues = append(issues, fmt.Sprintf("The parameter `%s` type is expected as `%s` but provided as `%s`",
				name, property.Type, kindOf(given[name])))
		}
		given[name] = value
	}
	if issues != nil {
		return in, inputError(tool.Name, issues)
	}
	clean, err := json.Marshal(given)
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(clean, &in); err != nil {
		return in, inputError(tool.Name, []string{err.Error()})
	}
	return in, nil
}

func inputError(tool string, issues []string) error {
	plural := ""
	if len(issues) > 1 {
		plural = "s"
	}
	return tell("InputValidationError: %s failed due to the following issue%s:\n%s", tool, plural, strings.Join(issues, "\n"))
}

func isNull(value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" }

func kindOf(value json.RawMessage) string {
	switch value = bytes.TrimSpace(value); value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	}
	return "number"
}

// coerce returns value as the schema's type has it, if it can be.
func coerce(want string, value json.RawMessage) (json.RawMessage, bool) {
	kind := kindOf(value)
	if want == "integer" {
		want = "number"
	}
	if kind == want {
		return value, true
	}
	var text string
	if kind != "string" || json.Unmarshal(value, &text) != nil {
		return value, false
	}
	switch want {
	case "number":
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return value, false
		}
		clean, err := json.Marshal(n)
		return clean, err == nil
	case "boolean":
		if text == "true" || text == "false" {
			return json.RawMessage(text), true
		}
	}
	return value, false
}

// count is a whole number in an input, which models also write as 3.0. What is
// too large or negative is as large, or as small, as can be.
type count int

// UnmarshalJSON rounds down.
func (c *count) UnmarshalJSON(data []byte) error {
	var n float64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*c = count(max(math.MinInt32, min(math.MaxInt32, math.Floor(n))))
	return nil
}

// withPath returns input with the parameter named key set to path.
func withPath(input json.RawMessage, key, path string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return nil
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	value, err := json.Marshal(path)
	if err != nil {
		return nil
	}
	if bytes.Equal(fields[key], value) {
		return nil
	}
	fields[key] = value
	changed, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return changed
}

// clip returns the beginning of text, for errors.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
