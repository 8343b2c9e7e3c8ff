package spawn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/spawn"
)

func readJSON(t *testing.T, name string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func TestSessionFolder(t *testing.T) {
	root, child := nestor.NewID(time.Now()), nestor.NewID(time.Now())
	base := filepath.Join(t.TempDir(), "sessions")
	topic := func(context.Context, nestor.ID) string {
		return "  Fix: the /../ Tests, please! And then some more of that kind of thing."
	}
	f := spawn.NewFolders(base, topic)
	dir, err := f.Session(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	want := root.Time().Local().Format("20060102-1504") + "-fix-the-tests-please-and-then-some-more-" + string(root)[28:]
	if filepath.Dir(dir) != base || filepath.Base(dir) != want {
		t.Errorf("it is %s, want %s", dir, want)
	}
	// Another process finds it, also when the topic is not known any more.
	if again, err := spawn.NewFolders(base, func(context.Context, nestor.ID) string { return "" }).Session(t.Context(), root); err != nil || again != dir {
		t.Errorf("again it is %s, %v", again, err)
	}
	h := nestor.Header{Time: time.Now().UTC(), Run: child, Root: root, Depth: 1}
	events := []nestor.Event{
		&nestor.RunQueued{Header: h, Parent: root, Agent: "ada"},
		&nestor.ExecutionStart{Header: h, Agent: "ada"},
		&nestor.RunWaiting{Header: h},
	}
	take := func() {
		t.Helper()
		for _, e := range events {
			if err := f.Take(t.Context(), e, 4711); err != nil {
				t.Fatal(err)
			}
		}
	}
	take()
	agentName := filepath.Join(dir, ".agents", string(child)+".json")
	if a := readJSON(t, agentName); a["state"] != "waiting" || a["pid"] != 4711.0 || a["parent"] != string(root) || a["agent"] != "ada" {
		t.Errorf("it stands %v", a)
	}
	if list, err := os.ReadDir(filepath.Join(dir, "signals")); err != nil || len(list) != 0 {
		t.Errorf("signals before the end: %v, %v", list, err)
	}
	events = append(events, &nestor.ExecutionComplete{Header: h, Agent: "ada", Status: nestor.Success, Success: true, Result: &nestor.Result{Status: nestor.Success, Output: "all", CostUSD: 2}})
	for range 2 { // also when all is taken again
		take()
		if a := readJSON(t, agentName); a["state"] != "success" || a["pid"] != nil {
			t.Errorf("in the end it stands %v", a)
		}
		if r := readJSON(t, filepath.Join(dir, "results", string(child)+".json")); r["output"] != "all" || r["run"] != string(child) || r["cost_usd"] != 2.0 || r["status"] != "success" {
			t.Errorf("the result is %v", r)
		}
		if _, err := os.Stat(filepath.Join(dir, "signals", string(child)+".done")); err != nil {
			t.Error(err)
		}
	}
	h.Run = root
	failed := &nestor.ExecutionComplete{Header: h, Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Provider, Message: "no"}}
	if err := f.Take(t.Context(), failed, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "signals", string(root)+".fail")); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Sessions that have ended are not remembered, and found all the same.
func TestEndedSessionsAreForgotten(t *testing.T) {
	asked := 0
	f := spawn.NewFolders(t.TempDir(), func(context.Context, nestor.ID) string {
		asked++
		return "topic"
	})
	root := nestor.NewID(time.Now())
	dir, err := f.Session(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	end := func(run nestor.ID) {
		t.Helper()
		e := &nestor.ExecutionComplete{Header: nestor.Header{Run: run, Root: root}, Status: nestor.Success, Success: true}
		if err := f.Take(t.Context(), e, 1); err != nil {
			t.Fatal(err)
		}
		if again, err := f.Session(t.Context(), root); again != dir || err != nil {
			t.Errorf("it was %s, and is %s, %v", dir, again, err)
		}
	}
	end(nestor.NewID(time.Now()))
	if asked != 1 {
		t.Errorf("while the root goes on its topic was asked for %d times", asked)
	}
	end(root)
	if asked != 2 {
		t.Errorf("with its end its topic was asked for %d times: it is remembered", asked)
	}
}

func TestFoldersGoOnWhereTheyWere(t *testing.T) {
	f := spawn.NewFolders(t.TempDir()+"/sessions", nil)
	if p, noted := f.Position(); p != 0 || noted {
		t.Errorf("at first it is %d, %v", p, noted)
	}
	if err := f.Taken(4711); err != nil {
		t.Fatal(err)
	}
	if p, noted := f.Position(); p != 4711 || !noted {
		t.Errorf("then it is %d, %v", p, noted)
	}
}

// An event of somebody who writes to the log by himself makes no file elsewhere.
func TestIDsThatAreNoneMakeNoFiles(t *testing.T) {
	base := t.TempDir()
	f := spawn.NewFolders(filepath.Join(base, "sessions"), func(context.Context, nestor.ID) string { return "x" })
	good := nestor.NewID(time.Now())
	for _, h := range []nestor.Header{{Root: "../../x", Run: good}, {Root: good, Run: "../../../evil"}, {Root: "", Run: ""}} {
		for _, e := range []nestor.Event{&nestor.RunQueued{Header: h}, &nestor.ExecutionComplete{Header: h, Success: true}} {
			if err := f.Take(t.Context(), e, 1); err == nil {
				t.Errorf("%T with %+v is taken", e, h)
			}
		}
	}
	err := filepath.WalkDir(base, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, "evil") {
			t.Errorf("there is %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Folders make something of the events that they say, and of no other.
func TestNotedEvents(t *testing.T) {
	golden, err := os.ReadFile("../../testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		event, err := nestor.DecodeEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		run := nestor.NewID(time.Now())
		event.Head().Run, event.Head().Root = run, run
		base := t.TempDir()
		if err := spawn.NewFolders(base, func(context.Context, nestor.ID) string { return "x" }).Take(t.Context(), event, 1); err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadDir(base)
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(spawn.Noted(), func(e nestor.Event) bool { return nestor.TypeOf(e) == nestor.TypeOf(event) })
		if noted != (len(made) > 0) {
			t.Errorf("an event of type %s makes %d folders, and is noted: %v", nestor.TypeOf(event), len(made), noted)
		}
	}
}
