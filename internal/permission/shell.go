package permission

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// line is a command line, as a shell would take it apart.
type line struct {
	parts []simple
	// opaque is what is in the line that makes it run or write what cannot be
	// seen in its parts, such as "a substitution"; empty means nothing.
	opaque string
	// joined is what stands between the parts or redirects them harmlessly, such
	// as "a pipe"; empty means that it is one bare command.
	joined string
}

// simple is one command.
type simple struct {
	text  string // as it is written, without redirections
	words []word
}

// word is one word of a command, after its quotes are gone.
type word struct {
	text   string
	glob   bool   // * ? or [ stand in it, outside of quotes
	danger string // what it may become besides itself and files below what it names, and the way out; empty means nothing
}

// maxWords bounds the words of a line; one with more is opaque.
const maxWords = 10_000

// parseLine takes a command line apart. It never fails: what it does not
// understand makes the line opaque. It errs on that side.
func parseLine(text string) line {
	l := lexer{text: text}
	l.run()
	if l.line.opaque == "" && len(l.line.parts) == 0 {
		l.line.opaque = "no command"
	}
	return l.line
}

// Simple tells whether a command line is one command: nothing in it starts
// another, redirects, or becomes text that nobody has seen yet. It errs on the
// side of no.
func Simple(command string) bool {
	l := parseLine(command)
	return l.opaque == "" && l.joined == ""
}

// lexer reads a line from left to right.
type lexer struct {
	text  string
	pos   int
	start int    // of the command, or of what follows its last redirection
	piece string // of the command, before start
	words []word
	count int
	line  line
}

func (l *lexer) opaque(why string) {
	if l.line.opaque == "" {
		l.line.opaque = why
	}
}

func (l *lexer) join(by string) {
	if l.line.joined == "" {
		l.line.joined = by
	}
}

// end ends the command before pos.
func (l *lexer) end() {
	if len(l.words) > 0 {
		l.line.parts = append(l.line.parts, simple{trim(l.piece + l.text[l.start:l.pos]), l.words})
	}
	l.words, l.piece = nil, ""
}

func (l *lexer) run() {
	if !utf8.ValidString(l.text) {
		l.opaque("bytes that are not UTF-8")
		return
	}
	operators := []struct{ text, name string }{
		{"&&", "&&"}, {"||", "||"}, {"|&", "a pipe"}, {"|", "a pipe"}, {";;", "a case"}, {";", ";"}, {"&", "& for the background"}, {"\n", "a line break"},
	}
	for l.line.opaque == "" && l.pos < len(l.text) {
		rest := l.text[l.pos:]
		if n := harmlessRedirection(rest); n > 0 && (l.pos == 0 || strings.IndexByte(" \t", l.text[l.pos-1]) >= 0) {
			l.join("a redirection")
			l.piece += trim(l.text[l.start:l.pos])
			l.pos += n
			l.start = l.pos
			continue
		}
		i := slices.IndexFunc(operators, func(o struct{ text, name string }) bool { return strings.HasPrefix(rest, o.text) })
		switch {
		case rest[0] == ' ' || rest[0] == '\t':
			l.pos++
		case i >= 0:
			if len(l.words) == 0 && rest[0] != '\n' {
				l.opaque("a command that is missing")
			}
			l.end()
			l.join(operators[i].name)
			l.pos += len(operators[i].text)
			l.start = l.pos
		default:
			l.word()
		}
	}
	if l.line.opaque == "" {
		l.end()
	}
}

// trim takes away what a shell reads as nothing around a command. Other spaces
// of Unicode are letters to it.
func trim(text string) string { return strings.Trim(text, " \t\n") }

// harmlessRedirection returns how long the redirection is that text begins with,
// if it is one to or from nowhere. &> is none: some shells read it as & and >.
func harmlessRedirection(text string) int {
	for _, r := range []string{"2>&1", "1>&2", ">&2", "2>/dev/null", "1>/dev/null", ">/dev/null", "</dev/null",
		"2> /dev/null", "1> /dev/null", "> /dev/null", "< /dev/null"} {
		if after, ok := strings.CutPrefix(text, r); ok && (after == "" || strings.IndexByte(" \t;|\n", after[0]) >= 0 || strings.HasPrefix(after, "&&")) {
			return len(r)
		}
	}
	return 0
}

// word reads the next word, or finds why it cannot be read.
func (l *lexer) word() {
	var b strings.Builder
	var w word
	quote, begin := byte(0), l.pos
	for ; l.pos < len(l.text); l.pos++ {
		c := l.text[l.pos]
		switch {
		case c < ' ' && c != '\t' && c != '\n' || c == 0x7f:
			l.opaque("a control character")
		case quote == '\'':
			if c == '\'' {
				quote = 0
				continue
			}
			b.WriteByte(c)
		case c == '`':
			l.opaque("a substitution")
		case c == '$' && !(quote == '"' && dollarIsPlain(l.text[l.pos+1:])):
			l.opaque("a substitution or a variable")
		case c == '\\':
			if l.pos++; l.pos >= len(l.text) || l.text[l.pos] == '\n' || l.text[l.pos] < ' ' {
				l.opaque("a backslash at the end of a line")
				break
			}
			if quote == '"' && strings.IndexByte("$`\"\\", l.text[l.pos]) < 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(l.text[l.pos])
		case quote == '"':
			if c == '"' {
				quote = 0
				continue
			}
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(" \t\n;&|", c) >= 0:
			l.done(b.String(), w)
			return
		case c == '<' || c == '>':
			l.opaque("a redirection")
		case c == '(' || c == ')':
			l.opaque("a subshell")
		case c == '{' || c == '}':
			l.opaque("braces")
		case c == '!':
			l.opaque("an exclamation mark outside of quotes")
		case c == '#' && l.pos == begin:
			l.opaque("a comment") // whose quotes are none
		default:
			switch {
			case c == '=' && l.pos == begin:
				w.danger = "may become the path of a command; quote it"
			case c == '~' && (l.pos == begin || strings.IndexByte("=:", l.text[l.pos-1]) >= 0):
				w.danger = "may become a home that nobody knows here; write the whole path"
			}
			if strings.IndexByte("*?[", c) >= 0 {
				w.glob = true
				if w.danger == "" {
					w.danger = globDanger(b.String())
				}
			}
			b.WriteByte(c)
		}
		if l.line.opaque != "" {
			return
		}
	}
	if quote != 0 {
		l.opaque("a quote that is not closed")
		return
	}
	l.done(b.String(), w)
}

// globDanger says what a glob may become behind what stands before it in its
// word, other than files below a folder.
func globDanger(before string) string {
	switch {
	case before == "" || before[0] == '-':
		return "may become an option; quote it, or write ./ before it"
	case strings.HasPrefix(before[strings.LastIndex(before, "/")+1:], "."):
		return "may become ..; quote it, or name the files"
	}
	return ""
}

func (l *lexer) done(text string, w word) {
	w.text = text
	if l.count++; l.count > maxWords {
		l.opaque("too many words")
	}
	l.words = append(l.words, w)
}

// dollarIsPlain tells whether a $ in double quotes stands for itself, before
// what follows it.
func dollarIsPlain(after string) bool {
	return after != "" && strings.IndexByte("\" )|/.,", after[0]) >= 0
}

// assigns tells whether a word sets a variable where a command may stand.
func (w word) assigns() bool {
	name, _, ok := strings.Cut(w.text, "=")
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(strings.TrimSuffix(name, "+"), func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// runners are commands that run another, which their arguments name.
var runners = []string{
	"builtin", "busybox", "chroot", "command", "doas", "env", "eval", "exec", "find", "flock", "ionice", "nice", "nohup", "parallel",
	"setsid", "source", "stdbuf", "strace", "sudo", "time", "timeout", "unbuffer", "watch", "xargs", "then", "do", "else", "if", "while",
	"until", "elif",
}

// shells are commands that run command lines.
var shells = []string{"ash", "bash", "dash", "eval", "fish", "ksh", "sh", "ssh", "su", "watch", "zsh", "xargs", "env"}

// variety is all the commands that a line may run, as far as that can be told,
// in the ways in which a rule may name them, and some that it may not run.
type variety struct {
	list []string
	gits [][]string // those of git, word by word
	left int        // bytes that may be added
}

func varietyOf(text string) *variety {
	v := &variety{left: maxVariety}
	v.line(text, 0)
	return v
}

// tooMuch tells whether the line may run more than what was found.
func (v *variety) tooMuch() bool { return v.left < 0 }

// maxVariety bounds what is made of one line, in bytes; maxNesting, how deeply
// commands in it may run others.
const (
	maxVariety = 8 << 20
	maxNesting = 4
)

func (v *variety) add(text string) {
	if v.left -= len(text) + 32; v.left >= 0 {
		v.list = append(v.list, text)
	}
}

func (v *variety) line(text string, depth int) {
	if depth > maxNesting {
		v.left = -1
	}
	if v.left < 0 {
		return
	}
	text = trim(text)
	v.add(text)
	l := parseLine(text)
	for _, part := range l.parts {
		v.add(part.text)
		v.words(texts(part.words), depth)
	}
	if l.opaque == "" {
		return
	}
	// What cannot be read is cut wherever a command may begin.
	for cut := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(";&|()`\n<>${}!", r) }) {
		v.add(trim(cut))
		v.words(strings.Fields(unquote.Replace(cut)), depth)
	}
}

// unquote takes away what quotes, where nobody can tell what is quoted.
var unquote = strings.NewReplacer(`"`, "", `'`, "", `\`, "")

// words adds the command that words are, and those that it runs.
func (v *variety) words(words []string, depth int) {
	for len(words) > 0 && (word{text: words[0]}).assigns() {
		words = words[1:]
	}
	if len(words) == 0 || v.left < 0 {
		return
	}
	name, rest := path.Base(words[0]), strings.Join(words[1:], " ")
	v.add(trim(words[0] + " " + rest))
	v.add(trim(name + " " + rest))
	if name == "git" {
		v.gits = append(v.gits, words)
	}
	if slices.Contains(shells, name) {
		for _, word := range words[1:] {
			if strings.ContainsAny(word, " \t\n;&|") {
				v.line(word, depth+1)
			}
		}
	}
	if slices.Contains(runners, name) {
		for i := 1; i < len(words) && v.left >= 0; i++ {
			if strings.HasPrefix(words[i], "-") {
				continue
			}
			v.words(words[i:], depth) // which goes on from there if that is a runner too
			if slices.Contains(runners, path.Base(words[i])) {
				return
			}
		}
	}
}

func texts(words []word) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = w.text
	}
	return list
}
