package server_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is a backend in memory.
type daemon struct {
	fail   error         // what all fail with; nil for none
	panics bool          // all panic
	held   chan struct{} // Submit waits for it; nil means it does not
	inside chan struct{} // Submit, Wait and Events that follow tell when they begin; nil means they do not

	mu      sync.Mutex // guards what follows
	runs    map[nestor.ID]*api.Run
	events  map[nestor.ID][]api.Event
	changed chan struct{} // closed at each change
	asked   []string      // what else was called
}

func newDaemon() *daemon {
	return &daemon{runs: map[nestor.ID]*api.Run{}, events: map[nestor.ID][]api.Event{}, changed: make(chan struct{})}
}

// begin is the beginning of each call.
func (d *daemon) begin(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panics {
		panic("the backend panics")
	}
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.fail
}

func (d *daemon) Asks(context.Context) ([]api.OpenAsk, error) {
	return []api.OpenAsk{{ID: "q1", Question: "which?"}}, d.begin("asks")
}

func (d *daemon) Answer(_ context.Context, id nestor.ID, ask string, a api.Answer) error {
	return d.begin("answer %s %s %+v", id, ask, a)
}

func (d *daemon) tell() {
	if d.inside != nil {
		d.inside <- struct{}{}
	}
}

// change does something, and wakes who waits.
func (d *daemon) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// add makes a run with n events.
func (d *daemon) add(n int) nestor.ID {
	id := nestor.NewID(time.Now())
	d.change(func() { d.runs[id] = &api.Run{ID: id, Root: id, State: nestor.Running} })
	for range n {
		d.say(id, "hello")
	}
	return id
}

// say appends an event to a run.
func (d *daemon) say(id nestor.ID, text string) {
	data, err := nestor.EncodeEvent(&nestor.ChatStart{Header: nestor.Header{Run: id, Root: id}, Message: text})
	if err != nil {
		panic(err)
	}
	d.change(func() {
		d.events[id] = append(d.events[id], api.Event{Seq: uint64(len(d.events[id]) + 1), Data: data})
	})
}

func (d *daemon) end(id nestor.ID) { d.change(func() { d.runs[id].State = nestor.Success }) }

// get returns a run as it stands, and what tells of the next change.
func (d *daemon) get(id nestor.ID) (api.Run, chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	run, ok := d.runs[id]
	if !ok {
		return api.Run{}, nil, fmt.Errorf("run %s: %w", id, nestor.ErrRunNotFound)
	}
	return *run, d.changed, nil
}

func (d *daemon) Submit(ctx context.Context, s api.Submission) (api.Run, error) {
	if err := d.begin("submit %s %s", s.Task.Input, s.Key); err != nil {
		return api.Run{}, err
	}
	d.tell()
	if d.held != nil {
		select {
		case <-d.held:
		case <-ctx.Done():
			return api.Run{}, ctx.Err()
		}
	}
	run, _, err := d.get(d.add(1))
	return run, err
}

func (d *daemon) Run(_ context.Context, id nestor.ID) (api.Run, error) {
	if err := d.begin("run"); err != nil {
		return api.Run{}, err
	}
	run, _, err := d.get(id)
	return run, err
}

func (d *daemon) Wait(ctx context.Context, id nestor.ID) (api.Run, error) {
	if err := d.begin("wait"); err != nil {
		return api.Run{}, err
	}
	d.tell()
	for {
		run, changed, err := d.get(id)
		if err != nil || run.State.Ended() {
			return run, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return run, nil
		}
	}
}

func (d *daemon) Runs(_ context.Context, q api.Query) ([]api.Run, error) {
	if err := d.begin("runs %+v", q); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []api.Run
	for _, run := range d.runs {
		list = append(list, *run)
	}
	return list, nil
}

func (d *daemon) Tree(_ context.Context, id nestor.ID) ([]api.Run, error) {
	if err := d.begin("tree"); err != nil {
		return nil, err
	}
	run, _, err := d.get(id)
	return []api.Run{run}, err
}

func (d *daemon) Search(_ context.Context, text string, q api.Query) ([]api.Hit, error) {
	return []api.Hit{{Seq: 5, Snippet: text}}, d.begin("search %s %+v", text, q)
}

func (d *daemon) Cancel(_ context.Context, id nestor.ID, c api.Cancellation) error {
	return d.begin("cancel %+v", c)
}

func (d *daemon) Send(_ context.Context, id nestor.ID, m api.Message) error {
	return d.begin("send %+v", m)
}

func (d *daemon) Backup(_ context.Context, path string) error { return d.begin("backup %s", path) }

func (d *daemon) Changes(_ context.Context, id nestor.ID) ([]byte, error) {
	if err := d.begin("changes"); err != nil {
		return nil, err
	}
	_, _, err := d.get(id)
	return []byte("an archive"), err
}

func (d *daemon) Diff(_ context.Context, id nestor.ID) (api.Diff, error) {
	return api.Diff{Files: []api.FileDiff{{Path: "a.go", Action: "edit"}}, Patch: "+x"}, d.begin("diff %s", id)
}

func (d *daemon) Workspaces(context.Context) ([]api.Space, error) {
	return []api.Space{{Kind: "worktree", Work: "commits"}}, d.begin("workspaces")
}

func (d *daemon) CollectWorkspaces(_ context.Context, c api.Collection) ([]api.Space, error) {
	return nil, d.begin("collect %v %d %v", c.Age, c.Size, c.Force)
}

func (d *daemon) EndWorkspace(_ context.Context, id nestor.ID, e api.Ending) (api.Workspace, error) {
	return api.Workspace{End: e.End, Why: "why"}, d.begin("end %s %s", id, e.End)
}

func (d *daemon) ApproveWorkspace(_ context.Context, id nestor.ID, a api.Approval) (api.Workspace, error) {
	return api.Workspace{End: "merge"}, d.begin("approve %s %s %s", id, a.By, a.Reason)
}

func (d *daemon) Info(context.Context) (api.Info, error) {
	return api.Info{Version: "v1", PID: 7, Slots: 5}, d.begin("info")
}

func (d *daemon) Events(ctx context.Context, id nestor.ID, q api.EventsQuery) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if err := d.begin("events %+v", q); err != nil {
			yield(api.Event{}, err)
			return
		}
		if q.Follow {
			d.tell()
		}
		for at := int(q.After); ; {
			run, changed, err := d.get(id)
			if err != nil {
				yield(api.Event{}, err)
				return
			}
			d.mu.Lock()
			events := slices.Clone(d.events[id][min(at, len(d.events[id])):])
			d.mu.Unlock()
			at += len(events)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if !q.Follow || run.State.Ended() {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(api.Event{}, ctx.Err())
				return
			}
		}
	}
}

// socket returns a path that is short enough.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve serves d on a socket until stop is called, which returns what Serve
// does, or the test ends.
func serve(t testing.TB, d server.Backend, path string, o server.Options) (c *api.Client, stop func() error) {
	t.Helper()
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, d, ln, path, o)
}

func serveOn(t testing.TB, d server.Backend, ln net.Listener, path string, o server.Options) (*api.Client, func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.New(d, o).Serve(ctx, ln) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	c := api.NewClient(path)
	t.Cleanup(func() {
		c.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return c, stop
}

// through returns a client that speaks to the server at path without package
// api.
func through(t testing.TB, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
