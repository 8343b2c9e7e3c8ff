package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp/syntax"
	"slices"
	"strings"
)

// sift returns the files in which ripgrep finds something. It is handed them
// open: it never opens a path that somebody else could have changed meanwhile.
// What is found in them is left to our own engine, so that the result does not
// depend on which one is there.
func (s *Set) sift(ctx context.Context, files []candidate, q query) ([]candidate, error) {
	args := []string{"--files-with-matches", "--null", "--no-config", "--text", "--no-mmap", "--encoding", "none", "--color", "never"}
	if q.multiline {
		args = append(args, "--multiline", "--multiline-dotall")
	}
	cmd := s.opts.Command(s.ripgrep, append(args, "--regexp", q.ripgrep, "--")...)
	cmd.Dir, cmd.Env = s.folders[0].path, s.environ(s.folders[0].path)
	index := map[string]int{}
	for i, c := range files {
		name := fmt.Sprint(descriptorPath, 3+len(cmd.ExtraFiles))
		index[name] = i
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.file)
		cmd.Args = append(cmd.Args, name)
	}
	setAttributes(cmd)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	ended, err := launch(cmd)
	w.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(cmd.Process) })
	list, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if !stop() || err != nil {
		killGroup(cmd.Process)
	}
	<-ended
	// One is what it exits with when nothing was found.
	if state := cmd.ProcessState; err == nil && !state.Success() && state.ExitCode() != 1 {
		err = errors.New(state.String())
	}
	if err != nil {
		return nil, fmt.Errorf("running ripgrep: %w", err)
	}
	var hits []int
	for name := range bytes.SplitSeq(list, []byte{0}) {
		if i, ok := index[string(name)]; ok {
			hits = append(hits, i)
		}
	}
	slices.Sort(hits) // they come in the order in which they were done
	found := make([]candidate, 0, len(hits))
	for _, i := range hits {
		found = append(found, files[i])
	}
	return found, nil
}

// forRipgrep writes an expression for ripgrep, whose word boundaries are
// otherwise those of Unicode; all else in it is already spelled out by package
// syntax. It returns nothing for an expression in which ripgrep (13.0) misses
// matches: one that matches the empty text, has \B, or has ^ or $ within.
func forRipgrep(tree *syntax.Regexp, matchesEmpty bool) string {
	within := []*syntax.Regexp{tree}
	if tree.Op == syntax.OpConcat {
		within = tree.Sub
		if within[0].Op == syntax.OpBeginLine {
			within = within[1:]
		}
		if n := len(within); n > 0 && within[n-1].Op == syntax.OpEndLine {
			within = within[:n-1]
		}
	}
	if matchesEmpty || slices.ContainsFunc(within, misleads) {
		return ""
	}
	var b strings.Builder
	text := tree.String()
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		if text[i+1] == 'b' {
			b.WriteString(`(?-u:\b)`)
		} else {
			b.WriteString(text[i : i+2])
		}
		i++
	}
	return b.String()
}

// misleads tells whether ripgrep may not be asked about what has re in it.
func misleads(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpNoWordBoundary, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	}
	return slices.ContainsFunc(re.Sub, misleads)
}
