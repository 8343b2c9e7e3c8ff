package tools

import (
	"errors"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// pattern is a glob as ripgrep and .gitignore have them: "*" stops at a slash,
// "**" does not, and one without a slash is about the last name of a path.
type pattern struct {
	re      *regexp.Regexp
	not     bool // it began with "!"
	folders bool // it ended with "/": about folders alone
	last    bool // it is matched with the last name
}

const maxPattern = 1000 // bytes

// compilePattern reads a glob. Braces are for globs that people write, and have
// no meaning in .gitignore.
func compilePattern(glob string, braces bool) (*pattern, error) {
	if len(glob) > maxPattern {
		return nil, errors.New("it is too long")
	}
	var p pattern
	glob, p.not = strings.CutPrefix(glob, "!")
	glob, p.folders = strings.CutSuffix(glob, "/")
	rooted := strings.HasPrefix(glob, "/") || strings.HasPrefix(glob, "./")
	glob = strings.TrimPrefix(path.Clean("/"+glob), "/")
	p.last = !rooted && !strings.Contains(glob, "/")
	t := translation{glob: glob, braces: braces}
	if err := t.run(); err != nil {
		return nil, err
	}
	var err error
	p.re, err = regexp.Compile(`(?s)\A(?:` + t.out.String() + `)\z`)
	return &p, err
}

// match tells whether the pattern is about the path, relative to where it holds.
func (p *pattern) match(rel string, dir bool) bool {
	if p.folders && !dir {
		return false
	}
	if p.last {
		rel = path.Base(rel)
	}
	return p.re.MatchString(rel)
}

// translation turns a glob into a regular expression.
type translation struct {
	glob   string
	braces bool
	pos    int
	depth  int // open braces
	out    strings.Builder
}

func (t *translation) run() error {
	for t.pos < len(t.glob) {
		rest := t.glob[t.pos:]
		switch c := rest[0]; {
		case c == '*':
			t.stars()
			continue
		case c == '?':
			t.out.WriteString("[^/]")
		case c == '[':
			if err := t.class(); err != nil {
				return err
			}
			continue
		case c == '{' && t.braces:
			if t.depth++; t.depth > 8 {
				return errors.New("its braces nest too deep")
			}
			t.out.WriteString("(?:")
		case c == '}' && t.depth > 0:
			t.depth--
			t.out.WriteByte(')')
		case c == ',' && t.depth > 0:
			t.out.WriteByte('|')
		case c == '\\' && len(rest) > 1:
			t.pos++
			t.literal()
			continue
		default:
			t.literal()
			continue
		}
		t.pos++
	}
	if t.depth > 0 {
		return errors.New("a { is not closed")
	}
	return nil
}

// literal takes one character as it is. A byte that is none stands for the
// character that replaces it.
func (t *translation) literal() {
	r, size := utf8.DecodeRuneInString(t.glob[t.pos:])
	t.out.WriteString(regexp.QuoteMeta(string(r)))
	t.pos += size
}

// stars takes one or more of them, with the slash behind.
func (t *translation) stars() {
	start := t.pos
	for t.pos < len(t.glob) && t.glob[t.pos] == '*' {
		t.pos++
	}
	atStart := start == 0 || strings.ContainsRune("/{,", rune(t.glob[start-1]))
	atEnd := t.pos == len(t.glob)
	switch {
	case t.pos-start != 2 || !atStart:
		t.out.WriteString("[^/]*")
	case atEnd && start == 0:
		t.out.WriteString(".*")
	case atEnd:
		t.out.WriteString(".+")
	case t.glob[t.pos] == '/':
		t.pos++
		t.out.WriteString("(?:.*/)?")
	case t.depth > 0 && (t.glob[t.pos] == ',' || t.glob[t.pos] == '}'):
		t.out.WriteString(".*")
	default:
		t.out.WriteString("[^/]*")
	}
}

// class takes "[...]".
func (t *translation) class() error {
	body := t.glob[t.pos+1:]
	not := body != "" && (body[0] == '!' || body[0] == '^')
	if not {
		body = body[1:]
	}
	end := -1
	for i := 0; i < len(body); i++ {
		if body[i] == '\\' {
			i++
		} else if body[i] == ']' && i > 0 {
			end = i
			break
		}
	}
	if end < 0 {
		return errors.New("a [ is not closed")
	}
	set := strings.NewReplacer(`[`, `\[`, `^`, `\^`, `&`, `\&`, `~`, `\~`).Replace(body[:end])
	if set[0] == ']' {
		set = `\` + set
	}
	open := "["
	if not {
		open = "[^/"
	}
	expr := open + set + "]"
	if _, err := regexp.Compile(expr); err != nil {
		return errors.New("what is in its brackets is no set of characters")
	}
	t.out.WriteString(expr)
	t.pos = len(t.glob) - len(body) + end + 1
	return nil
}
