package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/soak"
)

// ladder is a graph of n tasks: each comes after two others, if there are so many.
func ladder(n int) *nestor.Graph {
	g := &nestor.Graph{Name: "ladder", Tasks: map[string]nestor.Node{}}
	for i := range n {
		words := []string{fmt.Sprintf("step %d", i)}
		for _, before := range []int{i - 2, i - 3} {
			if before >= 0 {
				words = append(words, fmt.Sprintf("${t%d.output}", before))
			}
		}
		g.Tasks[fmt.Sprintf("t%d", i)] = nestor.Node{Task: nestor.Task{Input: strings.Join(words, " "), Schema: json.RawMessage(`{"type":"object"}`)}}
	}
	return g
}

func graphTask(t *testing.T, g *nestor.Graph) nestor.Task {
	t.Helper()
	data, err := json.Marshal(api.TaskOptions{Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	return nestor.Task{Input: "graph", Data: data, Limits: nestor.Limits{Timeout: time.Hour, Resumes: 1000, Children: 4}}
}

// A graph whose daemon is killed again and again gets to its end: no task that has
// ended is run again, and none is left out.
func TestGraphsOutliveKills(t *testing.T) {
	const tasks = 12
	s := settings{Dir: place(t), Provider: "scripted", Slots: 4, Script: "turns: [{when: 'step (\\d+)', say: [{text: done, after: 50ms}], structured: {n: 1}, cost_usd: 0.001}]"}
	chance := soak.Rand(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	client := s.client(t)
	kills := soak.Of(3, 40)
	for n := 0; kills > 0; n++ {
		g := ladder(tasks)
		first := g.Tasks["t0"]
		first.Task.Input += fmt.Sprintf(" of graph %d", n) // none has been run before
		second := g.Tasks["t1"]
		second.Task.Input += fmt.Sprintf(" of graph %d", n)
		g.Tasks["t0"], g.Tasks["t1"] = first, second
		p := s.start(t)
		run, err := client.Submit(ctx, api.Submission{Key: fmt.Sprint("graph ", n), Task: graphTask(t, g)})
		if err != nil {
			t.Fatal(err)
		}
		id := run.ID
		for range 3 {
			select {
			case <-time.After(time.Duration(chance.IntN(300)) * time.Millisecond):
			case <-ctx.Done():
				t.Fatal(context.Cause(ctx))
			}
			p.kill()
			kills--
			p = s.start(t)
		}
		if run, err = client.Wait(ctx, id); err != nil || run.State != nestor.Success {
			t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
		}
		tree, err := client.Tree(ctx, id)
		if err != nil || len(tree) > 1+tasks {
			t.Errorf("there are %d runs for %d tasks: %v", len(tree)-1, tasks, err)
		}
		outcomes, err := json.Marshal(run.Result.Metadata["tasks"])
		if err != nil || strings.Count(string(outcomes), `"status":"success"`) != tasks {
			t.Errorf("the tasks are %s, %v", outcomes, err)
		}
		ends := map[nestor.ID]int{}
		for e, err := range client.Events(ctx, id, api.EventsQuery{Tree: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := e.(*nestor.ExecutionComplete); ok {
				ends[e.Run]++
			}
		}
		for _, r := range tree {
			if ends[r.ID] != 1 {
				t.Errorf("%s ended %d times", r.Input, ends[r.ID])
			}
		}
		p.stop(t)
	}
}

// What a task gave counts for another graph, until a file that it names changes.
func TestAKnownResultCounts(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: "turns: [{when: '(?s)(.*)', say: [{text: 'you said: $1'}]}]"}
	client, _ := serving(t, s)
	kept := func(files ...string) bool {
		run := finish(t, client, graphTask(t, &nestor.Graph{Tasks: map[string]nestor.Node{"a": {Task: nestor.Task{Input: "look"}, Files: files}}}))
		if run.State != nestor.Success || run.Result.Output != "you said: look" {
			t.Fatalf("it is %s, %+v", run.State, run.Result)
		}
		outcome, err := json.Marshal(run.Result.Metadata["tasks"])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(outcome), `"kept":1`)
	}
	if kept() {
		t.Error("a result is known of what was never done")
	}
	if !kept() {
		t.Error("the result is not known")
	}
	write(t, s.Dir+"/notes/a.txt", "one")
	if kept("notes") {
		t.Error("it counts although it depends on files now")
	}
	if !kept("notes") {
		t.Error("it does not count, and no file has changed")
	}
	write(t, s.Dir+"/notes/a.txt", "two")
	if kept("notes") {
		t.Error("it counts although a file has changed")
	}
}

func TestAGraphThatCannotRunIsRefused(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t), Provider: "scripted"})
	for want, g := range map[string]*nestor.Graph{
		`there is no agent "nobody"`:       {Tasks: map[string]nestor.Node{"a": {Task: nestor.Task{Input: "x", Agent: "nobody"}}}},
		"tasks that wait for each other":   {Tasks: map[string]nestor.Node{"a": {Task: nestor.Task{Input: "x"}, After: []string{"b"}}, "b": {Task: nestor.Task{Input: "${a.output}"}}}},
		`there is no task "c"`:             {Tasks: map[string]nestor.Node{"a": {Task: nestor.Task{Input: "${c.output}"}}}},
		`the output of task "a" is a text`: {Tasks: map[string]nestor.Node{"a": {Task: nestor.Task{Input: "x"}}, "b": {Task: nestor.Task{Input: "${a.output.x}"}}}},
	} {
		_, err := client.Submit(t.Context(), api.Submission{Task: graphTask(t, g)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
