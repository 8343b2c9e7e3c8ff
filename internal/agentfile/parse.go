package agentfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/spelling"
)

// Parse reads a file, which is of that kind by its place and has that name if it
// does not say another. It returns nil if the file cannot be used; what is wrong
// with it, warnings included, is in the problems. Roles are those that it may have
// besides the built-in ones.
func Parse(src Source, kind Kind, name string, data []byte, roles []string) (*Definition, []Problem) {
	r := &reader{file: src.File}
	d := r.parse(src, kind, name, data, roles)
	if r.failed() {
		return nil, r.problems
	}
	sum := sha256.Sum256(data)
	d.Hash = hex.EncodeToString(sum[:])
	return d, r.problems
}

func (r *reader) parse(src Source, kind Kind, name string, data []byte, roles []string) *Definition {
	text, ok := r.text(data)
	if !ok {
		return nil
	}
	f := r.cut(text, isFlat)
	if r.failed() {
		return nil
	}
	p := &parser{reader: r, roles: append(permission.Table{}.Names(), roles...), lines: strings.Split(text, "\n"), d: &Definition{Name: name, Kind: kind, Source: src, Prompt: strings.Trim(f.body, "\n")}}
	p.kind(f)
	p.d.Name = name
	for _, one := range f.fields {
		p.field(one)
	}
	p.check(f)
	return p.d
}

// parser fills a definition.
type parser struct {
	*reader
	d       *Definition
	allowed []string // that allowed-tools names
	tools   bool     // tools are said
	depth   int      // line of limits.max_depth; zero if it is not said
	later   []func() // what is checked when all keys are read
	lines   []string // of the file
	roles   []string // that there are
}

// kind takes what the file itself says to be, before the keys that depend on it.
func (p *parser) kind(f front) {
	for _, one := range f.fields {
		if one.key != "type" {
			continue
		}
		switch word, err := one.value.Text(); Kind(word) {
		case Command, Skill, Agent:
			if err == nil {
				p.d.Kind = Kind(word)
			}
		}
	}
}

// field reads one key.
func (p *parser) field(f field) {
	k, known := keys[f.key]
	line, column := f.at()
	switch {
	case !known:
		p.warn(line, column, "no key %.60q%s", f.key, suggest(f.key, p.d.Kind))
	case !slices.Contains(k.kinds, p.d.Kind):
		p.warn(line, column, "%s is a key of %s, and says nothing in %s%s", f.key, plural(k.kinds), plural([]Kind{p.d.Kind}), k.instead)
	case k.read == nil: // nothing that concerns us
	case f.value.Null() && !k.null:
		if k.ours {
			p.fail(line, column, "%s has no value; give it one, or remove it", f.key)
		}
	default:
		p.told(k.read(p, f), f.offset, k.lenient)
	}
}

// at returns the place of the key.
func (f field) at() (line, column int) {
	return f.place.Line() + f.offset, 1
}

func plural(kinds []Kind) string {
	var words []string
	for _, k := range kinds {
		words = append(words, string(k)+"s")
	}
	return strings.Join(words, " and ")
}

// suggest ends a sentence about a key that there is not.
func suggest(key string, kind Kind) string {
	var names []string
	for name, k := range keys {
		if slices.Contains(k.kinds, kind) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if near := Nearest(key, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; it says nothing"
}

// check makes the definition whole, and looks at it as a whole.
func (p *parser) check(f front) {
	d := p.d
	if why := badName(d.Name); why != "" {
		p.fail(0, 0, "the name %.60q %s; name it otherwise", d.Name, why)
	}
	if d.Description == "" && len(f.fields) > 0 && d.Kind != Command {
		p.warn(1, 1, "no description; say in one sentence when to use it, so that others can choose it")
	}
	if d.Prompt == "" && d.Template == "" {
		p.fail(f.line, 1, "there is no text; write below the front matter what the agent is to do")
	}
	if len(d.CustomTools) > 0 && d.Kind == Command {
		p.fail(0, 0, "a command has no custom_tools; make it a skill: a folder with a file SKILL.md")
	}
	if _, taken := d.MCPServers[CustomServer]; taken && len(d.CustomTools) > 0 {
		p.fail(0, 0, "an MCP server %q is what custom_tools become; give yours another name", CustomServer)
	}
	p.chooseTools()
	for _, check := range p.later {
		check()
	}
	p.checkBody(f.line + len(f.body) - len(strings.TrimLeft(f.body, "\n")))
}

// chooseTools says which tools there are.
func (p *parser) chooseTools() {
	d := p.d
	if !p.tools && d.Kind != Agent {
		d.Tools = BaseTools()
	}
	if d.Tools == nil {
		return
	}
	d.Tools = append(d.Tools, p.allowed...)
	d.chooseMemoryTools()
	for _, t := range d.CustomTools {
		d.Tools = append(d.Tools, t.ToolName())
	}
	for _, name := range slices.Sorted(maps.Keys(d.MCPServers)) {
		if prefix := "mcp__" + name; !slices.ContainsFunc(d.Tools, func(tool string) bool { return strings.HasPrefix(tool, prefix) }) {
			d.Tools = append(d.Tools, prefix)
		}
	}
	d.Tools = unique(d.Tools)
}

func unique(list []string) []string {
	kept := list[:0]
	for _, word := range list {
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	return kept
}

// badName says why something cannot be a name; empty if it can.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case utf8.RuneCountInString(name) > 200:
		return "is longer than 200 letters"
	case strings.ContainsFunc(name, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) && c != ' ' || c == '\ufffd' }):
		return "holds characters that cannot be written"
	case strings.ContainsAny(name, `/\`) || path.Clean(name) != name || strings.TrimSpace(name) != name:
		return "is no single word"
	}
	return ""
}

// Nearest returns the name that word is most likely meant to be, or "".
func Nearest(word string, names []string) string {
	if len(word) > 100 {
		return ""
	}
	fold := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(s))
	}
	best, least := "", min(2, len(word)/2)+1
	for _, name := range names {
		n := spelling.Distance(fold(word), fold(name))
		if n < least {
			best, least = name, n
		}
	}
	return best
}
