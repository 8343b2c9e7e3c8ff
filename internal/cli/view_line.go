package cli

import (
	"strings"
)

// style is how a piece of a line looks: the parameters of an SGR sequence.
type style string

const (
	normal  style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	blue    style = "34"
	magenta style = "35"
	cyan    style = "36"
)

// span is a piece of a line, printable.
type span struct {
	style style
	text  string
}

// line is one line on the screen.
type line []span

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += textWidth(s.text)
	}
	return n
}

// cut returns as much of l as fits into cols, with … for the rest.
func (l line) cut(cols int) line {
	if l.width() <= cols {
		return l
	}
	var short line
	for _, s := range l {
		w := textWidth(s.text)
		if w >= cols { // at the same width there is still something behind it
			return append(short, span{s.style, cutText(s.text+"…", cols)})
		}
		short, cols = append(short, s), cols-w
	}
	return short
}

// ends returns l with right at the end of cols, or behind l where both do not
// fit well; then l loses what is too much, and as a last resort right does.
func (l line) ends(right line, cols int) line {
	const gap = 2
	r := right.width()
	if r == 0 {
		return l.cut(cols)
	}
	if cols-r-gap < min(l.width(), cols/2) {
		return l.cut(cols)
	}
	l = l.cut(cols - r - gap)
	l = append(l[:len(l):len(l)], span{normal, strings.Repeat(" ", cols-r-l.width())})
	return append(l, right...)
}

// encode appends l as the terminal gets it.
func (l line) encode(b []byte, color bool) []byte {
	for _, s := range l {
		if color && s.style != normal && s.text != "" {
			b = append(b, "\x1b["...)
			b = append(b, s.style...)
			b = append(b, 'm')
			b = append(b, s.text...)
			b = append(b, "\x1b[m"...)
			continue
		}
		b = append(b, s.text...)
	}
	return b
}

// paragraph breaks printable text into lines of one look. The first begins with
// head, the others with as many spaces as indent says.
func paragraph(head line, look style, text string, indent, cols int) []line {
	var lines []line
	first, rest := cols-head.width(), text
	if len(head) > 0 {
		// The rest of the head's line takes what fits there.
		top, more, _ := strings.Cut(text, "\n")
		if end, next := breakAt(top, max(first, 1)); next > 0 {
			if first < cols/2 { // no room worth the name
				end, next = 0, 0
			}
			top, more = top[:end], strings.TrimSuffix(top[next:]+"\n"+more, "\n")
		}
		lines = append(lines, append(head[:len(head):len(head)], span{look, top}))
		if rest = more; rest == "" {
			return lines
		}
	}
	if cols-indent < 8 {
		indent = 0
	}
	for _, text := range wrapText(rest, cols-indent) {
		lines = append(lines, line{{normal, strings.Repeat(" ", indent)}, {look, text}})
	}
	return lines
}
