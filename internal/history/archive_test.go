package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

var _ eventlog.Archive = (*History)(nil)

// forgotten is an engine that notes what it was to forget.
type forgotten struct {
	trees []nestor.ID
	runs  []nestor.ID
	err   error
}

func (f *forgotten) forget(_ context.Context, root nestor.ID, runs []nestor.ID) error {
	if f.err != nil {
		return f.err
	}
	f.trees, f.runs = append(f.trees, root), append(f.runs, runs...)
	return nil
}

func TestArchivedTreesLeaveTheStreamAndCanBeFollowed(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	root, child, events := small(true)
	w.append(t, events...)
	live, _, going := small(false)
	last := w.append(t, going...)
	w.until(t, last)
	before := logged(t, w.log, eventlog.Filter{})

	var engine forgotten
	n, err := w.h.Archive(soon(t), w.log, engine.forget, 0)
	if n != 1 || err != nil {
		t.Fatalf("archived %d trees: %v", n, err)
	}
	if !slices.Equal(engine.trees, []nestor.ID{root}) || !slices.Equal(engine.runs, []nestor.ID{root, child}) {
		t.Errorf("forgot %v of %v", engine.runs, engine.trees)
	}
	if got := w.chunks(t); got != uint64(len(going)) {
		t.Errorf("%d chunks are left in the stream, want the %d of the live tree", got, len(going))
	}
	sameEvents(t, logged(t, w.log, eventlog.Filter{}), before)
	sameEvents(t, logged(t, w.log, eventlog.Filter{Run: string(child)}), before[4:8])
	sameEvents(t, logged(t, w.log, eventlog.Filter{Root: string(live)}), before[9:])

	for id, archived := range map[nestor.ID]bool{root: true, child: true, live: false} {
		r, err := w.h.Run(soon(t), id)
		if err != nil || r.Archived != archived {
			t.Errorf("run %s: archived is %t, %v", id, r.Archived, err)
		}
	}
	if n, err := w.h.Archive(soon(t), w.log, engine.forget, 0); n != 0 || err != nil || len(engine.trees) != 1 {
		t.Errorf("the second time: %d trees, %v, %v", n, err, engine.trees)
	}
	if _, err := w.log.Append(soon(t), string(root), string(root), []byte(`{}`)); !errors.Is(err, eventlog.ErrArchived) {
		t.Errorf("appending to an archived tree: %v", err)
	}
}

func TestWhatEndedLatelyIsNotArchived(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	_, _, events := small(true)
	w.until(t, w.append(t, events...))
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, time.Since(clock)); n != 0 || err != nil {
		t.Errorf("archived %d trees: %v", n, err)
	}
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, time.Since(clock)-time.Minute); n != 1 || err != nil {
		t.Errorf("archived %d trees: %v", n, err)
	}
}

func TestATreeWithARunThatGoesOnIsNotArchived(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	root, _, events := small(true)
	// The root's end overtakes the child's, which the root alone spoke of.
	events = append(events[:4:4], events[8])
	last := w.append(t, events...)
	w.until(t, last)
	var engine forgotten
	if n, err := w.h.Archive(soon(t), w.log, engine.forget, 0); n != 0 || err != nil || engine.trees != nil {
		t.Errorf("archived %d trees: %v, %v", n, err, engine.trees)
	}
	if got := logged(t, w.log, eventlog.Filter{Root: string(root)}); len(got) != len(events) {
		t.Errorf("%d events are left", len(got))
	}
}

// An archiving that a crash ends after one of its steps is finished by the next,
// and who reads the log meanwhile misses nothing.
func TestArchivingCutOffAfterEachStep(t *testing.T) {
	steps := []struct {
		name string
		do   func(*testing.T, *world, tree, []RunInfo)
	}{
		{"nothing", func(*testing.T, *world, tree, []RunInfo) {}},
		{"the mark", func(t *testing.T, w *world, tr tree, _ []RunInfo) {
			if _, err := w.h.mark(soon(t), tr); err != nil {
				t.Fatal(err)
			}
		}},
		{"forgetting that was not noted", func(t *testing.T, w *world, tr tree, _ []RunInfo) {}}, // the engine has; the file does not know
		{"forgetting", func(t *testing.T, w *world, tr tree, runs []RunInfo) {
			if err := w.h.forget(soon(t), forgetNothing, tr.root, runs); err != nil {
				t.Fatal(err)
			}
		}},
		{"a purge that was not noted", func(t *testing.T, w *world, tr tree, _ []RunInfo) {
			if err := w.log.Purge(soon(t), tr.root, tr.last); err != nil {
				t.Fatal(err)
			}
		}},
		{"the purge", func(t *testing.T, w *world, tr tree, _ []RunInfo) {
			if err := w.h.purge(soon(t), w.log, tr.root, tr.last); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for cut, step := range steps {
		t.Run("after "+step.name, func(t *testing.T) {
			w := newWorld(t, t.TempDir())
			w.project()
			root, _, events := small(true)
			w.until(t, w.append(t, events...))
			before := logged(t, w.log, eventlog.Filter{})
			page, err := w.h.unsettled(soon(t), "", time.Now())
			if err != nil || len(page) != 1 {
				t.Fatalf("unsettled are %v: %v", page, err)
			}
			runs, err := w.h.Tree(soon(t), root)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps[:cut+1] {
				s.do(t, w, page[0], runs)
				sameEvents(t, logged(t, w.log, eventlog.Filter{}), before)
			}
			var engine forgotten
			if n, err := w.h.Archive(soon(t), w.log, engine.forget, 0); n != 1 || err != nil {
				t.Fatalf("archived %d trees: %v", n, err)
			}
			if again := cut < 3; again != (len(engine.trees) == 1) {
				t.Errorf("forgot %v", engine.trees)
			}
			sameEvents(t, logged(t, w.log, eventlog.Filter{}), before)
			if n := w.chunks(t); n != 0 {
				t.Errorf("%d chunks are left in the stream", n)
			}
			if page, err := w.h.unsettled(soon(t), "", time.Now()); err != nil || len(page) != 0 {
				t.Errorf("unsettled are %v: %v", page, err)
			}
		})
	}
}

func TestAnEngineThatCannotForgetKeepsTheEvents(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	_, _, events := small(true)
	w.until(t, w.append(t, events...))
	engine := forgotten{err: errors.New("away")}
	if n, err := w.h.Archive(soon(t), w.log, engine.forget, 0); n != 0 || !errors.Is(err, engine.err) {
		t.Errorf("archived %d trees: %v", n, err)
	}
	if n := w.chunks(t); n != uint64(len(events)) {
		t.Errorf("%d chunks are left in the stream", n)
	}
	engine.err = nil
	if n, err := w.h.Archive(soon(t), w.log, engine.forget, 0); n != 1 || err != nil {
		t.Errorf("archived %d trees: %v", n, err)
	}
}

func TestALateEventOfAnArchivedTreeIsArchivedToo(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	root, _, events := small(true)
	w.until(t, w.append(t, events...))
	page, err := w.h.unsettled(soon(t), "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.mark(soon(t), page[0]); err != nil {
		t.Fatal(err)
	}
	w.until(t, w.append(t, &nestor.Letter{Header: head(root, root, 0, 20), Content: "a letter from the past"}))
	before := logged(t, w.log, eventlog.Filter{})
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); n != 1 || err != nil {
		t.Fatalf("archived %d trees: %v", n, err)
	}
	sameEvents(t, logged(t, w.log, eventlog.Filter{}), before)
	if n := w.chunks(t); n != 0 {
		t.Errorf("%d chunks are left in the stream", n)
	}
}

// What the log has and the history not yet is not purged, even if it is of the
// same chunk.
func TestPartOfAChunkIsNotArchived(t *testing.T) {
	w := newWorld(t, t.TempDir())
	root := newID()
	var lines [][]byte
	for _, e := range []nestor.Event{
		&nestor.RunQueued{Header: head(root, root, 0, 0)},
		&nestor.ExecutionComplete{Header: head(root, root, 0, 1), Status: nestor.Success},
		&nestor.Letter{Header: head(root, root, 0, 2), Content: "of the same chunk"},
	} {
		line, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if _, err := w.log.Append(soon(t), string(root), string(root), lines[0], lines[1], lines[2]); err != nil {
		t.Fatal(err)
	}
	all := logged(t, w.log, eventlog.Filter{})
	if err := w.h.add(soon(t), all[:2]); err != nil {
		t.Fatal(err)
	}
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); n != 0 || err != nil {
		t.Fatalf("archived %d trees: %v", n, err)
	}
	sameEvents(t, logged(t, w.log, eventlog.Filter{}), all)
	if err := w.h.add(soon(t), all); err != nil {
		t.Fatal(err)
	}
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); n != 1 || err != nil {
		t.Fatalf("archived %d trees: %v", n, err)
	}
	sameEvents(t, logged(t, w.log, eventlog.Filter{}), all)
}

// noLog is a log that has nothing more to say.
type noLog struct{ *eventlog.Log }

func (noLog) Read(context.Context, eventlog.Filter, eventlog.Position) iter.Seq2[eventlog.Event, error] {
	return func(func(eventlog.Event, error) bool) {}
}

func TestATreeWithAGapStaysInTheStream(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	for i, missing := range []uint64{0, 1} {
		root := newID()
		var events []eventlog.Event
		for n, e := range []nestor.Event{
			&nestor.RunQueued{Header: head(root, root, 0, 0)},
			&nestor.ChatStart{Header: head(root, root, 0, 0), Message: "hello"},
			&nestor.ExecutionComplete{Header: head(root, root, 0, 1), Status: nestor.Success},
		} {
			data, err := nestor.EncodeEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			if uint64(n) != missing {
				events = append(events, eventlog.Event{Position: eventlog.Position(10*i + n + 1), Root: string(root), Run: string(root), N: uint64(n), Data: data})
			}
		}
		if err := h.add(soon(t), events); err != nil {
			t.Fatal(err)
		}
		n, err := h.Archive(soon(t), noLog{}, func(context.Context, nestor.ID, []nestor.ID) error { return errors.New("forgot") }, 0)
		gap, ok := errors.AsType[*IncompleteError](err)
		if n != 0 || !ok {
			t.Fatalf("archived %d trees: %v", n, err)
		}
		if i == 0 && (gap.Root != root || gap.Have != 2 || gap.Want != 3) {
			t.Errorf("got %+v", gap)
		}
	}
}

// Trees are appended, projected, archived and purged while several follow, some
// from the beginning. Each sees each event once, in order.
func TestFollowersSeeAllWhileTreesAreArchived(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	const trees, followers = 40, 6
	var want []eventlog.Position
	var wg sync.WaitGroup
	got := make([][]eventlog.Position, followers)
	done := make(chan eventlog.Position) // closed when last is set
	var last eventlog.Position
	follow := func(i int) {
		ctx := soon(t)
		for e, err := range w.log.Follow(ctx, eventlog.Filter{}, 0) {
			if err != nil {
				t.Errorf("follower %d: %v", i, err)
				return
			}
			got[i] = append(got[i], e.Position)
			select {
			case <-done:
			default:
				continue
			}
			if e.Position >= last {
				return
			}
		}
	}
	for n := range trees {
		if n%(trees/followers) == 0 && n/(trees/followers) < followers {
			wg.Go(func() { follow(n / (trees / followers)) })
		}
		_, _, events := small(true)
		for _, e := range events {
			want = append(want, w.append(t, e))
		}
		if n%3 == 2 {
			w.until(t, want[len(want)-1])
			if _, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); err != nil {
				t.Error(err)
			}
		}
	}
	last = w.append(t, &nestor.Letter{Header: head("end", "end", 0, 0)})
	want = append(want, last)
	close(done)
	// A follower that had read all before done was closed waits for one more.
	want = append(want, w.append(t, &nestor.Letter{Header: head("end", "end", 0, 0)}))
	wg.Wait()
	for i, list := range got {
		if !slices.Equal(list, want[:min(len(list), len(want))]) || len(list) < len(want)-1 {
			t.Errorf("follower %d saw %d of %d events, or not in order", i, len(list), len(want))
		}
	}
}

func TestPagesOfEventsAreJoined(t *testing.T) {
	w := newWorld(t, t.TempDir())
	root := newID()
	events := []nestor.Event{&nestor.RunQueued{Header: head(root, root, 0, 0)}}
	for i := range 3 * pageEvents {
		events = append(events, &nestor.ChatStart{Header: head(root, root, 0, 0), Message: fmt.Sprint("message ", i)})
	}
	events = append(events, &nestor.ExecutionComplete{Header: head(root, root, 0, 1), Status: nestor.Success})
	var all []eventlog.Event
	for i, e := range events {
		data, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, eventlog.Event{Position: eventlog.Position(i + 1), Root: string(root), Run: string(root), N: uint64(i), Data: data})
	}
	if err := w.h.add(soon(t), all); err != nil {
		t.Fatal(err)
	}
	read := func(after, upTo eventlog.Position) (list []eventlog.Event) {
		for e, err := range w.h.Events(soon(t), eventlog.Filter{Run: string(root)}, after, upTo) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		return list
	}
	if got := read(0, 1<<40); len(got) != 0 {
		t.Errorf("%d events of a tree that is not archived", len(got))
	}
	if _, err := w.h.mark(soon(t), tree{root: string(root), last: all[len(all)-1].Position}); err != nil {
		t.Fatal(err)
	}
	sameEvents(t, read(0, 1<<40), all)
	sameEvents(t, read(5, 600), all[5:600])
}
