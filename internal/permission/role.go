package permission

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/internal/spelling"
)

// RoleSpec is a line of the table of roles, as a config has it. An empty cell
// means no; in a role that extends another it means what that one has.
type RoleSpec struct {
	// Extends is the role that this one narrows: whatever else the line says, it
	// never allows more. Empty means none.
	Extends string `json:"extends,omitempty" yaml:"extends"`

	Read  string `json:"read,omitempty" yaml:"read"`   // workspace, logs, project or no
	Write string `json:"write,omitempty" yaml:"write"` // workspace, project or no
	Bash  string `json:"bash,omitempty" yaml:"bash"`   // yes, limited or no
	Git   string `json:"git,omitempty" yaml:"git"`     // yes, workspace or no
	Web   string `json:"web,omitempty" yaml:"web"`     // yes or no
	Spawn string `json:"spawn,omitempty" yaml:"spawn"` // yes or no
	Mode  string `json:"mode,omitempty" yaml:"mode"`   // empty means acceptEdits if it may write, default otherwise

	Hosts []string `json:"hosts,omitzero" yaml:"hosts"` // that it may reach, with web; nil means any
	Tools []string `json:"tools,omitzero" yaml:"tools"` // that exist for it; nil means all
	Allow []string `json:"allow,omitempty" yaml:"allow"`
	Deny  []string `json:"deny,omitempty" yaml:"deny"`
	Ask   []string `json:"ask,omitempty" yaml:"ask"`
}

// Place is where a run works. All folders are absolute.
type Place struct {
	Workspace string
	Project   string
	Logs      string // the folder, or the file, of the logs that a monitor reads
	// SwarmDev says that the run is of the swarm that develops the project
	// itself: its workspace is the project.
	SwarmDev bool
}

// builtin is the table of roles.
var builtin = map[string]RoleSpec{
	"orchestrator": {Read: "workspace", Write: "workspace", Bash: "yes", Git: "no", Web: "yes", Spawn: "yes"},
	"implementer":  {Read: "workspace", Write: "workspace", Bash: "yes", Git: "workspace", Web: "yes", Spawn: "yes"},
	"researcher":   {Read: "workspace", Write: "workspace", Bash: "yes", Git: "no", Web: "yes", Spawn: "yes"},
	"critic":       {Read: "workspace", Write: "no", Bash: "no", Git: "no", Web: "yes", Spawn: "yes"},
	"reviewer":     {Read: "workspace", Write: "no", Bash: "limited", Git: "no", Web: "yes", Spawn: "yes"},
	"monitor":      {Read: "logs", Write: "no", Bash: "limited", Git: "no", Web: "no", Spawn: "no"},
}

// cells are what may stand in the cells of the table.
var cells = map[string][]string{
	"read":  {"workspace", "logs", "project", "no"},
	"write": {"workspace", "project", "no"},
	"bash":  {"yes", "limited", "no"},
	"git":   {"yes", "workspace", "no"},
	"web":   {"yes", "no"},
	"spawn": {"yes", "no"},
}

// Cells returns what may stand in a cell of the table: read, write, bash, git, web
// or spawn.
func Cells(name string) []string { return slices.Clone(cells[name]) }

// Table is the roles that there are. The zero value has the built-in ones.
type Table struct{ own map[string]RoleSpec }

// Roles returns the built-in roles and own ones. Its error tells all that is
// wrong with these, each with the role, the cell and what may stand there. A
// built-in role cannot be changed.
func Roles(own map[string]RoleSpec) (Table, error) {
	t := Table{map[string]RoleSpec{}}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, known := builtin[name]; known {
			problems = append(problems, fmt.Errorf("role %s: it is built in; give yours another name", name))
			continue
		}
		if err := checkRoleName(name); err != nil {
			problems = append(problems, err)
			continue
		}
		if err := own[name].check(); err != nil {
			for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
				problems = append(problems, fmt.Errorf("role %s: %w", name, one))
			}
			continue
		}
		t.own[name] = own[name]
	}
	for _, name := range slices.Sorted(maps.Keys(t.own)) {
		if err := t.extends(name); err != nil {
			problems = append(problems, fmt.Errorf("role %s: %w", name, err))
			delete(t.own, name)
		}
	}
	return t, errors.Join(problems...)
}

// extends tells what is wrong with the roles that one extends.
func (t Table) extends(name string) error {
	for seen := []string{name}; ; seen = append(seen, name) {
		base := t.own[name].Extends
		if base == "" {
			return nil
		}
		if _, own := t.own[base]; !own {
			if _, known := builtin[base]; !known {
				return fmt.Errorf("extends: no role %q%s", clip(base), didYouMean(base, t.Names()))
			}
			return nil
		}
		if slices.Contains(seen, base) {
			return fmt.Errorf("extends: %s leads back to itself; let one of them extend a built-in role, or none", strings.Join(append(seen, base), " → "))
		}
		name = base
	}
}

// Names returns the roles, sorted.
func (t Table) Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(builtin)), maps.Keys(t.own))
	slices.Sort(names)
	return names
}

// ForRole is [Table.For] with the built-in roles.
func ForRole(role string, place Place) (Policy, error) {
	return Table{}.For(role, place)
}

// For returns the policy of a role at a place. A role that is not in the table is
// an error that names the nearest one, or all; so is a place without a folder
// that the role works in.
func (t Table) For(role string, place Place) (Policy, error) {
	spec, known := builtin[role]
	if !known {
		spec, known = t.own[role]
	}
	if !known {
		return Policy{}, fmt.Errorf("no role %q%s", clip(role), didYouMean(role, t.Names()))
	}
	p, err := t.full(spec).at(role, place)
	if err != nil || spec.Extends == "" {
		return p, err
	}
	base, err := t.For(spec.Extends, place)
	if err != nil {
		return Policy{}, err
	}
	p = Narrow(base, p)
	p.Role = role
	return p, nil
}

// full is a line with what its empty cells stand for. What it extends has been
// looked at.
func (t Table) full(s RoleSpec) RoleSpec {
	if s.Extends == "" {
		return s
	}
	base, known := builtin[s.Extends]
	if !known {
		base = t.full(t.own[s.Extends])
	}
	s.Read, s.Write, s.Bash, s.Git = cmp.Or(s.Read, base.Read), cmp.Or(s.Write, base.Write), cmp.Or(s.Bash, base.Bash), cmp.Or(s.Git, base.Git)
	s.Web, s.Spawn, s.Mode = cmp.Or(s.Web, base.Web), cmp.Or(s.Spawn, base.Spawn), cmp.Or(s.Mode, base.Mode)
	return s
}

// at returns the policy of a line of the table at a place.
func (s RoleSpec) at(role string, place Place) (Policy, error) {
	p := Policy{
		Role:  role,
		Bash:  levelOf(s.Bash),
		Git:   levelOf(s.Git),
		Web:   s.Web == "yes",
		Spawn: s.Spawn == "yes",
		Hosts: slices.Clone(s.Hosts),
		Tools: slices.Clone(s.Tools),
		Grant: Grant{Mode: s.mode()},
	}
	var err error
	if p.Read, err = place.folders(role, "read", s.Read); err != nil {
		return Policy{}, err
	}
	if p.Write, err = place.folders(role, "write", s.Write); err != nil {
		return Policy{}, err
	}
	for _, list := range []struct {
		to   *[]Rule
		from []string
	}{{&p.Allow, s.Allow}, {&p.Deny, s.Deny}, {&p.Ask, s.Ask}} {
		for _, text := range list.from {
			r, err := ParseRule(text)
			if err != nil {
				return Policy{}, fmt.Errorf("role %s: %w", role, err)
			}
			*list.to = append(*list.to, r)
		}
	}
	p.Allow = append(p.Allow, s.cellRules()...)
	if place.SwarmDev && p.Bash == Yes {
		p.Git = Yes
		p.Deny = append(p.Deny, swarmDevDeny...)
		p.Ask = append(p.Ask, swarmDevAsk...)
	}
	return p, nil
}

// cellRules are rules that say that a yes in a cell needs no question.
func (s RoleSpec) cellRules() (rules []Rule) {
	if s.Bash == "yes" {
		rules = append(rules, Rule{Tool: "Bash"})
	}
	if s.Web == "yes" {
		rules = append(rules, Rule{Tool: "WebFetch"}, Rule{Tool: "WebSearch"})
	}
	if s.Spawn == "yes" {
		rules = append(rules, Rule{Tool: "Agent"})
	}
	return rules
}

// What develops the project itself commits to a branch of its own, where its
// workspace is put. These rules keep it there, as far as rules do: the main
// branch changes by hand, or after a review.
var (
	swarmDevDeny = []Rule{
		{"Bash", "git checkout main"}, {"Bash", "git checkout master"}, {"Bash", "git checkout -f main"}, {"Bash", "git checkout -f master"},
		{"Bash", "git switch main"}, {"Bash", "git switch master"}, {"Bash", "git checkout -B *"}, {"Bash", "git switch -C *"},
		{"Bash", "git branch -f *"}, {"Bash", "git branch --force *"}, {"Bash", "git branch -D *"}, {"Bash", "git branch -M *"},
		{"Bash", "git update-ref *"}, {"Bash", "git symbolic-ref *"},
		{"Bash", "git push -f*"}, {"Bash", "git push * -f*"}, {"Bash", "git push --force*"}, {"Bash", "git push * --force*"}, {"Bash", "git push * +*"},
		{"Bash", "git push * main"}, {"Bash", "git push * master"}, {"Bash", "git push *:main*"}, {"Bash", "git push *:master*"},
		{"Bash", "git push *:refs*"}, {"Bash", "git push --mirror*"}, {"Bash", "git push --all*"},
	}
	swarmDevAsk = []Rule{{"Bash", "git push *"}, {"Bash", "git merge *"}, {"Bash", "git worktree *"}, {"Bash", "git remote *"}}
)

// folders returns what a cell about files means at the place.
func (p Place) folders(role, cell, value string) ([]string, error) {
	var where, folder string
	switch value {
	case "", "no":
		return nil, nil
	case "workspace":
		where, folder = "workspace", p.Workspace
		if p.SwarmDev {
			where, folder = "project", p.Project
		}
	case "project":
		where, folder = "project", p.Project
	case "logs":
		where, folder = "logs", p.Logs
	}
	if !filepath.IsAbs(folder) {
		return nil, fmt.Errorf("role %s: %s %s: the place's %s %q is not an absolute path", role, cell, value, where, clip(folder))
	}
	return []string{filepath.Clean(folder)}, nil
}

func levelOf(cell string) Level {
	switch cell {
	case "yes":
		return Yes
	case "limited", "workspace":
		return Limited
	}
	return No
}

// gitCell is a level as the table's column about git has it.
func gitCell(l Level) string {
	if l == Workspace {
		return "workspace"
	}
	return l.String()
}

func (s RoleSpec) mode() string {
	switch {
	case s.Mode != "":
		return s.Mode
	case s.Write == "" || s.Write == "no":
		return ModeDefault
	}
	return ModeAcceptEdits
}

// check returns all that is wrong with a line, joined, or nil.
func (s RoleSpec) check() error {
	var problems []error
	for _, cell := range []struct{ name, value string }{
		{"read", s.Read}, {"write", s.Write}, {"bash", s.Bash}, {"git", s.Git}, {"web", s.Web}, {"spawn", s.Spawn},
	} {
		if cell.value != "" && !slices.Contains(cells[cell.name], cell.value) {
			problems = append(problems, fmt.Errorf("%s: %q is not one of %s", cell.name, clip(cell.value), strings.Join(cells[cell.name], ", ")))
		}
	}
	if s.Mode != "" && !slices.Contains(Modes(), s.Mode) {
		problems = append(problems, fmt.Errorf("mode: %q is not one of %s", clip(s.Mode), strings.Join(Modes(), ", ")))
	}
	if levelOf(s.Git) > No && s.Bash != "yes" && !(s.Extends != "" && s.Bash == "") {
		problems = append(problems, fmt.Errorf("git: %q needs bash: yes, which git is run with", clip(s.Git)))
	}
	if s.Hosts != nil && s.Web != "yes" && !(s.Extends != "" && s.Web == "") {
		problems = append(problems, errors.New("hosts: they need web: yes"))
	}
	for _, host := range s.Hosts {
		name := strings.TrimPrefix(host, "*.")
		if name == "" || strings.ContainsAny(name, "*/:@? \t\n") || strings.HasPrefix(name, ".") {
			problems = append(problems, fmt.Errorf("hosts: %q is no host; write example.com, or *.example.com for those below it", clip(host)))
		}
	}
	for _, tool := range s.Tools {
		if r, err := ParseRule(tool); err != nil || r.Content != "" {
			problems = append(problems, fmt.Errorf("tools: %q is no name of a tool; which calls of it are allowed is said in allow, deny and ask", clip(tool)))
		}
	}
	for _, list := range []struct {
		name  string
		rules []string
	}{{"allow", s.Allow}, {"deny", s.Deny}, {"ask", s.Ask}} {
		for _, text := range list.rules {
			if _, err := ParseRule(text); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", list.name, err))
			}
		}
	}
	return errors.Join(problems...)
}

func checkRoleName(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" || name[0] == '-' {
		return fmt.Errorf("role %q: a name is small letters, digits, _ and -, at most 64 of them", clip(name))
	}
	return nil
}

// didYouMean ends an error about a name that is none of names.
func didYouMean(name string, names []string) string {
	if len(name) <= 64 {
		near := slices.MinFunc(names, func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
		if spelling.Distance(name, near) <= 1+len(near)/4 {
			return fmt.Sprintf("; did you mean %q?", near)
		}
	}
	return "; there are " + strings.Join(names, ", ")
}
