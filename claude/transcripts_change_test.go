package claude

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// tail returns what the file has beyond the lines it was made of.
func tail(t *testing.T, path string, lines ...string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(data), strings.Join(lines, "\n")+"\n")
	if !ok {
		t.Fatalf("the file lost its start: %s", data)
	}
	return rest
}

func TestRename(t *testing.T) {
	first := user(1, 0, "hi")
	t.Run("item 384: appends one compact line", func(t *testing.T) {
		h := newTestHome(t)
		path := h.session("/x/work", 1, first)
		if err := h.Rename(t.Context(), sid(1), "/x/work", "  <new> title\t"); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"custom-title","customTitle":"<new> title","sessionId":"` + sid(1) + `"}` + "\n"
		if got := tail(t, path, first); got != want {
			t.Errorf("appended %q, want %q", got, want)
		}
		if err := h.Rename(t.Context(), sid(1), "", "newer"); err != nil {
			t.Fatal(err)
		}
		if got := h.info(1).Title; got != "newer" {
			t.Errorf("title is %q", got)
		}
	})
	t.Run("item 384: what cannot be renamed", func(t *testing.T) {
		h := newTestHome(t)
		if err := h.Rename(t.Context(), sid(1), "", "x"); !errors.Is(err, ErrSessionNotFound) {
			t.Errorf("without projects: %v", err)
		}
		h.session("/x/work", 1, first)
		for _, test := range []struct {
			id, dir, title string
			want           error
		}{
			{"x", "", "t", ErrInvalidSessionID},
			{sid(2), "", "t", ErrSessionNotFound},
			{sid(1), "/other", "t", ErrSessionNotFound},
			{sid(1), "", " \n", nil},
		} {
			err := h.Rename(t.Context(), test.id, test.dir, test.title)
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("Rename(%+v): %v", test, err)
			}
		}
	})
	t.Run("item 384: an empty file in an earlier folder is passed over", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/a", 1)
		path := h.session("/b", 1, first)
		if err := h.Rename(t.Context(), sid(1), "", "x"); err != nil {
			t.Fatal(err)
		}
		if tail(t, path, first) == "" {
			t.Error("nothing was appended")
		}
		if info, _ := os.Stat(h.path("/a", sid(1)+".jsonl")); info.Size() != 0 {
			t.Error("the empty file grew")
		}
	})
	t.Run("a line that lacks its end stays apart", func(t *testing.T) {
		h := newTestHome(t)
		path := h.session("/x/work", 1, first, `{"type":"user","cut`)
		data, _ := os.ReadFile(path)
		os.WriteFile(path, data[:len(data)-1], 0o600)
		if err := h.Rename(t.Context(), sid(1), "", "x"); err != nil {
			t.Fatal(err)
		}
		if got := h.info(1).Title; got != "x" {
			t.Errorf("title is %q", got)
		}
	})
}

func TestAppendLine(t *testing.T) {
	h := newTestHome(t)
	path := h.session("/x/work", 1, "{}")
	h.session("/x/work", 2)
	p, err := h.openProjects()
	if err != nil {
		t.Fatal(err)
	}
	defer p.root.Close()
	for _, test := range []struct {
		name, file string
		want       bool
	}{
		{"item 383: existing", "-x-work/" + sid(1) + ".jsonl", true},
		{"item 383: again", "-x-work/" + sid(1) + ".jsonl", true},
		{"item 383: missing", "-x-work/" + sid(3) + ".jsonl", false},
		{"item 383: missing folder", "-none/" + sid(1) + ".jsonl", false},
		{"item 383: a file for a folder", "-x-work/" + sid(1) + ".jsonl/x", false},
		{"item 383: empty", "-x-work/" + sid(2) + ".jsonl", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			done, err := p.appendLine(test.file, fmt.Appendf(nil, "%q", test.name))
			if done != test.want || err != nil {
				t.Errorf("got %v, %v", done, err)
			}
		})
	}
	if got, want := tail(t, path, "{}"), "\"item 383: existing\"\n\"item 383: again\"\n"; got != want {
		t.Errorf("appended %q, want %q", got, want)
	}
}

func TestTag(t *testing.T) {
	first := user(1, 0, "hi")
	h := newTestHome(t)
	path := h.session("/x/work", 1, first)
	tag := func(tag string) error { return h.Tag(t.Context(), sid(1), "", tag) }
	t.Run("item 385: appends one compact line", func(t *testing.T) {
		if err := tag(" a\u200bb "); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"tag","tag":"ab","sessionId":"` + sid(1) + `"}` + "\n"
		if got := tail(t, path, first); got != want {
			t.Errorf("appended %q, want %q", got, want)
		}
	})
	t.Run("item 385: invisible", func(t *testing.T) {
		for _, s := range []string{" ", "\u200b", "\ufeff\u202e "} {
			if err := tag(s); err == nil {
				t.Errorf("Tag(%q) did not fail", s)
			}
		}
	})
	t.Run("item 385: empty clears", func(t *testing.T) {
		if got := h.info(1).Tag; got != "ab" {
			t.Errorf("tag is %q", got)
		}
		if err := tag(""); err != nil {
			t.Fatal(err)
		}
		if got := h.info(1).Tag; got != "" {
			t.Errorf("tag is %q", got)
		}
	})
	t.Run("item 385: invalid and missing", func(t *testing.T) {
		if err := h.Tag(t.Context(), "x", "", "t"); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
		if err := h.Tag(t.Context(), sid(2), "", "t"); !errors.Is(err, ErrSessionNotFound) {
			t.Error(err)
		}
	})
}

func TestVisible(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"clean", "plain täg 😀", "plain täg 😀"},
		{"zero width", "a\u200b\u200c\u200d\u2060b", "ab"},
		{"byte order mark", "\ufeffa", "a"},
		{"bidi", "\u202ea\u2066b\u2069", "ab"},
		{"private use", "a\ue000\U000f0000b", "ab"},
		{"unassigned", "a\u0378\uffffb", "ab"},
		{"compatible forms", "ﬁ①Ａ", "fi1A"},
		{"composed", "e\u0301", "é"},
		{"until nothing changes", "e\u200b\u0301", "é"},
	} {
		t.Run("item 385: "+test.name, func(t *testing.T) {
			if got := visible(test.in); got != test.want {
				t.Errorf("visible(%q) = %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	h := newTestHome(t)
	if err := h.Delete(t.Context(), sid(1), ""); !errors.Is(err, ErrSessionNotFound) {
		t.Errorf("item 386: missing: %v", err)
	}
	if err := h.Delete(t.Context(), "..", ""); !errors.Is(err, ErrInvalidSessionID) {
		t.Errorf("item 386: invalid: %v", err)
	}
	for _, dir := range []string{"", "/x/work"} {
		t.Run(fmt.Sprintf("item 386: in %q", dir), func(t *testing.T) {
			h.session("/x/work", 1, user(1, 0, "hi"))
			h.write("/x/work", sid(1)+"/subagents/agent-x.jsonl", "{}")
			h.session("/x/work", 2, user(1, 0, "hi"))
			if err := h.Delete(t.Context(), sid(1), dir); err != nil {
				t.Fatal(err)
			}
			h.wantList(ListOptions{}, 2)
			if _, err := os.Stat(h.path("/x/work", sid(1))); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its folder: %v", err)
			}
		})
	}
	t.Run("links are removed, not followed", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("no links on Windows")
		}
		precious := filepath.Join(t.TempDir(), "precious")
		if err := os.WriteFile(precious, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h.session("/x/work", 1, user(1, 0, "hi"))
		if err := os.Symlink(filepath.Dir(precious), h.path("/x/work", sid(1))); err != nil {
			t.Fatal(err)
		}
		if err := h.Delete(t.Context(), sid(1), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Error(err)
		}
	})
}

func TestArchive(t *testing.T) {
	h := newTestHome(t)
	first := user(1, 0, "hi")
	path := h.session("/x/work", 1, first)
	h.session("/copy", 1, first)
	archived := func(want bool) {
		t.Helper()
		if got := h.info(1).Archived; got != want {
			t.Errorf("archived is %v, want %v", got, want)
		}
		if got := h.list(ListOptions{})[0].Archived; got != want {
			t.Errorf("listed as %v, want %v", got, want)
		}
	}
	archived(false)
	if err := h.Archive(t.Context(), sid(1), ""); err != nil {
		t.Fatal(err)
	}
	archived(true)
	for _, dir := range []string{"/x/work", "/copy"} {
		info, err := os.Stat(h.path(dir, sid(1), "archived.json"))
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("in %s: %v, %v", dir, info, err)
		}
	}
	if got := tail(t, path, first); got != "" {
		t.Errorf("the transcript changed: %q", got)
	}
	if err := h.Unarchive(t.Context(), sid(1), ""); err != nil {
		t.Fatal(err)
	}
	archived(false)

	t.Run("7.4: a later prompt takes it off, nothing else does", func(t *testing.T) {
		h.Archive(t.Context(), sid(1), "")
		later := transcriptTime(time.Now().Add(time.Hour))
		h.session("/x/work", 1, first, assistant(2, 1, "x", "timestamp", later), user(3, 2, toolResult("x"), "timestamp", later))
		h.session("/copy", 1, first)
		archived(true)
		for _, dir := range []string{"/x/work", "/copy"} {
			h.session(dir, 1, first, user(2, 1, "more", "timestamp", later))
		}
		archived(false)
	})
	t.Run("not there", func(t *testing.T) {
		if err := h.Archive(t.Context(), sid(2), ""); !errors.Is(err, ErrSessionNotFound) {
			t.Error(err)
		}
		if err := h.Archive(t.Context(), "x", ""); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
		if err := (Transcripts{Store: new(MemoryStore)}).Unarchive(t.Context(), sid(1), ""); !errors.Is(err, ErrStoreUnsupported) {
			t.Error(err)
		}
	})
}
