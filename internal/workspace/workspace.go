// Package workspace knows the folders that runs work in.
//
// [Spaces] gives a run its folder: the workspace of a swarm, a plain folder, or a
// git worktree on a branch of its own, and sees to what becomes of it. A
// repository is not trusted: nothing that its configuration, hooks or attributes
// name is run.
//
// The other part brings back what a run changed on another machine: [Take] notes what a
// folder holds, [Snapshot.Changes] says what is different later, [Changes.Pack]
// writes that down, and [Apply] does the same to a folder that is as the other was
// before.
//
// Files and symbolic links are what counts, with their content and whether they
// can be executed; folders exist as far as something is in them. Folders named
// .git and .nestor are left out, as is everything else that is no file.
package workspace

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode"
)

// What is allowed where nothing is said.
const (
	defaultFiles = 100_000
	defaultBytes = 4 << 30
)

// Options bound a snapshot, and the changes since.
type Options struct {
	MaxFiles int   // in the folder; zero means 100,000
	MaxBytes int64 // of their content; zero means 4 GiB
	Hash     bool  // read every file for Changes, also where size and time say that it is the same
}

func (o Options) withDefaults() Options {
	if o.MaxFiles == 0 {
		o.MaxFiles = defaultFiles
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultBytes
	}
	return o
}

// BoundError says that there is more than is allowed.
type BoundError struct {
	What  string // files, or bytes
	Max   int64
	Where string // a folder, or "the archive"
}

func (e *BoundError) Error() string {
	option := "MaxFiles"
	if e.What == "bytes" {
		option = "MaxBytes"
	}
	return fmt.Sprintf("%s holds more than %d %s, which is the limit (%s)", e.Where, e.Max, e.What, option)
}

// state is what a name stands for, so that two are equal if it is the same:
// "file:" or "exec:" and the SHA-256 of the content, "link:" and where it leads.
type state string

const (
	absent     state = ""
	unreadable state = "unreadable"
	folder     state = "folder"
	special    state = "special" // a device, a socket, a link that leads out
)

const (
	filePrefix = "file:"
	execPrefix = "exec:"
	linkPrefix = "link:"
)

// fileState is the state of a file.
func fileState(hash string, exec bool) state {
	if exec {
		return state(execPrefix + hash)
	}
	return state(filePrefix + hash)
}

func (s state) isFile() bool {
	return strings.HasPrefix(string(s), filePrefix) || strings.HasPrefix(string(s), execPrefix)
}

func (s state) isExec() bool { return strings.HasPrefix(string(s), execPrefix) }

// link returns where a link leads.
func (s state) link() (target string, ok bool) { return strings.CutPrefix(string(s), linkPrefix) }

// isPrivate tells whether a name is one of those that are left out, as any file
// system might spell it.
func isPrivate(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf) {
			return -1 // which HFS+ does not see
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")  // a stream of NTFS
	name = strings.TrimRight(name, ". ") // which Windows does not see
	for _, private := range []string{".git", "git~1", ".nestor", "nestor~1"} {
		if strings.EqualFold(name, private) {
			return true
		}
	}
	return false
}

// holdsPrivate tells whether a part of a path is private.
func holdsPrivate(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if isPrivate(part) {
			return true
		}
	}
	return false
}

// staysInside tells whether a link at name leads to a place in the same tree,
// whatever links are on its way: ".." is allowed at the beginning only, where all
// that it leaves are folders.
func staysInside(name, target string) bool {
	if target == "" || path.IsAbs(target) || target != path.Clean(target) || strings.ContainsAny(target, "\\:\x00") {
		return false
	}
	to := path.Join(path.Dir(name), target)
	return to != ".." && !strings.HasPrefix(to, "../") && !holdsPrivate(to)
}

// contextReader ends with the context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
