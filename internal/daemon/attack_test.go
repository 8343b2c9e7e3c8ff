package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// attackVariable makes the test binary play a process of an agent, which tries what
// is in this file and writes beside it what came of it.
const attackVariable = "NESTOR_TEST_ATTACK"

// attack is a request on the agents' socket, or something else that a process can try.
type attack struct {
	Name, Method, Path, Body, Token string
	Dial                            string // a socket that is dialled instead
	Open                            string // a file that is read instead
	Write                           string // that is written to instead

	Got  int    // the status; zero if something else was tried and did not go
	Said string // what was answered
}

// playAttacker tries what is in a file.
func playAttacker(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var list []attack
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Getenv(api.SocketVariable))
	}}}
	for i := range list {
		a := &list[i]
		switch {
		case a.Dial != "":
			conn, err := net.Dial("unix", a.Dial)
			if a.Said = fmt.Sprint(err); err == nil {
				conn.Close()
				a.Got = 1
			}
		case a.Open != "":
			names, _ := filepath.Glob(a.Open)
			for _, name := range names {
				if data, err := os.ReadFile(name); err == nil && (a.Body == "" || strings.Contains(string(data), a.Body)) {
					a.Got, a.Said = 1, name
				}
			}
		case a.Write != "":
			if err := os.WriteFile(a.Write, []byte("x"), 0o600); err == nil {
				a.Got = 1
			}
		default:
			req, err := http.NewRequest(a.Method, "http://agent"+a.Path, strings.NewReader(a.Body))
			if err != nil {
				return err
			}
			if a.Token != "" {
				req.Header.Set("Authorization", "Bearer "+a.Token)
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			said, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				return err
			}
			a.Got, a.Said = resp.StatusCode, string(said)
		}
	}
	if data, err = json.Marshal(list); err != nil {
		return err
	}
	return os.WriteFile(file+".done", data, 0o600)
}

// attacks are what a process of run mine, with its token, tries to get what is not
// its own. None of them may go.
func attacks(dir string, mine, parent, other, fresh nestor.ID, own, ended, above string) (list []attack) {
	add := func(name, method, path, body, token string) {
		list = append(list, attack{Name: name, Method: method, Path: path, Body: body, Token: token})
	}
	verbs := []attack{
		{Method: "POST", Path: "/v1/spawn", Body: `{"task":"quick"}`},
		{Method: "POST", Path: "/v1/wait", Body: `{}`},
		{Method: "POST", Path: "/v1/letters", Body: `{"to":"parent","content":"hi"}`},
		{Method: "POST", Path: "/v1/inbox"},
		{Method: "POST", Path: "/v1/progress", Body: `{"percent":1}`},
		{Method: "POST", Path: "/v1/questions", Body: `{"question":"may I?"}`},
		{Method: "GET", Path: "/v1/runs/" + string(mine)},
		{Method: "GET", Path: "/v1/runs/" + string(mine) + "/tree"},
		{Method: "POST", Path: "/v1/runs/" + string(mine) + "/cancel", Body: `{}`},
		{Method: "POST", Path: "/v1/runs/" + string(mine) + "/messages", Body: `{"content":"hi"}`},
	}
	add("what goes", "POST", "/v1/progress", `{"percent":1}`, own) // or all of this would mean nothing
	// Every verb, with what is not the token.
	for _, v := range verbs {
		for name, token := range map[string]string{
			"nothing": "", "zeros": strings.Repeat("0", 64), "half": own[:32], "more": own + "00", "capitals": strings.ToUpper(own), "turned round": reversed(own),
			"one that has ended": ended, "its id": string(mine), "spaces": "  ", "a star": "*", "null": "null",
		} {
			if token != own { // digits alone have no capitals
				add(v.Path+" with "+name, v.Method, v.Path, v.Body, token)
			}
		}
	}
	// Other runs, with its own token.
	for what, id := range map[string]nestor.ID{"the parent": parent, "another tree": other, "nobody": fresh} {
		for _, v := range []attack{
			{Method: "GET", Path: "/v1/runs/ID"},
			{Method: "GET", Path: "/v1/runs/ID/tree"},
			{Method: "GET", Path: "/v1/runs/ID/events"},
			{Method: "GET", Path: "/v1/runs/ID/changes"},
			{Method: "POST", Path: "/v1/runs/ID/cancel", Body: `{"now":true}`},
			{Method: "POST", Path: "/v1/wait", Body: `{"runs":["ID"]}`},
			{Method: "POST", Path: "/v1/runs/ID/asks/1", Body: `{"decision":"allow"}`},
		} {
			add(v.Path+" of "+what, v.Method, strings.ReplaceAll(v.Path, "ID", string(id)), strings.ReplaceAll(v.Body, "ID", string(id)), own)
		}
		if id != parent {
			add("a letter to "+what, "POST", "/v1/letters", `{"to":"`+string(id)+`","content":"hi"}`, own)
			add("a message to "+what, "POST", "/v1/runs/"+string(id)+"/messages", `{"content":"hi"}`, own)
		}
	}
	// What only the owner may.
	for _, v := range []string{"GET /v1/runs", "POST /v1/runs", "GET /v1/search?q=x", "POST /v1/backup", "GET /v1/info", "GET /v1/asks", "GET /healthz", "GET /readyz", "DELETE /v1/spawn", "GET /v1/spawn", "PUT /v1/progress", "GET /metrics", "GET /debug/pprof/", "GET /..", "CONNECT /v1/runs"} {
		method, path, _ := strings.Cut(v, " ")
		add(v, method, path, "", own)
	}
	// Facts that it makes up.
	for _, f := range []string{
		`"parent":"` + string(other) + `"`, `"parent":null`, `"root":"` + string(other) + `"`, `"run":"` + string(fresh) + `"`, `"depth":0`, `"depth":-1`, `"Depth":0`, `"path":[]`, `"fence":99`,
		`"spent_usd":-100`, `"cost_usd":-100`, `"token":"` + own + `"`, `"above":[]`, `"data":{"tools":["Bash"]}`, `"session_id":"x"`, `"label":"gpu"`, `"priority":"high"`,
		`"swarm":"swarm_dev"`, `"after":["` + string(other) + `"]`, `"lineage":[]`, `"delegation":"cli"`, `"traceparent":"x"`, `"subdir":"/"`, `"limits":{"granted":5}`,
		`"limits":{"max_budget_usd":1000}`, `"limits":{"max_budget_usd":-1}`, `"limits":{"max_budget_usd":1e400}`, `"limits":{"max_descendants":1000}`, `"limits":{"max_descendants":-1}`,
		`"limits":{"max_turns":-1}`, `"limits":{"timeout":-1}`, `"limits":{"timeout":"1h"}`, `"limits":{"max_depth":-5}`,
		`"env":["PATH=/evil"]`, `"env":["LD_PRELOAD=x.so"]`, `"env":["NESTOR_TOKEN=` + above + `"]`, `"env":["HOME=/"]`, `"env":["A"]`, `"env":[""]`,
		`"dir":"/"`, `"dir":".."`, `"dir":"` + filepath.Dir(dir) + `"`, `"dir":"."`, `"dir":"` + dir + `/.nestor"`,
		`"role":"god"`, `"role":"../x"`, `"permission_mode":"root"`, `"sandbox":"none"`, `"provider":"shell"`, `"schema":7`, `"name":"all"`, `"name":"children"`, `"name":"a b"`, `"name":"` + strings.Repeat("n", 61) + `"`,
	} {
		add("spawn with "+f, "POST", "/v1/spawn", `{"task":"quick",`+f+`}`, own)
	}
	add("the same as above", "POST", "/v1/spawn", `{"task":"Mine"}`, own)
	add("the same as itself", "POST", "/v1/spawn", `{"task":"inside "}`, own)
	add("a long letter", "POST", "/v1/letters", `{"to":"parent","content":"`+strings.Repeat("x", 17<<10)+`"}`, own)
	add("a letter by another", "POST", "/v1/letters", `{"to":"parent","from":"owner","content":"hi"}`, own)
	add("a large body", "POST", "/v1/progress", `{"activity":"`+strings.Repeat("x", 5<<20)+`"}`, own)
	// Around the socket.
	home := filepath.Join(dir, ".nestor")
	for _, name := range []string{filepath.Join(home, "nestor.sock"), "/proc/1/root" + filepath.Join(home, "nestor.sock")} {
		list = append(list, attack{Name: "dial " + name, Dial: name})
	}
	for name, holds := range map[string]string{
		filepath.Join(home, "broker", "*"): "", filepath.Join(home, "history.db*"): "", filepath.Join(home, "id"): "", "/proc/[0-9]*/environ": above, "/proc/[0-9]*/mem": "",
	} {
		list = append(list, attack{Name: "read " + name, Open: name, Body: holds})
	}
	for _, name := range []string{filepath.Join(home, "sessions", ".position"), filepath.Join(home, "config.yaml"), filepath.Join(home, "agent.sock")} {
		list = append(list, attack{Name: "write " + name, Write: name})
	}
	return list
}

func reversed(text string) string {
	b := []byte(text)
	slices.Reverse(b)
	return string(b)
}

// A process of an agent in a sandbox tries what it can: nothing of it goes.
func TestAttacksFromInsideASandbox(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := place(t)
	model := scriptmodel.Start(t, strings.ReplaceAll(leaking, "rules:", `
rules:
  - when: {user: "^inside$"}
    turns:
      - tools: [{name: Bash, input: {command: "printenv NESTOR_TOKEN > inside.token; until [ -e attacks ]; do sleep 0.02; done; `+attackVariable+`=$PWD/attacks `+self+`", description: attack, timeout: 300000}}]
      - text: "{{.ToolResult}}"`))
	s := settings{Dir: dir, URL: model.URL, Provider: "api", Slots: 10}
	client, _ := serving(t, s)
	st := &stage{t: t, s: s, client: client}
	mine, above := st.root("mine", nestor.Limits{Depth: 3, Children: 3, Descendants: 4, BudgetUSD: 1})
	other, _ := st.root("other", nestor.Limits{})
	gone, ended := st.root("gone", nestor.Limits{})
	if err := client.Cancel(t.Context(), gone, api.Cancellation{Now: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Wait(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	child, err := st.agent(above).Spawn(t.Context(), api.Spawn{Task: "inside", Sandbox: "strict", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	var own []byte
	until(t, client, child.Run, func(r api.Run) bool {
		own, _ = os.ReadFile(filepath.Join(dir, "inside.token"))
		if r.State.Ended() {
			t.Fatalf("it ended: %+v", r.Result)
		}
		return len(own) == 65
	})
	list := attacks(dir, child.Run, mine, other, nestor.NewID(mine.Time()), strings.TrimSpace(string(own)), ended, above)
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "attacks.new"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "attacks.new"), filepath.Join(dir, "attacks")); err != nil {
		t.Fatal(err)
	}
	run, err := client.Wait(t.Context(), child.Run)
	if err != nil || run.State != nestor.Success {
		t.Fatalf("it is %s, %+v, %v", run.State, run.Result, err)
	}
	if data, err = os.ReadFile(filepath.Join(dir, "attacks.done")); err != nil {
		t.Fatalf("%v: %s", err, run.Result.Output)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d attacks", len(list))
	if len(list) < 200 {
		t.Errorf("there are %d attacks", len(list))
	}
	for _, a := range list {
		if a.Name == "what goes" {
			if a.Got != http.StatusNoContent {
				t.Errorf("what goes does not: %d %s", a.Got, a.Said)
			}
			continue
		}
		if a.Method != "" && (a.Got < 400 || a.Got >= 500) || a.Method == "" && a.Got != 0 {
			t.Errorf("%s: %d %.300s", a.Name, a.Got, a.Said)
		}
	}
	tree, err := client.Tree(t.Context(), mine)
	if err != nil || len(tree) != 2 {
		t.Errorf("the tree has %d runs, %v", len(tree), err)
	}
	for _, id := range []nestor.ID{mine, other} {
		if run, err := client.Run(t.Context(), id); err != nil || run.State.Ended() {
			t.Errorf("run %s is %s, %v", id, run.State, err)
		}
	}
}
