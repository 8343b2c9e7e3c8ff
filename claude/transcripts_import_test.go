package claude

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

func TestImport(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, user(1, 0, "a"), "", "{broken", assistant(2, 1, "b"), `{"type":"tag","tag":"x"}`)
	h.write("/x/work", sid(1)+"/subagents/agent-x.jsonl", user(1, 0, "s"))
	h.write("/x/work", sid(1)+"/subagents/agent-x.meta.json", `{"toolUseId":"toolu_1","type":"shadow"}`)
	h.write("/x/work", sid(1)+"/subagents/workflows/r/agent-y.jsonl", user(1, 0, "s"))
	h.write("/x/work", sid(1)+"/subagents/workflows/r/agent-y.meta.json", `[]`)
	h.session("/x/work", 2, user(1, 0, "alone"))
	ctx := t.Context()
	load := func(s Store, subpath string) []string {
		t.Helper()
		entries, err := s.Load(ctx, SessionKey{Project: pathKey("/x/work"), Session: sid(1), Subpath: subpath})
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, l := range parseEntries(entries) {
			types = append(types, l.Type)
		}
		return types
	}
	for _, dir := range []string{"", "/x/work"} {
		t.Run(fmt.Sprintf("item 372: all of it, in %q", dir), func(t *testing.T) {
			var s MemoryStore
			if err := h.Import(ctx, sid(1), dir, &s, ImportOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := load(&s, ""); !slices.Equal(got, []string{"user", "assistant", "tag"}) {
				t.Errorf("main is %q", got)
			}
			if got := load(&s, "subagents/agent-x"); !slices.Equal(got, []string{agentMetadata, "user"}) {
				t.Errorf("x is %q", got)
			}
			if got := load(&s, "subagents/workflows/r/agent-y"); !slices.Equal(got, []string{"user"}) {
				t.Errorf("y is %q", got)
			}
			got, err := Transcripts{Store: &s}.SubagentMessages(ctx, sid(1), "x", MessageOptions{Dir: "/x/work"})
			if err != nil || len(got) != 1 || got[0].ParentToolUseID != "toolu_1" {
				t.Errorf("x reads as %+v, %v", got, err)
			}
		})
	}
	t.Run("item 372: keys are those of the mirror", func(t *testing.T) {
		var s MemoryStore
		h.Import(ctx, sid(1), "", &s, ImportOptions{})
		projects := filepath.Join(h.ConfigDir, "projects")
		for _, file := range []string{h.path("/x/work", sid(1)+".jsonl"), h.path("/x/work", sid(1), "subagents", "workflows", "r", "agent-y.jsonl")} {
			key, ok := transcriptKey(projects, file)
			if entries, _ := s.Load(ctx, key); !ok || entries == nil {
				t.Errorf("nothing under %v", key)
			}
		}
	})
	t.Run("item 372: batches", func(t *testing.T) {
		s := new(fakeStore)
		if err := h.Import(ctx, sid(1), "", s, ImportOptions{Batch: 2, NoSubagents: true}); err != nil {
			t.Fatal(err)
		}
		if s.attempts != 2 {
			t.Errorf("%d appends of 3 entries, want 2", s.attempts)
		}
		s = new(fakeStore)
		h.Import(ctx, sid(1), "", s, ImportOptions{Batch: -1, NoSubagents: true})
		if s.attempts != 1 {
			t.Errorf("%d appends, want 1", s.attempts)
		}
	})
	t.Run("item 372: without subagents", func(t *testing.T) {
		var s MemoryStore
		h.Import(ctx, sid(1), "", &s, ImportOptions{NoSubagents: true})
		if got := load(&s, "subagents/agent-x"); got != nil {
			t.Errorf("x is %q", got)
		}
		if err := h.Import(ctx, sid(2), "", &s, ImportOptions{}); err != nil {
			t.Errorf("a session that has none: %v", err)
		}
	})
	t.Run("item 372: invalid and missing", func(t *testing.T) {
		var s MemoryStore
		if err := h.Import(ctx, "x", "", &s, ImportOptions{}); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
		if err := h.Import(ctx, sid(9), "", &s, ImportOptions{}); !errors.Is(err, ErrSessionNotFound) {
			t.Error(err)
		}
		if err := h.Import(ctx, sid(1), "", nil, ImportOptions{}); err == nil {
			t.Error("no store: no error")
		}
	})
}
