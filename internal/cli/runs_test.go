package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

// noon is when the tests print.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// testID makes an id that ends in n.
func testID(n int) nestor.ID {
	return nestor.ID(fmt.Sprintf("0199d3a2-7c1e-7b0a-8f3e-5a1c%08x", n))
}

// runsDaemon is a backend in memory. What the tests do not need is not there.
type runsDaemon struct {
	server.Backend
	runs   []api.Run // the newest first
	hits   []api.Hit
	events []nestor.Event
	page   int // how many runs are returned at once; zero means all
	cut    int // that many events are sent before the stream fails; zero means it does not
	told   []string
}

func (d *runsDaemon) Runs(_ context.Context, q api.Query) ([]api.Run, error) {
	d.told = append(d.told, fmt.Sprintf("%+v", q))
	var list []api.Run
	for i, run := range d.runs {
		run.Cursor = uint64(i + 1)
		if run.Cursor > q.After && (d.page == 0 || len(list) < d.page) {
			list = append(list, run)
		}
	}
	return list, nil
}

func (d *runsDaemon) Run(_ context.Context, id nestor.ID) (api.Run, error) {
	for _, run := range d.runs {
		if run.ID == id {
			return run, nil
		}
	}
	return api.Run{}, fmt.Errorf("run %s: %w", id, nestor.ErrRunNotFound)
}

func (d *runsDaemon) Cancel(_ context.Context, id nestor.ID, c api.Cancellation) error {
	d.told = append(d.told, fmt.Sprintf("%s %+v", shortID(id), c))
	_, err := d.Run(context.Background(), id)
	return err
}

func (d *runsDaemon) Send(_ context.Context, id nestor.ID, m api.Message) error {
	if _, err := nestor.ParseID(m.ID); err != nil {
		return err
	}
	d.told = append(d.told, fmt.Sprintf("%s %s: %s", shortID(id), m.From, m.Content))
	return nil
}

func (d *runsDaemon) Tree(context.Context, nestor.ID) ([]api.Run, error) { return d.runs, nil }

func (d *runsDaemon) Search(context.Context, string, api.Query) ([]api.Hit, error) {
	return d.hits, nil
}

func (d *runsDaemon) Events(_ context.Context, id nestor.ID, q api.EventsQuery) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for i, e := range d.events[q.After:] {
			if d.cut > 0 && i == d.cut {
				yield(api.Event{}, &api.Problem{Type: api.TypeStopping, Status: 503, Detail: "the daemon ends"})
				return
			}
			data, err := nestor.EncodeEvent(e)
			if !yield(api.Event{Seq: q.After + uint64(i) + 1, Data: data}, err) {
				return
			}
		}
	}
}

// ask returns a client of d, which serves until the test ends.
func (d *runsDaemon) ask(t *testing.T) *api.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.New(d, server.Options{}).Serve(ctx, ln) }()
	client := api.NewClient(path)
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

// dial returns a dialer that reaches d.
func (d *runsDaemon) dial(t *testing.T) dialer {
	t.Helper()
	client := d.ask(t)
	return func(context.Context) (*link, error) {
		return &link{client: client, close: func() error { return nil }}, nil
	}
}

// someRuns are a root that waits, its child that failed and one that has not
// begun.
func someRuns() []api.Run {
	root := api.Run{
		ID: testID(1), Root: testID(1), Agent: "planner", Provider: "sdk", Model: "high-tier", Dir: "/p", Input: "Plan the\nrelease.",
		State: nestor.Waiting, Doing: "waits for 2 children since 11:58", Created: noon.Add(-3 * time.Minute), Started: noon.Add(-150 * time.Second),
		Deadline: noon.Add(10 * time.Minute), Attempt: 2, Retries: 1, Worker: "w1", Session: "s-1", CostUSD: 0.25, BelowUSD: 0.004, Turns: 3,
		Limits: nestor.Limits{BudgetUSD: 2, Turns: 25}, Usage: nestor.Usage{Input: 10, Output: 20, CacheRead: 3, CacheWrite: 4},
		Children: []nestor.ID{testID(2), testID(3)},
	}
	failed := api.Run{
		ID: testID(2), Root: testID(1), Parent: testID(1), Depth: 1, Agent: "tester", State: nestor.Error, Created: noon.Add(-2 * time.Minute),
		Started: noon.Add(-2 * time.Minute), Ended: noon.Add(-100 * time.Second), CostUSD: 0.004, Limits: nestor.Limits{BudgetUSD: 0.5},
		Error:  &nestor.Failure{Kind: nestor.Provider, Message: "no \x1b[2Jmodel"},
		Result: &nestor.Result{Status: nestor.Error, Output: "half\x1b a\nresult\n", Truncated: true, File: "/p/results/2.json"},
	}
	queued := api.Run{ID: testID(3), Root: testID(1), Parent: testID(1), Depth: 1, State: nestor.Queued, Input: "Wait.", Created: noon.Add(-90 * time.Hour)}
	return []api.Run{root, failed, queued}
}

// golden compares what was printed with what must be.
func golden(t *testing.T, got *bytes.Buffer, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if want = strings.TrimPrefix(want, "\n"); got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRunsListForPrograms(t *testing.T) {
	var b bytes.Buffer
	err := runsList(t.Context(), (&runsDaemon{runs: someRuns()}).ask(t), runsPage{w: &b, now: noon}, api.Query{}, false)
	golden(t, &b, err, `
RUN       STATE    AGENT    COST     MADE                  WHAT
00000001  waiting  planner  $0.25    2026-03-04T11:57:00Z  waits for 2 children since 11:58
00000002  error    tester   $0.0040  2026-03-04T11:58:00Z  provider: no model
00000003  queued   -        $0.00    2026-02-28T18:00:00Z  Wait.
`)
}

func TestRunsListForPeople(t *testing.T) {
	var b bytes.Buffer
	err := runsList(t.Context(), (&runsDaemon{runs: someRuns()}).ask(t), runsPage{w: &b, now: noon, person: true, colour: true}, api.Query{}, false)
	golden(t, &b, err, strings.ReplaceAll(`
RUN       STATE    AGENT    COST     MADE       WHAT
00000001  ^[33mwaiting^[0m  planner  $0.25    3m00s ago  waits for 2 children since 11:58
00000002  ^[31merror^[0m    tester   $0.0040  2m00s ago  provider: no model
00000003  queued   -        $0.00    3d ago     Wait.
`, "^", "\x1b"))
}

func TestRunsListOfNone(t *testing.T) {
	client := (&runsDaemon{}).ask(t)
	var b bytes.Buffer
	err := runsList(t.Context(), client, runsPage{w: &b, now: noon}, api.Query{}, false)
	golden(t, &b, err, "no runs\n")
	b.Reset()
	err = runsList(t.Context(), client, runsPage{w: &b, now: noon}, api.Query{}, true)
	golden(t, &b, err, "{\n  \"runs\": []\n}\n")
}

func TestRunsListAsksForWhatItsFlagsSay(t *testing.T) {
	for _, test := range []struct {
		opts runsListOptions
		want string // of the query, or the error
	}{
		{runsListOptions{limit: 20}, fmt.Sprintf("%+v", api.Query{Roots: true, Limit: 20})},
		{runsListOptions{limit: 1, all: true, state: "running", agent: "a", since: "2h"}, fmt.Sprintf("%+v", api.Query{Limit: 1, State: nestor.Running, Agent: "a", Since: noon.Add(-2 * time.Hour)})},
		{runsListOptions{limit: 1, since: "2026-03-01"}, fmt.Sprintf("%+v", api.Query{Roots: true, Limit: 1, Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)})},
		{runsListOptions{limit: 1, since: "2026-03-01T02:03:04Z"}, fmt.Sprintf("%+v", api.Query{Roots: true, Limit: 1, Since: time.Date(2026, 3, 1, 2, 3, 4, 0, time.UTC)})},
		{runsListOptions{limit: 1, since: "-2h"}, `list: --since "-2h": want a span such as 2h, or a time such as 2026-01-02 or 2026-01-02T15:04:05Z; run 'nestor help list'`},
		{runsListOptions{limit: 0}, "list: --limit 0: want 1 or more; run 'nestor help list'"},
		{runsListOptions{limit: 1, state: "done"}, `list: --state "done": there are queued, starting, running, waiting, success, partial, error, cancelled; run 'nestor help list'`},
	} {
		cmd := newGroup("nestor", "x", newRunsList()).Commands()[0]
		q, err := test.opts.query(cmd, noon)
		got := fmt.Sprintf("%+v", q)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: got\n%s\nwant\n%s", test.opts, got, test.want)
		}
	}
}

func TestRunsShow(t *testing.T) {
	client := (&runsDaemon{runs: someRuns()}).ask(t)
	var b bytes.Buffer
	err := runsShow(t.Context(), client, runsPage{w: &b, now: noon, person: true}, testID(1), false)
	golden(t, &b, err, `
run       0199d3a2-7c1e-7b0a-8f3e-5a1c00000001
state     waiting
doing     waits for 2 children since 11:58
agent     planner
provider  sdk high-tier
folder    /p
input     Plan the release.
made      3m00s ago
started   2m30s ago
deadline  in 10m00s
took      2m30s
attempt   2 (failed connections: 1, lost workers: 0)
worker    w1
session   s-1
cost      $0.25, and $0.0040 below it, of $2.00
tokens    10 in, 20 out, 3 read from and 4 written to the cache
turns     3, of 25
children  0199d3a2-7c1e-7b0a-8f3e-5a1c00000002
          0199d3a2-7c1e-7b0a-8f3e-5a1c00000003
`)
	b.Reset()
	err = runsShow(t.Context(), client, runsPage{w: &b, now: noon}, testID(2), false)
	golden(t, &b, err, `
run      0199d3a2-7c1e-7b0a-8f3e-5a1c00000002
state    error
agent    tester
parent   0199d3a2-7c1e-7b0a-8f3e-5a1c00000001
root     0199d3a2-7c1e-7b0a-8f3e-5a1c00000001, 1 above
made     2026-03-04T11:58:00Z
started  2026-03-04T11:58:00Z
ended    2026-03-04T11:58:20Z
took     20s
cost     $0.0040, of $0.50
error    provider: no model

halfa
result
… all of it is in /p/results/2.json
`)
	b.Reset()
	if err := runsShow(t.Context(), client, runsPage{w: &b, now: noon}, testID(2), true); err != nil {
		t.Fatal(err)
	}
	var run api.Run
	if err := json.Unmarshal(b.Bytes(), &run); err != nil || run.ID != testID(2) || run.Result.Output != "half\x1b a\nresult\n" {
		t.Errorf("as JSON: %v in %s", err, &b)
	}
}

func TestRunsTree(t *testing.T) {
	runs := someRuns()
	below := runs[2]
	below.ID, below.Parent, below.Depth, below.State, below.Started = testID(4), testID(2), 2, nestor.Running, noon.Add(-1500*time.Millisecond)
	below.Doing = "calls Bash since 11:59"
	client := (&runsDaemon{runs: append(runs, below)}).ask(t)
	var b bytes.Buffer
	err := runsTree(t.Context(), client, runsPage{w: &b, now: noon}, testID(1), false)
	golden(t, &b, err, `
RUN           STATE    AGENT    SPENT    GRANTED  TIME   WHAT
00000001      waiting  planner  $0.25    $2.00    2m30s  waits for 2 children since 11:58
  00000002    error    tester   $0.0040  $0.50    20s    provider: no model
    00000004  running  -        $0.00    -        1.5s   calls Bash since 11:59
  00000003    queued   -        $0.00    -        -      Wait.
`)
	b.Reset()
	if err := runsTree(t.Context(), client, runsPage{w: &b, now: noon}, testID(1), true); err != nil {
		t.Fatal(err)
	}
	var list struct{ Runs []api.Run }
	if err := json.Unmarshal(b.Bytes(), &list); err != nil || len(list.Runs) != 4 {
		t.Errorf("as JSON: %v in %s", err, &b)
	}
}

func TestBranchesOfATreeThatIsNone(t *testing.T) {
	a, b, c := testID(1), testID(2), testID(3)
	got := branches([]api.Run{{ID: a, Parent: b}, {ID: b, Parent: a}, {ID: c, Parent: testID(9)}, {ID: c}})
	if len(got) != 1 || got[0].ID != c {
		t.Errorf("got %v", got)
	}
}

func TestRunsSearch(t *testing.T) {
	client := (&runsDaemon{hits: []api.Hit{{Run: testID(1), Seq: 4711, Snippet: "a race\nhere"}, {Run: testID(2), Seq: 5, Snippet: "race"}}}).ask(t)
	var b bytes.Buffer
	err := runsSearch(t.Context(), client, runsPage{w: &b, now: noon}, "race", 5, false)
	golden(t, &b, err, `
RUN       EVENT  TEXT
00000001  4711   a race here
00000002  5      race
`)
	b.Reset()
	err = runsSearch(t.Context(), (&runsDaemon{}).ask(t), runsPage{w: &b, now: noon}, "race", 5, false)
	golden(t, &b, err, "nothing found\n")
}

func TestRunsAreTold(t *testing.T) {
	d := &runsDaemon{runs: someRuns()}
	client := d.ask(t)
	var b bytes.Buffer
	err := runsCancel(t.Context(), client, &b, testID(1), api.Cancellation{By: commandLine, Reason: "enough", Now: true})
	golden(t, &b, err, "run 0199d3a2-7c1e-7b0a-8f3e-5a1c00000001 is told to end\n")
	b.Reset()
	err = runsSend(t.Context(), client, &b, testID(2), "go on")
	golden(t, &b, err, "run 0199d3a2-7c1e-7b0a-8f3e-5a1c00000002 is told\n")
	b.Reset()
	if err := runsCancel(t.Context(), client, &b, testID(9), api.Cancellation{}); !errors.Is(err, nestor.ErrRunNotFound) || b.Len() > 0 {
		t.Errorf("a run that is not there: %v, and printed %q", err, &b)
	}
	want := []string{"00000001 {Reason:enough By:the command line Now:true}", "00000002 the command line: go on", "00000009 {Reason: By: Now:false}"}
	if !slices.Equal(d.told, want) {
		t.Errorf("told %q, want %q", d.told, want)
	}
}

func TestResolveRun(t *testing.T) {
	d := &runsDaemon{page: 2}
	for n := range 9 {
		d.runs = append(d.runs, api.Run{ID: testID(n + 1)})
	}
	d.runs[8].ID = "aaaad3a2-7c1e-7b0a-8f3e-5a1cbbbbbbbb"
	client := d.ask(t)
	unknown := string(testID(99))
	for text, want := range map[string]string{
		"aaaa": string(d.runs[8].ID), "bbb": string(d.runs[8].ID), "00000003": string(testID(3)), "c00000007": string(testID(7)),
		unknown: unknown, // the daemon will say that there is none
		"ffff":  `run not found: no id begins or ends with "ffff"; 'nestor runs list --all' prints them`,
		"0199": "\"0199\" is the beginning or end of 8 ids; give more of one:\n  " + strings.Join([]string{
			string(testID(1)), string(testID(2)), string(testID(3)), string(testID(4)), string(testID(5)),
		}, "\n  ") + "\n  and 3 more",
	} {
		id, err := resolveRun(t.Context(), client, text)
		got := string(id)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]bool{"5a1c": true, "": false, "5A": false, "../x": false, strings.Repeat("a", 37): false} {
		if mayBeID(text) != want {
			t.Errorf("%q may be an id: %v", text, !want)
		}
	}
}

func TestLasting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 12 * time.Millisecond: "12ms", 1500 * time.Millisecond: "1.5s", 42 * time.Second: "42s",
		61 * time.Second: "1m01s", 3*time.Hour + 4*time.Minute: "3h04m", 49 * time.Hour: "2d",
	} {
		if got := lasting(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestPlainLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b]0;evil\x07b": "ab", " two\n\tl ": "two l", "überlang": "überla…", "\u202eabc": "abc", "a\u0085b": "a b", "\xff": "�",
		strings.Repeat("xy ", 1000): "xy xy …",
	} {
		most := 7
		if strings.HasPrefix(text, "a") {
			most = 100
		}
		if got := plainLine(text, most); got != want {
			t.Errorf("%.20q: got %q, want %q", text, got, want)
		}
	}
}
