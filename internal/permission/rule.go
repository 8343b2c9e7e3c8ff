package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rule is one in Claude Code's syntax: a tool, and for some tools which calls of
// it. The same rule reaches further where it denies or asks than where it allows:
// see [Rule.Stops] and [Allowed].
type Rule struct {
	Tool    string // Bash, mcp__server, mcp__server__tool
	Content string // git *, src/**, domain:example.com; empty means every call
}

// ParseRule reads a rule: Read, Bash(git *), Edit(src/**),
// WebFetch(domain:example.com), Task(reviewer), mcp__server, mcp__server__tool.
func ParseRule(text string) (Rule, error) {
	tool, content, some := strings.Cut(strings.TrimSpace(text), "(")
	content, closed := strings.CutSuffix(content, ")")
	tool = strings.TrimSpace(tool)
	r := Rule{tool, content}
	if content == "*" {
		r.Content = ""
	}
	bad := func(why string) (Rule, error) {
		return Rule{}, fmt.Errorf("%q is no rule about tools: %s", clip(text), why)
	}
	if tool == "" || some && !closed || strings.ContainsFunc(tool, func(c rune) bool { return c <= ' ' || c == ',' || c == ')' || c == 0x7f }) {
		return bad("write one as Read, Bash(git *), Edit(src/**) or mcp__server__tool")
	}
	if _, err := path.Match(tool, ""); err != nil {
		return bad("the name of its tool is a broken pattern")
	}
	switch kind := kindOf(tool); {
	case r.Content == "":
	case strings.ContainsRune(content, 0):
		return bad("it holds a zero byte")
	case kind == mcp:
		return bad("for a server's tools, write mcp__server or mcp__server__tool alone")
	case kind == fetch && !strings.HasPrefix(content, "domain:"):
		return bad("write which hosts as WebFetch(domain:example.com)")
	case kind == read || kind == edit:
		for segment := range strings.SplitSeq(content, "/") {
			if segment == ".." {
				return bad("a pattern with .. fits no path; write it as //the/whole/path")
			}
			if _, err := path.Match(segment, ""); err != nil {
				return bad(fmt.Sprintf("%q is a broken pattern", clip(segment)))
			}
		}
	}
	return r, nil
}

func (r Rule) String() string {
	if r.Content == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Content + ")"
}

// MarshalText writes the rule as ParseRule reads it.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRule.
func (r *Rule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRule(string(text))
	return err
}

// At returns the rule for a run in another folder than dir, which is absolute: a
// relative pattern becomes one of whole paths.
func (r Rule) At(dir string) Rule {
	if kind := kindOf(r.Tool); kind != read && kind != edit || r.Content == "" ||
		strings.HasPrefix(r.Content, "//") || strings.HasPrefix(r.Content, "~") {
		return r
	}
	r.Content = "/" + absolutePattern(r.Content, dir)
	return r
}

// kin are tools that the rules of another are for too, if they say which files;
// aliases are other names of a tool.
var (
	kin = map[string][]string{
		"Edit": {"Write", "MultiEdit", "NotebookEdit"},
		"Read": {"Glob", "Grep", "LS", "NotebookRead"},
	}
	aliases = map[string]string{"Task": "Agent", "KillShell": "TaskStop", "KillBash": "TaskStop", "Monitor": "Bash"}
)

func canonical(tool string) string {
	if name, ok := aliases[tool]; ok {
		return name
	}
	return tool
}

// names tells whether the rule is about the tool. A * in the name of a tool
// stands for anything where the rule stops calls; where it allows them, only
// behind the name of a server.
func (r Rule) names(tool string, stops bool) bool {
	if canonical(r.Tool) == canonical(tool) || r.Content != "" && slices.Contains(kin[r.Tool], tool) {
		return true
	}
	if server, ok := serverOf(r.Tool); ok && strings.HasPrefix(tool, server) {
		return true
	}
	if !strings.Contains(r.Tool, "*") {
		return false
	}
	if !stops {
		before, _, _ := strings.Cut(r.Tool, "*")
		server, rest, ok := strings.Cut(strings.TrimPrefix(before, "mcp__"), "__")
		if kindOf(r.Tool) != mcp || !ok || server == "" || rest == "" {
			return false
		}
	}
	fits, err := path.Match(r.Tool, strings.ReplaceAll(tool, "/", "_"))
	return fits || err != nil && stops
}

// serverOf returns how the tools of a server begin, for mcp__server and
// mcp__server__*.
func serverOf(name string) (string, bool) {
	server, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(name, "*"), "__"), "mcp__")
	if !ok || server == "" || strings.Contains(server, "__") || strings.HasSuffix(name, "*") && !strings.HasSuffix(name, "__*") {
		return "", false
	}
	return "mcp__" + server + "__", true
}

// Stops tells whether the rule, as one that denies or asks, is for a call: for
// any part of it, and for all of it if nobody can tell.
func (r Rule) Stops(t Target) bool {
	if !r.names(t.Tool, true) {
		return false
	}
	switch kind := kindOf(t.Tool); {
	case r.Content == "":
		return true
	case kind == shell:
		v := t.seen
		if v == nil {
			v = varietyOf(t.Command)
		}
		return t.Command == "" || v.tooMuch() || slices.ContainsFunc(v.list, func(part string) bool { return commandFits(r.Content, part) })
	case strings.HasPrefix(r.Content, "domain:"):
		return t.Host == "" || hostFits(strings.TrimPrefix(r.Content, "domain:"), t.Host)
	case kind == spawn || t.Tool == "Skill":
		return t.Agent == "" || commandFits(r.Content, t.Agent)
	}
	return t.Path == "" || pathFits(r.Content, t.Path, t.Dir, true)
}

// Allowed returns the first of the rules that allow a call, and whether there is
// one. What a rule does not understand it does not allow. A command line is
// allowed if each of its parts is, by any of the rules, and nothing in it is
// substituted or redirected.
func Allowed(rules []Rule, t Target) (Rule, bool) {
	if kindOf(t.Tool) == shell && t.Command != "" {
		return allowedLine(rules, t, parseLine(t.Command), nil)
	}
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.allows(t, "") })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// allowedLine is Allowed for a command line. Parts that are harmless need no
// rule, but one rule at least allows something.
func allowedLine(rules []Rule, t Target, l line, harmless func(simple) bool) (by Rule, ok bool) {
	if i := slices.IndexFunc(rules, func(r Rule) bool { return r.Content == "" && r.names(t.Tool, false) }); i >= 0 {
		return rules[i], true
	}
	if l.opaque != "" {
		return Rule{}, false
	}
	for _, part := range l.parts {
		if i := slices.IndexFunc(rules, func(r Rule) bool { return r.allows(t, part.text) }); i >= 0 {
			if !ok {
				by, ok = rules[i], true
			}
		} else if harmless == nil || !harmless(part) {
			return Rule{}, false
		}
	}
	return by, ok
}

// allows tells whether the rule, as one that allows, is for the call; for a
// command, for one part of it.
func (r Rule) allows(t Target, part string) bool {
	if !r.names(t.Tool, false) {
		return false
	}
	switch kind := kindOf(t.Tool); {
	case r.Content == "":
		return true
	case kind == shell:
		return part != "" && commandFits(r.Content, part)
	case strings.HasPrefix(r.Content, "domain:"):
		return t.Host != "" && hostFits(strings.TrimPrefix(r.Content, "domain:"), t.Host)
	case kind == spawn || t.Tool == "Skill":
		return t.Agent != "" && commandFits(r.Content, t.Agent)
	}
	return t.Path != "" && pathFits(r.Content, t.Path, t.Dir, false)
}

// commandFits tells whether a command is one of the pattern: the very command, a
// prefix as in "git:*", or with * for anything, as in "git * main". A * at the
// end behind a space also stands for nothing.
func commandFits(pattern, command string) bool {
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		return command == prefix || strings.HasPrefix(command, prefix+" ")
	}
	if bare, ok := strings.CutSuffix(pattern, " *"); ok && command == bare {
		return true
	}
	pieces := strings.Split(pattern, "*")
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(pieces) == 1 {
		return command == pattern
	}
	rest, ok := strings.CutPrefix(command, first)
	if !ok {
		return false
	}
	for _, piece := range pieces[1 : len(pieces)-1] {
		if _, rest, ok = strings.Cut(rest, piece); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, last)
}
