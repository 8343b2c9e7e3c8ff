package yamltree

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Each calls, for each field of a mapping, what known has for its key. A key
// that is not in known is an error. All errors are returned, joined.
func (n *Node) Each(known map[string]func(*Node) error) error {
	fields, err := n.Fields()
	errs := split(err)
	for _, f := range fields {
		read := known[f.Key]
		if read == nil {
			errs = append(errs, f.Place.Errorf("no key %s here; there are: %s", quote(f.Key), strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			continue
		}
		errs = append(errs, split(read(f.Value))...)
	}
	return Join(errs)
}

// split returns the errors that were joined to err.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Into returns a function for [Node.Each] that reads a value with read and keeps it in p.
func Into[T any](p *T, read func(*Node) (T, error)) func(*Node) error {
	return func(n *Node) (err error) {
		*p, err = read(n)
		return err
	}
}

// All returns a function that reads a list whose items read reads.
func All[T any](read func(*Node) (T, error)) func(*Node) ([]T, error) {
	return func(n *Node) ([]T, error) {
		items, err := n.Items()
		if err != nil {
			return nil, err
		}
		var errs []error
		list := make([]T, len(items))
		for i, item := range items {
			list[i], err = read(item)
			errs = append(errs, split(err)...)
		}
		return list, Join(errs)
	}
}

// Bool returns true or false.
func (n *Node) Bool() (bool, error) {
	switch {
	case n.node.Kind == yaml.ScalarNode && n.node.Value == "true":
		return true, nil
	case n.node.Kind == yaml.ScalarNode && n.node.Value == "false":
		return false, nil
	}
	return false, n.Errorf("want true or false, got %s", n.What())
}

// Count returns a whole number, zero or more.
func (n *Node) Count() (int, error) {
	number, err := strconv.ParseInt(n.node.Value, 10, 32)
	if err != nil || number < 0 {
		return 0, n.Errorf("want a whole number, zero or more, got %s", n.What())
	}
	return int(number), nil
}

// Amount returns a number, zero or more.
func (n *Node) Amount() (float64, error) {
	number, err := strconv.ParseFloat(n.node.Value, 64)
	if err != nil || !(number >= 0) || math.IsInf(number, 0) {
		return 0, n.Errorf("want a number, zero or more, got %s", n.What())
	}
	return number, nil
}

// Duration returns a duration, zero or more.
func (n *Node) Duration() (time.Duration, error) {
	d, err := time.ParseDuration(n.node.Value)
	if err != nil || d < 0 || n.node.Kind != yaml.ScalarNode {
		return 0, n.Errorf("want a duration, such as 20ms, 90s or 1h, got %s", n.What())
	}
	return d, nil
}

// Any returns what stands there as JSON would have it: nil, bool, int, uint64,
// float64, string, []any or map[string]any. What only YAML knows, such as a
// date, is the text that is written.
func (n *Node) Any() (any, error) {
	switch {
	case n.Mapping():
		fields, err := n.Fields()
		errs := split(err)
		m := map[string]any{}
		for _, f := range fields {
			m[f.Key], err = f.Value.Any()
			errs = append(errs, split(err)...)
		}
		return m, Join(errs)
	case n.List():
		return All((*Node).Any)(n)
	}
	return n.scalar()
}

func (n *Node) scalar() (any, error) {
	switch n.node.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.node.Decode(&v); err != nil {
			return nil, n.Errorf("%s: %v", quote(n.node.Value), errors.Unwrap(syntaxError("", err)))
		}
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil, n.Errorf("want a finite number, got %s", n.What())
		}
		return v, nil
	}
	return n.node.Value, nil
}
