package claude

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// wantMessages fails unless the session has the messages with these numbers.
func (h *testHome) wantMessages(opts MessageOptions, want ...int) []TranscriptMessage {
	h.Helper()
	messages, err := h.Messages(h.Context(), sid(1), opts)
	if err != nil {
		h.Fatalf("Messages: %v", err)
	}
	wantUUIDs(h.T, messages, want...)
	return messages
}

func wantUUIDs(t *testing.T, messages []TranscriptMessage, want ...int) {
	t.Helper()
	got, ids := []string{}, []string{}
	for _, m := range messages {
		got = append(got, strings.TrimLeft(m.UUID[:8], "0"))
	}
	for _, n := range want {
		ids = append(ids, fmt.Sprint(n))
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("got messages %v, want %v", got, ids)
	}
}

func toolUse(id string) []obj    { return []obj{{"type": "tool_use", "id": id, "name": "Read"}} }
func toolResult(id string) []obj { return []obj{{"type": "tool_result", "tool_use_id": id}} }

// response is an assistant entry of the API response with an id.
func response(n, parent int, id string, content any) string {
	return assistant(n, parent, nil, "message", obj{"id": id, "role": "assistant", "content": content})
}

func TestMessages(t *testing.T) {
	boundary := func(n int, meta obj) string {
		return message("system", n, 0, nil, "subtype", "compact_boundary", "message", nil, "compactMetadata", meta)
	}
	summary := func(n, parent int) string { return user(n, parent, "so far", "isCompactSummary", true) }
	for _, test := range []struct {
		name  string
		lines []string
		want  []int
	}{
		{"item 378: in order of the chain", []string{assistant(2, 1, "b"), user(1, 0, "a"), user(3, 2, "c")}, []int{1, 2, 3}},
		{"item 378: no meta, progress, system", []string{
			user(1, 0, "a"), message("system", 2, 1, nil), message("progress", 3, 2, nil), user(4, 3, "m", "isMeta", true), assistant(5, 4, "b"),
		}, []int{1, 5}},
		{"item 378: compact summaries are kept", []string{summary(1, 0), assistant(2, 1, "b")}, []int{1, 2}},
		{"item 378: own messages before a sidechain's", []string{user(1, 0, "a"), assistant(2, 1, "b"), assistant(3, 1, "c", "isSidechain", true)}, []int{1, 2}},
		{"item 378: own messages before a team's", []string{user(1, 0, "a"), assistant(2, 1, "b"), assistant(3, 1, "c", "teamName", "t")}, []int{1, 2}},
		{"item 378: the branch that is last in the file", []string{user(1, 0, "a"), assistant(2, 1, "b"), user(3, 2, "c"), user(4, 2, "d")}, []int{1, 2, 4}},
		{"item 378: terminal progress is walked back", []string{user(1, 0, "a"), assistant(2, 1, "b"), message("progress", 3, 2, nil)}, []int{1, 2}},
		{"item 378: corrupt lines", []string{user(1, 0, "a"), "{broken", "", "7", assistant(2, 1, "b")}, []int{1, 2}},
		{"item 378: circle", []string{user(1, 3, "a"), assistant(2, 1, "b"), user(3, 2, "c")}, []int{1, 2, 3}},
		{"item 378: circle above a leaf", []string{user(1, 2, "a"), assistant(2, 1, "b"), user(3, 2, "c")}, []int{1, 2, 3}},
		{"item 378: own parent", []string{user(1, 1, "a")}, []int{1}},
		{"item 378: only metadata", []string{`{"type":"summary","summary":"x"}`, `{"type":"user"}`, `{"type":"user","uuid":7}`}, nil},
		{"item 378: logicalParentUuid is not followed", []string{user(1, 0, "a"), user(2, 0, "b", "logicalParentUuid", mid(1))}, []int{2}},
		{"an entry written twice counts once", []string{user(1, 0, "a"), assistant(2, 1, "b"), user(1, 0, "a"), assistant(2, 1, "b")}, []int{1, 2}},

		{"item 419: parallel tool results", []string{
			user(1, 0, "go"), response(2, 1, "m", toolUse("x")), response(3, 2, "m", toolUse("y")),
			user(4, 2, toolResult("x")), user(5, 3, toolResult("y")), assistant(6, 5, "done"),
		}, []int{1, 2, 3, 4, 5, 6}},
		{"item 419: the later result is off the chain", []string{
			user(1, 0, "go"), response(2, 1, "m", toolUse("x")), response(3, 2, "m", toolUse("y")),
			user(4, 3, toolResult("y")), user(5, 2, toolResult("x")), assistant(6, 4, "done"),
		}, []int{1, 2, 3, 4, 5, 6}},
		{"item 419: siblings off the chain", []string{
			user(1, 0, "go"), response(2, 1, "m", toolUse("x")), response(3, 1, "m", toolUse("y")), response(4, 1, "m", toolUse("z")),
			user(5, 2, toolResult("x")), user(6, 3, toolResult("y")), user(7, 4, toolResult("z")), assistant(8, 7, "done"),
		}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"item 419: by the call that a result names", []string{
			user(1, 0, "go"), response(2, 1, "m", toolUse("x")), response(3, 2, "m", toolUse("y")),
			user(4, 3, toolResult("y")), user(5, 9, toolResult("x"), "sourceToolAssistantUUID", mid(2)), assistant(6, 4, "done"),
		}, []int{1, 2, 3, 4, 5, 6}},
		{"item 419: a result that is there already stays out", []string{
			user(1, 0, "go"), response(2, 1, "m", toolUse("x")), user(3, 2, toolResult("x")), user(4, 2, toolResult("x")), assistant(5, 4, "done"),
		}, []int{1, 2, 4, 5}},
		{"item 419: a branch left behind stays out", []string{
			user(1, 0, "go"), response(2, 1, "m", "hi"), user(3, 2, "left"), user(4, 2, "taken"),
		}, []int{1, 2, 4}},

		{"item 419: messages kept by a compaction", []string{
			user(1, 0, "old"), assistant(2, 1, "old"), user(3, 2, "kept"), assistant(4, 3, "kept"),
			boundary(5, obj{"preservedMessages": obj{"anchorUuid": mid(6), "uuids": []string{mid(3), mid(4)}}}),
			summary(6, 5), user(7, 6, "new"),
		}, []int{6, 3, 4, 7}},
		{"item 419: segment kept by an older CLI", []string{
			user(1, 0, "old"), assistant(2, 1, "old"), user(3, 2, "kept"), assistant(4, 3, "kept"),
			boundary(5, obj{"preservedSegment": obj{"headUuid": mid(3), "anchorUuid": mid(6), "tailUuid": mid(4)}}),
			summary(6, 5), user(7, 6, "new"),
		}, []int{6, 3, 4, 7}},
		{"item 419: kept messages that make no sense", []string{
			user(1, 0, "old"),
			boundary(2, obj{"preservedMessages": obj{"anchorUuid": mid(3), "uuids": []string{mid(3), "gone", mid(1), mid(1)}}}),
			boundary(3, obj{"preservedSegment": obj{"headUuid": "gone", "anchorUuid": mid(2), "tailUuid": mid(1)}}),
			boundary(4, obj{"preservedMessages": 7}),
			user(5, 4, "new"),
		}, []int{5}},
		{"7.5: prompts typed while the model worked", []string{
			user(1, 0, "a"),
			message("attachment", 2, 1, nil, "message", nil, "attachment", obj{"type": "queued_command", "prompt": "wait"}),
			message("attachment", 3, 2, nil, "message", nil, "attachment", obj{"type": "queued_command", "prompt": "x", "commandMode": "task-notification"}),
			message("attachment", 4, 3, nil, "message", nil, "attachment", obj{"type": "file"}),
			assistant(5, 4, "b"),
		}, []int{1, 2, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHome(t)
			h.session("/x/work", 1, test.lines...)
			h.wantMessages(MessageOptions{}, test.want...)
			h.wantMessages(MessageOptions{Dir: "/x/work"}, test.want...)

			var s MemoryStore // the same lines in a store, as far as they are JSON
			for _, l := range test.lines {
				if e, ok := parseTranscriptLine([]byte(l)); ok {
					s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(string(e.raw)))
				}
			}
			messages, err := Transcripts{Store: &s}.Messages(t.Context(), sid(1), MessageOptions{Dir: "/x/work"})
			if err != nil {
				t.Fatal(err)
			}
			wantUUIDs(t, messages, test.want...)
		})
	}
	t.Run("items 367, 378: limit and offset", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/x/work", 1, user(1, 0, "a"), assistant(2, 1, "b"), user(3, 2, "c"))
		h.wantMessages(MessageOptions{Limit: 2}, 1, 2)
		h.wantMessages(MessageOptions{Limit: 1, Offset: 1}, 2)
		h.wantMessages(MessageOptions{Offset: 5})
	})
	t.Run("7.5: system messages on request", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/x/work", 1, user(1, 0, "a"), message("system", 2, 1, nil), assistant(3, 2, "b"))
		h.wantMessages(MessageOptions{System: true}, 1, 2, 3)
	})
	t.Run("item 378: invalid, missing, empty", func(t *testing.T) {
		h := newTestHome(t)
		h.wantMessages(MessageOptions{})
		h.session("/x/work", 1)
		h.wantMessages(MessageOptions{})
		for _, id := range []string{"", "x", "../../etc/passwd"} {
			if got, err := h.Messages(t.Context(), id, MessageOptions{}); len(got) != 0 || err != nil {
				t.Errorf("Messages(%q) = %v, %v", id, got, err)
			}
		}
	})
	t.Run("item 378: what a message carries", func(t *testing.T) {
		h := newTestHome(t)
		first := user(1, 0, "a", "sessionId", nil)
		h.session("/x/work", 1, first, assistant(2, 1, "b"))
		m := h.wantMessages(MessageOptions{}, 1, 2)
		if m[0].SessionID != sid(1) || m[0].Type != "user" || m[0].ParentToolUseID != "" || m[0].ParentAgentID != "" {
			t.Errorf("got %+v", m[0])
		}
		if string(m[0].Raw) != first || string(m[0].Message) != `{"content":"a","role":"user"}` || m[0].Timestamp.Second() != 1 {
			t.Errorf("got %s, %s, %v", m[0].Raw, m[0].Message, m[0].Timestamp)
		}
	})
	t.Run("a context that ended ends the reading", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/x/work", 1, user(1, 0, strings.Repeat("x", 200<<10)))
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		if _, err := h.Messages(ctx, sid(1), MessageOptions{}); !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
		if _, err := h.List(ctx, ListOptions{}); !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
	})
}

func TestReadTranscriptSkipsOverlongLines(t *testing.T) {
	r := strings.NewReader("{\"type\":\"a\"}\n{" + strings.Repeat(" ", maxTranscriptLine) + "}\n{\"type\":\"b\"}")
	lines, err := readTranscript(t.Context(), r)
	if err != nil || len(lines) != 2 || lines[1].Type != "b" {
		t.Errorf("got %d lines, %v", len(lines), err)
	}
}

func TestSubagents(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, user(1, 0, "a"))
	side := func(s string) string { return strings.Replace(s, "{", `{"isSidechain":true,`, 1) }
	h.write("/x/work", sid(1)+"/subagents/agent-x.jsonl", side(user(1, 0, "a")), "{broken", side(assistant(2, 1, "b")), side(assistant(3, 1, "other branch")), side(user(4, 2, "c")))
	h.write("/x/work", sid(1)+"/subagents/agent-x.meta.json", `{"agentType":"t","toolUseId":"toolu_1","parentAgentId":"p"}`)
	h.write("/x/work", sid(1)+"/subagents/workflows/run/agent-y.jsonl", side(user(1, 0, "a")))
	h.write("/x/work", sid(1)+"/subagents/workflows/run/agent-y.meta.json", `{"toolUseId":"toolu_2"}`)
	h.write("/x/work", sid(1)+"/subagents/workflows/run/agent-x.jsonl", side(user(9, 0, "shadowed")))
	h.write("/x/work", sid(1)+"/subagents/agent-bad.jsonl", side(user(1, 0, "a")))
	h.write("/x/work", sid(1)+"/subagents/agent-bad.meta.json", `["toolUseId"]`)
	h.write("/x/work", sid(1)+"/subagents/agent-odd.jsonl", side(user(1, 0, "a")))
	h.write("/x/work", sid(1)+"/subagents/agent-odd.meta.json", `{"toolUseId":7,"parentAgentId":null}`)
	h.write("/x/work", sid(1)+"/subagents/agent-empty.jsonl")
	h.write("/x/work", sid(1)+"/subagents/notes.txt", "x")
	h.write("/x/work", sid(1)+"/subagents/other.jsonl", "x")
	h.write("/x/work", sid(1)+"/agent-z.jsonl", "x")
	h.session("/x/work", 2, user(1, 0, "a"))
	h.session("/x/work", 3, user(1, 0, "a"))
	if err := os.MkdirAll(h.path("/x/work", sid(3), "subagents"), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct{ name, id, dir, want string }{
		{"item 382: in its directory", sid(1), "/x/work", "[bad empty odd x y]"},
		{"item 382: in all projects", sid(1), "", "[bad empty odd x y]"},
		{"item 382: elsewhere", sid(1), "/other", "[]"},
		{"item 382: no folder", sid(2), "", "[]"},
		{"item 382: empty folder", sid(3), "", "[]"},
		{"item 382: missing", sid(9), "", "[]"},
		{"item 382: invalid", "../x", "", "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := h.Subagents(t.Context(), test.id, test.dir)
			if fmt.Sprint(got) != test.want || err != nil {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
		})
	}
	for _, test := range []struct {
		name, agent  string
		want         []int
		tool, parent string
	}{
		{"item 382: chain with its origin", "x", []int{1, 2, 4}, "toolu_1", "p"},
		{"item 382: nested", "y", []int{1}, "toolu_2", ""},
		{"item 382: bad sidecar", "bad", []int{1}, "", ""},
		{"item 382: odd sidecar", "odd", []int{1}, "", ""},
		{"item 382: empty file", "empty", nil, "", ""},
		{"item 382: missing", "none", nil, "", ""},
		{"item 382: no id", "", nil, "", ""},
		{"item 382: traversal", "../../../x", nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := h.SubagentMessages(t.Context(), sid(1), test.agent, MessageOptions{})
			if err != nil {
				t.Fatal(err)
			}
			wantUUIDs(t, got, test.want...)
			for _, m := range got {
				if m.ParentToolUseID != test.tool || m.ParentAgentID != test.parent {
					t.Errorf("origin is %q, %q, want %q, %q", m.ParentToolUseID, m.ParentAgentID, test.tool, test.parent)
				}
			}
		})
	}
	t.Run("item 382: paging", func(t *testing.T) {
		got, err := h.SubagentMessages(t.Context(), sid(1), "x", MessageOptions{Limit: 1, Offset: 1})
		if err != nil {
			t.Fatal(err)
		}
		wantUUIDs(t, got, 2)
	})
	t.Run("item 382: invalid session", func(t *testing.T) {
		if got, err := h.SubagentMessages(t.Context(), "x", "x", MessageOptions{}); len(got) != 0 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}
