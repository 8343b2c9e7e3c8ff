package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
)

const (
	maxSearched  = 16 << 20 // bytes of a file that is searched
	maxColumns   = 500      // bytes of a line that is shown
	maxShown     = 20_000   // lines that are held
	defaultLimit = 250
	batchFiles   = 128 // that are open at once
	maxContext   = 1_000
)

type grepInput struct {
	Pattern   string `json:"pattern"`
	Path      string `json:"path"`
	Glob      string `json:"glob"`
	Mode      string `json:"output_mode"`
	Before    count  `json:"-B"`
	After     count  `json:"-A"`
	Around    count  `json:"-C"`
	Context   count  `json:"context"`
	Numbers   *bool  `json:"-n"`
	Fold      bool   `json:"-i"`
	Only      bool   `json:"-o"`
	Type      string `json:"type"`
	Limit     *count `json:"head_limit"`
	Offset    count  `json:"offset"`
	Multiline bool   `json:"multiline"`
}

func (s *Set) grepTool() Tool {
	t := Tool{
		Name: "Grep",
		Description: "Searches the contents of files for a regular expression (RE2 syntax). Shows the files with matches, the newest " +
			"first, or with output_mode the matching lines (content) or how many there are (count). What .gitignore names is left " +
			"out unless glob names it.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"pattern":{"type":"string","description":"The regular expression to search for"},
"path":{"type":"string","description":"The file or folder to search in. Defaults to the current working directory"},
"glob":{"type":"string","description":"Which files to search, such as *.js or *.{ts,tsx}; several with spaces between them"},
"output_mode":{"type":"string","enum":["content","files_with_matches","count"],"description":"What to show. Defaults to files_with_matches"},
"-B":{"type":"number","description":"Lines to show before each match. For content"},
"-A":{"type":"number","description":"Lines to show after each match. For content"},
"-C":{"type":"number","description":"Alias for context"},
"context":{"type":"number","description":"Lines to show before and after each match. For content"},
"-n":{"type":"boolean","description":"Show line numbers. For content. Defaults to true"},
"-i":{"type":"boolean","description":"Ignore case"},
"-o":{"type":"boolean","description":"Show only what matched, one match per line. For content"},
"type":{"type":"string","description":"The type of files to search, such as go, js, py, rust"},
"head_limit":{"type":"number","description":"How many lines or entries to show. Defaults to 250; 0 means all"},
"offset":{"type":"number","description":"How many lines or entries to leave out first. Defaults to 0"},
"multiline":{"type":"boolean","description":"Let matches span lines, and . match line ends. Defaults to false"}
},"required":["pattern"],"additionalProperties":false}`),
		ReadOnly: true,
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[grepInput](t, input)
		if err != nil {
			return Access{}, err
		}
		if in.Path == "" {
			in.Path = s.workingDir()
		}
		return s.access(in.Path, "path", input, false)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[grepInput](t, input)
		if err != nil {
			return Result{}, err
		}
		return s.grep(ctx, in)
	}
	return t
}

// query is what is searched for.
type query struct {
	re            *regexp.Regexp
	ripgrep       string // the expression for ripgrep; empty if it is not to be asked
	multiline     bool
	before, after int
	first         bool // the first match of a file is enough
}

// compile reads the expression. What Go's package regexp does not take is
// refused, also when ripgrep is there and would: the result is the same.
func (in grepInput) compile() (query, error) {
	flags := syntax.Perl &^ syntax.OneLine
	if in.Fold {
		flags |= syntax.FoldCase
	}
	if in.Multiline {
		flags |= syntax.DotNL
	}
	tree, err := syntax.Parse(in.Pattern, flags)
	if err != nil {
		return query{}, tell("The pattern cannot be used: %v", err)
	}
	if !in.Multiline && wantsNewline(tree) {
		return query{}, tell(`The pattern holds a line end (\n), which never matches within a line. Set multiline to true.`)
	}
	re, err := regexp.Compile(tree.String())
	if err != nil {
		return query{}, tell("The pattern cannot be used: %v", err)
	}
	q := query{
		re: re, ripgrep: forRipgrep(tree, re.MatchString("")), multiline: in.Multiline,
		first: in.Mode != "content" && in.Mode != "count",
	}
	if in.Mode == "content" && !in.Only {
		around := max(in.Around, in.Context, 0)
		q.before = int(min(max(in.Before, around), maxContext))
		q.after = int(min(max(in.After, around), maxContext))
	}
	return q, nil
}

// wantsNewline tells whether nothing matches without a line end.
func wantsNewline(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, '\n')
	case syntax.OpCharClass:
		return len(re.Rune) == 2 && re.Rune[0] == '\n' && re.Rune[1] == '\n'
	case syntax.OpAlternate, syntax.OpStar, syntax.OpQuest:
		return false
	case syntax.OpRepeat:
		if re.Min == 0 {
			return false
		}
	}
	return slices.ContainsFunc(re.Sub, wantsNewline)
}

// candidate is a file to be searched.
type candidate struct {
	file *os.File
	path string
	time time.Time
}

// found is what a search found in one file.
type found struct {
	path  string
	time  time.Time
	lines []line
	count int // matching lines
}

// line is one that matched, or is near one that did.
type line struct {
	number int
	text   string
	match  bool
	parts  []string // what matched, in order; for "-o"
}

func (s *Set) grep(ctx context.Context, in grepInput) (Result, error) {
	in.Mode = cmp.Or(in.Mode, "files_with_matches")
	if !slices.Contains([]string{"content", "files_with_matches", "count"}, in.Mode) {
		return Result{}, inputError("Grep", []string{"The parameter `output_mode` is none of content, files_with_matches, count"})
	}
	q, err := in.compile()
	if err != nil {
		return Result{}, err
	}
	wanted, err := in.filter()
	if err != nil {
		return Result{}, err
	}
	p, err := s.searchPlace(in.Path, "Path")
	if err != nil {
		return Result{}, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, maxSearch, errSearchTime)
	defer stop()
	g := gathering{set: s, query: q, wanted: wanted}
	if p.dir {
		err = g.folder(ctx, p.place)
	} else {
		err = g.file(ctx, p.place)
	}
	if errors.Is(err, errSearchTime) || errors.Is(err, errEnough) {
		g.partial = true
	} else if err != nil {
		return Result{}, s.explain(err, in.Path)
	}
	result := s.report(in, g.found, !p.dir)
	if g.partial {
		result.Text += "\n(" + tooMuch + ")"
	}
	if n := len(g.linked); n > 0 {
		result.Text += fmt.Sprintf("\n(%d files with several hard links were not searched, such as %s.)", n, s.shown(g.linked[0]))
	}
	if g.large > 0 {
		result.Text += fmt.Sprintf("\n(%d files of more than %s were not searched.)", g.large, sizeText(maxSearched))
	}
	result.Text, err = s.Bound("grep", result.Text)
	return result, err
}

// errEnough ends a search that found more than anybody will read.
var errEnough = errors.New("enough was found")

// gathering is one search under way.
type gathering struct {
	set    *Set
	query  query
	wanted func(at spot) bool

	batch   []candidate
	found   []found
	shown   int // lines in found
	linked  []string
	large   int
	partial bool
}

func (g *gathering) folder(ctx context.Context, p place) error {
	defer g.release()
	w := walk{set: g.set, ignore: true}
	w.visit = func(dir *os.Root, name string, info fs.FileInfo, at spot) error {
		if !g.wanted(at) {
			return nil
		}
		if err := g.add(dir, name, at.path); err != nil {
			return err
		}
		if len(g.batch) < batchFiles {
			return nil
		}
		return g.search(ctx)
	}
	err := w.run(ctx, p)
	g.partial = w.partial
	if err != nil {
		return err
	}
	return g.search(ctx)
}

// file searches the one file at p, whatever its name.
func (g *gathering) file(ctx context.Context, p place) error {
	defer g.release()
	f, info, err := g.set.open(p)
	if err != nil {
		return err
	}
	if info.Size() > maxSearched {
		f.Close()
		return tell("File content (%s) exceeds maximum allowed size (%s) for a search. Use a shell command.", sizeText(info.Size()), sizeText(maxSearched))
	}
	g.batch = append(g.batch, candidate{f, p.path, info.ModTime()})
	return g.search(ctx)
}

// add opens a file for the next search, unless it is one that is not searched.
func (g *gathering) add(dir *os.Root, name, path string) error {
	f, info, err := g.set.openIn(dir, name, path)
	if _, linked := errors.AsType[*hardLinkError](err); linked {
		g.linked = append(g.linked, path)
	}
	if err != nil {
		return nil
	}
	head := make([]byte, sniffSize)
	n, err := f.ReadAt(head, 0)
	switch {
	case err != nil && err != io.EOF, bytes.IndexByte(head[:n], 0) >= 0:
		f.Close()
		return nil
	case info.Size() > maxSearched:
		g.large++
		f.Close()
		return nil
	}
	g.batch = append(g.batch, candidate{f, path, info.ModTime()})
	return nil
}

// search searches the open files and closes them.
func (g *gathering) search(ctx context.Context) error {
	defer g.release()
	if len(g.batch) == 0 {
		return nil
	}
	hits, err := g.set.search(ctx, g.batch, g.query)
	if err != nil {
		return err
	}
	for _, f := range hits {
		g.found = append(g.found, f)
		if g.shown += len(f.lines); g.shown > maxShown {
			return errEnough
		}
	}
	return nil
}

func (g *gathering) release() {
	for _, c := range g.batch {
		c.file.Close()
	}
	g.batch = nil
}

// search looks through files, in their order. Ripgrep, if it is there, finds
// those in which there is something; if it fails, all are looked through.
func (s *Set) search(ctx context.Context, files []candidate, q query) ([]found, error) {
	if s.ripgrep != "" && descriptorPath != "" && q.ripgrep != "" {
		if hits, err := s.sift(ctx, files, q); err == nil {
			files = hits
		}
	}
	return searchFiles(ctx, files, q)
}

// filter returns which files are to be searched. A glob that names a file wins
// over .gitignore, as with ripgrep.
func (in grepInput) filter() (func(spot) bool, error) {
	var include, exclude []*pattern
	for _, glob := range splitGlobs(in.Glob) {
		p, err := compilePattern(glob, true)
		if err != nil {
			return nil, tell("The glob %q cannot be used: %v.", clip(glob, 200), err)
		}
		if p.not {
			exclude = append(exclude, p)
		} else {
			include = append(include, p)
		}
	}
	var kinds []*pattern
	if in.Type != "" {
		globs, ok := fileTypes[in.Type]
		if !ok {
			return nil, tell("unrecognized file type: %s", clip(in.Type, 100))
		}
		for glob := range strings.FieldsSeq(globs) {
			p, err := compilePattern(glob, true)
			if err != nil {
				return nil, err
			}
			kinds = append(kinds, p)
		}
	}
	return func(at spot) bool {
		hit := func(p *pattern) bool { return p.match(at.rel, false) }
		switch {
		case slices.ContainsFunc(exclude, hit):
			return false
		case kinds != nil && !slices.ContainsFunc(kinds, hit):
			return false
		case include != nil:
			return slices.ContainsFunc(include, hit)
		}
		return !at.ignored
	}, nil
}

// splitGlobs cuts a list of globs at spaces, and at commas outside of braces.
func splitGlobs(list string) (globs []string) {
	for field := range strings.FieldsSeq(list) {
		if strings.ContainsAny(field, "{}") {
			globs = append(globs, field)
			continue
		}
		for glob := range strings.SplitSeq(field, ",") {
			if glob != "" {
				globs = append(globs, glob)
			}
		}
	}
	return globs
}
