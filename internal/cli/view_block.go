package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// What the block shows at most, where there is room.
const (
	maxTail  = 6 // lines of what is being written
	maxCalls = 4 // tools that run
)

// block returns what goes on, in at most cols and rows: what the root writes or
// thinks, the tools it runs, the tree if there is one, and a line on how it stands.
// The last line is the most important; the tree comes next.
func (s *story) block(cols, rows int) []line {
	root, known := s.runs[s.root]
	if !known || rows < 1 {
		return nil
	}
	now := s.now()
	status := s.status(root, now).cut(cols)
	rows--

	var tree []line
	if s.hasChildren() && rows > 1 {
		tree = s.tree(root, now, cols, max(3, rows/2))
		if len(tree) > rows {
			tree = nil
		}
		rows -= len(tree)
	}

	var calls []line
	if n := min(len(root.calls), maxCalls, rows); n > 0 {
		if n < len(root.calls) && n > 1 {
			n--
		}
		for _, c := range root.calls[len(root.calls)-n:] {
			calls = append(calls, line{{cyan, "◌"}, {normal, " "}, {bold, c.tool}, {normal, "  "}, {normal, c.description}}.ends(line{{dim, sinceThen(now.Sub(c.since))}}, cols))
		}
		if more := len(root.calls) - n; more > 0 && len(calls) < rows {
			calls = append(calls, line{{dim, "… " + numberOf(more, "more tool")}}.cut(cols))
		}
		rows -= len(calls)
	}

	var said []line
	if n := min(maxTail, rows); n > 0 {
		switch {
		case root.text != "":
			said = lastLines(root.text, normal, cols, n)
		case s.held != nil && len(root.calls) == 0:
			said = lastLines(s.held.text, normal, cols, n)
		case root.thought != "":
			said = lastLines(root.thought, dim, cols, n)
		case !root.thinking.IsZero():
			said = []line{{{dim, cutText("thinking", cols)}}}
		}
	}
	return slices.Concat(said, calls, tree, []line{status})
}

// status says how the whole stands.
func (s *story) status(root *watched, now time.Time) line {
	usd, usage := s.total()
	l := line{markOf(root), {normal, " "}}
	waiting := !root.wait.Since.IsZero() && (root.state == nestor.Waiting || root.state == nestor.Queued)
	look := normal
	if waiting || root.ending != "" {
		look = markOf(root).style
	}
	// The reason comes last: it may be long.
	reason := oneLine(root.wait.Reason)
	l = append(l, span{look, strings.TrimSuffix(s.doing(root, now, false), ": "+reason)})
	if waited := now.Sub(root.wait.Since); waiting && waited >= time.Second {
		l = append(l, span{dim, ", for " + sinceThen(waited)})
	}
	elapsed := ""
	if !root.started.IsZero() {
		elapsed = sinceThen(root.elapsed(now))
	}
	if facts := joinFacts(turnsOf(root.turns), money(usd), elapsed, tokens(usage)); facts != "" {
		l = append(l, span{dim, " · " + facts})
	}
	if waiting && reason != "" {
		l = append(l, span{dim, " · " + reason})
	}
	return l
}

// doing says what r does, in a few words; in detail also the tool it runs or what
// it writes.
func (s *story) doing(r *watched, now time.Time, detail bool) string {
	switch {
	case r.state == nestor.Waiting && r.wait.For == nestor.ForChildren && r.ending == "":
		alive := 0
		for _, c := range r.children {
			if !c.state.Ended() {
				alive++
			}
		}
		if alive > 0 {
			return fmt.Sprintf("waits for %d of %s", alive, childrenOf(len(r.children)))
		}
	case r.state == nestor.Error && r.failure != nil, r.state == nestor.Partial && r.failure != nil:
		return string(r.state) + ": " + oneLine(r.failure.Message)
	case r.state == nestor.Success:
		return "done"
	case r.state != nestor.Running || r.ending != "":
	case detail && len(r.calls) > 0:
		c := r.calls[len(r.calls)-1]
		return strings.TrimSpace(c.tool + "  " + c.description)
	case detail && r.text != "":
		return lastLine(r.text)
	case !r.thinking.IsZero():
		return "thinks"
	case r.text != "":
		return "writes"
	case len(r.calls) > 0:
		return "runs " + numberOf(len(r.calls), "tool")
	case r.activity != "":
		return r.activity
	}
	return stateWord(r, now)
}

func childrenOf(n int) string {
	if n == 1 {
		return "1 child"
	}
	return fmt.Sprintf("%d children", n)
}

// lastLine returns the last line of text that says something, printable.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(printable(clipStart(text, 1024))), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// tree returns the runs, indented, in at most rows lines. Where they do not fit
// it shows those first that need a person, then those that run, and counts the
// others.
func (s *story) tree(root *watched, now time.Time, cols, rows int) []line {
	shown := map[*watched]bool{}
	hidden := map[string]int{}
	if len(s.runs) <= rows {
		for _, r := range s.runs {
			shown[r] = true
		}
	} else {
		shown = s.choose(root, rows-1)
		for _, r := range s.runs {
			if !shown[r] {
				hidden[classOf(r).word]++
			}
		}
	}
	var lines []line
	var draw func(r *watched, head, below string)
	draw = func(r *watched, head, below string) {
		lines = append(lines, s.row(r, head, now).ends(costs(r, now), cols))
		var some []*watched
		for _, c := range r.children {
			if shown[c] {
				some = append(some, c)
			}
		}
		for i, c := range some {
			if i < len(some)-1 {
				draw(c, below+"├ ", below+"│ ")
			} else {
				draw(c, below+"└ ", below+"  ")
			}
		}
	}
	draw(root, "", "")
	if len(hidden) > 0 {
		text, join := "… ", ""
		more := " more"
		for _, c := range classes {
			if n := hidden[c.word]; n > 0 {
				text += fmt.Sprintf("%s%d%s %s", join, n, more, c.word)
				join, more = ", ", ""
			}
		}
		lines = append(lines, line{{dim, text}}.cut(cols))
	}
	return lines
}

// row is the line of one run in the tree.
func (s *story) row(r *watched, head string, now time.Time) line {
	name := r.name
	if name == "" {
		name = shortID(r.id)
	}
	look := dim
	if r.state == nestor.Waiting && r.wait.For == nestor.ForPerson {
		look = magenta
	} else if r.state == nestor.Error {
		look = red
	}
	return line{{dim, head}, markOf(r), {normal, " "}, {bold, name}, {normal, "  "}, {look, s.doing(r, now, r.parent != nil)}}
}

// costs is what a row of the tree ends with.
func costs(r *watched, now time.Time) line {
	elapsed := ""
	if !r.started.IsZero() {
		elapsed = sinceThen(r.elapsed(now))
	}
	if r.cost <= 0 && elapsed == "" {
		return nil
	}
	return line{{normal, money(r.cost)}, {dim, fmt.Sprintf("%7s", elapsed)}}
}

// runClass is a class of runs, as the tree counts those that it does not show.
type runClass struct {
	word string
	has  func(r *watched) bool
}

// classes are in the order in which they are shown. Each run is in the first that
// has it.
var classes = []runClass{
	{"asking you", func(r *watched) bool { return r.state == nestor.Waiting && r.wait.For == nestor.ForPerson }},
	{"running", func(r *watched) bool { return r.state == nestor.Running || r.state == nestor.Starting }},
	{"waiting", func(r *watched) bool { return r.state == nestor.Waiting }},
	{"failed", func(r *watched) bool { return r.state == nestor.Error }},
	{"queued", func(r *watched) bool { return !r.state.Ended() }},
	{"ended", func(r *watched) bool { return true }},
}

func classOf(r *watched) runClass {
	for _, c := range classes {
		if c.has(r) {
			return c
		}
	}
	return classes[len(classes)-1]
}

// choose picks n runs to show, each with all that are above it.
func (s *story) choose(root *watched, n int) map[*watched]bool {
	shown := map[*watched]bool{root: true}
	byClass := map[string][]*watched{}
	var walk func(r *watched)
	walk = func(r *watched) {
		w := classOf(r).word
		byClass[w] = append(byClass[w], r)
		for _, c := range r.children {
			walk(c)
		}
	}
	walk(root)
	for _, c := range classes {
		for _, r := range byClass[c.word] {
			var path []*watched
			for above := r; above != nil && !shown[above]; above = above.parent {
				path = append(path, above)
			}
			if len(shown)+len(path) > n {
				continue
			}
			for _, p := range path {
				shown[p] = true
			}
			if len(shown) == n {
				return shown
			}
		}
	}
	return shown
}
