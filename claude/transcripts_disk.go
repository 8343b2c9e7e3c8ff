package claude

import (
	"context"
	"encoding/json"
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
	"syscall"
	"time"
)

// window is how much of each end of a transcript a listing reads.
const window = 64 << 10

// maxSidecar bounds the small files beside a transcript.
const maxSidecar = 64 << 10

// projectsFolder is the CLI's folder of sessions. What is reached through it
// lies inside it, whatever links it holds.
type projectsFolder struct {
	root   *os.Root
	path   string
	forced string // the one project name that the environment allows, or ""
}

// projectFolder is the folder of one project.
type projectFolder struct {
	name string // below projects
	dir  string // the directory whose sessions are sought there; empty means any
}

// openProjects returns an error that is fs.ErrNotExist if the CLI kept nothing
// yet. The caller closes root.
func (t Transcripts) openProjects() (*projectsFolder, error) {
	config, err := claudeConfigDir(t.ConfigDir)
	if err != nil {
		return nil, err
	}
	p := &projectsFolder{path: filepath.Join(config, "projects")}
	if t.ConfigDir == "" && os.Getenv("CLAUDE_CONFIG_DIR") != "" {
		p.forced = projectNameOverride()
	}
	p.root, err = os.OpenRoot(p.path)
	return p, err
}

// folders returns where the sessions of dir may be, dir's own folder first and
// those of its worktrees after it. An empty dir means all folders.
func (p *projectsFolder) folders(ctx context.Context, dir string, withWorktrees bool) ([]projectFolder, error) {
	if dir == "" {
		names, err := p.names()
		var all []projectFolder
		for _, name := range names {
			all = append(all, projectFolder{name: name})
		}
		return all, err
	}
	dir = canonicalDir(dir)
	if p.forced != "" {
		return []projectFolder{{name: p.forced, dir: dir}}, nil
	}
	dirs := []string{dir}
	if withWorktrees {
		for _, w := range worktrees(ctx, dir) {
			dirs = append(dirs, canonicalDir(w))
		}
	}
	var found []projectFolder
	seen := make(map[string]bool)
	for _, dir := range dirs {
		for _, name := range p.matching(dir) {
			if !seen[name] {
				seen[name] = true
				found = append(found, projectFolder{name: name, dir: dir})
			}
		}
	}
	return found, nil
}

// names lists the project folders.
func (p *projectsFolder) names() ([]string, error) {
	entries, err := fs.ReadDir(p.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", p.path, err)
	}
	var names []string
	for _, e := range entries {
		if info, err := p.root.Stat(e.Name()); err == nil && info.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// matching returns the folders of a canonical directory: the one with its key,
// and for a key that was cut those that another hash may have named.
func (p *projectsFolder) matching(dir string) []string {
	key := pathKey(dir)
	found := []string{key}
	prefix := truncatedPrefix(key)
	if prefix == "" {
		return found
	}
	names, _ := p.names() // without them the exact name is all there is
	for _, name := range names {
		if name != key && strings.HasPrefix(name, prefix) && p.heldSessionsOf(name, key) {
			found = append(found, name)
		}
	}
	return found
}

// heldSessionsOf tells whether a session in the folder ran in a directory with
// the key. Prefixes collide, so the name alone proves nothing.
func (p *projectsFolder) heldSessionsOf(folder, key string) bool {
	for _, s := range p.sessions(projectFolder{name: folder}) {
		d, err := p.digest(s)
		if err != nil {
			continue
		}
		for _, cwd := range []string{d.Cwd, d.RelocatedCwd} {
			if cwd != "" && pathKey(canonicalDir(cwd)) == key {
				return true
			}
		}
	}
	return false
}

// sessionFile is a transcript on disk.
type sessionFile struct {
	projectFolder
	id       string
	size     int64
	modified time.Time
}

// main is the path of the transcript below projects, beside that of the folder
// with everything else about the session.
func (s sessionFile) main() string   { return path.Join(s.name, s.id+".jsonl") }
func (s sessionFile) folder() string { return path.Join(s.name, s.id) }

// session looks for one session in one folder. Links, pipes and empty files
// are not sessions.
func (p *projectsFolder) session(folder projectFolder, id string) (sessionFile, bool) {
	s := sessionFile{projectFolder: folder, id: id}
	info, err := p.root.Lstat(s.main())
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return s, false
	}
	s.size, s.modified = info.Size(), info.ModTime()
	return s, true
}

// sessions lists the transcripts in one folder, none if it cannot be read.
func (p *projectsFolder) sessions(folder projectFolder) []sessionFile {
	entries, err := fs.ReadDir(p.root.FS(), folder.name)
	if err != nil {
		return nil
	}
	var found []sessionFile
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if !ok || !validSessionID(id) {
			continue
		}
		if s, ok := p.session(folder, id); ok {
			found = append(found, s)
		}
	}
	return found
}

// find returns every copy of a session and where it looked. The copy in the
// folder of dir comes first; without dir it is the newest, as in a listing.
func (p *projectsFolder) find(ctx context.Context, id, dir string) (copies []sessionFile, searched []string, err error) {
	folders, err := p.folders(ctx, dir, true)
	for _, f := range folders {
		searched = append(searched, filepath.Join(p.path, f.name))
		if s, ok := p.session(f, id); ok {
			copies = append(copies, s)
		}
	}
	if dir == "" {
		searched = []string{filepath.Join(p.path, "*")}
		slices.SortStableFunc(copies, func(a, b sessionFile) int { return b.modified.Compare(a.modified) })
	}
	return copies, searched, err
}

// withSession calls do with every copy of a session, at least one. It is the
// start of everything that needs the session to be on disk.
func (t Transcripts) withSession(ctx context.Context, id, dir string, do func(*projectsFolder, []sessionFile) error) error {
	if err := checkSessionID(id); err != nil {
		return err
	}
	p, err := t.openProjects()
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(id, p.path)
	}
	if err != nil {
		return err
	}
	defer p.root.Close()
	copies, searched, err := p.find(ctx, id, dir)
	if err != nil {
		return err
	}
	if len(copies) == 0 {
		return notFound(id, searched...)
	}
	return do(p, copies)
}

// openRegular opens a regular file, with mode 0600 if flag asks to create it.
// It does not wait for the other end of a pipe that took the file's place.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	if runtime.GOOS != "windows" {
		flag |= syscall.O_NONBLOCK
	}
	f, err := root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// transcript reads a whole file of entries.
func (p *projectsFolder) transcript(ctx context.Context, name string) ([]*transcriptLine, error) {
	f, err := openRegular(p.root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTranscript(ctx, f)
}

// sidecar reads a small file with a JSON object into v, and reports false if
// there is no such thing.
func (p *projectsFolder) sidecar(name string, v any) bool {
	data, ok := p.sidecarBytes(name)
	return ok && unmarshalLoosely(data, v)
}

func (p *projectsFolder) sidecarBytes(name string) (json.RawMessage, bool) {
	if info, err := p.root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	f, err := openRegular(p.root, name, os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSidecar+1))
	return data, err == nil && len(data) <= maxSidecar
}
