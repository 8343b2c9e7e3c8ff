package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watching is a watcher that runs in a test.
type watching struct {
	t      *testing.T
	dir    string
	writes chan Write
	end    func() error
}

// watch runs a watcher of dir. With it may be changed before it looks.
func watch(t *testing.T, dir string, with func(*Watcher)) *watching {
	t.Helper()
	w, err := newWatcher(dir)
	if err != nil {
		t.Fatal(err)
	}
	if with != nil {
		with(w)
	}
	if err := w.first(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	g := &watching{t: t, dir: dir, writes: make(chan Write, 100_000)}
	go func() { ended <- w.Run(ctx, func(wr Write) { g.writes <- wr }) }()
	var err2 error
	done := false
	g.end = func() error {
		if stop(); !done {
			done, err2 = true, <-ended
		}
		return err2
	}
	t.Cleanup(func() { g.end() })
	return g
}

// shell does something in the folder by another process.
func (g *watching) shell(script string) {
	g.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = g.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("%s: %v %s", script, err, out)
	}
}

// next waits for n changes, and fails if they are not these.
func (g *watching) next(want ...Write) {
	g.t.Helper()
	var got []Write
	for range want {
		select {
		case wr := <-g.writes:
			got = append(got, wr)
		case <-time.After(30 * time.Second):
			g.t.Fatalf("only %v were seen, want %v", got, want)
		}
	}
	g.same(got, want)
}

func (g *watching) same(got, want []Write) {
	g.t.Helper()
	order := func(a, b Write) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Action, b.Action))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		g.t.Errorf("%v were seen, want %v", got, want)
	}
}

// rest ends the watcher, and returns what it saw last.
func (g *watching) rest() []Write {
	g.t.Helper()
	if err := g.end(); err != nil {
		g.t.Error(err)
	}
	close(g.writes)
	var rest []Write
	for wr := range g.writes {
		rest = append(rest, wr)
	}
	return rest
}

// waysToWatch are how a watcher may learn of changes.
var waysToWatch = map[string]func(*Watcher){
	"told": nil,
	"not told at all": func(w *Watcher) {
		w.notify.Close()
		w.notify, w.blind, w.every = nil, true, 5*time.Millisecond
	},
	"watches run out": func(w *Watcher) {
		add, left := w.add, 1
		w.every = 5 * time.Millisecond
		w.add = func(dir string) error {
			if left--; left < 0 {
				return errors.New("no space left on device")
			}
			return add(dir)
		}
	},
}

// What other processes do is seen, each change once, and what is private is not.
func TestWatch(t *testing.T) {
	for name, with := range waysToWatch {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			above := realDir(t)
			// What is moved from here is there all at once.
			tree{"stage/a": "1", "stage/b": "2", "stage/dir/x": "x", "stage/dir/deep/er/y": "y", "stage/c": "3",
				"ws/old": "o", "ws/gone": "g", "ws/sub/z": "z", "ws/.git/HEAD": "h", "ws/turn": "t"}.write(t, above)
			g := watch(t, filepath.Join(above, "ws"), with)
			g.shell("mv ../stage/a .; mkdir .nestor; echo x > .nestor/x; echo y > .git/y")
			g.next(Write{"a", Written})
			g.shell("mv ../stage/b old; rm gone; rm -r sub; ln -s a link")
			g.next(Write{"old", Modified}, Write{"gone", Removed}, Write{"sub/z", Removed}, Write{"link", Written})
			g.shell("mv ../stage/dir dir")
			g.next(Write{"dir/x", Written}, Write{"dir/deep/er/y", Written})
			g.shell("mv ../stage/c dir/deep/er/y; mv dir/x 'dir/new\nname'")
			g.next(Write{"dir/deep/er/y", Modified}, Write{"dir/x", Removed}, Write{"dir/new\nname", Written})
			g.shell("mv dir moved")
			g.next(Write{"dir/deep/er/y", Removed}, Write{"dir/new\nname", Removed}, Write{"moved/deep/er/y", Written}, Write{"moved/new\nname", Written})
			g.shell("rm turn; mkdir turn; mv a turn/a")
			g.next(Write{"turn", Removed}, Write{"a", Removed}, Write{"turn/a", Written})
			g.shell("mkfifo pipe; chmod +x old")
			g.next(Write{"old", Modified})
			g.shell("rm -r moved/deep")
			// The last ones are seen though nobody waits for them.
			g.same(g.rest(), []Write{{"moved/deep/er/y", Removed}})
		})
	}
}

// When events are lost, all is looked at.
func TestWatchOverflow(t *testing.T) {
	dir := realDir(t)
	tree{"sub/old": "o"}.write(t, dir)
	var notify *fsnotify.Watcher
	g := watch(t, dir, func(w *Watcher) {
		notify = w.notify
		add := w.add
		w.add = func(dir string) error {
			if filepath.Base(dir) == "sub" {
				return nil // nothing is told of it
			}
			return add(dir)
		}
	})
	tree{"sub/new": "n"}.write(t, dir)
	notify.Errors <- fsnotify.ErrEventOverflow
	g.next(Write{"sub/new", Written})
	if rest := g.rest(); len(rest) != 0 {
		t.Errorf("%v were seen too", rest)
	}
}

// Thousands of files that come at once are seen, each once as new.
func TestWatchMany(t *testing.T) {
	t.Parallel()
	above := realDir(t)
	const n = 5000
	for i := range n {
		dir := filepath.Join(above, "stage", fmt.Sprint(i%50))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(above, "ws"), 0o777); err != nil {
		t.Fatal(err)
	}
	g := watch(t, filepath.Join(above, "ws"), nil)
	g.shell("mv ../stage/* .")
	var want []Write
	for i := range n {
		want = append(want, Write{fmt.Sprintf("%d/%d", i%50, i), Written})
	}
	g.next(want...)
	g.shell("rm -r *")
	for i := range want {
		want[i].Action = Removed
	}
	g.next(want...)
	if rest := g.rest(); len(rest) != 0 {
		t.Errorf("%d more were seen", len(rest))
	}
}

// A space is watched from when its watcher is there.
func TestWatchSpace(t *testing.T) {
	r := newRepo(t, nil)
	sp := mustOpen(t, New(SpaceOptions{Project: r.dir}), Request{Run: newRun(), Kind: Worktree})
	w, err := sp.Watcher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tree{"x": "1"}.write(t, sp.Dir)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var seen []Write
	if err := w.Run(ctx, func(wr Write) { seen = append(seen, wr) }); err != nil || !slices.Equal(seen, []Write{{"x", Written}}) {
		t.Errorf("saw %v, %v", seen, err)
	}
	if err := os.RemoveAll(sp.Dir); err != nil {
		t.Fatal(err)
	}
	if err := sp.Watch(t.Context(), func(Write) {}); err == nil {
		t.Error("a folder that is gone was watched")
	}
}

// After Sync all is reported that was changed before, also what is gone at once.
func TestSyncReportsAllBefore(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWatcher(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(w Write) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, w.Action+" "+w.Path)
		})
	}()
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("sub%d/file.txt", i)
		if err := errors.Join(os.Mkdir(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), nil, 0o600), w.Sync(t.Context()),
			os.Remove(filepath.Join(dir, name)), w.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		want = append(want, "write "+name, "remove "+name)
		mu.Lock()
		if !slices.Equal(seen, want) {
			t.Fatalf("seen are %q, want %q", seen, want)
		}
		mu.Unlock()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := w.Sync(ctx); err == nil {
		t.Error("it is synced though nobody runs it")
	}
}

// Nothing is left of a watcher that is killed: what it makes to see where it is, is gone
// before anybody could kill it. And it is not told of, where temporary files are in the
// folder.
func TestWatcherLeavesNothing(t *testing.T) {
	for name, below := range map[string]string{"elsewhere": "../", "in the folder": ""} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			temp := filepath.Join(dir, below+"temp")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(temp, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", temp)
			w, err := NewWatcher(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			var seen []Write
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx, func(w Write) { seen = append(seen, w) }) }()
			for range 3 {
				if err := w.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("it has left %v, %v", left, err)
			}
			stop()
			if err := <-done; err != nil || len(seen) > 0 {
				t.Errorf("it has seen %v, %v", seen, err)
			}
		})
	}
}
