package runner

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// CheckSchema tells what is wrong with the schema of a result; nothing if there is
// none.
func CheckSchema(raw json.RawMessage) error {
	_, err := parseSchema(raw)
	return err
}

// parseSchema reads the schema of a result; nil if there is none.
func parseSchema(raw json.RawMessage) (*jsonschema.Resolved, error) {
	if raw == nil {
		return nil, nil
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("the schema of the result: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of the result: %w", err)
	}
	return resolved, nil
}

// conforms tells whether the result so far follows its schema, and takes note of
// what is wrong with it. A text that is JSON is a result as well.
func (c *conversation) conforms(schema *jsonschema.Resolved) bool {
	c.mismatch = ""
	value := c.last.Structured
	if value == nil {
		text := strings.TrimSpace(c.last.Output)
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, "```json"), "```"), "```"))
		if !json.Valid([]byte(text)) {
			c.mismatch = "it is no JSON"
			return false
		}
		value = json.RawMessage(text)
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		c.mismatch = err.Error()
		return false
	}
	if err := schema.Validate(v); err != nil {
		c.mismatch = err.Error()
		return false
	}
	c.last.Structured = value
	return true
}
