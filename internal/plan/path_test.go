package plan

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

// A path is what it was made of, also when it was written and read, by an older
// version too, and is short.
func TestPath(t *testing.T) {
	type above struct {
		Path    Path    `json:"path,omitempty"`
		Lineage Lineage `json:"lineage,omitempty"`
	}
	var ids []nestor.ID
	var marks []string
	var made above
	for _, input := range []string{"a", "b", "c"} {
		ids, marks = append(ids, nestor.NewID(time.Now())), append(marks, fingerprint(nestor.Task{Input: input}))
		made.Lineage = made.Lineage.with(marks[len(marks)-1])
	}
	var err error
	if made.Path, err = PathOf(ids...); err != nil {
		t.Fatal(err)
	}
	text, old := mustJSON(t, made), mustJSON(t, map[string]any{"path": ids, "lineage": marks})
	if want := len(`{"path":"","lineage":""}`) + 3*22 + 3*12; len(text) != want {
		t.Errorf("it has %d bytes, want %d: %s", len(text), want, text)
	}
	for _, text := range [][]byte{text, old} {
		var is above
		if err := json.Unmarshal(text, &is); err != nil || is != made {
			t.Errorf("%s becomes %v, %v", text, is, err)
		}
		if !slices.Equal(is.Path.IDs(), ids) || is.Path.Len() != 3 || is.Path.At(1) != ids[1] {
			t.Errorf("%s is the path %v, want %v", text, is.Path.IDs(), ids)
		}
		for i, id := range ids {
			if !is.Path.Contains(id) || is.Lineage.depth(marks[i]) != i {
				t.Errorf("%s does not have %s, or %s at %d", text, id, marks[i], is.Lineage.depth(marks[i]))
			}
		}
	}
	if made.Path.Contains(nestor.NewID(time.Now())) || made.Path.Contains("x") || made.Lineage.depth("0123456789ab") >= 0 {
		t.Error("it has what it was not made of")
	}
	if text := mustJSON(t, above{}); string(text) != "{}" {
		t.Errorf("nothing is %s", text)
	}
	for _, bad := range []string{
		`{"path":"AAAA"}`, `{"lineage":"aaaa"}`, `{"path":"AAAAAAAAAAAAAAAAAAAAA*"}`, `{"path":7}`, `{"lineage":{}}`, `{"lineage":"0123456789xy"}`,
		`{"path":["r"]}`, `{"lineage":["0123","456789ab"]}`, `{"path":[7]}`,
	} {
		if err := json.Unmarshal([]byte(bad), &above{}); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if p, err := PathOf(ids[0], "r"); err == nil {
		t.Errorf("a path of what is no id is %q", p)
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
	f.Add([]byte(`"AZ06TRwPfAqPPloSt9Tl9g"`))
	f.Add([]byte(`["0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f"]`))
	f.Add([]byte(`null`))
	f.Add([]byte(`["0199"]`))
	f.Add([]byte(`"0123456789ab"`))
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
		t.Fatalf("%s is read, and cannot be written: %v", data, err)
	}
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatalf("%s, written as %s: %v", data, text, err)
	}
	if again := mustJSON(t, second); !bytes.Equal(again, text) {
		t.Fatalf("%s, written as %s, becomes %s", data, text, again)
	}
}
