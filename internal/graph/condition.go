package graph

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// condition is what "when" says: values, compared and joined.
//
//	${plan.output.risk} == "high" && (${plan.output.files} || !${inputs.quick})
//
// A value is true unless it is false, null, zero or empty.
type condition interface {
	holds(scope) (any, error)
	each(func(*reference))
}

type (
	refValue struct{ ref *reference }
	literal  struct{ value any }
	negation struct{ of condition }
	compare  struct {
		op          string
		left, right condition
	}
	both   struct{ left, right condition }
	either struct{ left, right condition }
)

func (c refValue) holds(s scope) (any, error) { return s.find(c.ref) }
func (c literal) holds(scope) (any, error)    { return c.value, nil }

func (c negation) holds(s scope) (any, error) {
	v, err := c.of.holds(s)
	return !truth(v), err
}

func (c both) holds(s scope) (any, error) {
	v, err := c.left.holds(s)
	if err != nil || !truth(v) {
		return false, err
	}
	v, err = c.right.holds(s)
	return truth(v), err
}

func (c either) holds(s scope) (any, error) {
	v, err := c.left.holds(s)
	if err != nil || truth(v) {
		return true, err
	}
	v, err = c.right.holds(s)
	return truth(v), err
}

func (c compare) holds(s scope) (any, error) {
	a, err := c.left.holds(s)
	if err != nil {
		return nil, err
	}
	b, err := c.right.holds(s)
	if err != nil {
		return nil, err
	}
	x, xok := a.(float64)
	y, yok := b.(float64)
	switch c.op {
	case "==":
		return reflect.DeepEqual(a, b), nil
	case "!=":
		return !reflect.DeepEqual(a, b), nil
	}
	if !xok || !yok {
		p, pok := a.(string)
		q, qok := b.(string)
		if !pok || !qok {
			return nil, fmt.Errorf("%s compares numbers, or strings: got %s and %s", c.op, kindOf(a), kindOf(b))
		}
		x, y = float64(strings.Compare(p, q)), 0
	}
	switch c.op {
	case "<":
		return x < y, nil
	case "<=":
		return x <= y, nil
	case ">":
		return x > y, nil
	}
	return x >= y, nil
}

func (c refValue) each(f func(*reference)) { f(c.ref) }
func (literal) each(func(*reference))      {}
func (c negation) each(f func(*reference)) { c.of.each(f) }
func (c both) each(f func(*reference))     { c.left.each(f); c.right.each(f) }
func (c either) each(f func(*reference))   { c.left.each(f); c.right.each(f) }
func (c compare) each(f func(*reference))  { c.left.each(f); c.right.each(f) }

// truth tells whether a value counts as true.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "an object"
}

// parseCondition reads a condition.
func parseCondition(source string) (condition, error) {
	p := &conditionParser{rest: source}
	c, err := p.either(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.rest != "" {
		return nil, fmt.Errorf("%.40q follows the condition: join conditions with && and ||", p.rest)
	}
	return c, nil
}

type conditionParser struct{ rest string }

// maxNesting is how deep conditions may nest.
const maxNesting = 50

func (p *conditionParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// take passes over a word of the language, if it is next.
func (p *conditionParser) take(word string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, word)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *conditionParser) either(depth int) (condition, error) {
	left, err := p.both(depth)
	for err == nil && p.take("||") {
		var right condition
		right, err = p.both(depth)
		left = either{left, right}
	}
	return left, err
}

func (p *conditionParser) both(depth int) (condition, error) {
	left, err := p.comparison(depth)
	for err == nil && p.take("&&") {
		var right condition
		right, err = p.comparison(depth)
		left = both{left, right}
	}
	return left, err
}

func (p *conditionParser) comparison(depth int) (condition, error) {
	left, err := p.operand(depth)
	if err != nil {
		return nil, err
	}
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if p.take(op) {
			right, err := p.operand(depth)
			return compare{op, left, right}, err
		}
	}
	return left, nil
}

func (p *conditionParser) operand(depth int) (condition, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("conditions nest deeper than %d", maxNesting)
	}
	p.space()
	switch {
	case p.rest == "":
		return nil, fmt.Errorf("the condition ends where a value is wanted, such as ${task.output}")
	case strings.HasPrefix(p.rest, "${"):
		end := strings.IndexByte(p.rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("%.40q is not closed", p.rest)
		}
		ref, err := parseReference(p.rest[2:end])
		p.rest = p.rest[end+1:]
		return refValue{ref}, err
	case strings.HasPrefix(p.rest, "!") && !strings.HasPrefix(p.rest, "!="):
		p.rest = p.rest[1:]
		of, err := p.operand(depth + 1)
		return negation{of}, err
	case p.take("("):
		c, err := p.either(depth + 1)
		if err == nil && !p.take(")") {
			err = fmt.Errorf("a ) is missing before %.40q", p.rest)
		}
		return c, err
	}
	return p.literal()
}

// literal reads a value of JSON.
func (p *conditionParser) literal() (condition, error) {
	d := json.NewDecoder(strings.NewReader(p.rest))
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("%.40s is no value: want ${task.output}, a number, true, false, null or a string in double quotes", strconv.Quote(p.rest))
	}
	p.rest = p.rest[d.InputOffset():]
	return literal{value}, nil
}
