package permission

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// Narrow returns what is allowed by both policies: no call gets a milder answer
// from it than from either. It does not matter which of them is the parent, nor
// in which order several are narrowed, nor how often.
//
// Relative patterns of rules are relative to the folder of the call, whichever
// that is: where parent and child work in different folders, use [Policy.At]
// before.
func Narrow(parent, child Policy) Policy {
	n := Policy{
		Role:  strings.Join(sorted(append(splitRoles(parent.Role), splitRoles(child.Role)...), strings.Compare), roleSeparator),
		Read:  meet(clean(parent.Read), clean(child.Read), within),
		Write: meet(clean(parent.Write), clean(child.Write), within),
		Bash:  min(parent.Bash, child.Bash),
		Git:   min(parent.Git, child.Git),
		Web:   parent.Web && child.Web,
		Hosts: meetOrAll(lower(parent.Hosts), lower(child.Hosts), holdsHost),
		Tools: meetOrAll(canonicals(parent.Tools), canonicals(child.Tools), holdsTool),
		Spawn: parent.Spawn && child.Spawn,
		Deny:  sorted(slices.Concat(parent.Deny, child.Deny), compareRules),
		Ask:   sorted(slices.Concat(parent.Ask, child.Ask), compareRules),
	}
	grants := slices.Concat([]Grant{parent.Grant, child.Grant}, parent.Also, child.Also)
	for i, g := range grants {
		grants[i] = Grant{g.mode(), sorted(slices.Clone(g.Allow), compareRules)}
	}
	grants = sorted(grants, compareGrants)
	n.Grant, n.Also = grants[0], nil
	if len(grants) > 1 {
		n.Also = grants[1:]
	}
	return n
}

// At returns the policy for runs in other folders than dir, which is absolute:
// relative patterns of its rules become those of whole paths.
func (p Policy) At(dir string) Policy {
	at := func(rules []Rule) []Rule {
		rules = slices.Clone(rules)
		for i, r := range rules {
			rules[i] = r.At(dir)
		}
		return rules
	}
	p.Deny, p.Ask, p.Allow, p.Also = at(p.Deny), at(p.Ask), at(p.Allow), slices.Clone(p.Also)
	for i := range p.Also {
		p.Also[i].Allow = at(p.Also[i].Allow)
	}
	return p
}

const roleSeparator = " and "

func splitRoles(role string) []string {
	if role == "" {
		return nil
	}
	return strings.Split(role, roleSeparator)
}

// meet returns what both lists hold, where holds tells whether one entry holds
// all of another: of two that overlap, the smaller one. Of any two entries one
// must hold the other, or they have nothing in common.
func meet(a, b []string, holds func(large, small string) bool) []string {
	var both []string
	for _, x := range a {
		for _, y := range b {
			switch {
			case holds(x, y):
				both = append(both, y)
			case holds(y, x):
				both = append(both, x)
			}
		}
	}
	both = sorted(both, strings.Compare)
	return slices.DeleteFunc(slices.Clone(both), func(small string) bool {
		return slices.ContainsFunc(both, func(large string) bool { return large != small && holds(large, small) })
	})
}

// meetOrAll is meet for lists of which nil means everything.
func meetOrAll(a, b []string, holds func(large, small string) bool) []string {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		a = b
	case b == nil:
		b = a
	}
	both := meet(a, b, holds)
	if both == nil {
		both = []string{} // which is not everything
	}
	return both
}

// holdsHost tells whether a host of a policy holds all of another.
func holdsHost(large, small string) bool {
	below, ok := strings.CutPrefix(large, "*.")
	return large == small || ok && strings.HasSuffix(strings.TrimPrefix(small, "*"), "."+below)
}

// clean returns folders as they are compared. What is not absolute is nothing.
func clean(folders []string) []string {
	var list []string
	for _, folder := range folders {
		if filepath.IsAbs(folder) {
			list = append(list, filepath.Clean(folder))
		}
	}
	return list
}

func lower(hosts []string) []string {
	hosts = slices.Clone(hosts)
	for i, host := range hosts {
		hosts[i] = strings.ToLower(host)
	}
	return hosts
}

// canonicals returns tools by one name each.
func canonicals(tools []string) []string {
	tools = slices.Clone(tools)
	for i, tool := range tools {
		tools[i] = canonical(tool)
		if server, ok := serverOf(tool); ok {
			tools[i] = strings.TrimSuffix(server, "__")
		}
	}
	return tools
}

// sorted sorts a list, which it owns, and drops what is there twice. An empty one
// is nil.
func sorted[T any](list []T, compare func(a, b T) int) []T {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, compare)
	return slices.CompactFunc(list, func(a, b T) bool { return compare(a, b) == 0 })
}

func compareRules(a, b Rule) int {
	return cmp.Or(strings.Compare(a.Tool, b.Tool), strings.Compare(a.Content, b.Content))
}

func compareGrants(a, b Grant) int {
	return cmp.Or(strings.Compare(a.Mode, b.Mode), slices.CompareFunc(a.Allow, b.Allow, compareRules))
}
