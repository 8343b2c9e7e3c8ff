package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// twoWorkers starts two with one slot each, which play a script.
func twoWorkers(t *testing.T, d *playing, script string) (list []*playing) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		w := d.worker(t, name)
		w.Slots, w.Script = 1, script
		list = append(list, w.start(t))
	}
	return list
}

// Agents on other machines start agents, deeper than all of them have slots: who
// waits lends its slot. Costs and the trace are those of one tree.
func TestTreeOverWorkersElsewhere(t *testing.T) {
	d := project(t)
	workers := twoWorkers(t, d, nesting)
	c := d.client(t)
	root := wait(t, c, submit(t, c, nestor.Task{Input: "level 123450", Limits: nestor.Limits{Depth: 5, BudgetUSD: 10_000}}))
	if root.State != nestor.Success || !strings.Contains(root.Result.Output, "leaf") {
		t.Fatalf("it is %s, %+v, %v", root.State, root.Result, root.Error)
	}
	tree, err := c.Tree(bound(t), root.ID)
	if err != nil || len(tree) != 6 {
		t.Fatalf("the tree has %d runs, %v", len(tree), err)
	}
	var ids []nestor.ID
	for i, r := range tree {
		ids = append(ids, r.ID)
		if r.Depth != i || r.State != nestor.Success || r.Trace != root.Trace {
			t.Errorf("run %d is %s at depth %d of trace %s", i, r.State, r.Depth, r.Trace)
		}
	}
	if sum := root.CostUSD + root.BelowUSD; sum < 0.0599 || sum > 0.0601 {
		t.Errorf("it cost %v", sum)
	}
	for _, w := range workers {
		w.stop(t)
	}
	d.stop(t)
	onceEach(t, d.Dir, ids)
}

// What a run starts works in the same place of the project on every machine, below it
// if it says so, and nowhere else; however the parent names the folder.
func TestPlaceOfAChildElsewhere(t *testing.T) {
	const asks = `
turns:
  - when: "^in (.+)$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: "where", dir: "$1"}}}, {text: "${result}"}]
  - when: "^here$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: "where"}}}, {text: "${result}"}]
  - say: [{text: done}]
`
	d := project(t)
	w := d.worker(t, "a")
	w.Script = asks
	for _, dir := range []string{d.Dir, w.Dir} {
		write(t, filepath.Join(dir, "docs", "guide", "a.txt"), "")
	}
	w.start(t)
	c := d.client(t)
	for _, test := range []struct{ dir, input, want string }{
		{"", "here", "."},
		{"docs", "here", "docs"},
		{"", "in docs", "docs"},
		{"docs", "in guide", "docs/guide"},
		{"docs", "in ../..", "!or below it"},
		{"", "in " + d.Dir, "!or below it"}, // is of another machine
		{"", "in " + t.TempDir(), "!or below it"},
		{"docs", "in none", "!no such file"},
	} {
		root := wait(t, c, submit(t, c, nestor.Task{Input: test.input, Dir: inProject(d.Dir, test.dir)}))
		if want, refused := strings.CutPrefix(test.want, "!"); refused {
			if root.Result == nil || !strings.Contains(root.Result.Output, want) {
				t.Errorf("in %q, %s: %+v, %v", test.dir, test.input, root.Result, root.Error)
			}
			continue
		}
		tree, err := c.Tree(bound(t), root.ID)
		if err != nil || len(tree) != 2 || tree[1].State != nestor.Success || tree[1].Dir != inProject(d.Dir, test.want) {
			t.Errorf("in %q, %s: %+v, %v, %v", test.dir, test.input, tree, root.Result, err)
		}
	}
}

func inProject(dir, place string) string {
	if place == "" {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(place))
}

// A daemon's own run starts one that another machine takes, which has the place in
// its copy of the project.
func TestChildOfTheDaemonElsewhere(t *testing.T) {
	d := machine{Dir: t.TempDir(), Listen: "127.0.0.1:0", Name: "daemon", Works: true, Slots: 1, Script: `
turns:
  - when: "^root$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: child, dir: docs, background: true}}}, {text: hm, after: 10m}]
`}
	write(t, filepath.Join(d.Dir, "docs", "a.txt"), "")
	p := d.start(t)
	c := p.client(t)
	root := submit(t, c, nestor.Task{Input: "root"})
	child := childOf(t, c, root)
	w := p.worker(t, "b")
	write(t, filepath.Join(w.Dir, "docs", "a.txt"), "")
	w.start(t)
	if run := wait(t, c, child); saidBy(run) != "b" {
		t.Errorf("it was done by %s: %v", saidBy(run), run.Error)
	}
	if err := c.Cancel(bound(t), root, api.Cancellation{}); err != nil {
		t.Fatal(err)
	}
}

// What works in the worktree of its parent does so on the machine that has it, however
// many others wait for work.
func TestChildInAWorktreeStays(t *testing.T) {
	d := machine{Dir: checkout(t), Listen: "127.0.0.1:0", Name: "daemon", Works: true, Slots: 2, Script: nesting}
	p := d.start(t)
	w := p.worker(t, "b")
	w.Script = strings.NewReplacer("leaf", "leaf elsewhere", "below:", "elsewhere, below:").Replace(nesting)
	w.start(t)
	c := p.client(t)
	data := json.RawMessage(`{"workspace": {"kind": "worktree"}}`)
	run := wait(t, c, submit(t, c, nestor.Task{Input: "level 1230", Data: data, Label: "project"}))
	if run.State != nestor.Success || !strings.Contains(run.Result.Output, "leaf") || strings.Contains(run.Result.Output, "elsewhere") {
		t.Errorf("it is %s, %+v, %v", run.State, run.Result, run.Error)
	}
}

// The role of a parent bounds its children on every machine, to the same place of the
// project: there they may do what they might here.
func TestRoleReachesDownElsewhere(t *testing.T) {
	d := project(t)
	w := d.worker(t, "a")
	w.Model = scriptmodel.Start(t, `
rules:
  - when: {user: "^child$"}
    turns:
      - tools: [{name: Write, input: {file_path: new.txt, content: new}}]
      - text: "{{.ToolResult}}"
  - turns:
      - tools: [{name: mcp__nestor__spawn, input: {task: child}}]
      - text: done
`).URL
	for _, dir := range []string{d.Dir, w.Dir} {
		write(t, filepath.Join(dir, "docs", "a.txt"), "")
	}
	w.start(t)
	c := d.client(t)
	for role, writes := range map[string]int{"implementer": 1, "critic": 0} {
		data := json.RawMessage(`{"role": "` + role + `", "permission_mode": "bypassPermissions"}`)
		root := wait(t, c, submit(t, c, nestor.Task{Input: "root", Provider: "api", Dir: filepath.Join(d.Dir, "docs"), Data: data}))
		tree, err := c.Tree(bound(t), root.ID)
		if err != nil || len(tree) != 2 {
			t.Fatalf("%s: %d runs, %v: %+v, %v", role, len(tree), err, root.Result, root.Error)
		}
		child := wait(t, c, tree[1].ID)
		told, _ := api.ChangesOf(child.Result)
		if told.Count != writes || writes > 0 && told.Files[0].Path != "docs/new.txt" {
			t.Errorf("%s: the child wrote %+v, and said %q", role, told, child.Result.Output)
		}
	}
}

// The machine that has a child is lost: the child is done on another, and its parent,
// on a third or on that one, hears of its end.
func TestChildOfALostWorker(t *testing.T) {
	d := project(t)
	a := d.worker(t, "a")
	a.Slots, a.Script = 1, `
turns:
  - when: "^root$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: child, background: true}}
      - {text: so that another machine takes it, after: 12s}
      - call: {name: mcp__nestor__wait, input: {}}
      - text: "${result}"
  - say: [{text: done by a}]
`
	a.start(t)
	c := d.client(t)
	root := submit(t, c, nestor.Task{Input: "root"})
	child := childOf(t, c, root)
	b := d.worker(t, "b")
	b.Script = "turns: [{say: [{text: still here, after: 20ms}], hang: true}]"
	lost := b.start(t)
	until(t, c, child, runsOn("b"))
	lost.kill()
	if run := wait(t, c, root); run.State != nestor.Success || !strings.Contains(run.Result.Output, "done by a") {
		t.Errorf("it is %s, %+v, %v", run.State, run.Result, run.Error)
	}
	if run := wait(t, c, child); saidBy(run) != "a" || run.Resumes != 1 {
		t.Errorf("the child was done by %s, after %d losses", saidBy(run), run.Resumes)
	}
}

// childOf waits for the first child of a run.
func childOf(t *testing.T, c *api.Client, root nestor.ID) (child nestor.ID) {
	t.Helper()
	until(t, c, root, func(api.Run) bool {
		tree, err := c.Tree(bound(t), root)
		if err != nil || len(tree) < 2 {
			return false
		}
		child = tree[1].ID
		return true
	})
	return child
}

// A child on another machine asks a person, who is where the root was started, and
// writes to its parent: both are heard as they would be here.
func TestChildElsewhereAsksAndWrites(t *testing.T) {
	d := project(t)
	twoWorkers(t, d, `
turns:
  - when: "^root$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: child}}
      - call: {name: mcp__nestor__inbox, input: {}}
      - text: "${result}"
  - say:
      - call: {name: mcp__nestor__ask_person, input: {question: "which one?", options: [left, right]}}
      - call: {name: mcp__nestor__send, input: {to: parent, content: "they said ${result}"}}
      - text: done
`)
	c := d.client(t)
	root := submit(t, c, nestor.Task{Input: "root"})
	ask := theAsk(t, c, root)
	if ask.Root != root || len(ask.Path) != 2 || ask.Question != "which one?" {
		t.Errorf("it is asked %+v", ask)
	}
	if err := c.Answer(bound(t), ask.Run, ask.ID, api.Answer{Decision: "left", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if run := wait(t, c, root); run.State != nestor.Success || !strings.Contains(run.Result.Output, "they said") || !strings.Contains(run.Result.Output, "left") {
		t.Errorf("it is %s, %+v, %v", run.State, run.Result, run.Error)
	}
}

// A graph is done on other machines too, and what its tasks gave counts there.
func TestGraphElsewhere(t *testing.T) {
	const tasks = 6
	d := project(t)
	twoWorkers(t, d, "turns: [{when: 'step', say: [{text: done}], structured: {n: 1}}]")
	c := d.client(t)
	for _, again := range []bool{false, true} {
		run := wait(t, c, submit(t, c, graphTask(t, ladder(tasks))))
		tree, err := c.Tree(bound(t), run.ID)
		if run.State != nestor.Success || err != nil {
			t.Fatalf("it is %s, %v, %v", run.State, run.Error, err)
		}
		if want := map[bool]int{false: tasks, true: 0}[again]; len(tree)-1 != want {
			t.Errorf("again %t: %d tasks were run, want %d", again, len(tree)-1, want)
		}
	}
}

// A run on another machine starts agents as they are defined in the folder there, also
// when yet another takes them.
func TestAgentsStartedElsewhere(t *testing.T) {
	d := project(t)
	for _, name := range []string{"a", "b"} {
		w := d.worker(t, name)
		w.Slots, w.Script = 1, `
turns:
  - when: "^root (.+)$"
    say: [{call: {name: mcp__nestor__spawn, input: {task: child, agent: "$1"}}}, {text: "${result}"}]
  - say: [{text: done}]
`
		writeAgent(t, w.Dir, ".claude/agents/hand.md", "---\ndescription: d\nlimits: {max_turns: 7}\n---\nText.\n")
		writeAgent(t, w.Dir, ".claude/agents/wild.md", "---\ndescription: d\npermissionMode: bypassPermissions\n---\nText.\n")
		w.start(t)
	}
	c := d.client(t)
	for agent, want := range map[string]string{"hand": "", "nobody": "nobody", "wild": "counts only if you trust it"} {
		root := wait(t, c, submit(t, c, nestor.Task{Input: "root " + agent}))
		tree, err := c.Tree(bound(t), root.ID)
		switch {
		case err != nil || root.State != nestor.Success:
			t.Errorf("%s: it is %s, %v, %v", agent, root.State, root.Error, err)
		case want != "":
			if len(tree) != 1 || !strings.Contains(root.Result.Output, want) {
				t.Errorf("%s: there are %d runs, and it says %q", agent, len(tree), root.Result.Output)
			}
		case len(tree) != 2 || tree[1].Agent != agent || tree[1].Limits.Turns != 7 || tree[1].State != nestor.Success:
			t.Errorf("%s: %+v", agent, tree)
		}
	}
}

// Trees whose workers are killed again and again, on other machines, get to their end:
// each run ends once, none is started twice, and no lease is lost.
func TestTreesOutliveWorkers(t *testing.T) {
	const breadth, levels = 3, 2
	all := power(breadth, levels)
	chance := soak.Rand(t)
	d := project(t)
	c := d.client(t)
	start := func(name string) *playing {
		w := d.worker(t, name)
		w.Slots, w.Script = 2, treeScript(breadth, "{say: [{text: leaf, after: 60ms}], cost_usd: 0.001}")
		return w.start(t)
	}
	workers := []*playing{start("a"), start("b")}
	for kills := soak.Of(2, 20); kills > 0; {
		id := submit(t, c, nestor.Task{Input: "node r " + strings.Repeat("x", levels), Limits: nestor.Limits{
			Depth: levels, Children: breadth, Descendants: 10 * all, Timeout: time.Hour, BudgetUSD: 10, Turns: 100, Resumes: 1000,
		}})
		for i := range workers {
			select {
			case <-time.After(time.Duration(chance.IntN(300)) * time.Millisecond):
			case <-t.Context().Done():
				t.Fatal(context.Cause(t.Context()))
			}
			workers[i].kill()
			kills--
			workers[i] = start(fmt.Sprint("w", kills))
		}
		if run := wait(t, c, id); run.State != nestor.Success {
			t.Fatalf("it is %s, %+v", run.State, run.Error)
		}
		endedOnce(t, c, id, all, nestor.Success)
		nothingLeased(t, c, id)
	}
}
