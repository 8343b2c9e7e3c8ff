package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// errChanged is for what became a link, or something else, while a call looked.
var errChanged = errors.New("the path changed while it was looked at: part of it is now something else, such as a symbolic link; try again")

// folder is one that the agent may use.
type folder struct {
	path  string      // absolute, and through all symlinks
	info  fs.FileInfo // of the folder that it is, whatever is at path later
	write bool
	only  string // the name of the only file in it that may be used; empty means all
}

func findFolder(name string, write bool) (*folder, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	return &folder{path: path, info: info, write: write}, nil
}

// open returns what everything in the folder is opened from, which the caller
// closes. It is not held between calls: an agent that waits holds no file.
func (f *folder) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && !os.SameFile(f.info, info) {
		err = fmt.Errorf("the folder %s is not the one that it was: it was moved away or replaced", f.path)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// place is where a path leads.
type place struct {
	path string  // absolute, and through all symlinks, as they were
	in   *folder // nil if it is outside of all folders
	rel  string  // from the folder; "." is the folder itself
}

// locate finds where name leads, which need not exist. A relative one starts
// where the shell is; ".." is taken away before any link is followed.
func (s *Set) locate(name string) (place, error) {
	if name == "" {
		return place{}, errors.New("the path is empty")
	}
	if strings.ContainsRune(name, 0) {
		return place{}, fmt.Errorf("the path %q holds a zero byte", clip(name, 200))
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.workingDir(), name)
	}
	path, err := realPath(filepath.Clean(name))
	if err != nil {
		return place{}, err
	}
	p := place{path: path}
	p.in, p.rel = s.deepest(path)
	return p, nil
}

// access is what [Tool.Access] returns for a path, and Run is held to it: when
// it is given the path that was returned, it follows no link.
func (s *Set) access(name, key string, input []byte, edits bool) (Access, error) {
	p, err := s.locate(name)
	if err != nil {
		return Access{}, err
	}
	s.mu.Lock()
	s.given[p.path]++
	s.mu.Unlock()
	return Access{
		Input: withPath(input, key, p.path), Path: p.path, Edits: edits,
		Outside: p.in == nil || edits && !p.in.write,
	}, nil
}

// inside is locate for Run: where name leads must be in a folder.
func (s *Set) inside(name string, write bool) (place, error) {
	p, err := s.locate(name)
	if err != nil {
		return p, err
	}
	s.mu.Lock()
	promised := s.given[name] > 0
	if promised {
		if s.given[name]--; s.given[name] == 0 {
			delete(s.given, name)
		}
	}
	s.mu.Unlock()
	switch {
	case promised && p.path != name:
		return p, errChanged
	case isSystem(p.path):
		return p, tell("Cannot read '%s': this path names a device or process file that this tool does not read.", name)
	case p.in == nil:
		via := ""
		if p.path != filepath.Clean(name) {
			via = " (it leads to " + p.path + ")"
		}
		return p, tell("%s%s is outside of the folders that may be used: %s", name, via, s.folderNames())
	case write && !p.in.write:
		return p, tell("%s may be read but not written: write below %s", name, s.folderNames())
	}
	return p, nil
}

// isSystem tells what shows the system as files.
func isSystem(path string) bool {
	for _, dir := range []string{"/proc", "/dev", "/sys"} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// maxLinks is how many symlinks a path may lead through, as on Linux.
const maxLinks = 40

// realPath follows all symlinks in path, which is absolute and clean. From where
// nothing exists on, the path is as it is.
func realPath(path string) (string, error) {
	volume := filepath.VolumeName(path)
	top := volume + string(filepath.Separator)
	done, todo, links := top, names(path[len(volume):]), 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." { // of a link's target: done has no links, so this is its parent
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			if slices.Contains(todo, "..") {
				return "", fmt.Errorf("%s: %w", path, fs.ErrNotExist)
			}
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many levels of symbolic links", path)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = top
			target = target[len(filepath.VolumeName(target)):]
		}
		todo = append(names(target), todo...)
	}
	return done, nil
}

// names are the parts of a path, without those that mean nothing.
func names(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(n string) bool { return n == "" || n == "." })
}

// enter opens the folder that p is in, through no link, and returns it with the
// last name of p in it. The folders on the way are made if create says so. The
// caller closes it.
func (p place) enter(create bool) (dir *os.Root, name string, err error) {
	dir, err = p.in.open()
	if err != nil {
		return nil, "", err
	}
	way := names(p.rel)
	if len(way) == 0 {
		return dir, ".", nil
	}
	for _, name := range way[:len(way)-1] {
		next, err := step(dir, name, create)
		dir.Close()
		if err != nil {
			return nil, "", err
		}
		dir = next
	}
	return dir, way[len(way)-1], nil
}

// step opens the folder name in dir, which must be a folder and no link.
func step(dir *os.Root, name string, create bool) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := dir.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		before, err = dir.Lstat(name)
	}
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, errChanged
	case !before.IsDir():
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := next.Stat(".")
	if err != nil || !os.SameFile(before, after) {
		next.Close()
		return nil, errChanged
	}
	return next, nil
}

// open opens the regular file at p to be read.
func (s *Set) open(p place) (*os.File, fs.FileInfo, error) {
	if p.in == nil {
		return nil, nil, fs.ErrPermission
	}
	dir, name, err := p.enter(false)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	return s.openIn(dir, name, p.path)
}

// openIn opens the regular file name in dir, of which path is what errors say.
func (s *Set) openIn(dir *os.Root, name, path string) (*os.File, fs.FileInfo, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := s.readable(before, path); err != nil {
		return nil, nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = errChanged
	}
	if err == nil {
		err = s.readable(after, path) // it may have got another link since
	}
	if err == nil && !s.opts.HardLinks {
		err = checkName(dir, name, f)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, after, nil
}

// readable tells whether a file is one that tools read.
func (s *Set) readable(info fs.FileInfo, path string) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return tell("EISDIR: illegal operation on a directory, read '%s'", path)
	case mode&fs.ModeSymlink != 0:
		return errChanged
	case !mode.IsRegular():
		return tell("Cannot read '%s': this path names a device or process file that this tool does not read.", path)
	case !s.opts.HardLinks && hardLinks(info) > 1:
		return &hardLinkError{path, hardLinks(info)}
	}
	return nil
}

// hardLinkError is for a file that has other names, which may be outside.
type hardLinkError struct {
	path  string
	links uint64
}

func (e *hardLinkError) Error() string {
	return fmt.Sprintf("Cannot read '%s': it has %d hard links, and another one may be outside of the folders that may be used. "+
		"Copy it to a new file and read that, or have hard links allowed for this agent.", e.path, e.links)
}

// explain makes an error about the file that was named name one for the model.
func (s *Set) explain(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return tell("File does not exist. Note: your current working directory is %s.", s.workingDir())
	}
	if errors.Is(err, fs.ErrPermission) {
		return tell("EACCES: permission denied, open '%s'", name)
	}
	return err
}
