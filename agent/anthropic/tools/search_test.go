package tools

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/soak"
)

// tree is a folder to search in, whose files get older from the first to the
// last.
func tree(t testing.TB, opts Options) *Set {
	files := []string{
		"sub/p.go", "package p\nfunc Hello() {}\n// hello again\n",
		"sub/deep/q.txt", "hello deep\n",
		".hid/h.txt", "hello hidden\n",
		"ignored.log", "hello ignored\n",
		".gitignore", "*.log\nbuild/\n/top.txt\n!keep.log\n# comment\n\n",
		"keep.log", "hello kept\n",
		"top.txt", "hello top\n",
		"sub/top.txt", "hello below\n",
		"build/out.txt", "hello built\n",
		"sub/.gitignore", "deeper/*.md\n",
		"sub/deeper/x.md", "hello md\n",
		"sub/deeper/x.js", "hello js\n",
		".git/hellofile", "hello git\n",
		"bin.dat", "hello\x00",
		"foo.txt", "foo\nfoo\nbar foo\n",
		"crlf.txt", "x\r\nhello\r\n",
		"long.txt", "hello" + strings.Repeat("a", 5000) + "\nshort hello\n",
		"many.txt", "1\n2\nhello 3\n4\n5\n6\n7\n8\nhello 9\nhello 10\n11\n12\n",
		"latin.txt", "caf\xe9 hello\n",
		"uni.txt", "größe hello\nΑΒΓ αβγ\n",
		"empty.txt", "",
		"nonl.txt", "no newline hello",
	}
	s := newSet(t, opts, files...)
	for i := 0; i < len(files); i += 2 {
		when := time.Unix(1_700_000_000-int64(i), 0)
		if err := os.Chtimes(filepath.Join(s.folders[0].path, files[i]), when, when); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestGlob(t *testing.T) {
	s := tree(t, Options{})
	for _, test := range []struct {
		input in
		want  string
	}{
		{in{"pattern": "*.go"}, "sub/p.go"},
		{in{"pattern": "**/*.nope"}, "No files found"},
		{in{"pattern": "../*"}, "No files found"},
		{in{"pattern": "**/*.{go,js}"}, "sub/deeper/x.js\nsub/p.go"},
		{in{"pattern": "sub/*"}, "sub/.gitignore\nsub/top.txt\nsub/p.go"},
		{in{"pattern": "sub/**"}, "sub/deeper/x.js\nsub/deeper/x.md\nsub/.gitignore\nsub/top.txt\nsub/deep/q.txt\nsub/p.go"},
		{in{"pattern": "sub/**/*.txt"}, "sub/top.txt\nsub/deep/q.txt"},
		{in{"pattern": "*.go", "path": "W/sub"}, "sub/p.go"},
		{in{"pattern": "W/sub/*.go"}, "sub/p.go"},
		{in{"pattern": "W/**/*.js"}, "sub/deeper/x.js"},
		{in{"pattern": "W/sub/p.go"}, "sub/p.go"},
		{in{"pattern": "[fl]o?.txt"}, "foo.txt"},
		{in{"pattern": "[!a-e]oo.txt"}, "foo.txt"},
		{in{"pattern": "*.log"}, "keep.log\nignored.log"},
		{in{"pattern": "./top.txt"}, "top.txt"},
		{in{"pattern": `top\.txt`}, "sub/top.txt\ntop.txt"},
		{in{"pattern": "hellofile"}, "No files found"}, // .git is left out
	} {
		for _, key := range []string{"pattern", "path"} {
			if v, ok := test.input[key].(string); ok {
				test.input[key] = strings.Replace(v, "W", s.folders[0].path, 1)
			}
		}
		equal(t, fmt.Sprint(test.input), must(t, s, "Glob", test.input), test.want)
		access, err := tool(t, s, "Glob").Access(must2(json.Marshal(test.input)))
		if err != nil || access.Outside || access.Path == "" {
			t.Errorf("%v: access %+v, %v", test.input, access, err)
		}
		if access.Input != nil {
			result, err := tool(t, s, "Glob").Run(t.Context(), access.Input)
			if err != nil {
				t.Error(err)
			}
			equal(t, fmt.Sprint("after Access: ", string(access.Input)), result.Text, test.want)
		}
	}
	contains(t, "gone", refused(t, s, "Glob", in{"pattern": "*", "path": "gone"}), "does not exist: gone. Note: your current working directory is W.")
	equal(t, "file", refused(t, s, "Glob", in{"pattern": "*", "path": "foo.txt"}), "Path is not a directory: foo.txt")
	contains(t, "bracket", refused(t, s, "Glob", in{"pattern": "[a"}), "a [ is not closed")
	contains(t, "brace", refused(t, s, "Glob", in{"pattern": "{a"}), "a { is not closed")
	contains(t, "long", refused(t, s, "Glob", in{"pattern": strings.Repeat("*", 2000)}), "too long")

	for i := range 150 {
		put(t, s, fmt.Sprintf("lots/%03d.md", i), "x")
	}
	got := must(t, s, "Glob", in{"pattern": "lots/*"})
	contains(t, "many", got, "\n(Showing 100 of 150 matching files; 50 more are not listed. Narrow the pattern or path to see the rest.)")
	if n := strings.Count(got, "\n"); n != 100 {
		t.Errorf("%d lines", n)
	}
}

func must2(data []byte, err error) json.RawMessage {
	if err != nil {
		panic(err)
	}
	return data
}

// engines are sets over the same tree, with ripgrep and without.
func engines(t *testing.T) map[string]*Set {
	own := tree(t, Options{})
	own.ripgrep = ""
	sets := map[string]*Set{"own": own}
	rg := newSet(t, Options{Dir: own.folders[0].path})
	if rg.ripgrep == "" || descriptorPath == "" {
		t.Log("ripgrep is not here: the search is tested without it alone")
	} else {
		sets["ripgrep"] = rg
	}
	return sets
}

func TestGrep(t *testing.T) {
	for engine, s := range engines(t) {
		for _, test := range []struct {
			input in
			want  string
		}{
			{in{"pattern": "hello"}, "Found 12 files\nsub/p.go\nsub/deep/q.txt\n.hid/h.txt\nkeep.log\nsub/top.txt\nsub/deeper/x.js\ncrlf.txt\nlong.txt\nmany.txt\nlatin.txt\nuni.txt\nnonl.txt"},
			{in{"pattern": "hello", "glob": "*.{go,js} *.log"}, "Found 4 files\nsub/p.go\nignored.log\nkeep.log\nsub/deeper/x.js"},
			{in{"pattern": "hello", "glob": "*.go,*.js"}, "Found 2 files\nsub/p.go\nsub/deeper/x.js"},
			{in{"pattern": "hello", "glob": "!*.txt"}, "Found 3 files\nsub/p.go\nkeep.log\nsub/deeper/x.js"},
			{in{"pattern": "hello", "type": "go"}, "Found 1 file\nsub/p.go"},
			{in{"pattern": "hello", "path": "sub"}, "Found 4 files\nsub/p.go\nsub/deep/q.txt\nsub/top.txt\nsub/deeper/x.js"},
			{in{"pattern": "hello", "path": "build"}, "Found 1 file\nbuild/out.txt"},
			{in{"pattern": "hello", "head_limit": 2}, "Found 2 files limit: 2\nsub/p.go\nsub/deep/q.txt"},
			{in{"pattern": "hello", "head_limit": 1, "offset": 1}, "Found 1 file limit: 1, offset: 1\nsub/deep/q.txt"},
			{in{"pattern": "nopenope"}, "No files found"},
			{in{"pattern": "nopenope", "output_mode": "content"}, "No matches found"},
			{in{"pattern": "nopenope", "output_mode": "count"}, "No matches found\n\nFound 0 total occurrences across 0 files."},
			{in{"pattern": "-x"}, "No files found"},
			{in{"pattern": "hello", "output_mode": "content", "path": "sub/deep", "-n": false}, "sub/deep/q.txt:hello deep"},
			{in{"pattern": "HELLO", "output_mode": "content", "path": "sub", "glob": "*.{go,txt}", "-i": true, "-C": 1}, "sub/deep/q.txt:1:hello deep\n--\nsub/p.go-1-package p\nsub/p.go:2:func Hello() {}\nsub/p.go:3:// hello again\n--\nsub/top.txt:1:hello below"},
			{in{"pattern": "hello", "output_mode": "count", "path": "sub", "glob": "*.go", "-i": true}, "sub/p.go:2\n\nFound 2 total occurrences across 1 file."},
			{in{"pattern": "hello", "output_mode": "count", "head_limit": 1, "glob": "*.txt", "path": "sub"}, "sub/deep/q.txt:1\n\nFound 2 total occurrences across 2 files. with pagination = limit: 1"},
			{in{"pattern": "hello", "output_mode": "content", "path": "sub/p.go"}, "3:// hello again"},
			{in{"pattern": "hello", "path": "sub/p.go"}, "Found 1 file\nsub/p.go"},
			{in{"pattern": "hello", "output_mode": "content", "head_limit": 1, "offset": 1, "path": "sub"}, "sub/deeper/x.js:1:hello js\n\n[Showing results with pagination = limit: 1, offset: 1]"},
			{in{"pattern": `package.*\n.*Hello`, "multiline": true, "output_mode": "content"}, "sub/p.go:1:package p\nsub/p.go:2:func Hello() {}"},
			{in{"pattern": `package.*Hello`, "multiline": true, "output_mode": "count"}, "sub/p.go:2\n\nFound 2 total occurrences across 1 file."},
			{in{"pattern": "hello", "output_mode": "content", "glob": "long.txt"}, "long.txt:1:[Omitted long matching line]\nlong.txt:2:short hello"},
			{in{"pattern": "short", "output_mode": "content", "glob": "long.txt", "-B": 1}, "long.txt-1-[Omitted long context line]\nlong.txt:2:short hello"},
			{in{"pattern": "o", "output_mode": "content", "glob": "foo.txt", "-o": true}, "foo.txt:1:o\nfoo.txt:1:o\nfoo.txt:2:o\nfoo.txt:2:o\nfoo.txt:3:o\nfoo.txt:3:o"},
			{in{"pattern": "foo", "output_mode": "content", "-A": 1, "-B": 1, "glob": "foo.txt"}, "foo.txt:1:foo\nfoo.txt:2:foo\nfoo.txt:3:bar foo"},
			{in{"pattern": "hello", "output_mode": "content", "glob": "many.txt", "-A": 1, "-B": 2}, "many.txt-1-1\nmany.txt-2-2\nmany.txt:3:hello 3\nmany.txt-4-4\n--\nmany.txt-7-7\nmany.txt-8-8\nmany.txt:9:hello 9\nmany.txt:10:hello 10\nmany.txt-11-11"},
			{in{"pattern": "hello", "output_mode": "content", "glob": "crlf.txt"}, "crlf.txt:2:hello"},
			{in{"pattern": "hello", "output_mode": "content", "glob": "latin.txt"}, "latin.txt:1:caf\uFFFD hello"},
			{in{"pattern": `ö\w`, "output_mode": "content", "glob": "uni.txt"}, "No matches found"}, // \w is ASCII
			{in{"pattern": `\bsse|\b[α-γ]+$`, "output_mode": "content", "glob": "uni.txt"}, "No matches found"},
			{in{"pattern": `αΒγ`, "-i": true, "output_mode": "content", "glob": "uni.txt"}, "uni.txt:2:ΑΒΓ αβγ"},
			{in{"pattern": `^$`, "output_mode": "count", "path": "sub"}, "No matches found\n\nFound 0 total occurrences across 0 files."},
		} {
			equal(t, engine+fmt.Sprint(test.input), must(t, s, "Grep", test.input), test.want)
		}
		contains(t, "group", refused(t, s, "Grep", in{"pattern": "hello("}), "missing closing )")
		contains(t, "type", refused(t, s, "Grep", in{"pattern": "x", "type": "nosuch"}), "unrecognized file type: nosuch")
		contains(t, "gone", refused(t, s, "Grep", in{"pattern": "x", "path": "gone"}), "Path does not exist: gone. Note: your current working directory is W.")
		contains(t, "mode", refused(t, s, "Grep", in{"pattern": "x", "output_mode": "nosuch"}), "none of content, files_with_matches, count")
		contains(t, "line end", refused(t, s, "Grep", in{"pattern": `a\nb`}), "Set multiline to true")
		contains(t, "look ahead", refused(t, s, "Grep", in{"pattern": `a(?=b)`}), "The pattern cannot be used")
		contains(t, "glob", refused(t, s, "Grep", in{"pattern": "a", "glob": "[a"}), "a [ is not closed")
	}
}

// Whatever is searched for in whatever, both engines find the same.
func TestGrepEnginesAgree(t *testing.T) {
	s := newSet(t, Options{})
	if s.ripgrep == "" || descriptorPath == "" {
		t.Skip("ripgrep is not here: there is nothing to compare with")
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	words := []string{"a", "b", "ab", "foo", "foo_bar", " ", "\t", "é", "ß", "x-y", "1", "", "A", "B", "\r"}
	atoms := []string{"a", "b", "fo+", ".", `\w`, `\W`, `\d`, `\s`, `\S`, `\b`, `\B`, "[ab]", "[^a]", "(a|b)", "é", "^", "$", "a*", `\.`, "x?", "(?i)a", "[^\\n]", "(?s).", "a{2,3}", `\pL`, `[[:alpha:]]`, "|"}
	tries := soak.Of(150, 5000)
	asked := 0
	for range tries {
		var files []candidate
		var texts []string
		for i := range 3 {
			var text strings.Builder
			for range random.IntN(12) {
				for range random.IntN(4) {
					text.WriteString(pick(words))
				}
				text.WriteString("\n")
			}
			if random.IntN(3) == 0 {
				text.WriteString(pick(words))
			}
			name := fmt.Sprint("f", i)
			put(t, s, name, text.String())
			texts = append(texts, text.String())
			f, err := os.Open(filepath.Join(s.folders[0].path, name))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, candidate{file: f, path: name})
		}
		input := grepInput{
			Mode: pick([]string{"content", "count", ""}), Multiline: random.IntN(3) == 0, Fold: random.IntN(3) == 0,
			Before: count(random.IntN(3)), After: count(random.IntN(3)), Only: random.IntN(4) == 0,
		}
		for range 1 + random.IntN(4) {
			input.Pattern += pick(atoms)
		}
		q, err := input.compile()
		if err == nil {
			own, err1 := searchFiles(t.Context(), files, q)
			rg, err2 := s.search(t.Context(), files, q)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if q.ripgrep != "" {
				asked++
				if _, err := s.sift(t.Context(), files, q); err != nil {
					t.Errorf("ripgrep does not take %s: %v", q.ripgrep, err)
				}
			}
			a, b := s.report(input, own, false), s.report(input, rg, false)
			if a.Text != b.Text || !reflect.DeepEqual(a.Data, b.Data) {
				t.Errorf("%+v as %s in %q: own\n%s\nripgrep\n%s", input, q.ripgrep, texts, a.Text, b.Text)
			}
		}
		for _, c := range files {
			c.file.Close()
		}
	}
	if asked < tries/3 {
		t.Errorf("ripgrep was asked about %d of %d patterns", asked, tries)
	}
}

func TestGrepIsBounded(t *testing.T) {
	s := newSet(t, Options{MaxResult: 4000}, "big.txt", strings.Repeat("hello hello hello\n", 30_000))
	got := must(t, s, "Grep", in{"pattern": "hello", "output_mode": "content", "head_limit": 0})
	if len(got) > 4000 {
		t.Errorf("%d bytes", len(got))
	}
	contains(t, "note", got, "Full output saved to: "+s.spool.path)
	if err := os.Truncate(filepath.Join(s.folders[0].path, "big.txt"), maxSearched+1); err != nil {
		t.Fatal(err)
	}
	contains(t, "too large", must(t, s, "Grep", in{"pattern": "hello"}), "(1 files of more than 16MB were not searched.)")
	contains(t, "too large", refused(t, s, "Grep", in{"pattern": "hello", "path": "big.txt"}), "exceeds maximum allowed size (16MB)")
}

func TestSearchOfDeepFolders(t *testing.T) {
	s := newSet(t, Options{})
	put(t, s, strings.Repeat("d/", maxDepth)+"in.txt", "hello")
	put(t, s, strings.Repeat("d/", maxDepth+1)+"out.txt", "hello")
	got := must(t, s, "Glob", in{"pattern": "*.txt"})
	contains(t, "found", got, "/in.txt")
	contains(t, "note", got, tooMuch)
	if strings.Contains(got, "out.txt") {
		t.Error("it went too deep")
	}
}

func TestIgnore(t *testing.T) {
	list := ignores{
		parseIgnore(".", "*.o\n!keep.o\n/only\ndocs/*.txt\na/**/z\nfoo/\n\\#x\n[ab].c\n**/any\ntrail   \n{a}.x\n"),
		parseIgnore("sub", "*.tmp\n!x.o\n"),
	}
	for name, want := range map[string]bool{
		"a.o": true, "d/a.o": true, "keep.o": false, "only": true, "d/only": false, "docs/a.txt": true, "docs/d/a.txt": false,
		"a/z": true, "a/b/c/z": true, "foo": false, "foo/": true, "#x": true, "a.c": true, "c.c": false, "x/any": true, "any": true,
		"trail": true, "sub/x.tmp": true, "x.tmp": false, "sub/x.o": false, "sub/y.o": true, "a.x": false, "{a}.x": true,
	} {
		rel, dir := strings.CutSuffix(name, "/")
		if got := list.match(rel, dir); got != want {
			t.Errorf("%s is ignored: %v", name, got)
		}
	}
}
