package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Copy makes to, which must not exist, a copy of the folder from: files with their
// modes and times, folders and symbolic links, these as they are. Where the file
// system can, a file is shared with its copy until one of them changes.
//
// A folder .git at the top is copied too, so that git works in the copy by itself.
// Left out are all other things named .git and all named .nestor, what is neither
// file nor folder nor link, and what may not be read. If it fails, what was copied
// so far is left there.
func Copy(ctx context.Context, from, to string, o Options) error {
	c := &copying{options: o.withDefaults(), where: from}
	if err := c.do(ctx, from, to); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

// copying is one call of Copy.
type copying struct {
	options Options
	where   string
	from    *os.Root
	to      *os.Root

	files int
	bytes int64
	late  []string // folders whose modes are set when all is in them, parents first
}

func (c *copying) do(ctx context.Context, from, to string) (err error) {
	if c.from, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer c.from.Close()
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if c.to, err = os.OpenRoot(to); err != nil {
		return err
	}
	defer c.to.Close()
	err = fs.WalkDir(c.from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return err
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case name == ".git" && d.IsDir():
		case isPrivate(d.Name()) && d.IsDir():
			return fs.SkipDir
		case isPrivate(d.Name()):
			return nil
		}
		err = c.one(ctx, name, d)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	})
	for i := len(c.late) - 1; i >= 0 && err == nil; i-- {
		err = c.settle(c.late[i])
	}
	return err
}

// one copies what is at name; of a folder, not what is in it.
func (c *copying) one(ctx context.Context, name string, d fs.DirEntry) error {
	if c.files++; c.files > c.options.MaxFiles {
		return &BoundError{What: "files", Max: int64(c.options.MaxFiles), Where: c.where}
	}
	switch {
	case d.IsDir():
		c.late = append(c.late, name)
		return c.to.Mkdir(name, 0o700)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := c.from.Readlink(name)
		if err != nil {
			return err
		}
		return c.to.Symlink(target, name)
	case d.Type().IsRegular():
		return c.file(ctx, name)
	}
	return nil
}

func (c *copying) file(ctx context.Context, name string) (err error) {
	in, err := openFile(c.from, name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if c.bytes += info.Size(); c.bytes > c.options.MaxBytes {
		return &BoundError{What: "bytes", Max: c.options.MaxBytes, Where: c.where}
	}
	out, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// Piece by piece, so that it can be ended; from file to file, so that the
	// kernel can share them.
	const piece = 64 << 20
	for left := info.Size(); left > 0 && err == nil; left -= piece {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		if _, err = io.CopyN(out, in, min(left, piece)); err == io.EOF {
			err = nil // it became shorter
			break
		}
	}
	if err = errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close()); err != nil {
		return err
	}
	return c.to.Chtimes(name, info.ModTime(), info.ModTime())
}

// settle gives a copied folder the mode of the one it was copied from.
func (c *copying) settle(name string) error {
	info, err := c.from.Stat(name)
	if err != nil {
		return nil // it is gone
	}
	// Whoever works in the copy, and removes it, must be able to.
	return c.to.Chmod(name, info.Mode().Perm()|0o700)
}
