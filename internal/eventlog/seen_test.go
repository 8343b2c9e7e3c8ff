package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A reader remembers what can still go on, not all that it ever read.
func TestPurgedTreesAreForgotten(t *testing.T) {
	var s seen
	s.forget("never seen")
	s.note("stays", "stays", 7)
	s.note("stays", "child", 3)
	const atOnce = 10
	for i := range 1000 {
		s.note(fmt.Sprint("tree", i), "parent", 1)
		s.note(fmt.Sprint("tree", i), "child", 1)
		if i >= atOnce {
			s.forget(fmt.Sprint("tree", i-atOnce))
		}
		if len(s.runs) > 2*atOnce+2 {
			t.Fatalf("after %d trees it remembers %d runs", i+1, len(s.runs))
		}
	}
	for run, want := range map[string]uint64{"stays": 7, "child": 3} {
		if n, ok := s.next("stays", run); n != want || !ok {
			t.Errorf("of run %s, which goes on, it remembers %d, %t", run, n, ok)
		}
	}
	if n, ok := s.next("tree0", "child"); ok {
		t.Errorf("of a tree that is gone it remembers %d", n)
	}
}

// Who is not told what was purged remembers a bounded number of runs.
func TestSeenIsBounded(t *testing.T) {
	var s seen
	for i := range 3 * maxRuns {
		s.note(fmt.Sprint("tree", i), "run", 1)
		if len(s.runs) > maxRuns {
			t.Fatalf("it remembers %d runs", len(s.runs))
		}
	}
}

// Those who follow are told of what is purged, in the queue in which events come.
func TestFollowersForgetWhatIsPurged(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	yielded := make(chan Event) // sent by the follower
	r := &reader{log: l, yield: func(e Event, err error) bool {
		if err != nil {
			t.Error(err)
			return false
		}
		select {
		case yielded <- e:
		case <-ctx.Done():
		}
		return e.Root != "last"
	}}
	done := make(chan error, 1)
	go func() { done <- r.follow(ctx, false) }()
	const trees = 50
	for i := range trees + 1 {
		root := fmt.Sprint("tree", i)
		if i == trees {
			root = "last"
		}
		if _, err := l.Append(ctx, root, "run", event("%d", i)); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-yielded:
			if root == "last" {
				break
			}
			if err := l.Purge(ctx, root, e.Position); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", root, context.Cause(ctx))
		}
	}
	if err := <-done; !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	if n := len(r.seen.runs); n != 1 {
		t.Errorf("%d runs are remembered, of which one is in the stream", n)
	}
}
