package broker

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// Messages that are stored together all are, or none, and follow each other.
func TestTogether(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir()})
	kv, err := b.JetStream().KeyValue(t.Context(), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	drafts := func(text string, revisions map[int]uint64) (list []*nats.Msg) {
		for i := range n {
			msg := &nats.Msg{Subject: fmt.Sprint(bucketSubject(runs[0]), "run.", i), Data: []byte(text)}
			Expect(msg, revisions[i])
			list = append(list, msg)
		}
		return list
	}
	last, err := b.Together(t.Context(), drafts("first", nil))
	if err != nil {
		t.Fatal(err)
	}
	revisions := map[int]uint64{}
	for i := range n {
		entry, err := kv.Get(t.Context(), fmt.Sprintf("run.%d", i))
		if err != nil || string(entry.Value()) != "first" || entry.Revision() != last-uint64(n-1-i) {
			t.Fatalf("number %d is %v, %v; the last one is %d", i, entry, err, last)
		}
		revisions[i] = entry.Revision()
	}
	if _, err := kv.Update(t.Context(), "run.70", []byte("of another"), revisions[70]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Together(t.Context(), drafts("second", revisions)); err == nil {
		t.Error("one of them has changed, and they were stored")
	}
	for i := range n {
		if entry, err := kv.Get(t.Context(), fmt.Sprintf("run.%d", i)); err != nil || string(entry.Value()) == "second" {
			t.Errorf("number %d is %v, %v", i, entry, err)
		}
	}
	if _, err := b.Together(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// One message goes the way of a message that is alone, and what it expects holds.
func TestTogetherAlone(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir()})
	kv, err := b.JetStream().KeyValue(t.Context(), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	draft := func(text string, last uint64) []*nats.Msg {
		msg := &nats.Msg{Subject: bucketSubject(runs[0]) + "run", Data: []byte(text)}
		Expect(msg, last)
		return []*nats.Msg{msg}
	}
	first, err := b.Together(t.Context(), draft("first", 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Together(t.Context(), draft("late", 0)); !IsConflict(err) {
		t.Errorf("there is one, none was expected: %v", err)
	}
	second, err := b.Together(t.Context(), draft("second", first))
	if err != nil {
		t.Fatal(err)
	}
	if entry, err := kv.Get(t.Context(), "run"); err != nil || string(entry.Value()) != "second" || entry.Revision() != second {
		t.Errorf("it is %v, %v; stored as %d", entry, err, second)
	}
}
