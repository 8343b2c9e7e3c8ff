package history

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

func sameEvents(t testing.TB, got, want []eventlog.Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.Position != w.Position || g.Root != w.Root || g.Run != w.Run || g.N != w.N || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("event %d is %+v, want %+v", i, g, w)
		}
	}
}

func TestProjectionEqualsTheLog(t *testing.T) {
	w := newWorld(t, t.TempDir())
	root, child, events := small(true)
	w.append(t, events[:5]...)
	w.project()
	last := w.append(t, events[5:]...)
	w.until(t, last)

	got, _ := stored(t, w.h)
	sameEvents(t, got, logged(t, w.log, eventlog.Filter{}))

	tree, err := w.h.Tree(soon(t), root)
	if err != nil {
		t.Fatal(err)
	}
	want := []RunInfo{
		{
			ID: root, Root: root, Agent: "planner", Swarm: "bees", Title: "Write a poem about Zürich", State: nestor.Partial, Attempt: 1,
			Queued: clock, Started: clock.Add(time.Second), Ended: clock.Add(11 * time.Second), CostUSD: 0.5,
			Usage: nestor.Usage{Input: 1, Output: 2, CacheRead: 3}, Error: &nestor.Failure{Kind: nestor.Budget, Message: "spent"},
			First: got[0].Position, Last: last, Events: 5,
		},
		{
			ID: child, Root: root, Parent: root, Depth: 1, Agent: "poet", Title: "verses", State: nestor.Success, Attempt: 1,
			Queued: clock.Add(2 * time.Second), Started: clock.Add(3 * time.Second), Ended: clock.Add(5 * time.Second), CostUSD: 0.25,
			Usage: nestor.Usage{Input: 10, Output: 20}, Summary: "The lake", First: got[3].Position, Last: got[7].Position, Events: 4,
		},
	}
	if !reflect.DeepEqual(tree, want) {
		t.Errorf("got  %+v\nwant %+v", tree, want)
	}
	if state, ok := w.h.Ended(soon(t), child); !ok || state != nestor.Success {
		t.Errorf("the child ended as %q, %t", state, ok)
	}
	if _, ok := w.h.Ended(soon(t), newID()); ok {
		t.Error("a run that nobody knows has ended")
	}
}

func TestALostHistoryIsProjectedAgain(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir)
	w.project()
	for range 20 {
		_, _, events := small(true)
		w.append(t, events...)
	}
	_, _, events := small(false)
	last := w.append(t, events...)
	w.until(t, last)
	wantEvents, wantRuns := stored(t, w.h)

	again := mustOpen(t, filepath.Join(dir, "another.db"))
	if !again.Opened().Created {
		t.Error("a new file was not created")
	}
	background(t, "the projection", func(ctx context.Context) error { return again.Project(ctx, w.log) })
	(&world{h: again}).until(t, last)
	events2, runs2 := stored(t, again)
	sameEvents(t, events2, wantEvents)
	if !reflect.DeepEqual(runs2, wantRuns) {
		t.Errorf("got %+v\nwant %+v", runs2, wantRuns)
	}
}

func TestEventsThatComeTwiceAreWrittenOnce(t *testing.T) {
	w := newWorld(t, t.TempDir())
	_, _, events := small(true)
	w.append(t, events...)
	all := logged(t, w.log, eventlog.Filter{})
	for _, part := range [][]eventlog.Event{all[:4], all[:6], all, all, all[2:5]} {
		if err := w.h.add(soon(t), part); err != nil {
			t.Fatal(err)
		}
	}
	got, runs := stored(t, w.h)
	sameEvents(t, got, all)
	if len(runs) != 2 || runs[0].Events+runs[1].Events != uint64(len(all)) {
		t.Errorf("runs are %+v", runs)
	}
}

func TestForeignEventsAreKeptAndHarmNothing(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	var events []eventlog.Event
	for i, data := range []string{
		`{}`, `[]`, `7`, `{"type":7}`, `{"type":"run_queued","time":"yesterday"}`, `{"type":"made_up","run":"x","root":"y"}`,
		`{"type":"agent_spawn","child":"../../etc","time":"2026-01-01T00:00:00Z"}`,
		`{"type":"agent_execution_complete","status":"flying","time":"2026-01-01T00:00:00Z"}`,
		`{"type":"chat_start","message":"zero \u0000 and \ud800","time":"0001-01-01T00:00:00Z"}`,
		`{"type":"chat_start","message":"late","time":"9999-12-31T23:59:59Z","depth":-5}`,
		"{\"type\":\"chat_start\",\"message\":\"\xff\xfe\",\"time\":\"2026-01-01T00:00:00Z\"}",
	} {
		events = append(events, eventlog.Event{Position: eventlog.Position(i + 1), Root: "root", Run: "run", N: uint64(i), Data: []byte(data)})
	}
	if err := h.add(soon(t), events); err != nil {
		t.Fatal(err)
	}
	got, runs := stored(t, h)
	sameEvents(t, got, events)
	if len(runs) != 1 || runs[0].State != nestor.Queued || runs[0].Depth != 0 {
		t.Errorf("runs are %+v", runs)
	}
}

func TestAHistoryOfAnotherLogIsRefused(t *testing.T) {
	w := newWorld(t, t.TempDir())
	if err := w.h.add(soon(t), []eventlog.Event{{Position: 1 << 30, Root: "a", Run: "a", Data: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	if err := w.h.Project(soon(t), w.log); err == nil || !bytes.Contains([]byte(err.Error()), []byte("another log")) {
		t.Errorf("got %v", err)
	}
}

// A process that appends, projects and archives is killed again and again. What
// was acknowledged is there afterwards, once.
func TestKilledWhileProjecting(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[eventlog.Position]bool{}
	for round := range 5 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), roleVariable+"="+dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, n := bufio.NewScanner(out), 0
		for lines.Scan() {
			p, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				break // cut off in the middle
			}
			acknowledged[eventlog.Position(p)] = true
			if n++; n == 30+17*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if n < 30+17*round {
			t.Fatalf("round %d ended after %d events: %s", round, n, stderr.Bytes())
		}
	}

	w := newWorld(t, dir)
	if !w.h.Opened().Unclean {
		t.Error("nobody saw that the file was not closed")
	}
	var all []eventlog.Event
	for e, err := range w.log.Read(soon(t), eventlog.Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
		delete(acknowledged, e.Position)
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d events that were acknowledged are lost", len(acknowledged))
	}
	w.project()
	w.until(t, all[len(all)-1].Position)
	got, _ := stored(t, w.h)
	sameEvents(t, got, all)
	if err := w.h.Check(soon(t)); err != nil {
		t.Error(err)
	}
}
