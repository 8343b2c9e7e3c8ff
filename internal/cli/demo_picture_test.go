package cli_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// How a picture is measured, in pixels.
const (
	cellWidth  = 8.4
	cellHeight = 19
	fontSize   = 14
	margin     = 18
	bar        = 34 // above the first line
)

// colours are those of the terminal, by the parameter that chooses them.
var colours = map[string]string{
	"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea",
}

// picture draws the last screen of a recording as SVG.
func (c cast) picture(title string) []byte {
	lines := c.Lines[max(0, len(c.Lines)-c.Rows):]
	width, height := 2*margin+cellWidth*float64(c.Cols), bar+margin+cellHeight*len(lines)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n", width, height, width, height, title)
	fmt.Fprintf(&b, "<title>%s</title>\n", title)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n")
	for i, colour := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="17" r="6" fill="%s"/>`+"\n", margin+6+20*i, colour)
	}
	fmt.Fprintf(&b, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="%d" fill="#e6edf3" xml:space="preserve">`+"\n", fontSize)
	for i, line := range lines {
		drawLine(&b, line, bar+cellHeight*i+fontSize)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// drawLine draws a line, each stretch of one style where its first column is.
func drawLine(b *bytes.Buffer, line string, y int) {
	x, style := 0, ""
	for line != "" {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			style, line, _ = strings.Cut(rest, "m")
			continue
		}
		text, rest := line, ""
		if i := strings.Index(line, "\x1b["); i >= 0 {
			text, rest = line[:i], line[i:]
		}
		n := utf8.RuneCountInString(text)
		if strings.TrimSpace(text) != "" {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f"%s>`, margin+cellWidth*float64(x), y, cellWidth*float64(n), attributes(style))
			xml.EscapeText(b, []byte(text)) // to a buffer
			b.WriteString("</text>\n")
		}
		x, line = x+n, rest
	}
}

// attributes are those of a style.
func attributes(style string) (list string) {
	for p := range strings.SplitSeq(style, ";") {
		switch {
		case p == "1":
			list += ` font-weight="bold"`
		case p == "2":
			list += ` fill-opacity="0.6"`
		case colours[p] != "":
			list += ` fill="` + colours[p] + `"`
		}
	}
	return list
}
