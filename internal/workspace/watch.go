package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	watchQuiet   = 50 * time.Millisecond  // after the last event, what came of all is looked at
	watchLongest = 500 * time.Millisecond // after the first one, in any case
	watchEvery   = 2 * time.Second        // how often all is looked at where nothing is told
	watchFiles   = 500_000
)

// Write is a file or link in a workspace that was changed.
type Write struct {
	Path   string // relative, with slashes
	Action string // Written, Modified or Removed
}

// Watch calls report for every file that is changed in the run's folder, by
// whomever, until ctx ends. See [Watcher.Run]. What is changed before the folder
// was looked at for the first time is not seen; who has to see all uses Watcher.
func (sp *Space) Watch(ctx context.Context, report func(Write)) error {
	w, err := sp.Watcher(ctx)
	if err != nil {
		return err
	}
	return w.Run(ctx, report)
}

// Watcher looks at the run's folder, and returns what sees all changes from then
// on. It has to be run or closed.
func (sp *Space) Watcher(ctx context.Context) (*Watcher, error) { return NewWatcher(ctx, sp.Dir) }

// NewWatcher looks at a folder, and returns what sees all changes from then on. It
// has to be run or closed.
func NewWatcher(ctx context.Context, dir string) (*Watcher, error) {
	w, err := newWatcher(dir)
	if err == nil {
		if err = w.first(ctx); err != nil {
			w.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	return w, nil
}

// Watcher sees what is changed in a folder. Folders named .git and .nestor are left
// out, and links are not followed.
type Watcher struct {
	dir     string
	root    *os.Root
	notify  *fsnotify.Watcher // nil if the operating system gives none
	add     func(dir string) error
	every   time.Duration
	ordered bool               // whether events come in the order of the changes
	syncs   chan chan struct{} // sent by Sync, received by Run, which closes what it got

	// Run's alone.
	known map[string]map[string]stamp // by folder and name
	count int
	blind bool                     // some folder is not told about: all is looked at from time to time
	all   bool                     // events were lost: all is looked at next time
	dirty map[string]bool          // what events were about
	marks map[string]chan struct{} // who waits, by the folder whose event tells that all before it was seen
	out   func(Write)              // nil while the folder is looked at for the first time
}

// stamp is what tells that a file is not what it was.
type stamp struct {
	mode fs.FileMode
	size int64
	time time.Time
	file uint64 // which one it is, where that has a number
}

func newWatcher(dir string) (*Watcher, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	w := &Watcher{dir: dir, root: root, every: watchEvery, known: map[string]map[string]stamp{}, dirty: map[string]bool{}, marks: map[string]chan struct{}{}, syncs: make(chan chan struct{})}
	w.notify, err = fsnotify.NewWatcher()
	if err != nil {
		w.notify, w.blind = nil, true
		w.add = func(string) error { return err }
		return w, nil
	}
	w.add = w.notify.Add
	w.ordered = runtime.GOOS == "linux"
	return w, nil
}

// markPrefix is how the names of the folders begin by which watchers know that
// they have seen all.
const markPrefix = "nestor-watch-"

// mark makes a change of our own, a folder that is gone at once. Its event comes when
// all that was changed before was told. It is "" where events cannot be relied on.
func (w *Watcher) mark() string {
	if !w.ordered || w.blind || w.all {
		return ""
	}
	dir, err := os.MkdirTemp("", markPrefix)
	if err != nil {
		return ""
	}
	if err := w.add(dir); err != nil {
		os.Remove(dir)
		return ""
	}
	if os.Remove(dir) != nil {
		return ""
	}
	return dir
}

func (w *Watcher) first(ctx context.Context) error { return w.scan(ctx, ".") }

// Close ends a watcher that is not run.
func (w *Watcher) Close() error {
	err := w.root.Close()
	if w.notify != nil {
		err = errors.Join(err, w.notify.Close())
	}
	return err
}

// Run calls report for every file that was changed since the watcher was made,
// until ctx ends: then once more for what was changed last. Changes of one file
// that follow each other at once are one. Where the operating system does not tell
// of all changes, the folder is looked at every two seconds. Run closes the
// watcher; it returns nil when ctx has ended.
func (w *Watcher) Run(ctx context.Context, report func(Write)) error {
	defer w.Close()
	w.out = report
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("watching %s: %w", w.dir, err)
	}
	return nil
}

// Sync waits until Run has reported all that was changed before it was called. It
// may be called from any goroutine; it fails if ctx ends first.
func (w *Watcher) Sync(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case w.syncs <- done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Watcher) run(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	every := time.NewTicker(w.every)
	defer every.Stop()
	settle := time.NewTimer(0)
	defer settle.Stop()
	settle.Stop()
	var since time.Time // of the first event that was not looked into
	wait := func() {
		if since.IsZero() {
			since = time.Now()
		}
		settle.Reset(max(0, min(watchQuiet, watchLongest-time.Since(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return w.last(context.WithoutCancel(ctx), events, errs)
		case e, ok := <-events:
			if !ok {
				return errors.New("the watcher was closed")
			}
			if done := w.marks[e.Name]; done != nil {
				delete(w.marks, e.Name)
				err := w.flush(ctx)
				close(done)
				if err != nil && ctx.Err() == nil {
					return err
				}
			} else if name, ok := w.local(e.Name); ok {
				w.dirty[name] = true
				wait()
			}
		case done := <-w.syncs:
			if mark := w.mark(); mark != "" {
				w.marks[mark] = done
				continue
			}
			err := w.scan(ctx, ".")
			close(done)
			if err != nil && ctx.Err() == nil {
				return err
			}
		case err, ok := <-errs:
			if !ok {
				return errors.New("the watcher was closed")
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.blind = true
			}
			w.all = true
			wait()
		case <-settle.C:
			since = time.Time{}
			if err := w.flush(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-every.C:
			if !w.blind {
				continue
			}
			if err := w.scan(ctx, "."); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// last sees what was changed before it is called: by what the system tells up to a
// change of our own, or by looking at all, which takes longer.
func (w *Watcher) last(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error) error {
	mark := w.mark()
	if mark == "" {
		return w.scan(ctx, ".")
	}
	late := time.NewTimer(watchEvery)
	defer late.Stop()
	for {
		select {
		case e, ok := <-events:
			if ok && e.Name == mark {
				return w.flush(ctx)
			}
			if name, ours := w.local(e.Name); ok && ours {
				w.dirty[name] = true
				continue
			}
			if ok {
				continue
			}
		case <-errs:
		case <-late.C:
		}
		return w.scan(ctx, ".")
	}
}

// local returns the relative path of what an event is about, if it is ours to see.
func (w *Watcher) local(file string) (string, bool) {
	name, err := filepath.Rel(w.dir, file)
	if err != nil || !filepath.IsLocal(name) {
		return "", false
	}
	name = filepath.ToSlash(name)
	return name, !holdsPrivate(name) && !strings.HasPrefix(path.Base(name), markPrefix)
}

// flush looks at what events were about.
func (w *Watcher) flush(ctx context.Context) error {
	dirty := slices.Sorted(maps.Keys(w.dirty))
	clear(w.dirty)
	if w.all {
		w.all = false
		return w.scan(ctx, ".")
	}
	for _, name := range dirty {
		var err error
		if name == "." {
			err = w.scan(ctx, ".")
		} else if w.known[path.Dir(name)] != nil { // else what is above it is dirty too
			err = w.look(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look compares what is at name with what is known of it.
func (w *Watcher) look(ctx context.Context, name string) error {
	above, base := path.Split(name)
	entries := w.known[path.Clean(above)]
	old, had := entries[base]
	info, err := w.root.Lstat(name)
	if err != nil || !watched(info.Mode()) {
		// Gone; or not to be seen, which is the same for who looks.
		if had {
			w.forget(name, old)
			delete(entries, base)
			w.count--
		}
		return nil
	}
	now := stamp{mode: info.Mode(), size: info.Size(), time: info.ModTime(), file: fileNumber(info)}
	if now.mode.IsDir() {
		now = stamp{mode: fs.ModeDir}
	}
	if had && now.mode.IsDir() != old.mode.IsDir() {
		w.forget(name, old)
		had = false
	} else if !had {
		w.count++
	}
	if w.count > watchFiles {
		return &BoundError{What: "files", Max: watchFiles, Where: w.dir}
	}
	entries[base] = now
	switch {
	case now.mode.IsDir():
		return w.scan(ctx, name)
	case !had:
		w.tell(name, Written)
	case old.mode != now.mode || old.size != now.size || old.file != now.file || !old.time.Equal(now.time):
		w.tell(name, Modified)
	}
	return nil
}

func watched(mode fs.FileMode) bool {
	return mode.IsRegular() || mode.IsDir() || mode&fs.ModeSymlink != 0
}

// scan looks at all in a folder.
func (w *Watcher) scan(ctx context.Context, dir string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// First the watch, then the look: what changes in between is told.
	if !w.blind && w.add(filepath.Join(w.dir, filepath.FromSlash(dir))) != nil {
		if _, err := w.root.Lstat(dir); err == nil {
			w.blind = true // no watches are left
		}
	}
	if w.known[dir] == nil {
		w.known[dir] = map[string]stamp{}
	}
	list, err := fs.ReadDir(w.root.FS(), dir)
	if err != nil && dir == "." {
		return err
	}
	names := map[string]bool{}
	for _, d := range list {
		if !isPrivate(d.Name()) && !strings.HasPrefix(d.Name(), markPrefix) {
			names[d.Name()] = true
		}
	}
	for base := range w.known[dir] {
		names[base] = true
	}
	for _, base := range slices.Sorted(maps.Keys(names)) {
		if err := w.look(ctx, path.Join(dir, base)); err != nil {
			return err
		}
	}
	return nil
}

// forget tells that what was at name is gone.
func (w *Watcher) forget(name string, old stamp) {
	if !old.mode.IsDir() {
		w.tell(name, Removed)
		return
	}
	for _, base := range slices.Sorted(maps.Keys(w.known[name])) {
		w.forget(path.Join(name, base), w.known[name][base])
		w.count--
	}
	delete(w.known, name)
	if w.notify != nil {
		w.notify.Remove(filepath.Join(w.dir, filepath.FromSlash(name))) // which the system may have done
	}
}

func (w *Watcher) tell(name, action string) {
	if w.out != nil {
		w.out(Write{Path: strings.ToValidUTF8(name, "\ufffd"), Action: action})
	}
}
