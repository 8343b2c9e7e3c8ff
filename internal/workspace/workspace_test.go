package workspace

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree is what a folder holds: content by path. What begins with "-> " is a
// link, and what begins with "#!" can be executed.
type tree map[string]string

const linkMark = "-> "

// write makes dir hold what the tree does, on top of what is there.
func (tr tree) write(t testing.TB, dir string) {
	t.Helper()
	for name, content := range tr {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		os.RemoveAll(file)
		var err error
		if target, ok := strings.CutPrefix(content, linkMark); ok {
			err = os.Symlink(target, file)
		} else {
			perm := fs.FileMode(0o644)
			if strings.HasPrefix(content, "#!") {
				perm = 0o755
			}
			err = os.WriteFile(file, []byte(content), perm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readTree returns what dir holds, all of it.
func readTree(t testing.TB, dir string) tree {
	t.Helper()
	tr := tree{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(file)
			tr[filepath.ToSlash(name)] = linkMark + target
			return err
		}
		content, err := os.ReadFile(file)
		tr[filepath.ToSlash(name)] = string(content)
		info, _ := d.Info()
		if exec := info.Mode()&0o100 != 0; exec != strings.HasPrefix(string(content), "#!") {
			t.Errorf("%s: executable %v, with %q", name, exec, content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func newDir(t testing.TB, tr tree) string {
	t.Helper()
	dir := t.TempDir()
	tr.write(t, dir)
	return dir
}

func take(t testing.TB, dir string, o Options) *Snapshot {
	t.Helper()
	s, err := Take(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func changesOf(t testing.TB, s *Snapshot) *Changes {
	t.Helper()
	c, err := s.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pack(t testing.TB, c *Changes) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Pack(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var before = tree{
	"same.txt":       "as it was",
	"edit.go":        "package old",
	"gone.txt":       "gone",
	"deep/er/gone":   "gone",
	"tool.sh":        "echo",
	"folder/a":       "a",
	"folder/b":       "b",
	"file":           "a file",
	"link":           "-> same.txt",
	"turn":           "-> folder/a",
	".git/config":    "secret",
	"sub/.git":       "gitdir: elsewhere",
	".nestor/log":    "log",
	"sub/.nestor/db": "db",
}

// work changes dir as a run might.
func work(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"gone.txt", "deep", "folder", "file", ".git/config"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tree{
		"edit.go": "package new", "tool.sh": "#!/bin/sh\necho", "new/deep/file": "new", "folder": "is a file now",
		"file/is/a/folder": "now", "turn": "-> new/deep", "new/link": "-> ../same.txt", "empty": "",
		"out": "-> /etc/passwd", "up": "-> ../..", ".nestor/log": "more", "sub/.git": "other",
	}.write(t, dir)
}

var workDone = Changes{
	Written:  []string{"empty", "file/is/a/folder", "folder", "new/deep/file", "new/link"},
	Modified: []string{"edit.go", "tool.sh", "turn"},
	Removed:  []string{"deep/er/gone", "file", "folder/a", "folder/b", "gone.txt"},
	Left:     []string{"out", "up"},
}

func (c *Changes) names() [4][]string { return [4][]string{c.Written, c.Modified, c.Removed, c.Left} }

func TestChangesComeBack(t *testing.T) {
	there, here := newDir(t, before), newDir(t, before)
	s := take(t, there, Options{})
	if c := changesOf(t, s); !c.Empty() || c.Left != nil {
		t.Errorf("changes of nothing: %q", c.names())
	}
	work(t, there)
	c := changesOf(t, s)
	if got, want := c.names(), workDone.names(); !reflect.DeepEqual(got, want) {
		t.Fatalf("changes are\n%q, want\n%q", got, want)
	}
	archive := pack(t, c)
	if again := pack(t, c); !bytes.Equal(archive, again) {
		t.Error("the same changes are other bytes")
	}
	done, err := Apply(t.Context(), here, bytes.NewReader(archive), ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := [4][]string{done.Written, done.Modified, done.Removed}, workDone.names(); !reflect.DeepEqual(got[:3], want[:3]) {
		t.Errorf("applied\n%q, want\n%q", got[:3], want[:3])
	}
	want := readTree(t, there)
	for _, name := range append(workDone.Left, ".git/config", ".nestor/log", "sub/.git") {
		delete(want, name)
	}
	for _, name := range []string{".git/config", ".nestor/log", "sub/.git"} {
		want[name] = before[name]
	}
	if got := readTree(t, here); !maps.Equal(got, want) {
		t.Errorf("here is\n%q, want\n%q", got, want)
	}
	if _, err := os.Stat(filepath.Join(here, "deep")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder stays: %v", err)
	}
	done, err = Apply(t.Context(), here, bytes.NewReader(archive), ApplyOptions{})
	if err != nil || len(done.Written)+len(done.Modified)+len(done.Removed) > 0 {
		t.Errorf("the second time: %+v, %v", done, err)
	}
}

func TestConflictChangesNothing(t *testing.T) {
	there := newDir(t, before)
	s := take(t, there, Options{})
	work(t, there)
	archive := pack(t, changesOf(t, s))
	for _, test := range []struct {
		name  string
		here  tree     // on top of before
		gone  []string // from it
		paths []string // in conflict
		stop  string   // what is said, also with Force
	}{
		{name: "edited", here: tree{"edit.go": "package mine"}, paths: []string{"edit.go"}},
		{name: "same size", here: tree{"edit.go": "package odd"}, paths: []string{"edit.go"}},
		{name: "executable", here: tree{"edit.go": "#!ackage old"}, paths: []string{"edit.go"}},
		{name: "edited what was removed", here: tree{"gone.txt": "kept"}, paths: []string{"gone.txt"}},
		{name: "already gone", gone: []string{"gone.txt"}},
		{name: "already done", here: tree{"edit.go": "package new"}},
		{name: "gone what was edited", gone: []string{"edit.go"}, paths: []string{"edit.go"}},
		{name: "made what was made", here: tree{"empty": "mine", "new/link": "-> x"}, paths: []string{"empty", "new/link"}},
		{name: "another link", here: tree{"turn": "-> folder/b"}, paths: []string{"turn"}},
		{name: "a file where a folder shall be", here: tree{"new": "file"}, paths: []string{"new"}},
		{name: "a link where a folder shall be", here: tree{"new": "-> folder"}, paths: []string{"new"}},
		{name: "a link that leads out where a folder shall be", here: tree{"new": "-> /"}, paths: []string{"new"}},
		{name: "more in a folder that goes", here: tree{"folder/mine": "mine"}, paths: []string{"folder/mine"}},
		{name: "a repository in a folder that goes", here: tree{"folder/.git/config": "mine"}, stop: `"folder" is to be replaced, and holds "folder/.git"`},
		{name: "a folder where a file was", here: tree{"edit.go/x": "mine"}, gone: []string{"edit.go"}, paths: []string{"edit.go/x"}},
		{name: "a folder where a file goes", here: tree{"gone.txt/x": "mine"}, gone: []string{"gone.txt"}, paths: []string{"gone.txt", "gone.txt/x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			here := newDir(t, before)
			for _, name := range test.gone {
				if err := os.Remove(filepath.Join(here, name)); err != nil {
					t.Fatal(err)
				}
			}
			test.here.write(t, here)
			was := readTree(t, here)
			done, err := Apply(t.Context(), here, bytes.NewReader(archive), ApplyOptions{})
			conflict, _ := errors.AsType[*ConflictError](err)
			switch {
			case test.stop != "":
				if err == nil || !strings.Contains(err.Error(), test.stop) {
					t.Errorf("error %v, want %s", err, test.stop)
				}
			case test.paths == nil:
				if err != nil {
					t.Fatal(err)
				}
			case conflict == nil || !slices.Equal(conflict.Paths, test.paths):
				t.Fatalf("error %v, want conflicts of %q", err, test.paths)
			}
			if err != nil {
				if now := readTree(t, here); !maps.Equal(now, was) || len(done.Written)+len(done.Modified)+len(done.Removed) > 0 {
					t.Errorf("it did %+v: %q", done, now)
				}
			}
			_, err = Apply(t.Context(), here, bytes.NewReader(archive), ApplyOptions{Force: true})
			if test.stop != "" {
				if err == nil || !strings.Contains(err.Error(), test.stop) {
					t.Errorf("by force: %v, want %s", err, test.stop)
				}
				return
			}
			if err != nil {
				t.Fatalf("by force: %v", err)
			}
			now := readTree(t, here)
			for name, want := range map[string]string{"edit.go": "package new", "empty": "", "folder": "is a file now", "new/deep/file": "new", "turn": "-> new/deep"} {
				if got, ok := now[name]; !ok || got != want {
					t.Errorf("by force: %s is %q, want %q", name, got, want)
				}
			}
			if got, ok := now["gone.txt"]; ok {
				t.Errorf("by force: gone.txt is %q", got)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	dir := newDir(t, tree{"a": "12345", "b": "12345", "c": "12345"})
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{MaxFiles: 3, MaxBytes: 15}, ""},
		{Options{MaxFiles: 2}, "files"},
		{Options{MaxBytes: 14}, "bytes"},
	} {
		_, err := Take(t.Context(), dir, test.o)
		bound, _ := errors.AsType[*BoundError](err)
		if test.want == "" && err != nil || test.want != "" && (bound == nil || bound.What != test.want) {
			t.Errorf("with %+v: %v", test.o, err)
		}
	}
	s := take(t, dir, Options{MaxFiles: 3})
	tree{"d": "x"}.write(t, dir)
	if _, err := s.Changes(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 3 files, which is the limit (MaxFiles)") {
		t.Errorf("one more file: %v", err)
	}
	archive := pack(t, changesOf(t, &Snapshot{dir: dir, options: Options{}.withDefaults()}))
	for _, test := range []struct {
		o    ApplyOptions
		want string
	}{
		{ApplyOptions{MaxFiles: 4, MaxBytes: 16}, ""},
		{ApplyOptions{MaxFiles: 3}, "files"},
		{ApplyOptions{MaxBytes: 15}, "bytes"},
	} {
		here := t.TempDir()
		_, err := Apply(t.Context(), here, bytes.NewReader(archive), test.o)
		bound, _ := errors.AsType[*BoundError](err)
		if test.want == "" && err != nil || test.want != "" && (bound == nil || bound.What != test.want) {
			t.Errorf("with %+v: %v", test.o, err)
		}
		if left := readTree(t, here); err != nil && len(left) > 0 {
			t.Errorf("with %+v: it left %q", test.o, left)
		}
	}
}

// A file that was written just now may change without its size and time telling.
func TestTimesNearTheSnapshotAreNotTrusted(t *testing.T) {
	dir := newDir(t, tree{"new": "aaaa", "old": "aaaa"})
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old"), old, old); err != nil {
		t.Fatal(err)
	}
	for _, hash := range []bool{false, true} {
		tree{"new": "aaaa", "old": "aaaa"}.write(t, dir)
		os.Chtimes(filepath.Join(dir, "old"), old, old)
		at := fileTime(t, dir, "new")
		s := take(t, dir, Options{Hash: hash})
		tree{"new": "bbbb", "old": "bbbb"}.write(t, dir)
		os.Chtimes(filepath.Join(dir, "old"), old, old)
		os.Chtimes(filepath.Join(dir, "new"), at, at)
		want := []string{"new"} // and "old" is trusted: nothing but reading it tells
		if hash {
			want = []string{"new", "old"}
		}
		if got := changesOf(t, s).Modified; !slices.Equal(got, want) {
			t.Errorf("with Hash %v: %q are modified, want %q", hash, got, want)
		}
	}
}

func fileTime(t *testing.T, dir, name string) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// What cannot be seen any more is not removed.
func TestUnreadableIsNotRemoved(t *testing.T) {
	file := entry{state: "file:1", size: 1}
	was := map[string]entry{"d/a": file, "d/e/b": file, "c": file, "gone": file, "never": {state: unreadable, size: 2}, "grew": {state: unreadable, size: 2}}
	now := map[string]entry{"d": {state: unreadable}, "c": {state: unreadable}, "never": {state: unreadable, size: 2}, "grew": {state: unreadable, size: 3}}
	got := compare("", was, now).names()
	want := [4][]string{nil, nil, {"gone"}, {"c", "d", "d/a", "d/e/b", "grew"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPackOfWhatChangedMeanwhile(t *testing.T) {
	for _, content := range []string{"other", "othe", "others"} {
		dir := newDir(t, tree{})
		s := take(t, dir, Options{})
		tree{"a": "first"}.write(t, dir)
		c := changesOf(t, s)
		tree{"a": content}.write(t, dir)
		if err := c.Pack(t.Context(), new(bytes.Buffer)); err == nil {
			t.Errorf("%q was packed for what was seen", content)
		}
	}
}

func TestPermissionsStay(t *testing.T) {
	there, here := newDir(t, tree{"a": "old", "b": "old"}), newDir(t, tree{"a": "old", "b": "old"})
	for _, name := range []string{"a", "b"} {
		if err := os.Chmod(filepath.Join(here, name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	s := take(t, there, Options{})
	tree{"a": "new", "b": "#!new"}.write(t, there)
	if _, err := Apply(t.Context(), here, bytes.NewReader(pack(t, changesOf(t, s))), ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"a": 0o640, "b": 0o750} {
		info, err := os.Stat(filepath.Join(here, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s is %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
}

func TestStaysInside(t *testing.T) {
	for _, test := range []struct {
		name, target string
		want         bool
	}{
		{"l", "a", true}, {"l", "a/b", true}, {"d/l", "../a", true}, {"d/l", "..", true}, {"l", ".", true},
		{"l", "..", false}, {"l", "../a", false}, {"d/l", "../../a", false}, {"l", "/a", false}, {"l", "", false},
		{"l", "a/../b", false}, {"l", "a/..", false}, {"l", "./a", false}, {"l", "a/", false}, {"l", `..\a`, false}, {"l", "C:a", false},
		{"l", ".git/hooks", false}, {"d/l", "../.GIT", false}, {"l", ".nestor", false}, {"l", "a\x00", false},
	} {
		if got := staysInside(test.name, test.target); got != test.want {
			t.Errorf("%s to %q: %v", test.name, test.target, got)
		}
	}
}

func TestIsPrivate(t *testing.T) {
	for _, name := range []string{".git", ".GIT", ".Git.", ".git ", ".git::$INDEX_ALLOCATION", "GIT~1", ".g\u200cit", ".nestor", ".Nestor"} {
		if !isPrivate(name) {
			t.Errorf("%q is not private", name)
		}
	}
	for _, name := range []string{"git", ".gitignore", ".github", "nestor", ".", ""} {
		if isPrivate(name) {
			t.Errorf("%q is private", name)
		}
	}
}
