// Package yamltree reads YAML that people write by hand and anybody may have
// written: strictly, bounded in size and depth, every error with its place.
//
// A caller walks the tree from the [Node] that [Parse] returns, and takes from
// each what must be there. What is wrong with one part does not hide what is
// wrong with the next: errors are joined.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth is how deep a tree may be, and maxErrors how many errors are told.
const (
	maxDepth  = 64
	maxErrors = 20
)

// Error says where a document is wrong.
type Error struct {
	Name         string // of the document
	Line, Column int    // from 1; zero when the document as a whole is wrong
	Err          error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.Name, e.Line, e.Column, e.Err)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Node is a mapping, a list or a scalar, at its place. It holds no aliases, no
// tags and nothing too deep. It may be read from any goroutine.
type Node struct {
	name string
	node *yaml.Node
}

// Parse reads one document of at most that many bytes. The name stands for it
// in errors, which are *[Error] or several of them, joined. An empty document is
// an empty mapping.
func Parse(name string, data []byte, limit int) (*Node, error) {
	whole := func(format string, args ...any) error {
		return &Error{Name: name, Err: fmt.Errorf(format, args...)}
	}
	if len(data) > limit {
		return nil, whole("it has %d bytes or more; at most %d are read", len(data), limit)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return &Node{name, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1}}, nil
	}
	if err != nil {
		return nil, syntaxError(name, err)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, whole("there is more than one document; remove what follows ---")
	}
	root := &Node{name, doc.Content[0]}
	if err := Join(root.refuse(nil, 1)); err != nil {
		return nil, err
	}
	if root.Null() {
		root.node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.node.Line, Column: root.node.Column}
	}
	return root, nil
}

// Join joins errors, the first twenty of them.
func Join(errs []error) error {
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// refuse adds to errs what no document may hold.
func (n *Node) refuse(errs []error, depth int) []error {
	switch {
	case n.node.Kind == yaml.AliasNode:
		return append(errs, n.Errorf("aliases are not allowed here; write the value again"))
	case n.node.Style&yaml.TaggedStyle != 0:
		errs = append(errs, n.Errorf("tags are not allowed here; remove %s", n.node.Tag))
	case depth > maxDepth:
		return append(errs, n.Errorf("this is more than %d levels deep", maxDepth))
	}
	for i, child := range n.node.Content {
		if n.node.Kind == yaml.MappingNode && i%2 == 0 && child.Kind != yaml.ScalarNode {
			errs = append(errs, (&Node{n.name, child}).Errorf("a key must be a word"))
			continue
		}
		errs = (&Node{n.name, child}).refuse(errs, depth+1)
	}
	return errs
}

// Errorf returns an error at the place of n.
func (n *Node) Errorf(format string, args ...any) error {
	return &Error{n.name, n.node.Line, n.node.Column, fmt.Errorf(format, args...)}
}

// Line returns the line of n, from 1.
func (n *Node) Line() int { return n.node.Line }

// Null tells whether nothing stands there.
func (n *Node) Null() bool { return n.node.Kind == yaml.ScalarNode && n.node.ShortTag() == "!!null" }

// Mapping tells whether n has fields.
func (n *Node) Mapping() bool { return n.node.Kind == yaml.MappingNode }

// List tells whether n has items.
func (n *Node) List() bool { return n.node.Kind == yaml.SequenceNode }

// Field is a key and what stands behind it.
type Field struct {
	Key   string
	Place *Node // of the key
	Value *Node
}

// Fields returns the fields of a mapping in their order. If a key stands there
// twice, the error says so, and the first counts.
func (n *Node) Fields() ([]Field, error) {
	if !n.Mapping() {
		return nil, n.Errorf("want a mapping of keys to values, got %s", n.What())
	}
	var fields []Field
	var errs []error
	seen := map[string]int{} // lines
	for i := 0; i < len(n.node.Content); i += 2 {
		key := &Node{n.name, n.node.Content[i]}
		word := key.node.Value
		if line, twice := seen[word]; twice {
			errs = append(errs, key.Errorf("the key %s stands here twice; it is in line %d too", quote(word), line))
			continue
		}
		seen[word] = key.Line()
		fields = append(fields, Field{word, key, &Node{n.name, n.node.Content[i+1]}})
	}
	return fields, Join(errs)
}

// Items returns the items of a list.
func (n *Node) Items() ([]*Node, error) {
	if !n.List() {
		return nil, n.Errorf("want a list, such as [a, b], got %s", n.What())
	}
	items := make([]*Node, len(n.node.Content))
	for i, child := range n.node.Content {
		items[i] = &Node{n.name, child}
	}
	return items, nil
}

// Text returns a scalar as it is written: numbers and words alike. Nothing is
// not a text.
func (n *Node) Text() (string, error) {
	if n.node.Kind != yaml.ScalarNode || n.Null() {
		return "", n.Errorf("want a value, got %s", n.What())
	}
	return n.node.Value, nil
}

// What names what stands there.
func (n *Node) What() string {
	switch {
	case n.Mapping():
		return "a mapping"
	case n.List():
		return "a list"
	case n.Null():
		return "nothing"
	}
	return quote(n.node.Value)
}

// quote quotes the beginning of a text.
func quote(s string) string { return fmt.Sprintf("%.60q", s) }

var yamlPlace = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// syntaxError makes an error of what the YAML library says, which knows the line
// at most.
func syntaxError(name string, err error) error {
	text := err.Error()
	place := yamlPlace.FindStringSubmatch(text)
	e := &Error{Name: name, Err: errors.New(strings.TrimPrefix(text, place[0]))}
	if line, err := strconv.Atoi(place[1]); err == nil {
		e.Line, e.Column = line, 1
	}
	return e
}
