package agentfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Bounds of the files that a text takes in.
const (
	maxFiles   = 256 << 10 // bytes, of all together
	maxNamed   = 50        // how many
	maxVisited = 20_000    // how many are looked at to find them
)

// open returns the folder of the run.
func (r *rendering) open() (*os.Root, error) {
	if r.root != nil {
		return r.root, nil
	}
	if r.facts.Dir == "" {
		return nil, errors.New("there is no folder to read files from")
	}
	root, err := os.OpenRoot(r.facts.Dir)
	r.root = root
	return root, err
}

// holds tells whether there is such a file in the folder.
func (r *rendering) holds(name string) bool {
	root, err := r.open()
	if err != nil || name == "" || strings.ContainsRune(name, 0) {
		return false
	}
	info, err := root.Stat(filepath.FromSlash(name))
	return err == nil && info.Mode().IsRegular()
}

// read returns what is in a file of the folder, as much as there is room for.
func (r *rendering) read(name string) (string, error) {
	root, err := r.open()
	if err != nil {
		return "", err
	}
	data, err := readRegular(root, filepath.FromSlash(name), r.room)
	if err != nil {
		return "", err
	}
	cut := len(data) > r.room
	data = data[:min(len(data), r.room)]
	r.room -= len(data)
	if bytes.IndexByte(data, 0) >= 0 {
		return "[it is no text]", nil
	}
	text := strings.ToValidUTF8(string(data), string(utf8.RuneError))
	if cut {
		text += "\n[… the rest is left out: files may have " + fmt.Sprint(maxFiles) + " bytes together …]"
	}
	return text, nil
}

// opener opens files by names relative to it. An *os.Root is one that cannot be
// left.
type opener interface {
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Stat(name string) (fs.FileInfo, error)
}

// anywhere is a folder from which links may lead anywhere.
type anywhere string

func (a anywhere) Open(name string) (*os.File, error) { return os.Open(filepath.Join(string(a), name)) }
func (a anywhere) Stat(name string) (fs.FileInfo, error) {
	return os.Stat(filepath.Join(string(a), name))
}
func (a anywhere) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(string(a), name), flag, perm)
}

// readRegular returns up to limit+1 bytes of a regular file. It does not wait for
// what is none.
func readRegular(root opener, name string, limit int) ([]byte, error) {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return nil, err
	}
	return readLooked(root, name, limit)
}

// readLooked is readRegular for a file that was looked at already.
func readLooked(root opener, name string, limit int) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

var errNoFile = errors.New("it is no regular file")

func quoteFile(name, content string) string {
	return fmt.Sprintf("<file path=%q>\n%s\n</file>", name, strings.TrimRight(content, "\n"))
}

// files returns the files that fit a pattern, in which ** stands for any folders,
// each with its name.
func (r *rendering) files(pattern string) (string, error) {
	names, err := r.match(pattern)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, name := range names {
		if r.room <= 0 || len(parts) == maxNamed {
			parts = append(parts, fmt.Sprintf("[… %d more files are left out …]", len(names)-len(parts)))
			break
		}
		content, err := r.read(name)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", name, err)
		}
		parts = append(parts, quoteFile(name, content))
	}
	return strings.Join(parts, "\n"), nil
}

// match returns the regular files that fit a pattern, sorted.
func (r *rendering) match(pattern string) ([]string, error) {
	segments := strings.Split(path.Clean(pattern), "/")
	for _, s := range segments {
		if _, err := path.Match(s, ""); err != nil || s == ".." || s == "" {
			return nil, fmt.Errorf("files %.100q: it is no pattern of files below the folder", pattern)
		}
	}
	root, err := r.open()
	if err != nil {
		return nil, err
	}
	var names []string
	visited := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if visited++; visited > maxVisited {
			return fmt.Errorf("files %.100q: there are more than %d files to look at; name the folder", pattern, maxVisited)
		}
		switch {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir
		case err != nil:
			return err
		case name == ".":
			return nil
		case d.IsDir():
			if d.Name() == ".git" || d.Name() == "node_modules" || !fitsBelow(segments, strings.Split(name, "/")) {
				return fs.SkipDir
			}
		case d.Type().IsRegular() && fits(segments, strings.Split(name, "/")):
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// fits tells whether a pattern is for a path. It takes time in the product of both
// lengths.
func fits(pattern, names []string) bool {
	return slices.Contains(positions(pattern, names), len(pattern))
}

// fitsBelow tells whether a pattern may be for something below a path.
func fitsBelow(pattern, names []string) bool {
	return slices.ContainsFunc(positions(pattern, names), func(at int) bool { return at < len(pattern) })
}

// positions returns where in the pattern one can be when the names are consumed.
func positions(pattern, names []string) []int {
	at := open(pattern, []int{0})
	for _, name := range names {
		var next []int
		for _, i := range at {
			switch {
			case i == len(pattern):
			case pattern[i] == "**":
				next = append(next, i)
			default:
				if ok, _ := path.Match(pattern[i], name); ok {
					next = append(next, i+1)
				}
			}
		}
		at = open(pattern, next)
	}
	return at
}

// open adds what ** may leave out.
func open(pattern []string, at []int) []int {
	for i := 0; i < len(at); i++ {
		if at[i] < len(pattern) && pattern[at[i]] == "**" && !slices.Contains(at, at[i]+1) {
			at = append(at, at[i]+1)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}
