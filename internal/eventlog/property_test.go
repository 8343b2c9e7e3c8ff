package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor/internal/soak"
)

// memory is an archive.
type memory struct {
	mu     sync.Mutex
	events []Event // in order
}

func (m *memory) add(events []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = slices.Clone(m.events) // those who read have the old ones
	m.events = append(m.events, events...)
	slices.SortFunc(m.events, func(a, b Event) int { return int(int64(a.Position) - int64(b.Position)) })
}

func (m *memory) Events(_ context.Context, filter Filter, after, upTo Position) iter.Seq2[Event, error] {
	m.mu.Lock()
	events := m.events
	m.mu.Unlock()
	return func(yield func(Event, error) bool) {
		for _, e := range events {
			if e.Position > after && e.Position <= upTo && filter.match(e.Root, e.Run) && !yield(e, nil) {
				return
			}
		}
	}
}

// archive moves a tree whose events are all there into the archive.
func (m *memory) archive(ctx context.Context, l *Log, root string) error {
	var all []Event
	for e, err := range l.Read(ctx, Filter{Root: root}, 0) {
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	m.add(all)
	return l.Purge(ctx, root, all[len(all)-1].Position)
}

func TestArchivedTreeIsFollowedAndNotWritten(t *testing.T) {
	archive := &memory{}
	at := embedded(t)
	l, closeAll := at.openBroker(t, Options{Archive: archive})
	ctx := soon(t)
	for i, root := range []string{"a", "b", "a", "b", "a"} {
		if _, err := l.Append(ctx, root, root, event("%s%d", root, i)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := l.Writer("a", "a", 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(ctx, event("a5")); err != nil {
		t.Fatal(err)
	}
	if err := archive.archive(ctx, l, "a"); err != nil {
		t.Fatal(err)
	}
	if stats, err := l.Stats(ctx); err != nil || stats.Chunks != 2 || stats.Runs != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	if _, err := w.Append(ctx, event("late")); err == nil || !strings.Contains(err.Error(), "archived") {
		t.Errorf("a writer that was there before: %v", err)
	}
	if _, err := l.Append(ctx, "a", "a", event("late")); err == nil || !strings.Contains(err.Error(), "archived") {
		t.Errorf("a writer that comes after: %v", err)
	}
	closeAll()
	l = at.open(t, Options{Archive: archive})
	for _, want := range []string{"a0 b1 a2 b3 a4 a5"} {
		if got := texts(first(t, l.Follow(ctx, Filter{}, 0), 6)); got != want {
			t.Errorf("got %s", got)
		}
	}
	if got := texts(first(t, l.Follow(ctx, Filter{Root: "a"}, archive.events[0].Position), 3)); got != "a2 a4 a5" {
		t.Errorf("got %s", got)
	}
}

// Who asks while the server is away is answered when it is back.
func TestServerIsWaitedFor(t *testing.T) {
	at := otherProcess(t)
	l := at.open(t, Options{})
	if _, err := l.Append(soon(t), "root", "run", event("first")); err != nil {
		t.Fatal(err)
	}
	const blob = "a blob"
	ref, err := l.PutBlob(soon(t), "root", []byte(blob))
	if err != nil {
		t.Fatal(err)
	}
	away := l.broker.Conn().StatusChanged(nats.RECONNECTING)
	at.servers[0].kill(t)
	<-away
	var asking sync.WaitGroup
	asking.Go(func() {
		if got, err := l.Blob(soon(t), ref); err != nil || string(got) != blob {
			t.Errorf("the blob is %q, %v", got, err)
		}
	})
	asking.Go(func() {
		if _, err := l.PutBlob(soon(t), "other", []byte(blob)); err != nil {
			t.Error(err)
		}
	})
	asking.Go(func() {
		if got, err := l.Blobs(soon(t), "root"); err != nil || !slices.Equal(got, []string{ref}) {
			t.Errorf("the blobs are %q, %v", got, err)
		}
	})
	asking.Go(func() {
		if err := l.RemoveBlobs(soon(t), "nobody"); err != nil {
			t.Error(err)
		}
	})
	asking.Go(func() {
		if got := texts(first(t, l.Read(soon(t), Filter{}, 0), 1)); got != "first" {
			t.Errorf("it reads %s", got)
		}
	})
	asking.Go(func() {
		if stats, err := l.Stats(soon(t)); err != nil || stats.Chunks != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
	asking.Go(func() {
		if err := l.Purge(soon(t), "other", 1); err != nil {
			t.Error(err)
		}
	})
	at.servers[0].start(t)
	if err := at.servers[0].opened(); err != nil {
		t.Error(err)
	}
	asking.Wait()
}

func TestNothingIsLostOrRepeated(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { nothingIsLostOrRepeated(t, embedded(t)) })
	t.Run("other process", func(t *testing.T) { nothingIsLostOrRepeated(t, otherProcess(t)) })
	t.Run("cluster", func(t *testing.T) { nothingIsLostOrRepeated(t, cluster(t)) })
}

// Runs are written at once, by writers that wait and writers that do not; trees
// are archived and purged as they end; servers are killed and started again;
// followers come, stop and go on where they were.
func nothingIsLostOrRepeated(t *testing.T, at *place) {
	seed := soak.Rand(t).Uint64()
	roots, runs, events, followers, kills, bound := 4, 3, 60, 6, 1, 150*time.Second
	if soak.All() {
		roots, runs, events, followers, kills, bound = 20, 5, 400, 30, 6, 10*time.Minute
	}
	random := func(who int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(who))) }
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()

	archive := &memory{}
	small := Options{Archive: archive, Queue: 2 << 10, Window: 4 << 10, Readers: 2}
	logs := []*Log{at.open(t, small)}
	if at.servers != nil {
		logs = append(logs, at.open(t, small))
	}

	var everything sync.WaitGroup
	// Writers.
	for r := range roots {
		tree := &sync.WaitGroup{}
		for run := range runs {
			tree.Go(func() {
				if err := writeRun(ctx, logs[run%len(logs)], random(1000+r*runs+run), name("root", r), name("run", r*runs+run), events); err != nil {
					t.Error(err)
					cancel()
				}
			})
		}
		everything.Go(func() {
			tree.Wait()
			if r%4 == 3 || ctx.Err() != nil {
				return // some stay
			}
			if err := archive.archive(ctx, logs[0], name("root", r)); err != nil {
				t.Errorf("archiving: %v", err)
				cancel()
			}
		})
	}
	// Followers.
	for f := range followers {
		everything.Go(func() {
			rnd := random(f)
			filter, want := Filter{}, roots*runs*events
			switch f % 3 {
			case 1:
				filter, want = Filter{Root: name("root", rnd.IntN(roots))}, runs*events
			case 2:
				run := rnd.IntN(roots * runs)
				filter, want = Filter{Root: name("root", run/runs), Run: name("run", run)}, events
			}
			if err := followAll(ctx, logs[f%len(logs)], rnd, filter, want); err != nil {
				t.Errorf("follower %d of %+v: %v", f, filter, err)
				cancel()
			}
		})
	}
	// The killer.
	if at.servers != nil {
		everything.Go(func() {
			rnd := random(99)
			for range kills {
				p := at.servers[rnd.IntN(len(at.servers))]
				if !pause(ctx, time.Duration(rnd.IntN(100))*time.Millisecond) {
					return
				}
				p.kill(t)
				p.start(t)
				if err := p.opened(); err != nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	everything.Wait()
	// And from the start, when all is over.
	if !t.Failed() {
		if err := followAll(ctx, logs[0], random(5), Filter{}, roots*runs*events); err != nil {
			t.Error(err)
		}
	}
}

func name(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

func writeRun(ctx context.Context, l *Log, rnd *rand.Rand, root, run string, n int) error {
	w, err := l.Writer(root, run, uint64(1+rnd.IntN(5)))
	if err != nil {
		return err
	}
	for i := 0; i < n; {
		var batch []json.RawMessage
		for range 1 + rnd.IntN(min(n-i, 5)) {
			batch = append(batch, event("%s %d %s", run, i, strings.Repeat("x", rnd.IntN(200))))
			i++
		}
		switch rnd.IntN(3) {
		case 0:
			err = w.write(ctx, batch...)
		case 1:
			_, err = w.Append(ctx, batch...)
		case 2: // as somebody else, in between
			if err = w.Flush(ctx); err == nil {
				_, err = l.Append(ctx, root, run, batch...)
			}
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", run, err)
		}
	}
	return w.Flush(ctx)
}

// followAll follows from the start until want events were seen, with pauses.
func followAll(ctx context.Context, l *Log, rnd *rand.Rand, filter Filter, want int) error {
	seen, next := 0, map[string]uint64{}
	var after Position
	for seen < want {
		rest := 1 + rnd.IntN(want)
		for e, err := range l.Follow(ctx, filter, after) {
			switch {
			case err != nil:
				return fmt.Errorf("after %d of %d events: %w", seen, want, err)
			case e.Position <= after:
				return fmt.Errorf("position %d after %d", e.Position, after)
			case !filter.match(e.Root, e.Run):
				return fmt.Errorf("%s of %s does not pass", e.Run, e.Root)
			case e.N != next[e.Run]:
				return fmt.Errorf("event %d of %s where %d is next", e.N, e.Run, next[e.Run])
			case !strings.HasPrefix(string(e.Data), fmt.Sprintf("\"%s %d ", e.Run, e.N)):
				return fmt.Errorf("event %d of %s is %.40s", e.N, e.Run, e.Data)
			}
			after = e.Position
			next[e.Run]++
			seen++
			if rest--; rest == 0 || seen == want {
				break
			}
		}
	}
	return nil
}
