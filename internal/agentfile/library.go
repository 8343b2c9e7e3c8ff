package agentfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Options are those of a Library.
type Options struct {
	Project string // the project's folder; empty means none
	// User is the folder in which a user keeps agents, commands and skills, as
	// ~/.claude; empty means none.
	User  string
	Roles []string // that agents may have, besides the built-in ones
}

// Library is the agents that a project and a user have. It reads a file again when
// it has changed. Its methods may be called from any goroutine.
type Library struct {
	opts Options

	mu   sync.Mutex // guards what follows
	read map[string]*readFile
}

// readFile is what a file was when it was read.
type readFile struct {
	info  fs.FileInfo
	extra string // what the other files of a skill were
	entry Entry
}

// Entry is a file of a library.
type Entry struct {
	Name     string // of the agent; if the file is broken, by its place
	Kind     Kind
	Source   Source
	Problems []Problem
	// ShadowedBy is the file that goes over this one; empty if none does.
	ShadowedBy string

	definition *Definition // nil if the file is broken
}

// Definition returns the definition; false if the file is broken.
func (e Entry) Definition() (Definition, bool) {
	if e.definition == nil {
		return Definition{}, false
	}
	return e.definition.Clone(), true
}

// Address is the name by which the agent is found from everywhere.
func (e Entry) Address() string {
	if e.Source.Swarm != "" {
		return e.Source.Swarm + "/" + e.Name
	}
	return e.Name
}

// NewLibrary returns a library. It reads nothing yet.
func NewLibrary(o Options) *Library {
	return &Library{opts: o, read: map[string]*readFile{}}
}

// Bounds of a library.
const (
	maxEntries   = 10_000 // files
	maxDepth     = 8      // of folders in folders
	maxSkill     = 500    // other files of a skill
	maxSkillSize = 4 << 20
)

// Load looks at all files and returns what there is now, sorted by kind and name.
// What cannot be read is an entry with a problem. The error is that of a folder
// that cannot be looked into; what was found is returned with it.
func (l *Library) Load() (Set, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &scan{library: l, seen: map[string]bool{}}
	s.builtin()
	if l.opts.User != "" && !sameFolder(l.opts.User, filepath.Join(l.opts.Project, ".claude")) {
		s.user(l.opts.User)
	}
	if l.opts.Project != "" {
		s.project(l.opts.Project)
	}
	s.parse()
	for name := range l.read { // what is gone
		if !s.seen[name] {
			delete(l.read, name)
		}
	}
	return newSet(s.entries), errors.Join(s.errs...)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// scan looks through folders.
type scan struct {
	library *Library
	entries []Entry
	seen    map[string]bool // by whole path
	errs    []error
	changed []changed // what is to be read
	roots   []*os.Root
}

// changed is a file that is not known, or not as it is now.
type changed struct {
	place place
	entry int // in the scan
	name  string
	files []string // of a skill, besides
	now   readFile
}

// place is a folder that is looked through.
type place struct {
	root  opener
	path  string // of the root
	scope Scope
	swarm string
}

// user looks at the user's folder, in which links may lead anywhere.
func (s *scan) user(dir string) {
	s.kinds(place{root: anywhere(dir), path: dir, scope: User}, ".")
}

// project looks at a project, whose links are followed inside of it alone.
func (s *scan) project(dir string) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("looking for agents: %w", err))
		return
	}
	s.roots = append(s.roots, root)
	p := place{root: root, path: dir, scope: Project}
	s.kinds(p, ".claude")
	swarms, err := s.list(p, "swarms")
	if err != nil {
		return
	}
	for _, d := range swarms {
		q := p
		q.scope, q.swarm = Swarm, d.Name()
		s.walk(q, path.Join("swarms", d.Name(), "agents"), 1, func(name string) { s.file(q, name, Agent, stem(name)) })
	}
}

// kinds looks at the three folders that Claude Code has.
func (s *scan) kinds(p place, dir string) {
	s.walk(p, path.Join(dir, "agents"), maxDepth, func(name string) { s.file(p, name, Agent, stem(name)) })
	s.walk(p, path.Join(dir, "commands"), maxDepth, func(name string) {
		inside := strings.TrimPrefix(strings.TrimSuffix(name, path.Ext(name)), path.Join(dir, "commands")+"/")
		s.file(p, name, Command, strings.ReplaceAll(inside, "/", ":"))
	})
	skills, err := s.list(p, path.Join(dir, "skills"))
	if err != nil {
		return
	}
	for _, d := range skills {
		name := path.Join(dir, "skills", d.Name(), "SKILL.md")
		if info, err := p.root.Stat(filepath.FromSlash(name)); err == nil && !info.IsDir() {
			s.file(p, name, Skill, d.Name())
		}
	}
}

func stem(name string) string { return strings.TrimSuffix(path.Base(name), path.Ext(name)) }

// list returns what is in a folder. One that is not there is empty.
func (s *scan) list(p place, dir string) ([]fs.DirEntry, error) {
	f, err := p.root.Open(filepath.FromSlash(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []fs.DirEntry
	if err == nil {
		all, err = f.ReadDir(maxEntries)
		f.Close()
		if errors.Is(err, io.EOF) { // it is empty
			err = nil
		}
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("looking for agents: %w", err))
		return nil, err
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

// walk calls found for each Markdown file below a folder, links followed, but none to
// a folder that was looked at.
func (s *scan) walk(p place, dir string, depth int, found func(name string)) {
	var seen []fs.FileInfo
	var walk func(string, int)
	walk = func(dir string, depth int) {
		info, err := p.root.Stat(filepath.FromSlash(dir))
		if depth == 0 || err == nil && slices.ContainsFunc(seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
			return
		}
		seen = append(seen, info)
		folders, files := s.inside(p, dir)
		for _, name := range files {
			found(name)
		}
		for _, name := range folders {
			walk(name, depth-1)
		}
	}
	walk(dir, depth)
}

// inside returns the folders in a folder, those that links lead to last, and the
// Markdown files.
func (s *scan) inside(p place, dir string) (folders, files []string) {
	all, err := s.list(p, dir)
	if err != nil {
		return nil, nil
	}
	var linked []string
	for _, d := range all {
		name := path.Join(dir, d.Name())
		if strings.HasPrefix(d.Name(), ".") {
			continue
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if info, err := p.root.Stat(filepath.FromSlash(name)); err == nil && info.IsDir() {
				linked = append(linked, name)
				continue
			}
		}
		switch {
		case d.IsDir():
			folders = append(folders, name)
		case strings.EqualFold(path.Ext(d.Name()), ".md"):
			files = append(files, name)
		}
	}
	return append(folders, linked...), files
}

// file reads one file, unless it is as it was.
func (s *scan) file(p place, name string, kind Kind, called string) {
	whole := filepath.Join(p.path, filepath.FromSlash(name))
	if s.seen[whole] {
		return
	}
	if len(s.entries) >= maxEntries {
		if len(s.errs) == 0 || !errors.Is(s.errs[len(s.errs)-1], errTooMany) {
			s.errs = append(s.errs, errTooMany)
		}
		return
	}
	s.seen[whole] = true
	src := Source{Scope: p.scope, Swarm: p.swarm, File: name, Path: whole}
	if p.scope == User {
		src.File = "~/.claude/" + name
	}
	broken := func(format string, args ...any) {
		s.entries = append(s.entries, Entry{Name: called, Kind: kind, Source: src, Problems: []Problem{{File: src.File, Message: fmt.Sprintf(format, args...)}}})
	}
	info, err := p.root.Stat(filepath.FromSlash(name))
	switch {
	case err != nil && p.scope != User:
		broken("%v; in a project, links are followed inside of it alone", plain(err))
		return
	case err != nil:
		broken("%v", plain(err))
		return
	case !info.Mode().IsRegular():
		broken("it is no regular file, and is not read")
		return
	}
	extra, files := "", []string(nil)
	if kind == Skill {
		src.Dir = path.Dir(src.File)
		extra, files = s.others(p, path.Dir(name))
	}
	old := s.library.read[whole]
	if old != nil && old.extra == extra && os.SameFile(old.info, info) && old.info.Size() == info.Size() && old.info.ModTime().Equal(info.ModTime()) {
		s.entries = append(s.entries, old.entry)
		return
	}
	s.changed = append(s.changed, changed{p, len(s.entries), name, files, readFile{info: info, extra: extra}})
	s.entries = append(s.entries, Entry{Name: called, Kind: kind, Source: src})
}

// parse reads what has changed, several files at once.
func (s *scan) parse() {
	defer func() {
		for _, root := range s.roots {
			root.Close()
		}
	}()
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(s.changed)) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(s.changed)); i = next.Add(1) - 1 {
				s.changed[i].read(&s.entries[s.changed[i].entry], s.library.opts.Roles)
			}
		})
	}
	readers.Wait()
	for _, c := range s.changed {
		if c.now.entry = s.entries[c.entry]; c.now.entry.definition != nil { // what is broken is read again
			s.library.read[c.now.entry.Source.Path] = &c.now
		}
	}
}

// read makes the entry of a file.
func (c changed) read(e *Entry, roles []string) {
	data, err := readLooked(c.place.root, filepath.FromSlash(c.name), MaxFile)
	if err != nil {
		e.Problems = []Problem{{File: e.Source.File, Message: plain(err).Error()}}
		return
	}
	e.definition, e.Problems = Parse(e.Source, e.Kind, e.Name, data, roles)
	if e.definition == nil {
		return
	}
	if e.Kind == Skill {
		e.definition.Hash = hash(c.place, e.definition.Hash, path.Dir(c.name), c.files)
	}
	e.Name, e.Kind = e.definition.Name, e.definition.Kind
}

var errTooMany = fmt.Errorf("looking for agents: there are more than %d files; the others are left out", maxEntries)

// plain leaves the path out, which the place names.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// others says what the other files of a skill are, without reading them, and
// returns their names.
func (s *scan) others(p place, dir string) (state string, names []string) {
	var b strings.Builder
	var walk func(string, int)
	walk = func(at string, depth int) {
		all, err := s.list(p, at)
		if err != nil || depth == 0 {
			return
		}
		for _, d := range all {
			name := path.Join(at, d.Name())
			if len(names) >= maxSkill || d.Name() == ".git" || d.Name() == "node_modules" {
				continue
			}
			if d.IsDir() {
				walk(name, depth-1)
				continue
			}
			if info, err := d.Info(); err == nil && d.Type().IsRegular() && name != path.Join(dir, "SKILL.md") {
				fmt.Fprintf(&b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
				names = append(names, name)
			}
		}
	}
	walk(dir, maxDepth)
	return b.String(), names
}

// hash is that of a skill: of its file, and of the names and contents of the
// others, as far as they fit. Of the rest, names count.
func hash(p place, own, dir string, names []string) string {
	h := sha256.New()
	fmt.Fprintln(h, own)
	room := maxSkillSize
	for _, name := range names {
		fmt.Fprintf(h, "%q\n", strings.TrimPrefix(name, dir+"/"))
		data, err := readRegular(p.root, filepath.FromSlash(name), min(room, MaxFile))
		if err != nil {
			continue
		}
		room = max(0, room-len(data))
		sum := sha256.Sum256(data)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
