package claude

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkSkill refuses a name that would mean something else once it stands in
// a permission rule, Skill(name): the CLI splits the list of rules at commas
// and spaces outside parentheses and knows no escapes.
func checkSkill(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("a skill needs a non-empty name")
	case name == "*":
		return errors.New(`skill "*": set AllSkills to have them all`)
	case !utf8.ValidString(name):
		return fmt.Errorf("skill %q: the name is not valid UTF-8", name)
	case strings.TrimSpace(name) != name || strings.HasPrefix(name, "\uFEFF") || strings.HasSuffix(name, "\uFEFF"):
		return fmt.Errorf("skill %q: the name has space around it", name)
	case strings.ContainsAny(name, "(),\uFEFF"):
		return fmt.Errorf("skill %q: the name has a parenthesis, a comma or a byte order mark in it", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("skill %q: the name has a control character in it", name)
	case strings.HasSuffix(name, ":*") || strings.HasSuffix(name, " *"):
		return fmt.Errorf("skill %q: a wildcard would allow more than one skill", name)
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("skill %q: leave the slash away", name)
	case strings.Contains(name, `\\`) || strings.HasSuffix(name, `\`):
		return fmt.Errorf("skill %q: the name has a backslash where it would escape", name)
	}
	return nil
}

// approved returns AutoApprove and the rules that let Claude use the skills.
func (o *Options) approved() []string {
	rules := slices.Clone(o.AutoApprove)
	add := func(rule string) {
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	if o.AllSkills {
		add("Skill")
	}
	for _, name := range o.Skills {
		add("Skill(" + name + ")")
	}
	return rules
}
