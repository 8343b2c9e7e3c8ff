package spawn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/spawn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is runs in memory, one of which is looked at: "me", below "parent".
type world struct {
	me plan.Run

	mu      sync.Mutex // guards what follows
	runs    map[nestor.ID]plan.Run
	started []spawn.Start
	letters map[nestor.ID][]plan.Write
	collect []nestor.ID
	events  []nestor.Event
	asked   []nestor.Ask
	answers map[string]nestor.Answer
	inbox   []plan.Letter
	scope   string // of answers that are given at once; empty means that none are
}

func id(n int) nestor.ID { return nestor.ID(fmt.Sprintf("0199d3a2-7c1e-7000-8000-%012d", n)) }

// path returns the path of runs.
func path(ids ...nestor.ID) plan.Path {
	p, err := plan.PathOf(ids...)
	if err != nil {
		panic(err) // not in a test of ours
	}
	return p
}

// newWorld has me (2) below a parent (1), with children scout (3), which lives and
// has one below it (4), and old (5), which has ended; a stranger is 9.
func newWorld() *world {
	w := &world{runs: map[nestor.ID]plan.Run{}, letters: map[nestor.ID][]plan.Write{}, answers: map[string]nestor.Answer{}}
	w.me = plan.Run{ID: id(2), Root: id(1), Path: path(id(1)), State: nestor.Running, Task: nestor.Task{Agent: "ada", Limits: nestor.DefaultLimits()}, Children: map[nestor.ID]*plan.Child{
		id(3): {Name: "scout", Background: true}, id(5): {Name: "old", Status: nestor.Success},
	}}
	ended := &nestor.Result{Status: nestor.Success, Output: "it is over"}
	for _, r := range []plan.Run{
		w.me, {ID: id(1), Root: id(1), State: nestor.Waiting}, {ID: id(9), Root: id(9), State: nestor.Running},
		{ID: id(3), Root: id(1), Path: path(id(1), id(2)), State: nestor.Running, Children: map[nestor.ID]*plan.Child{id(4): {}}},
		{ID: id(4), Root: id(1), Path: path(id(1), id(2), id(3)), State: nestor.Queued},
		{ID: id(5), Root: id(1), Path: path(id(1), id(2)), State: nestor.Success, Result: ended, Spent: 1, Below: 2},
	} {
		w.runs[r.ID] = r
	}
	return w
}

func (w *world) Get(_ context.Context, id nestor.ID) (plan.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.runs[id]
	if !ok {
		return r, nestor.ErrRunNotFound
	}
	return r, nil
}

func (w *world) Arrived(ctx context.Context, id nestor.ID) error {
	_, err := w.Get(ctx, id)
	return err
}

func (w *world) Write(_ context.Context, id nestor.ID, l plan.Write) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[id].State.Ended() {
		return nestor.ErrEnded
	}
	w.letters[id] = append(w.letters[id], l)
	return nil
}

func (w *world) Cancel(context.Context, nestor.ID, nestor.Cause, bool) error { return nil }

func (w *world) Answer(_ context.Context, _ nestor.ID, a nestor.Answer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, answered := w.answers[a.AskID]; !answered {
		w.answers[a.AskID] = a
	}
	return nil
}

func (w *world) Start(_ context.Context, s spawn.Start) (nestor.ID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, s)
	new := id(100 + len(w.started))
	w.runs[new] = plan.Run{ID: new, Root: id(1), Path: path(id(1), id(2)), State: nestor.Success, Task: s.Task, Result: &nestor.Result{Status: nestor.Success, Output: "done"}}
	return new, nil
}

func (w *world) Await(ctx context.Context, ids ...nestor.ID) (list []plan.Run, err error) {
	for _, id := range ids {
		run, err := w.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if !run.State.Ended() {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		list = append(list, run)
	}
	return list, nil
}

func (w *world) AwaitAny(ctx context.Context, ids ...nestor.ID) (list []plan.Run, err error) {
	for _, id := range ids {
		if run, err := w.Get(ctx, id); err == nil && run.State.Ended() {
			list = append(list, run)
		}
	}
	return list, nil
}

func (w *world) Collect(_ context.Context, ids ...nestor.ID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collect = append(w.collect, ids...)
	return nil
}

func (w *world) Ask(ctx context.Context, a nestor.Ask) (*nestor.Answer, error) {
	w.mu.Lock()
	w.asked = append(w.asked, a)
	answer, ok := w.answers[a.AskID]
	if w.scope != "" {
		answer, ok = nestor.Answer{AskID: a.AskID, Decision: "allow", Scope: w.scope}, true
	}
	w.mu.Unlock()
	if ok {
		return &answer, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (w *world) Read() []plan.Letter { return w.inbox }

func (w *world) Append(_ context.Context, events ...nestor.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, events...)
	return nil
}

func (w *world) run() *spawn.Run {
	return spawn.New(w.me.ID, w, w, spawn.Options{Task: func(_ context.Context, _ plan.Run, s api.Spawn) (nestor.Task, error) {
		if s.Role == "god" {
			return nestor.Task{}, &nestor.LimitError{Limit: "depth", Max: 3, Asked: 4}
		}
		return nestor.Task{Input: s.Task, Agent: s.Agent}, nil
	}})
}

func TestWhoGetsALetter(t *testing.T) {
	for to, want := range map[string][]nestor.ID{
		"parent": {id(1)}, string(id(1)): {id(1)}, "scout": {id(3)}, string(id(3)): {id(3)}, string(id(4)): {id(4)}, "children": {id(3)}, "all": {id(3), id(4)},
		"old": nil, string(id(5)): nil, string(id(9)): nil, string(id(8)): nil, string(id(2)): nil, "nobody": nil, "": nil,
	} {
		w := newWorld()
		got, err := w.run().Write(t.Context(), api.Letter{To: to, Content: "hello"})
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("to %q: %v, %v", to, got, err)
		}
		for _, id := range want {
			if l := w.letters[id]; len(l) != 1 || l[0].From != "ada (run "+string(w.me.ID)+")" || l[0].Content != "hello" {
				t.Errorf("to %q: %s got %+v", to, id, l)
			}
		}
		if len(want) != len(w.letters) {
			t.Errorf("to %q: others got %v", to, w.letters)
		}
	}
	w := newWorld()
	w.me.Path = ""
	w.runs[w.me.ID] = w.me
	if _, err := w.run().Write(t.Context(), api.Letter{To: "parent", Content: "hello"}); err == nil || !strings.Contains(err.Error(), "ask_person") {
		t.Errorf("a root writes to its parent: %v", err)
	}
}

func TestWaitReturnsWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		list, err := w.run().Await(t.Context(), api.WaitFor{Runs: []string{"old"}})
		if err != nil || len(list) != 1 || list[0].Output != "it is over" || list[0].CostUSD != 3 || list[0].Name != "old" || !slices.Equal(w.collect, []nestor.ID{id(5)}) {
			t.Errorf("what has ended is %+v, %v; known are %v", list, err, w.collect)
		}
		began := time.Now()
		list, err = w.run().Await(t.Context(), api.WaitFor{Runs: []string{"scout", "old"}, Timeout: time.Minute})
		if err != nil || len(list) != 2 || list[0].Status != nestor.Running || list[1].Status != nestor.Success || time.Since(began) != time.Minute {
			t.Errorf("after %v it is %+v, %v", time.Since(began), list, err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if list, err := w.run().Await(ctx, api.WaitFor{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("all in the background are %+v, %v", list, err)
		}
	})
}

func TestRefusalsAreOnRecordUpToABound(t *testing.T) {
	w := newWorld()
	r := w.run()
	for range 500 {
		if err := r.Refused(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.events) != 100 {
		t.Errorf("%d are on record", len(w.events))
	}
}

func TestSameSpawnOfAnotherAttemptHasTheSameKey(t *testing.T) {
	w := newWorld()
	for range 2 { // attempts
		r := w.run()
		for range 2 {
			if _, err := r.Spawn(t.Context(), api.Spawn{Task: "look"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Spawn(t.Context(), api.Spawn{Task: "look again"}); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for _, s := range w.started {
		keys = append(keys, s.Key)
	}
	if keys[0] == keys[1] || keys[0] == keys[2] || !slices.Equal(keys[:3], keys[3:]) {
		t.Errorf("the keys are %v", keys)
	}
}

func TestNobodyAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.run()
		began := time.Now()
		reply, err := r.Ask(t.Context(), api.Question{Question: "which?", Timeout: time.Minute, Default: "left"})
		if err != nil || reply.Answer != "left" || reply.By != "time-out" || time.Since(began) != time.Minute {
			t.Errorf("after %v: %+v, %v", time.Since(began), reply, err)
		}
		w.answers = map[string]nestor.Answer{}
		a, err := r.Permit(t.Context(), spawn.Call{Tool: "Bash", Reason: "why not", Within: time.Minute}, new(spawn.Permits))
		if err != nil || a.Decision != "deny" {
			t.Errorf("a permit is %+v, %v", a, err)
		}
	})
}

func TestAnswerForARoleHoldsForAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.scope = "role"
		var all spawn.Permits
		ask := func(c spawn.Call) (nestor.Answer, int) {
			t.Helper()
			before := len(w.asked)
			a, err := w.run().Permit(t.Context(), c, &all)
			if err != nil {
				t.Fatal(err)
			}
			return a, len(w.asked) - before
		}
		c := spawn.Call{Tool: "Bash", Input: []byte(`{"command":"ls"}`), Reason: "r", Role: "critic"}
		for i, want := range []int{1, 0} {
			if a, n := ask(c); a.Decision != "allow" || n != want {
				t.Errorf("time %d: %+v, asked %d times", i, a, n)
			}
		}
		c.Input = []byte(`{"command":"make"}`) // which is like it
		if _, n := ask(c); n != 0 {
			t.Errorf("a call like it is asked about %d times", n)
		}
		for _, other := range []spawn.Call{{Tool: "Bash", Reason: "r", Role: "reviewer"}, {Tool: "Write", Reason: "r", Role: "critic"}, {Tool: "Bash", Reason: "s", Role: "critic"}} {
			if _, n := ask(other); n != 1 {
				t.Errorf("%+v is asked about %d times", other, n)
			}
		}
	})
}

// What is said for a role is not kept for ever: trees end.
func TestAnswersForRolesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.scope = "role"
		var all spawn.Permits
		asked := func(reason string) bool {
			t.Helper()
			before := len(w.asked)
			if _, err := w.run().Permit(t.Context(), spawn.Call{Tool: "Bash", Reason: reason}, &all); err != nil {
				t.Fatal(err)
			}
			return len(w.asked) > before
		}
		const many = 5000
		for i := range many {
			if reason := fmt.Sprint(i); !asked(reason) || asked(reason) {
				t.Fatalf("answer %d does not hold, or did before it was given", i)
			}
		}
		held := 0
		for i := many - 1; i >= 0 && !asked(fmt.Sprint(i)); i-- {
			held++
		}
		if held == 0 || held == many {
			t.Errorf("%d of %d answers are remembered", held, many)
		}
	})
}

// call calls a tool of the server and returns what it says.
func call(t *testing.T, v spawn.Verbs, delegates bool, name string, args map[string]any) (string, bool) {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := spawn.Server(v, delegates).InProcess("nestor").Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

func TestToolsSpeakForTheRun(t *testing.T) {
	w := newWorld()
	w.inbox = []plan.Letter{{From: "bob", Content: "<hi>"}}
	for _, test := range []struct {
		tool   string
		args   map[string]any
		want   string
		failed bool
	}{
		{"spawn", map[string]any{"task": "look", "limits": map[string]any{"timeout": "90s"}}, `"status":"success","output":"done"`, false},
		{"spawn", map[string]any{"task": "look", "role": "god"}, "limit of depth: 0 of 3 left, 4 asked for", true},
		{"spawn", map[string]any{"task": "look", "parent": "x"}, "parent", true},
		{"spawn", map[string]any{"task": "look", "limits": map[string]any{"timeout": "soon"}}, `timeout "soon": want a span of time`, true},
		{"spawn", map[string]any{"task": "look", "limits": map[string]any{"max_turns": -1}}, "max_turns is -1", true},
		{"spawn", map[string]any{"task": "look", "name": "all"}, "it stands for others", true},
		{"spawn", map[string]any{}, "task", true},
		{"wait", map[string]any{"runs": []string{"old"}}, `"output":"it is over"`, false},
		{"wait", map[string]any{"runs": []string{string(id(9))}}, "is not below run", true},
		{"send", map[string]any{"to": "scout", "content": "hello"}, string(id(3)), false},
		{"inbox", map[string]any{}, `{"letters":[{"from":"bob","content":"<hi>"}]}`, false},
		{"progress", map[string]any{"activity": "half", "percent": 50}, "true", false},
		{"progress", map[string]any{"activity": "half", "percent": 500}, "want 0 to 100", true},
		{"ask_person", map[string]any{"question": ""}, "question: empty", true},
	} {
		got, failed := call(t, w.run(), true, test.tool, test.args)
		if failed != test.failed || !strings.Contains(got, test.want) {
			t.Errorf("%s %v says %s", test.tool, test.args, got)
		}
	}
	if got, failed := call(t, w.run(), false, "spawn", map[string]any{"task": "look"}); !failed {
		t.Errorf("who may not start others does: %s", got)
	}
	if p, ok := w.events[0].(*nestor.ExecutionProgress); !ok || p.Progress != 0.5 || p.Run != w.me.ID || p.Depth != 1 {
		t.Errorf("progress is %+v", w.events[0])
	}
}

// Whom a call starts is known before what it is to do is written.
func TestAgentOf(t *testing.T) {
	for _, test := range []struct {
		input, agent string
		known        bool
	}{
		{``, "", false},
		{`{`, "", false},
		{`{"ta`, "", false},
		{`{"task"`, "", true},
		{`{"task":"look","agent":"critic"}`, "", true}, // nobody waits for that
		{`{"agent"`, "", false},
		{`{"agent":"cri`, "", false},
		{`{ "agent" : "critic",`, "critic", true},
		{`{"agent":7,`, "", false},
		{`{}`, "", true},
		{`["agent"]`, "", false},
	} {
		if agent, known := spawn.AgentOf(test.input); agent != test.agent || known != test.known {
			t.Errorf("%s: %q, %t, want %q, %t", test.input, agent, known, test.agent, test.known)
		}
	}
}

// Models write what a tool is given in the order of its schema.
func TestAgentIsNamedFirst(t *testing.T) {
	server, client := mcp.NewInMemoryTransports()
	if _, err := spawn.Server(newWorld().run(), true).InProcess("nestor").Connect(t.Context(), server, nil); err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.LoggingTransport{Transport: client, Writer: &wire}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	session.Close()
	_, schema, _ := strings.Cut(wire.String(), "Start an agent below you")
	if _, schema, _ = strings.Cut(schema, `"properties":{`); !strings.HasPrefix(schema, `"agent":`) {
		t.Errorf("the schema of the tool begins with %.40s", schema)
	}
}

func TestTokensDie(t *testing.T) {
	var tokens spawn.Tokens
	a, b := newWorld().run(), newWorld().run()
	first, second, other := tokens.Grant(a), tokens.Grant(a), tokens.Grant(b)
	if len(first) != 64 || first == second || tokens.Find(first) != a || tokens.Find(second) != a || tokens.Find(other) != b || tokens.Find("") != nil {
		t.Error("tokens do not find their runs")
	}
	tokens.Revoke(a)
	if tokens.Find(first) != nil || tokens.Find(second) != nil || tokens.Find(other) != b {
		t.Error("a token outlives its run")
	}
}
