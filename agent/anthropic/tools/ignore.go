package tools

import (
	"io"
	"path"
	"strings"
)

const maxIgnore = 256 << 10 // bytes of a .gitignore that count

// ignoring are the rules of one .gitignore.
type ignoring struct {
	base  string // the folder that it is in, relative to the folder of the agent; "." is that itself
	rules []*pattern
}

// parseIgnore reads a .gitignore. A line that is no pattern is skipped.
func parseIgnore(base, text string) *ignoring {
	ig := &ignoring{base: base}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
			line = line[:len(line)-1]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if p, err := compilePattern(line, false); err == nil {
			ig.rules = append(ig.rules, p)
		}
	}
	return ig
}

// ignores are all .gitignore files that count, the outermost first.
type ignores []*ignoring

// match tells whether the path, relative to the folder of the agent, is to be
// left out. The last rule that is about it counts.
func (list ignores) match(rel string, dir bool) bool {
	for i := len(list) - 1; i >= 0; i-- {
		name := rel
		if base := list[i].base; base != "." {
			var below bool
			if name, below = strings.CutPrefix(rel, base+"/"); !below {
				continue
			}
		}
		for j := len(list[i].rules) - 1; j >= 0; j-- {
			if rule := list[i].rules[j]; rule.match(name, dir) {
				return !rule.not
			}
		}
	}
	return false
}

// ignoresAbove reads the .gitignore files of the folders that p is in, up to
// the folder of the agent. That of p itself is not among them.
func (s *Set) ignoresAbove(p place) (list ignores) {
	rel := "."
	for _, name := range names(p.rel) {
		list = s.addIgnore(list, place{in: p.in, rel: path.Join(rel, ".gitignore")}, rel)
		rel = path.Join(rel, name)
	}
	return list
}

// addIgnore adds the .gitignore at p, if there is one that can be read.
func (s *Set) addIgnore(list ignores, p place, base string) ignores {
	f, _, err := s.open(p)
	if err != nil {
		return list
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnore))
	if err != nil {
		return list
	}
	return append(list[:len(list):len(list)], parseIgnore(base, string(data)))
}
