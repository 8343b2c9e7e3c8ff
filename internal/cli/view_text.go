package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// maxMarks is how many combining marks one character may carry. No script
// needs more; a tower of them covers the lines around it.
const maxMarks = 4

// printable returns text that can be shown on a terminal whoever wrote it:
// visible characters, spaces, and line feeds where lines end. Escape sequences
// go, with what they hold; so do characters that change the order or the look of
// others. What cannot be shown is U+FFFD.
func printable(text string) string {
	clean := true
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\n' || c > '~' {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	marks := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if n := escapeLen(text[i:]); n > 0 {
			i += n
			continue
		}
		i += size
		if unicode.In(r, unicode.Mn, unicode.Me) {
			if marks++; marks > maxMarks || isVariation(r) {
				continue
			}
			b.WriteRune(r)
			continue
		}
		const joiner, nonJoiner = '\u200d', '\u200c' // which words of some languages need
		switch {
		case r == '\r' && strings.HasPrefix(text[i:], "\n"):
		case r == '\n', r == '\r', r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			b.WriteByte('\n')
		case r == '\t':
			b.WriteString("    ")
		case r == joiner, r == nonJoiner:
			if marks++; marks <= maxMarks {
				b.WriteRune(r)
			}
			continue
		case unicode.In(r, unicode.Cf):
			continue // unseen, and it does not part a character from its marks
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			b.WriteRune(utf8.RuneError)
		}
		marks = 0
	}
	return b.String()
}

// isVariation tells whether r asks for another look of the character before
// it, which may be wider.
func isVariation(r rune) bool {
	return 0xfe00 <= r && r <= 0xfe0f || 0xe0100 <= r && r <= 0xe01ef
}

// escapeLen returns how long the escape sequence is that text begins with; zero
// if it begins with none. The 8-bit forms count, also as runes.
func escapeLen(text string) int {
	kind, body := byte(0), 0
	switch {
	case strings.HasPrefix(text, "\x1b"):
		if body = 2; len(text) < 2 {
			return 1
		}
		kind = text[1]
	case len(text) > 1 && text[0] == 0xc2 && 0x80 <= text[1] && text[1] < 0xa0 && text[1] != 0x85: // U+0080 to U+009F; not NEL
		kind, body = text[1]-0x40, 2
	default:
		return 0
	}
	switch kind {
	case '[':
		for i := body; i < len(text); i++ {
			if c := text[i]; c < 0x20 || c > 0x3f {
				if 0x40 <= c && c <= 0x7e {
					return i + 1
				}
				return i // it is broken off
			}
		}
		return len(text)
	case ']', 'P', 'X', '^', '_':
		// A string, up to BEL or ST. One that does not end on its line is no
		// reason to hide what follows.
		for i := body; i < len(text) && text[i] != '\n'; i++ {
			switch {
			case text[i] == '\a':
				return i + 1
			case strings.HasPrefix(text[i:], "\x1b\\"), strings.HasPrefix(text[i:], "\u009c"):
				return i + 2
			}
		}
		return body
	}
	if body == 2 && text[0] == '\x1b' && (kind < 0x20 || kind > 0x7e) {
		return 1
	}
	return body
}

// oneLine returns the first line of text that says something, printable.
func oneLine(text string) string {
	const enough = 4096
	for line := range strings.SplitSeq(printable(clip(text, enough)), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// clip returns the beginning of text, n bytes or a little less, whole runes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// clipStart returns the end of text, n bytes or a little less, whole runes.
func clipStart(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for i := range min(len(text), utf8.UTFMax) {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// runeWidth returns how many columns r takes, of what printable lets through.
// Where terminals disagree it is the larger number: flags, families and skin
// tones count for each of their parts.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// textWidth returns how many columns a printable line takes.
func textWidth(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// cutText returns as much of a printable line as fits into cols, with … for the
// rest.
func cutText(text string, cols int) string {
	n, room := 0, 0 // room is where the text ends if there has to be a …
	for i, r := range text {
		if n <= cols-1 {
			room = i
		}
		if n += runeWidth(r); n > cols {
			if cols < 1 {
				return ""
			}
			return text[:room] + "…"
		}
	}
	return text
}

// wrapText breaks printable text into lines of at most cols, at spaces where it
// can. It keeps indentation and empty lines, but none at the end.
func wrapText(text string, cols int) []string {
	cols = max(cols, 1)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, " \n"), "\n") {
		line = strings.TrimRight(line, " ")
		for {
			end, next := breakAt(line, cols)
			if next == 0 {
				break
			}
			lines = append(lines, strings.TrimRight(line[:end], " "))
			line = line[next:]
		}
		lines = append(lines, line)
	}
	return lines
}

// breakAt returns where to break a line that is wider than cols, and where the
// next begins; zeros if it fits.
func breakAt(line string, cols int) (end, next int) {
	n, space, word := 0, 0, false
	for i, r := range line {
		if r == ' ' {
			if word {
				space = i
			}
		} else {
			word = true
		}
		w := runeWidth(r)
		if n += w; n <= cols {
			continue
		}
		switch {
		case r == ' ' && word:
			end = i
		case space > 0:
			end = space
		case i > 0:
			return i, i
		default: // one rune that is wider than the line: nothing of it is shown
			return 0, len(string(r))
		}
		next = end + len(line[end:]) - len(strings.TrimLeft(line[end:], " "))
		return end, next
	}
	return 0, 0
}
