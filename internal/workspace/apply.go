package workspace

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// ApplyOptions say what Apply accepts.
type ApplyOptions struct {
	Force    bool  // also change files that are not as they were before
	MaxFiles int   // in the archive; zero means 100,000
	MaxBytes int64 // of their content; zero means 4 GiB
}

// Applied is what Apply did: sorted relative paths, with slashes. What was so
// already is in none.
type Applied struct {
	Written  []string
	Modified []string
	Removed  []string
}

// ConflictError says that a folder is not as it was where the changes were made.
type ConflictError struct {
	Paths []string // sorted
}

func (e *ConflictError) Error() string {
	names, more := e.Paths, ""
	if n := len(names) - 10; n > 0 {
		names, more = names[:10], fmt.Sprintf(" and %d more", n)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return fmt.Sprintf("not as before the run, so nothing was changed: %s%s (Force changes them all the same)", strings.Join(quoted, ", "), more)
}

// Apply does to dir what an archive of [Changes.Pack] says. It trusts nothing in
// it: whatever the archive holds, nothing outside of dir and nothing in folders
// named .git and .nestor is touched, no link is followed, and what is written are
// files and links that stay inside, as many and as large as the options allow.
//
// All is checked before the first change: an archive that is broken, or too large,
// or that finds other files than those it was made from, changes nothing; the
// latter is a [*ConflictError]. What is already as it should be is no conflict, so
// an archive may be applied twice. If a change itself fails, what was done before
// stays done, and is returned with the error.
//
// Meanwhile the content is kept in a folder below dir/.nestor, which is removed
// before Apply returns.
func Apply(ctx context.Context, dir string, r io.Reader, o ApplyOptions) (*Applied, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("applying changes to %s: %w", dir, err)
	}
	defer root.Close()
	limits := Options{MaxFiles: o.MaxFiles, MaxBytes: o.MaxBytes}.withDefaults()
	a := &application{root: root, force: o.Force, maxFiles: limits.MaxFiles, maxBytes: limits.MaxBytes}
	err = a.do(ctx, r)
	if err != nil {
		err = fmt.Errorf("applying changes to %s: %w", dir, err)
	}
	return &a.done, err
}

// application is one call of Apply.
type application struct {
	root     *os.Root
	force    bool
	maxFiles int
	maxBytes int64

	list  list
	found map[string]state // what is at the paths of the list
	stage *os.Root         // where content waits; entries are named by their number
	place string           // of it
	done  Applied
}

func (a *application) do(ctx context.Context, r io.Reader) (err error) {
	archive, err := a.open(ctx, r)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	if err := a.readList(archive); err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	if err := a.openStage(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.closeStage()) }()
	if err := a.unpack(archive); err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	return a.change(ctx)
}

// open returns the entries of an archive, as much of them as is allowed.
func (a *application) open(ctx context.Context, r io.Reader) (*tar.Reader, error) {
	zip, err := gzip.NewReader(contextReader{ctx, r})
	if err != nil {
		return nil, err
	}
	// What tar adds to each entry is bounded too: names, and padding.
	const overhead = 16 << 10
	most := a.maxBytes + maxList + overhead*(int64(a.maxFiles)+2)
	if most < a.maxBytes {
		most = math.MaxInt64
	}
	return tar.NewReader(&boundedReader{r: zip, left: most, err: &BoundError{What: "bytes", Max: a.maxBytes, Where: "the archive"}}), nil
}

// readList reads the first entry.
func (a *application) readList(archive *tar.Reader) error {
	h, err := archive.Next()
	if err != nil {
		return noEnd(err)
	}
	if h.Name != listName || h.Typeflag != tar.TypeReg || h.Size > maxList {
		return fmt.Errorf("its first entry is %q, not the list of changes %s", h.Name, listName)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return noEnd(err)
	}
	if err := json.Unmarshal(text, &a.list); err != nil {
		return fmt.Errorf("%s: %w", listName, err)
	}
	if a.list.Version != listVersion {
		return fmt.Errorf("%s is of version %d; this is for version %d", listName, a.list.Version, listVersion)
	}
	if len(a.list.Changed)+len(a.list.Removed) > a.maxFiles {
		return &BoundError{What: "files", Max: int64(a.maxFiles), Where: "the archive"}
	}
	if err := a.list.check(); err != nil {
		return fmt.Errorf("%s: %w", listName, err)
	}
	left := a.maxBytes
	for _, ch := range a.list.Changed {
		if left -= ch.Size; left < 0 {
			return &BoundError{What: "bytes", Max: a.maxBytes, Where: "the archive"}
		}
	}
	return nil
}

// openStage makes the folder that content waits in.
func (a *application) openStage() error {
	a.place = path.Join(".nestor", "incoming-"+rand.Text())
	if err := a.root.MkdirAll(a.place, 0o700); err != nil {
		return err
	}
	stage, err := a.root.OpenRoot(a.place)
	if err != nil {
		return errors.Join(err, a.closeStage())
	}
	a.stage = stage
	return nil
}

func (a *application) closeStage() error {
	if a.stage != nil {
		a.stage.Close()
	}
	err := a.root.RemoveAll(a.place)
	a.root.Remove(".nestor") // if there was none, and nothing is in it
	return err
}

// staged returns where the content of a line of the list waits.
func (a *application) staged(i int) string { return path.Join(a.place, strconv.Itoa(i)) }

// unpack puts all content where it waits, and checks that it is what is listed.
func (a *application) unpack(archive *tar.Reader) error {
	for i, ch := range a.list.Changed {
		h, err := archive.Next()
		if err != nil {
			return fmt.Errorf("%q: %w", ch.Path, noEnd(err))
		}
		target, isLink := ch.After.link()
		switch {
		case h.Name != ch.Path:
			return fmt.Errorf("entry %q where the list says %q", h.Name, ch.Path)
		case isLink && (h.Typeflag != tar.TypeSymlink || h.Linkname != target):
			return fmt.Errorf("%q is not the link that the list says", ch.Path)
		case isLink:
			err = a.stage.Symlink(target, strconv.Itoa(i))
		case h.Typeflag != tar.TypeReg || h.Size != ch.Size:
			return fmt.Errorf("%q is not the file that the list says", ch.Path)
		default:
			err = a.unpackFile(i, ch, archive)
		}
		if err != nil {
			return err
		}
	}
	switch h, err := archive.Next(); {
	case err == nil:
		return fmt.Errorf("entry %q is not in the list", h.Name)
	case err != io.EOF:
		return err
	}
	return nil
}

func (a *application) unpackFile(i int, ch changed, content io.Reader) error {
	perm := fs.FileMode(0o666)
	if ch.After.isExec() {
		perm = 0o777
	}
	f, err := a.stage.OpenFile(strconv.Itoa(i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, hash), content)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%q: %w", ch.Path, noEnd(err))
	}
	if fileState(hex.EncodeToString(hash.Sum(nil)), ch.After.isExec()) != ch.After {
		return fmt.Errorf("%q has other content than the list says", ch.Path)
	}
	return nil
}

// change does it.
func (a *application) change(ctx context.Context) error {
	for _, ch := range a.list.Removed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if a.found[ch.Path] == absent {
			continue
		}
		if err := a.remove(ch.Path); err != nil {
			return err
		}
		a.done.Removed = append(a.done.Removed, ch.Path)
	}
	for i, ch := range a.list.Changed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		found := a.found[ch.Path]
		if found == ch.After {
			continue
		}
		if err := a.put(a.staged(i), ch, found); err != nil {
			return err
		}
		if found == absent || found == folder {
			a.done.Written = append(a.done.Written, ch.Path)
		} else {
			a.done.Modified = append(a.done.Modified, ch.Path)
		}
	}
	return nil
}

// remove removes what is at name, and the folders above it that are empty then.
func (a *application) remove(name string) error {
	if err := a.root.RemoveAll(name); err != nil {
		return err
	}
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if a.root.Remove(above) != nil {
			break // there is something in it
		}
	}
	return nil
}

// put moves what waits at from to its place.
func (a *application) put(from string, ch changed, found state) error {
	// A file keeps who may read and write it.
	if info, err := a.root.Lstat(ch.Path); err == nil && info.Mode().IsRegular() && ch.After.isFile() {
		perm := info.Mode().Perm() &^ 0o111
		if ch.After.isExec() {
			perm |= perm >> 2 & 0o111 // for who may read it
		}
		if err := a.root.Chmod(from, perm); err != nil {
			return err
		}
	}
	if err := a.clearWay(ch.Path); err != nil {
		return err
	}
	if found == folder {
		if err := a.root.RemoveAll(ch.Path); err != nil {
			return err
		}
	}
	return a.root.Rename(from, ch.Path)
}

// clearWay makes the folders above name. What is in their place, which look found
// to be allowed, goes.
func (a *application) clearWay(name string) error {
	dir := path.Dir(name)
	for i := range len(dir) + 1 {
		if dir == "." || i < len(dir) && dir[i] != '/' {
			continue
		}
		info, err := a.root.Lstat(dir[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			continue
		default:
			if err := a.root.Remove(dir[:i]); err != nil {
				return err
			}
		}
		if err := a.root.Mkdir(dir[:i], 0o777); err != nil {
			return err
		}
	}
	return nil
}

// boundedReader reads so much and no more: beyond it is err.
type boundedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// noEnd returns err, which for an end is that it comes too early.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
