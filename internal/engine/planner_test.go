package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
)

// A message is given up when its run is gone, and only then, however often it comes.
func TestVain(t *testing.T) {
	for _, c := range []struct {
		delivered int
		err       error
		want      bool
	}{
		{1, errNowhere, false},
		{100, errNowhere, true},
		{100, fmt.Errorf("run x: %w", errNowhere), true},
		{100, errUnconfirmed, false},
		{100, errConflict, false},
	} {
		msg := &nats.Msg{Sub: &nats.Subscription{}, Reply: fmt.Sprintf("$JS.ACK.tasks.any.%d.7.7.1794957735334209557.0", c.delivered)}
		if got := vain(msg, c.err); got != c.want {
			t.Errorf("delivered %d times, %v: %t", c.delivered, c.err, got)
		}
	}
}

// The id of a child is one whose document is in the bucket of its parent's.
func TestTreeIsInOneBucket(t *testing.T) {
	buckets := map[string]bool{}
	for range 100 {
		parent := newID("")
		if child := newID(parent); bucketOf(child) != bucketOf(parent) || child == parent {
			t.Errorf("%s is in %s, and %s below it in %s", parent, bucketOf(parent), child, bucketOf(child))
		}
		buckets[bucketOf(parent)] = true
	}
	if len(buckets) != 2 {
		t.Errorf("a hundred roots are in %v", buckets)
	}
}

// What was left undone is looked for among the last changes of each bucket: in one that
// documents were moved to, all are new.
func TestChangedWithin(t *testing.T) {
	one, other := newID(""), newID("")
	for bucketOf(other) == bucketOf(one) {
		other = newID("")
	}
	now := time.Now()
	ago := now.Add(-time.Hour)
	e := &Engine{before: map[string]time.Time{bucketOf(one): ago, bucketOf(other): now}}
	for _, c := range []struct {
		id          nestor.ID
		at          time.Time
		from, until time.Duration
		want        bool
	}{
		{one, ago.Add(-time.Second), lastMoments, 0, true},
		{one, ago.Add(time.Second), lastMoments, 0, true},
		{one, ago.Add(-time.Minute), lastMoments, 0, false},
		{one, ago.Add(-time.Minute), recent, lastMoments, true},
		{one, ago.Add(-time.Second), recent, lastMoments, false},
		{one, ago.Add(-time.Hour), recent, lastMoments, false},
		{other, ago.Add(-time.Second), lastMoments, 0, false},
		{other, ago.Add(-time.Minute), recent, lastMoments, false},
		{other, now.Add(-time.Minute), recent, lastMoments, true},
	} {
		if got := e.changedWithin(c.id, c.at, c.from, c.until); got != c.want {
			t.Errorf("changed %v before the last change of all, from %v until %v: %t", now.Sub(c.at), c.from, c.until, got)
		}
	}
	if (&Engine{}).changedWithin(one, now, recent, 0) {
		t.Error("there was no document")
	}
}

// changed is a document that was changed so many seconds after some time.
type changed struct {
	jetstream.KeyValueEntry
	second int64
}

func (c changed) Created() time.Time { return time.Unix(c.second, 0) }

// watcher tells of changes, and then that these were all.
type watcher chan jetstream.KeyValueEntry

func (w watcher) Updates() <-chan jetstream.KeyValueEntry { return w }
func (watcher) Stop() error                               { return nil }
func (watcher) Error() <-chan error                       { return nil }

// What changed in several buckets comes in the order of the changes.
func TestChanges(t *testing.T) {
	var all changes
	for _, seconds := range [][]int64{{1, 4, 5}, {}, {2, 3, 6}} {
		w := make(watcher, len(seconds)+1)
		for _, s := range seconds {
			w <- changed{second: s}
		}
		w <- nil
		all = append(all, &bucketChanges{watch: w})
	}
	var got []int64
	for {
		kv, err := all.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kv == nil {
			break
		}
		got = append(got, kv.Created().Unix())
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("they come as %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (changes{{watch: make(watcher)}}).next(ctx); err == nil {
		t.Error("nobody waits any more, and it does")
	}
}
