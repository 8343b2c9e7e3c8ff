package workspace

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// A copy holds what the folder does, but for what is private, and changes nothing
// in it.
func TestCopy(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	kept := tree{
		"a.txt": "one", "run.sh": "#!/bin/sh", "deep/er/b.txt": "two", "empty": "", "link": "-> deep/er", "out": "-> /etc/passwd", "nowhere": "-> none",
		".git/HEAD": "ref", ".git/objects/x": "y", ".github/x": "y",
	}
	kept.write(t, from)
	tree{".nestor/broker/x": "private", "deep/.nestor/x": "private", "deep/.git": "gitdir: elsewhere"}.write(t, from)
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(from, "a.txt"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(from, "tight"), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), from, to, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, to); !reflect.DeepEqual(got, kept) {
		t.Errorf("the copy holds %v", got)
	}
	if info, err := os.Stat(filepath.Join(to, "a.txt")); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the copy is of %v, %v", info.ModTime(), err)
	}
	if info, err := os.Stat(filepath.Join(to, "tight")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a folder that may not be written is %v, %v", info.Mode(), err)
	}
	tree{"a.txt": "other"}.write(t, to)
	if got := readTree(t, from)["a.txt"]; got != "one" {
		t.Errorf("a change of the copy makes the folder have %q", got)
	}
	if err := Copy(t.Context(), from, to, Options{}); err == nil {
		t.Error("a copy was made over another")
	}
}

func TestCopyIsBounded(t *testing.T) {
	from := t.TempDir()
	tree{"a": "12345", "b": "12345"}.write(t, from)
	for _, test := range []struct {
		options Options
		what    string
	}{{Options{MaxFiles: 1}, "files"}, {Options{MaxBytes: 9}, "bytes"}, {Options{MaxFiles: 2, MaxBytes: 10}, ""}} {
		err := Copy(t.Context(), from, filepath.Join(t.TempDir(), "copy"), test.options)
		bound, ok := errors.AsType[*BoundError](err)
		if ok != (test.what != "") || ok && bound.What != test.what || !ok && err != nil {
			t.Errorf("%+v: %v", test.options, err)
		}
	}
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(enough)
	if err := Copy(ctx, from, filepath.Join(t.TempDir(), "copy"), Options{}); !errors.Is(err, enough) {
		t.Errorf("a copy that is given up: %v", err)
	}
}

// List says what Apply would do.
func TestList(t *testing.T) {
	dir := t.TempDir()
	tree{"same": "s", "edited": "e", "gone": "g"}.write(t, dir)
	before, err := Take(t.Context(), dir, Options{Hash: true})
	if err != nil {
		t.Fatal(err)
	}
	tree{"edited": "other", "new": "n", "link": "-> same"}.write(t, dir)
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	changes, err := before.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	archive := pack(t, changes)
	list, err := List(t.Context(), bytes.NewReader(archive), ApplyOptions{})
	want := []Change{
		{Path: "edited", Action: Modified, Size: 5}, {Path: "link", Action: Written, Link: "same"}, {Path: "new", Action: Written, Size: 1},
		{Path: "gone", Action: Removed},
	}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("it lists %+v, %v", list, err)
	}
	if _, err := List(t.Context(), bytes.NewReader(archive), ApplyOptions{MaxFiles: 3}); err == nil {
		t.Error("a list that is too long was read")
	}
}
