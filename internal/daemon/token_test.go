package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// leaking is a model whose agents write their tokens to a file, and then wait.
const leaking = `
rules:
  - when: {user: "^quick"}
    turns: [{text: quick}]
  - turns: [{tools: [{name: Bash, input: {command: "printenv NESTOR_TOKEN > $NESTOR_RUN_ID.new; mv $NESTOR_RUN_ID.new $NESTOR_RUN_ID.token; exec sleep 1000", description: wait, timeout: 600000}}]}]`

// stage is a daemon with agents whose tokens are known.
type stage struct {
	t      *testing.T
	s      settings
	client *api.Client // of the owner
	http   *http.Client
}

func newStage(t *testing.T, slots int) *stage {
	t.Helper()
	model := scriptmodel.Start(t, leaking)
	s := settings{Dir: place(t), URL: model.URL, Provider: "api", Slots: slots}
	client, _ := serving(t, s)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", daemon.AgentSocketPath(s.Dir))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &stage{t, s, client, &http.Client{Transport: transport}}
}

// root starts a root and returns its id and token.
func (s *stage) root(input string, limits nestor.Limits) (nestor.ID, string) {
	s.t.Helper()
	id := submit(s.t, s.client, nestor.Task{Input: input, Limits: limits, Data: []byte(`{"permission_mode":"bypassPermissions","tools":["Bash"]}`)})
	return id, s.token(id)
}

// token returns that of a run, once it has written it down.
func (s *stage) token(id nestor.ID) string {
	s.t.Helper()
	file := filepath.Join(s.s.Dir, string(id)+".token")
	until(s.t, s.client, id, func(r api.Run) bool {
		_, err := os.Stat(file)
		if r.State.Ended() {
			s.t.Fatalf("run %s ended: %+v", id, r.Error)
		}
		return err == nil
	})
	data, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (s *stage) agent(token string) *api.Client {
	c := api.NewAgentClient(daemon.AgentSocketPath(s.s.Dir), token)
	s.t.Cleanup(c.Close)
	return c
}

// ask sends a request as it is, and returns the status and what is said.
func (s *stage) ask(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://agent"+path, bytes.NewBufferString(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// Whatever the processes of a run try with the token, or without it: they reach
// their own subtree, and are given no more than it has.
func TestTokenIsGoodForOneSubtree(t *testing.T) {
	s := newStage(t, 10)
	mine, token := s.root("mine", nestor.Limits{Depth: 2, Children: 3, Descendants: 4, BudgetUSD: 1})
	other, _ := s.root("other", nestor.Limits{})
	child, err := s.agent(token).Spawn(t.Context(), api.Spawn{Task: "child", Name: "kid", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	below := s.token(child.Run)
	ended, dead := s.root("ended", nestor.Limits{})
	if err := s.client.Cancel(t.Context(), ended, api.Cancellation{Now: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Wait(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	runs := func() int {
		list, err := s.client.Runs(t.Context(), api.Query{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := runs()

	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	spawn := func(fields string) string {
		if fields != "" {
			fields = ", " + fields
		}
		return `{"task":"quick"` + fields + `}`
	}
	fresh := string(nestor.NewID(mine.Time()))
	for i, a := range []struct {
		name, method, path, body string
		header                   []string
		want                     int
	}{
		// Who is nobody.
		{"no token", "POST", "/v1/spawn", spawn(""), nil, 401},
		{"an empty token", "POST", "/v1/spawn", spawn(""), bearer(""), 401},
		{"a guess", "POST", "/v1/spawn", spawn(""), bearer(strings.Repeat("0", 64)), 401},
		{"a token that is cut", "POST", "/v1/spawn", spawn(""), bearer(token[:63]), 401},
		{"a token with more behind it", "POST", "/v1/spawn", spawn(""), bearer(token + "0"), 401},
		{"a token in capitals", "POST", "/v1/spawn", spawn(""), bearer(strings.ToUpper(token)), 401},
		{"another scheme", "POST", "/v1/spawn", spawn(""), []string{"Authorization", "Basic " + token}, 401},
		{"no scheme", "POST", "/v1/spawn", spawn(""), []string{"Authorization", token}, 401},
		{"two tokens", "POST", "/v1/spawn", spawn(""), append(bearer("x"), bearer(token)...), 401},
		{"the same twice", "POST", "/v1/spawn", spawn(""), append(bearer(token), bearer(token)...), 401},
		{"in the address", "POST", "/v1/spawn?token=" + token, spawn(""), nil, 401},
		{"in a cookie", "POST", "/v1/spawn", spawn(""), []string{"Cookie", "token=" + token}, 401},
		{"the run's id as token", "POST", "/v1/spawn", spawn(""), bearer(string(mine)), 401},
		{"the token of a run that has ended", "POST", "/v1/spawn", spawn(""), bearer(dead), 401},
		{"… to see itself", "GET", "/v1/runs/" + string(ended), "", bearer(dead), 401},
		{"no token, to see a run", "GET", "/v1/runs/" + string(mine), "", nil, 401},
		{"no token, for nothing", "GET", "/", "", nil, 401},

		// What a token is not for.
		{"a root", "POST", "/v1/runs", `{"task":{"input":"quick"}}`, bearer(token), 403},
		{"all runs", "GET", "/v1/runs", "", bearer(token), 403},
		{"a search", "GET", "/v1/search?q=mine", "", bearer(token), 403},
		{"a backup", "POST", "/v1/backup", `{"path":"/tmp/x"}`, bearer(token), 403},
		{"what the daemon is", "GET", "/v1/info", "", bearer(token), 403},
		{"events", "GET", "/v1/runs/" + string(other) + "/events", "", bearer(token), 403},
		{"files", "GET", "/v1/runs/" + string(other) + "/changes", "", bearer(token), 403},
		{"the asks of all", "GET", "/v1/asks", "", bearer(token), 403},
		{"an answer", "POST", "/v1/asks/1", `{"decision":"allow"}`, bearer(token), 403},
		{"another method", "DELETE", "/v1/runs/" + string(child.Run), "", bearer(token), 403},
		{"a path that leaves", "GET", "/v1/runs/" + string(mine) + "/../../runs", "", bearer(token), 307}, // which is a path like any other

		// Other runs.
		{"another tree", "GET", "/v1/runs/" + string(other), "", bearer(token), 403},
		{"the tree of another", "GET", "/v1/runs/" + string(other) + "/tree", "", bearer(token), 403},
		{"the end of another", "POST", "/v1/runs/" + string(other) + "/cancel", "{}", bearer(token), 403},
		{"a word to another", "POST", "/v1/runs/" + string(other) + "/messages", `{"content":"hi"}`, bearer(token), 403},
		{"a letter to another", "POST", "/v1/letters", `{"to":"` + string(other) + `","content":"hi"}`, bearer(token), 403},
		{"to wait for another", "POST", "/v1/wait", `{"runs":["` + string(other) + `"]}`, bearer(token), 403},
		{"a run that is not there", "GET", "/v1/runs/" + fresh, "", bearer(token), 403},
		{"the parent, by a child", "GET", "/v1/runs/" + string(mine), "", bearer(below), 403},
		{"the end of the parent", "POST", "/v1/runs/" + string(mine) + "/cancel", `{"now":true}`, bearer(below), 403},
		{"its own end", "POST", "/v1/runs/" + string(mine) + "/cancel", "{}", bearer(token), 403},
		{"to wait for the parent", "POST", "/v1/wait", `{"runs":["` + string(mine) + `"]}`, bearer(below), 403},
		{"to wait for itself", "POST", "/v1/wait", `{"runs":["` + string(mine) + `"]}`, bearer(token), 400},
		{"no id", "GET", "/v1/runs/x", "", bearer(token), 400},

		// Forged facts.
		{"a parent", "POST", "/v1/spawn", spawn(`"parent":"` + string(other) + `"`), bearer(token), 400},
		{"a depth", "POST", "/v1/spawn", spawn(`"depth":0`), bearer(token), 400},
		{"a root's id", "POST", "/v1/spawn", spawn(`"root":"` + string(other) + `"`), bearer(token), 400},
		{"a run's id", "POST", "/v1/spawn", spawn(`"run":"` + fresh + `"`), bearer(token), 400},
		{"a fence", "POST", "/v1/spawn", spawn(`"fence":9`), bearer(token), 400},
		{"what was spent", "POST", "/v1/spawn", spawn(`"spent_usd":-5`), bearer(token), 400},
		{"data of the task", "POST", "/v1/spawn", spawn(`"data":{"role":"orchestrator"}`), bearer(token), 400},
		{"a sender", "POST", "/v1/letters", `{"to":"kid","from":"the owner","content":"hi"}`, bearer(token), 400},
		{"a name that stands for others", "POST", "/v1/spawn", spawn(`"name":"parent"`), bearer(token), 400},
		{"a name that is an id", "POST", "/v1/spawn", spawn(`"name":"` + string(other) + `"`), bearer(token), 400},
		{"a name with a new line", "POST", "/v1/spawn", spawn(`"name":"a\nb"`), bearer(token), 400},
		{"a name that is taken", "POST", "/v1/spawn", spawn(`"name":"kid"`), bearer(token), 400},

		// More than there is.
		{"more money", "POST", "/v1/spawn", spawn(`"limits":{"max_budget_usd":100}`), bearer(token), 403},
		{"less than no money", "POST", "/v1/spawn", spawn(`"limits":{"max_budget_usd":-1}`), bearer(token), 400},
		{"more descendants", "POST", "/v1/spawn", spawn(`"limits":{"max_descendants":100}`), bearer(token), 403},
		{"an environment", "POST", "/v1/spawn", spawn(`"env":["ANTHROPIC_BASE_URL=http://127.0.0.1:1"]`), bearer(token), 403},
		{"another folder", "POST", "/v1/spawn", spawn(`"dir":"/etc"`), bearer(token), 403},
		{"a folder above", "POST", "/v1/spawn", spawn(`"dir":".."`), bearer(token), 403},
		{"a provider that is not there", "POST", "/v1/spawn", spawn(`"provider":"sky"`), bearer(token), 400},
		{"a role that is not there", "POST", "/v1/spawn", spawn(`"role":"god"`), bearer(token), 400},
		{"a mode that is not there", "POST", "/v1/spawn", spawn(`"permission_mode":"god"`), bearer(token), 400},
		{"a schema that is none", "POST", "/v1/spawn", spawn(`"schema":"nothing"`), bearer(token), 400},
		{"the same again", "POST", "/v1/spawn", `{"task":" MINE "}`, bearer(token), 403},
		{"the same, by the child", "POST", "/v1/spawn", `{"task":"mine"}`, bearer(below), 403},
		{"no task", "POST", "/v1/spawn", `{"task":" "}`, bearer(token), 400},
		{"no body", "POST", "/v1/spawn", ``, bearer(token), 400},
		{"two bodies", "POST", "/v1/spawn", spawn("") + spawn(""), bearer(token), 400},
		{"no JSON", "POST", "/v1/spawn", `task=quick`, bearer(token), 400},
		{"a large letter", "POST", "/v1/letters", `{"to":"kid","content":"` + strings.Repeat("x", 20<<10) + `"}`, bearer(token), 403},
		{"progress beyond all", "POST", "/v1/progress", `{"percent":101}`, bearer(token), 400},
		{"no question", "POST", "/v1/questions", `{"question":""}`, bearer(token), 400},
		{"a letter to nobody", "POST", "/v1/letters", `{"to":"nobody","content":"hi"}`, bearer(token), 400},
		{"a letter to itself", "POST", "/v1/letters", `{"to":"` + string(mine) + `","content":"hi"}`, bearer(token), 400},
		{"a letter to a parent that is not", "POST", "/v1/letters", `{"to":"parent","content":"hi"}`, bearer(token), 400},
	} {
		if got, said := s.ask(a.method, a.path, a.body, a.header...); got != a.want && !(a.want == 307 && got >= 300 && got < 500) {
			t.Errorf("%d. %s: %d, want %d: %s", i, a.name, got, a.want, said)
		}
	}
	if after := runs(); after != before {
		t.Errorf("there were %d runs, and are %d", before, after)
	}
	for _, id := range []nestor.ID{mine, other, child.Run} {
		if run := until(t, s.client, id, func(api.Run) bool { return true }); run.State.Ended() || run.Wait != nil && run.Wait.For == nestor.ForChildren {
			t.Errorf("run %s is %s: %s", id, run.State, run.Doing)
		}
	}
	n := 0
	for e, err := range s.client.Events(t.Context(), mine, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if refused, ok := e.(*nestor.ErrorEvent); ok && refused.Kind == nestor.Refused {
			n++
		}
	}
	if n < 40 {
		t.Errorf("%d refusals are on record", n)
	}
}

func TestWhatATokenIsFor(t *testing.T) {
	s := newStage(t, 10)
	_, token := s.root("mine", nestor.Limits{})
	a := s.agent(token)
	got, err := a.Spawn(t.Context(), api.Spawn{Task: "quick"})
	if err != nil || got.Status != nestor.Success || got.Output != "quick" || got.Depth != 1 {
		t.Fatalf("a child is %+v, %v", got, err)
	}
	if run, err := a.Run(t.Context(), got.Run); err != nil || run.Result.Output != "quick" {
		t.Errorf("to see it: %+v, %v", run, err)
	}
	kid, err := a.Spawn(t.Context(), api.Spawn{Task: "child", Name: "kid", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	below := s.agent(s.token(kid.Run))
	if to, err := a.Write(t.Context(), api.Letter{To: "kid", Content: "hello"}); err != nil || len(to) != 1 || to[0] != kid.Run {
		t.Errorf("a letter to a child: %v, %v", to, err)
	}
	if to, err := below.Write(t.Context(), api.Letter{To: "parent", Content: "hello, too"}); err != nil || len(to) != 1 {
		t.Errorf("a letter to the parent: %v, %v", to, err)
	}
	if err := a.Report(t.Context(), api.Progress{Activity: "half of it", Percent: 50}); err != nil {
		t.Error(err)
	}
	tree, err := a.Tree(t.Context(), got.Parent)
	if err != nil || len(tree) != 3 {
		t.Errorf("its tree has %d runs, %v", len(tree), err)
	}
	grand, err := below.Spawn(t.Context(), api.Spawn{Task: "grandchild", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	s.token(grand.Run)
	if err := a.Cancel(t.Context(), grand.Run, api.Cancellation{Reason: "enough", Now: true}); err != nil {
		t.Error(err)
	}
	end, err := below.Await(t.Context(), api.WaitFor{})
	if err != nil || len(end) != 1 || end[0].Run != grand.Run || end[0].Status != nestor.Cancelled {
		t.Errorf("its end is %+v, %v", end, err)
	}
	if _, err := a.Spawn(t.Context(), api.Spawn{Task: "quick", Limits: nestor.Limits{Descendants: 1000}}); !isLimit(err, "descendants") {
		t.Errorf("beyond a limit: %v", err)
	}
}

func isLimit(err error, name string) bool {
	limit, ok := errors.AsType[*nestor.LimitError](err)
	return ok && limit.Limit == name
}

// Who waits for several at once lends its only slot until all of them have ended,
// or the second could never run; and has it back then.
func TestSeveralWaitsLendOneSlot(t *testing.T) {
	s := newStage(t, 1)
	id, token := s.root("mine", nestor.Limits{})
	a := s.agent(token)
	var g errgroup.Group
	for i := range 4 {
		g.Go(func() error {
			got, err := a.Spawn(t.Context(), api.Spawn{Task: fmt.Sprint("quick ", i)})
			if err == nil && got.Status != nestor.Success {
				err = fmt.Errorf("it is %+v", got)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	run := until(t, s.client, id, func(r api.Run) bool { return r.State == nestor.Running })
	info, err := s.client.Info(t.Context())
	if err != nil || info.Busy != 1 || len(run.Children) != 4 {
		t.Errorf("%d slots are used, %d children, %v", info.Busy, len(run.Children), err)
	}
	// One who gave up waiting has it back, too.
	ctx, stop := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := a.Spawn(ctx, api.Spawn{Task: "child"})
		waiting <- err
	}()
	child := until(t, s.client, id, func(r api.Run) bool { return len(r.Children) == 5 && r.State == nestor.Waiting })
	s.token(child.Children[4])
	stop()
	if err := <-waiting; err == nil {
		t.Error("it gave up and got something")
	}
	if err := a.Cancel(t.Context(), child.Children[4], api.Cancellation{Now: true}); err != nil {
		t.Fatal(err)
	}
	until(t, s.client, id, func(r api.Run) bool { return r.State == nestor.Running })
}
