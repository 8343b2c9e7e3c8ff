package nestor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Graph is named tasks with dependencies.
type Graph struct {
	Name   string                     `json:"name,omitempty"`
	Inputs map[string]json.RawMessage `json:"inputs,omitempty"` // values that its texts refer to
	Tasks  map[string]Node            `json:"tasks"`
}

// Node is a task of a graph. Texts in it may refer to what other tasks gave, as
// ${task.output.field}.
type Node struct {
	Task    Task     `json:"task"`              // its Input is such a text
	After   []string `json:"after,omitempty"`   // tasks of the graph that must end first, besides those that it refers to
	When    string   `json:"when,omitempty"`    // a condition, without which it is skipped; empty means always
	ForEach string   `json:"foreach,omitempty"` // refers to a list: one run for each item; empty means one run
	// Parallel is how many of those runs there are at once; zero means as many as
	// possible.
	Parallel int     `json:"parallel,omitempty"`
	MaxItems int     `json:"max_items,omitempty"` // that the list may have; zero means 100
	Retry    int     `json:"retry,omitempty"`     // how often it is run again when it fails
	OnError  OnError `json:"on_error,omitempty"`  // what its failure means; empty means fail
	// Files are patterns of files of the project that it depends on: if one of them
	// changes, an earlier result does not count.
	Files []string `json:"files,omitempty"`
	Fresh bool     `json:"fresh,omitempty"` // an earlier result never counts
}

// OnError says what the failure of a task means for its graph.
type OnError string

// The meanings of failures.
const (
	FailGraph OnError = "fail"     // the graph fails: what has not begun is not begun
	SkipRest  OnError = "skip"     // what comes after it is skipped
	GoOn      OnError = "continue" // what comes after it is run; its output is null
)

// Order returns the names of the tasks, each behind those that it comes after,
// otherwise by name. It fails if a task comes after one that is not there, or
// after itself.
func (g Graph) Order() ([]string, error) {
	const visiting, done = 1, 2
	state, order := map[string]int{}, []string(nil)
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		switch state[name] {
		case done:
			return nil
		case visiting:
			loop := append(path[slices.Index(path, name):], name)
			return fmt.Errorf("tasks that wait for each other: %q", loop)
		}
		state[name] = visiting
		for _, before := range slices.Sorted(slices.Values(g.Tasks[name].After)) {
			if _, ok := g.Tasks[before]; !ok {
				return fmt.Errorf("task %q comes after %q, which is not in the graph", name, before)
			}
			if err := visit(before, append(path, name)); err != nil {
				return err
			}
		}
		state[name] = done
		order = append(order, name)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(g.Tasks)) {
		if err := visit(name, nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}
