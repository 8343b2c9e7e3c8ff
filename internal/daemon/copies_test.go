package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/history"
	"github.com/dfaf701a/nestor/internal/pool"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// core is a backend without a server or providers.
func core(t *testing.T, execute func(context.Context, *backend, *engine.Execution) nestor.Result) *backend {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	home := t.TempDir()
	b, err := broker.Open(ctx, broker.Options{Dir: filepath.Join(home, "broker")})
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.Open(ctx, history.Options{Path: filepath.Join(home, "history.db")})
	if err != nil {
		t.Fatal(err)
	}
	log := eventlog.New(b, eventlog.Options{Archive: h})
	e, err := engine.New(ctx, b, log, engine.Options{Sole: true, Ended: h.Ended})
	if err != nil {
		t.Fatal(err)
	}
	back := &backend{opts: Options{Dir: home}, broker: b, log: log, engine: e, history: h, worker: &worker{slots: pool.NewSlots(pool.SlotLimits{}), policy: &policy{home: home}}, began: time.Now()}
	w := back.worker.taking(nil)
	w.Acquire = func(ctx context.Context) (engine.Slot, error) {
		s, err := back.worker.slots.Acquire(ctx)
		return plain{s}, err
	}
	w.TryAcquire, w.Execute = nil, func(ctx context.Context, x *engine.Execution) nestor.Result { return execute(ctx, back, x) }
	working, stopWork := context.WithCancel(ctx)
	var g, work errgroup.Group
	g.Go(func() error { return ended(ctx, log.Run(ctx)) })
	g.Go(func() error { return ended(ctx, e.Run(ctx)) })
	g.Go(func() error { return ended(ctx, h.Project(ctx, log)) })
	work.Go(func() error { return ended(working, e.Work(working, w)) })
	t.Cleanup(func() {
		stopWork() // first, as it still has things to tell
		err := work.Wait()
		stop()
		if err := errors.Join(err, g.Wait(), h.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return back
}

// plain is a slot for any task.
type plain struct{ *pool.Slot }

func (p plain) Claim(ctx context.Context, root nestor.ID, _ nestor.Task) error {
	return p.Slot.Claim(ctx, pool.Claim{Tree: string(root)})
}

// Files that a run brought back are there also when its tree is archived, and the
// broker keeps them no longer.
func TestChangesOutliveTheLog(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	files := bytes.Repeat([]byte("an archive "), 1<<16)
	back := core(t, func(ctx context.Context, back *backend, x *engine.Execution) nestor.Result {
		r := nestor.Result{Status: nestor.Success}
		ref, err := back.log.PutBlob(ctx, string(x.Run().Root), files)
		if err != nil {
			return failed(err)
		}
		api.SetChanges(&r, api.Changes{Ref: ref, Count: 1})
		return r
	})
	id, err := back.engine.Submit(ctx, engine.Submission{Task: nestor.Task{Input: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Wait(ctx, id); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if got, err := back.Changes(ctx, id); err != nil || !bytes.Equal(got, files) {
			t.Fatalf("%s: %d bytes, %v", when, len(got), err)
		}
	}
	check("when it has ended")
	for { // its end may not be projected yet
		if err := back.archive(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if run, err := back.history.Run(ctx, id); err == nil && run.Archived {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it is not archived")
		}
	}
	check("when it is archived")
	if refs, err := back.log.Blobs(ctx, string(id)); err != nil || len(refs) != 0 {
		t.Errorf("the broker keeps %v, %v", refs, err)
	}
	if _, err := back.engine.Get(ctx, id); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("the engine has the run: %v", err)
	}
}

// An attempt that is executed again finds its copy as it left it, and what comes
// back is all that it changed; when it is over, the copy goes.
func TestCopyLastsAsLongAsItsAttempt(t *testing.T) {
	back := core(t, nil)
	dir, home := t.TempDir(), filepath.Join(t.TempDir(), "runs")
	put(t, dir, "a.txt", "one")
	c, err := newCopies(dir, home, back.log, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	id := nestor.NewID(time.Now())
	run := runner.Run{ID: id, Root: id, Attempt: 3}
	var told api.Changes
	for _, name := range []string{"first", "second"} {
		if known := c.has(id, 3); known != (name == "second") {
			t.Errorf("at the %s execution: %v", name, known)
		}
		place, err := c.Open(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		put(t, place.Dir, name, name)
		r := nestor.Result{Status: nestor.Success}
		if err := place.Close(&r); err != nil {
			t.Fatal(err)
		}
		told, _ = api.ChangesOf(&r)
	}
	if want := []api.Change{{Path: "first", Action: "write"}, {Path: "second", Action: "write"}}; !slices.Equal(told.Files, want) {
		t.Errorf("what comes back is %+v", told)
	}
	c.remove(id, 3)
	if _, err := os.Stat(c.where(id, 3, "")); !errors.Is(err, fs.ErrNotExist) || c.has(id, 3) {
		t.Errorf("the copy is left: %v", err)
	}
}

// An attempt whose run goes on elsewhere brings nothing. One that was cancelled does.
func TestWhatComesOfAnAttemptThatWasStopped(t *testing.T) {
	back := core(t, nil)
	dir := t.TempDir()
	c, err := newCopies(dir, filepath.Join(t.TempDir(), "runs"), back.log, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for attempt, cause := range []error{nestor.ErrStale, engine.ErrCutOff, engine.ErrShutdown, &nestor.Cause{Kind: nestor.Stopped}} {
		_, cancelled := errors.AsType[*nestor.Cause](cause)
		id := nestor.NewID(time.Now())
		ctx, stop := context.WithCancelCause(t.Context())
		place, err := c.Open(ctx, runner.Run{ID: id, Root: id, Attempt: uint64(attempt)})
		if err != nil {
			t.Fatal(err)
		}
		put(t, place.Dir, "new", "new")
		stop(cause)
		r := nestor.Result{Status: nestor.Error}
		if err := place.Close(&r); err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		if told, ok := api.ChangesOf(&r); ok != cancelled || cancelled && told.Count != 1 {
			t.Errorf("%v: %+v comes back", cause, told)
		}
		if refs, err := back.log.Blobs(t.Context(), string(id)); err != nil || len(refs) > 0 != cancelled {
			t.Errorf("%v: the store has %v, %v", cause, refs, err)
		}
	}
}

// A task's folder is one of the worker's, whatever the task says.
func TestCopyRefusesFoldersThatLeadOut(t *testing.T) {
	back := core(t, nil)
	dir := t.TempDir()
	put(t, dir, "file", "")
	if err := os.Symlink("/", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	c, err := newCopies(dir, filepath.Join(t.TempDir(), "runs"), back.log, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ dir, data, want string }{
		{"/etc", ``, "folder /etc is of another machine"},
		{"/etc", `{"subdir": "../etc"}`, `subdir "../etc": want a path in the project`},
		{"/etc", `{"subdir": "/etc"}`, `subdir "/etc": want a path in the project`},
		{"/p/out/etc", `{"subdir": "out/etc"}`, "escapes"},
		{"/p/none", `{"subdir": "none"}`, "no such file"},
		{"/p/file", `{"subdir": "file"}`, "no folder"},
	} {
		id := nestor.NewID(time.Now())
		_, err := c.Open(t.Context(), runner.Run{ID: id, Root: id, Attempt: 1, Task: nestor.Task{Dir: test.dir, Data: []byte(test.data)}})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %q", test.dir, test.data, err, test.want)
		}
	}
}

// A task that comes long after its run was forgotten is not begun again. One whose
// run is about to be made is.
func TestEndedLong(t *testing.T) {
	back := core(t, func(context.Context, *backend, *engine.Execution) nestor.Result {
		return nestor.Result{Status: nestor.Success}
	})
	made, err := back.engine.Submit(t.Context(), engine.Submission{Task: nestor.Task{Input: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.engine.Wait(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		id   nestor.ID
		want bool
	}{
		"made": {made, false}, "forgotten": {nestor.NewID(time.Now().Add(-time.Hour)), true}, "new": {nestor.NewID(time.Now()), false},
	} {
		if _, got := endedLong(t.Context(), back.engine, test.id); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What a result tells of files is bounded, and the count is of all.
func TestListOfChangesIsBounded(t *testing.T) {
	long := &workspace.Changes{Written: slices.Repeat([]string{strings.Repeat("x", 4000)}, 100), Left: []string{"left"}}
	many := &workspace.Changes{Written: slices.Repeat([]string{"a"}, 150), Removed: slices.Repeat([]string{"b"}, 150)}
	if told := listChanges(long); told.Count != 100 || len(told.Files) != 4 {
		t.Errorf("of long names: %d of %d", len(told.Files), told.Count)
	}
	if told := listChanges(many); told.Count != 300 || len(told.Files) != maxFiles {
		t.Errorf("of many: %d of %d", len(told.Files), told.Count)
	}
}

func TestWithin(t *testing.T) {
	real := t.TempDir()
	put(t, real, "sub/file", "")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		project, dir, want string
		inside             bool
	}{
		{real, real, ".", true},
		{real, filepath.Join(real, "sub"), "sub", true},
		{real, filepath.Join(link, "sub"), "sub", true},
		{link, real, ".", true},
		{real, filepath.Dir(real), "", false},
		{real, real + "x", "", false},
		{real, "sub", "", false},
	} {
		if got, inside := within(test.project, test.dir); got != test.want || inside != test.inside {
			t.Errorf("%s in %s: %q, %v", test.dir, test.project, got, inside)
		}
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(content), 0o666)); err != nil {
		t.Fatal(err)
	}
}
