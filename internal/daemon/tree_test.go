package daemon_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// treeScript is of agents that start as many others as breadth says, one level
// after the other, and wait for them; and of such that start one other, and wait.
// Those at the end of their path do what leaf says.
func treeScript(breadth int, leaf string) string {
	var b strings.Builder
	b.WriteString("turns:\n  - when: 'node (\\w+) x(x*)$'\n    say:\n")
	for i := range breadth {
		fmt.Fprintf(&b, "      - call: {name: mcp__nestor__spawn, input: {task: 'node ${1}%c $2', background: true}}\n", 'a'+i)
	}
	b.WriteString("      - call: {name: mcp__nestor__wait, input: {}}\n      - text: all is well\n    cost_usd: 0.001\n")
	b.WriteString("  - when: 'deep x(x*)$'\n    say: [{call: {name: mcp__nestor__spawn, input: {task: 'deep $1'}}}, {text: all is well}]\n    cost_usd: 0.001\n")
	b.WriteString("  - " + leaf + "\n")
	return b.String()
}

func power(b, n int) int {
	all, level := 0, 1
	for range n + 1 {
		all, level = all+level, level*b
	}
	return all
}

// Trees of any shape get to their end, with all costs accounted for.
func TestLargeTrees(t *testing.T) {
	breadth, levels, depth := slice(4, 10), 3, slice(40, 999)
	for _, test := range []struct {
		name, input string
		runs, depth int
		budget      float64 // which who does not say how much it needs shares with those that could come
	}{
		{"wide", "node r x", 1 + breadth, 1, 1},
		{"mixed", "node r " + strings.Repeat("x", levels), power(breadth, levels), levels, 100},
		{"deep", "deep " + strings.Repeat("x", depth), depth + 1, depth, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := settings{Dir: place(t), Provider: "scripted", Slots: 8, Script: treeScript(breadth, "{say: [{text: leaf}], cost_usd: 0.001}")}
			client, _ := serving(t, s)
			began := time.Now()
			id := submit(t, client, nestor.Task{Input: test.input, Limits: nestor.Limits{
				Depth: test.depth, Children: breadth, Descendants: test.runs - 1, Timeout: time.Hour, BudgetUSD: test.budget, Turns: 100,
			}})
			run, err := client.Wait(t.Context(), id)
			if err != nil || run.State != nestor.Success {
				t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
			}
			t.Logf("%d runs took %v", test.runs, time.Since(began))
			want := 0.001 * float64(test.runs)
			if sum := run.CostUSD + run.BelowUSD; sum < want-1e-6 || sum > want+1e-6 {
				t.Errorf("they cost %v, want %v", sum, want)
			}
			tree, err := client.Tree(t.Context(), id)
			if err != nil || len(tree) != test.runs {
				t.Fatalf("there are %d runs, want %d: %v", len(tree), test.runs, err)
			}
			for _, r := range tree {
				if r.State != nestor.Success {
					t.Errorf("%s is %s: %+v", r.Input, r.State, r.Error)
				}
			}
		})
	}
}

// To cancel the root ends all below it, also what waits for a slot.
func TestCancelAtTheRootEndsTheTree(t *testing.T) {
	breadth := slice(4, 10)
	all := power(breadth, 3)
	s := settings{Dir: place(t), Provider: "scripted", Slots: 8, Script: treeScript(breadth, "{hang: true}")}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "node r xxx", Limits: nestor.Limits{Depth: 3, Children: breadth, Descendants: all - 1, Timeout: time.Hour, Turns: 100}})
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	for n := 0; n < all; { // until all are there
		tree, err := client.Tree(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		hanging := 0
		for _, r := range tree {
			if r.State == nestor.Running && len(r.Children) == 0 {
				hanging++
			}
		}
		if n = len(tree); hanging == 8 {
			break // what there is hangs in the slots
		}
	}
	began := time.Now()
	if err := client.Cancel(ctx, id, api.Cancellation{By: "ada"}); err != nil {
		t.Fatal(err)
	}
	run, err := client.Wait(ctx, id)
	if err != nil || run.State != nestor.Cancelled {
		t.Fatalf("it is %s, %v", run.State, err)
	}
	t.Logf("it took %v", time.Since(began))
	tree, err := client.Tree(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range tree {
		if !r.State.Ended() {
			t.Errorf("%s is left %s", r.Input, r.State)
		}
	}
}

// Trees whose daemon is killed again and again get to their end: each run ends
// once, none is started twice, no lease is lost and no process left.
func TestTreesOutliveKills(t *testing.T) {
	const breadth, levels = 3, 3
	all := power(breadth, levels)
	s := settings{Dir: place(t), Provider: "scripted", Slots: 4, Script: treeScript(breadth, "{say: [{text: leaf, after: 60ms}], cost_usd: 0.001}")}
	chance := seed(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	client := s.client(t)
	kills := slice(4, 100)
	for n := 0; kills > 0; n++ {
		p := s.start(t)
		run, err := client.Submit(ctx, api.Submission{Key: fmt.Sprint("tree ", n), Task: nestor.Task{Input: "node r " + strings.Repeat("x", levels), Limits: nestor.Limits{
			Depth: levels, Children: breadth, Descendants: all - 1, Timeout: time.Hour, BudgetUSD: 10, Turns: 100, Resumes: 1000,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		id := run.ID
		for range 4 {
			select {
			case <-time.After(time.Duration(chance.IntN(400)) * time.Millisecond):
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
		if err != nil || len(tree) != all {
			t.Errorf("there are %d runs, want %d: %v", len(tree), all, err)
		}
		ends, leased := map[nestor.ID]int{}, 0.0
		for e, err := range client.Events(ctx, id, api.EventsQuery{Tree: true}) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := e.(type) {
			case *nestor.ExecutionComplete:
				ends[e.Run]++
			case *nestor.Lease:
				if e.Run == id {
					leased += e.Granted
					if e.Returned+e.Spent > 0 {
						leased -= 2 * e.Granted // once for the grant, which is repeated
					}
				}
			}
		}
		for _, r := range tree {
			if ends[r.ID] != 1 || r.State != nestor.Success {
				t.Errorf("%s ended %d times, and is %s", r.Input, ends[r.ID], r.State)
			}
		}
		if leased > 1e-6 || leased < -1e-6 {
			t.Errorf("%v USD are still leased", leased)
		}
		p.stop(t)
		if left := leftovers(t, s.Dir); len(left) > 0 {
			t.Errorf("left running: %q", left)
		}
	}
}
