package claude

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var testKey = SessionKey{Project: "p", Session: sid(1)}

func fold(prev Summary, lines ...string) Summary {
	return FoldSummary(prev, testKey, rawEntries(lines...))
}

func summaryData(t *testing.T, s Summary) obj {
	t.Helper()
	var data obj
	if err := json.Unmarshal(s.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFoldSummary(t *testing.T) {
	at := time.Now()
	first := fold(Summary{Modified: at},
		user(1, 0, "one", "cwd", "/a", "gitBranch", "a"),
		`{"type":"custom-title","customTitle":"t1"}`, `{"type":"ai-title","aiTitle":"a1"}`,
		`{"type":"last-prompt","lastPrompt":"l1"}`, `{"type":"summary","summary":"s1"}`, `{"type":"tag","tag":"g1"}`)
	before := slices.Clone(first.Data)
	second := fold(first,
		user(2, 1, "two", "cwd", "/b", "gitBranch", "b", "isSidechain", true),
		`{"type":"custom-title","customTitle":"t2"}`, `{"type":"ai-title","aiTitle":"a2"}`,
		`{"type":"last-prompt","lastPrompt":"l2"}`, `{"type":"summary","summary":"s2"}`, `{"type":"tag","tag":"g2"}`)
	t.Run("item 360: set once", func(t *testing.T) {
		got := summaryData(t, second)
		for name, want := range (obj{"cwd": "/a", "firstPrompt": "one", "isSidechain": nil, "createdAt": 1767225601000.0}) {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
	t.Run("item 360: the last wins", func(t *testing.T) {
		got := summaryData(t, second)
		for name, want := range (obj{"customTitle": "t2", "aiTitle": "a2", "lastPrompt": "l2", "summaryHint": "s2", "gitBranch": "b", "tag": "g2"}) {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
	t.Run("item 360: the time is the store's", func(t *testing.T) {
		if !second.Modified.Equal(at) || second.Session != sid(1) {
			t.Errorf("got %v, %q", second.Modified, second.Session)
		}
	})
	t.Run("item 360: the summary before is not changed", func(t *testing.T) {
		if !slices.Equal(before, first.Data) {
			t.Errorf("it is now %s", first.Data)
		}
	})
	t.Run("item 360: tag cleared", func(t *testing.T) {
		if got := summaryData(t, fold(second, `{"type":"tag","tag":""}`))["tag"]; got != nil {
			t.Errorf("tag is %v", got)
		}
	})
	t.Run("item 360: the first entry decides on sidechain", func(t *testing.T) {
		s := fold(Summary{}, `{"type":"x","isSidechain":true}`, user(1, 0, "hi"))
		if got := summaryData(t, s)["isSidechain"]; got != true {
			t.Errorf("got %v", got)
		}
	})
	t.Run("item 360: also in a summary that another SDK began", func(t *testing.T) {
		s := fold(Summary{Data: json.RawMessage(`{"cwd":"/a"}`)}, user(1, 0, "hi", "isSidechain", true))
		if got := summaryData(t, s)["isSidechain"]; got != nil {
			t.Errorf("got %v", got)
		}
	})
	t.Run("item 360: broken data starts anew", func(t *testing.T) {
		if got := summaryData(t, fold(Summary{Data: []byte("{")}, user(1, 0, "hi")))["firstPrompt"]; got != "hi" {
			t.Errorf("got %v", got)
		}
	})
}

func TestFirstPrompt(t *testing.T) {
	long := strings.Repeat("ä", 201)
	text := func(s ...string) (blocks []obj) {
		for _, s := range s {
			blocks = append(blocks, obj{"type": "text", "text": s})
		}
		return blocks
	}
	for _, test := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"simple", []string{user(1, 0, "hello")}, "hello"},
		{"newlines and spaces", []string{user(1, 0, "  a\nb\r\nc ")}, "a b c"},
		{"meta", []string{user(1, 0, "no", "isMeta", true), user(2, 1, "yes")}, "yes"},
		{"compact summary", []string{user(1, 0, "no", "isCompactSummary", true), user(2, 1, "yes")}, "yes"},
		{"tool result", []string{user(1, 0, append(toolResult("x"), text("no")...)), user(2, 1, "yes")}, "yes"},
		{"assistant", []string{assistant(1, 0, "no"), user(2, 1, "yes")}, "yes"},
		{"blocks", []string{user(1, 0, text("", "<ide_selection>x</ide_selection>", "yes", "later"))}, "yes"},
		{"200 characters", []string{user(1, 0, long[2:])}, long[2:]},
		{"cut", []string{user(1, 0, long)}, long[2:] + "…"},
		{"command only if nothing else", []string{user(1, 0, "<command-name>/init</command-name> x")}, "/init"},
		{"first command", []string{user(1, 0, "<command-name>/a</command-name>"), user(2, 1, "<command-name>/b</command-name>")}, "/a"},
		{"prompt before command", []string{user(1, 0, "<command-name>/init</command-name>"), user(2, 1, "yes")}, "yes"},
		{"shell", []string{user(1, 0, "<bash-input>ls -l</bash-input>")}, "! ls -l"},
		{"output", []string{user(1, 0, "<local-command-stdout>x</local-command-stdout>"), user(2, 1, "yes")}, "yes"},
		{"hook", []string{user(1, 0, "<session-start-hook>x"), user(2, 1, "yes")}, "yes"},
		{"interrupt", []string{user(1, 0, "[Request interrupted by user for tool use]"), user(2, 1, "yes")}, "yes"},
		{"not a tag", []string{user(1, 0, "<3 you")}, "<3 you"},
		{"empty", []string{user(1, 0, ""), user(2, 1, nil)}, ""},
	} {
		t.Run("items 360, 376: "+test.name, func(t *testing.T) {
			d := digestEntries(rawEntries(test.lines...))
			info, _ := d.info("", "", time.Time{})
			if info.FirstPrompt != test.want {
				t.Errorf("got %q, want %q", info.FirstPrompt, test.want)
			}
		})
	}
}

func TestDigestInfo(t *testing.T) {
	now := time.Now()
	full := sessionDigest{CustomTitle: "c", AITitle: "a", LastPrompt: "l", SummaryHint: "s", FirstPrompt: "f", GitBranch: "b", Tag: "t", Cwd: "/d", CreatedAt: 1000}
	for i, want := range []string{"c", "a", "l", "s", "f"} {
		t.Run("item 361: precedence "+want, func(t *testing.T) {
			d := full
			for _, field := range []*string{&d.CustomTitle, &d.AITitle, &d.LastPrompt, &d.SummaryHint, &d.FirstPrompt}[:i] {
				*field = ""
			}
			if got, ok := d.info("id", "", now); got.Summary != want || !ok {
				t.Errorf("got %q, %v", got.Summary, ok)
			}
		})
	}
	t.Run("item 361: fields pass", func(t *testing.T) {
		got, _ := full.info("id", "/fallback", now)
		want := SessionInfo{ID: "id", Summary: "c", Title: "c", FirstPrompt: "f", GitBranch: "b", Dir: "/d", Tag: "t", Created: time.UnixMilli(1000), Modified: now}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("item 361: directory stands in", func(t *testing.T) {
		d := full
		d.Cwd = ""
		if got, _ := d.info("id", "/fallback", now); got.Dir != "/fallback" {
			t.Errorf("got %q", got.Dir)
		}
	})
	t.Run("item 361: nothing to show", func(t *testing.T) {
		side := full
		side.IsSidechain = true
		for _, d := range []sessionDigest{{}, {GitBranch: "x"}, side} {
			if _, ok := d.info("id", "/d", now); ok {
				t.Errorf("%+v is shown", d)
			}
		}
	})
}

// TestSummaryParity compares the two ways to the same row.
func TestSummaryParity(t *testing.T) {
	for i, lines := range [][]string{
		{user(1, 0, "only a prompt")},
		{user(1, 0, "a"), assistant(2, 1, "b", "gitBranch", "x"), `{"type":"tag","tag":"t"}`, `{"type":"ai-title","aiTitle":"made"}`},
		{`{"type":"mode"}`, user(1, 0, "<command-name>/x</command-name>"), `{"type":"custom-title","customTitle":"c"}`, `{"type":"tag","tag":""}`},
		{user(1, 0, []obj{{"type": "image"}}), `{"type":"relocated","relocatedCwd":"/r"}`},
	} {
		t.Run(fmt.Sprintf("item 364: stream %d", i), func(t *testing.T) {
			h := newTestHome(t)
			h.session("/x/work", 1, lines...)
			var sum Summary
			for _, l := range lines {
				sum = fold(sum, l)
			}
			var d sessionDigest
			if err := json.Unmarshal(sum.Data, &d); err != nil {
				t.Fatal(err)
			}
			want := h.info(1)
			got, _ := d.info(sid(1), "", want.Modified)
			got.Size = want.Size
			if got != want {
				t.Errorf("folded\n%+v, from disk\n%+v", got, want)
			}
		})
	}
}
