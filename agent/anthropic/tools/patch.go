package tools

import "strings"

// hunk is a change as the CLI tells its hooks.
type hunk struct {
	OldStart int      `json:"oldStart"`
	OldLines int      `json:"oldLines"`
	NewStart int      `json:"newStart"`
	NewLines int      `json:"newLines"`
	Lines    []string `json:"lines"`
}

// patch returns what changed between two texts as one hunk: all from the first
// line that differs to the last, with three lines around it.
func patch(before, after string) []hunk {
	if before == after {
		return []hunk{}
	}
	const around = 3
	a, b := splitLines(before), splitLines(after)
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	tail := 0
	for tail < len(a)-same && tail < len(b)-same && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lead, trail := min(same, around), min(tail, around)
	h := hunk{
		OldStart: same - lead + 1, OldLines: len(a) - same - tail + lead + trail,
		NewStart: same - lead + 1, NewLines: len(b) - same - tail + lead + trail,
	}
	add := func(sign string, lines []string) {
		for _, line := range lines {
			text, ended := strings.CutSuffix(line, "\n")
			h.Lines = append(h.Lines, sign+text)
			if !ended {
				h.Lines = append(h.Lines, `\ No newline at end of file`)
			}
		}
	}
	add(" ", a[same-lead:same])
	add("-", a[same:len(a)-tail])
	add("+", b[same:len(b)-tail])
	add(" ", a[len(a)-tail:len(a)-tail+trail])
	return []hunk{h}
}

// splitLines keeps the line ends; nothing has no lines.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
