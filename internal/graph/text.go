package graph

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// text is a text with references in it: ${task.output.field}. A literal "${" is
// written "$${".
type text struct {
	parts []part
}

// part is a piece of a text: words, or a reference.
type part struct {
	words string
	ref   *reference // nil for words
}

// reference names a value: a root, such as a task, and a path into it.
type reference struct {
	source string // as it is written, without ${}
	root   string
	path   []step
}

// step is a field, or an index if field is empty.
type step struct {
	field string
	index int
}

// maxReference is how long a reference may be.
const maxReference = 1000

// parseText reads a text.
func parseText(source string) (text, error) {
	var t text
	var words strings.Builder
	for source != "" {
		at := strings.Index(source, "${")
		if at < 0 {
			break
		}
		if at > 0 && source[at-1] == '$' { // $${ is ${
			words.WriteString(source[:at-1])
			words.WriteString("${")
			source = source[at+2:]
			continue
		}
		words.WriteString(source[:at])
		end := strings.IndexByte(source[at:], '}')
		if end < 0 || end > maxReference {
			return t, fmt.Errorf("%.40q is not closed: want ${task.output}, or $${ for the characters themselves", source[at:])
		}
		ref, err := parseReference(source[at+2 : at+end])
		if err != nil {
			return t, err
		}
		if words.Len() > 0 {
			t.parts = append(t.parts, part{words: words.String()})
			words.Reset()
		}
		t.parts = append(t.parts, part{ref: ref})
		source = source[at+end+1:]
	}
	words.WriteString(source)
	if words.Len() > 0 {
		t.parts = append(t.parts, part{words: words.String()})
	}
	return t, nil
}

// parseReference reads task.output.list[0].
func parseReference(source string) (*reference, error) {
	bad := func() error {
		return fmt.Errorf("${%.60s} is no reference: want a name and a path, such as ${plan.output.files[0]}", source)
	}
	r := &reference{source: source}
	rest := source
	for rest != "" {
		if rest[0] == '[' {
			end := strings.IndexByte(rest, ']')
			if end < 0 || r.root == "" {
				return nil, bad()
			}
			n, err := strconv.ParseUint(rest[1:end], 10, 31)
			if err != nil {
				return nil, bad()
			}
			r.path, rest = append(r.path, step{index: int(n)}), rest[end+1:]
			continue
		}
		if r.root != "" {
			if rest[0] != '.' {
				return nil, bad()
			}
			rest = rest[1:]
		}
		n := 0
		for n < len(rest) && isName(rest[n]) {
			n++
		}
		if n == 0 {
			return nil, bad()
		}
		if r.root == "" {
			r.root = rest[:n]
		} else {
			r.path = append(r.path, step{field: rest[:n]})
		}
		rest = rest[n:]
	}
	if r.root == "" {
		return nil, bad()
	}
	return r, nil
}

// isName tells whether names are made of c.
func isName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// references returns those in the text.
func (t text) references() (list []*reference) {
	for _, p := range t.parts {
		if p.ref != nil {
			list = append(list, p.ref)
		}
	}
	return list
}

// scope is what references find: values as JSON has them, by their roots.
type scope map[string]any

// find returns the value that r names.
func (s scope) find(r *reference) (any, error) {
	value, ok := s[r.root]
	if !ok {
		return nil, fmt.Errorf("${%s}: there is no %q", r.source, r.root)
	}
	for _, step := range r.path {
		switch v := value.(type) {
		case map[string]any:
			if step.field == "" {
				return nil, fmt.Errorf("${%s}: [%d] of an object: it has fields", r.source, step.index)
			}
			if value, ok = v[step.field]; !ok {
				return nil, fmt.Errorf("${%s}: there is no field %q", r.source, step.field)
			}
		case []any:
			if step.field != "" {
				return nil, fmt.Errorf("${%s}: field %q of a list: name an item, such as [0]", r.source, step.field)
			}
			if step.index >= len(v) {
				return nil, fmt.Errorf("${%s}: item %d of a list of %d", r.source, step.index, len(v))
			}
			value = v[step.index]
		case nil:
			return nil, nil // of a task that gave nothing
		default:
			return nil, fmt.Errorf("${%s}: %q of a value that has no parts", r.source, step)
		}
	}
	return value, nil
}

func (s step) String() string {
	if s.field != "" {
		return s.field
	}
	return strconv.Itoa(s.index)
}

// maxText is how long a text may become.
const maxText = 512 << 10

// render returns the text with its values: strings as they are, all else as JSON.
func (t text) render(s scope) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		words := p.words
		if p.ref != nil {
			value, err := s.find(p.ref)
			if err != nil {
				return "", err
			}
			if words, err = show(value); err != nil {
				return "", fmt.Errorf("${%s}: %w", p.ref.source, err)
			}
		}
		if b.Len()+len(words) > maxText {
			return "", fmt.Errorf("the text becomes longer than %d bytes: have the tasks before it say less, or write to files", maxText)
		}
		b.WriteString(words)
	}
	return b.String(), nil
}

// show returns a value as text.
func show(value any) (string, error) {
	if s, ok := value.(string); ok {
		return s, nil
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it is for people and models
	err := e.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}
