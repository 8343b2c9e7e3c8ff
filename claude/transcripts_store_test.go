package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func rawEntries(lines ...string) []json.RawMessage {
	var raw []json.RawMessage
	for _, l := range lines {
		raw = append(raw, json.RawMessage(l))
	}
	return raw
}

// storeHome is a store that a test fills with sessions of /work.
type storeHome struct {
	testHome
	memory *MemoryStore
}

func newStoreHome(t *testing.T) *storeHome {
	s := new(MemoryStore)
	return &storeHome{testHome{t, Transcripts{Store: s}}, s}
}

func (h *storeHome) add(n int, lines ...string) {
	h.Helper()
	if err := h.memory.Append(h.Context(), storeKey(sid(n), "/x/work"), rawEntries(lines...)); err != nil {
		h.Fatal(err)
	}
}

func (h *storeHome) addAgent(n int, subpath string, lines ...string) {
	key := storeKey(sid(n), "/x/work")
	key.Subpath = subpath
	h.memory.Append(h.Context(), key, rawEntries(lines...))
}

// entries returns what the store has of a session.
func (h *storeHome) entries(id string) []obj {
	h.Helper()
	raw, err := h.memory.Load(h.Context(), storeKey(id, "/x/work"))
	if err != nil {
		h.Fatal(err)
	}
	var entries []obj
	for _, r := range raw {
		var e obj
		if err := json.Unmarshal(r, &e); err != nil {
			h.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// countingStore counts and measures loads of a MemoryStore and lists what it
// is told to.
type countingStore struct {
	*MemoryStore
	stamps    []SessionStamp // replaces the listing unless nil
	summaries []Summary      // replaces the summaries unless nil
	fail      string         // session that fails to load

	mu     sync.Mutex
	loads  int
	active int
	peak   int
}

func (s *countingStore) ListSessions(ctx context.Context, project string) ([]SessionStamp, error) {
	if s.stamps != nil {
		return s.stamps, nil
	}
	return s.MemoryStore.ListSessions(ctx, project)
}

func (s *countingStore) ListSummaries(ctx context.Context, project string) ([]Summary, error) {
	if s.summaries != nil {
		return s.summaries, nil
	}
	return s.MemoryStore.ListSummaries(ctx, project)
}

func (s *countingStore) Load(ctx context.Context, key SessionKey) ([]json.RawMessage, error) {
	s.mu.Lock()
	s.loads++
	s.active++
	s.peak = max(s.peak, s.active)
	s.mu.Unlock()
	runtime.Gosched() // lets others in
	defer func() {
		s.mu.Lock()
		s.active--
		s.mu.Unlock()
	}()
	if key.Session == s.fail {
		return nil, errors.New("broken disk")
	}
	return s.MemoryStore.Load(ctx, key)
}

func TestStoreList(t *testing.T) {
	work := ListOptions{Dir: "/x/work"}
	t.Run("items 363, 365: newest first, sidechains and empty ones dropped before paging", func(t *testing.T) {
		h := newStoreHome(t)
		h.add(1, user(1, 0, "a"))
		h.add(2, user(1, 0, "b", "isSidechain", true))
		h.add(3, `{"type":"mode"}`)
		h.add(4, user(1, 0, "d"))
		h.add(5, user(1, 0, "e"))
		for _, s := range []Store{h.memory, listerOnly{h.memory, h.memory}} {
			h.Store = s
			h.wantList(work, 5, 4, 1)
			h.wantList(ListOptions{Dir: "/x/work", Limit: 1, Offset: 2}, 1)
			h.wantList(ListOptions{Dir: "/x/work", Limit: 2}, 5, 4)
			h.wantList(ListOptions{Dir: "/other"})
		}
	})
	t.Run("item 363: fresh summaries need no load", func(t *testing.T) {
		h := newStoreHome(t)
		for n := 1; n <= 5; n++ {
			h.add(n, user(1, 0, "x"))
		}
		s := &countingStore{MemoryStore: h.memory}
		h.Store = s
		h.wantList(work, 5, 4, 3, 2, 1)
		if s.loads != 0 {
			t.Errorf("%d loads", s.loads)
		}
		t.Run("nor when the summary is newer", func(t *testing.T) {
			s.summaries, _ = h.memory.ListSummaries(t.Context(), ProjectKey("/x/work"))
			for i := range s.summaries {
				s.summaries[i].Modified = s.summaries[i].Modified.Add(time.Hour)
			}
			h.wantList(work, 5, 4, 3, 2, 1)
			if s.loads != 0 {
				t.Errorf("%d loads", s.loads)
			}
		})
	})
	t.Run("item 363: gaps and stale summaries are loaded", func(t *testing.T) {
		h := newStoreHome(t)
		for n := 1; n <= 5; n++ {
			h.add(n, user(1, 0, "real"))
		}
		s := &countingStore{MemoryStore: h.memory}
		s.summaries, _ = h.memory.ListSummaries(t.Context(), ProjectKey("/x/work"))
		s.summaries = slices.DeleteFunc(s.summaries, func(s Summary) bool { return s.Session == sid(1) })
		for i := range s.summaries {
			s.summaries[i].Data = json.RawMessage(`{"firstPrompt":"summary"}`)
			if s.summaries[i].Session == sid(2) {
				s.summaries[i].Modified = s.summaries[i].Modified.Add(-time.Nanosecond)
			}
		}
		s.summaries = append(s.summaries, Summary{Session: sid(9), Data: json.RawMessage(`{"firstPrompt":"no listing"}`)})
		h.Store = s
		var got []string
		for _, info := range h.list(work) {
			got = append(got, info.Summary)
		}
		if want := []string{"summary", "summary", "summary", "real", "real"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if s.loads != 2 {
			t.Errorf("%d loads, want 2", s.loads)
		}
	})
	t.Run("item 363: loads are bounded by the page", func(t *testing.T) {
		h := newStoreHome(t)
		for n := 1; n <= 50; n++ {
			h.add(n, user(1, 0, "x"))
		}
		s := &countingStore{MemoryStore: h.memory, summaries: []Summary{}}
		h.Store = s
		h.wantList(ListOptions{Dir: "/x/work", Limit: 3}, 50, 49, 48)
		if s.loads != 3 {
			t.Errorf("%d loads for a page of 3", s.loads)
		}
		h.list(work)
		if s.peak > 16 {
			t.Errorf("%d loads at once", s.peak)
		}
	})
	t.Run("items 327, 365: a load that fails costs its own row", func(t *testing.T) {
		h := newStoreHome(t)
		for n := 1; n <= 3; n++ {
			h.add(n, user(1, 0, "x"))
		}
		h.Store = &countingStore{MemoryStore: h.memory, summaries: []Summary{}, fail: sid(2)}
		h.wantList(work, 3, 2, 1)
		if got := h.list(work)[1]; got.Summary != "" || got.Modified.IsZero() {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("item 365: the store's list is not changed", func(t *testing.T) {
		h := newStoreHome(t)
		h.add(1, user(1, 0, "x"))
		stamps := []SessionStamp{{sid(1), time.Unix(1, 0)}, {sid(2), time.Unix(2, 0)}}
		s := &countingStore{MemoryStore: h.memory, stamps: slices.Clone(stamps)}
		h.Store = s
		h.list(work)
		if !slices.Equal(s.stamps, stamps) {
			t.Errorf("it is now %v", s.stamps)
		}
	})
	t.Run("a store with summaries alone", func(t *testing.T) {
		h := newStoreHome(t)
		h.add(1, user(1, 0, "x"))
		h.Store = summariesOnly{h.memory, h.memory}
		h.wantList(work, 1)
	})
}

// listerOnly and summariesOnly hide the other optional parts of a store.
type listerOnly struct {
	Store
	SessionLister
}
type summariesOnly struct {
	Store
	SummaryLister
}

func TestStoreInfo(t *testing.T) {
	h := newStoreHome(t)
	h.add(1, user(1, 0, "hi", "cwd", nil), `{"type":"custom-title","customTitle":"c"}`)
	got, err := h.Info(t.Context(), sid(1), "/x/work")
	if err != nil || got.Title != "c" || got.Dir != "/x/work" || got.Modified.IsZero() {
		t.Errorf("item 366: found: %+v, %v", got, err)
	}
	if _, err := h.Info(t.Context(), sid(2), "/x/work"); !errors.Is(err, ErrSessionNotFound) || !strings.Contains(err.Error(), "-work") {
		t.Errorf("item 366: unknown: %v", err)
	}
	h.Store = listerOnly{Store: h.memory, SessionLister: refuseSessions{}}
	if got, err := h.Info(t.Context(), sid(1), "/x/work"); err != nil || got.Modified.Unix() != 1767225601 {
		t.Errorf("without a listing: %+v, %v", got, err)
	}
}

type refuseSessions struct{}

func (refuseSessions) ListSessions(context.Context, string) ([]SessionStamp, error) {
	return nil, fmt.Errorf("sorry: %w", ErrStoreUnsupported)
}

func TestStoreMessages(t *testing.T) {
	h := newStoreHome(t)
	work := MessageOptions{Dir: "/x/work"}
	h.add(1, user(1, 0, "a"), `{"type":"tag","tag":"x"}`, assistant(2, 1, "b"))
	got, err := h.Messages(t.Context(), sid(1), work)
	if err != nil {
		t.Fatal(err)
	}
	wantUUIDs(t, got, 1, 2) // item 367
	for _, id := range []string{sid(2), "x"} {
		if got, err := h.Messages(t.Context(), id, work); len(got) != 0 || err != nil {
			t.Errorf("item 367: %q: %v, %v", id, got, err)
		}
	}
	h.Store = &countingStore{MemoryStore: h.memory, fail: sid(1)}
	if _, err := h.Messages(t.Context(), sid(1), work); err == nil {
		t.Error("a load that fails is no error")
	}
}

func TestStoreSubagents(t *testing.T) {
	h := newStoreHome(t)
	work := MessageOptions{Dir: "/x/work"}
	h.add(1, user(1, 0, "a"))
	h.addAgent(1, "subagents/agent-x", `{"type":"agent_metadata","toolUseId":"old"}`, user(1, 0, "a"),
		`{"toolUseId":"toolu_1","parentAgentId":"p","type":"agent_metadata"}`, assistant(2, 1, "b"))
	h.addAgent(1, "subagents/workflows/r/agent-y", `{"type":"agent_metadata","toolUseId":7}`, user(1, 0, "a"))
	h.addAgent(1, "subagents/workflows/r/agent-x", user(9, 0, "shadowed"))
	h.addAgent(1, "tool-results/agent-z", "{}")
	t.Run("item 368: list", func(t *testing.T) {
		if got, err := h.Subagents(t.Context(), sid(1), "/x/work"); fmt.Sprint(got) != "[x y]" || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := h.Subagents(t.Context(), "x", "/x/work"); len(got) != 0 || err != nil {
			t.Errorf("not a UUID: %v, %v", got, err)
		}
	})
	t.Run("item 368: messages and their origin", func(t *testing.T) {
		got, err := h.SubagentMessages(t.Context(), sid(1), "x", work)
		if err != nil || len(got) != 2 || got[0].ParentToolUseID != "toolu_1" || got[0].ParentAgentID != "p" {
			t.Errorf("got %+v, %v", got, err)
		}
		got, err = h.SubagentMessages(t.Context(), sid(1), "y", work)
		if err != nil || len(got) != 1 || got[0].ParentToolUseID != "" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("item 368: by its path if the store cannot list", func(t *testing.T) {
		h.Store = listerOnly{h.memory, h.memory}
		got, err := h.SubagentMessages(t.Context(), sid(1), "x", work)
		if err != nil || len(got) != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestStoreChanges(t *testing.T) {
	h := newStoreHome(t)
	h.add(1, user(1, 0, "a"))
	last := func() obj { e := h.entries(sid(1)); return e[len(e)-1] }
	t.Run("item 369: rename", func(t *testing.T) {
		if err := h.Rename(t.Context(), sid(1), "/x/work", " new "); err != nil {
			t.Fatal(err)
		}
		e := last()
		if e["customTitle"] != "new" || e["type"] != "custom-title" || e["sessionId"] != sid(1) ||
			!validSessionID(e["uuid"].(string)) || e["timestamp"] == nil {
			t.Errorf("appended %v", e)
		}
	})
	t.Run("item 369: tag and clear", func(t *testing.T) {
		for _, tag := range []string{"t", ""} {
			if err := h.Tag(t.Context(), sid(1), "/x/work", tag); err != nil {
				t.Fatal(err)
			}
			// The store may have put the members in any order.
			if got, err := h.Info(t.Context(), sid(1), "/x/work"); err != nil || got.Tag != tag {
				t.Errorf("tag is %q, %v", got.Tag, err)
			}
		}
	})
	t.Run("item 369: invalid", func(t *testing.T) {
		if err := h.Rename(t.Context(), "x", "/x/work", "t"); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
		if err := h.Rename(t.Context(), sid(1), "/x/work", ""); err == nil {
			t.Error("an empty title was accepted")
		}
		if err := h.Tag(t.Context(), sid(9), "/x/work", "t"); !errors.Is(err, ErrSessionNotFound) {
			t.Error(err)
		}
		if h.memory.Len() != 1 {
			t.Error("a session was made up")
		}
	})
	t.Run("item 371: fork", func(t *testing.T) {
		h.add(3, user(1, 0, "a"), `{"type":"ai-title","aiTitle":"made"}`, assistant(2, 1, "b"),
			line(obj{"type": "content-replacement", "sessionId": sid(3), "replacements": []int{1}}))
		id, err := h.Fork(t.Context(), sid(3), ForkOptions{Dir: "/x/work"})
		if err != nil {
			t.Fatal(err)
		}
		e := h.entries(id)
		if len(e) != 4 || e[1]["parentUuid"] != e[0]["uuid"] || e[3]["customTitle"] != "made (fork)" {
			t.Errorf("got %v", e)
		}
		for _, meta := range e[2:] {
			if meta["uuid"] == nil || meta["timestamp"] == nil || meta["sessionId"] != id {
				t.Errorf("not stamped: %v", meta)
			}
		}
		if got, err := h.Messages(t.Context(), id, MessageOptions{Dir: "/x/work"}); len(got) != 2 || err != nil {
			t.Errorf("reads as %v, %v", got, err)
		}
		if id, err = h.Fork(t.Context(), sid(3), ForkOptions{Dir: "/x/work", UpTo: mid(1)}); err != nil || len(h.entries(id)) != 3 {
			t.Errorf("cut: %v, %v", h.entries(id), err)
		}
		if _, err := h.Fork(t.Context(), sid(9), ForkOptions{Dir: "/x/work"}); !errors.Is(err, ErrSessionNotFound) {
			t.Error(err)
		}
		if _, err := h.Fork(t.Context(), "x", ForkOptions{Dir: "/x/work"}); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
	})
	t.Run("item 370: delete", func(t *testing.T) {
		if err := h.Delete(t.Context(), sid(1), "/x/work"); err != nil || h.entries(sid(1)) != nil {
			t.Errorf("left %v, %v", h.entries(sid(1)), err)
		}
		if err := h.Delete(t.Context(), "x", "/x/work"); !errors.Is(err, ErrInvalidSessionID) {
			t.Error(err)
		}
	})
}
