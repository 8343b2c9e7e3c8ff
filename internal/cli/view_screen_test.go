package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// screen is a terminal: what a person sees of what is written to it. It knows
// what the view may write, and keeps everything else as a fault.
type screen struct {
	mu         sync.Mutex // guards all below
	cols, rows int
	reflow     bool // it breaks lines anew when it becomes narrower, as some do; others cut them off

	lines   [][]string // of cells, those that scrolled up first; the second cell of a wide character is empty
	top     int        // the first line that can be seen
	x, y    int        // the cursor; y counts from the first line of all
	wrap    bool       // at the end of a line
	hidden  bool       // the cursor
	frame   bool       // within a synchronized drawing
	faults  []string
	widest  int // column that was written to, since the size changed
	written int // bytes
	writes  int
}

func newScreen(cols, rows int) *screen {
	return &screen{cols: cols, rows: rows, wrap: true, lines: [][]string{nil}}
}

func (s *screen) size() (cols, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cols, s.rows
}

// count returns how often it was written to, and how many bytes.
func (s *screen) count() (writes, written int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, s.written
}

// problem returns what no view may do, empty if it did not.
func (s *screen) problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.widest >= s.cols && s.cols > 1 {
		s.fault("a line is %d wide, the terminal %d", s.widest, s.cols)
	}
	return strings.Join(s.faults, "\n")
}

// withheld returns what was not given back, empty if all was.
func (s *screen) withheld() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.hidden:
		return "the cursor is hidden"
	case s.frame:
		return "a drawing has no end"
	case !s.wrap:
		return "lines do not wrap"
	case s.x != 0:
		return fmt.Sprintf("the cursor is in column %d", s.x)
	}
	return ""
}

func (s *screen) fault(format string, args ...any) {
	if len(s.faults) < 10 {
		s.faults = append(s.faults, fmt.Sprintf(format, args...))
	}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += len(p)
	s.writes++
	for text := string(p); text != ""; {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				s.fault("unfinished sequence %q", text)
				break
			}
			s.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			s.fault("no UTF-8: %q", text[:1])
		case r == '\r':
			s.x = 0
		case r == '\n':
			s.down()
		default:
			if printable(string(r)) != string(r) && runeWidth(r) > 0 {
				s.fault("raw %q", r)
			}
			s.print(r)
		}
		text = text[n:]
	}
	return len(p), nil
}

func (s *screen) control(args string, final byte) {
	switch seq := args + string(final); seq {
	case "?25l", "?25h":
		s.hidden = final == 'l'
	case "?2026h", "?2026l":
		s.frame = final == 'h'
	case "?7h", "?7l":
		s.wrap = final == 'h'
	case "K":
		s.lines[s.y] = s.lines[s.y][:min(s.x, len(s.lines[s.y]))]
	case "J":
		s.lines[s.y] = s.lines[s.y][:min(s.x, len(s.lines[s.y]))]
		s.lines = s.lines[:s.y+1]
	case "m", "1m", "2m", "31m", "32m", "33m", "34m", "35m", "36m":
	default:
		n, err := strconv.Atoi(args)
		if final != 'A' || err != nil || n < 1 {
			s.fault("sequence %q", seq)
			return
		}
		if s.y-n < s.top {
			s.fault("the cursor goes up %d of %d lines", n, s.y-s.top)
		}
		s.y = max(s.y-n, s.top)
	}
}

func (s *screen) down() {
	if s.y++; s.y == len(s.lines) {
		s.lines = append(s.lines, nil)
	}
	s.top = max(s.top, s.y-s.rows+1)
}

func (s *screen) print(r rune) {
	w := runeWidth(r)
	if w == 0 {
		if s.x > 0 && s.x <= len(s.lines[s.y]) {
			s.lines[s.y][s.x-1] += string(r)
		}
		return
	}
	if s.x+w > s.cols {
		if s.wrap {
			s.x = 0
			s.down()
		} else {
			s.x = max(s.cols-w, 0)
		}
	}
	l := s.lines[s.y]
	for len(l) < s.x+w {
		l = append(l, " ")
	}
	l[s.x] = string(r)
	if w == 2 {
		l[s.x+1] = ""
	}
	s.lines[s.y] = l
	s.x += w
	s.widest = max(s.widest, s.x)
}

// resize does what terminals do: the cursor stays with its character.
func (s *screen) resize(cols, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reflow && cols < s.cols {
		var lines [][]string
		cursor := s.y
		for y, l := range s.lines {
			if y == cursor {
				s.y = len(lines) + s.x/cols
				s.x %= cols
			}
			for len(l) > cols {
				lines, l = append(lines, slices.Clone(l[:cols])), l[cols:]
			}
			lines = append(lines, slices.Clone(l))
		}
		s.lines = lines
	} else {
		for y, l := range s.lines {
			if y >= s.top {
				s.lines[y] = l[:min(len(l), cols)]
			}
		}
		s.x = min(s.x, cols-1)
	}
	s.cols, s.rows, s.widest = cols, rows, 0
	s.top = max(min(s.top, s.y), s.y-rows+1)
	s.lines = s.lines[:min(len(s.lines), s.top+rows)]
}

// all returns what is and was to be seen, and where begins what still is.
func (s *screen) all() (all []string, top int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		all = append(all, strings.TrimRight(strings.Join(l, ""), " "))
	}
	return all, s.top
}

// String returns what can be seen.
func (s *screen) String() string {
	all, top := s.all()
	return strings.TrimRight(strings.Join(all[top:], "\n"), "\n") + "\n"
}
