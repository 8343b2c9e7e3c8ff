package claude

import "slices"

// parallel finds what the single line of parents leaves out. Each tool call of
// one response is an entry of its own and so is its result; of parallel calls
// only one is on the way to the leaf.
type parallel struct {
	response []string   // of each line of the chain, the id of the API response it is part of, or ""
	answers  [][]string // of each line, the tool calls it has the results of
	calls    map[string][]int
	results  map[string][]int // both by response: what is missing on the way, in the file's order
}

// withParallel adds the missing entries to a way through the chain: calls next
// to those of their response, results after them.
func (c *chain) withParallel(way []int) []int {
	p := c.findParallel(way)
	last := make(map[string]int) // of each response, its last entry on the way
	for _, i := range way {
		if id := p.response[i]; id != "" {
			last[id] = i
		}
	}
	var full []int
	for n := 0; n < len(way); n++ {
		i := way[n]
		full = append(full, i)
		id := p.response[i]
		if last[id] != i || len(p.calls[id])+len(p.results[id]) == 0 {
			continue
		}
		start := len(full) - 1
		for start > 0 && p.response[full[start-1]] == id {
			start--
		}
		full = append(full, p.calls[id]...)
		slices.Sort(full[start:])
		start = len(full)
		for n+1 < len(way) && len(p.answers[way[n+1]]) > 0 {
			n++
			full = append(full, way[n])
		}
		full = append(full, p.results[id]...)
		slices.Sort(full[start:])
	}
	return full
}

func (c *chain) findParallel(way []int) *parallel {
	p := &parallel{
		response: make([]string, len(c.lines)),
		answers:  make([][]string, len(c.lines)),
		calls:    make(map[string][]int),
		results:  make(map[string][]int),
	}
	for i, l := range c.lines {
		switch l.Type {
		case "assistant":
			p.response[i] = l.messageID()
		case "user":
			p.answers[i] = l.toolResults()
		}
	}
	onWay := make([]bool, len(c.lines))
	started := make(map[string]bool)  // responses on the way
	answered := make(map[string]bool) // calls whose result is on the way
	for _, i := range way {
		onWay[i] = true
		started[p.response[i]] = true
		for _, call := range p.answers[i] {
			answered[call] = true
		}
	}
	delete(started, "")
	for i, l := range c.lines {
		if onWay[i] {
			continue
		}
		if id := p.response[i]; started[id] {
			p.calls[id] = append(p.calls[id], i)
		}
		id := c.responseAt(p, l.ParentUUID)
		if !started[id] {
			id = c.responseAt(p, l.SourceTool)
		}
		if started[id] && p.answer(i, answered) {
			p.results[id] = append(p.results[id], i)
		}
	}
	return p
}

// responseAt returns the response that the entry with a uuid is part of.
func (c *chain) responseAt(p *parallel, uuid string) string {
	if i := c.place(uuid); i >= 0 {
		return p.response[i]
	}
	return ""
}

// answer tells whether a line has a result that is missing so far.
func (p *parallel) answer(i int, answered map[string]bool) bool {
	missing := false
	for _, call := range p.answers[i] {
		missing = missing || !answered[call]
		answered[call] = true
	}
	return missing
}
