package daemon_test

import (
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// nesting spawns one level after the other by the tool, until a leaf answers.
const nesting = `
turns:
  - when: "^level 0$"
    say: [{text: leaf}]
    cost_usd: 0.01
  - when: "^level (\\d)(\\d*)$"
    say:
      - call: {name: mcp__nestor__spawn, input: {task: "level $2"}}
      - text: "below: ${result}"
    cost_usd: 0.01
`

// A tree that is deeper than there are slots gets to its end, and its costs add up.
func TestTreeDeeperThanTheSlots(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: nesting}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "level 123450", Limits: nestor.Limits{Depth: 5}})
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success {
		t.Fatalf("it is %s, %+v, %v", run.State, run.Result, err)
	}
	t.Log(run.Result.Output)
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != 6 {
		t.Fatalf("the tree has %d runs, %v", len(tree), err)
	}
	for i, r := range tree {
		if r.Depth != i || r.State != nestor.Success {
			t.Errorf("run %d is %s at depth %d", i, r.State, r.Depth)
		}
	}
	if sum := run.CostUSD + run.BelowUSD; sum < 0.0599 || sum > 0.0601 {
		t.Errorf("it cost %v", sum)
	}
	_ = api.Run{}
}
