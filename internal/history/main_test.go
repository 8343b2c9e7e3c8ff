package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// roleVariable makes the test binary a process that projects. Its value is the
// folder it does so in.
const roleVariable = "NESTOR_HISTORY_PROJECT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(roleVariable); dir != "" {
		if err := projectForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The NATS client leaves it behind when an object is put into its store before this
	// goroutine, which is started for that, has once run.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// soon is a context that no test needs to outlive.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the test waited for a minute"))
	t.Cleanup(cancel)
	return ctx
}

// mustOpen opens a history, which is closed when the test ends.
func mustOpen(t testing.TB, path string) *History {
	t.Helper()
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// world is a log whose archive is a history that is being projected.
type world struct {
	h       *History
	log     *eventlog.Log
	stop    func() // ends the projection
	project func() // begins it again
}

// newWorld makes one in a folder. Nothing is projected yet.
func newWorld(t testing.TB, dir string) *world {
	t.Helper()
	b, err := broker.Open(soon(t), broker.Options{Dir: filepath.Join(dir, "broker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{h: mustOpen(t, filepath.Join(dir, "history.db")), stop: func() {}}
	w.log = eventlog.New(b, eventlog.Options{Archive: w.h})
	background(t, "the log", w.log.Run)
	w.project = func() {
		w.stop = background(t, "the projection", func(ctx context.Context) error { return w.h.Project(ctx, w.log) })
	}
	return w
}

// background runs something until the test ends, or stop is called.
func background(t testing.TB, what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("%s ended: %v", what, err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// append stores events of one run.
func (w *world) append(t testing.TB, events ...nestor.Event) (last eventlog.Position) {
	t.Helper()
	for _, e := range events {
		data, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		at, err := w.log.Append(soon(t), string(e.Head().Root), string(e.Head().Run), data)
		if err != nil {
			t.Fatal(err)
		}
		last = at[0]
	}
	return last
}

// until waits until a position is projected.
func (w *world) until(t testing.TB, p eventlog.Position) {
	t.Helper()
	waitFor(t, fmt.Sprint("position ", p), func() bool {
		at, err := w.h.Projected(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		return at >= p
	})
}

// waitFor looks until something is so.
func waitFor(t testing.TB, what string, so func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for ctx := soon(t); !so(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, context.Cause(ctx))
		}
	}
}

var clock = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newID() nestor.ID { return nestor.NewID(clock) }

// head is the header of an event some seconds after clock.
func head(root, run nestor.ID, depth, second int) nestor.Header {
	return nestor.Header{Root: root, Run: run, Depth: depth, Time: clock.Add(time.Duration(second) * time.Second)}
}

// small is a tree of a root and a child; ended or not.
func small(ended bool) (root, child nestor.ID, events []nestor.Event) {
	root, child = newID(), newID()
	events = []nestor.Event{
		&nestor.RunQueued{Header: head(root, root, 0, 0), Agent: "planner"},
		&nestor.ExecutionStart{Header: head(root, root, 0, 1), Agent: "planner", Swarm: "bees", Attempt: 1},
		&nestor.ChatStart{Header: head(root, root, 0, 1), Message: "Write a poem about Zürich"},
		&nestor.AgentSpawn{Header: head(root, root, 0, 2), Agent: "poet", Description: "verses", Child: child},
		&nestor.RunQueued{Header: head(root, child, 1, 2), Parent: root, Agent: "poet"},
		&nestor.ExecutionStart{Header: head(root, child, 1, 3), Agent: "poet", Attempt: 1},
		&nestor.AgentComplete{Header: head(root, child, 1, 4), Agent: "poet", Content: "The lake lies still, the swans are gone."},
		&nestor.ExecutionComplete{
			Header: head(root, child, 1, 5), Agent: "poet", Success: true, Status: nestor.Success,
			CostUSD: 0.25, Usage: nestor.Usage{Input: 10, Output: 20}, ResultSummary: "The lake",
		},
	}
	if ended {
		events = append(events, &nestor.ExecutionComplete{
			Header: head(root, root, 0, 11), Agent: "planner", Status: nestor.Partial, CostUSD: 0.5,
			Usage: nestor.Usage{Input: 1, Output: 2, CacheRead: 3}, Error: &nestor.Failure{Kind: nestor.Budget, Message: "spent"},
		})
	}
	return root, child, events
}

// stored returns what the tables hold, of events or of runs.
func stored(t testing.TB, h *History) (events []eventlog.Event, runs []RunInfo) {
	t.Helper()
	ctx := soon(t)
	rows, err := h.read.QueryContext(ctx, "SELECT position, root, run, n, data FROM events ORDER BY position")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e eventlog.Event
		if err := rows.Scan(&e.Position, &e.Root, &e.Run, &e.N, &e.Data); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	runs, err = h.Runs(ctx, Query{Limit: maxLimit})
	if err != nil {
		t.Fatal(err)
	}
	return events, runs
}

// logged returns what the log holds.
func logged(t testing.TB, log *eventlog.Log, f eventlog.Filter) (events []eventlog.Event) {
	t.Helper()
	for e, err := range log.Read(soon(t), f, 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// chunks returns how many the stream holds.
func (w *world) chunks(t testing.TB) uint64 {
	t.Helper()
	s, err := w.log.Stats(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return s.Chunks
}

func forgetNothing(context.Context, nestor.ID, []nestor.ID) error { return nil }

// projectForever is a process that appends and projects until it is killed. It
// prints each event that was acknowledged.
func projectForever(dir string) error {
	ctx := context.Background()
	b, err := broker.Open(ctx, broker.Options{Dir: filepath.Join(dir, "broker")})
	if err != nil {
		return err
	}
	h, err := Open(ctx, Options{Path: filepath.Join(dir, "history.db")})
	if err != nil {
		return err
	}
	log := eventlog.New(b, eventlog.Options{Archive: h})
	failed := make(chan error, 3)
	go func() { failed <- log.Run(ctx) }()
	go func() { failed <- h.Project(ctx, log) }()
	go func() {
		for {
			root, _, events := small(true)
			for _, e := range events {
				data, err := nestor.EncodeEvent(e)
				if err != nil {
					failed <- err
					return
				}
				at, err := log.Append(ctx, string(root), string(e.Head().Run), data)
				if err != nil {
					failed <- err
					return
				}
				fmt.Println(at[0])
			}
			if _, err := h.Archive(ctx, log, forgetNothing, 0); err != nil {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}
