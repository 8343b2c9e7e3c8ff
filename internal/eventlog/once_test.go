package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// What is said of a run under several marks is stored together, each of it once.
func TestOnceEach(t *testing.T) {
	at := embedded(t)
	l := at.open(t, Options{})
	id := nestor.NewID(time.Now())
	event := func(text string) []nestor.Event {
		return []nestor.Event{&nestor.ChatStart{Header: nestor.Header{Run: id, Root: id}, Message: text}}
	}
	for _, marks := range [][]uint64{{1, 2}, {1, 2}, {2, 3, 4}} {
		var events [][]nestor.Event
		for _, mark := range marks {
			events = append(events, event(fmt.Sprint(mark)))
		}
		if err := l.OnceEach(soon(t), marks, events); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for e, err := range l.Read(soon(t), Filter{Run: string(id)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(event.(*nestor.ChatStart).Message, "@", e.Position.seq()))
	}
	if want := "1@1 2@1 3@2 4@2"; strings.Join(got, " ") != want {
		t.Errorf("it holds %v, want %s", got, want)
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
	if err := w.write(soon(t), large); err != nil {
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

// Events of several runs are stored in the order in which they are given, each once,
// behind what others appended to the run, and beside what they append meanwhile.
func TestOnceAll(t *testing.T) {
	at := otherProcess(t)
	l, other := at.open(t, Options{}), at.open(t, Options{})
	const runs = 30
	root := nestor.NewID(time.Now())
	ids := make([]nestor.ID, runs)
	event := func(i int, text string) nestor.Event {
		return &nestor.ChatStart{Header: nestor.Header{Run: ids[i], Root: root}, Message: fmt.Sprint(i, text)}
	}
	for i := range ids {
		ids[i] = nestor.NewID(time.Now())
		if i%2 == 0 {
			if err := l.Once(soon(t), 1, event(i, "first")); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 0 { // whoever executes it has a writer of its own
			w, err := other.Writer(string(root), string(ids[i]), 7)
			if err == nil {
				_, err = w.Append(soon(t), json.RawMessage(`{"type":"chat_start"}`))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	marks, events := make([]uint64, runs), make([][]nestor.Event, runs)
	for i := range ids {
		marks[i], events[i] = 2, []nestor.Event{event(i, "a"), event(i, "b")}
	}
	events[4] = nil // it has none
	var all sync.WaitGroup
	for _, log := range []*Log{l, l, other} { // said again, and at once
		all.Go(func() {
			if err := log.OnceAll(soon(t), marks, events); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		if err := l.Once(soon(t), 1, event(1, "late")); err != nil { // which may come too late
			t.Error(err)
		}
	})
	all.Wait()
	if err := l.OnceAll(soon(t), marks, events); err != nil {
		t.Fatal(err)
	}
	if err := l.Once(soon(t), 3, event(runs-1, "end")); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for e, err := range l.Follow(soon(t), Filter{Root: string(root)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		message := event.(*nestor.ChatStart).Message
		if got[message]++; message == fmt.Sprint(runs-1, "end") {
			break
		}
	}
	for i := range ids {
		for _, text := range []string{"a", "b"} {
			if i != 4 && got[fmt.Sprint(i, text)] != 1 {
				t.Errorf("%d%s is there %d times", i, text, got[fmt.Sprint(i, text)])
			}
		}
	}
}

// What is appended together by one log comes in that order.
func TestOnceAllKeepsTheOrder(t *testing.T) {
	l := embedded(t).open(t, Options{})
	root := nestor.NewID(time.Now())
	var marks []uint64
	var events [][]nestor.Event
	var want []nestor.ID
	for range 50 {
		id := nestor.NewID(time.Now())
		marks, want = append(marks, 1), append(want, id)
		events = append(events, []nestor.Event{&nestor.ChatStart{Header: nestor.Header{Run: id, Root: root}}})
	}
	if err := l.OnceAll(soon(t), marks, events); err != nil {
		t.Fatal(err)
	}
	var got []nestor.ID
	for e, err := range l.Follow(soon(t), Filter{Root: string(root)}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, event.Head().Run); len(got) == len(want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("they came as %v, want %v", got, want)
	}
	large := &nestor.ChatStart{Header: nestor.Header{Run: want[0], Root: root}, Message: strings.Repeat("x", maxChunk)}
	if err := l.OnceAll(soon(t), []uint64{2}, [][]nestor.Event{{large}}); err != nil {
		t.Errorf("what is to be cut to fit into a chunk: %v", err)
	}
	if err := l.OnceAll(soon(t), []uint64{3}, [][]nestor.Event{slices.Repeat([]nestor.Event{large}, 20)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("what does not fit into a chunk together: %v", err)
	}
}
