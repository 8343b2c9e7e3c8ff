package agentfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Set is what a library had at one moment. It is never changed.
type Set struct{ entries []Entry }

// rank orders scopes: a later one goes over those before it.
var rank = map[Scope]int{Builtin: 0, User: 1, Project: 2, Swarm: 3}

func newSet(entries []Entry) Set {
	kinds := map[Kind]int{Agent: 0, Skill: 1, Command: 2}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if n := kinds[a.Kind] - kinds[b.Kind]; n != 0 {
			return n
		}
		if n := strings.Compare(a.Address(), b.Address()); n != 0 {
			return n
		}
		return rank[b.Source.Scope] - rank[a.Source.Scope]
	})
	for i := range entries {
		if i > 0 && entries[i-1].Kind == entries[i].Kind && entries[i-1].Address() == entries[i].Address() {
			entries[i].ShadowedBy = entries[i-1].Source.File
			if above := entries[i-1].ShadowedBy; above != "" {
				entries[i].ShadowedBy = above
			}
		}
	}
	s := Set{entries}
	s.carry()
	return s
}

// Entries returns all files, those that others go over and those that are broken
// included.
func (s Set) Entries() []Entry {
	list := slices.Clone(s.entries)
	for i := range list {
		list[i].Problems = slices.Clone(list[i].Problems)
	}
	return list
}

// UnknownError says that there is no agent of a name.
type UnknownError struct {
	Name  string
	Near  []string // names that may be meant, the most likely first
	Known []string // all names
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("there is no agent %.100q", e.Name)
	if len(e.Near) > 0 {
		return text + "; did you mean " + strings.Join(e.Near, ", ") + "? 'nestor agents list' shows all"
	}
	const most = 30
	known := e.Known
	if len(known) > most {
		known = append(slices.Clone(known[:most]), fmt.Sprintf("and %d more", len(e.Known)-most))
	}
	return text + "; there are: " + strings.Join(known, ", ")
}

// Find returns what a name means, seen from a swarm; empty means from none. A name
// may be NAME, SWARM/NAME, or have its kind before it, as skill:NAME. Of those
// that have the same name, agents go before skills, and skills before commands.
// It fails with an *[UnknownError], or with the problems of a file that is broken.
func (s Set) Find(name, swarm string) (Definition, error) {
	if swarm != "" {
		if e, ok := s.lookup(swarm + "/" + name); ok {
			return e.use()
		}
	}
	e, ok := s.lookup(name)
	if !ok {
		return Definition{}, s.unknown(name, swarm)
	}
	return e.use()
}

func (s Set) lookup(name string) (Entry, bool) {
	for _, e := range s.entries {
		if e.ShadowedBy == "" && e.Address() == name {
			return e, true
		}
	}
	kind, name, _ := strings.Cut(name, ":")
	for _, e := range s.entries {
		if e.ShadowedBy == "" && string(e.Kind) == kind && e.Address() == name {
			return e, true
		}
	}
	return Entry{}, false
}

// use returns the definition, or why there is none.
func (e Entry) use() (Definition, error) {
	if d, ok := e.Definition(); ok {
		return d, nil
	}
	var errs []error
	for _, p := range e.Problems {
		if !p.Warning {
			errs = append(errs, &p)
		}
	}
	return Definition{}, fmt.Errorf("agent %s cannot be used: %w", e.Address(), errors.Join(errs...))
}

func (s Set) unknown(name, swarm string) error {
	e := &UnknownError{Name: name}
	known := map[string]bool{}
	for _, one := range s.entries {
		known[one.Address()] = true
		if one.Source.Swarm == swarm && swarm != "" {
			known[one.Name] = true
		}
	}
	e.Known = slices.Sorted(maps.Keys(known))
	left := slices.Clone(e.Known)
	for range 3 {
		near := Nearest(name, left)
		if near == "" {
			break
		}
		e.Near = append(e.Near, near)
		left = slices.DeleteFunc(left, func(n string) bool { return n == near })
	}
	for _, one := range e.Known { // who forgot the swarm
		if _, short, ok := strings.Cut(one, "/"); ok && short == name && !slices.Contains(e.Near, one) {
			e.Near = append(e.Near, one)
		}
	}
	return e
}
