package agentfile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

const (
	maxCustomTools  = 50
	maxCommandWords = 100
	// MaxToolTimeout is the longest that a custom tool may take.
	MaxToolTimeout = time.Hour
)

var (
	identifier  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)
)

// isName tells whether a tool or a server of tools can have the name. The length is not
// in the pattern: one of {1,64} takes as long to compile as all others together, whenever
// the program starts.
func isName(name string) bool { return len(name) <= 64 && identifier.MatchString(name) }

func readCustomTools(p *parser, f field) error {
	items, err := f.value.Items()
	errs := []error{err}
	if len(items) > maxCustomTools {
		return f.value.Errorf("there are more than %d custom tools", maxCustomTools)
	}
	for _, item := range items {
		t, err := readCustomTool(item)
		if err == nil && slices.ContainsFunc(p.d.CustomTools, func(other CustomTool) bool { return other.Name == t.Name }) {
			err = item.Errorf("there are two tools %s; give one of them another name", t.Name)
		}
		errs = append(errs, err)
		if err == nil {
			p.d.CustomTools = append(p.d.CustomTools, t)
		}
	}
	return join(errs)
}

func readCustomTool(n *yamltree.Node) (CustomTool, error) {
	t := CustomTool{InputSchema: json.RawMessage(`{"type":"object"}`)}
	err := n.Each(map[string]func(*yamltree.Node) error{
		"name":         yamltree.Into(&t.Name, (*yamltree.Node).Text),
		"description":  yamltree.Into(&t.Description, (*yamltree.Node).Text),
		"input_schema": yamltree.Into(&t.InputSchema, readSchema),
		"command":      yamltree.Into(&t.Command, readCommand),
		"timeout":      yamltree.Into(&t.Timeout, (*yamltree.Node).Duration),
	})
	switch {
	case err != nil:
		return t, err
	case !isName(t.Name):
		return t, n.Errorf("a custom tool needs a name of letters, digits, - and _, at most 64 of them, got %.80q", t.Name)
	case len(t.Command) == 0:
		return t, n.Errorf("the tool %s needs a command, as a list of the program and its arguments: [grep, -c, \"{{word}}\"]", t.Name)
	case t.Timeout > MaxToolTimeout:
		return t, n.Errorf("the tool %s may take %v at most", t.Name, MaxToolTimeout)
	}
	if err := t.check(); err != nil {
		return t, n.Errorf("the tool %s: %w", t.Name, err)
	}
	return t, nil
}

func readCommand(n *yamltree.Node) ([]string, error) {
	if !n.List() {
		return nil, n.Errorf("want a list of the program and its arguments, such as [grep, -c, \"{{word}}\"], got %s", n.What())
	}
	words, err := yamltree.All((*yamltree.Node).Text)(n)
	if len(words) > maxCommandWords {
		return nil, n.Errorf("there are more than %d arguments", maxCommandWords)
	}
	return words, err
}

// check compares the schema of the input with what the command takes from it.
func (t CustomTool) check() error {
	var s jsonschema.Schema
	if err := json.Unmarshal(t.InputSchema, &s); err != nil {
		return err
	}
	if s.Type != "object" {
		return fmt.Errorf("its input_schema must be of type object")
	}
	for i, word := range t.Command {
		if strings.ContainsRune(word, 0) {
			return fmt.Errorf("an argument holds a zero byte")
		}
		for _, m := range placeholder.FindAllStringSubmatch(word, -1) {
			if _, ok := s.Properties[m[1]]; !ok {
				return fmt.Errorf("its command takes {{%s}}, which is no property of its input_schema", m[1])
			}
			if i == 0 {
				return fmt.Errorf("the program itself cannot come from the input; name it")
			}
		}
	}
	return nil
}

// Argv returns the command for an input: each placeholder is replaced by its
// field, as text, and each argument stays one. A field that is not there is empty.
// What skillDir is replaces ${CLAUDE_SKILL_DIR}.
func (t CustomTool) Argv(input json.RawMessage, skillDir string) ([]string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, fmt.Errorf("the input of %s is no object: %w", t.Name, err)
	}
	argv := make([]string, len(t.Command))
	for i, word := range t.Command {
		word = strings.ReplaceAll(word, "${CLAUDE_SKILL_DIR}", skillDir)
		argv[i] = placeholder.ReplaceAllStringFunc(word, func(match string) string {
			return plainText(fields[placeholder.FindStringSubmatch(match)[1]])
		})
		if strings.ContainsRune(argv[i], 0) {
			return nil, fmt.Errorf("the input of %s holds a zero byte, which no argument can", t.Name)
		}
	}
	return argv, nil
}

// plainText is a JSON value as text: what a string holds, and else how it is
// written.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
