package eventlog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
)

// What is too large for an event is told in part, says so, and what comes behind it is
// told as it is.
func TestLargeEventsAreCut(t *testing.T) {
	l := embedded(t).open(t, Options{})
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	head := nestor.Header{Run: "r", Root: "r"}
	quoted := func(v any) json.RawMessage {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const mark = "are not in the log"
	for _, e := range []nestor.Event{
		&nestor.ChatStart{Header: head, Message: strings.Repeat("ä", 500_000)},
		&nestor.AgentComplete{Header: head, Agent: "a", Content: strings.Repeat("\x01", 100_000), Thinking: strings.Repeat("\"", 100_000)},
		&nestor.ToolStart{Header: head, Tool: "Write", ToolUseID: "1", Input: quoted(map[string]any{"file_path": "/a", "content": strings.Repeat("x", 1<<20), "big": json.Number("12345678901234567890")})},
		&nestor.ProviderMessage{Header: head, Raw: quoted(map[string]any{"list": strings.Split(strings.Repeat("word ", 200_000), " ")})},
		&nestor.ProviderMessage{Header: head, Raw: quoted([]any{make([]int, 500_000), strings.Repeat("x", 100_000)})},
		&nestor.ToolComplete{Header: head, Tool: "Write", ToolUseID: "1", Summary: "all"},
	} {
		if err := w.Write(t.Context(), e); err != nil {
			t.Fatalf("%T: %v", e, err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Once(t.Context(), 1, &nestor.ChatStart{Header: nestor.Header{Run: "o", Root: "r"}, Message: strings.Repeat("x", 500_000)}); err != nil {
		t.Fatal(err)
	}
	for i, e := range first(t, l.Follow(t.Context(), Filter{Run: "r"}, 0), 6) {
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Data) > MaxEvent || !json.Valid(e.Data) || event.Head().Run != "r" {
			t.Errorf("event %d has %d bytes: %.100s", i, len(e.Data), e.Data)
		}
		if cut := strings.Contains(string(e.Data), mark); cut != (i < 5) {
			t.Errorf("event %d says that it was cut: %v", i, cut)
		}
		if start, ok := event.(*nestor.ToolStart); ok && !strings.Contains(string(start.Input), `"file_path":"/a"`) || ok && !strings.Contains(string(start.Input), "12345678901234567890") {
			t.Errorf("what was short is changed: %.200s", start.Input)
		}
	}
}

// What no cut makes small enough is refused, and the writer goes on.
func TestEventThatCannotBeCut(t *testing.T) {
	l := embedded(t).open(t, Options{})
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]int{}
	for i := range 50_000 {
		fields[strings.Repeat("k", 10)+string(rune('a'+i%26))+json.Number(strings.Repeat("1", 1+i/10_000)).String()+string(rune(0x4e00+i%20_000))] = i
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	head := nestor.Header{Run: "r", Root: "r"}
	if err := w.Write(t.Context(), &nestor.ProviderMessage{Header: head, Raw: raw}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d bytes of fields: %v", len(raw), err)
	}
	if err := w.Write(t.Context(), &nestor.ChatStart{Header: head, Message: "hello"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}
