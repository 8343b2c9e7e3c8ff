package history

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/soak"
)

// recorded adds events to a history, without a log.
func recorded(t testing.TB, h *History, events ...nestor.Event) {
	t.Helper()
	at, err := h.Projected(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var list []eventlog.Event
	n := map[nestor.ID]uint64{}
	for i, e := range events {
		data, err := nestor.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		run := e.Head().Run
		list = append(list, eventlog.Event{Position: at + 1 + eventlog.Position(i), Root: string(e.Head().Root), Run: string(run), N: n[run], Data: data})
		n[run]++
	}
	if err := h.add(soon(t), list); err != nil {
		t.Fatal(err)
	}
}

func ids(runs []RunInfo) (list []nestor.ID) {
	for _, r := range runs {
		list = append(list, r.ID)
	}
	return list
}

// What is below a run is all of it, in whatever order its runs are seen, and nothing of
// what is beside it.
func TestCostsBelow(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	for _, tree := range []string{"a", "b"} {
		root := nestor.ID(tree)
		end := func(id, parent nestor.ID, depth int, usd float64) {
			head := nestor.Header{Run: id, Root: root, Depth: depth, Time: time.Now()}
			recorded(t, h, &nestor.RunQueued{Header: head, Parent: parent}, &nestor.ExecutionComplete{Header: head, Status: nestor.Success, CostUSD: usd})
		}
		end(root+"11", root+"1", 2, 0.25)
		end(root+"1", root, 1, 2)
		end(root, "", 0, 1)
		end(root+"2", root, 1, 4)
		end(root+"12", root+"1", 2, 0.5)
	}
	runs, err := h.Runs(soon(t), Query{})
	if err != nil {
		t.Fatal(err)
	}
	usd, err := h.Below(soon(t), runs)
	if err != nil {
		t.Fatal(err)
	}
	want := map[nestor.ID]float64{"a": 6.75, "a1": 0.75, "b": 6.75, "b1": 0.75}
	for _, r := range runs {
		if usd[r.ID] != want[r.ID] {
			t.Errorf("below %s are %v USD, want %v", r.ID, usd[r.ID], want[r.ID])
		}
	}
	if usd, err := h.Below(soon(t), nil); err != nil || len(usd) != 0 {
		t.Errorf("below nothing are %v, %v", usd, err)
	}
}

func TestRunsAreFilteredAndPaged(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	var roots, children []nestor.ID
	for i := range 5 {
		root, child, events := small(i != 4)
		for _, e := range events {
			// The clock is set back by an hour for each tree.
			e.Head().Time = e.Head().Time.Add(-time.Duration(i) * time.Hour)
		}
		recorded(t, h, events...)
		roots, children = append(roots, root), append(children, child)
	}
	for name, test := range map[string]struct {
		query Query
		want  []nestor.ID
	}{
		"all, the last in the log first": {Query{}, []nestor.ID{
			children[4], roots[4], children[3], roots[3], children[2], roots[2], children[1], roots[1], children[0], roots[0],
		}},
		"roots":               {Query{Roots: true, Limit: 2}, []nestor.ID{roots[4], roots[3]}},
		"a tree":              {Query{Root: roots[1]}, []nestor.ID{children[1], roots[1]}},
		"children":            {Query{Parent: roots[2]}, []nestor.ID{children[2]}},
		"state":               {Query{State: nestor.Running}, []nestor.ID{roots[4]}},
		"agent and limit":     {Query{Agent: "poet", Limit: 1}, []nestor.ID{children[4]}},
		"swarm":               {Query{Swarm: "bees", State: nestor.Partial, Limit: 1}, []nestor.ID{roots[3]}},
		"since":               {Query{Since: clock.Add(-30 * time.Minute)}, []nestor.ID{children[0], roots[0]}},
		"until":               {Query{Until: clock.Add(-4*time.Hour + time.Second)}, []nestor.ID{roots[4]}},
		"text":                {Query{Text: "zurich", Agent: "planner", Limit: 1}, []nestor.ID{roots[4]}},
		"text without words":  {Query{Text: "---"}, nil},
		"what nobody is":      {Query{Agent: "x' OR '1'='1"}, nil},
		"a negative limit":    {Query{Limit: -1, Root: roots[0]}, []nestor.ID{children[0], roots[0]}},
		"a limit beyond ours": {Query{Limit: 1 << 40, Root: roots[0]}, []nestor.ID{children[0], roots[0]}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := h.Runs(soon(t), test.query)
			if err != nil || !reflect.DeepEqual(ids(got), test.want) {
				t.Errorf("got %v, %v, want %v", ids(got), err, test.want)
			}
		})
	}

	all, err := h.Runs(soon(t), Query{})
	if err != nil {
		t.Fatal(err)
	}
	var paged []RunInfo
	for q := (Query{Limit: 3}); ; q.After = paged[len(paged)-1].First {
		page, err := h.Runs(soon(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if paged = append(paged, page...); len(page) < 3 {
			break
		}
	}
	if !reflect.DeepEqual(paged, all) {
		t.Errorf("pages are %v, want %v", ids(paged), ids(all))
	}
	if _, err := h.Run(soon(t), newID()); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	if _, err := h.Tree(soon(t), children[0]); !errors.Is(err, nestor.ErrRunNotFound) {
		t.Errorf("a tree that is not there: %v", err)
	}
}

func TestStatsSumUp(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	if s, err := h.Stats(soon(t), Query{}); err != nil || s.Runs != 0 || s.Median != 0 {
		t.Errorf("of nothing: %+v, %v", s, err)
	}
	for i := range 4 {
		_, _, events := small(true)
		for _, e := range events {
			e.Head().Time = e.Head().Time.AddDate(0, 0, i/2)
		}
		recorded(t, h, events...)
	}
	_, _, going := small(false)
	recorded(t, h, going...)
	got, err := h.Stats(soon(t), Query{})
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{
		Runs:    10,
		States:  map[nestor.State]int{nestor.Success: 5, nestor.Partial: 4, nestor.Running: 1},
		CostUSD: 5*0.25 + 4*0.5,
		Usage:   nestor.Usage{Input: 5*10 + 4, Output: 5*20 + 4*2, CacheRead: 12},
		Agents: []Spent{
			{"planner", 5, 2, nestor.Usage{Input: 4, Output: 8, CacheRead: 12}},
			{"poet", 5, 1.25, nestor.Usage{Input: 50, Output: 100}},
		},
		Days: []Spent{
			{"2026-03-02", 4, 1.5, nestor.Usage{Input: 22, Output: 44, CacheRead: 6}},
			{"2026-03-01", 6, 1.75, nestor.Usage{Input: 32, Output: 64, CacheRead: 6}},
		},
		Median: 2 * time.Second, P95: 10 * time.Second, Longest: 10 * time.Second,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = h.Stats(soon(t), Query{Agent: "poet", Text: "lake", Since: clock.AddDate(0, 0, 1)})
	if err != nil || got.Runs != 2 || got.CostUSD != 0.5 || got.P95 != 2*time.Second {
		t.Errorf("of some: %+v, %v", got, err)
	}
}

func TestSearchFindsWords(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	root, child, events := small(true)
	recorded(t, h, events...)
	recorded(t, h, &nestor.Letter{Header: head(root, root, 0, 30), Content: strings.Repeat("before ", 100) + "NEEDLE\n\tin the hay" + strings.Repeat(" after", 100)})
	for text, want := range map[string]int{
		"swans": 1, "SWANS": 1, "swan": 0, "swan*": 1, "zurich": 1, "Zürich": 1, "lake still": 1, "still lake": 1,
		`"lies still"`: 1, `"still lies"`: 0, `"lake lies still`: 1, "lake poem": 0, "spent": 1,
		"lake AND NOT swans": 0, "lake OR poem": 0, "(lake)": 2, "lake-lies": 1, "body:lake": 0, "": 0, "*": 0, `"`: 0, "^lake": 2, "needle": 1,
	} {
		hits, err := h.Search(soon(t), text, Query{})
		if err != nil || len(hits) != want {
			t.Errorf("%q: found %+v, %v, want %d", text, hits, err, want)
		}
	}
	hits, err := h.Search(soon(t), "swans", Query{Agent: "poet"})
	if err != nil || !reflect.DeepEqual(hits, []Hit{{child, 7, "The lake lies still, the swans are gone."}}) {
		t.Errorf("found %+v: %v", hits, err)
	}
	if hits, err := h.Search(soon(t), "swans", Query{Agent: "planner"}); err != nil || len(hits) != 0 {
		t.Errorf("found %+v: %v", hits, err)
	}
	hits, err = h.Search(soon(t), "lake", Query{Limit: 1})
	if err != nil || len(hits) != 1 || hits[0].Position != 8 {
		t.Errorf("the newest: %+v: %v", hits, err)
	}
	hits, err = h.Search(soon(t), "lake", Query{Limit: 1, After: 8})
	if err != nil || len(hits) != 1 || hits[0].Position != 7 {
		t.Errorf("the one before: %+v: %v", hits, err)
	}
	hits, err = h.Search(soon(t), "needle", Query{})
	if err != nil || len(hits) != 1 || !strings.Contains(hits[0].Snippet, "NEEDLE in the hay") || len(hits[0].Snippet) > snippetSize+10 || !strings.HasPrefix(hits[0].Snippet, "…") {
		t.Errorf("the snippet: %+v: %v", hits, err)
	}
}

// What is asked for often is found by an index, however much there is.
func TestQueriesUseTheirIndex(t *testing.T) {
	h := mustOpen(t, filepath.Join(t.TempDir(), "history.db"))
	for _, test := range []struct{ query, index string }{
		{getRuns + "WHERE runs.first < 9 ORDER BY runs.first DESC LIMIT 5", "sqlite_autoindex_runs_2"},
		{getRuns + "WHERE runs.agent = 'a' AND runs.first < 9 ORDER BY runs.first DESC LIMIT 5", "runs_agent"},
		{getRuns + "WHERE runs.state = 'a' ORDER BY runs.first DESC LIMIT 5", "runs_state"},
		{getRuns + "WHERE runs.parent = '' ORDER BY runs.first DESC LIMIT 5", "runs_parent"},
		{getRuns + "WHERE runs.root = 'a' ORDER BY runs.first", "runs_root"},
		{pageQuery(&conditions{list: []string{"e.position > 1 AND e.position <= 9 AND e.position <= t.archived", "e.root = 'a'"}}), "events_root"},
		{pageQuery(&conditions{list: []string{"e.position > 1 AND e.position <= 9 AND e.position <= t.archived", "e.root = 'a'", "e.run = 'a'"}}), "events_run"},
		{pageQuery(&conditions{list: []string{"e.position > 1 AND e.position <= 9 AND e.position <= t.archived"}}), "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
	} {
		rows, err := h.read.QueryContext(soon(t), "EXPLAIN QUERY PLAN "+test.query, slices.Repeat([]any{pageEvents}, strings.Count(test.query, "?"))...)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&plan, detail)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		if got := plan.String(); !strings.Contains(got, test.index) || strings.Contains(got, "TEMP B-TREE") {
			t.Errorf("%s\n%s", test.query, got)
		}
	}
}

func FuzzSearch(f *testing.F) {
	h := mustOpen(f, filepath.Join(f.TempDir(), "history.db"))
	_, _, events := small(true)
	recorded(f, h, events...)
	for _, text := range []string{
		"swans", `"`, `""`, `"a" OR`, "NEAR(a b, 3)", "a*b", "*", "^", "{body} : x", "a AND (", "\x00", "\xff\xfe", "-", "+", "a\"b", "'; DROP TABLE runs; --",
		strings.Repeat("a ", 1000), strings.Repeat("(", 1000), strings.Repeat("é", 1000), "\u0301", "İ", "𝔘", "\U0010ffff", "swan*", `"lies st"*`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		for _, q := range []Query{{}, {Agent: text, State: nestor.State(text), Root: nestor.ID(text)}} {
			if _, err := h.Search(ctx, text, q); err != nil {
				t.Errorf("searching: %v", err)
			}
			q.Text = text
			if _, err := h.Runs(ctx, q); err != nil {
				t.Errorf("listing: %v", err)
			}
		}
		if s, err := h.Stats(ctx, Query{}); err != nil || s.Runs != 2 {
			t.Errorf("there are %d runs now: %v", s.Runs, err)
		}
		snippet(text, words(text))
	})
}

func TestReadersAndTheWriterDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.project()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			for ctx.Err() == nil {
				var err error
				switch i % 4 {
				case 0:
					_, err = w.h.Runs(ctx, Query{Text: "lake"})
				case 1:
					_, err = w.h.Search(ctx, "swans", Query{})
				case 2:
					_, err = w.h.Stats(ctx, Query{})
				case 3:
					for _, err = range w.h.Events(ctx, eventlog.Filter{}, 0, 1<<50) {
						if err != nil {
							break
						}
					}
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	trees := soak.Of(8, 30)
	for range trees {
		_, _, events := small(true)
		w.until(t, w.append(t, events...))
		if _, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); err != nil {
			t.Error(err)
		}
	}
	stop()
	readers.Wait()
	if s, err := w.h.Stats(soon(t), Query{}); err != nil || s.Runs != 2*trees {
		t.Errorf("%d runs: %v", s.Runs, err)
	}
}

// BenchmarkAdd writes batches as Project does: 1,000 events of about 300 bytes of
// ten runs, every tenth with a text that is searched.
func BenchmarkAdd(b *testing.B) {
	h := mustOpen(b, filepath.Join(b.TempDir(), "history.db"))
	var runs []nestor.ID
	for range 10 {
		runs = append(runs, newID())
	}
	text := strings.Repeat("words ", 30)
	n := 0
	for b.Loop() {
		events := make([]eventlog.Event, batchEvents)
		for i := range events {
			run := runs[i%10]
			var event nestor.Event = &nestor.ExecutionProgress{Header: head(run, run, 0, n), Activity: text}
			if i%10 == n%10 {
				event = &nestor.AgentComplete{Header: head(run, run, 0, n), Content: text}
			}
			data, err := nestor.EncodeEvent(event)
			if err != nil {
				b.Fatal(err)
			}
			events[i] = eventlog.Event{Position: eventlog.Position(n*batchEvents + i + 1), Root: string(run), Run: string(run), N: uint64(n*batchEvents/10 + i/10), Data: data}
		}
		n++
		if err := h.add(b.Context(), events); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*batchEvents)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRuns lists a page from the beginning, the middle and the end of
// 100,000 runs: it takes the same, wherever it is.
func BenchmarkRuns(b *testing.B) {
	h := mustOpen(b, filepath.Join(b.TempDir(), "history.db"))
	const runs = 100_000
	for first := 0; first < runs; first += 5000 {
		var events []nestor.Event
		for i := range 5000 {
			id := newID()
			events = append(events, &nestor.RunQueued{Header: head(id, id, 0, 0), Agent: fmt.Sprint("agent-", (first+i)%10)})
		}
		recorded(b, h, events...)
	}
	for _, after := range []eventlog.Position{0, runs / 2, 200} {
		for name, q := range map[string]Query{"all": {After: after}, "agent": {After: after, Agent: "agent-3"}} {
			b.Run(fmt.Sprint(name, "/after-", after), func(b *testing.B) {
				for b.Loop() {
					if list, err := h.Runs(b.Context(), q); err != nil || len(list) == 0 {
						b.Fatal(len(list), err)
					}
				}
			})
		}
	}
}
