package anthropic

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was appended is there, in its order, and each session for itself.
func TestRecords(t *testing.T) {
	for name, r := range map[string]Records{"memory": &MemRecords{}, "folder": DirRecords(filepath.Join(t.TempDir(), "new"))} {
		t.Run(name, func(t *testing.T) {
			if list, err := r.Load(t.Context(), "none"); err != nil || len(list) != 0 {
				t.Errorf("a session that is not there has %v, %v", list, err)
			}
			for i := range 3 {
				for _, session := range []string{"a", "b"} {
					if err := r.Append(t.Context(), session, json.RawMessage(fmt.Sprintf(`{"type":"x","n":"%s%d"}`, session, i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			list, err := r.Load(t.Context(), "b")
			if got := fmt.Sprintf("%s", list); err != nil || got != `[{"type":"x","n":"b0"} {"type":"x","n":"b1"} {"type":"x","n":"b2"}]` {
				t.Errorf("loaded are %s, %v", got, err)
			}
		})
	}
}

// A line that was never finished is not there, also not for what comes behind.
func TestTornRecord(t *testing.T) {
	dir := t.TempDir()
	r, file := DirRecords(dir), filepath.Join(dir, "s.jsonl")
	long := `{"type":"x","n":"` + strings.Repeat("x", 10_000) + `"}`
	if err := r.Append(t.Context(), "s", json.RawMessage(long)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"type":"torn","n":"`+strings.Repeat("y", 9_000))
	f.Close()
	if list, err := r.Load(t.Context(), "s"); err != nil || len(list) != 1 || string(list[0]) != long {
		t.Errorf("loaded are %d records, %v", len(list), err)
	}
	if err := r.Append(t.Context(), "s", json.RawMessage(`{"type":"next"}`)); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Load(t.Context(), "s"); err != nil || len(list) != 2 || string(list[1]) != `{"type":"next"}` {
		t.Errorf("loaded are %q, %v", list[1:], err)
	}
}

// A session's name cannot lead out of the folder, nor a record out of its line.
func TestRecordsOfBadNames(t *testing.T) {
	dir := t.TempDir()
	r := DirRecords(filepath.Join(dir, "in"))
	for _, name := range []string{"", "..", "../x", "a/b", "/etc/x", "-a", "a.b", strings.Repeat("x", 200)} {
		if _, err := r.Load(t.Context(), name); err == nil || !strings.Contains(err.Error(), "is no name of a session") {
			t.Errorf("loading %q: %v", name, err)
		}
		if err := r.Append(t.Context(), name, json.RawMessage(`{}`)); err == nil {
			t.Errorf("appending to %q works", name)
		}
	}
	if err := r.Append(t.Context(), "s", json.RawMessage("{}\n{}")); err == nil {
		t.Error("a record of two lines is taken")
	}
}

// Memory is bounded: the session that rested longest goes first.
func TestMemRecordsForget(t *testing.T) {
	r := &MemRecords{Max: 30}
	for _, session := range []string{"a", "b", "a", "c"} {
		r.Append(t.Context(), session, json.RawMessage(`"12345678"`))
	}
	for session, want := range map[string]int{"a": 2, "b": 0, "c": 1} {
		if list, _ := r.Load(t.Context(), session); len(list) != want {
			t.Errorf("session %s has %d records, want %d", session, len(list), want)
		}
	}
}
