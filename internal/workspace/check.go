package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// check tells what no archive of ours has: paths that lead out or to what is
// private, twice the same, things that are neither files nor links.
func (l *list) check() error {
	var last string
	changes := map[string]bool{}
	for i, ch := range l.Changed {
		if err := checkPath(ch.Path); err != nil {
			return err
		}
		if i > 0 && ch.Path <= last {
			return fmt.Errorf("%q is there twice, or out of order", ch.Path)
		}
		last = ch.Path
		changes[ch.Path] = true
		target, isLink := ch.After.link()
		switch {
		case isLink && !staysInside(ch.Path, target):
			return fmt.Errorf("link %q leads to %q, which is not inside", ch.Path, target)
		case isLink && ch.Size != 0, ch.Size < 0:
			return fmt.Errorf("%q has a size of %d", ch.Path, ch.Size)
		case !isLink && !ch.After.isFile():
			return fmt.Errorf("%q becomes %.40q, which is neither file nor link", ch.Path, ch.After)
		}
	}
	for i, ch := range l.Removed {
		if err := checkPath(ch.Path); err != nil {
			return err
		}
		if i > 0 && ch.Path <= last {
			return fmt.Errorf("%q is removed twice, or out of order", ch.Path)
		}
		last = ch.Path
		if changes[ch.Path] {
			return fmt.Errorf("%q is both changed and removed", ch.Path)
		}
	}
	for name := range changes {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			if changes[above] {
				return fmt.Errorf("%q is below %q, which is no folder", name, above)
			}
		}
	}
	return nil
}

// checkPath tells whether something may be at name.
func checkPath(name string) error {
	switch {
	case !fs.ValidPath(name) || name == "." || strings.Contains(name, "\x00"):
		return fmt.Errorf("path %.200q is not inside", name)
	case !filepath.IsLocal(filepath.FromSlash(name)) || filepath.Separator != '/' && strings.ContainsAny(name, `\:`):
		return fmt.Errorf("path %.200q is no path here", name)
	case holdsPrivate(name):
		return fmt.Errorf("path %.200q is in a folder that is left out", name)
	}
	return nil
}

// look finds what is at the paths of the list. What is neither as before nor as
// it shall be is a conflict.
func (a *application) look(ctx context.Context) error {
	a.found = map[string]state{}
	removed, changes, going := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, ch := range a.list.Removed {
		removed[ch.Path], going[ch.Path] = true, true
	}
	for _, ch := range a.list.Changed {
		changes[ch.Path] = true
		for name := ch.Path; name != "."; name = path.Dir(name) {
			going[name] = true
		}
	}
	conflicts := map[string]bool{}
	for i, ch := range slices.Concat(a.list.Removed, a.list.Changed) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		found, obstacle, err := a.at(ctx, ch.Path)
		if err != nil {
			return err
		}
		isRemoval := i < len(a.list.Removed)
		if found == folder && isRemoval {
			done, err := a.isMade(ch.Path, changes)
			if err != nil {
				return err
			}
			if done {
				found = absent // the file is gone, and the folder is ours
			}
		}
		a.found[ch.Path] = found
		if obstacle != "" && !isRemoval && !removed[obstacle] {
			conflicts[obstacle] = true
		}
		if target, ok := ch.After.link(); ok && !leadsInside(a.root, ch.Path, target, going) && found != ch.After {
			return fmt.Errorf("link %q leads to %q, from where another link leads out", ch.Path, target)
		}
		if found == folder {
			if err := a.lookBelow(ch.Path, removed, conflicts, isRemoval); err != nil {
				return err
			}
			continue
		}
		if found != ch.Before && found != ch.After {
			conflicts[ch.Path] = true
		}
	}
	if len(conflicts) == 0 || a.force {
		return nil
	}
	e := &ConflictError{}
	for name := range conflicts {
		e.Paths = append(e.Paths, name)
	}
	slices.Sort(e.Paths)
	return e
}

// at returns what is at name. If something above it is no folder, that is the
// obstacle, and nothing is at name.
func (a *application) at(ctx context.Context, name string) (found state, obstacle string, err error) {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		switch info, err := a.root.Lstat(name[:i]); {
		case errors.Is(err, fs.ErrNotExist):
			return absent, "", nil
		case err != nil:
			return absent, "", err
		case !info.IsDir():
			return absent, name[:i], nil
		}
	}
	info, err := a.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, "", nil
	}
	if err != nil {
		return absent, "", err
	}
	found, err = stateOf(ctx, a.root, name, info)
	if errors.Is(err, fs.ErrPermission) {
		return unreadable, "", nil
	}
	return found, "", err
}

// isMade tells whether a folder holds nothing but what the list puts there.
func (a *application) isMade(name string, changes map[string]bool) (bool, error) {
	made := true
	err := fs.WalkDir(a.root.FS(), name, func(below string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !changes[below] {
			made = false
			return fs.SkipAll
		}
		return err
	})
	return made, err
}

// lookBelow looks at a folder where a file or nothing shall be. All in it has to be
// removed by the list; what is private stays in any case.
func (a *application) lookBelow(name string, removed, conflicts map[string]bool, isRemoval bool) error {
	if isRemoval {
		conflicts[name] = true // a file was to be removed
	}
	return fs.WalkDir(a.root.FS(), name, func(below string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case below != name && isPrivate(d.Name()):
			return fmt.Errorf("%q is to be replaced, and holds %q", name, below)
		case !d.IsDir() && !removed[below]:
			conflicts[below] = true
		}
		return nil
	})
}
