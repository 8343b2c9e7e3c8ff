// Command bench-tree measures trees of a thousand runs on the scripted provider,
// wide, mixed and deep: how long they take to grow until all of them work or wait,
// and how long until a cancel at the root has ended them. 'make bench-tree' runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
)

const rounds = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-tree:", err)
		os.Exit(1)
	}
}

// tree is a shape of trees whose last runs hang.
type tree struct {
	what           string
	input          string
	breadth, depth int
	runs, slots    int
	grew, ended    []time.Duration
}

func run(ctx context.Context) error {
	trees := []*tree{
		{what: "wide: a root with 1,000 below it, 16 slots", input: "node x", breadth: 1000, depth: 1, runs: 1001, slots: 16},
		{what: "mixed: three levels of ten each, all at work", input: "node xxx", breadth: 10, depth: 3, runs: 1111, slots: 1111},
		{what: "deep: 1,000 below each other, 8 slots", input: "deep " + strings.Repeat("x", 999), breadth: 1, depth: 999, runs: 1000, slots: 8},
	}
	for range rounds {
		for _, t := range trees {
			if err := t.measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.what, err)
			}
		}
	}
	fmt.Printf("%s/%s, %d cores, %s; medians of %d trees each (slowest), a new daemon for each.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), rounds)
	fmt.Print("| tree | runs | grown in | ended by a cancel at the root in | goal |\n|---|---|---|---|---|\n")
	for _, t := range trees {
		fmt.Printf("| %s | %d | %s | %s | 1 s |\n", t.what, t.runs, middle(t.grew), middle(t.ended))
	}
	return nil
}

func middle(list []time.Duration) string {
	slices.Sort(list)
	return fmt.Sprintf("%v (%v)", list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond))
}

// script has each run start those below it and wait for them.
func (t *tree) script() string {
	var b strings.Builder
	b.WriteString("turns:\n  - when: 'node x(x*)$'\n    say:\n")
	for i := range t.breadth {
		fmt.Fprintf(&b, "      - call: {name: mcp__nestor__spawn, input: {task: '%d node $1', background: true}}\n", i)
	}
	b.WriteString("      - call: {name: mcp__nestor__wait, input: {}}\n      - text: done\n")
	b.WriteString("  - when: 'deep x(x*)$'\n    say: [{call: {name: mcp__nestor__spawn, input: {task: 'deep $1'}}}, {text: done}]\n")
	b.WriteString("  - {hang: true}\n")
	return b.String()
}

func (t *tree) measure(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "bench-tree-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	turns, err := scripted.Parse("script", []byte(t.script()))
	if err != nil {
		return err
	}
	d := daemon.New(daemon.Options{Dir: filepath.Join(dir, "project"), Worker: daemon.Worker{Provider: "scripted", Script: turns, Slots: t.slots}})
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.Run(serving) }()
	defer func() {
		stop()
		if ended := <-done; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}()
	select {
	case <-d.Ready():
	case ended := <-done:
		done <- context.Canceled
		return ended
	}
	client := api.NewClient(daemon.SocketPath(filepath.Join(dir, "project")))
	defer client.Close()
	began := time.Now()
	root, err := client.Submit(ctx, api.Submission{Task: nestor.Task{Input: t.input, Limits: nestor.Limits{
		Depth: t.depth, Children: t.breadth, Descendants: t.runs - 1, Timeout: time.Hour, Turns: 10 * t.breadth,
	}}})
	if err != nil {
		return err
	}
	for grown := false; !grown; {
		if grown, err = t.grown(ctx, client, root.ID); err != nil {
			return err
		}
	}
	t.grew = append(t.grew, time.Since(began))
	began = time.Now()
	if err := client.Cancel(ctx, root.ID, api.Cancellation{By: "bench-tree"}); err != nil {
		return err
	}
	if root, err = client.Wait(ctx, root.ID); err != nil {
		return err
	}
	t.ended = append(t.ended, time.Since(began))
	all, err := client.Tree(ctx, root.ID)
	if err != nil {
		return err
	}
	for _, r := range all {
		if !r.State.Ended() {
			return fmt.Errorf("the root is %s, and run %s below it is %s", root.State, r.ID, r.State)
		}
	}
	return nil
}

// grown tells whether nothing more happens in the tree: those with others below them
// wait, and the others hang, as many as have a slot.
func (t *tree) grown(ctx context.Context, client *api.Client, root nestor.ID) (bool, error) {
	all, err := client.Tree(ctx, root)
	if err != nil || len(all) < t.runs {
		return false, err
	}
	hang, leaves := 0, 0
	for _, r := range all {
		switch {
		case len(r.Children) > 0 && r.State != nestor.Waiting:
			return false, nil
		case len(r.Children) > 0:
			continue
		case r.State == nestor.Running:
			hang++
		}
		leaves++
	}
	return hang == min(leaves, t.slots), nil
}
