package eventlog

import "maps"

// seen is what a reader remembers of runs, to know that it missed no event: the
// number of the next one. The zero value remembers none.
//
// A tree is forgotten when it was purged, so that what is remembered goes with
// what is in the stream, and not with all that was ever read. A reader that is
// not told of it, because another process purged the tree or it was behind, has
// maxRuns as its bound.
type seen struct{ runs map[runKey]uint64 }

type runKey struct{ root, run string }

// maxRuns bounds what is remembered. When it is exceeded, gaps across that
// moment are not found.
const maxRuns = 10_000

// next returns the number of the run's next event, if anything of it was seen.
func (s *seen) next(root, run string) (n uint64, ok bool) {
	n, ok = s.runs[runKey{root, run}]
	return n, ok
}

// note remembers the number of the run's next event.
func (s *seen) note(root, run string, n uint64) {
	if s.runs == nil || len(s.runs) >= maxRuns {
		s.runs = map[runKey]uint64{}
	}
	s.runs[runKey{root, run}] = n
}

// forget forgets a tree. It looks at all that is remembered, which is quick
// beside the purge that it is told of.
func (s *seen) forget(root string) {
	maps.DeleteFunc(s.runs, func(key runKey, _ uint64) bool { return key.root == root })
	if len(s.runs) == 0 {
		s.runs = nil // a map keeps the room that it once needed
	}
}
