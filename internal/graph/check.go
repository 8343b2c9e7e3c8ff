package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor"
)

// Problem is something that is wrong with a graph, or may be.
type Problem struct {
	Task    string `json:"task"`
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty"` // it can be run all the same
}

func (p Problem) String() string {
	if p.Warning {
		return fmt.Sprintf("task %q: warning: %s", p.Task, p.Message)
	}
	return fmt.Sprintf("task %q: %s", p.Task, p.Message)
}

// Check tells what is wrong with a graph that [Parse] has read: agents that are not
// known, fields that a schema does not have, lists that are none, outputs that
// nobody uses. Known returns why an agent cannot be had; nil means that all can.
func Check(g nestor.Graph, known func(agent string) error) []Problem {
	c := &checker{g: g, schemas: map[string]*jsonschema.Schema{}, used: map[string]bool{}}
	names := slices.Sorted(maps.Keys(g.Tasks))
	for _, name := range names {
		if task := g.Tasks[name].Task; task.Schema != nil && task.Check() == nil { // else node says what is wrong
			s, schema := task.Schema, new(jsonschema.Schema)
			if err := json.Unmarshal(s, schema); err != nil {
				c.wrong(name, "schema: %v", err)
				continue
			}
			if _, err := schema.Resolve(nil); err != nil {
				c.wrong(name, "schema: %v", err)
				continue
			}
			c.schemas[name] = schema
		}
	}
	for _, name := range names {
		c.node(name, g.Tasks[name], known)
	}
	for _, name := range names {
		if g.Tasks[name].Task.Schema != nil && !c.used[name] && c.followed(name) {
			c.problems = append(c.problems, Problem{name, "its output has a schema, and no task uses it: refer to ${" + name + ".output…}, or leave the schema out", true})
		}
	}
	return c.problems
}

type checker struct {
	g        nestor.Graph
	schemas  map[string]*jsonschema.Schema // of tasks that have one
	used     map[string]bool               // tasks whose output somebody refers to
	problems []Problem
}

func (c *checker) wrong(task, format string, args ...any) {
	c.problems = append(c.problems, Problem{Task: task, Message: fmt.Sprintf(format, args...)})
}

// followed tells whether a task comes after name.
func (c *checker) followed(name string) bool {
	for _, n := range c.g.Tasks {
		if slices.Contains(n.After, name) {
			return true
		}
	}
	return false
}

func (c *checker) node(name string, node nestor.Node, known func(string) error) {
	if known != nil && node.Task.Agent != "" {
		if err := known(node.Task.Agent); err != nil {
			c.wrong(name, "%v", err)
		}
	}
	if err := node.Task.Check(); err != nil {
		c.wrong(name, "%v", err)
	}
	if node.ForEach == "" && (node.Parallel != 0 || node.MaxItems != 0) {
		c.wrong(name, "parallel and max_items are for tasks with foreach")
	}
	refs, err := references(node)
	if err != nil {
		c.wrong(name, "%v", err)
		return
	}
	for _, r := range refs {
		c.reference(name, node, r)
	}
	if node.ForEach == "" {
		return
	}
	r, err := listReference(node.ForEach)
	if err != nil {
		return // it is said already
	}
	if s, _ := c.at(r); s != nil && !may(s, "array") {
		c.wrong(name, "foreach ${%s}: its schema says that it is %s, not a list", r.source, typesOf(s))
	}
}

// reference checks that what r names can be there.
func (c *checker) reference(name string, node nestor.Node, r *reference) {
	switch r.root {
	case "inputs":
		if len(r.path) == 0 || r.path[0].field == "" || c.g.Inputs[r.path[0].field] == nil {
			c.wrong(name, "${%s}: the graph has these inputs: %s", r.source, orNone(slices.Sorted(maps.Keys(c.g.Inputs))))
		}
		return
	case "item", "index":
		if node.ForEach == "" {
			c.wrong(name, "${%s}: only a task with foreach has an %s", r.source, r.root)
		}
		return
	}
	if len(r.path) == 0 || !slices.Contains([]string{"output", "status", "error"}, r.path[0].field) {
		c.wrong(name, "${%s}: of a task there are output, status and error: want ${%s.output}", r.source, r.root)
		return
	}
	if r.path[0].field == "output" {
		c.used[r.root] = true
	}
	if _, problem := c.at(r); problem != "" {
		c.wrong(name, "${%s}: %s", r.source, problem)
	}
}

// at returns the schema of what r names; nil if it is not known.
func (c *checker) at(r *reference) (s *jsonschema.Schema, problem string) {
	node, ok := c.g.Tasks[r.root]
	if !ok || len(r.path) == 0 || r.path[0].field != "output" {
		return nil, ""
	}
	path := r.path[1:]
	if node.ForEach != "" {
		if len(path) == 0 {
			return &jsonschema.Schema{Type: "array"}, ""
		}
		if path[0].field != "" {
			return nil, fmt.Sprintf("the output of a task with foreach is a list: name an item, such as ${%s.output[0]}", r.root)
		}
		path = path[1:]
	}
	if node.Task.Schema == nil {
		if len(path) > 0 {
			return nil, fmt.Sprintf("the output of task %q is a text: give it a schema to refer to parts of it", r.root)
		}
		return &jsonschema.Schema{Type: "string"}, ""
	}
	s = c.schemas[r.root]
	for _, step := range path {
		if s == nil {
			return nil, ""
		}
		switch {
		case s.Ref != "" || len(s.AnyOf) > 0 || len(s.OneOf) > 0 || len(s.AllOf) > 0:
			return nil, "" // more than we look into
		case step.field != "":
			if !may(s, "object") {
				return nil, fmt.Sprintf("field %q of what its schema says is %s", step.field, typesOf(s))
			}
			next, ok := s.Properties[step.field]
			if !ok && len(s.Properties) > 0 && s.PatternProperties == nil && (s.AdditionalProperties == nil || isFalse(s.AdditionalProperties)) {
				return nil, fmt.Sprintf("its schema has no field %q; there are: %s", step.field, strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			}
			s = next
		default:
			if !may(s, "array") {
				return nil, fmt.Sprintf("item %d of what its schema says is %s", step.index, typesOf(s))
			}
			s = s.Items
		}
	}
	return s, ""
}

// isFalse tells whether nothing follows the schema.
func isFalse(s *jsonschema.Schema) bool { return s.Not != nil }

// may tells whether a value of that type may follow the schema.
func may(s *jsonschema.Schema, typ string) bool {
	return s.Type == "" && len(s.Types) == 0 || s.Type == typ || slices.Contains(s.Types, typ)
}

func typesOf(s *jsonschema.Schema) string {
	if s.Type != "" {
		return "of type " + s.Type
	}
	return "of types " + strings.Join(s.Types, ", ")
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
