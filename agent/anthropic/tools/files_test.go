package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

func TestReadText(t *testing.T) {
	s := newSet(t, Options{},
		"a.txt", "one\ntwo\nthree\n", "b.txt", "no newline", "empty.txt", "", "crlf.txt", "x\r\ny\r\n",
		"bom.txt", "\xef\xbb\xbfbom\nline\n", "latin.txt", "caf\xe9\n", "bin.dat", "a\x00b", "sub/c.txt", "c")
	for _, test := range []struct {
		input in
		want  string
	}{
		{in{"file_path": "a.txt"}, "1\tone\n2\ttwo\n3\tthree\n4\t"},
		{in{"file_path": "W/a.txt"}, "1\tone\n2\ttwo\n3\tthree\n4\t"},
		{in{"file_path": "W/a.txt", "offset": 2, "limit": 1}, "2\ttwo"},
		{in{"file_path": "W/a.txt", "offset": "2", "limit": "1"}, "2\ttwo"},
		{in{"file_path": "W/a.txt", "offset": 0, "limit": 2.0}, "1\tone\n2\ttwo"},
		{in{"file_path": "W/a.txt", "offset": nil}, "1\tone\n2\ttwo\n3\tthree\n4\t"},
		{in{"file_path": "b.txt"}, "1\tno newline"},
		{in{"file_path": "crlf.txt"}, "1\tx\n2\ty\n3\t"},
		{in{"file_path": "bom.txt"}, "1\tbom\n2\tline\n3\t"},
		{in{"file_path": "latin.txt"}, "1\tcaf\uFFFD\n2\t"},
		{in{"file_path": "sub/../sub/c.txt"}, "1\tc"},
		{in{"file_path": "empty.txt"}, "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"},
		{in{"file_path": "a.txt", "offset": 9}, "<system-reminder>Warning: the file exists but is shorter than the provided offset (9). The file has 4 lines.</system-reminder>"},
	} {
		test.input["file_path"] = strings.Replace(test.input["file_path"].(string), "W", s.folders[0].path, 1)
		equal(t, fmt.Sprint(test.input), must(t, s, "Read", test.input), test.want)
	}
	for _, test := range []struct {
		input in
		want  string
	}{
		{in{"file_path": "gone.txt"}, "File does not exist. Note: your current working directory is W."},
		{in{"file_path": "a.txt/x"}, "File does not exist. Note: your current working directory is W."},
		{in{"file_path": "sub"}, "EISDIR: illegal operation on a directory, read 'W/sub'"},
		{in{"file_path": "bin.dat"}, "This tool cannot read binary files. The file appears to be a binary .dat file. Use a shell command or script that can read the format."},
		{in{}, "InputValidationError: Read failed due to the following issue:\nThe required parameter `file_path` is missing"},
		{in{"file_path": "a.txt", "bogus": 1}, "InputValidationError: Read failed due to the following issue:\nAn unexpected parameter `bogus` was provided"},
		{in{"file_path": 3}, "InputValidationError: Read failed due to the following issue:\nThe parameter `file_path` type is expected as `string` but provided as `number`"},
		{in{"file_path": "a.txt", "limit": -1}, "InputValidationError: Read failed due to the following issue:\nThe parameter `limit` must be greater than 0"},
		{in{"file_path": ""}, "the path is empty"},
		{in{"file_path": "a\x00b"}, `the path "a\x00b" holds a zero byte`},
	} {
		equal(t, fmt.Sprint(test.input), refused(t, s, "Read", test.input), test.want)
	}
}

func TestReadIsBounded(t *testing.T) {
	s := newSet(t, Options{MaxResult: 5000}, "long.txt", strings.Repeat("x", 1<<20)+"\nshort\n")
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintln(&many, i+1)
	}
	put(t, s, "many.txt", many.String())
	got := must(t, s, "Read", in{"file_path": "many.txt"})
	if len(got) > 5000 {
		t.Errorf("%d bytes", len(got))
	}
	contains(t, "the note", got, "of 5001 are shown, as many as fit. Read on with offset: ")
	// Reading on as it says leads to the end.
	offset, lines, parts := 1, 0, 0
	for offset > 0 {
		if parts++; parts > 100 {
			t.Fatal("there is no end")
		}
		got := must(t, s, "Read", in{"file_path": "many.txt", "offset": offset})
		body, note, cut := strings.Cut(got, "\n\n<system-reminder>")
		lines += strings.Count(body, "\n") + 1
		offset = 0
		if cut {
			_, note, _ = strings.Cut(note, "Read on with offset: ")
			fmt.Sscan(note, &offset)
		}
	}
	if lines != 5001 {
		t.Errorf("%d lines in %d parts", lines, parts)
	}
	got = must(t, s, "Read", in{"file_path": "long.txt"})
	if len(got) > 5000 {
		t.Errorf("a long line became %d bytes", len(got))
	}
	got = must(t, s, "Read", in{"file_path": "long.txt", "offset": 2})
	equal(t, "behind the long line", got, "2\tshort\n3\t")
}

func TestReadOfHugeFileTakesARange(t *testing.T) {
	s := newSet(t, Options{}, "huge.txt", "first\nsecond\n")
	if err := os.Truncate(filepath.Join(s.folders[0].path, "huge.txt"), 1<<40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	contains(t, "binary", refused(t, s, "Read", in{"file_path": "huge.txt"}), "cannot read binary files")
	f, err := os.OpenFile(filepath.Join(s.folders[0].path, "huge.txt"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(strings.Repeat("line\n", 4000))
	f.Close()
	equal(t, "a range", must(t, s, "Read", in{"file_path": "huge.txt", "offset": 10, "limit": 2}), "10\tline\n11\tline")
}

func pngData(t testing.TB) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadMedia(t *testing.T) {
	pic := pngData(t)
	page := "3 0 obj<</Type/Page/Parent 2 0 R>>endobj\n"
	s := newSet(t, Options{}, "p.png", string(pic), "d.pdf", "%PDF-1.1\n/Type/Pages\n"+page,
		"fat.pdf", "%PDF-1.1\n"+strings.Repeat("<</Type /Page>>\n", 101), "large.png", string(pic)+strings.Repeat("x", maxImage))
	result, err := run(t, s, "Read", in{"file_path": "p.png"})
	if err != nil {
		t.Fatal(err)
	}
	if img, ok := result.Blocks[0].(*claude.Image); !ok || img.Source.MediaType != "image/png" {
		t.Errorf("blocks %+v", result.Blocks)
	}
	result, err = run(t, s, "Read", in{"file_path": "d.pdf"})
	if err != nil {
		t.Fatal(err)
	}
	if doc, ok := result.Blocks[0].(*claude.Document); !ok || doc.Source.MediaType != "application/pdf" {
		t.Errorf("blocks %+v", result.Blocks)
	}
	contains(t, "pages", refused(t, s, "Read", in{"file_path": "d.pdf", "pages": "1-2"}), "leave `pages` out")
	contains(t, "too many pages", refused(t, s, "Read", in{"file_path": "fat.pdf"}), "has 101 pages")
	contains(t, "too large", refused(t, s, "Read", in{"file_path": "large.png"}), "exceeds maximum allowed size")
}

func TestReadNotebook(t *testing.T) {
	pic, _ := json.Marshal(pngData(t))
	s := newSet(t, Options{}, "bad.ipynb", "{", "n.ipynb", `{"cells":[
{"cell_type":"markdown","id":"m1","source":["# Title\n","text"]},
{"cell_type":"code","id":"c1","source":["print(1)\n"],"outputs":[
 {"output_type":"stream","name":"stdout","text":["1\n"]},
 {"output_type":"display_data","data":{"image/png":`+string(pic)+`,"text/plain":["<Figure>"]}},
 {"output_type":"error","ename":"ValueError","evalue":"bad","traceback":["tb1","tb2"]}]},
{"cell_type":"raw","source":"raw text"}],"metadata":{"language_info":{"name":"python"}}}`)
	result, err := run(t, s, "Read", in{"file_path": "n.ipynb"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "text", result.Text, `<cell id="m1"><cell_type>markdown</cell_type># Title
text</cell id="m1">
<cell id="c1">print(1)
</cell id="c1">

1


<Figure>
[picture 1]

ValueError: bad
tb1
tb2
<cell id="cell-2"><cell_type>raw</cell_type>raw text</cell id="cell-2">`)
	if len(result.Blocks) != 1 {
		t.Errorf("%d pictures", len(result.Blocks))
	}
	contains(t, "broken", refused(t, s, "Read", in{"file_path": "bad.ipynb"}), "Read it as text with offset: 1")
	equal(t, "as text", must(t, s, "Read", in{"file_path": "bad.ipynb", "offset": 1}), "1\t{")
}

func TestEdit(t *testing.T) {
	s := newSet(t, Options{}, "foo.txt", "foo\nfoo\nbar foo\n", "crlf.txt", "x\r\ny\r\nz\r\n", "mixed.txt", "a\r\nb\nc\n",
		"bom.txt", "\xef\xbb\xbfbom\nline\n", "latin.txt", "caf\xe9 one\n")
	edit := func(name, old, new string, more ...any) in {
		i := in{"file_path": name, "old_string": old, "new_string": new}
		if len(more) > 0 {
			i["replace_all"] = more[0]
		}
		return i
	}
	equal(t, "unread", refused(t, s, "Edit", edit("foo.txt", "bar", "baz")), "File has not been read yet. Read it first before writing to it.")
	must(t, s, "Read", in{"file_path": "foo.txt"})
	equal(t, "many", refused(t, s, "Edit", edit("foo.txt", "foo", "F")), "Found 3 matches of the string to replace, but replace_all is false. To replace all occurrences, set replace_all to true. To replace only one occurrence, please provide more context to uniquely identify the instance.\nString: foo")
	equal(t, "none", refused(t, s, "Edit", edit("foo.txt", "nothere", "F")), "String to replace not found in file.\nString: nothere")
	equal(t, "same", refused(t, s, "Edit", edit("foo.txt", "bar", "bar")), "No changes to make: old_string and new_string are exactly the same.")
	equal(t, "gone", refused(t, s, "Edit", edit("gone.txt", "bar", "x")), "File does not exist. Note: your current working directory is W.")
	equal(t, "exists", refused(t, s, "Edit", edit("foo.txt", "", "x")), "Cannot create new file - file already exists.")
	equal(t, "content so far", get(t, s, "foo.txt"), "foo\nfoo\nbar foo\n")

	result, err := run(t, s, "Edit", edit("foo.txt", "bar", "baz"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "one", result.Text, "The file foo.txt has been updated successfully. (file state is current in your context — no need to Read it back)")
	data, _ := json.Marshal(result.Data)
	contains(t, "patch", string(data), `"structuredPatch":[{"oldStart":1,"oldLines":3,"newStart":1,"newLines":3,"lines":[" foo"," foo","-bar foo","+baz foo"]}]`)
	equal(t, "all", must(t, s, "Edit", edit("foo.txt", "foo", "F", true)), "The file foo.txt has been updated. All occurrences were successfully replaced. (file state is current in your context — no need to Read it back)")
	equal(t, "content", get(t, s, "foo.txt"), "F\nF\nbaz F\n")

	must(t, s, "Edit", edit("new/made.txt", "", "made"))
	equal(t, "new", get(t, s, "new/made.txt"), "made")

	for _, name := range []string{"crlf.txt", "mixed.txt", "bom.txt", "latin.txt"} {
		must(t, s, "Read", in{"file_path": name})
	}
	must(t, s, "Edit", edit("crlf.txt", "x\ny", "X\nY\nnew"))
	equal(t, "crlf", get(t, s, "crlf.txt"), "X\r\nY\r\nnew\r\nz\r\n")
	must(t, s, "Edit", edit("mixed.txt", "a\nb", "A\nB"))
	equal(t, "mixed", get(t, s, "mixed.txt"), "A\nB\nc\n")
	must(t, s, "Edit", edit("bom.txt", "bom", "BOM"))
	equal(t, "bom", get(t, s, "bom.txt"), "\xef\xbb\xbfBOM\nline\n")
	must(t, s, "Edit", edit("latin.txt", "one", "two"))
	equal(t, "bytes that are no text", get(t, s, "latin.txt"), "caf\xe9 two\n")
}

func TestEditOfWhatChangedMeanwhile(t *testing.T) {
	s := newSet(t, Options{}, "a.txt", "one two\n")
	path := filepath.Join(s.folders[0].path, "a.txt")
	must(t, s, "Read", in{"file_path": "a.txt"})
	// The same size, the same time: the content tells.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a.txt", "one TWO\n")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	input := in{"file_path": "a.txt", "old_string": "one", "new_string": "1"}
	contains(t, "changed", refused(t, s, "Write", in{"file_path": "a.txt", "content": "x"}), "File has been modified since read")
	contains(t, "changed", refused(t, s, "Edit", in{"file_path": "a.txt", "old_string": "two", "new_string": "2"}), "String to replace not found")
	contains(t, "changed", must(t, s, "Edit", input), "modified on disk since you last read it")
	put(t, s, "a.txt", "one TWO\n")
	must(t, s, "Read", in{"file_path": "a.txt"})
	// Another time, the same content: nothing changed.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	must(t, s, "Edit", input)
	equal(t, "content", get(t, s, "a.txt"), "1 TWO\n")
}

func TestMultiEditIsAllOrNothing(t *testing.T) {
	s := newSet(t, Options{}, "a.txt", "one two three\n")
	must(t, s, "Read", in{"file_path": "a.txt"})
	edits := []any{in{"old_string": "one", "new_string": "two"}, in{"old_string": "two", "new_string": "2"}}
	equal(t, "second", refused(t, s, "MultiEdit", in{"file_path": "a.txt", "edits": edits}), "Edit 2 of 2: Found 2 matches of the string to replace, but replace_all is false. To replace all occurrences, set replace_all to true. To replace only one occurrence, please provide more context to uniquely identify the instance.\nString: two\nNothing was changed.")
	equal(t, "untouched", get(t, s, "a.txt"), "one two three\n")
	edits[1].(in)["replace_all"] = true
	must(t, s, "MultiEdit", in{"file_path": "a.txt", "edits": edits})
	equal(t, "changed", get(t, s, "a.txt"), "2 2 three\n")
	contains(t, "no edits", refused(t, s, "MultiEdit", in{"file_path": "a.txt", "edits": []any{}}), "`edits` is empty")
	must(t, s, "MultiEdit", in{"file_path": "new.txt", "edits": []any{in{"old_string": "", "new_string": "a b"}, in{"old_string": "b", "new_string": "c"}}})
	equal(t, "made", get(t, s, "new.txt"), "a c")
}

func TestWrite(t *testing.T) {
	s := newSet(t, Options{}, "a.sh", "#!/bin/sh\n", "sub/x", "")
	path := filepath.Join(s.folders[0].path, "a.sh")
	if err := os.Chmod(path, 0o751); err != nil {
		t.Fatal(err)
	}
	equal(t, "unread", refused(t, s, "Write", in{"file_path": "a.sh", "content": "x"}), "File has not been read yet. Read it first before writing to it.")
	equal(t, "folder", refused(t, s, "Write", in{"file_path": "sub", "content": "x"}), "sub is a directory, not a file. To create a file inside it, include the file name in file_path.")
	contains(t, "the folder itself", refused(t, s, "Write", in{"file_path": ".", "content": "x"}), "is a directory")
	must(t, s, "Read", in{"file_path": "a.sh"})
	equal(t, "update", must(t, s, "Write", in{"file_path": "a.sh", "content": "new\n"}), "The file a.sh has been updated successfully. (file state is current in your context — no need to Read it back)")
	equal(t, "content", get(t, s, "a.sh"), "new\n")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	equal(t, "create", must(t, s, "Write", in{"file_path": "deep/er/b.txt", "content": "b"}), "File created successfully at: deep/er/b.txt (file state is current in your context — no need to Read it back)")
	must(t, s, "Write", in{"file_path": "deep/er/b.txt", "content": "again"})
	equal(t, "content", get(t, s, "deep/er/b.txt"), "again")
	if left, _ := filepath.Glob(filepath.Join(s.folders[0].path, ".nestor-*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestRecallCountsAsRead(t *testing.T) {
	s := newSet(t, Options{}, "a.txt", "one", "b.txt", "two")
	s.Recall("Read", json.RawMessage(`{"file_path":"a.txt"}`))
	s.Recall("Bash", json.RawMessage(`{"command":"cat b.txt"}`))
	s.Recall("Read", json.RawMessage(`nonsense`))
	s.Recall("Read", json.RawMessage(`{"file_path":"gone.txt"}`))
	s.Recall("TodoWrite", json.RawMessage(`{"todos":[{"content":"a","status":"pending","activeForm":"b"}]}`))
	must(t, s, "Edit", in{"file_path": "a.txt", "old_string": "one", "new_string": "1"})
	refused(t, s, "Edit", in{"file_path": "b.txt", "old_string": "two", "new_string": "2"})
	result, err := run(t, s, "TodoWrite", in{"todos": []any{}})
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := json.Marshal(result.Data); string(data) != `{"newTodos":[],"oldTodos":[{"content":"a","status":"pending","activeForm":"b"}]}` {
		t.Errorf("%s", data)
	}
}

func TestTodoWrite(t *testing.T) {
	s := newSet(t, Options{})
	contains(t, "done", must(t, s, "TodoWrite", in{"todos": []any{in{"content": "a", "status": "pending", "activeForm": "b"}}}), "Todos have been modified successfully.")
	contains(t, "status", refused(t, s, "TodoWrite", in{"todos": []any{in{"content": "a", "status": "x", "activeForm": "b"}}}), "none of pending, in_progress, completed")
	contains(t, "empty", refused(t, s, "TodoWrite", in{"todos": []any{in{"content": "", "status": "pending", "activeForm": "b"}}}), "empty `content`")
	contains(t, "wrong", refused(t, s, "TodoWrite", in{"todos": "x"}), "expected as `array`")
}

func TestBound(t *testing.T) {
	s := newSet(t, Options{MaxResult: 2000})
	equal(t, "short", first(s.Bound("x", "short")), "short")
	whole := strings.Repeat("ein Wörtchen\n", 1000)
	got, err := s.Bound("toolu/../1", whole)
	if err != nil || len(got) > 2000 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	path := filepath.Join(s.spool.path, "toolu____1.txt")
	contains(t, "note", got, "Output too large (13.7KB). Full output saved to: "+path)
	data, err := os.ReadFile(path)
	if err != nil || string(data) != whole {
		t.Errorf("on disk are %d bytes, %v", len(data), err)
	}
	contains(t, "Read may", must(t, s, "Read", in{"file_path": path, "limit": 1}), "1\tein Wörtchen")
	contains(t, "Write may not", refused(t, s, "Write", in{"file_path": path, "content": "x"}), "may be read but not written")
	// The same id again is another file.
	again, err := s.Bound("toolu/../1", whole)
	if err != nil || strings.Contains(again, path) {
		t.Errorf("%s, %v", clip(again, 300), err)
	}
	for range 5 { // one long line, cut between characters
		if got, err := s.Bound("long", strings.Repeat("ö", 5000)); err != nil || strings.Contains(got, "\uFFFD") || len(got) > 2000 {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func first(text string, err error) string { return text }

func TestNewRefusesWhatIsNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []Options{{}, {Dir: file}, {Dir: file + "x"}, {Dir: t.TempDir(), Dirs: []string{file + "x"}}, {Dir: t.TempDir(), Spool: file}} {
		if s, err := New(opts); err == nil {
			s.Close()
			t.Errorf("%+v is no error", opts)
		}
	}
}
