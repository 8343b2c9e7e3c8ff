package tools

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxDepth   = 64
	maxEntries = 500_000 // of one walk
	maxListing = 100_000 // of one folder
)

// walk visits the regular files below a place, in the order of their names,
// through no link. What is called .git is left out.
type walk struct {
	set     *Set
	ignore  bool // leave out the folders that a .gitignore names, and mark the files
	visit   func(dir *os.Root, name string, info fs.FileInfo, at spot) error
	entries int
	partial bool // there was more than is visited
}

// spot is where a file is.
type spot struct {
	path    string // absolute
	rel     string // from where the walk began, with slashes
	root    string // from the folder of the agent, with slashes
	ignored bool   // a .gitignore names it
}

// run walks from p, which is a folder. It ends at the first error of visit, or
// when ctx does.
func (w *walk) run(ctx context.Context, p place) error {
	dir, name, err := p.enter(false)
	if err != nil {
		return err
	}
	defer dir.Close()
	top := dir
	if name != "." {
		if top, err = step(dir, name, false); err != nil {
			return err
		}
		defer top.Close()
	}
	var list ignores
	if w.ignore {
		list = w.set.ignoresAbove(p)
	}
	return w.folder(ctx, top, p.in, spot{path: p.path, rel: ".", root: filepath.ToSlash(p.rel)}, list, 0)
}

func (w *walk) folder(ctx context.Context, dir *os.Root, in *folder, at spot, list ignores, depth int) error {
	if depth > maxDepth {
		w.partial = true
		return nil
	}
	found, err := w.listing(dir)
	if err != nil {
		return nil // it went away, or may not be read: as if it were empty
	}
	if w.ignore && slices.Contains(found, ".gitignore") {
		list = w.set.addIgnore(list, place{in: in, rel: path.Join(at.root, ".gitignore")}, at.root)
	}
	for _, name := range found {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name == ".git" {
			continue
		}
		if w.entries++; w.entries > maxEntries {
			w.partial = true
			return nil
		}
		info, err := dir.Lstat(name)
		if err != nil {
			continue
		}
		here := spot{path: filepath.Join(at.path, name), rel: path.Join(at.rel, name), root: path.Join(at.root, name)}
		switch {
		case info.IsDir():
			if w.ignore && list.match(here.root, true) {
				continue
			}
			next, err := step(dir, name, false)
			if err != nil {
				continue
			}
			err = w.folder(ctx, next, in, here, list, depth+1)
			next.Close()
			if err != nil {
				return err
			}
		case info.Mode().IsRegular():
			here.ignored = w.ignore && list.match(here.root, false)
			if err := w.visit(dir, name, info, here); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) listing(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := f.Readdirnames(maxListing)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(found) == maxListing {
		w.partial = true
	}
	slices.SortFunc(found, strings.Compare)
	return found, nil
}
