package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/soak"
)

// treeScript is of agents that start as many others as breadth says, one level
// after the other, and wait for them; and of such that start one other, and wait.
// Those at the end of their path do what leaf says.
func treeScript(breadth int, leaf string) string {
	var b strings.Builder
	b.WriteString("turns:\n  - when: 'node (\\w+) x(x*)$'\n    say:\n")
	for i := range breadth {
		fmt.Fprintf(&b, "      - call: {name: mcp__nestor__spawn, input: {task: 'node ${1}_%d $2', background: true}}\n", i)
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

// treeLimits are those of a root with a tree of that size below it.
func treeLimits(breadth, depth, runs int) nestor.Limits {
	return nestor.Limits{Depth: depth, Children: breadth, Descendants: runs - 1, Timeout: time.Hour, Turns: 10 * breadth}
}

// Trees of any shape get to their end, each run once, with all costs accounted for:
// a thousand runs in a soak.
func TestLargeTrees(t *testing.T) {
	wide, breadth, levels, depth := soak.Of(30, 1000), soak.Of(3, 10), 3, soak.Of(20, 999)
	for _, test := range []struct {
		name, input          string
		runs, breadth, depth int
		budget               float64 // which who does not say how much it needs shares with those that could come
		slots                int
	}{
		{"wide", "node r x", 1 + wide, wide, 1, 10, 16},
		{"mixed", "node r " + strings.Repeat("x", levels), power(breadth, levels), breadth, levels, 100, 8},
		{"deep", "deep " + strings.Repeat("x", depth), depth + 1, breadth, depth, 0, 8},
		{"deep in one slot", "deep " + strings.Repeat("x", depth/10), depth/10 + 1, breadth, depth, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := settings{Dir: place(t), Provider: "scripted", Slots: test.slots, Script: treeScript(test.breadth, "{say: [{text: leaf}], cost_usd: 0.001}")}
			client, _ := serving(t, s)
			began := time.Now()
			limits := treeLimits(test.breadth, test.depth, test.runs)
			limits.BudgetUSD = test.budget
			id := submit(t, client, nestor.Task{Input: test.input, Limits: limits})
			run, err := client.Wait(t.Context(), id)
			if err != nil || run.State != nestor.Success {
				t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
			}
			t.Logf("%d runs took %v", test.runs, time.Since(began))
			want := 0.001 * float64(test.runs)
			if sum := run.CostUSD + run.BelowUSD; sum < want-1e-6 || sum > want+1e-6 {
				t.Errorf("they cost %v, want %v", sum, want)
			}
			endedOnce(t, client, id, test.runs, nestor.Success)
		})
	}
}

// endedOnce fails unless a tree has so many runs, and each of them ended once, in
// one of these states.
func endedOnce(t *testing.T, client *api.Client, id nestor.ID, runs int, states ...nestor.State) {
	t.Helper()
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != runs {
		for _, r := range tree {
			one, err := client.Run(t.Context(), r.ID)
			t.Logf("%s, %s after %d losses: %+v, %v", r.Input, r.State, r.Resumes, one.Result, err)
		}
		t.Fatalf("there are %d runs, want %d: %v", len(tree), runs, err)
	}
	for _, r := range tree {
		if !slices.Contains(states, r.State) {
			t.Errorf("%s is %s: %+v", r.Input, r.State, r.Error)
		}
		ends := 0
		for e, err := range client.Events(t.Context(), r.ID, api.EventsQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if isEnd(e) {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("%s ended %d times", r.Input, ends)
		}
	}
}

// To cancel the root ends all below it, each run once: what works, what waits for
// others and what waits for a slot. How long that takes is printed.
func TestCancelAtTheRootEndsTheTree(t *testing.T) {
	wide, breadth, depth := soak.Of(30, 1000), soak.Of(3, 10), soak.Of(20, 999)
	mixed := power(breadth, 3)
	for _, test := range []struct {
		name, input          string
		runs, breadth, depth int
		slots                int
	}{
		{"wide, most without a slot", "node r x", 1 + wide, wide, 1, 16},
		{"mixed, all at work", "node r xxx", mixed, breadth, 3, mixed},
		{"deep", "deep " + strings.Repeat("x", depth), 1 + depth, 1, depth, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := settings{Dir: place(t), Provider: "scripted", Slots: test.slots, Script: treeScript(test.breadth, "{hang: true}")}
			client, _ := serving(t, s)
			id := submit(t, client, nestor.Task{Input: test.input, Limits: treeLimits(test.breadth, test.depth, test.runs)})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute) // with the race detector, on a machine that is busy
			defer stop()
			untilAllHang(ctx, t, client, id, test.runs, test.slots)
			began := time.Now()
			if err := client.Cancel(ctx, id, api.Cancellation{By: "ada"}); err != nil {
				t.Fatal(err)
			}
			run, err := client.Wait(ctx, id)
			if err != nil || run.State != nestor.Cancelled {
				t.Fatalf("it is %s, %v", run.State, err)
			}
			t.Logf("%d runs were cancelled within %v", test.runs, time.Since(began))
			// Who hears that the one below it was cancelled before it is told to end
			// itself, may have ended well.
			endedOnce(t, client, id, test.runs, nestor.Cancelled, nestor.Success)
		})
	}
}

// untilAllHang waits until nothing more will happen in a tree. To ask is work for the
// daemon, too: it is left alone between two questions.
func untilAllHang(ctx context.Context, t *testing.T, client *api.Client, id nestor.ID, runs, slots int) {
	t.Helper()
	for !allHang(ctx, t, client, id, runs, slots) {
		select {
		case <-time.After(time.Duration(runs) * time.Millisecond / 2):
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}

// allHang tells whether a tree has so many runs, and nothing more will happen in it:
// those with others below them wait for them, and the others hang, or would if there
// were a slot.
func allHang(ctx context.Context, t *testing.T, client *api.Client, id nestor.ID, runs, slots int) bool {
	t.Helper()
	tree, err := client.Tree(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree) < runs {
		return false
	}
	hang, leaves := 0, 0
	for _, r := range tree {
		switch {
		case len(r.Children) > 0 && r.State != nestor.Waiting:
			return false
		case len(r.Children) > 0:
		case r.State == nestor.Running:
			hang++
			fallthrough
		default:
			leaves++
		}
	}
	return hang == min(leaves, slots)
}

// Trees whose daemon is killed again and again get to their end: each run ends
// once, none is started twice, no lease is lost and no process left.
func TestTreesOutliveKills(t *testing.T) {
	const breadth, levels = 3, 3
	all := power(breadth, levels)
	s := settings{Dir: place(t), Provider: "scripted", Slots: 4, Script: treeScript(breadth, "{say: [{text: leaf, after: 60ms}], cost_usd: 0.001}")}
	chance := soak.Rand(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	client := s.client(t)
	kills := soak.Of(4, 100)
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
		endedOnce(t, client, id, all, nestor.Success)
		nothingLeased(t, client, id)
		p.stop(t)
		if left := leftovers(t, s.Dir); len(left) > 0 {
			t.Errorf("left running: %q", left)
		}
	}
}

// nothingLeased checks that no lease of a run is left.
func nothingLeased(t *testing.T, client *api.Client, id nestor.ID) {
	t.Helper()
	leased := 0.0
	for e, err := range client.Events(t.Context(), id, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := e.(*nestor.Lease); ok {
			leased += e.Granted
			if e.Returned+e.Spent > 0 {
				leased -= 2 * e.Granted // once for the grant, which is repeated
			}
		}
	}
	if leased > 1e-6 || leased < -1e-6 {
		t.Errorf("%v USD are still leased", leased)
	}
}

// A tree that is cancelled ends, each run once and all of them cancelled, also if the
// daemon is killed in the middle of that.
func TestCancelledTreesOutliveKills(t *testing.T) {
	const breadth, levels = 3, 3
	all := power(breadth, levels)
	s := settings{Dir: place(t), Provider: "scripted", Slots: all, Script: treeScript(breadth, "{hang: true}")}
	chance := soak.Rand(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	client := s.client(t)
	limits := treeLimits(breadth, levels, all)
	limits.Resumes = 1000
	p := s.start(t)
	for range soak.Of(1, 50) {
		id := submit(t, client, nestor.Task{Input: "node r " + strings.Repeat("x", levels), Limits: limits})
		untilAllHang(ctx, t, client, id, all, all)
		cancelled := make(chan error, 1)
		go func() { cancelled <- client.Cancel(ctx, id, api.Cancellation{By: "ada"}) }()
		select {
		case <-time.After(time.Duration(chance.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
		p.kill()
		err := <-cancelled
		p = s.start(t)
		if err != nil { // it is not known whether it was heard
			if err = client.Cancel(ctx, id, api.Cancellation{By: "ada"}); err != nil && !errors.Is(err, nestor.ErrEnded) {
				t.Fatal(err)
			}
		}
		run, err := client.Wait(ctx, id)
		if err != nil || run.State != nestor.Cancelled {
			t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
		}
		endedOnce(t, client, id, all, nestor.Cancelled)
	}
	p.stop(t)
	if left := leftovers(t, s.Dir); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// The events of a tree are those of all its runs, from any run of it and from any
// position.
func TestEventsOfATreeAreAll(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 2, Script: treeScript(2, "{say: [{text: leaf}]}")}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "node r xxx", Limits: treeLimits(2, 3, power(2, 3))})
	done(t, client, id)
	tree, err := client.Tree(t.Context(), id)
	if err != nil || len(tree) != power(2, 3) {
		t.Fatalf("there are %d runs, %v", len(tree), err)
	}
	positions := func(id nestor.ID, q api.EventsQuery) (list []uint64) {
		t.Helper()
		for e, err := range client.Events(t.Context(), id, q) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e.Head().Seq)
		}
		return list
	}
	own, parent := map[nestor.ID][]uint64{}, map[nestor.ID]nestor.ID{}
	for _, r := range tree {
		own[r.ID], parent[r.ID] = positions(r.ID, api.EventsQuery{}), r.Parent
	}
	for _, r := range tree {
		var want []uint64
		for below := range own {
			for above := below; above != ""; above = parent[above] {
				if above == r.ID {
					want = append(want, own[below]...)
				}
			}
		}
		slices.Sort(want)
		if got := positions(r.ID, api.EventsQuery{Tree: true}); !slices.Equal(got, want) {
			t.Errorf("below %s are the events %v, want %v", r.Input, got, want)
		}
		half := want[len(want)/2]
		if got, want := positions(r.ID, api.EventsQuery{Tree: true, After: half}), want[len(want)/2+1:]; !slices.Equal(got, want) {
			t.Errorf("below %s, behind %d, are the events %v, want %v", r.Input, half, got, want)
		}
	}
}
