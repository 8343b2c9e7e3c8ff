package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dfaf701a/nestor"
)

// What is said again, by whomever and at once, is stored once, whole and in
// order.
func TestOnce(t *testing.T) {
	at := otherProcess(t)
	l, other := at.open(t, Options{}), at.open(t, Options{})
	const root, id = nestor.ID("0199d3a2-7c1e-7000-8000-00000000000a"), nestor.ID("0199d3a2-7c1e-7000-8000-00000000000b")
	event := func(text string) nestor.Event {
		return &nestor.ChatStart{Header: nestor.Header{Run: id, Root: root, Seq: 9}, Message: text}
	}
	var want []string
	for mark := uint64(1); mark <= 20; mark++ {
		var all sync.WaitGroup
		for _, log := range []*Log{l, l, other, other} {
			all.Go(func() {
				if err := log.Once(soon(t), mark, event(fmt.Sprint(mark, "a")), event(fmt.Sprint(mark, "b"))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := l.Once(soon(t), max(mark, 3)-2, event("late")); err != nil && mark > 2 {
			t.Error(err)
		}
		want = append(want, fmt.Sprint(mark, "a"), fmt.Sprint(mark, "b"))
	}
	var got []string
	for e, err := range other.Follow(soon(t), Filter{Run: string(id)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil || event.Head().Seq != uint64(e.Position) {
			t.Fatalf("position %d: %+v, %v", e.Position, event, err)
		}
		got = append(got, event.(*nestor.ChatStart).Message)
		if len(got) == len(want) {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("it holds %v", got)
	}
}

func TestOnceIsWholeOrNothing(t *testing.T) {
	l := embedded(t).open(t, Options{})
	w, err := l.Writer("root", "run", 0)
	if err != nil {
		t.Fatal(err)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", MaxEvent-2) + `"`)
	if _, err := w.Once(soon(t), 1, large, large, large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("what does not fit into a chunk: %v", err)
	}
	if err := w.Write(soon(t), large); err != nil {
		t.Fatal(err)
	}
	at, err := w.Once(soon(t), 1, large, json.RawMessage(`1`), json.RawMessage(`2`))
	if err != nil {
		t.Fatal(err)
	}
	if at[0].seq() != at[2].seq() || at[2] != at[0]+2 {
		t.Errorf("they are at %v", at)
	}
}
