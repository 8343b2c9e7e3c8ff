package scriptmodel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxScript bounds a script: prompts carry scripts, and anybody writes prompts.
const maxScript = 256 << 10

// decodeYAML decodes one YAML document into what into points to. It is strict,
// and its errors are *ScriptError.
func decodeYAML(name string, data []byte, into any) error {
	if len(data) > maxScript {
		return &ScriptError{Name: name, Err: fmt.Errorf("the script has %d bytes, more than %d", len(data), maxScript)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return &ScriptError{Name: name, Line: yamlLine(err), Column: 1, Err: errors.New(yamlText(err))}
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return &ScriptError{Name: name, Err: errors.New("there is more than one document")}
	}
	err = decodeNode(doc.Content[0], reflect.ValueOf(into).Elem())
	if e, ok := errors.AsType[*ScriptError](err); ok {
		e.Name = name
	}
	return err
}

// decodeNode decodes node into v. Where the YAML library would name the line
// alone, or accept a key that nobody reads, it names line and column.
func decodeNode(node *yaml.Node, v reflect.Value) error {
	wrong := func(n *yaml.Node, format string, args ...any) error {
		return &ScriptError{Line: n.Line, Column: n.Column, Err: fmt.Errorf(format, args...)}
	}
	if node.Kind == yaml.AliasNode {
		return wrong(node, "aliases are not allowed in scripts")
	}
	_, decodesItself := v.Addr().Interface().(yaml.Unmarshaler)
	switch {
	case decodesItself || v.Kind() != reflect.Struct && v.Kind() != reflect.Slice && v.Kind() != reflect.Pointer:
		if err := node.Decode(v.Addr().Interface()); err != nil {
			return wrong(node, "%s", yamlText(err))
		}
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeNode(node, v.Elem())
	case v.Kind() == reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			return wrong(node, "this must be a list")
		}
		v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
		for i, item := range node.Content {
			if err := decodeNode(item, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return wrong(node, "this must be a mapping with some of the keys %s", strings.Join(keys(v.Type()), ", "))
	}
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		if seen[key.Value] {
			return wrong(key, "the key %q stands here twice", key.Value)
		}
		seen[key.Value] = true
		field, ok := fieldOf(v, key.Value)
		if !ok {
			return wrong(key, "unknown key %q; known are %s", key.Value, strings.Join(keys(v.Type()), ", "))
		}
		if err := decodeNode(node.Content[i+1], field); err != nil {
			return err
		}
	}
	return nil
}

func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for f, value := range v.Fields() {
		if f.Tag.Get("yaml") == key {
			return value, true
		}
	}
	return reflect.Value{}, false
}

func keys(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		names = append(names, f.Tag.Get("yaml"))
	}
	return names
}

var yamlPlace = pattern(`(?:yaml: )?(?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// yamlLine is the line that an error of the YAML library names, or zero.
func yamlLine(err error) int {
	line, _ := strconv.Atoi(yamlPlace().FindStringSubmatch(err.Error())[1])
	return line
}

// yamlText is what an error of the YAML library says, without the line.
func yamlText(err error) string {
	text := err.Error()
	return strings.TrimPrefix(text, yamlPlace().FindString(text))
}
