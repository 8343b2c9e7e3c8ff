package workspace

import (
	"context"
	"fmt"
	"io"
)

// What a Change says of a path.
const (
	Written  = "write"
	Modified = "edit"
	Removed  = "remove"
)

// Change is one change of an archive.
type Change struct {
	Path   string // relative, with slashes
	Action string // Written, Modified or Removed
	Size   int64  // of a file, after it
	Link   string // where a link leads; empty for what is none
}

// List returns what an archive of [Changes.Pack] says it changes, in the order of
// paths: what is changed first, then what is removed. It trusts the archive as
// little as [Apply] does, and reads no more of it than its list.
func List(ctx context.Context, r io.Reader, o ApplyOptions) ([]Change, error) {
	limits := Options{MaxFiles: o.MaxFiles, MaxBytes: o.MaxBytes}.withDefaults()
	a := &application{maxFiles: limits.MaxFiles, maxBytes: limits.MaxBytes}
	archive, err := a.open(ctx, r)
	if err == nil {
		err = a.readList(archive)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	var list []Change
	for _, ch := range a.list.Changed {
		c := Change{Path: ch.Path, Action: Modified, Size: ch.Size}
		if target, ok := ch.After.link(); ok {
			c.Link = target
		}
		if ch.Before == absent {
			c.Action = Written
		}
		list = append(list, c)
	}
	for _, ch := range a.list.Removed {
		list = append(list, Change{Path: ch.Path, Action: Removed})
	}
	return list, nil
}
