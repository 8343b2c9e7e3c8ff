package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Layout 5 had one bucket of documents. Those that belong into the other one are moved
// there, also if that was cut off before.
func TestDocumentsOfLayout5AreSpread(t *testing.T) {
	dir := t.TempDir()
	fifth := current
	fifth.version, fifth.steps = 5, current.steps[:4]
	fifth.streams = slices.DeleteFunc(slices.Clone(current.streams), func(s jetstream.StreamConfig) bool { return s.Name == BucketStream(runs[1]) })
	b, err := open(soon(t), Options{Dir: dir}, fifth)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	names := make([]string, n)
	old, err := b.JetStream().KeyValue(soon(t), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		names[i] = fmt.Sprintf("run.%x", i)
		if _, err := old.Create(soon(t), names[i], []byte(names[i])); err != nil {
			t.Fatal(err)
		}
	}
	// It was cut off: one is moved, another one only copied.
	if err := spread(soon(t), b.JetStream()); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if i%3 == 0 && RunsOf(name) != runs[0] {
			if _, err := old.Create(soon(t), name, []byte("as it was")); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, b)

	b = mustOpen(t, Options{Dir: dir})
	held := map[string]int{}
	for _, bucket := range RunsBuckets() {
		kv, err := b.JetStream().KeyValue(soon(t), bucket)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := kv.Keys(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		held[bucket] = len(keys)
		for _, name := range keys {
			entry, err := kv.Get(soon(t), name)
			if err != nil || string(entry.Value()) != name || RunsOf(name) != bucket {
				t.Errorf("%s has %s: %v", bucket, name, err)
			}
		}
	}
	if held[runs[0]]+held[runs[1]] != n || held[runs[0]] < n/3 || held[runs[1]] < n/3 {
		t.Errorf("of %d documents the buckets have %v", n, held)
	}
}
