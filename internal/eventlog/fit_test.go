package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
)

// What is too large for an event is told in part, and says how much is missing. What
// is short in it stays what it is.
func TestLargeEventsAreCut(t *testing.T) {
	head := nestor.Header{Run: "r", Root: "r"}
	words, objects := make([]string, 200_000), make([]map[string]int, 100_000)
	for i := range words {
		words[i] = "word"
	}
	for i := range objects {
		objects[i] = map[string]int{"n": i}
	}
	for _, c := range []struct {
		name  string
		event nestor.Event
		had   map[string]int // what is cut, by where it is: how long it was
	}{
		{
			"a message", &nestor.ChatStart{Header: head, Message: strings.Repeat("ä", 500_000)},
			map[string]int{"message": 1_000_000},
		},
		{
			"what takes more room as JSON", &nestor.AgentComplete{Header: head, Agent: "a", Content: strings.Repeat("\x01", 100_000), Thinking: strings.Repeat("\"", 100_000)},
			map[string]int{"content": 100_000, "thinking": 100_000},
		},
		{
			"an input", &nestor.ToolStart{Header: head, Tool: "Write", ToolUseID: "1", Input: quoted(t, map[string]any{"file_path": "/a", "content": strings.Repeat("x", 1<<20), "big": json.Number("12345678901234567890")})},
			map[string]int{"input.content": 1 << 20},
		},
		{
			"a list of words", &nestor.ProviderMessage{Header: head, Raw: quoted(t, map[string]any{"list": words})},
			map[string]int{"raw.list": len(words)},
		},
		{
			"a list of objects", &nestor.ToolStart{Header: head, Tool: "MultiEdit", ToolUseID: "1", Input: quoted(t, map[string]any{"edits": objects})},
			map[string]int{"input.edits": len(objects)},
		},
		{
			"lists of the event's own, of which one can say it", &nestor.Ask{Header: head, AskID: "1", Options: words, PathFromRoot: slices.Repeat([]nestor.ID{"r"}, 10)},
			map[string]int{"options": len(words)},
		},
	} {
		lines, err := Fit(c.event)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var fields map[string]any
		if err := json.Unmarshal(lines[0], &fields); err != nil || len(lines[0]) > MaxEvent {
			t.Errorf("%s: %d bytes, %v", c.name, len(lines[0]), err)
		}
		if _, err := nestor.DecodeEvent(lines[0]); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for at, had := range c.had {
			var v any = fields
			for key := range strings.SplitSeq(at, ".") {
				v = v.(map[string]any)[key]
			}
			if kept, missing := counted(v); kept == 0 || kept+missing != had {
				t.Errorf("%s: of %d in %s %d are kept, and %d are said to be missing", c.name, had, at, kept, missing)
			}
		}
		if start, ok := c.event.(*nestor.ToolStart); ok && start.Tool == "Write" && (!strings.Contains(string(lines[0]), `"file_path":"/a"`) || !strings.Contains(string(lines[0]), "12345678901234567890")) {
			t.Errorf("%s: what was short is changed", c.name)
		}
	}
}

// counted returns how much of a text or a list was kept, and how much is said to be
// missing.
func counted(v any) (kept, missing int) {
	list, ok := v.([]any)
	if ok {
		kept = len(list) - 1
		v = list[kept]
	}
	text, _ := v.(string)
	at := strings.LastIndex(text, "… (")
	if at < 0 {
		return 0, 0
	}
	if !ok {
		kept = at
	}
	fmt.Sscanf(text[at:], "… (%d", &missing)
	return kept, missing
}

func quoted(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A result that is too large says so, and what programs read of it is whole or not
// there.
func TestLargeResults(t *testing.T) {
	head := nestor.Header{Run: "r", Root: "r"}
	small, large := quoted(t, strings.Repeat("x", 60_000)), quoted(t, strings.Repeat("<", 60_000))
	for _, c := range []struct {
		name             string
		output           string
		structured, want json.RawMessage
	}{
		{"the output", strings.Repeat("\x01", 60_000), small, small},
		{"both", strings.Repeat("<", 60_000), large, nil},
	} {
		lines, err := Fit(&nestor.ExecutionComplete{Header: head, Status: nestor.Success, Result: &nestor.Result{Status: nestor.Success, Output: c.output, Structured: c.structured}})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		e, err := nestor.DecodeEvent(lines[0])
		if err != nil || len(lines[0]) > MaxEvent {
			t.Fatalf("%s: %d bytes, %v", c.name, len(lines[0]), err)
		}
		r := e.(*nestor.ExecutionComplete).Result
		if !r.Truncated || len(r.Output) != MaxEvent/8 || !strings.HasPrefix(c.output, r.Output) {
			t.Errorf("%s: truncated %v, with %d bytes of output", c.name, r.Truncated, len(r.Output))
		}
		if !bytes.Equal(r.Structured, c.want) {
			t.Errorf("%s: %d bytes are structured, want %d", c.name, len(r.Structured), len(c.want))
		}
	}
}

// Large events are stored as all others are, also those that are stored once.
func TestLargeEventsAreStored(t *testing.T) {
	l := embedded(t).open(t, Options{})
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	large := func(run nestor.ID) nestor.Event {
		return &nestor.ChatStart{Header: nestor.Header{Run: run, Root: "r"}, Message: strings.Repeat("x", 500_000)}
	}
	lines, err := Fit(large("r"), &nestor.ChatStart{Header: nestor.Header{Run: "r", Root: "r"}, Message: "behind"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), lines...); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Once(t.Context(), 1, large("o")); err != nil {
		t.Fatal(err)
	}
	if err := l.OnceAll(t.Context(), []uint64{1, 1}, [][]nestor.Event{{large("p")}, {large("q")}}); err != nil {
		t.Fatal(err)
	}
	for i, e := range first(t, l.Follow(t.Context(), Filter{Root: "r"}, 0), 5) {
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if cut := strings.Contains(event.(*nestor.ChatStart).Message, "are not in the log"); cut != (i != 1) {
			t.Errorf("event %d, of %s, says that it was cut: %v", i, e.Run, cut)
		}
	}
}

// What no cut makes small enough is refused.
func TestEventThatCannotBeCut(t *testing.T) {
	fields := map[string]int{}
	for i := range 50_000 {
		fields[fmt.Sprintf("a field with a name of its own, %d", i)] = i
	}
	_, err := Fit(&nestor.ProviderMessage{Header: nestor.Header{Run: "r", Root: "r"}, Raw: quoted(t, fields)})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("it is %v", err)
	}
}
