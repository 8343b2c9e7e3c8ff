// Package graph reads graphs of tasks, checks them, and has them run: each task as
// soon as those before it have ended, as many at once as there is room for.
//
//	name: review
//	inputs: {area: the parser}
//	tasks:
//	  plan:
//	    agent: planner
//	    input: List the files of ${inputs.area} that need a review.
//	    schema: {type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}
//	  review:
//	    agent: reviewer
//	    foreach: ${plan.output.files}
//	    parallel: 4
//	    input: Review ${item}.
//	    on_error: continue
//	  sum:
//	    when: ${plan.output.files}
//	    input: |
//	      Sum these reviews up: ${review.output}
//
// A task comes after those that its texts refer to, and after those that it names.
// What it may refer to: a task's output, which is a value if it has a schema and a
// text if not, and a list of them with foreach; its status; its error; the inputs
// of the graph; and with foreach item and index.
package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

// MaxSize is how large the file of a graph may be.
const MaxSize = 1 << 20

// maxTasks is how many tasks a graph may have.
const maxTasks = 1000

// Rights are what the Data of a task in a graph holds: how it is run.
type Rights struct {
	Tools          []string `json:"tools,omitempty"`
	Role           string   `json:"role,omitempty"`
	PermissionMode string   `json:"permission_mode,omitempty"`
	Sandbox        string   `json:"sandbox,omitempty"`
}

// Parse reads a graph. The name stands for the file in errors, each of which has
// its place. A schema may be the name of a file, which read reads.
func Parse(name string, data []byte, read func(name string) ([]byte, error)) (nestor.Graph, error) {
	root, err := yamltree.Parse(name, data, MaxSize)
	if err != nil {
		return nestor.Graph{}, err
	}
	g := nestor.Graph{Tasks: map[string]nestor.Node{}}
	err = root.Each(map[string]func(*yamltree.Node) error{
		"name":   yamltree.Into(&g.Name, (*yamltree.Node).Text),
		"inputs": yamltree.Into(&g.Inputs, values),
		"tasks": func(n *yamltree.Node) error {
			fields, err := n.Fields()
			errs := []error{err}
			if len(fields) > maxTasks {
				errs = append(errs, n.Errorf("a graph of %d tasks: %d are possible", len(fields), maxTasks))
			}
			for _, f := range fields {
				if !named(f.Key) {
					errs = append(errs, f.Place.Errorf("task %.60q: a name has letters, digits, - and _, 60 at most, and is none of %s", f.Key, strings.Join(reserved, ", ")))
				}
				node, err := parseNode(f.Value, read)
				errs = append(errs, err)
				g.Tasks[f.Key] = node
			}
			return yamltree.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
		},
	})
	if err == nil && len(g.Tasks) == 0 {
		err = root.Errorf("there are no tasks: name them under the key tasks")
	}
	if err != nil {
		return g, err
	}
	if err := Complete(&g); err != nil {
		return g, fmt.Errorf("%s: %w", name, err)
	}
	return g, nil
}

// reserved are names that references have for other things.
var reserved = []string{"inputs", "item", "index"}

func named(name string) bool {
	for _, c := range []byte(name) {
		if !isName(c) {
			return false
		}
	}
	return name != "" && len(name) <= 60 && !slices.Contains(reserved, name)
}

// values reads a mapping of names to values of JSON.
func values(n *yamltree.Node) (map[string]json.RawMessage, error) {
	fields, err := n.Fields()
	m := map[string]json.RawMessage{}
	for _, f := range fields {
		value, verr := f.Value.Any()
		if verr == nil {
			m[f.Key], verr = json.Marshal(value)
		}
		if err == nil {
			err = verr
		}
	}
	return m, err
}

func parseNode(n *yamltree.Node, read func(string) ([]byte, error)) (nestor.Node, error) {
	var node nestor.Node
	var o Rights
	var onError string
	t := &node.Task
	limits := &t.Limits
	err := n.Each(map[string]func(*yamltree.Node) error{
		"agent":           yamltree.Into(&t.Agent, (*yamltree.Node).Text),
		"input":           checked(&t.Input, func(s string) error { _, err := parseText(s); return err }),
		"provider":        yamltree.Into(&t.Provider, (*yamltree.Node).Text),
		"model":           yamltree.Into(&t.Model, (*yamltree.Node).Text),
		"swarm":           yamltree.Into(&t.Swarm, (*yamltree.Node).Text),
		"dir":             yamltree.Into(&t.Dir, (*yamltree.Node).Text),
		"label":           yamltree.Into(&t.Label, (*yamltree.Node).Text),
		"schema":          yamltree.Into(&t.Schema, schema(read)),
		"tools":           yamltree.Into(&o.Tools, yamltree.All((*yamltree.Node).Text)),
		"role":            yamltree.Into(&o.Role, (*yamltree.Node).Text),
		"permission_mode": yamltree.Into(&o.PermissionMode, (*yamltree.Node).Text),
		"sandbox":         yamltree.Into(&o.Sandbox, (*yamltree.Node).Text),
		"after":           yamltree.Into(&node.After, yamltree.All((*yamltree.Node).Text)),
		"when":            checked(&node.When, func(s string) error { _, err := parseCondition(s); return err }),
		"foreach":         checked(&node.ForEach, func(s string) error { _, err := listReference(s); return err }),
		"parallel":        yamltree.Into(&node.Parallel, (*yamltree.Node).Count),
		"max_items":       yamltree.Into(&node.MaxItems, (*yamltree.Node).Count),
		"retry":           yamltree.Into(&node.Retry, (*yamltree.Node).Count),
		"files":           yamltree.Into(&node.Files, yamltree.All((*yamltree.Node).Text)),
		"fresh":           yamltree.Into(&node.Fresh, (*yamltree.Node).Bool),
		"on_error": func(n *yamltree.Node) error {
			if err := yamltree.Into(&onError, (*yamltree.Node).Text)(n); err != nil {
				return err
			}
			node.OnError = nestor.OnError(onError)
			if !slices.Contains([]nestor.OnError{nestor.FailGraph, nestor.SkipRest, nestor.GoOn}, node.OnError) {
				return n.Errorf("on_error %.40q: want %s, %s or %s", onError, nestor.FailGraph, nestor.SkipRest, nestor.GoOn)
			}
			return nil
		},
		"limits": func(n *yamltree.Node) error {
			return n.Each(map[string]func(*yamltree.Node) error{
				"max_turns":       yamltree.Into(&limits.Turns, (*yamltree.Node).Count),
				"timeout":         yamltree.Into(&limits.Timeout, (*yamltree.Node).Duration),
				"max_budget_usd":  yamltree.Into(&limits.BudgetUSD, (*yamltree.Node).Amount),
				"max_depth":       yamltree.Into(&limits.Depth, (*yamltree.Node).Count),
				"max_children":    yamltree.Into(&limits.Children, (*yamltree.Node).Count),
				"max_descendants": yamltree.Into(&limits.Descendants, (*yamltree.Node).Count),
				"silence":         yamltree.Into(&limits.Silence, (*yamltree.Node).Duration),
			})
		},
	})
	if err != nil {
		return node, err
	}
	if t.Input == "" {
		return node, n.Errorf("the task has no input: say what the agent is to do")
	}
	if t.Data, err = json.Marshal(o); err != nil {
		return node, err
	}
	if string(t.Data) == "{}" {
		t.Data = nil
	}
	return node, nil
}

// checked reads a text that must pass a check.
func checked(p *string, check func(string) error) func(*yamltree.Node) error {
	return func(n *yamltree.Node) error {
		s, err := n.Text()
		if err != nil {
			return err
		}
		if err := check(s); err != nil {
			return n.Errorf("%w", err)
		}
		*p = s
		return nil
	}
}

// listReference reads the reference of foreach, which is nothing else.
func listReference(source string) (*reference, error) {
	t, err := parseText(strings.TrimSpace(source))
	if err != nil {
		return nil, err
	}
	if len(t.parts) != 1 || t.parts[0].ref == nil {
		return nil, fmt.Errorf("foreach %.60q: want one reference to a list, such as ${plan.output.files}", source)
	}
	return t.parts[0].ref, nil
}

// schema reads a schema, or the name of the file that has it.
func schema(read func(string) ([]byte, error)) func(*yamltree.Node) (json.RawMessage, error) {
	return func(n *yamltree.Node) (json.RawMessage, error) {
		if n.Mapping() {
			value, err := n.Any()
			if err != nil {
				return nil, err
			}
			return json.Marshal(value)
		}
		name, err := n.Text()
		if err != nil {
			return nil, err
		}
		if read == nil {
			return nil, n.Errorf("schema %.60q: want the schema itself", name)
		}
		data, err := read(name)
		if err != nil {
			return nil, n.Errorf("schema: %w", err)
		}
		if !json.Valid(data) {
			return nil, n.Errorf("schema: %s is not JSON", name)
		}
		return data, nil
	}
}

// Complete puts the tasks that a task refers to among those that it comes after,
// and fails if one is not there, or if tasks wait for each other.
func Complete(g *nestor.Graph) error {
	for _, name := range slices.Sorted(maps.Keys(g.Tasks)) {
		node := g.Tasks[name]
		refs, err := references(node)
		if err != nil {
			return fmt.Errorf("task %q: %w", name, err)
		}
		for _, r := range refs {
			if slices.Contains(reserved, r.root) || slices.Contains(node.After, r.root) {
				continue
			}
			if _, ok := g.Tasks[r.root]; !ok {
				return fmt.Errorf("task %q: ${%s}: there is no task %q; there are: %s", name, r.source, r.root, strings.Join(slices.Sorted(maps.Keys(g.Tasks)), ", "))
			}
			node.After = append(node.After, r.root)
		}
		slices.Sort(node.After)
		node.After = slices.Compact(node.After)
		g.Tasks[name] = node
	}
	_, err := g.Order()
	return err
}

// references returns those in all texts of a node.
func references(node nestor.Node) (list []*reference, err error) {
	t, err := parseText(node.Task.Input)
	if err != nil {
		return nil, err
	}
	list = t.references()
	if node.ForEach != "" {
		r, err := listReference(node.ForEach)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	if node.When != "" {
		c, err := parseCondition(node.When)
		if err != nil {
			return nil, err
		}
		c.each(func(r *reference) { list = append(list, r) })
	}
	return list, nil
}
