package tools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzInput gives every tool but Bash hostile inputs: none panics, none changes
// anything outside, and every result is bounded.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{
		`{"file_path":"a.txt"}`, `{"file_path":"../../etc/passwd","offset":-1,"limit":1e300}`, `{"file_path":"\u0000"}`, `{"pattern":"**/{a,[b]}*"}`,
		`{"pattern":"(?i)a|b*","output_mode":"content","-C":"3","multiline":true}`, `{"file_path":"a.txt","old_string":"","new_string":"x"}`,
		`{"file_path":"a.txt","edits":[{"old_string":"a","new_string":"b"}]}`, `{"todos":[{"content":"a","status":"pending","activeForm":"b"}]}`,
		`{"task_id":"x","block":false}`, `null`, `[]`, `{`, ``, `{"file_path":{"a":1}}`, `{"pattern":"[a","glob":"{{{"}`, `{"url":"http://[::1]:99999/","prompt":""}`,
		`{"file_path":"` + strings.Repeat("../", 200) + `etc/passwd"}`, `{"pattern":"a{1000}{1000}"}`,
	} {
		f.Add(seed)
	}
	s := newSet(f, Options{MaxResult: 2000, AllowHost: func(string) bool { return false }}, "a.txt", "one\ntwo\n", "sub/b.go", "package b\n")
	tools := s.Tools()
	f.Fuzz(func(t *testing.T, input string) {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		for _, tool := range tools {
			if tool.Name == "Bash" {
				// What it decodes is not run.
				decode[bashInput](tool, json.RawMessage(input))
				continue
			}
			if tool.Name == "TaskOutput" && strings.Contains(input, "timeout") {
				continue
			}
			if tool.Access != nil {
				access, err := tool.Access(json.RawMessage(input))
				if err == nil && access.Input != nil && !json.Valid(access.Input) {
					t.Errorf("%s: input became %q", tool.Name, access.Input)
				}
			}
			result, err := tool.Run(ctx, json.RawMessage(input))
			if err == nil && len(result.Text) > 2000 {
				t.Errorf("%s: %d bytes", tool.Name, len(result.Text))
			}
			if ctx.Err() != nil {
				t.Errorf("%s took too long", tool.Name)
			}
		}
	})
}

// FuzzNotebook reads hostile notebooks: nothing panics, and no more pictures
// come than may.
func FuzzNotebook(f *testing.F) {
	f.Add(`{"cells":[{"cell_type":"code","source":["a"],"outputs":[{"output_type":"stream","text":"x"}]}]}`)
	f.Add(`{"cells":[{"cell_type":"code","source":7,"outputs":[{"output_type":"display_data","data":{"image/png":["iVBO","Rw0KGgo="]}}]}]}`)
	f.Add(`{"cells":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, data string) {
		result, err := showNotebook([]byte(data))
		if err == nil && (len(result.Blocks) > maxImages || !utf8.ValidString(result.Text)) {
			t.Errorf("%d pictures, %q", len(result.Blocks), result.Text)
		}
	})
}

// FuzzHTML reads hostile pages: nothing panics, and the text is not much longer
// than the page.
func FuzzHTML(f *testing.F) {
	for _, seed := range []string{"<p>x", "<a href='x", "<a href=/x>" + strings.Repeat("</a>", 9), "<h6><h6><li><td>", "<pre><pre></pre>", "<!--", "</", "<script></scr", "&#x110000;&amp", "\xff<\xffa>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, page string) {
		if text := htmlText(strings.ToValidUTF8(page, "")); len(text) > 4*len(page)+20 || !utf8.ValidString(text) {
			t.Errorf("%d bytes became %d: %q", len(page), len(text), text)
		}
	})
}

// FuzzPattern compiles hostile globs and matches them: nothing panics, and what
// compiles matches something in time.
func FuzzPattern(f *testing.F) {
	for _, seed := range []string{"**/*.go", "a/**/b", "[!a-z]*", "{a,b{c,d}}", `\`, "[]]", "[^/]", "!x/", "/", "{**,x}/y", "[a&&b]", "[[:alpha:]]"} {
		f.Add(seed, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		for _, braces := range []bool{true, false} {
			if p, err := compilePattern(glob, braces); err == nil {
				p.match(name, false)
				p.match(name, true)
			}
		}
	})
}

// FuzzBound cuts hostile text: what comes back is bounded and is text.
func FuzzBound(f *testing.F) {
	f.Add("id", strings.Repeat("ö", 900))
	f.Add("../x", strings.Repeat("a\n", 900))
	f.Add("", strings.Repeat("\x80", 1200))
	s := newSet(f, Options{MaxResult: 1000})
	f.Fuzz(func(t *testing.T, id, text string) {
		got, err := s.Bound(id, text)
		if err != nil || len(got) > 1000 && got != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if utf8.ValidString(text) && utf8.ValidString(id) && !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
