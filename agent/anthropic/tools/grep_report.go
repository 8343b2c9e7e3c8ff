package tools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// report tells what was found, in the CLI's form. Of a single file the name is
// left out.
func (s *Set) report(in grepInput, hits []found, single bool) Result {
	limit := defaultLimit
	if in.Limit != nil {
		limit = int(max(*in.Limit, 0))
	}
	page := paging{limit: limit, offset: int(max(in.Offset, 0))}
	switch in.Mode {
	case "content":
		return s.reportContent(in, hits, single, page)
	case "count":
		return s.reportCount(hits, page)
	}
	slices.SortStableFunc(hits, func(a, b found) int {
		return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.path, b.path))
	})
	list := []string{}
	for _, f := range hits {
		list = append(list, s.shown(f.path))
	}
	list, note := page.cut(list)
	data := map[string]any{"mode": in.Mode, "filenames": list, "numFiles": len(list), "totalFiles": len(hits)}
	if len(list) == 0 {
		return Result{Text: "No files found", Data: data}
	}
	if note != "" {
		note = " " + note
	}
	return Result{Text: fmt.Sprintf("Found %s%s\n%s", plural(len(list), "file"), note, strings.Join(list, "\n")), Data: data}
}

func (s *Set) reportContent(in grepInput, hits []found, single bool, page paging) Result {
	numbers := in.Numbers == nil || *in.Numbers
	around := max(in.Before, in.After, in.Around, in.Context) > 0 && !in.Only
	var out []string
	for i, f := range hits {
		name := s.shown(f.path)
		last := 0
		for _, l := range f.lines {
			if around && (last == 0 && i > 0 || last > 0 && l.number != last+1) {
				out = append(out, "--")
			}
			last = l.number
			sign := ":"
			if !l.match {
				sign = "-"
			}
			start := ""
			if !single {
				start = name + sign
			}
			if !in.Only {
				out = append(out, l.show(start, sign, numbers, l.text))
				continue
			}
			for _, part := range l.parts {
				out = append(out, l.show(start, sign, numbers, part))
			}
		}
	}
	total := len(out)
	out, note := page.cut(out)
	data := map[string]any{"mode": "content", "content": strings.Join(out, "\n"), "numLines": len(out), "totalLines": total}
	if len(out) == 0 {
		return Result{Text: "No matches found", Data: data}
	}
	text := strings.Join(out, "\n")
	if note != "" {
		text += "\n\n[Showing results with pagination = " + note + "]"
	}
	return Result{Text: text, Data: data}
}

// show returns a line of output. Like ripgrep it leaves out what is too long.
func (l line) show(start, sign string, numbers bool, text string) string {
	if len(text) > maxColumns {
		text = "[Omitted long matching line]"
		if !l.match {
			text = "[Omitted long context line]"
		}
	}
	if numbers {
		start += fmt.Sprint(l.number) + sign
	}
	return start + strings.ToValidUTF8(strings.TrimSuffix(text, "\r"), "\uFFFD")
}

func (s *Set) reportCount(hits []found, page paging) Result {
	list, total := []string{}, 0
	for _, f := range hits {
		list = append(list, fmt.Sprintf("%s:%d", s.shown(f.path), f.count))
		total += f.count
	}
	list, note := page.cut(list)
	text := cmp.Or(strings.Join(list, "\n"), "No matches found")
	text += fmt.Sprintf("\n\nFound %s across %s.", plural(total, "total occurrence"), plural(len(hits), "file"))
	if note != "" {
		text += " with pagination = " + note
	}
	return Result{Text: text, Data: map[string]any{
		"mode": "count", "numFiles": len(hits), "content": strings.Join(list, "\n"), "numMatches": total,
	}}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// paging is which part of a list is shown. Zero limit means all.
type paging struct{ limit, offset int }

// cut returns the part, and a note about what was left out.
func (p paging) cut(list []string) ([]string, string) {
	var notes []string
	rest := list[min(p.offset, len(list)):]
	if p.limit > 0 && len(rest) > p.limit {
		rest = rest[:p.limit]
		notes = append(notes, fmt.Sprintf("limit: %d", p.limit))
	}
	if p.offset > 0 {
		notes = append(notes, fmt.Sprintf("offset: %d", p.offset))
	}
	return rest, strings.Join(notes, ", ")
}
