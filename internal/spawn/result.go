package spawn

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/plan"
)

// child returns what goes up of a run: its result, if it has ended, and no more of
// it than may.
func (r *Run) child(run plan.Run, name string) api.Child {
	c := api.Child{
		Run: run.ID, Root: run.Root, Parent: run.Parent(), Depth: run.Depth(), Name: name, Agent: run.Task.Agent, Status: run.State,
		CostUSD: run.Spent + run.Below,
	}
	if o, err := api.ParseTaskOptions(run.Task.Data); err == nil && run.Root != "" {
		c.Trace = api.TraceOf(o.Trace, run.Root, run.ID).ID
	}
	if !run.State.Ended() || run.Result == nil {
		return c
	}
	res := run.Result
	c.Error, c.Turns, c.File, c.Truncated = res.Error, res.Turns, res.File, res.Truncated
	where := "the whole is in 'nestor runs show " + string(run.ID) + "'"
	if res.File != "" {
		where = "the whole is in " + res.File
	}
	if len(res.Structured) <= r.opts.MaxResult {
		c.Structured = res.Structured
	} else {
		c.Truncated = true
		c.Output = fmt.Sprintf("[the structured output has %d bytes, of which none are shown: %s]", len(res.Structured), where)
		return c
	}
	var cut bool
	c.Output, cut = Bound(res.Output, r.opts.MaxResult, where)
	c.Truncated = c.Truncated || cut
	return c
}

// Bound returns text, or as much of its beginning as fits into max bytes together
// with a note where the rest is, and whether that was so. It is cut behind a line,
// or if none ends near the end behind a rune.
func Bound(text string, max int, where string) (string, bool) {
	if len(text) <= max {
		return text, false
	}
	note := "\n[cut here: " + where + "]"
	end := max - len(note)
	if end <= 0 {
		return clip(text, max), true
	}
	head := clip(text, end)
	if line := strings.LastIndexByte(head, '\n'); line > len(head)*3/4 {
		head = head[:line]
	}
	return head + note, true
}

// clip returns the beginning of text that fits into max bytes, whole runes of it.
func clip(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}
