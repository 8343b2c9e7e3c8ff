package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// shadow is a git folder of ours beside a folder of files. What git does to these
// it does by this configuration, not by that of the repository they belong to: no
// filter and no driver that is named there is run, and files of LFS stay the
// pointers that they are.
type shadow struct {
	git
	dir     string   // of it
	index   string   // what was seen of the files
	tree    string   // the files
	format  string   // of object names
	objects string   // where objects are put; empty means its own
	base    string   // what an index begins with that does not exist; empty means nothing
	exclude string   // a file with more patterns of what is no work
	left    []string // files that are no work
}

// captured is what a folder holds at a time.
type captured struct {
	id     string   // the tree
	nested []string // repositories inside, which are not in it
	left   []string // what cannot be read, or is no file any more
}

// prepare writes what the shadow consists of, anew each time: others can write
// there, too.
func (s *shadow) prepare() error {
	for _, dir := range []string{"objects", "refs", "info"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	config := fmt.Sprintf("[core]\n\trepositoryformatversion = 1\n\tbare = false\n\tfilemode = %v\n\tsymlinks = %v\n[extensions]\n\tobjectformat = %s\n",
		runtime.GOOS != "windows", runtime.GOOS != "windows", s.format)
	if s.format == "sha1" {
		config = strings.ReplaceAll(config, "repositoryformatversion = 1", "repositoryformatversion = 0")
		config, _, _ = strings.Cut(config, "[extensions]")
	}
	exclude := ".nestor/\n"
	if s.exclude != "" {
		if f, err := os.Open(s.exclude); err == nil {
			text, _ := io.ReadAll(io.LimitReader(f, 64<<10))
			f.Close()
			exclude = string(text) + "\n" + exclude
		}
	}
	for _, name := range s.left {
		exclude += "/" + excludePattern(name) + "\n"
	}
	for name, content := range map[string]string{
		"HEAD": "ref: refs/heads/none\n", "config": config, "info/exclude": exclude, "info/attributes": "* -filter\n",
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// excludePattern is a pattern that fits one name alone.
func excludePattern(name string) string {
	var b strings.Builder
	for _, r := range filepath.ToSlash(filepath.Clean(name)) {
		if strings.ContainsRune(`\*?[ `, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// run runs a command on the files.
func (s *shadow) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return s.bounded(ctx, 0, stdin, args...)
}

func (s *shadow) bounded(ctx context.Context, max int, stdin io.Reader, args ...string) ([]byte, error) {
	c := call{dir: s.tree, repo: s.dir, tree: s.tree, stdin: stdin, args: args, max: max, env: []string{"GIT_INDEX_FILE=" + s.index}}
	if s.objects != "" {
		c.env = append(c.env, "GIT_OBJECT_DIRECTORY="+s.objects)
	}
	return s.git.run(ctx, c)
}

// with returns the same shadow with an index of its own, which is a copy of one
// that there is, if it is. The caller removes it.
func (s *shadow) with(index string) (*shadow, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	other := *s
	other.index = filepath.Join(s.dir, "index-"+rand.Text())
	err := copyIndex(index, other.index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &other, nil
}

// copyIndex replaces an index by another. It keeps the time: by it git knows which
// files may have changed after they were looked at without looking different.
func copyIndex(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	next := to + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(next, info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(next, to)
}

// capture writes down what the files are. It changes none of them.
func (s *shadow) capture(ctx context.Context) (captured, error) {
	if err := s.prepare(); err != nil {
		return captured{}, err
	}
	if _, err := os.Stat(s.index); errors.Is(err, fs.ErrNotExist) && s.base != "" {
		if _, err := s.run(ctx, nil, "read-tree", s.base); err != nil {
			return captured{}, err
		}
	}
	os.Remove(s.index + ".lock") // of a git that was killed: the index is ours alone
	out, err := s.run(ctx, nil, "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
	if err != nil {
		return captured{}, err
	}
	names, gone, c, err := s.sort(out)
	if err != nil {
		return captured{}, err
	}
	if len(gone) > 0 {
		if _, err := s.run(ctx, bytes.NewReader(gone), "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return captured{}, err
		}
	}
	if len(names) > 0 {
		// Above the threshold, content goes to one pack rather than to a file each, and
		// that is synced once.
		if _, err := s.run(ctx, bytes.NewReader(names), "-c", "core.bigFileThreshold=1", "update-index", "--add", "--remove", "--replace", "-z", "--stdin"); err != nil {
			return captured{}, err
		}
	}
	out, err = s.run(ctx, nil, "write-tree")
	c.id = strings.TrimSpace(string(out))
	return c, err
}

// sort tells what git can take of the names that are different, and what is gone
// because a folder is in its place.
func (s *shadow) sort(list []byte) (names, gone []byte, c captured, err error) {
	root, err := os.OpenRoot(s.tree)
	if err != nil {
		return nil, nil, c, err
	}
	defer root.Close()
	seen, limits, size := map[string]bool{}, Options{}.withDefaults(), int64(0)
	for name := range strings.SplitSeq(string(list), "\x00") {
		if name == "" || seen[name] {
			continue
		}
		if seen[name] = true; len(seen) > limits.MaxFiles {
			return nil, nil, c, &BoundError{What: "files", Max: int64(limits.MaxFiles), Where: s.tree}
		}
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			c.nested = append(c.nested, dir)
			continue
		}
		info, err := root.Lstat(name)
		switch {
		case err == nil && info.Mode().IsRegular():
			f, err := openFile(root, name)
			if err != nil {
				c.left = append(c.left, name)
				continue
			}
			f.Close()
			if size += info.Size(); size > limits.MaxBytes {
				return nil, nil, c, &BoundError{What: "bytes", Max: limits.MaxBytes, Where: s.tree}
			}
		case err == nil && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0:
			c.left = append(c.left, name)
			continue
		case errors.Is(err, fs.ErrPermission):
			c.left = append(c.left, name)
			continue
		case err == nil && info.IsDir():
			if _, err := root.Lstat(name + "/.git"); err != nil { // else it is a submodule
				gone = append(append(gone, name...), 0)
				continue
			}
		}
		names = append(append(names, name...), 0)
	}
	return names, gone, c, nil
}
