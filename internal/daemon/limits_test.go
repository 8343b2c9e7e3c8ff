package daemon_test

import (
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// hungry uses much memory, and holds it.
const hungry = `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "x=$(head -c 1500000000 /dev/zero | tr '\\0' x); sleep 60", description: eat}}]
      - text: "It said: {{.ToolResult}}"`

// activities returns what a run was said to do.
func activities(t *testing.T, client *api.Client, id nestor.ID) string {
	t.Helper()
	var all []string
	for e, err := range client.Events(bound(t), id, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := e.(*nestor.ExecutionProgress); ok && p.Activity != "" {
			all = append(all, p.Activity)
		}
	}
	return strings.Join(all, "\n")
}

// A command that uses too much is killed, and the agent, the events and the result
// say so.
func TestCommandThatUsesTooMuchIsKilled(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, hungry)
	client, _ := serving(t, settings{Dir: dir}.with(t, "api", model.URL))
	run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + `,"resources":{"memory":200000000}}`)})
	const want = "bytes of memory, and 200000000 are the limit"
	if !strings.Contains(run.Result.Output, want) {
		t.Errorf("the agent was told %q", run.Result.Output)
	}
	if lines, _ := run.Result.Metadata["exceeded"].([]any); len(lines) != 1 || !strings.Contains(lines[0].(string), want) {
		t.Errorf("the result has %v", run.Result.Metadata)
	}
	if all := activities(t, client, run.ID); !strings.Contains(all, want) {
		t.Errorf("the events say %q", all)
	}
}

// A CLI that is killed because of a limit is not tried again: it would be killed
// again.
func TestCLIThatUsesTooMuchEndsTheRun(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, hungry)
	s := settings{Dir: dir}.with(t, "sdk", model.URL)
	s.Limits = sandbox.Limits{Memory: 1_000_000_000}
	client, _ := serving(t, s)
	run, err := client.Wait(bound(t), submit(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + "}")}))
	if err != nil || run.State != nestor.Error || run.Error.Kind != nestor.Resources || run.Retries != 0 || !strings.Contains(run.Error.Message, "1000000000 are the limit") {
		t.Errorf("it is %s, %+v, %d retries, %v", run.State, run.Error, run.Retries, err)
	}
}

// A prompt, and an answer, that are longer than an event can be do not end the run: its
// events have them in part, and say so.
func TestLongTexts(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t)})
	long := strings.Repeat("long ", 70_000)
	run := finish(t, client, nestor.Task{Provider: "scripted", Input: long})
	if run.Result.Status != nestor.Success || !run.Result.Truncated {
		t.Errorf("it ended with %+v and %d bytes of output", run.Result.Error, len(run.Result.Output))
	}
	cut := 0
	for e, err := range client.Events(bound(t), run.ID, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *nestor.ChatStart:
			if strings.HasPrefix(e.Message, "long long") && strings.Contains(e.Message, "more are not in the log") {
				cut++
			}
		case *nestor.AgentComplete:
			if strings.Contains(e.Content, "long long") && strings.Contains(e.Content, "more are not in the log") {
				cut++
			}
		}
	}
	if cut != 2 {
		t.Errorf("%d texts are cut, and say so", cut)
	}
}
