package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// layout5 makes a folder as layout 5 had it, with n documents of which each says its
// name, and returns what it is opened with.
func layout5(t *testing.T, n int) (dir string, b *Broker, names []string) {
	t.Helper()
	dir = t.TempDir()
	fifth := current
	fifth.version, fifth.steps = 5, current.steps[:4]
	fifth.streams = slices.DeleteFunc(slices.Clone(current.streams), func(s jetstream.StreamConfig) bool { return s.Name == BucketStream(runs[1]) })
	b, err := open(soon(t), Options{Dir: dir}, fifth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	old := firstBucket(t, b)
	for i := range n {
		names = append(names, fmt.Sprintf("run.%x", i))
		if _, err := old.Create(soon(t), names[i], []byte(names[i])); err != nil {
			t.Fatal(err)
		}
	}
	return dir, b, names
}

// firstBucket is the one that had all documents.
func firstBucket(t *testing.T, b *Broker) jetstream.KeyValue {
	t.Helper()
	kv, err := b.JetStream().KeyValue(soon(t), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// checkSpread fails unless each document is where it belongs, there alone, and as it was.
func checkSpread(t *testing.T, b *Broker, names []string) {
	t.Helper()
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
	if n := len(names); held[runs[0]]+held[runs[1]] != n || held[runs[0]] < n/3 || held[runs[1]] < n/3 {
		t.Errorf("of %d documents the buckets have %v", n, held)
	}
}

// Documents of layout 5 are in the bucket that is theirs when a folder is opened, each
// once and as it was; also if that was cut off before.
func TestDocumentsOfLayout5AreSpread(t *testing.T) {
	dir, b, names := layout5(t, 100)
	// It was cut off: one is moved, another one only copied.
	if err := spread(soon(t), b.JetStream()); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if i%3 == 0 && RunsOf(name) != runs[0] {
			if _, err := firstBucket(t, b).Create(soon(t), name, []byte("as it was")); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, b)
	checkSpread(t, mustOpen(t, Options{Dir: dir}), names)
}

// migrate opens a folder, and says when documents are about to be moved, and when they
// are.
func migrate() error {
	l := current
	l.steps = slices.Clone(current.steps)
	l.steps[4] = func(ctx context.Context, js jetstream.JetStream) error {
		fmt.Println("moving")
		return spread(ctx, js)
	}
	b, err := open(context.Background(), Options{Dir: os.Getenv("DIR")}, l)
	if err != nil {
		return err
	}
	fmt.Println("moved")
	return b.Close()
}

// Nothing is lost or there twice if who moves documents is killed, again and again.
func TestSpreadingOutlivesKills(t *testing.T) {
	const n = 1500
	dir, b, names := layout5(t, n)
	mustClose(t, b)
	cut := 0
	for wait := time.Millisecond; ; wait += time.Duration(rand.Int64N(int64(10 * time.Millisecond))) {
		c := start(t, "migrate", dir)
		line := c.line()
		if line == "moved" && cut > 0 { // before, by one that was killed when it had
			c.wait()
			break
		}
		if line != "moving" {
			c.kill()
			text, _ := c.wait()
			t.Fatalf("after %d kills it said %q, %s", cut, line, text)
		}
		late := time.AfterFunc(wait, c.kill) // to be killed anywhere in it
		moved := c.line() == "moved"
		late.Stop()
		if moved {
			if text, failed := c.wait(); failed && text != "" {
				t.Fatal(text)
			}
			break
		}
		c.wait()
		cut++
	}
	t.Logf("it was killed %d times", cut)
	if cut == 0 {
		t.Error("it was never killed: there are too few documents")
	}
	checkSpread(t, mustOpen(t, Options{Dir: dir}), names)
}
