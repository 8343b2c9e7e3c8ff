package claude

import "slices"

// chain is the conversation entries of a transcript, linked by parent.
type chain struct {
	lines  []*transcriptLine // in the order of the file; one per uuid
	at     map[string]int    // uuid to its place in lines
	parent []int             // of each line, -1 for none
}

// newChain links lines. Of entries with the same uuid the last counts.
func newChain(lines []*transcriptLine) *chain {
	last := make(map[string]*transcriptLine)
	for _, l := range lines {
		if l.conversation() {
			last[l.UUID] = l
		}
	}
	c := &chain{at: make(map[string]int)}
	for _, l := range lines {
		if last[l.UUID] == l && l.conversation() {
			c.at[l.UUID] = len(c.lines)
			c.lines = append(c.lines, l)
		}
	}
	for _, l := range c.lines {
		c.parent = append(c.parent, c.place(l.ParentUUID))
	}
	return c
}

// place returns -1 for an entry that is not there.
func (c *chain) place(uuid string) int {
	if i, ok := c.at[uuid]; ok {
		return i
	}
	return -1
}

// maxCompactions bounds how many compactions of one session count, the latest:
// each costs time in proportion to the whole.
const maxCompactions = 256

// relink puts the messages that a compaction kept where they belong: after
// their anchor, and before what else came after it.
func (c *chain) relink() {
	var boundaries []*transcriptLine
	for _, l := range c.lines {
		if l.Type == "system" && l.Subtype == "compact_boundary" {
			boundaries = append(boundaries, l)
		}
	}
	for _, l := range boundaries[max(0, len(boundaries)-maxCompactions):] {
		anchor, kept := c.preserved(l.Compact)
		isKept := make(map[int]bool)
		for _, i := range kept {
			isKept[i] = true
		}
		if anchor < 0 || len(kept) == 0 || isKept[anchor] {
			continue
		}
		last := kept[len(kept)-1]
		for i, parent := range c.parent {
			if parent == anchor && !isKept[i] {
				c.parent[i] = last
			}
		}
		for _, i := range kept {
			c.parent[i] = anchor
			anchor = i
		}
	}
}

// preserved returns the places of a compaction's anchor and of the messages it
// kept, in order.
func (c *chain) preserved(m compactMetadata) (anchor int, kept []int) {
	if len(m.Messages.UUIDs) > 0 {
		seen := make(map[int]bool)
		for _, uuid := range m.Messages.UUIDs {
			if i := c.place(uuid); i >= 0 && !seen[i] {
				seen[i] = true
				kept = append(kept, i)
			}
		}
		return c.place(m.Messages.Anchor), kept
	}
	head := c.place(m.Segment.Head)
	kept = c.walk(c.place(m.Segment.Tail))
	start := slices.Index(kept, head)
	if start < 0 {
		return -1, nil
	}
	return c.place(m.Segment.Anchor), kept[start:]
}

// walk returns the way from the root to a leaf. It ends where a circle would
// start.
func (c *chain) walk(leaf int) []int {
	var way []int
	seen := make(map[int]bool)
	for i := leaf; i >= 0 && !seen[i]; i = c.parent[i] {
		seen[i] = true
		way = append(way, i)
	}
	slices.Reverse(way)
	return way
}

// leaf returns the place of the last message of the conversation, -1 if there
// is none: of the messages that nothing follows, the latest in the file that
// belongs to the session itself.
func (c *chain) leaf() int {
	followed := make([]bool, len(c.lines))
	for _, p := range c.parent {
		if p >= 0 {
			followed[p] = true
		}
	}
	best, bestOwn := -1, -1
	// Many ends may lead back through the same entries; each is walked once.
	seen := make([]bool, len(c.lines))
	for end := range c.lines {
		if followed[end] {
			continue
		}
		i := end
		for i >= 0 && !seen[i] && !c.lines[i].spoken() {
			seen[i] = true
			i = c.parent[i]
		}
		if i < 0 || !c.lines[i].spoken() {
			continue
		}
		best = max(best, i)
		if l := c.lines[i]; !l.IsSidechain && l.TeamName == "" && !l.IsMeta {
			bestOwn = max(bestOwn, i)
		}
	}
	if bestOwn >= 0 {
		return bestOwn
	}
	return best
}

// lastSpoken returns the place of the last message in the file, -1 if none.
func (c *chain) lastSpoken() int {
	for i, l := range slices.Backward(c.lines) {
		if l.spoken() {
			return i
		}
	}
	return -1
}
