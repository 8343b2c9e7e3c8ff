package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

const rolesPrefix = "roles."

// anyRole is the name of a role in the table of keys.
const anyRole = "name"

// roleCells are what a role consists of, in the order of the table.
var roleCells = []struct {
	name string
	doc  string
	in   func(*permission.RoleSpec) setting
}{
	{"extends", "the role that it narrows: what it does not say is as there, and it never allows more",
		func(r *permission.RoleSpec) setting { return textSetting{&r.Extends, "a role's name"} }},
	{"read", "what it may read", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Read, permission.Cells("read")} }},
	{"write", "what it may change", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Write, permission.Cells("write")} }},
	{"bash", "whether it may run commands; limited means those that only read", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Bash, permission.Cells("bash")} }},
	{"git", "whether its commands may change repositories; workspace means its own", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Git, permission.Cells("git")} }},
	{"web", "whether it may reach the web", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Web, permission.Cells("web")} }},
	{"hosts", "the hosts that it may reach there; unset means any", func(r *permission.RoleSpec) setting {
		return listSetting{p: &r.Hosts, what: "a list of hosts, such as [go.dev, \"*.go.dev\"]"}
	}},
	{"spawn", "whether it may start agents", func(r *permission.RoleSpec) setting { return choiceSetting{&r.Spawn, permission.Cells("spawn")} }},
	{"tools", "the tools that exist for it; unset means all", func(r *permission.RoleSpec) setting {
		return toolsSetting(&r.Tools)
	}},
	{"mode", "what happens to calls that no rule decides; unset means acceptEdits if it may write, else default",
		func(r *permission.RoleSpec) setting { return choiceSetting{&r.Mode, permissionModes()} }},
	{"allow", "rules that allow, within the rest", func(r *permission.RoleSpec) setting { return rulesSetting(&r.Allow) }},
	{"deny", "rules that deny", func(r *permission.RoleSpec) setting { return rulesSetting(&r.Deny) }},
	{"ask", "rules that have a person asked", func(r *permission.RoleSpec) setting { return rulesSetting(&r.Ask) }},
}

func rulesSetting(p *[]string) setting {
	return listSetting{p, "a list of rules, such as [\"Bash(git *)\"]", func(word string) error {
		_, err := permission.ParseRule(word)
		return err
	}}
}

func toolsSetting(p *[]string) setting {
	return listSetting{p, "a list of tools, such as [Read, Bash]", func(word string) error {
		if word == "*" {
			return nil
		}
		_, err := permission.ParseRule(word)
		return err
	}}
}

// roleKeys are the keys of one role.
func roleKeys(role string) (list []configKey) {
	for _, cell := range roleCells {
		list = append(list, configKey{
			name: rolesPrefix + role + "." + cell.name, doc: "of the role `" + role + "`: " + cell.doc, noEnv: true,
			in: func(c *config) setting { return roleSetting{c.Roles, role, cell.in} },
		})
	}
	return list
}

// roleOf returns the role and the cell that a key is about.
func roleOf(key string) (role, cell string, ok bool) {
	rest, ok := strings.CutPrefix(key, rolesPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}

// findRoleKey returns the key of that name, of whatever role.
func findRoleKey(name string) (configKey, bool) {
	role, _, ok := roleOf(name)
	if !ok {
		return configKey{}, false
	}
	i := slices.IndexFunc(roleKeys(role), func(k configKey) bool { return k.name == name })
	if i < 0 {
		return configKey{}, false
	}
	return roleKeys(role)[i], true
}

// nearestRoleKey returns the key that name is most likely meant to be, if it is
// one of a role.
func nearestRoleKey(name string) string {
	role, cell, ok := roleOf(name)
	if !ok {
		return ""
	}
	var names []string
	for _, c := range roleCells {
		names = append(names, c.name)
	}
	if near := nearest(cell, names); near != "" {
		return rolesPrefix + role + "." + near
	}
	return ""
}

// roleSetting is a cell of a role, which is made when it is needed.
type roleSetting struct {
	roles map[string]permission.RoleSpec
	role  string
	in    func(*permission.RoleSpec) setting
}

func (s roleSetting) spec() *permission.RoleSpec {
	spec := s.roles[s.role]
	return &spec
}

func (s roleSetting) want() string { return s.in(s.spec()).want() }
func (s roleSetting) get() any     { return s.in(s.spec()).get() }

func (s roleSetting) set(words []string, at place) error {
	spec := s.spec()
	if err := s.in(spec).set(words, at); err != nil {
		return err
	}
	s.roles[s.role] = *spec
	return nil
}

// isList tells whether a setting is a list of words.
func isList(s setting) bool {
	if role, ok := s.(roleSetting); ok {
		s = role.in(role.spec())
	}
	_, list := s.(listSetting)
	return list
}

// addRole takes note of a value of a role in a file.
func (p *configParser) addRole(k configKey, words []string, field yamltree.Field) {
	role, _, _ := roleOf(k.name)
	if _, known := p.roleAt[role]; !known {
		p.roleAt[role] = field.Place
	}
	p.roles = append(p.roles, newWish(k, words, field))
}

// wishForRoles says which roles of a project count only if the user trusts them:
// those that extend none. What such a role allows, nobody has chosen.
func (p *configParser) wishForRoles() {
	for _, w := range p.roles {
		role, _, _ := roleOf(w.key.name)
		if _, extends := p.seen[rolesPrefix+role+".extends"]; !extends && p.file.owner == "project" {
			p.wishes = append(p.wishes, w)
		}
	}
}

// checkRoles tells what is wrong with roles, each at its place.
func (l *configLoader) checkRoles() {
	_, err := permission.Roles(l.config.Roles)
	if err == nil {
		return
	}
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		for _, role := range slices.Sorted(maps.Keys(l.roleAt)) {
			if strings.HasPrefix(one.Error(), "role "+role+": ") || strings.HasPrefix(one.Error(), fmt.Sprintf("role %q: ", role)) {
				one = l.roleAt[role].Errorf("%v", one)
				break
			}
		}
		l.add(one)
	}
}
