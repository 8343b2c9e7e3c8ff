package nestor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkSchema tells what is wrong with the form of a JSON Schema: what it says of a
// result that can never be, for one, would be found out when the result is paid for.
func checkSchema(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return errors.New("not JSON")
	}
	return schemaForm("", v)
}

// schemaTypes are those that a JSON Schema knows.
var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schemaForm checks the schema at a place, and those in it.
func schemaForm(at string, v any) error {
	if _, all := v.(bool); all {
		return nil
	}
	schema, ok := v.(map[string]any)
	if !ok {
		return misshapen(at, "an object, which is a JSON Schema")
	}
	for _, key := range slices.Sorted(maps.Keys(schema)) {
		if err := schemaKey(at+"/"+key, key, schema[key]); err != nil {
			return err
		}
	}
	return nil
}

func schemaKey(at, key string, v any) error {
	list, isList := v.([]any)
	switch key {
	case "type":
		if !isList {
			list = []any{v}
		}
		for _, name := range list {
			if text, ok := name.(string); !ok || !slices.Contains(schemaTypes, text) {
				return misshapen(at, "one of "+strings.Join(schemaTypes, ", ")+", or a list of them")
			}
		}
	case "required":
		if !isList || slices.ContainsFunc(list, func(name any) bool { _, ok := name.(string); return !ok }) {
			return misshapen(at, "a list of names")
		}
	case "enum":
		if !isList {
			return misshapen(at, "a list of values")
		}
	case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
		named, ok := v.(map[string]any)
		if !ok {
			return misshapen(at, "an object with a schema for each name")
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if err := schemaForm(at+"/"+name, named[name]); err != nil {
				return err
			}
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		if !isList {
			return misshapen(at, "a list of schemas")
		}
		return schemaForms(at, list)
	case "items":
		if isList { // as it was until 2019
			return schemaForms(at, list)
		}
		return schemaForm(at, v)
	case "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "contains", "not", "if", "then", "else":
		return schemaForm(at, v)
	}
	return nil
}

func schemaForms(at string, list []any) error {
	for i, one := range list {
		if err := schemaForm(fmt.Sprintf("%s/%d", at, i), one); err != nil {
			return err
		}
	}
	return nil
}

func misshapen(at, want string) error {
	if at == "" {
		return fmt.Errorf("want %s", want)
	}
	return fmt.Errorf("%.200q: want %s", at, want)
}
