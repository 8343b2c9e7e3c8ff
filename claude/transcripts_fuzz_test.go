package claude

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// fuzzSeeds are transcripts with something of everything.
func fuzzSeeds(f *testing.F) {
	for _, lines := range [][]string{
		{user(1, 0, "hi"), assistant(2, 1, "b"), `{"type":"tag","tag":"x"}`},
		{user(1, 3, "a"), response(2, 1, "m", toolUse("x")), response(3, 2, "m", toolUse("y")), user(4, 2, toolResult("x")), user(5, 3, toolResult("y"))},
		{message("system", 1, 1, nil, "subtype", "compact_boundary", "compactMetadata", obj{
			"preservedMessages": obj{"anchorUuid": mid(2), "uuids": []string{mid(1), mid(3)}}}), user(2, 1, "s", "isCompactSummary", true), user(3, 0, "x")},
		{message("system", 1, 0, nil, "subtype", "compact_boundary", "compactMetadata", obj{
			"preservedSegment": obj{"headUuid": mid(3), "anchorUuid": mid(2), "tailUuid": mid(3)}}), user(2, 1, "s"), user(3, 3, "x")},
		{message("attachment", 1, 0, nil, "attachment", obj{"type": "queued_command", "prompt": []int{1}})},
		{line(obj{"type": "content-replacement", "sessionId": sid(1), "replacements": []any{nil, 1}}), message("progress", 1, 1, nil), user(2, 1, "x")},
		{line(obj{"type": "continued-in", "continuedInSessionId": sid(1)}), user(1, 0, "x")},
		{`{"type":["user"],"uuid":7}`, "{", "", "null", `{"a":1}{"b":2}`, "\x00\xff", `{"type":"user","type":"tag"}`},
		{strings.Repeat("[", 1000)},
	} {
		f.Add([]byte(strings.Join(lines, "\n")))
	}
}

// FuzzListing puts a foreign file beside a sound one.
func FuzzListing(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newTestHome(t)
		h.session("/x/work", 2, user(1, 0, "sound"))
		if err := os.WriteFile(h.path("/x/work", sid(1)+".jsonl"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		sound := 0
		for _, info := range h.list(ListOptions{}) {
			if info.Summary == "" {
				t.Error("listed without a summary")
			}
			if info.ID == sid(2) {
				sound++
			}
		}
		if sound != 1 {
			t.Errorf("the sound session is listed %d times", sound)
		}
	})
}

// FuzzTranscript feeds a foreign transcript to what reads and copies one.
func FuzzTranscript(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		lines, err := readTranscript(t.Context(), bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		messages := conversation(lines, sid(1), true)
		seen := make(map[string]bool)
		for _, m := range messages {
			if seen[m.UUID] {
				t.Errorf("message %q is there twice", m.UUID)
			}
			seen[m.UUID] = true
			if !json.Valid(m.Raw) || len(m.Message) > 0 && !json.Valid(m.Message) {
				t.Errorf("not JSON: %s, %s", m.Raw, m.Message)
			}
		}
		copying := fork{from: sid(1), to: sid(2)}
		copied, err := copying.copy(lines, ForkOptions{})
		if err != nil {
			return // nothing to fork
		}
		for _, e := range copied {
			o, ok := parseObject(e)
			if !ok || string(o.get("sessionId")) != `"`+sid(2)+`"` || bytes.ContainsRune(e, '\n') {
				t.Errorf("copied %q", e)
			}
		}
	})
}

// FuzzTranscriptLine checks that a line is read the same whole and, as far as
// it goes, cut.
func FuzzTranscriptLine(f *testing.F) {
	fuzzSeeds(f)
	f.Add([]byte(`{"type":"user","cwd":"/a","message":{"content":"cut he`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, ok := parseCutLine(data); ok == (l == nil) {
			t.Errorf("cut: %v, %v", l, ok)
		}
		l, ok := parseTranscriptLine(data)
		if ok == (l == nil) {
			t.Fatalf("%v, %v", l, ok)
		}
		o, isObject := parseObject(bytes.TrimSpace(data))
		if isObject != ok {
			t.Fatalf("object %v, line %v", isObject, ok)
		}
		if !ok {
			return
		}
		out := o.bytes()
		if !json.Valid(out) || bytes.ContainsRune(out, '\n') {
			t.Errorf("%q became %q", data, out)
		}
		l.time()
		l.content()
		l.messageID()
		var d sessionDigest
		d.add(l)
		if len([]rune(d.FirstPrompt)) > maxFirstPrompt+1 {
			t.Errorf("first prompt of %d characters", len([]rune(d.FirstPrompt)))
		}
	})
}
