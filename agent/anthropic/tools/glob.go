package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxGlob   = 100     // files that Glob lists
	maxFound  = 100_000 // files that it holds, to know the oldest
	maxSearch = 30 * time.Second
)

// errSearchTime is why a search that took too long ended.
var errSearchTime = errors.New("the search took too long")

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func (s *Set) globTool() Tool {
	t := Tool{
		Name: "Glob",
		Description: "Finds files by a pattern of their names, such as **/*.go or src/**/*.{ts,tsx}, the oldest first. A pattern " +
			"without a slash is about the name alone, at any depth.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"pattern":{"type":"string","description":"The glob pattern to match files against"},
"path":{"type":"string","description":"The folder to search in. Leave it out for the current working directory"}
},"required":["pattern"],"additionalProperties":false}`),
		ReadOnly: true,
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[globInput](t, input)
		if err != nil {
			return Access{}, err
		}
		if in = in.split(); in.Path == "" {
			in.Path = s.workingDir()
		}
		access, err := s.access(in.Path, "path", input, false)
		if access.Input != nil {
			access.Input = withPath(access.Input, "pattern", in.Pattern)
		}
		return access, err
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[globInput](t, input)
		if err != nil {
			return Result{}, err
		}
		return s.glob(ctx, in.split())
	}
	return t
}

// split takes the folder out of a pattern that is an absolute path.
func (in globInput) split() globInput {
	if !filepath.IsAbs(in.Pattern) {
		return in
	}
	dir := in.Pattern
	if i := strings.IndexAny(dir, `*?[{\`); i >= 0 {
		dir = dir[:i]
	}
	i := strings.LastIndexByte(filepath.ToSlash(dir), '/')
	return globInput{Path: in.Pattern[:max(i, 1)], Pattern: "./" + in.Pattern[i+1:]}
}

func (s *Set) glob(ctx context.Context, in globInput) (Result, error) {
	p, err := s.searchPlace(in.Path, "Directory")
	if err != nil {
		return Result{}, err
	}
	if !p.dir {
		return Result{}, tell("Path is not a directory: %s", in.Path)
	}
	none := Result{Text: "No files found", Data: map[string]any{"filenames": []string{}, "numFiles": 0, "truncated": false}}
	if slices.Contains(names(in.Pattern), "..") {
		return none, nil // nothing below a folder has such a name
	}
	pat, err := compilePattern(in.Pattern, true)
	if err != nil {
		return Result{}, tell("The pattern %q cannot be used: %v.", clip(in.Pattern, 200), err)
	}
	type file struct {
		path string
		time time.Time
	}
	var found []file
	w := walk{set: s}
	w.visit = func(_ *os.Root, _ string, info fs.FileInfo, at spot) error {
		if pat.match(at.rel, false) == pat.not {
			return nil
		}
		if len(found) == maxFound {
			w.partial = true
			return nil
		}
		found = append(found, file{at.path, info.ModTime()})
		return nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, maxSearch, errSearchTime)
	defer stop()
	if err := w.run(ctx, p.place); errors.Is(err, errSearchTime) {
		w.partial = true
	} else if err != nil {
		return Result{}, err
	}
	if len(found) == 0 && !w.partial {
		return none, nil
	}
	slices.SortFunc(found, func(a, b file) int { return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.path, b.path)) })
	list := []string{}
	for _, f := range found[:min(len(found), maxGlob)] {
		list = append(list, s.shown(f.path))
	}
	text := strings.Join(list, "\n")
	if n := len(found); n > maxGlob {
		text += fmt.Sprintf("\n(Showing %d of %d matching files; %d more are not listed. Narrow the pattern or path to see the rest.)", maxGlob, n, n-maxGlob)
	}
	if w.partial {
		text += "\n(" + tooMuch + ")"
	}
	text, err = s.Bound("glob", text)
	return Result{Text: strings.TrimPrefix(text, "\n"), Data: map[string]any{
		"filenames": list, "numFiles": len(list), "truncated": len(found) > maxGlob || w.partial, "totalMatches": len(found),
	}}, err
}

const tooMuch = "There is more than could be looked at: narrow the pattern or path."

// searched is where a search begins.
type searched struct {
	place
	dir bool
}

// searchPlace finds what to search, which errors call what: a folder or a file,
// where the shell is if name is empty.
func (s *Set) searchPlace(name, what string) (searched, error) {
	if name == "" {
		name = s.workingDir()
	}
	p, err := s.inside(name, false)
	if err != nil {
		return searched{}, err
	}
	dir, last, err := p.enter(false)
	if err == nil {
		defer dir.Close()
		var info fs.FileInfo
		if info, err = dir.Lstat(last); err == nil {
			return searched{p, info.IsDir()}, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return searched{}, tell("%s does not exist: %s. Note: your current working directory is %s.", what, name, s.workingDir())
	}
	return searched{}, s.explain(err, name)
}
