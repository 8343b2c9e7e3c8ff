package cli_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// record compares what a terminal of that size was left with by the command before
// it, and all that has scrolled out of it, with a recording in testdata/demo, which is
// written anew with -update. A recording is an asciicast, version 2, with a line of
// the session in each of its events. What differs from one session to the next is
// not in it: ids, times, folders, and what was drawn only to be drawn over.
func record(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 4, "record NAME ttyout|stdout COLS ROWS")
	cols, err := strconv.Atoi(args[2])
	ts.Check(err)
	rows, err := strconv.Atoi(args[3])
	ts.Check(err)
	p := &paper{}
	text := ts.ReadFile(args[1])
	if args[1] == "stdout" {
		text = strings.ReplaceAll(text, "\n", "\r\n") // as a terminal would
	}
	p.write(text)
	is := cast{Cols: cols, Rows: rows, Lines: normal(p.ansi(), cols)}
	file := castFile(args[0])
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		ts.Check(os.MkdirAll(filepath.Dir(file), 0o777))
		ts.Check(os.WriteFile(file, is.encode(), 0o666))
	}
	data, err := os.ReadFile(file)
	ts.Check(err)
	want, err := decodeCast(data)
	ts.Check(err)
	// Lines of runs that work at once come in any order.
	got, kept := is.told(), want.told()
	for _, line := range slices.Sorted(maps.Keys(kept)) {
		if got[line] != kept[line] {
			ts.Fatalf("%s has %d times %q, this session %d times; is it better? Then run this test with -update. It was\n%s", file, kept[line], line, got[line], strings.Join(is.Lines, "\n"))
		}
	}
	for _, line := range slices.Sorted(maps.Keys(got)) {
		if kept[line] == 0 {
			ts.Fatalf("%s does not have %q; is it better? Then run this test with -update", file, line)
		}
	}
}

func castFile(name string) string { return filepath.Join("testdata", "demo", name+".cast") }

// The picture of the demo shows the end of its recording.
func TestDemoPicture(t *testing.T) {
	data, err := os.ReadFile(castFile("wide"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := decodeCast(data)
	if err != nil {
		t.Fatal(err)
	}
	got, file := c.picture("nestor demo"), filepath.Join("..", "..", "docs", "demo.svg")
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what %s shows: run this test with -update", file, castFile("wide"))
	}
}

var (
	sgr       = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	ids       = regexp.MustCompile(`\b[0-9a-f]{8}\b(-[0-9a-f-]*)?`) // whole ones, and such that are cut
	durations = regexp.MustCompile(`(^|[ (]|\x1b\[[0-9;]*m)[0-9]+(\.[0-9]+)?m?s\b`)
	cutID     = regexp.MustCompile(`(\(|→ |by )[0-9a-f-]*…`)
	column    = regexp.MustCompile(`\b(0\.4s|TIME) {2,}`)
	refusal   = regexp.MustCompile(`(is not allowed: )\S*stolen\.txt`)
	failedIn  = regexp.MustCompile(` +0\.4s:`)      // of a tool that took long enough to say so
	cutTime   = regexp.MustCompile(`  [0-9.]+m?…$`) // of one for which there was no room
	spaces    = regexp.MustCompile(` +`)
)

// normal returns lines without what is another in each session.
func normal(lines []string, cols int) []string {
	known := map[string]string{}
	var list []string
	for _, l := range lines {
		if l == "yes" {
			continue // the answer, as the terminal repeats it
		}
		l = ids.ReplaceAllStringFunc(l, func(id string) string {
			head, tail := id[:8], id[8:]
			if strings.HasPrefix(tail, "-") && len(tail) > 3 {
				return "019a5c00-0000-7000-8000-000000000000"[:len(id)]
			}
			if known[head] == "" {
				known[head] = fmt.Sprintf("%08x", 0x1f3a5c00+0x11*(len(known)+1))
			}
			return known[head] + tail
		})
		l = durations.ReplaceAllString(l, "${1}0.4s")
		l = column.ReplaceAllString(l, "$1  ")
		l = refusal.ReplaceAllString(l, "${1}../stolen.txt")
		if i := strings.Index(l, "../stolen.txt is"); i >= 0 { // as much as there was room for
			l = l[:i] + "../stolen.txt is outside of what may be changed…"
			if strings.HasPrefix(l, "  \x1b[") {
				l += "\x1b[0m"
			}
		}
		list = append(list, l)
	}
	return list
}

// cast is a recording.
type cast struct {
	Cols, Rows int
	Lines      []string // with their colours
}

// told counts the lines, without what depends on how long something took.
func (c cast) told() map[string]int {
	count := map[string]int{}
	for _, l := range c.Lines {
		l = sgr.ReplaceAllString(l, "")
		if strings.Contains(l, "waits for a slot") {
			continue // if it has to
		}
		l = cutTime.ReplaceAllString(failedIn.ReplaceAllString(l, ":"), "")
		if before, after, cut := strings.Cut(l, "…"); cut && strings.Contains(l, "0.4s") {
			// How much fits depends on how long the time is.
			l = string([]rune(before)[:min(16, len([]rune(before)))]) + "…" + after
		}
		l = strings.ReplaceAll(l, " · 0.4s", "")
		l = strings.TrimSpace(spaces.ReplaceAllString(strings.ReplaceAll(l, "0.4s", ""), " "))
		l = cutID.ReplaceAllString(l, "${1}…")
		if l = ids.ReplaceAllString(l, "ID"); l != "" {
			count[l]++
		}
	}
	return count
}

// step is how much later each line comes than the one before it, in seconds.
const step = 0.25

func (c cast) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"version\": 2, \"width\": %d, \"height\": %d, \"title\": \"nestor demo\"}\n", c.Cols, c.Rows)
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	for i, l := range c.Lines {
		out.Encode([]any{step * float64(i), "o", l + "\r\n"}) // to a buffer, of strings and a number
	}
	return b.Bytes()
}

func decodeCast(data []byte) (c cast, err error) {
	head, rest, _ := bytes.Cut(data, []byte("\n"))
	var h struct{ Version, Width, Height int }
	if err := json.Unmarshal(head, &h); err != nil || h.Version != 2 {
		return c, fmt.Errorf("no asciicast of version 2: %.80q: %v", head, err)
	}
	c.Cols, c.Rows = h.Width, h.Height
	for line := range bytes.Lines(rest) {
		var event []any
		if err := json.Unmarshal(line, &event); err != nil || len(event) != 3 {
			return c, fmt.Errorf("asciicast: %.80q: %v", line, err)
		}
		text, _ := event[2].(string)
		c.Lines = append(c.Lines, strings.TrimSuffix(text, "\r\n"))
	}
	return c, nil
}

// paper is a terminal that is as long as need be: what was written to it and not
// written over. All characters have one column.
type paper struct {
	lines [][]glyph
	x, y  int
	style string // of what comes next: the parameters of its sequences, with a ';' between
}

type glyph struct {
	r     rune
	style string
}

func (p *paper) line() []glyph {
	for len(p.lines) <= p.y {
		p.lines = append(p.lines, nil)
	}
	return p.lines[p.y]
}

func (p *paper) write(text string) {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return
			}
			p.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}
		for _, r := range text {
			p.print(r)
			text = text[len(string(r)):]
			break
		}
	}
}

func (p *paper) print(r rune) {
	l := p.line()
	switch r {
	case '\r':
		p.x = 0
		return
	case '\n':
		p.y++
		p.line()
		return
	}
	for len(l) <= p.x {
		l = append(l, glyph{r: ' '})
	}
	l[p.x] = glyph{r, p.style}
	p.lines[p.y] = l
	p.x++
}

func (p *paper) control(args string, final byte) {
	l := p.line()
	switch n, _ := strconv.Atoi(args); final {
	case 'A':
		p.y = max(p.y-n, 0)
	case 'K':
		p.lines[p.y] = l[:min(p.x, len(l))]
	case 'J':
		p.lines[p.y] = l[:min(p.x, len(l))]
		p.lines = p.lines[:p.y+1]
	case 'm':
		if args == "" || args == "0" {
			p.style = ""
		} else {
			p.style = strings.TrimPrefix(p.style+";"+args, ";")
		}
	}
}

// ansi returns the lines, with their colours; blank ones at the end are left out, and
// all but one of those that follow each other.
func (p *paper) ansi() (list []string) {
	for _, l := range p.lines {
		var b strings.Builder
		style := ""
		for _, g := range l {
			if g.style != style {
				if style != "" {
					b.WriteString("\x1b[0m")
				}
				if style = g.style; style != "" {
					b.WriteString("\x1b[" + style + "m")
				}
			}
			b.WriteRune(g.r)
		}
		if style != "" {
			b.WriteString("\x1b[0m")
		}
		line := strings.TrimRight(b.String(), " ")
		if line == "" && (len(list) == 0 || list[len(list)-1] == "") {
			continue
		}
		list = append(list, line)
	}
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}
