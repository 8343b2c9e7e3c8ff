package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

// ask sends one request to a handler.
func ask(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://nestor"+target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	d := newDaemon()
	id := string(d.add(2))
	d.end(nestor.ID(id))
	other := string(nestor.NewID(time.Now()))
	h := server.New(d, server.Options{}).Handler()
	for _, test := range []struct {
		method, target, body string
		status               int
		want                 string // in the body; of a problem, its detail
	}{
		{"POST", "/v1/runs", `{"task": {"input": "hello"}}`, 201, `"state":"running"`},
		{"POST", "/v1/runs", ` {"task": {"limits": {"max_turns": 3}}, "key": "k"} `, 201, `"run":"`},
		{"POST", "/v1/runs", ``, 400, "the body is empty: want task{agent, input, provider, model, swarm, dir, schema, limits{max_turns, timeout, max_budget_usd, max_depth, max_children, max_descendants, max_failures, max_attempts, backoff, max_resumes, silence, limit_wait}, after, despite, priority, label, metadata, data}, key"},
		{"POST", "/v1/runs", `null`, 400, "body is null: want an object with task{"},
		{"POST", "/v1/runs", `{"task": {"agnet": "x"}}`, 400, `body: unknown field "agnet": want task{agent, `},
		{"POST", "/v1/runs", `{"task": {"limits": {"max_turns": "three"}}}`, 400, "body: task.limits.max_turns is string: want a whole number that fits"},
		{"POST", "/v1/runs", `{"task": 7}`, 400, "body: task is number: want an object"},
		{"POST", "/v1/runs", `[]`, 400, "body is array: want an object"},
		{"POST", "/v1/runs", `{"task": {}`, 400, "body: unexpected EOF"},
		{"POST", "/v1/runs", `{"task": }`, 400, "body: not JSON at byte 10: invalid character '}' looking for beginning of value"},
		{"POST", "/v1/runs", `{"task": {}} }`, 400, "body: something follows the object at byte 12; want nothing"},
		{"POST", "/v1/runs", `{"task": {"priority": "urgent"}}`, 400, `task: priority "urgent": there are high, normal and low`},
		{"POST", "/v1/runs", `{"task": {"input": "` + strings.Repeat("x", 4<<20) + `"}}`, 413, "the body is larger than 4194304 bytes; put what is large into a file and name it"},
		{"POST", "/v1/runs?key=k", `{"task": {}}`, 400, "parameter key: unknown; there are none here"},
		{"DELETE", "/v1/runs", ``, 405, `method "DELETE": /v1/runs takes POST and GET`},

		{"GET", "/v1/runs", ``, 200, `{"runs":[{"run":"`},
		{"GET", "/v1/runs?state=running&roots&limit=5&after=7&since=2026-01-02T03:04:05Z", ``, 200, `{"runs":[`},
		{"GET", "/v1/runs?stat=x", ``, 400, "parameter stat: unknown; there are root, parent, roots, state, agent, swarm, since, until, limit, after, text"},
		{"GET", "/v1/runs?agent=a&agent=b", ``, 400, "parameter agent: given 2 times; want it once"},
		{"GET", "/v1/runs?state=done", ``, 400, `parameter state: "done"; there are queued starting running waiting success partial error cancelled`},
		{"GET", "/v1/runs?root=x", ``, 400, `parameter root: run id "x": want a UUID such as `},
		{"GET", "/v1/runs?roots=maybe", ``, 400, `parameter roots: "maybe"; want true or false`},
		{"GET", "/v1/runs?limit=-1", ``, 400, `parameter limit: "-1"; want a whole number, zero or more`},
		{"GET", "/v1/runs?after=last", ``, 400, `parameter after: "last"; want a position, a whole number`},
		{"GET", "/v1/runs?until=yesterday", ``, 400, `parameter until: "yesterday"; want a time such as 2026-01-02T15:04:05Z`},
		{"GET", "/v1/runs?agent=%zz", ``, 400, `parameters: invalid URL escape "%zz"`},

		{"GET", "/v1/runs/" + id, ``, 200, `{"run":"` + id + `"`},
		{"GET", "/v1/runs/" + id + "?wait=1h", ``, 200, `"state":"success"`},
		{"GET", "/v1/runs/" + other, ``, 404, "run " + other + ": run not found"},
		{"GET", "/v1/runs/" + other + "?wait=1s", ``, 404, "run " + other + ": run not found"},
		{"GET", "/v1/runs/" + id + "?wait=long", ``, 400, `parameter wait: "long"; want a span of time such as 30s`},
		{"GET", "/v1/runs/" + id + "?wait=-1s", ``, 400, `parameter wait: "-1s"; want a span of time such as 30s`},
		{"GET", "/v1/runs/last", ``, 400, `run id "last": want a UUID such as `},
		{"GET", "/v1/runs/..%2F..%2Fetc", ``, 400, `run id "../../etc": want a UUID such as `},
		{"PUT", "/v1/runs/" + id, ``, 405, `method "PUT": /v1/runs/{id} takes GET`},

		{"GET", "/v1/runs/" + id + "/tree", ``, 200, `{"runs":[{"run":"` + id},
		{"GET", "/v1/runs/" + other + "/tree", ``, 404, "run not found"},
		{"GET", "/v1/runs/x/tree", ``, 400, `run id "x"`},

		{"GET", "/v1/runs/" + id + "/events", ``, 200, "id: 1\ndata: {\"type\":\"chat_start\","},
		{"GET", "/v1/runs/" + id + "/events?after=1&follow=1&tree&deltas=false", ``, 200, "id: 2\ndata: {"},
		{"GET", "/v1/runs/" + id + "/events?after=2", ``, 200, "event: end\ndata: {}\n\n"},
		{"GET", "/v1/runs/" + other + "/events?follow", ``, 404, "run not found"},
		{"GET", "/v1/runs/x/events", ``, 400, `run id "x"`},
		{"GET", "/v1/runs/" + id + "/events?form=1", ``, 400, "parameter form: unknown; there are after, tree, follow, deltas"},
		{"GET", "/v1/runs/" + id + "/events?after=1.5", ``, 400, `parameter after: "1.5"; want a position`},
		{"POST", "/v1/runs/" + id + "/events", ``, 405, "takes GET"},
		{"HEAD", "/v1/runs/" + id + "/events?follow", ``, 405, "method HEAD: a stream takes GET"},

		{"GET", "/v1/runs/" + id + "/changes", ``, 200, "an archive"},
		{"GET", "/v1/runs/" + other + "/changes", ``, 404, "run not found"},
		{"GET", "/v1/runs/x/changes", ``, 400, `run id "x"`},
		{"GET", "/v1/runs/" + id + "/changes?x=1", ``, 400, "parameter x: unknown"},
		{"POST", "/v1/runs/" + id + "/changes", ``, 405, "takes GET"},

		{"POST", "/v1/runs/" + id + "/cancel", ``, 204, ""},
		{"POST", "/v1/runs/" + id + "/cancel", `{"now": true, "reason": "enough"}`, 204, ""},
		{"POST", "/v1/runs/" + id + "/cancel", `{"nwo": true}`, 400, `body: unknown field "nwo": want reason, by, now`},
		{"POST", "/v1/runs/x/cancel", ``, 400, `run id "x"`},
		{"GET", "/v1/runs/" + id + "/cancel", ``, 405, "takes POST"},

		{"POST", "/v1/runs/" + id + "/messages", `{"content": "go on"}`, 204, ""},
		{"POST", "/v1/runs/" + id + "/messages", `{"from": "me"}`, 400, "content: empty; say what the run is told"},
		{"POST", "/v1/runs/" + id + "/messages", ``, 400, "the body is empty: want from, content, id"},
		{"POST", "/v1/runs/x/messages", `{"content": "go on"}`, 400, `run id "x"`},

		{"GET", "/v1/search?q=two+words", ``, 200, `{"hits":[{"run":"","seq":5,"snippet":"two words"}]}`},
		{"GET", "/v1/search", ``, 400, "parameter q: empty; say what is searched for"},
		{"GET", "/v1/search?q=a&text=b", ``, 400, "parameter text: unknown"},

		{"POST", "/v1/backup", `{"path": "/backups/today"}`, 204, ""},
		{"POST", "/v1/backup", `{"path": "today"}`, 400, `path "today": want an absolute one, of a file that is not there`},
		{"POST", "/v1/backup", `{"file": "today"}`, 400, `body: unknown field "file": want path`},

		{"GET", "/v1/info", ``, 200, `{"version":"v1","pid":7,`},
		{"GET", "/v1/info?x=1", ``, 400, "parameter x: unknown"},
		{"GET", "/healthz", ``, 200, `{"status":"ok"}`},
		{"GET", "/readyz", ``, 200, `{"status":"ready"}`},
		{"GET", "/", ``, 404, `nothing is at "/"; runs are at /v1/runs`},
		{"GET", "/v1/run", ``, 404, `nothing is at "/v1/run"`},
		{"GET", "/v1/runs/", ``, 404, `nothing is at "/v1/runs/"`},
	} {
		name := fmt.Sprintf("%s %s %.60s", test.method, test.target, test.body)
		w := ask(h, test.method, test.target, test.body)
		got := w.Body.String()
		if w.Code >= 400 {
			got = checkProblem(t, name, w)
		}
		if w.Code != test.status || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %d %s\nwant %d %s", name, w.Code, got, test.status, test.want)
		}
	}
}

// checkProblem returns the detail of an answer that is a problem as RFC 9457
// wants it.
func checkProblem(t *testing.T, name string, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s: %v in %s", name, err, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("%s: content type %q", name, got)
	}
	if p["status"] != float64(w.Code) || p["type"] == "" || p["title"] == nil || p["title"] == "" {
		t.Errorf("%s: the problem is %v", name, p)
	}
	if allow := w.Header().Get("Allow"); (w.Code == http.StatusMethodNotAllowed) != (allow != "") {
		t.Errorf("%s: %d and Allow %q", name, w.Code, allow)
	}
	detail, _ := p["detail"].(string)
	return detail
}

func TestHeadersThatAreWrong(t *testing.T) {
	d := newDaemon()
	id := string(d.add(3))
	h := server.New(d, server.Options{}).Handler()
	w := ask(h, "POST", "/v1/runs", `{"task": {}}`, "Content-Type", "application/x-www-form-urlencoded")
	if got := checkProblem(t, "form", w); w.Code != 415 || got != `content type "application/x-www-form-urlencoded": want application/json` {
		t.Errorf("a form: got %d %s", w.Code, got)
	}
	w = ask(h, "POST", "/v1/runs", `{"task": {}}`, "Content-Type", "application/json; charset=utf-8")
	if w.Code != 201 {
		t.Errorf("JSON with a charset: got %d %s", w.Code, w.Body)
	}
	w = ask(h, "GET", "/v1/runs/"+id+"/events", "", "Last-Event-ID", "2")
	if got := w.Body.String(); !strings.HasPrefix(got, "id: 3\n") {
		t.Errorf("behind event 2 comes %s", got)
	}
	w = ask(h, "GET", "/v1/runs/"+id+"/events?after=2", "", "Last-Event-ID", "1")
	if got := w.Body.String(); !strings.HasPrefix(got, "id: 3\n") {
		t.Errorf("behind event 1 and event 2 comes %s", got)
	}
	w = ask(h, "GET", "/v1/runs/"+id+"/events", "", "Last-Event-ID", "two")
	if got := checkProblem(t, "id", w); w.Code != 400 || got != `header Last-Event-ID: "two"; want a position, a whole number` {
		t.Errorf("an id that is none: got %d %s", w.Code, got)
	}
}

func TestErrorsOfTheBackendBecomeProblems(t *testing.T) {
	d := newDaemon()
	id := d.add(0)
	path := socket(t)
	c, _ := serve(t, d, path, server.Options{})
	for _, test := range []struct {
		err    error
		status int
		is     error // what it is on the other side
	}{
		{fmt.Errorf("run %s: %w", id, nestor.ErrRunNotFound), 404, nestor.ErrRunNotFound},
		{fmt.Errorf("run %s: %w", id, nestor.ErrEnded), 409, nestor.ErrEnded},
		{fmt.Errorf("run %s: %w", id, nestor.ErrStale), 409, nestor.ErrStale},
		{fmt.Errorf("spawning: %w", &nestor.LimitError{Limit: "budget", Max: 2, Left: 0.5, Asked: 1}), 403, nil},
		{&api.Problem{Status: 422, Detail: "no agent of that name"}, 422, nil},
		{fmt.Errorf("asking: %w", &api.Problem{Status: 7}), 500, nil},
		{errors.New("disk full"), 500, nil},
	} {
		d.mu.Lock()
		d.fail = test.err
		d.mu.Unlock()
		calls := map[string]func() error{
			"submit": func() error { _, err := c.Submit(t.Context(), api.Submission{}); return err },
			"run":    func() error { _, err := c.Run(t.Context(), id); return err },
			"wait":   func() error { _, err := c.Wait(t.Context(), id); return err },
			"runs":   func() error { _, err := c.Runs(t.Context(), api.Query{}); return err },
			"tree":   func() error { _, err := c.Tree(t.Context(), id); return err },
			"search": func() error { _, err := c.Search(t.Context(), "x", api.Query{}); return err },
			"cancel": func() error { return c.Cancel(t.Context(), id, api.Cancellation{}) },
			"send":   func() error { return c.Send(t.Context(), id, api.Message{Content: "x"}) },
			"backup": func() error { return c.Backup(t.Context(), "/b") },
			"info":   func() error { _, err := c.Info(t.Context()); return err },
			"events": func() error {
				for _, err := range c.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
					return err
				}
				return nil
			},
		}
		for name, call := range calls {
			err := call()
			p, ok := errors.AsType[*api.Problem](err)
			if !ok || p.Status != test.status || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s, failing with %q: got %v", name, test.err, err)
				continue
			}
			if _, given := errors.AsType[*api.Problem](test.err); !given && p.Detail != test.err.Error() {
				t.Errorf("%s: got %q, want %q", name, p.Detail, test.err)
			}
			if want, ok := errors.AsType[*nestor.LimitError](test.err); ok {
				if got, ok := errors.AsType[*nestor.LimitError](err); !ok || *got != *want {
					t.Errorf("%s: got %+v, want %+v", name, got, want)
				}
			}
		}
	}
	resp, err := through(t, path).Get("http://nestor/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("readyz while all fails: %d", resp.StatusCode)
	}
}

func TestPanicIsAProblem(t *testing.T) {
	d := newDaemon()
	id := string(d.add(1))
	d.panics = true
	var log strings.Builder
	h := server.New(d, server.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}).Handler()
	for _, target := range []string{"/v1/runs", "/v1/runs/" + id, "/v1/runs/" + id + "/events?follow"} {
		log.Reset()
		w := ask(h, "GET", target, "")
		if got := checkProblem(t, target, w); w.Code != 500 || got != "a fault of ours; the daemon's log has more" {
			t.Errorf("%s: got %d %s", target, w.Code, got)
		}
		if !strings.Contains(log.String(), "the backend panics") {
			t.Errorf("%s: the log is %q", target, &log)
		}
	}
	d.panics = false
	if w := ask(h, "GET", "/v1/runs/"+id, ""); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

func TestClientAsksWhatItIsTold(t *testing.T) {
	d := newDaemon()
	c, _ := serve(t, d, socket(t), server.Options{})
	ctx := t.Context()
	run, err := c.Submit(ctx, api.Submission{Task: nestor.Task{Input: "do it"}, Key: "once"})
	if err != nil || run.State != nestor.Running {
		t.Fatalf("Submit: %+v, %v", run, err)
	}
	q := api.Query{
		Root: run.ID, Parent: run.ID, Roots: true, State: nestor.Waiting, Agent: "a&b", Swarm: "s ", Text: "x=y%",
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Until: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), Limit: 3, After: 1 << 63,
	}
	if runs, err := c.Runs(ctx, q); err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("Runs: %+v, %v", runs, err)
	}
	if runs, err := c.Tree(ctx, run.ID); err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("Tree: %+v, %v", runs, err)
	}
	found := q
	found.Text = ""
	if hits, err := c.Search(ctx, "some words", found); err != nil || len(hits) != 1 || hits[0].Snippet != "some words" {
		t.Errorf("Search: %+v, %v", hits, err)
	}
	info, err := c.Info(ctx)
	if err != nil || info.PID != 7 {
		t.Errorf("Info: %+v, %v", info, err)
	}
	eq := api.EventsQuery{After: 1, Tree: true, Deltas: true}
	for e, err := range c.Events(ctx, run.ID, eq) {
		t.Errorf("event %v, %v behind the last", e, err)
	}
	for _, err := range []error{
		c.Cancel(ctx, run.ID, api.Cancellation{Reason: "why", By: "me", Now: true}),
		c.Send(ctx, run.ID, api.Message{From: "me", Content: "go on", ID: "m1"}),
		c.Backup(ctx, "/b"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"submit do it once", fmt.Sprintf("runs %+v", q), "tree", fmt.Sprintf("search some words %+v", found), "info", fmt.Sprintf("events %+v", eq),
		"cancel {Reason:why By:me Now:true}", "send {From:me Content:go on ID:m1}", "backup /b",
	}
	if got := strings.Join(d.asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestWaitReturnsTheEnd(t *testing.T) {
	d := newDaemon()
	d.inside = make(chan struct{})
	path := socket(t)
	c, _ := serve(t, d, path, server.Options{})
	id := d.add(0)
	go func() {
		<-d.inside
		d.end(id)
	}()
	if run, err := c.Wait(t.Context(), id); err != nil || run.State != nestor.Success {
		t.Errorf("got %+v, %v", run, err)
	}

	id = d.add(0)
	go func() { <-d.inside }()
	resp, err := through(t, path).Get("http://nestor/v1/runs/" + string(id) + "?wait=1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"state":"running"`) {
		t.Errorf("when the time is over: %s %s, %v", resp.Status, body, err)
	}
}

func FuzzSubmission(f *testing.F) {
	for _, body := range []string{
		`{"task": {"agent": "a", "input": "hello", "limits": {"max_turns": 3}, "after": ["0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f"]}, "key": "k"}`,
		`{"task": {"schema": {"type": "object"}, "metadata": {"a": "b"}, "data": [1]}}`, `null`, `[]`, `{"task": {}} x`, `{"TASK": {"dir": null}}`, "\xff", ``, "{}\v",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := ask(server.New(newDaemon(), server.Options{}).Handler(), "POST", "/v1/runs", string(body))
		switch {
		case w.Code == 201:
			var s api.Submission
			if err := json.Unmarshal(body, &s); err != nil {
				t.Errorf("accepted %q: %v", body, err)
			}
			if err := s.Task.Check(); err != nil {
				t.Errorf("accepted %q: %v", body, err)
			}
		case w.Code != 400 && w.Code != 413:
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		case checkProblem(t, "body", w) == "":
			t.Errorf("%q: the problem says nothing", body)
		}
	})
}
