package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
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
	e := &Engine{before: map[string]lastChange{bucketOf(one): {at: ago}, bucketOf(other): {at: now}}}
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

// After a crash the runs whose documents changed last are listed in the order of their
// changes, of both buckets, and nothing else that is there: not what is older, not what is
// no run. That some are forgotten meanwhile ends it no later.
func TestChanged(t *testing.T) {
	const n = 600 // more than are asked for at once
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := broker.Open(ctx, broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	begin := func() *Engine {
		e, err := New(ctx, b, nil, Options{Sole: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := begin()
	write := func(name string) {
		t.Helper()
		if _, err := e.write(ctx, name, []byte("{}"), 0); err != nil {
			t.Fatal(err)
		}
	}
	var ids []nestor.ID
	var middle time.Time
	for i := range n {
		if i == n/3 {
			middle = time.Now()
		}
		ids = append(ids, newID(""))
		write(docName(ids[i]))
		write(keyName(fmt.Sprint("of ", i)))
	}
	if got, err := e.changed(ctx, time.Hour, 0, nil); len(got) > 0 || err != nil {
		t.Errorf("%d were changed before the first was (%v)", len(got), err)
	}

	e = begin()
	all, err := e.changed(ctx, time.Hour, 0, func(time.Time) {})
	if err != nil || !slices.Equal(all, ids) {
		t.Errorf("%d of %d in another order, or others (%v)", len(all), n, err)
	}
	// That others work meanwhile does not keep it from its end.
	busy, err := e.changed(ctx, time.Hour, 0, func(time.Time) { write(docName(newID(""))) })
	if err != nil || !slices.Equal(busy, ids) {
		t.Errorf("%d of %d in another order, or others, while more are changed (%v)", len(busy), n, err)
	}
	for bucket, last := range e.before {
		e.before[bucket] = lastChange{middle, last.sequence}
	}
	late, err := e.changed(ctx, 0, 0, func(time.Time) {})
	if err != nil || !slices.Equal(late, ids[n/3:]) {
		t.Errorf("%d of the last %d in another order, or others (%v)", len(late), n-n/3, err)
	}

	// A server that has the list no more is one that is away: it is asked for again.
	lose := sync.OnceFunc(func() {
		for _, stream := range e.runs {
			for name := range stream.ConsumerNames(ctx).Name() {
				if err := stream.DeleteConsumer(ctx, name); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if _, err := e.changed(ctx, time.Hour, 0, func(time.Time) { lose() }); !isAway(err) {
		t.Errorf("listed while the list was lost: %v", err)
	}

	forget := sync.OnceFunc(func() {
		for _, stream := range e.runs {
			if err := stream.Purge(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := e.changed(ctx, time.Hour, 0, func(time.Time) { forget() }); err != nil {
		t.Errorf("listed while they were forgotten: %v", err)
	}
	for name := range e.runs {
		stream, err := e.js.Stream(ctx, broker.BucketStream(name))
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n > 0 {
			t.Errorf("bucket %s has %d consumers left", name, n)
		}
	}
}
