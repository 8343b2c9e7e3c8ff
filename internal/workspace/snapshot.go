package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// coarse is how much a file system's clock may be behind: FAT counts in steps of
// two seconds.
const coarse = 2 * time.Second

// Snapshot is what a folder held at a time: names, sizes, modes, times, and
// hashes of content. It does not change, and may be used by many at once.
type Snapshot struct {
	dir     string
	options Options
	taken   time.Time // before the first file was looked at
	entries map[string]entry
}

// entry is what is known of a name.
type entry struct {
	state state
	size  int64
	time  time.Time
}

// Changes are what is different from a snapshot to what was there later. The
// paths are relative, with slashes, and sorted.
type Changes struct {
	Written  []string // are new
	Modified []string // are not what they were; or cannot be executed any more, or can now
	Removed  []string
	Left     []string // are different too, but cannot be packed: links that lead out of the folder, devices, what may not be read

	dir    string
	before map[string]entry
	after  map[string]entry
}

// Take looks at all that dir holds. What comes and goes meanwhile may be in the
// snapshot or not.
func Take(ctx context.Context, dir string, o Options) (*Snapshot, error) {
	s := &Snapshot{dir: dir, options: o.withDefaults(), taken: time.Now()}
	entries, err := s.walk(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("taking a snapshot of %s: %w", dir, err)
	}
	s.entries = entries
	return s, nil
}

// Changes compares what is there now with the snapshot. A file of the same size
// and time is taken to be the same, unless the time is too near the snapshot to
// tell, or Options.Hash asks for certainty.
func (s *Snapshot) Changes(ctx context.Context) (*Changes, error) {
	now, err := s.walk(ctx, s.entries)
	if err != nil {
		return nil, fmt.Errorf("looking for changes in %s: %w", s.dir, err)
	}
	return compare(s.dir, s.entries, now), nil
}

// compare returns what is different between two walks of a folder.
func compare(dir string, before, after map[string]entry) *Changes {
	c := &Changes{dir: dir, before: before, after: after}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		old, existed := before[name]
		now := after[name]
		if existed && (old.state == now.state && now.state != unreadable || old == now) {
			continue
		}
		switch {
		case now.state == special || now.state == unreadable || old.state == unreadable:
			c.Left = append(c.Left, name)
		case !existed || old.state == special: // what is not carried is not there, for who gets the rest
			c.Written = append(c.Written, name)
		default:
			c.Modified = append(c.Modified, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, exists := after[name]; exists {
			continue
		}
		gone := known(before[name].state) != absent
		for above := path.Dir(name); above != "." && gone; above = path.Dir(above) {
			gone = after[above].state != unreadable // else it cannot be seen, which is not the same
		}
		if gone {
			c.Removed = append(c.Removed, name)
		} else {
			c.Left = append(c.Left, name)
		}
	}
	slices.Sort(c.Left)
	return c
}

// Empty tells whether there is nothing to pack.
func (c *Changes) Empty() bool { return len(c.Written)+len(c.Modified)+len(c.Removed) == 0 }

// walk returns what is below the folder. It does not read what is as before.
func (s *Snapshot) walk(ctx context.Context, before map[string]entry) (map[string]entry, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, bytes := map[string]entry{}, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == "." && err != nil:
			return err
		case name == ".":
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return nil // it is gone
		case errors.Is(err, fs.ErrPermission):
			entries[name] = entry{state: unreadable}
			return fs.SkipDir
		case err != nil:
			return err
		case isPrivate(d.Name()) && d.IsDir():
			return fs.SkipDir
		case isPrivate(d.Name()):
			return nil // .git is a file in a worktree
		case !utf8.ValidString(name):
			entries[strings.ToValidUTF8(name, "\ufffd")] = entry{state: special}
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		if len(entries) == s.options.MaxFiles {
			return &BoundError{What: "files", Max: int64(s.options.MaxFiles), Where: s.dir}
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes += info.Size(); bytes > s.options.MaxBytes {
			return &BoundError{What: "bytes", Max: s.options.MaxBytes, Where: s.dir}
		}
		e := entry{size: info.Size(), time: info.ModTime()}
		if old, ok := before[name]; ok && s.same(old, e, info.Mode()) {
			entries[name] = old
			return nil
		}
		switch e.state, err = stateOf(ctx, root, name, info); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			e.state = unreadable
		case err != nil:
			return err
		}
		entries[name] = e
		return nil
	})
	return entries, err
}

// same tells whether a file needs no reading to be known as the old one.
func (s *Snapshot) same(old, now entry, mode fs.FileMode) bool {
	return !s.options.Hash && mode.IsRegular() && old.state.isFile() &&
		old.state.isExec() == isExec(mode) && old.size == now.size && old.time.Equal(now.time) &&
		now.time.Before(s.taken.Add(-coarse))
}

func isExec(mode fs.FileMode) bool { return mode&0o111 != 0 }

// stateOf returns what is at name, which is info.
func stateOf(ctx context.Context, root *os.Root, name string, info fs.FileInfo) (state, error) {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return folder, nil
	case mode.IsRegular():
		f, err := openFile(root, name)
		if err != nil {
			return absent, err
		}
		defer f.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, contextReader{ctx, f}); err != nil {
			return absent, err
		}
		return fileState(hex.EncodeToString(hash.Sum(nil)), isExec(mode)), nil
	case mode&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return absent, err
		}
		if target = toSlash(target); !staysInside(name, target) || !leadsInside(root, name, target, nil) || !utf8.ValidString(target) {
			return special, nil
		}
		return state(linkPrefix + target), nil
	}
	return special, nil
}

// leadsInside tells whether what a link leads to, through all links that there
// are now, is in the tree or nowhere. Links that are going to be something else
// lead nowhere; nil means that there are none.
func leadsInside(root *os.Root, name, target string, going map[string]bool) bool {
	const tooMany = 40 // links: they lead in circles, and so nowhere
	at, todo := path.Dir(name), strings.Split(target, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && at == ".":
			return false
		case part == "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := root.Lstat(next)
		if err != nil {
			return true
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if going[next] {
			return true
		}
		to, err := root.Readlink(next)
		if links++; err != nil || links > tooMany {
			return true
		}
		if to = toSlash(to); path.IsAbs(to) || filepath.IsAbs(to) {
			return false
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return true
}

// openFile opens a file for reading. What is no file any more is an error, and
// nothing that it waits for.
func openFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|dontWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("it is no file any more")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
