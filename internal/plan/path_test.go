package plan

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

// A path is read as it was written, also by an older version, and is short.
func TestPathInJSON(t *testing.T) {
	type above struct {
		Path    Path    `json:"path,omitempty"`
		Lineage Lineage `json:"lineage,omitempty"`
	}
	var was above
	for _, input := range []string{"a", "b", "c"} {
		was.Path = append(was.Path, nestor.NewID(time.Now()))
		was.Lineage = append(was.Lineage, fingerprint(nestor.Task{Input: input}))
	}
	text, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(`{"path":"","lineage":""}`) + 4*16 + 4*6; len(text) != want {
		t.Errorf("it has %d bytes, want %d: %s", len(text), want, text)
	}
	old, err := json.Marshal(map[string]any{"path": []nestor.ID(was.Path), "lineage": []string(was.Lineage)})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{text, old} {
		var is above
		if err := json.Unmarshal(text, &is); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again, err := json.Marshal(is); err != nil || !bytes.Equal(again, mustJSON(t, was)) {
			t.Errorf("%s becomes %s, %v", text, again, err)
		}
	}
	if text := mustJSON(t, above{}); string(text) != "{}" {
		t.Errorf("nothing is %s", text)
	}
	for _, bad := range []string{`{"path":"AAAA"}`, `{"lineage":"AAAA"}`, `{"path":"*"}`, `{"path":7}`, `{"lineage":{}}`} {
		if err := json.Unmarshal([]byte(bad), &above{}); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	for _, bad := range []above{{Path: Path{"r"}}, {Lineage: Lineage{"0123"}}, {Lineage: Lineage{"0123456789xy"}}} {
		if text, err := json.Marshal(bad); err == nil {
			t.Errorf("%+v was written as %s", bad, text)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What can be read is written as what is read again.
func FuzzPath(f *testing.F) {
	f.Add([]byte(`"AZ06TRwPfAqPPloSt9Tl9g=="`))
	f.Add([]byte(`["0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f"]`))
	f.Add([]byte(`null`))
	f.Add([]byte(`["0199"]`))
	f.Add([]byte(`"AAAAAAAA"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		repeats[Path](t, data)
		repeats[Lineage](t, data)
	})
}

func repeats[T any](t *testing.T, data []byte) {
	var first, second T
	if json.Unmarshal(data, &first) != nil {
		return
	}
	text, err := json.Marshal(first)
	if err != nil {
		return // a list of what is no id
	}
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatalf("%s, written as %s: %v", data, text, err)
	}
	if again := mustJSON(t, second); !bytes.Equal(again, text) {
		t.Fatalf("%s, written as %s, becomes %s", data, text, again)
	}
}
