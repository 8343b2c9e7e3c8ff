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

var (
	markPattern = regexp.MustCompile("(?m)" + `\$\{CLAUDE_SKILL_DIR\}|\$ARGUMENTS\[(\d{1,3})\]|\$ARGUMENTS\b|\$(\d)\d*|\$([A-Za-z_][A-Za-z0-9_-]*)` +
		"|(?:^|[ \\t(\n])!`([^`\n]+)`" + `|(?:^|[ \t\n])@("[^"\n]+"|[^\s"@]+)`)
	argumentPattern = regexp.MustCompile(`\$ARGUMENTS\[(\d{1,3})\]|\$ARGUMENTS\b|\$(\d)\d*|\$([A-Za-z_][A-Za-z0-9_-]*)`)
)

// findMarks returns the marks of a text in their order. Arguments are named by
// what stands behind $, if they have names.
func findMarks(text string, names []string) []mark {
	var marks []mark
	base := firstNumber(text)
	for _, at := range markPattern.FindAllStringSubmatchIndex(text, -1) {
		group := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return text[at[2*n]:at[2*n+1]]
		}
		m := mark{from: at[0], to: at[1], first: base}
		whole := text[at[0]:at[1]]
		switch {
		case whole == "${CLAUDE_SKILL_DIR}":
			m.kind = folder
		case group(4) != "":
			m.kind, m.word = command, strings.TrimSpace(group(4))
			m.from += strings.IndexByte(whole, '!')
		case group(5) != "":
			m.kind, m.word = file, trimPath(group(5))
			m.from += strings.IndexByte(whole, '@')
			m.to = m.from + 1 + len(m.word)
			if strings.HasPrefix(group(5), `"`) {
				m.to = at[1]
			}
			if m.word == "" {
				continue
			}
		default:
			index, ok := argumentOf(whole, group(1), group(2), group(3), names, base)
			if !ok {
				continue
			}
			m.kind, m.index = argument, index
		}
		m.written = text[m.from:m.to]
		marks = append(marks, m)
	}
	return marks
}

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

// trimPath takes away quotes, and what ends a sentence.
func trimPath(word string) string {
	if quoted, ok := strings.CutPrefix(word, `"`); ok {
		return strings.TrimSuffix(quoted, `"`)
	}
	return strings.TrimRight(word, ".,;:!?)]}>'\"`*")
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
	return argumentPattern.ReplaceAllStringFunc(word, func(whole string) string {
		m := argumentPattern.FindStringSubmatch(whole)
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
