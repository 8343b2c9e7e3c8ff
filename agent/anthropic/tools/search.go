package tools

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"
	"strings"
)

// searchFiles looks through files, in their order.
func searchFiles(ctx context.Context, files []candidate, q query) ([]found, error) {
	var hits []found
	for _, c := range files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		data, err := io.ReadAll(io.NewSectionReader(c.file, 0, maxSearched))
		if err != nil {
			continue
		}
		if lines, n := q.find(data); n > 0 {
			hits = append(hits, found{path: c.path, time: c.time, lines: lines, count: n})
		}
	}
	return hits, nil
}

// find returns the lines of data that match, with those around them, and how
// many match.
func (q query) find(data []byte) (list []line, matching int) {
	starts := lineStarts(data)
	text := func(i int) []byte { // of line i, from zero, without its end
		end := len(data)
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		} else if end > 0 && data[end-1] == '\n' {
			end--
		}
		return data[starts[i]:end]
	}
	byLine := map[int]*line{}
	var order []int // lines that match, from zero
	hit := func(i int) *line {
		if l, ok := byLine[i]; ok {
			return l
		}
		l := &line{number: i + 1, text: held(text(i)), match: true}
		byLine[i] = l
		order = append(order, i)
		return l
	}
	if q.multiline {
		for _, m := range q.re.FindAllIndex(data, -1) {
			q.span(data, starts, m, hit)
			if q.first && len(order) > 0 {
				break
			}
		}
		slices.Sort(order)
	} else {
		for i := range starts {
			line := text(i)
			if !q.re.Match(line) {
				continue
			}
			l := hit(i)
			if q.first {
				break
			}
			for _, m := range q.re.FindAllIndex(line, -1) {
				if m[1] > m[0] {
					l.parts = append(l.parts, held(line[m[0]:m[1]]))
				}
			}
			if len(order) > maxShown {
				break
			}
		}
	}
	matching = len(order)
	next := 0 // the first line that is not yet in list
	for _, i := range order {
		for j := max(next, i-q.before); j < i; j++ {
			if _, ok := byLine[j]; !ok {
				list = append(list, line{number: j + 1, text: held(text(j))})
			}
		}
		list = append(list, *byLine[i])
		next = i + 1
		for j := next; j <= i+q.after && j < len(starts); j++ {
			if _, ok := byLine[j]; ok {
				break
			}
			list = append(list, line{number: j + 1, text: held(text(j))})
			next = j + 1
		}
	}
	return list, matching
}

// span marks the lines that a match covers.
func (q query) span(data []byte, starts []int, m []int, hit func(int) *line) {
	if m[0] == len(data) && len(data) > 0 && data[len(data)-1] == '\n' {
		return // behind the last line there is none
	}
	if len(data) == 0 {
		return
	}
	last := max(m[0], m[1]-1)
	for i := lineAt(starts, m[0]); i <= lineAt(starts, last) && i < len(starts); i++ {
		l := hit(i)
		from, to := max(m[0], starts[i]), m[1]
		if i+1 < len(starts) {
			to = min(to, starts[i+1]-1)
		}
		if part := strings.TrimSuffix(held(data[from:max(from, to)]), "\n"); part != "" {
			l.parts = append(l.parts, part)
		}
	}
}

// lineStarts returns where the lines of data begin. A line end at the very end
// begins no line.
func lineStarts(data []byte) []int {
	var starts []int
	for pos := 0; pos < len(data); {
		starts = append(starts, pos)
		i := bytes.IndexByte(data[pos:], '\n')
		if i < 0 {
			break
		}
		pos += i + 1
	}
	return starts
}

func lineAt(starts []int, pos int) int {
	return sort.Search(len(starts), func(i int) bool { return starts[i] > pos }) - 1
}

// held is what is kept of a line: enough to know that it is too long.
func held(text []byte) string { return string(text[:min(len(text), maxColumns+1)]) }
