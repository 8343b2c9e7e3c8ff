package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxPatch     = 1 << 20 // bytes
	maxDiffFiles = 100_000
)

// Diff is what is different in a folder since its run began.
type Diff struct {
	Files []Change // in the order of paths
	Patch string   // what is different inside of them, as git writes it; at most 1 MiB
	Cut   bool     // there is more than is here
	Left  []string // paths that cannot be compared: what may not be read, repositories inside
}

// Diff compares the folder with what it was when the run began, files that git
// does not track included, files that it ignores not. In a folder that is shared
// it has the changes of everybody.
func (sp *Space) Diff(ctx context.Context) (Diff, error) {
	d, err := sp.diff(ctx)
	if err != nil {
		return Diff{}, fmt.Errorf("comparing the workspace of run %s with its start: %w", sp.rec.Run, err)
	}
	return d, nil
}

func (sp *Space) diff(ctx context.Context) (Diff, error) {
	start := sp.rec.Base
	if sp.rec.Kind != Worktree {
		if start = sp.rec.Start; start == "" {
			return Diff{}, fmt.Errorf("what it was is not known: %s", sp.rec.NoStart)
		}
	}
	// An index of its own, so that two of them do not meet.
	look, err := sp.shadow.with(sp.shadow.index)
	if err != nil {
		return Diff{}, err
	}
	defer os.Remove(look.index)
	now, err := look.capture(ctx)
	if err != nil {
		return Diff{}, err
	}
	return look.compare(ctx, start, now)
}

// compare says what is different between two trees.
func (s *shadow) compare(ctx context.Context, from string, to captured) (Diff, error) {
	d := Diff{Left: append(to.left, to.nested...)}
	names, err := s.changes(ctx, from, to.id)
	if err != nil {
		return Diff{}, err
	}
	root, err := os.OpenRoot(s.tree)
	if err != nil {
		return Diff{}, err
	}
	defer root.Close()
	for _, ch := range names {
		if len(d.Files) == maxDiffFiles {
			d.Cut = true
			break
		}
		if info, err := root.Lstat(ch.Path); err == nil && ch.Action != Removed {
			if info.Mode().IsRegular() {
				ch.Size = info.Size()
			} else if info.Mode()&fs.ModeSymlink != 0 {
				ch.Link, _ = root.Readlink(ch.Path)
			}
		}
		d.Files = append(d.Files, ch)
	}
	patch, err := s.bounded(ctx, maxPatch, nil, "diff-tree", "-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", from, to.id)
	if errors.Is(err, errCut) {
		d.Cut, err = true, nil
	}
	d.Patch = strings.ToValidUTF8(string(patch), "\ufffd")
	return d, err
}

// changes lists the paths that are different between two trees.
func (s *shadow) changes(ctx context.Context, from, to string) ([]Change, error) {
	out, err := s.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", from, to)
	if err != nil {
		return nil, err
	}
	// ":100644 100644 1234… 5678… M", then the path.
	parts := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	var list []Change
	for i := 0; i+1 < len(parts); i += 2 {
		ch := Change{Path: filepath.ToSlash(parts[i+1]), Action: Modified}
		switch parts[i][len(parts[i])-1:] {
		case "A":
			ch.Action = Written
		case "D":
			ch.Action = Removed
		}
		list = append(list, ch)
	}
	return list, nil
}
