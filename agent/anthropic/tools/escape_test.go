//go:build unix

package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dfaf701a/nestor/internal/soak"
)

// fenced returns a set and a folder beside it with a file that holds secret.
func fenced(t *testing.T, opts Options) (s *Set, dir, outside string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, outside = filepath.Join(top, "work"), filepath.Join(top, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte(secret+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	opts.Dir = dir
	return newSet(t, opts), dir, outside
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// intact fails if anything outside was changed or made.
func intact(t *testing.T, outside string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(outside, "file"))
	if err != nil || string(data) != secret+"\n" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
	list, err := os.ReadDir(outside)
	if err != nil || len(list) != 1 {
		t.Errorf("outside are %v, %v", list, err)
	}
}

// attempts calls every file tool with path in all ways, and fails if one tells
// the secret. It returns how many did or found something.
func attempts(t *testing.T, s *Set, path string) (done int) {
	t.Helper()
	s.Recall("Read", json.RawMessage(`{"file_path":"`+path+`"}`)) // it does not help
	for _, call := range []struct {
		tool  string
		input in
	}{
		{"Read", in{"file_path": path}},
		{"Read", in{"file_path": path, "offset": 1, "limit": 10}},
		{"Edit", in{"file_path": path, "old_string": secret, "new_string": "x"}},
		{"Edit", in{"file_path": path, "old_string": "", "new_string": "x"}},
		{"MultiEdit", in{"file_path": path, "edits": []any{in{"old_string": secret, "new_string": "x"}}}},
		{"Write", in{"file_path": path, "content": "x"}},
		{"Grep", in{"pattern": "the-secret.*", "path": path, "output_mode": "content"}},
		{"Grep", in{"pattern": "the-secret.*", "path": filepath.Dir(path), "output_mode": "content"}},
		{"Glob", in{"pattern": "*", "path": path}},
		{"Glob", in{"pattern": path}},
		{"Glob", in{"pattern": filepath.Dir(path) + "/*"}},
	} {
		result, err := run(t, s, call.tool, call.input)
		data, _ := json.Marshal(result)
		if err != nil {
			data = []byte(err.Error())
		} else if result.Text != "No files found" && result.Text != "No matches found" {
			done++
		}
		if text := strings.ReplaceAll(string(data), "the-secret.*", ""); strings.Contains(text, secret) && call.tool != "Edit" {
			t.Errorf("%s %v: %s", call.tool, call.input, data)
		}
	}
	return done
}

func TestEscapeByName(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	for _, path := range []string{
		filepath.Join(outside, "file"),
		filepath.Join(outside, "new"),
		"../outside/file",
		dir + "/../outside/file",
		"sub/../../outside/file",
		"./../outside//file",
		dir + "x/file", // a name that begins alike
		"/etc/passwd", "/proc/self/root" + outside + "/file", "/proc/self/cwd/../outside/file",
		"/proc/self/environ", "/proc/self/mem", "/proc/1/environ", "/proc/self/fd/0", "/dev/zero", "/dev/stdin", "/dev/fd/0", "/sys/kernel/notes",
	} {
		access, err := tool(t, s, "Read").Access(json.RawMessage(`{"file_path":"` + path + `"}`))
		if err == nil && !access.Outside {
			t.Errorf("%s: the policy is told %+v", path, access)
		}
		if n := attempts(t, s, path); n != 0 {
			t.Errorf("%s: %d attempts succeeded", path, n)
		}
	}
	intact(t, outside)
}

func TestEscapeByPatterns(t *testing.T) {
	s, _, outside := fenced(t, Options{})
	put(t, s, "a.txt", "inside")
	for _, pattern := range []string{"../*", "../outside/*", "**/../../outside/*", "{..,x}/outside/*", "[.][.]/outside/*", ".*/outside/*", outside + "/*", outside + "/../outside/*"} {
		result, err := run(t, s, "Glob", in{"pattern": pattern})
		if err == nil && result.Text != "No files found" {
			t.Errorf("Glob %s: %s", pattern, result.Text)
		}
		result, err = run(t, s, "Grep", in{"pattern": secret, "glob": pattern})
		if err == nil && result.Text != "No files found" {
			t.Errorf("Grep %s: %s", pattern, result.Text)
		}
	}
}

func TestEscapeBySymlink(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	link(t, filepath.Join(outside, "file"), filepath.Join(dir, "absolute"))
	link(t, "../outside/file", filepath.Join(dir, "relative"))
	link(t, outside, filepath.Join(dir, "folder"))
	link(t, "relative", filepath.Join(dir, "twice"))
	link(t, filepath.Join(outside, "new"), filepath.Join(dir, "dangling"))
	link(t, "../outside/newdir/new", filepath.Join(dir, "deeper"))
	link(t, "loop", filepath.Join(dir, "loop"))
	link(t, "/proc/self/root", filepath.Join(dir, "proc"))
	for _, path := range []string{"absolute", "relative", "folder/file", "folder/new", "twice", "dangling", "deeper", "loop", "loop/x", "proc" + outside + "/file", "folder/../folder/file"} {
		if n := attempts(t, s, filepath.Join(dir, path)); n != 0 {
			t.Errorf("%s: %d attempts succeeded", path, n)
		}
		if refused := refused(t, s, "Read", in{"file_path": path}); refused == "" {
			t.Errorf("%s was refused without a reason", path)
		}
		refused(t, s, "Write", in{"file_path": path, "content": "x"})
	}
	result, err := run(t, s, "Grep", in{"pattern": "."})
	if err != nil || result.Text != "No files found" {
		t.Errorf("a search through links found %s, %v", result.Text, err)
	}
	intact(t, outside)
}

func TestEscapeByHardLink(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	if err := os.Link(filepath.Join(outside, "file"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	attempts(t, s, filepath.Join(dir, "hard"))
	contains(t, "the way out", refused(t, s, "Read", in{"file_path": "hard"}), "it has 2 hard links")
	contains(t, "the note", must(t, s, "Grep", in{"pattern": secret}), "1 files with several hard links were not searched, such as hard.")
	intact(t, outside)

	// Where they are allowed, a write still does not go through them.
	open := newSet(t, Options{Dir: dir, HardLinks: true})
	contains(t, "allowed", must(t, open, "Read", in{"file_path": "hard"}), secret)
	must(t, open, "Edit", in{"file_path": "hard", "old_string": secret, "new_string": "changed"})
	equal(t, "the file inside", get(t, open, "hard"), "changed\n")
	intact(t, outside)
}

func TestEscapeByPipesAndSockets(t *testing.T) {
	s, dir, _ := fenced(t, Options{})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, "a pipe", refused(t, s, "Read", in{"file_path": "pipe"}), "this path names a device or process file")
	contains(t, "a pipe", refused(t, s, "Grep", in{"pattern": "x", "path": "pipe"}), "this path names a device or process file")
	refused(t, s, "Write", in{"file_path": "pipe", "content": "x"})
	equal(t, "a search beside it", must(t, s, "Grep", in{"pattern": "x"}), "No files found")
}

func TestFolderThatIsASymlink(t *testing.T) {
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "real", filepath.Join(top, "link"))
	s := newSet(t, Options{Dir: filepath.Join(top, "link")}, "a.txt", "inside")
	equal(t, "by the link", must(t, s, "Read", in{"file_path": filepath.Join(top, "link", "a.txt")}), "1\tinside")
	equal(t, "by the folder", must(t, s, "Read", in{"file_path": filepath.Join(top, "real", "a.txt")}), "1\tinside")
	refused(t, s, "Read", in{"file_path": filepath.Join(top, "link", "..", "x")})

	// The link turns elsewhere: what is there now is outside.
	other := filepath.Join(top, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "a.txt"), []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(top, "link"))
	link(t, "other", filepath.Join(top, "link"))
	contains(t, "turned", refused(t, s, "Read", in{"file_path": filepath.Join(top, "link", "a.txt")}), "is outside of the folders")
	equal(t, "the shell's folder", must(t, s, "Read", in{"file_path": "a.txt"}), "1\tinside")
}

func TestSymlinkInsideIsFollowed(t *testing.T) {
	s := newSet(t, Options{}, "sub/real.txt", "one\n")
	dir := s.folders[0].path
	link(t, "sub/real.txt", filepath.Join(dir, "link.txt"))
	link(t, filepath.Join(dir, "sub"), filepath.Join(dir, "absolute"))
	access, err := tool(t, s, "Edit").Access(json.RawMessage(`{"file_path":"link.txt","old_string":"one","new_string":"two"}`))
	real := filepath.Join(dir, "sub", "real.txt")
	if err != nil || access.Path != real || access.Outside || !access.Edits {
		t.Errorf("%+v, %v", access, err)
	}
	equal(t, "the input", string(access.Input), `{"file_path":"`+real+`","new_string":"two","old_string":"one"}`)
	must(t, s, "Read", in{"file_path": "absolute/real.txt"})
	must(t, s, "Edit", in{"file_path": "link.txt", "old_string": "one", "new_string": "two"})
	equal(t, "the file", get(t, s, "sub/real.txt"), "two\n")
	if info, err := os.Lstat(filepath.Join(dir, "link.txt")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
}

// What a policy was told is what is touched, also when a link would lead to
// another file in the folder.
func TestRunIsHeldToAccess(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	put(t, s, "sub/a.txt", "harmless")
	put(t, s, "precious/a.txt", "precious")
	write := tool(t, s, "Write")
	input := json.RawMessage(`{"file_path":"sub/new.txt","content":"x"}`)
	for _, target := range []string{"precious", outside} {
		access, err := write.Access(input)
		if err != nil || access.Outside {
			t.Fatalf("%+v, %v", access, err)
		}
		if err := os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")); err != nil {
			t.Fatal(err)
		}
		link(t, target, filepath.Join(dir, "sub"))
		if result, err := write.Run(t.Context(), access.Input); err == nil {
			t.Errorf("written: %+v", result)
		}
		os.Remove(filepath.Join(dir, "sub"))
		if err := os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "sub")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "precious", "new.txt")); err == nil {
		t.Error("it was written where nobody had decided about")
	}
	intact(t, outside)
}

// rounds is how often a race is run.
func rounds() int { return soak.Of(100, 20_000) }

// race swaps names in dir between what they are and links to outside, until the
// function that it returns is called.
func race(t *testing.T, swap func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
				swap()
			}
		}
	}()
	return func() { close(quit); <-done }
}

func TestEscapeByRaceOfFile(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	name, next := filepath.Join(dir, "file"), filepath.Join(dir, "next")
	become := func(make func()) { // at once
		make()
		os.Rename(next, name)
	}
	stop := race(t, func() {
		become(func() { os.WriteFile(next, []byte("harmless\n"), 0o644) })
		become(func() { os.Symlink(filepath.Join(outside, "file"), next) })
		become(func() { os.WriteFile(next, []byte("harmless\n"), 0o644) })
		become(func() { os.Link(filepath.Join(outside, "file"), next) })
		os.Rename(name, name+"2")
		os.Remove(name + "2")
		become(func() { os.Link(filepath.Join(outside, "file"), next) })
		become(func() { os.WriteFile(next, []byte("harmless\n"), 0o644) })
		become(func() { syscall.Mkfifo(next, 0o600) })
	})
	defer stop()
	read := 0
	for range rounds() {
		for range 20 {
			result, err := run(t, s, "Read", in{"file_path": "file"})
			if err == nil {
				read++
			}
			if strings.Contains(result.Text, secret) {
				t.Fatal("read")
			}
		}
		result, _ := run(t, s, "Grep", in{"pattern": ".*", "output_mode": "content", "path": "file"})
		if strings.Contains(result.Text, secret) {
			t.Fatal("found")
		}
		run(t, s, "Write", in{"file_path": "file", "content": "over"})
		run(t, s, "Edit", in{"file_path": "file", "old_string": "harmless", "new_string": "over"})
	}
	t.Logf("%d of %d reads succeeded", read, 20*rounds())
	intact(t, outside)
}

func TestEscapeByRaceOfFolder(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	put(t, s, "sub/file", "harmless\n")
	sub, away := filepath.Join(dir, "sub"), filepath.Join(dir, "away")
	stop := race(t, func() {
		os.RemoveAll(away) // a Write may have made sub anew
		os.Rename(sub, away)
		os.Symlink(outside, sub)
		os.Remove(sub)
		os.Rename(away, sub)
	})
	defer stop()
	made := 0
	for i := range rounds() {
		for _, call := range []struct {
			tool  string
			input in
		}{
			{"Read", in{"file_path": "sub/file"}},
			{"Write", in{"file_path": "sub/new", "content": "x"}},
			{"Write", in{"file_path": "sub/deep/new", "content": "x"}},
			{"Glob", in{"pattern": "**/*"}},
		} {
			result, err := run(t, s, call.tool, call.input)
			if err == nil && call.tool == "Write" {
				made++
			}
			if strings.Contains(result.Text, secret) {
				t.Fatalf("%s %v: %s", call.tool, call.input, result.Text)
			}
		}
		if i%20 == 0 {
			result, _ := run(t, s, "Grep", in{"pattern": ".*", "output_mode": "content"})
			if strings.Contains(result.Text, secret) {
				t.Fatalf("found: %s", result.Text)
			}
		}
	}
	t.Logf("%d of %d writes succeeded", made, 2*rounds())
	intact(t, outside)
}

// Bash makes the links, as an agent would.
func TestEscapeBySymlinkOfBash(t *testing.T) {
	s, dir, outside := fenced(t, Options{})
	must(t, s, "Bash", in{"command": "ln -s " + outside + " d; ln -s d/file f; ln " + outside + "/file h; mkdir -p real && ln -s ../../outside real/up"})
	for _, path := range []string{"d/file", "f", "h", "real/up/file"} {
		attempts(t, s, filepath.Join(dir, path))
		refused(t, s, "Read", in{"file_path": path})
	}
	// Where the shell is does not widen anything.
	contains(t, "cd", must(t, s, "Bash", in{"command": "cd " + outside}), "Shell cwd was reset to W")
	contains(t, "cd by link", must(t, s, "Bash", in{"command": "cd d"}), "Shell cwd was reset to W")
	refused(t, s, "Read", in{"file_path": "file"})
	intact(t, outside)
}

func TestSpoolInsideTheFolderIsNotLedAstray(t *testing.T) {
	s, dir, outside := fenced(t, Options{MaxResult: 1000})
	s.Close()
	spool := filepath.Join(dir, "spool")
	inner := newSet(t, Options{Dir: dir, Spool: spool, MaxResult: 1000})
	link(t, filepath.Join(outside, "new"), filepath.Join(spool, "toolu_1.txt"))
	text, err := inner.Bound("toolu_1", strings.Repeat("x", 5000))
	if err != nil || strings.Contains(text, "toolu_1.txt") {
		t.Errorf("%s, %v", text, err)
	}
	contains(t, "write", refused(t, inner, "Write", in{"file_path": "spool/a", "content": "x"}), "may be read but not written")
	intact(t, outside)
}

// Between calls no file is held open, and a folder that was put in the place of
// the agent's is not taken for it.
func TestFolderThatWasReplaced(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "work")
	for _, name := range []string{dir, filepath.Join(top, "other")} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(name, "a.txt"), []byte(filepath.Base(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := newSet(t, Options{Dir: dir})
	contains(t, "its own", must(t, s, "Read", in{"file_path": "a.txt"}), "work")
	if err := os.Rename(dir, filepath.Join(top, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(top, "other"), dir); err != nil {
		t.Fatal(err)
	}
	contains(t, "the other", refused(t, s, "Read", in{"file_path": "a.txt"}), "is not the one that it was")
	contains(t, "the other", refused(t, s, "Write", in{"file_path": "b.txt", "content": "x"}), "is not the one that it was")
}
