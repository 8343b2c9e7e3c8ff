package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// copies is where runs work on a machine that has not the project, but a folder
// like it: each attempt in a copy of that folder, so that runs do not see what
// others are changing, and nobody sees what an attempt left that was cut off. What
// was changed goes into the log's store when the attempt has a result.
type copies struct {
	dir   string // the folder
	home  string // of the copies
	log   *eventlog.Log
	notes *slog.Logger

	mu   sync.Mutex         // guards what follows
	open map[string]*folder // by name
}

// folder is the copy of one attempt.
type folder struct {
	dir    string
	before *workspace.Snapshot
}

// newCopies ends and removes what a worker left that was killed.
func newCopies(dir, home string, log *eventlog.Log, notes *slog.Logger) (*copies, error) {
	c := &copies{dir: dir, home: home, log: log, notes: notes, open: map[string]*folder{}}
	if n := sweep(c.mark()); n > 0 {
		notes.Warn("killed what an earlier worker left running", "processes", n)
	}
	if err := os.RemoveAll(home); err != nil {
		return nil, fmt.Errorf("removing what is left of earlier runs: %w", err)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	return c, nil
}

// mark is what all processes of runs here have in their environment.
func (c *copies) mark() string { return "NESTOR_COPIES=" + c.home }

func copyName(run nestor.ID, attempt uint64) string { return fmt.Sprintf("%s-%d", run, attempt) }

// where returns the folder in which an attempt works that is to work in subdir of
// the project.
func (c *copies) where(run nestor.ID, attempt uint64, subdir string) string {
	return filepath.Join(c.home, copyName(run, attempt), filepath.FromSlash(subdir))
}

// original returns the folder of which a run names its copy; others as they are.
func (c *copies) original(run nestor.ID, dir string) string {
	place, inside := within(c.home, dir)
	name, place, _ := strings.Cut(place, "/")
	if !filepath.IsAbs(dir) || !inside || !strings.HasPrefix(name, string(run)+"-") {
		return dir
	}
	return filepath.Join(c.dir, filepath.FromSlash(place))
}

// has tells whether the attempt was being executed here already.
func (c *copies) has(run nestor.ID, attempt uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[copyName(run, attempt)] != nil
}

// remove removes the copy of an attempt that is over.
func (c *copies) remove(run nestor.ID, attempt uint64) {
	c.mu.Lock()
	delete(c.open, copyName(run, attempt))
	c.mu.Unlock()
	if err := os.RemoveAll(c.where(run, attempt, "")); err != nil {
		c.notes.Warn("the copy of a run is left", "run", run, "error", err)
	}
}

// Open makes the copy of an attempt, or finds the one that it has: it is executed
// again if letters came at its end.
func (c *copies) Open(ctx context.Context, run runner.Run) (runner.Place, error) {
	options, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return runner.Place{}, err
	}
	if run.Task.Dir != "" && options.Subdir == "" {
		return runner.Place{}, fmt.Errorf("folder %s is of another machine, and not said to be in the project", run.Task.Dir)
	}
	f, err := c.folder(ctx, run)
	if err != nil {
		return runner.Place{}, err
	}
	if err := holds(f.dir, options.Subdir); err != nil {
		return runner.Place{}, fmt.Errorf("folder %q of the project: %w: see that %s, of this worker, is like it", options.Subdir, err, c.dir)
	}
	dir := c.where(run.ID, run.Attempt, options.Subdir)
	return runner.Place{Dir: dir, Below: options.Subdir, Env: []string{"AGENT_WORKSPACE=" + dir}, Close: func(r *nestor.Result) error { return c.bring(ctx, run, f, r) }}, nil
}

// holds fails if a place in a folder is none, or leads out of it.
func holds(dir, place string) error {
	if place == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(filepath.FromSlash(place))
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	return err
}

// folder returns the copy of an attempt.
func (c *copies) folder(ctx context.Context, run runner.Run) (*folder, error) {
	name := copyName(run.ID, run.Attempt)
	c.mu.Lock()
	f := c.open[name]
	c.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f = &folder{dir: filepath.Join(c.home, name)}
	err := workspace.Copy(ctx, c.dir, f.dir, workspace.Options{})
	if err == nil {
		f.before, err = workspace.Take(ctx, f.dir, workspace.Options{})
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[name] = f
	return f, nil
}

const (
	bringFor   = 2 * time.Minute // how long the files of a run may take to be brought
	bringAgain = 200 * time.Millisecond
)

// bring stores what an attempt changed, and says so in its result. Of an attempt
// that has none, since the run goes on elsewhere, nothing is kept.
func (c *copies) bring(ctx context.Context, run runner.Run, f *folder, r *nestor.Result) error {
	if goesOn(ctx, r) {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), bringFor)
	defer stop()
	err := c.store(ctx, run, f, r)
	if err != nil {
		c.notes.Warn("the files of a run do not come back", "run", run.ID, "error", err)
	}
	return err
}

func (c *copies) store(ctx context.Context, run runner.Run, f *folder, r *nestor.Result) error {
	changes, err := f.before.Changes(ctx)
	if err != nil {
		return err
	}
	told := listChanges(changes)
	if changes.Empty() {
		if len(told.Left) > 0 {
			api.SetChanges(r, told)
		}
		return nil
	}
	var archive bounded
	if err := changes.Pack(ctx, &archive); err != nil {
		return err
	}
	told.Size = int64(archive.Len())
	for {
		told.Ref, err = c.log.PutBlob(ctx, string(run.Root), archive.Bytes())
		if err == nil {
			api.SetChanges(r, told)
			return nil
		}
		if errors.Is(err, eventlog.ErrTooLarge) {
			return err
		}
		select { // the broker may be away for a while
		case <-time.After(bringAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// What a result says of files at most.
const (
	maxFiles = 200
	maxPaths = 16 << 10 // bytes
)

// listChanges says what was changed, as far as it fits.
func listChanges(c *workspace.Changes) api.Changes {
	told := api.Changes{Count: len(c.Written) + len(c.Modified) + len(c.Removed)}
	left := maxPaths
	fits := func(name string, n int) bool {
		left -= len(name)
		return n < maxFiles && left >= 0
	}
	for _, of := range []struct {
		action string
		paths  []string
	}{{workspace.Written, c.Written}, {workspace.Modified, c.Modified}, {workspace.Removed, c.Removed}} {
		for _, name := range of.paths {
			if !fits(name, len(told.Files)) {
				break
			}
			told.Files = append(told.Files, api.Change{Path: name, Action: of.action})
		}
	}
	for _, name := range c.Left {
		if !fits(name, len(told.Left)) {
			break
		}
		told.Left = append(told.Left, name)
	}
	return told
}

// bounded is a buffer that takes as much as the store does.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > eventlog.MaxBlob {
		return 0, fmt.Errorf("more than %d bytes, packed, cannot be brought back: %w", eventlog.MaxBlob, eventlog.ErrTooLarge)
	}
	return b.Buffer.Write(p)
}
