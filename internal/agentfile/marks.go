package agentfile

import (
	"regexp"
	"strconv"
	"strings"
)

// mark is what Claude Code replaces in the text of commands and skills.
type mark struct {
	kind     markKind
	from, to int    // in the text
	written  string // as it stands there
	word     string // the path, or the command
	index    int    // of the argument, from 0; negative means all of them
	first    int    // what the first argument is called in the text: $0 or $1
}

type markKind int

const (
	argument markKind = iota // $ARGUMENTS, $ARGUMENTS[0], $1, $name
	folder                   // ${CLAUDE_SKILL_DIR}
	file                     // @path
	command                  // !`command`
)

// argumentPattern is what an argument looks like.
const argumentPattern = `\$ARGUMENTS\[(\d{1,3})\]|\$ARGUMENTS\b|\$(\d)\d*|\$([A-Za-z_][A-Za-z0-9_-]*)`

var (
	anArgument         = regexp.MustCompile(argumentPattern)
	beginsAsAnArgument = regexp.MustCompile(`^(?:` + argumentPattern + `)`)
)

const skillDir = "${CLAUDE_SKILL_DIR}"

// findMarks returns the marks of a text in their order. Arguments are named by
// what stands behind $, if they have names.
func findMarks(text string, names []string) []mark {
	var marks []mark
	base := firstNumber(text)
	for at := 0; ; {
		i := strings.IndexAny(text[at:], "$@!")
		if i < 0 {
			return marks
		}
		at += i
		m, ok := markAt(text, at, names, base)
		if !ok {
			at++
			continue
		}
		m.from, m.first, m.written = at, base, text[at:m.to]
		marks = append(marks, m)
		at = m.to
	}
}

// markAt returns the mark that begins at a place, with its end.
func markAt(text string, at int, names []string, base int) (mark, bool) {
	rest := text[at:]
	first := at == 0 || strings.IndexByte(" \t\n", text[at-1]) >= 0
	switch rest[0] {
	case '$':
		if strings.HasPrefix(rest, skillDir) {
			return mark{kind: folder, to: at + len(skillDir)}, true
		}
		m := beginsAsAnArgument.FindStringSubmatch(rest[:min(len(rest), maxArgument)])
		if m == nil {
			return mark{}, false
		}
		index, ok := argumentOf(m[0], m[1], m[2], m[3], names, base)
		return mark{kind: argument, index: index, to: at + len(m[0])}, ok
	case '!':
		if !first && text[at-1] != '(' || !strings.HasPrefix(rest, "!`") {
			return mark{}, false
		}
		end := strings.IndexAny(rest[2:], "`\n")
		if end <= 0 || rest[2+end] != '`' {
			return mark{}, false
		}
		return mark{kind: command, word: strings.TrimSpace(rest[2 : 2+end]), to: at + 3 + end}, true
	}
	if !first {
		return mark{}, false
	}
	if quoted, ok := strings.CutPrefix(rest, `@"`); ok {
		end := strings.IndexAny(quoted, "\"\n")
		if end <= 0 || quoted[end] != '"' {
			return mark{}, false
		}
		return mark{kind: file, word: quoted[:end], to: at + 3 + end}, true
	}
	word := rest[1:]
	if end := strings.IndexAny(word, " \t\n\"@"); end >= 0 {
		word = word[:end]
	}
	word = strings.TrimRight(word, ".,;:!?)]}>'\"`*")
	return mark{kind: file, word: word, to: at + 1 + len(word)}, word != ""
}

// maxArgument is how long the name of an argument can be.
const maxArgument = 256

// firstNumber returns what the first argument is called in a text: $0 if there is
// one, as the CLI has it (seen in 2.1.325); else $1, as it had it when most
// commands were written.
func firstNumber(text string) int {
	for at := 0; ; {
		i := strings.Index(text[at:], "$0")
		if i < 0 {
			return 1
		}
		at += i + 2
		if at == len(text) || text[at] < '0' || text[at] > '9' {
			return 0
		}
	}
}

// argumentOf returns which argument is meant.
func argumentOf(whole, index, digit, name string, names []string, base int) (int, bool) {
	switch {
	case index != "":
		n, err := strconv.Atoi(index)
		return n, err == nil
	case digit != "":
		n := int(digit[0]-'0') - base
		return n, len(whole) == 2 && n >= 0 // $100 is a sum
	case name != "" && name != "ARGUMENTS":
		for i, known := range names {
			if known == name {
				return i, true
			}
		}
		return 0, false
	}
	return -1, true
}

// plainWord is one that means itself in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quoteWord makes text one word of a shell command.
func quoteWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// fill replaces the arguments in a word, each by what put makes of it.
func fill(word string, base int, input string, args, names []string, put func(string) string) string {
	return anArgument.ReplaceAllStringFunc(word, func(whole string) string {
		m := anArgument.FindStringSubmatch(whole)
		if index, ok := argumentOf(whole, m[1], m[2], m[3], names, base); ok {
			if text, given := argumentText(index, input, args); given {
				return put(text)
			}
		}
		return whole
	})
}

// argumentText is the argument of that index, if it was given; all of them if the
// index is negative.
func argumentText(index int, input string, args []string) (string, bool) {
	switch {
	case index < 0:
		return input, true
	case index < len(args):
		return args[index], true
	}
	return "", false
}

// splitWords cuts a line into words as the CLI does (seen in 2.1.325): quotes hold
// words together, and a backslash the next character. A quote that does not end
// holds all that follows, as it is written.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	open, escaped := false, false
	before, at := "", 0 // of the word before the last quote, and where that is
	for i, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, open = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
			before, at = word.String(), i
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if quote != 0 { // it does not end, and stands for itself
		return append(words, before+line[at:])
	}
	if open {
		words = append(words, word.String())
	}
	return words
}
