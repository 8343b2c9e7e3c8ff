package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// listName is the name of an archive's first entry. No file of a workspace
	// can have it.
	listName    = ".nestor/changes.json"
	listVersion = 1
	maxList     = 64 << 20 // bytes
)

// list is the first entry of an archive: what the rest does to a folder that is
// as it was before.
type list struct {
	Version int       `json:"version"`
	Changed []changed `json:"changed"` // in the order of the entries
	Removed []changed `json:"removed"`
}

// changed is one line of a list.
type changed struct {
	Path   string `json:"path"`
	Before state  `json:"before,omitempty"`
	After  state  `json:"after,omitempty"`
	Size   int64  `json:"size,omitempty"` // of a file, after
}

// Pack writes the changes to w: a gzipped tar whose first entry lists what was
// removed, and the hash that each changed file had before. The same changes are
// the same bytes. A file that is not as Changes saw it any more is an error.
func (c *Changes) Pack(ctx context.Context, w io.Writer) error {
	if err := c.pack(ctx, w); err != nil {
		return fmt.Errorf("packing the changes of %s: %w", c.dir, err)
	}
	return nil
}

func (c *Changes) pack(ctx context.Context, w io.Writer) error {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	l := c.list()
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if len(text) > maxList {
		return &BoundError{What: "bytes", Max: maxList, Where: "the list of changes"}
	}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	write := func(h tar.Header, content io.Reader) error {
		h.Format = tar.FormatPAX
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		_, err := io.Copy(archive, contextReader{ctx, content})
		return err
	}
	if err := write(tar.Header{Typeflag: tar.TypeReg, Name: listName, Mode: 0o644, Size: int64(len(text))}, bytes.NewReader(text)); err != nil {
		return err
	}
	for _, ch := range l.Changed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if target, ok := ch.After.link(); ok {
			if err := write(tar.Header{Typeflag: tar.TypeSymlink, Name: ch.Path, Linkname: target, Mode: 0o777}, bytes.NewReader(nil)); err != nil {
				return err
			}
			continue
		}
		if err := packFile(root, ch, write); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// packFile writes one file, and checks that it is the one that is listed.
func packFile(root *os.Root, ch changed, write func(tar.Header, io.Reader) error) error {
	f, err := openFile(root, ch.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := int64(0o644)
	if ch.After.isExec() {
		mode = 0o755
	}
	hash := sha256.New()
	content := io.TeeReader(io.LimitReader(f, ch.Size), hash)
	if err := write(tar.Header{Typeflag: tar.TypeReg, Name: ch.Path, Mode: mode, Size: ch.Size}, content); err != nil {
		return err
	}
	if fileState(hex.EncodeToString(hash.Sum(nil)), ch.After.isExec()) != ch.After {
		return fmt.Errorf("%s changed meanwhile", ch.Path)
	}
	return nil
}

// list returns what the archive begins with.
func (c *Changes) list() list {
	l := list{Version: listVersion, Changed: []changed{}, Removed: []changed{}}
	names := slices.Concat(c.Written, c.Modified)
	slices.Sort(names)
	for _, name := range names {
		ch := changed{Path: name, Before: known(c.before[name].state), After: c.after[name].state}
		if ch.After.isFile() {
			ch.Size = c.after[name].size
		}
		l.Changed = append(l.Changed, ch)
	}
	for _, name := range c.Removed {
		l.Removed = append(l.Removed, changed{Path: name, Before: c.before[name].state})
	}
	return l
}

// known returns what who gets an archive had, of what we had.
func known(s state) state {
	if s == special || s == unreadable {
		return absent
	}
	return s
}
