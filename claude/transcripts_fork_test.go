package claude

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// forked reads the entries of a fork.
func (h *testHome) forked(dir, id string) []obj {
	h.Helper()
	data, err := os.ReadFile(h.path(dir, id+".jsonl"))
	if err != nil {
		h.Fatal(err)
	}
	var entries []obj
	for l := range strings.Lines(string(data)) {
		var e obj
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			h.Fatalf("line %q: %v", l, err)
		}
		entries = append(entries, e)
	}
	return entries
}

func (h *testHome) fork(opts ForkOptions) string {
	h.Helper()
	id, err := h.Fork(h.Context(), sid(1), opts)
	if err != nil {
		h.Fatalf("Fork: %v", err)
	}
	return id
}

func TestFork(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1,
		user(1, 0, "first", "teamName", "t", "agentName", "a", "slug", "s", "sourceToolAssistantUUID", "x", "kept", obj{"a": 1e300}),
		message("progress", 2, 1, nil),
		message("progress", 3, 2, nil),
		assistant(4, 3, "second", "logicalParentUuid", mid(1)),
		assistant(5, 4, "aside", "isSidechain", true),
		line(obj{"type": "content-replacement", "sessionId": sid(1), "replacements": []int{1, 2}}),
		line(obj{"type": "content-replacement", "sessionId": sid(1), "replacements": []int{3}}),
		line(obj{"type": "content-replacement", "sessionId": sid(7), "replacements": []int{4}}),
		user(6, 4, "third"),
		`{"type":"file-history-snapshot"}`,
	)
	before := time.Now().Add(-time.Second)
	id := h.fork(ForkOptions{})
	got := h.forked("/x/work", id)

	t.Run("item 387: new file with as many messages", func(t *testing.T) {
		if len(got) != 5 { // three messages, replacements, title
			t.Fatalf("got %d entries: %v", len(got), got)
		}
		info, err := os.Stat(h.path("/x/work", id+".jsonl"))
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("file: %v, %v", info, err)
		}
		if !validSessionID(id) || id == sid(1) {
			t.Errorf("id is %q", id)
		}
	})
	t.Run("item 387: uuids remapped, chain bridged", func(t *testing.T) {
		if got[0]["parentUuid"] != nil {
			t.Errorf("the first has parent %v", got[0]["parentUuid"])
		}
		for i, want := range []any{got[0]["uuid"], got[1]["uuid"]} {
			if got[i+1]["parentUuid"] != want {
				t.Errorf("entry %d has parent %v, want %v", i+1, got[i+1]["parentUuid"], want)
			}
		}
		if got[1]["logicalParentUuid"] != got[0]["uuid"] {
			t.Errorf("logical parent is %v", got[1]["logicalParentUuid"])
		}
		for i, old := range []int{1, 4, 6} {
			if got[i]["uuid"] == mid(old) {
				t.Errorf("entry %d kept its uuid", i)
			}
		}
	})
	t.Run("item 387: session, origin, stale fields", func(t *testing.T) {
		for i, e := range got {
			if e["sessionId"] != id {
				t.Errorf("entry %d has session %v", i, e["sessionId"])
			}
		}
		for i, old := range []int{1, 4, 6} {
			from, _ := got[i]["forkedFrom"].(obj)
			if from["sessionId"] != sid(1) || from["messageUuid"] != mid(old) {
				t.Errorf("entry %d is from %v", i, from)
			}
			if got[i]["isSidechain"] != false {
				t.Errorf("entry %d is a sidechain", i)
			}
		}
		for _, stale := range []string{"teamName", "agentName", "slug", "sourceToolAssistantUUID"} {
			if _, ok := got[0][stale]; ok {
				t.Errorf("%s is still there", stale)
			}
		}
		if got[0]["kept"].(obj)["a"] != 1e300 {
			t.Errorf("lost what we do not know: %v", got[0])
		}
	})
	t.Run("7.6: only the last entry is new", func(t *testing.T) {
		last, err := time.Parse(time.RFC3339, got[2]["timestamp"].(string))
		if err != nil || last.Before(before) {
			t.Errorf("the last is of %v, %v", last, err)
		}
		if got[1]["timestamp"] != "2026-01-01T00:00:04Z" {
			t.Errorf("the one before is of %v", got[1]["timestamp"])
		}
	})
	t.Run("7.6: one entry of replacements", func(t *testing.T) {
		if r, _ := json.Marshal(got[3]["replacements"]); got[3]["type"] != "content-replacement" || string(r) != "[1,2,3]" {
			t.Errorf("got %v", got[3])
		}
	})
	t.Run("item 387: default title", func(t *testing.T) {
		if got[4]["customTitle"] != "first (fork)" {
			t.Errorf("title is %v", got[4]["customTitle"])
		}
	})
	t.Run("item 387: readable", func(t *testing.T) {
		messages, err := h.Messages(t.Context(), id, MessageOptions{})
		if err != nil || len(messages) != 3 {
			t.Errorf("got %d messages, %v", len(messages), err)
		}
	})
	t.Run("item 387: cut", func(t *testing.T) {
		got := h.forked("/x/work", h.fork(ForkOptions{Dir: "/x/work", UpTo: mid(4), Title: " mine "}))
		if len(got) != 4 || got[1]["forkedFrom"].(obj)["messageUuid"] != mid(4) || got[3]["customTitle"] != "mine" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("item 387: what cannot be forked", func(t *testing.T) {
		h.session("/x/work", 2, `{"type":"summary","summary":"x"}`)
		for _, test := range []struct {
			name, id string
			opts     ForkOptions
			want     error
		}{
			{"invalid id", "x", ForkOptions{}, ErrInvalidSessionID},
			{"missing", sid(9), ForkOptions{}, ErrSessionNotFound},
			{"elsewhere", sid(1), ForkOptions{Dir: "/other"}, ErrSessionNotFound},
			{"unknown message", sid(1), ForkOptions{UpTo: mid(99)}, ErrMessageNotFound},
			{"message that is no id", sid(1), ForkOptions{UpTo: "x"}, ErrMessageNotFound},
			{"nothing to fork", sid(2), ForkOptions{}, nil},
		} {
			id, err := h.Fork(t.Context(), test.id, test.opts)
			if err == nil || id != "" || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s: %q, %v", test.name, id, err)
			}
		}
	})
}

func TestForkTitles(t *testing.T) {
	for want, lines := range map[string][]string{
		"mine (fork)":           {user(1, 0, "hi"), `{"type":"ai-title","aiTitle":"made"}`, `{"type":"custom-title","customTitle":"mine"}`},
		"made (fork)":           {user(1, 0, "hi"), `{"type":"ai-title","aiTitle":"made"}`},
		"Forked session (fork)": {assistant(1, 0, "hi")},
	} {
		t.Run("item 371: "+want, func(t *testing.T) {
			h := newTestHome(t)
			h.session("/x/work", 1, lines...)
			got := h.forked("/x/work", h.fork(ForkOptions{}))
			if got[len(got)-1]["customTitle"] != want {
				t.Errorf("got %v", got[len(got)-1])
			}
		})
	}
}

func TestForkCompacted(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1,
		user(1, 0, "old"), assistant(2, 1, "kept"),
		message("system", 3, 0, nil, "subtype", "compact_boundary", "compactMetadata",
			obj{"trigger": "auto", "preservedMessages": obj{"anchorUuid": mid(5), "uuids": []string{mid(2)}}}),
		message("attachment", 4, 3, nil),
		user(5, 4, "so far", "isCompactSummary", true),
		user(6, 5, "new"),
	)
	read := func(opts ForkOptions) string {
		t.Helper()
		messages, err := h.Messages(t.Context(), h.fork(opts), MessageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range messages {
			var body struct{ Content string }
			json.Unmarshal(m.Message, &body)
			texts = append(texts, body.Content)
		}
		return strings.Join(texts, ", ")
	}
	for _, test := range []struct{ name, upTo, want string }{
		{"kept messages stay linked", "", "so far, kept, new"},
		{"a cut at the summary leaves them out", mid(5), "so far"},
		{"a cut at the boundary goes before it", mid(3), "old, kept"},
		{"and so does one between the two", mid(4), "old, kept"},
		{"a cut after both", mid(6), "so far, kept, new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := read(ForkOptions{UpTo: test.upTo}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestForkCircle(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, message("progress", 1, 2, nil), message("progress", 2, 1, nil), user(3, 2, "x"), user(4, 4, "y"))
	got := h.forked("/x/work", h.fork(ForkOptions{}))
	if got[0]["parentUuid"] != nil || got[1]["parentUuid"] != got[1]["uuid"] {
		t.Errorf("got %v", got)
	}
}

func TestForkKeepsOffExistingFiles(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, user(1, 0, "x"))
	p, err := h.openProjects()
	if err != nil {
		t.Fatal(err)
	}
	defer p.root.Close()
	if err := p.create("-x-work/"+sid(1)+".jsonl", nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	h.wantList(ListOptions{}, 1)
}
