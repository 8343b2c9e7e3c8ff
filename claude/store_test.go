package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// Items 342 to 355 and 362 are those of the suite.
func TestMemoryStore(t *testing.T) {
	claudetest.TestStore(t, func(*testing.T) claude.Store { return new(claude.MemoryStore) })

	t.Run("item 357: counts sessions and forgets", func(t *testing.T) {
		var s claude.MemoryStore
		entry := []json.RawMessage{json.RawMessage(`{"type":"user"}`)}
		s.Append(t.Context(), claude.SessionKey{Project: "p", Session: "s"}, entry)
		s.Append(t.Context(), claude.SessionKey{Project: "p", Session: "s", Subpath: "x"}, entry)
		if s.Len() != 1 {
			t.Errorf("Len = %d, want 1", s.Len())
		}
		s.Clear()
		if got, _ := s.Load(t.Context(), claude.SessionKey{Project: "p", Session: "s"}); s.Len() != 0 || got != nil {
			t.Errorf("after Clear: Len = %d, Load = %s", s.Len(), got)
		}
	})
}

// Items 342 to 355.
func TestDirStore(t *testing.T) {
	claudetest.TestStore(t, func(t *testing.T) claude.Store {
		return &claude.DirStore{Root: filepath.Join(t.TempDir(), "a", "store")}
	})
}

// plainStore has no optional part.
type plainStore struct{ claude.Store }

// refusingStore has the methods but does not serve them.
type refusingStore struct{ claude.Store }

func (refusingStore) ListSessions(context.Context, string) ([]claude.SessionStamp, error) {
	return nil, claude.ErrStoreUnsupported
}
func (refusingStore) ListSubkeys(context.Context, string, string) ([]string, error) {
	return nil, claude.ErrStoreUnsupported
}
func (refusingStore) ListSummaries(context.Context, string) ([]claude.Summary, error) {
	return nil, claude.ErrStoreUnsupported
}
func (refusingStore) DeleteTranscript(context.Context, claude.SessionKey) error {
	return claude.ErrStoreUnsupported
}

func TestStoreWithoutOptionalParts(t *testing.T) {
	t.Run("item 356: missing parts are skipped", func(t *testing.T) {
		claudetest.TestStore(t, func(*testing.T) claude.Store { return plainStore{new(claude.MemoryStore)} })
	})
	t.Run("item 356: refused parts are skipped", func(t *testing.T) {
		claudetest.TestStore(t, func(*testing.T) claude.Store { return refusingStore{new(claude.MemoryStore)} })
	})
	t.Run("items 363, 365, 370: refused is missing", func(t *testing.T) {
		for _, s := range []claude.Store{plainStore{new(claude.MemoryStore)}, refusingStore{new(claude.MemoryStore)}} {
			ts := claude.Transcripts{Store: s}
			if _, err := ts.List(t.Context(), claude.ListOptions{}); !errors.Is(err, claude.ErrStoreUnsupported) {
				t.Errorf("List: %v", err)
			}
			id := "11111111-1111-4111-8111-111111111111"
			if _, err := ts.Subagents(t.Context(), id, ""); !errors.Is(err, claude.ErrStoreUnsupported) {
				t.Errorf("Subagents: %v", err)
			}
			if err := ts.Delete(t.Context(), id, ""); err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
	})
}

func TestDirStoreKeys(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "store")
	s := &claude.DirStore{Root: root}
	entry := []json.RawMessage{json.RawMessage(`{"type":"user"}`)}
	for _, key := range []claude.SessionKey{
		{Project: "", Session: "s"},
		{Project: "..", Session: "s"},
		{Project: "a/../..", Session: "s"},
		{Project: "p", Session: ""},
		{Project: "p", Session: "../../s"},
		{Project: "p", Session: "s", Subpath: "../../../x"},
		{Project: "p", Session: "s", Subpath: "/etc/x"},
		{Project: "p", Session: "s", Subpath: "a//b"},
		{Project: "p", Session: "s", Subpath: `a\..\..\b`},
		{Project: "p", Session: "s", Subpath: "C:x"},
		{Project: "p", Session: "s", Subpath: "a\x00b"},
	} {
		if err := s.Append(t.Context(), key, entry); err == nil {
			t.Errorf("Append(%q) did not fail", key)
		}
		if _, err := s.Load(t.Context(), key); err == nil {
			t.Errorf("Load(%q) did not fail", key)
		}
		if err := s.DeleteTranscript(t.Context(), key); err == nil {
			t.Errorf("DeleteTranscript(%q) did not fail", key)
		}
	}
	if found, _ := os.ReadDir(outside); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func TestDirStoreFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes and links on Windows")
	}
	root := filepath.Join(t.TempDir(), "store")
	s := &claude.DirStore{Root: root}
	key := claude.SessionKey{Project: "p", Session: "s", Subpath: "subagents/agent-x"}
	entry := []json.RawMessage{json.RawMessage("{\n\"type\": \"user\"\n}")}
	if err := s.Append(t.Context(), key, entry); err != nil {
		t.Fatal(err)
	}
	main := claude.SessionKey{Project: "p", Session: "s"}
	if err := s.Append(t.Context(), main, entry); err != nil {
		t.Fatal(err)
	}

	t.Run("modes", func(t *testing.T) {
		filepath.WalkDir(root, func(name string, e fs.DirEntry, _ error) error {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), want)
			}
			return nil
		})
	})
	t.Run("an entry is one line", func(t *testing.T) {
		data, err := os.ReadFile(filepath.Join(root, "p", "s.jsonl"))
		if err != nil || string(data) != `{"type":"user"}`+"\n" {
			t.Errorf("file is %q, %v", data, err)
		}
	})
	t.Run("a line cut short costs only itself", func(t *testing.T) {
		name := filepath.Join(root, "p", "s.jsonl")
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(`{"type":"us`)
		f.Close()
		if err := s.Append(t.Context(), main, entry); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(t.Context(), main); err != nil || len(got) != 2 {
			t.Errorf("Load = %s, %v; want 2 entries", got, err)
		}
	})
	t.Run("not JSON is refused whole", func(t *testing.T) {
		k := claude.SessionKey{Project: "p", Session: "t"}
		if err := s.Append(t.Context(), k, append(entry, json.RawMessage(`{`))); err == nil {
			t.Error("Append did not fail")
		}
		if got, _ := s.Load(t.Context(), k); got != nil {
			t.Errorf("Load = %s", got)
		}
	})
	t.Run("links lead nowhere", func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret.jsonl")
		if err := os.WriteFile(secret, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, filepath.Join(root, "p", "link.jsonl")); err != nil {
			t.Fatal(err)
		}
		k := claude.SessionKey{Project: "p", Session: "link"}
		if got, err := s.Load(t.Context(), k); err == nil {
			t.Errorf("Load = %s", got)
		}
		if err := s.Append(t.Context(), k, entry); err == nil {
			t.Error("Append did not fail")
		}
		if data, _ := os.ReadFile(secret); string(data) != "{}\n" {
			t.Errorf("the file outside is now %q", data)
		}
	})
}
