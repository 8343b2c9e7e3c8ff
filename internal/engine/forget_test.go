package engine_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
)

// Forgetting is part of the contract: it holds on each shape of the broker.
func TestForget(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { forgetting(t, embedded(t, t.TempDir())) })
	t.Run("process", func(t *testing.T) { forgetting(t, alone(t).connect(t)) })
	t.Run("cluster", func(t *testing.T) { forgetting(t, cluster(t).connect(t)) })
}

func forgetting(t *testing.T, b *broker.Broker) {
	blocked, release := make(chan struct{}), make(chan struct{})
	execute := func(ctx context.Context, x *engine.Execution) nestor.Result {
		switch x.Run().Task.Input {
		case "parent":
			child, err := x.Spawn(ctx, nestor.Task{Input: "child"}, "child-key", 0)
			if err != nil {
				t.Error(err)
				break
			}
			if _, err := x.Await(ctx, child); err != nil {
				t.Error(err)
			}
		case "blocked":
			close(blocked)
			<-release
		}
		return success("done")
	}
	n := open(t, b, engine.Options{}, 2, execute)
	ctx := within(t)

	root, err := n.Submit(ctx, engine.Submission{Task: nestor.Task{Input: "parent"}, Key: "root-key"})
	if err != nil {
		t.Fatal(err)
	}
	run := n.wait(t, root)
	ids := []nestor.ID{root}
	for child := range run.Children {
		n.wait(t, child)
		ids = append(ids, child)
	}
	if len(ids) != 2 {
		t.Fatalf("runs are %v", ids)
	}
	going := n.submit(t, nestor.Task{Input: "blocked"})
	<-blocked

	if err := n.Forget(ctx, going); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("forgetting a run that goes on: %v", err)
	}
	for range 2 { // the second time there is nothing to forget
		if err := n.Forget(ctx, ids...); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if _, err := n.Get(ctx, id); !errors.Is(err, nestor.ErrRunNotFound) {
			t.Errorf("run %s: %v", id, err)
		}
	}
	if left := subjects(t, b); len(left) != 1 || left[broker.RunsSubject("run."+string(going))] == 0 {
		t.Errorf("the buckets have %v", left)
	}
	if again, err := n.Submit(ctx, engine.Submission{Task: nestor.Task{Input: "parent"}, Key: "root-key"}); err != nil || again == root {
		t.Errorf("submitting with a forgotten key: run %s, %v", again, err)
	} else {
		n.wait(t, again)
	}
	close(release)
	n.wait(t, going)
}

// subjects returns what the buckets of runs hold, marks of deletions included.
func subjects(t *testing.T, b *broker.Broker) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, bucket := range broker.RunsBuckets() {
		stream, err := b.JetStream().Stream(within(t), broker.BucketStream(bucket))
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(within(t), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, info.State.Subjects)
	}
	return all
}
