package workspace

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Random trees, random changes: what Apply makes of a copy of the old tree is the
// new one.
func TestPackedChangesMakeTheNewTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		was, is := drawTree(rt, "before"), drawTree(rt, "after")
		there, here := newDir(t, was), newDir(t, was)
		s := take(t, there, Options{})
		entries, err := os.ReadDir(there)
		if err != nil {
			rt.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(there, e.Name())); err != nil {
				rt.Fatal(err)
			}
		}
		is.write(t, there)
		c := changesOf(t, s)
		if len(c.Left) > 0 {
			rt.Fatalf("left: %q", c.Left)
		}
		done, err := Apply(t.Context(), here, bytes.NewReader(pack(t, c)), ApplyOptions{})
		if err != nil {
			rt.Fatalf("%v\nchanges %q", err, c.names())
		}
		if got := readTree(t, here); !maps.Equal(got, is) {
			rt.Fatalf("it is\n%q, want\n%q\nchanges %q\ndone %q", got, is, c.names(), done)
		}
	})
}

// drawTree draws a tree of few names, so that files, links and folders take each
// other's places.
func drawTree(rt *rapid.T, label string) tree {
	names := rapid.SampledFrom([]string{"a", "b", "c", "ü x"})
	contents := rapid.SampledFrom([]string{"", "one", "two", "#!one", "-> a", "-> b/c", "-> c", "-> ."})
	tr := tree{}
	for range rapid.IntRange(0, 8).Draw(rt, label) {
		name := strings.Join(rapid.SliceOfN(names, 1, 3).Draw(rt, "name"), "/")
		free := true
		for other := range tr {
			if strings.HasPrefix(other+"/", name+"/") || strings.HasPrefix(name+"/", other+"/") {
				free = false
			}
		}
		if free {
			tr[name] = contents.Draw(rt, "content")
		}
	}
	return tr
}
