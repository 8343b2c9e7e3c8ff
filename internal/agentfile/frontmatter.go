package agentfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

const (
	// MaxFile is how large a file may be.
	MaxFile = 1 << 20

	maxFrontMatter = 256 << 10
	maxKeys        = 500
)

// front is a file cut in two.
type front struct {
	fields []field
	body   string
	line   int // of the file, in which the body begins
}

// field is a key of the front matter and its value, which is offset lines below
// where the value itself says.
type field struct {
	key    string
	place  *yamltree.Node
	value  *yamltree.Node
	offset int
}

// reader gathers what is wrong with a file.
type reader struct {
	file     string
	problems []Problem
}

const maxProblems = 50

func (r *reader) add(p Problem) {
	p.File = r.file
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, p)
	}
}

func (r *reader) fail(line, column int, format string, args ...any) {
	r.add(Problem{Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(line, column int, format string, args ...any) {
	r.add(Problem{Line: line, Column: column, Message: fmt.Sprintf(format, args...), Warning: true})
}

// told makes problems of an error of package yamltree.
func (r *reader) told(err error, offset int, warning bool) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			r.told(one, offset, warning)
		}
		return
	}
	p := Problem{Message: err.Error(), Warning: warning}
	if e, ok := errors.AsType[*yamltree.Error](err); ok {
		p.Message = e.Err.Error()
		if e.Line > 0 {
			p.Line, p.Column = e.Line+offset, e.Column
		}
	}
	r.add(p)
}

// failed tells whether the file cannot be used.
func (r *reader) failed() bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return !p.Warning })
}

// text returns the file as text with lines that end in \n, or nothing if it is
// none.
func (r *reader) text(data []byte) (string, bool) {
	switch {
	case len(data) > MaxFile:
		r.fail(0, 0, "it has more than %d bytes; make it shorter, or have the agent read what it needs from other files", MaxFile)
		return "", false
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		r.fail(1, 1, "it is UTF-16; save it as UTF-8")
		return "", false
	}
	text := strings.ReplaceAll(string(bytes.TrimPrefix(data, []byte("\ufeff"))), "\r\n", "\n")
	line := 1
	for l := range strings.Lines(text) {
		for i := 0; i < len(l); {
			c, size := utf8.DecodeRuneInString(l[i:])
			if c == utf8.RuneError && size == 1 || c == 0 {
				r.fail(line, i+1, "there is a byte %#02x, which is no text; save it as UTF-8", l[i])
				return "", false
			}
			i += size
		}
		line++
	}
	return text, true
}

var keyLine = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*:(?:\s|$)`)

// cut cuts a text into front matter and body. A file without front matter is all
// body. What cannot be read as a whole is read key by key, as Claude Code would
// take it, with a warning.
func (r *reader) cut(text string, flat func(key string) bool) front {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return front{body: text, line: 1}
	}
	matter, body, line, closed := untilRule(rest)
	if !closed {
		if begins, _, _ := strings.Cut(strings.TrimLeft(rest, "\n"), "\n"); keyLine.MatchString(begins) {
			r.fail(1, 1, "the front matter does not end; close it with a line ---")
			return front{}
		}
		return front{body: text, line: 1} // a ruler
	}
	f := front{body: body, line: line + 2}
	if len(matter) > maxFrontMatter {
		r.fail(1, 1, "the front matter has more than %d bytes; what is long belongs below it", maxFrontMatter)
		return f
	}
	root, err := yamltree.Parse(r.file, []byte("\n"+matter), maxFrontMatter+1)
	switch {
	case err == nil && root.Mapping():
		fields, err := root.Fields()
		r.told(err, 0, true) // of a key that stands there twice, the first counts
		for _, one := range fields {
			f.fields = append(f.fields, field{one.Key, one.Place, one.Value, 0})
		}
	case err == nil:
		r.told(root.Errorf("want keys and values, such as description: what it is for"), 0, false)
	case strings.Contains(err.Error(), "are not allowed here"): // it is YAML, of a kind that is refused
		r.told(err, 0, false)
	default:
		f.fields = r.forgive(matter, err, flat)
	}
	return f
}

// untilRule returns what stands before the line ---, what follows it, and how many
// lines there are before it.
func untilRule(text string) (before, after string, lines int, found bool) {
	at := 0
	for l := range strings.Lines(text) {
		if strings.TrimRight(l, " \t\n") == "---" {
			return text[:at], text[at+len(l):], lines + 1, true
		}
		at += len(l)
		lines++
	}
	return "", "", 0, false
}

// forgive reads the keys of a front matter that is no YAML, each by itself. Where
// that does not help either, a flat key's text counts as it stands. The error is
// why the whole is none.
func (r *reader) forgive(matter string, why error, flat func(string) bool) []field {
	type group struct {
		key    string
		text   strings.Builder
		offset int
	}
	var groups []*group
	number := 0
	for l := range strings.Lines(matter) {
		if m := keyLine.FindStringSubmatch(l); m != nil {
			groups = append(groups, &group{key: m[1], offset: number + 1})
		}
		number++
		trimmed := strings.TrimSpace(l)
		switch {
		case len(groups) > 0:
			groups[len(groups)-1].text.WriteString(l)
		case trimmed != "" && !strings.HasPrefix(trimmed, "#"):
			r.told(why, 0, false)
			return nil
		}
	}
	if len(groups) > maxKeys || len(groups) == 0 {
		r.told(why, 0, false)
		return nil
	}
	var fields []field
	seen := map[string]bool{}
	forgiven := false
	for _, g := range groups {
		if seen[g.key] {
			r.warn(g.offset+1, 1, "the key %q stands here twice; the first counts", g.key)
			continue
		}
		seen[g.key] = true
		root, err := yamltree.Parse(r.file, []byte(g.text.String()), maxFrontMatter)
		if err != nil && flat(g.key) {
			forgiven = true
			r.warn(g.offset+1, 1, "%s is no YAML, and is taken as the text that stands there; put it in quotes", g.key)
			root, err = yamltree.Parse(r.file, asText(g.key, g.text.String()), 2*maxFrontMatter)
		}
		if err != nil {
			forgiven = true
			r.told(err, g.offset, false)
			continue
		}
		list, err := root.Fields()
		r.told(err, g.offset, true)
		for _, one := range list {
			fields = append(fields, field{one.Key, one.Place, one.Value, g.offset})
		}
	}
	if !forgiven { // what is wrong is between the keys
		r.told(why, 0, false)
	}
	return fields
}

// asText returns YAML in which what stands behind the key is a text.
func asText(key, text string) []byte {
	_, value, _ := strings.Cut(text, ":")
	var lines []string
	for l := range strings.Lines(value) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	value = strings.Join(lines, " ")
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings are JSON
	}
	return append([]byte(key+": "), quoted...)
}
