package tools

import (
	"html"
	"strings"
)

// htmlText returns the text of a page with the marks of Markdown for headings,
// lists, links and code. It reads tags as they come and builds no tree, so that
// no page, however it is broken, costs more than its length. Package
// golang.org/x/net/html would know more of what browsers forgive, at the price
// of a dependency, a tree in memory and nesting that has to be bounded.
func htmlText(page string) string {
	w := textWriter{}
	for page != "" {
		i := strings.IndexByte(page, '<')
		if i < 0 {
			w.text(page)
			break
		}
		w.text(page[:i])
		page = page[i:]
		tag, rest, ok := nextTag(page)
		if !ok { // a "<" that opens nothing
			w.text("<")
			page = page[1:]
			continue
		}
		page = rest
		if skipped[tag.name] && !tag.end && !tag.closed {
			page = afterEnd(page, tag.name)
			continue
		}
		w.tag(tag)
	}
	return w.done()
}

// skipped are elements whose content is no text of the page.
var skipped = map[string]bool{
	"script": true, "style": true, "noscript": true, "template": true, "svg": true, "iframe": true, "object": true,
}

// htmlTag is what stands between "<" and ">".
type htmlTag struct {
	name   string // lower case; empty for comments and declarations
	end    bool   // it began with "/"
	closed bool   // it ended with "/"
	href   string // of a link
	alt    string // of an image
}

// nextTag reads the tag that page begins with.
func nextTag(page string) (tag htmlTag, rest string, ok bool) {
	if after, comment := strings.CutPrefix(page, "<!--"); comment {
		_, rest, _ = strings.Cut(after, "-->")
		return htmlTag{}, rest, true
	}
	if len(page) < 2 {
		return htmlTag{}, "", false
	}
	pos := 1
	switch c := page[1]; {
	case c == '!' || c == '?':
		_, rest, _ = strings.Cut(page, ">")
		return htmlTag{}, rest, true
	case c == '/':
		tag.end = true
		pos = 2
	}
	start := pos
	for pos < len(page) && isName(page[pos]) {
		pos++
	}
	if pos == start {
		return htmlTag{}, "", false
	}
	tag.name = strings.ToLower(page[start:min(pos, start+20)])
	// Attributes, of which values in quotes may hold ">".
	for pos < len(page) {
		switch c := page[pos]; {
		case c == '>':
			tag.closed = page[pos-1] == '/'
			return tag, page[pos+1:], true
		case isName(c):
			pos = tag.attribute(page, pos)
		default:
			pos++
		}
	}
	return tag, "", true // it never ends
}

// attribute reads the attribute at pos and returns what follows it.
func (t *htmlTag) attribute(page string, pos int) int {
	start := pos
	for pos < len(page) && isName(page[pos]) {
		pos++
	}
	name := strings.ToLower(page[start:min(pos, start+10)])
	for pos < len(page) && isSpace(page[pos]) {
		pos++
	}
	if pos == len(page) || page[pos] != '=' {
		return pos
	}
	pos++
	for pos < len(page) && isSpace(page[pos]) {
		pos++
	}
	if pos == len(page) {
		return pos
	}
	var value string
	if q := page[pos]; q == '"' || q == '\'' {
		end := strings.IndexByte(page[pos+1:], q)
		if end < 0 {
			return len(page)
		}
		value = page[pos+1 : pos+1+end]
		pos += end + 2
	} else {
		start := pos
		for pos < len(page) && !isSpace(page[pos]) && page[pos] != '>' {
			pos++
		}
		value = page[start:pos]
	}
	switch name {
	case "href":
		t.href = html.UnescapeString(clip(value, maxURL))
	case "alt":
		t.alt = html.UnescapeString(clip(value, 500))
	}
	return pos
}

func isName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == ':' || c == '_'
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' }

// afterEnd returns what follows the end tag of name, or nothing.
func afterEnd(page, name string) string {
	for {
		_, after, ok := strings.Cut(page, "</")
		if !ok {
			return ""
		}
		if len(after) >= len(name) && strings.EqualFold(after[:len(name)], name) {
			_, rest, _ := strings.Cut(after, ">")
			return rest
		}
		page = after
	}
}

// textWriter puts text together, with one blank where there are many and at
// most one empty line.
type textWriter struct {
	out   strings.Builder
	lines int  // line ends that the next text is to come behind
	blank bool // a blank belongs before it
	pre   int  // open elements whose text stays as it is
	links []string
}

func (w *textWriter) text(raw string) {
	text := html.UnescapeString(raw)
	if w.pre > 0 {
		w.put(text)
		return
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		w.blank = w.blank || text != ""
		return
	}
	w.blank = w.blank || isSpace(text[0])
	w.put(strings.Join(fields, " "))
	w.blank = isSpace(text[len(text)-1])
}

// put writes text behind the line ends or the blank that are due.
func (w *textWriter) put(text string) {
	if text == "" {
		return
	}
	if w.out.Len() > 0 {
		if w.lines > 0 {
			w.out.WriteString("\n\n"[:min(w.lines, 2)])
		} else if w.blank {
			w.out.WriteByte(' ')
		}
	}
	w.lines, w.blank = 0, false
	w.out.WriteString(text)
}

func (w *textWriter) newline(n int) { w.lines = max(w.lines, n) }

func (w *textWriter) tag(t htmlTag) {
	switch t.name {
	case "h1", "h2", "h3", "h4", "h5", "h6":
		w.newline(2)
		if !t.end {
			w.put(strings.Repeat("#", int(t.name[1]-'0')) + " ")
		}
	case "p", "div", "section", "article", "table", "ul", "ol", "dl", "blockquote", "header", "footer", "main", "nav", "form", "figure", "title":
		w.newline(2)
	case "br", "tr", "dt", "dd", "hr", "option", "caption":
		w.newline(1)
	case "td", "th":
		if !t.end {
			w.blank = true
			w.put("|")
		}
		w.blank = true
	case "li":
		w.newline(1)
		if !t.end {
			w.put("- ")
		}
	case "pre":
		switch {
		case !t.end:
			w.newline(2)
			w.put("```\n")
			w.pre++
		case w.pre > 0:
			w.pre--
			w.newline(1)
			w.put("```")
			w.newline(2)
		}
	case "code":
		if w.pre == 0 {
			w.put("`")
		}
	case "a":
		w.link(t)
	case "img":
		if t.alt != "" {
			w.put("[image: " + t.alt + "]")
		}
	}
}

// link writes where a link leads behind its text.
func (w *textWriter) link(t htmlTag) {
	if !t.end {
		if len(w.links) < 16 {
			w.links = append(w.links, t.href)
		}
		return
	}
	if len(w.links) == 0 {
		return
	}
	href := w.links[len(w.links)-1]
	w.links = w.links[:len(w.links)-1]
	if strings.HasPrefix(href, "http://") || strings.HasPrefix(href, "https://") || strings.HasPrefix(href, "/") {
		w.blank = true
		w.put("(" + href + ")")
	}
}

func (w *textWriter) done() string {
	if w.pre > 0 {
		w.out.WriteString("\n```")
	}
	return strings.TrimSpace(w.out.String())
}
