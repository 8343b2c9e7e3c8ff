package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// call is one of a tool.
type call struct {
	tool  string
	input in
}

// liveFiles are in the folder when the calls begin.
var liveFiles = []string{
	"a.txt", "one\ntwo\nthree\n", "b.txt", "no newline", "empty.txt", "", "crlf.txt", "x\r\ny\r\nz\r\n",
	"bom.txt", "\xef\xbb\xbfbom\nline\n", "foo.txt", "foo\nfoo\nbar foo\n", "bin.dat", "\x00\x01\x02\x03",
	"sub/p.go", "package p\nfunc Hello() {}\n// hello again\n", "sub/deep/q.txt", "hello deep\n", ".hid/h.txt", "hello hidden\n",
	"node_modules/m/i.js", "hello nm\n", "long.txt", "hello" + strings.Repeat("a", 600) + "\n",
}

// liveCalls are answered by our tools as by the CLI.
var liveCalls = []call{
	{"Read", in{"file_path": "$W/a.txt"}},
	{"Read", in{"file_path": "$W/b.txt"}},
	{"Read", in{"file_path": "$W/empty.txt"}},
	{"Read", in{"file_path": "$W/a.txt", "offset": 2, "limit": 1}},
	{"Read", in{"file_path": "$W/a.txt", "offset": 50}},
	{"Read", in{"file_path": "$W/crlf.txt"}},
	{"Read", in{"file_path": "$W/bom.txt"}},
	{"Read", in{"file_path": "$W/foo.txt"}},
	{"Read", in{"file_path": "$W/sub"}},
	{"Read", in{"file_path": "$W/gone.txt"}},
	{"Read", in{"file_path": "/dev/zero"}},
	{"Read", in{}},
	{"Read", in{"file_path": "$W/a.txt", "bogus": 1}},
	{"Edit", in{"file_path": "$W/foo.txt", "old_string": "foo", "new_string": "baz"}},
	{"Edit", in{"file_path": "$W/foo.txt", "old_string": "nothere", "new_string": "baz"}},
	{"Edit", in{"file_path": "$W/foo.txt", "old_string": "bar", "new_string": "bar"}},
	{"Edit", in{"file_path": "$W/foo.txt", "old_string": "bar", "new_string": "qux"}},
	{"Edit", in{"file_path": "$W/foo.txt", "old_string": "foo", "new_string": "F", "replace_all": true}},
	{"Edit", in{"file_path": "$W/new.txt", "old_string": "", "new_string": "made"}},
	{"Edit", in{"file_path": "$W/a.txt", "old_string": "", "new_string": "made"}},
	{"Edit", in{"file_path": "$W/gone.txt", "old_string": "a", "new_string": "made"}},
	{"Edit", in{"file_path": "$W/crlf.txt", "old_string": "x\ny", "new_string": "X\nY"}},
	{"Edit", in{"file_path": "$W/bom.txt", "old_string": "bom", "new_string": "BOM"}},
	{"Write", in{"file_path": "$W/b.txt", "content": "over\nwritten\n"}},
	{"Write", in{"file_path": "$W/new/dir/w.txt", "content": "hello\n"}},
	{"Write", in{"file_path": "$W/sub", "content": "hello\n"}},
	{"Glob", in{"pattern": "*.go"}},
	{"Glob", in{"pattern": "**/*.{go,js}"}},
	{"Glob", in{"pattern": "**/*.nope"}},
	{"Glob", in{"pattern": "../*"}},
	{"Glob", in{"pattern": "sub/**"}},
	{"Glob", in{"pattern": "[ab].txt"}},
	{"Glob", in{"pattern": "$W/sub/*.go"}},
	{"Glob", in{"pattern": "*.go", "path": "$W/a.txt"}},
	{"Glob", in{"pattern": "*.go", "path": "$W/nonexist"}},
	{"Grep", in{"pattern": "hello"}},
	{"Grep", in{"pattern": "hello", "head_limit": 2}},
	{"Grep", in{"pattern": "hello", "path": "$W/sub/p.go", "output_mode": "content"}},
	{"Grep", in{"pattern": "hello", "path": "$W/sub/deep", "output_mode": "content", "-n": false}},
	{"Grep", in{"pattern": "hello", "glob": "*.go", "output_mode": "content", "-i": true, "-C": 1}},
	{"Grep", in{"pattern": "hello", "glob": "*.go", "output_mode": "count", "-i": true}},
	{"Grep", in{"pattern": "hello", "type": "go"}},
	{"Grep", in{"pattern": "hello", "glob": "long.txt", "output_mode": "content"}},
	{"Grep", in{"pattern": "nopenope"}},
	{"Grep", in{"pattern": "nopenope", "output_mode": "content"}},
	{"Grep", in{"pattern": "nopenope", "output_mode": "count"}},
	{"Grep", in{"pattern": `package.*\n.*Hello`, "multiline": true, "output_mode": "content"}},
	{"Grep", in{"pattern": "l", "glob": "q.txt", "output_mode": "content", "-o": true}},
	{"Grep", in{"pattern": "hello", "path": "$W/nonexist"}},
	{"TodoWrite", in{"todos": []any{in{"content": "a", "status": "pending", "activeForm": "doing a"}}}},
	{"Bash", in{"command": "echo out; echo err >&2; exit 3"}},
	{"Bash", in{"command": "echo err >&2"}},
	{"Bash", in{"command": "false"}},
	{"Bash", in{"command": "true"}},
	{"Bash", in{"command": "cd sub && pwd"}},
	{"Bash", in{"command": "pwd"}},
	{"Bash", in{"command": "cd /"}},
	{"Bash", in{"command": "pwd"}},
	{"Bash", in{"command": `printf '\n\n  lead\n\n'`}},
	{"Bash", in{"command": "od -c crlf.txt bom.txt; cat foo.txt b.txt new.txt"}},
	{"TaskStop", in{"task_id": "nosuch"}},
	{"TaskStop", in{}},
}

// spread writes the files below dir, one second apart.
func spread(t testing.TB, dir string) {
	t.Helper()
	for i := 0; i < len(liveFiles); i += 2 {
		path := filepath.Join(dir, liveFiles[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(liveFiles[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_700_000_000+int64(i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiveToolsAnswerAsTheCLI(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cli := claudetest.Real(t, "CLAUDE_CODE_ENABLE_TASKS=0", "EMBEDDED_SEARCH_TOOLS=0")
	spread(t, cli.Dir)
	var script strings.Builder
	script.WriteString("rules:\n  - turns:\n")
	for _, c := range liveCalls {
		input, err := json.Marshal(c.input)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&script, "      - tools: [{name: %s, input: %s}]\n", c.tool, strings.ReplaceAll(string(input), "$W", cli.Dir))
	}
	model := scriptmodel.Start(t, script.String()+"      - text: done\n")
	opts := claude.Options{
		Path: cli.Path, Dir: cli.Dir, ReplaceEnv: true, Env: append(cli.Env, scriptmodel.ClientEnv(model.URL)...),
		PermissionMode: claude.ModeBypass, AllowBypass: true,
		Tools: []string{"Read", "Write", "Edit", "Bash", "Glob", "Grep", "TodoWrite", "TaskStop", "WebFetch"},
	}
	var theirs []string
	for msg, err := range claude.Query(ctx, "go", opts) {
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := msg.(*claude.User); ok {
			for _, b := range m.Content {
				if r, ok := b.(*claude.ToolResult); ok {
					text := strings.TrimSuffix(strings.TrimPrefix(r.Text(), "<tool_use_error>"), "</tool_use_error>")
					theirs = append(theirs, fmt.Sprintf("%v: %s", r.IsError, strings.ReplaceAll(text, cli.Dir, "W")))
				}
			}
		}
	}
	if len(theirs) != len(liveCalls) {
		t.Fatalf("the CLI answered %d of %d calls", len(theirs), len(liveCalls))
	}

	s := newSet(t, Options{AllowHost: everybody})
	dir := s.folders[0].path
	spread(t, dir)
	for i, c := range liveCalls {
		for key, value := range c.input {
			if text, ok := value.(string); ok {
				c.input[key] = strings.ReplaceAll(text, "$W", dir)
			}
		}
		result, err := runWith(ctx, t, s, c.tool, c.input)
		text := result.Text
		if err != nil {
			text = err.Error()
		}
		equal(t, fmt.Sprint(c.tool, c.input), fmt.Sprintf("%v: %s", err != nil, strings.ReplaceAll(text, dir, "W")), theirs[i])
	}
	compareSchemas(t, s, model.Requests()[0].Body)
}

// compareSchemas fails if a tool that the CLI offers has other parameters than
// ours of that name.
func compareSchemas(t *testing.T, s *Set, request []byte) {
	type schema struct {
		Properties map[string]struct {
			Type string   `json:"type"`
			Enum []string `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	var asked struct {
		Tools []struct {
			Name   string `json:"name"`
			Schema schema `json:"input_schema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, theirs := range asked.Tools {
		i := slices.IndexFunc(s.Tools(), func(t Tool) bool { return t.Name == theirs.Name })
		if i < 0 {
			continue
		}
		compared++
		var ours schema
		if err := json.Unmarshal(s.Tools()[i].Schema, &ours); err != nil {
			t.Fatal(err)
		}
		if got, want := slices.Sorted(maps.Keys(ours.Properties)), slices.Sorted(maps.Keys(theirs.Schema.Properties)); !slices.Equal(got, want) {
			t.Errorf("%s has %v, the CLI %v", theirs.Name, got, want)
		}
		if !slices.Equal(ours.Required, theirs.Schema.Required) {
			t.Errorf("%s requires %v, the CLI %v", theirs.Name, ours.Required, theirs.Schema.Required)
		}
		for name, p := range ours.Properties {
			if q := theirs.Schema.Properties[name]; p.Type != q.Type || !slices.Equal(p.Enum, q.Enum) {
				t.Errorf("%s: %s is %v, with the CLI %v", theirs.Name, name, p, q)
			}
		}
	}
	if compared != 9 {
		t.Errorf("%d tools were compared", compared)
	}
}
