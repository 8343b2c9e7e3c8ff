package agentfile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

// parse reads a file that is good.
func parse(t testing.TB, kind agentfile.Kind, text string) agentfile.Definition {
	t.Helper()
	d, problems := agentfile.Parse(agentfile.Source{Scope: agentfile.Project, File: "f.md"}, kind, "f", []byte(text), nil)
	if d == nil {
		t.Fatal(problems)
	}
	return *d
}

func TestRender(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"src/a.go": "package a\n", "src/sub/b.go": "package b\n", "docs/x.md": "# X\n", "big.txt": strings.Repeat("x", 300<<10), "data.bin": "a\x00b",
	})
	run := func(_ context.Context, c agentfile.ShellCommand) (string, error) {
		if c.Line == "fail" {
			return "", errors.New("exit status 1")
		}
		return fmt.Sprintf("<%s|%s|%q|%q>\n", c.Line, c.Filled, c.Args, c.Env), nil
	}
	facts := agentfile.Facts{
		Input: `one "two words" three`, Dir: dir, FocusFile: "src/a.go", SkillDir: "/skills/f", Now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC),
		Git: agentfile.Git{Branch: "main", Commit: "abc", Dirty: true}, Run: run,
	}
	for _, test := range []struct {
		name         string
		kind         agentfile.Kind
		text         string
		inputs       string
		instructions string
		message      string
		problem      string // in it
	}{
		{
			name: "an agent is told the input as it is", kind: agentfile.Agent, text: "Be kind. $1 {{ .Values }} @docs/x.md !`ls`",
			instructions: "Be kind. $1 {{ .Values }} @docs/x.md !`ls`", message: `one "two words" three`,
		},
		{
			name: "a command is the message", kind: agentfile.Command, text: "Fix $1 by $2, all: $ARGUMENTS, $ARGUMENTS[2], none: <$9> $ARGUMENTS[7], $100.",
			message: `Fix one by two words, all: one "two words" three, three, none: <$9> $ARGUMENTS[7], $100.`,
		},
		{
			name: "numbers from zero", kind: agentfile.Command, text: "$0 and $1", message: "one and two words",
		},
		{
			name: "a command that does not say where has the input behind it", kind: agentfile.Command, text: "Do it.",
			message: "Do it.\n\nARGUMENTS: one \"two words\" three",
		},
		{
			name: "a sum is no argument", kind: agentfile.Command, text: "It costs $5.",
			message: "It costs $5.\n\nARGUMENTS: one \"two words\" three",
		},
		{
			name: "named arguments", kind: agentfile.Command, text: "---\narguments: [what, how]\n---\n$what by $how, not $else",
			message: "one by two words, not $else",
		},
		{
			name: "files that are named follow", kind: agentfile.Command, text: "See @docs/x.md, and @nowhere and mail@docs/x.md. $1",
			message: "See @docs/x.md, and @nowhere and mail@docs/x.md. one\n\n<file path=\"docs/x.md\">\n# X\n</file>",
		},
		{
			name: "a file out of the folder is not read", kind: agentfile.Command, text: "See @../../etc/passwd and @/etc/passwd. $1",
			message: "See @../../etc/passwd and @/etc/passwd. one",
		},
		{
			name: "commands get the input beside their text", kind: agentfile.Command, text: "Say !`echo $1` now.",
			message: "Say <echo $1|echo one|[\"command\" \"one\" \"two words\" \"three\"]|[\"ARGUMENTS=one \\\"two words\\\" three\"]> now.",
		},
		{
			name: "commands count as the text does", kind: agentfile.Command, text: "$0: !`echo $1 $ARGUMENTS`",
			message: "one: <echo $1 $ARGUMENTS|echo 'two words' 'one \"two words\" three'|[\"one\" \"two words\" \"three\"]|[\"ARGUMENTS=one \\\"two words\\\" three\"]>",
		},
		{
			name: "a command that fails leaves the input", kind: agentfile.Command, text: "Say !`fail` now.",
			message: `one "two words" three`, instructions: "Say !`fail` now.", problem: `the command "fail": exit status 1`,
		},
		{
			name: "a skill says where its files are", kind: agentfile.Skill, text: "Run ${CLAUDE_SKILL_DIR}/x for $1.",
			instructions: "Base directory for this skill: /skills/f\n\nRun /skills/f/x for one.", message: `one "two words" three`,
		},
		{
			name: "a template makes the message", kind: agentfile.Agent, inputs: `{"areas": ["a", "b"]}`, text: `---
inputs: {areas: {type: array}, more: {type: string, default: x}}
template: |-
  {{.Input | upper}} in {{.ContextFolder | len | lt 1}} about {{.FocusFile}} on {{.Date}} at {{.Git.Branch}} {{.Git.Commit}}{{if .Git.Dirty}}, dirty{{end}}
  {{range $i, $a := .Inputs.areas}}{{$i}}={{$a}} {{end}}{{join .Inputs.areas "+"}} {{json .Inputs.areas}} {{.Agent}} {{default "none" .Inputs.more}}
---
Instructions {{here}}.`,
			instructions: "Instructions {{here}}.",
			message:      "ONE \"TWO WORDS\" THREE in true about src/a.go on 2026-11-15 at main abc, dirty\n0=a 1=b a+b [\"a\",\"b\"] f none",
		},
		{
			name: "inputs that are not given are nothing", kind: agentfile.Agent,
			text:         "---\ninputs: {a: string, n: integer, l: array, o: object}\ntemplate: '<{{.Inputs.a}}{{.Inputs.n}}{{range .Inputs.l}}x{{end}}{{if .Inputs.o}}y{{end}}>'\n---\nx",
			instructions: "x", message: "<>",
		},
		{
			name: "files by pattern", kind: agentfile.Agent, text: "---\ntemplate: '{{files \"src/**/*.go\"}}'\n---\nx",
			instructions: "x", message: "<file path=\"src/a.go\">\npackage a\n</file>\n<file path=\"src/sub/b.go\">\npackage b\n</file>",
		},
		{
			name: "files that are no text", kind: agentfile.Agent, text: "---\ntemplate: '{{files \"*.bin\"}}'\n---\nx",
			instructions: "x", message: "<file path=\"data.bin\">\n[it is no text]\n</file>",
		},
		{
			name: "files from elsewhere", kind: agentfile.Agent, text: "---\ntemplate: '{{files \"../*\"}}'\n---\nx",
			instructions: "x", message: `one "two words" three`, problem: "no pattern of files below the folder",
		},
		{
			name: "a body that is a template", kind: agentfile.Command, text: "Do {{.Input}} for $1.",
			message: `Do one "two words" three for one.`,
		},
		{
			name: "loops without end", kind: agentfile.Agent, text: "---\ntemplate: '{{range 1000000000}}{{end}}'\n---\nx",
			instructions: "x", message: `one "two words" three`, problem: "its loops make more than 100000 rounds",
		},
		{
			name: "loops in loops", kind: agentfile.Agent, text: "---\ntemplate: '{{range 50000}}{{range 50000}}{{end}}{{end}}'\n---\nx",
			instructions: "x", message: `one "two words" three`, problem: "its loops make more than 100000 rounds",
		},
		{
			name: "texts without end", kind: agentfile.Agent, text: "---\ntemplate: '{{range 90000}}01234567890123456789{{end}}'\n---\nx",
			instructions: "x", message: `one "two words" three`, problem: "it makes more than 1310720 bytes",
		},
		{
			name: "what is wrong only when it runs", kind: agentfile.Agent, inputs: `{"a": {}}`, text: "---\ninputs: {a: object}\ntemplate: '{{.Inputs.a.b.c}}'\n---\nx",
			instructions: "x", message: `one "two words" three`, problem: "rendering the template of f.md: ",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := parse(t, test.kind, test.text)
			f := facts
			if test.inputs != "" {
				if err := json.Unmarshal([]byte(test.inputs), &f.Inputs); err != nil {
					t.Fatal(err)
				}
			}
			got := d.Render(t.Context(), f)
			if got.Instructions != test.instructions {
				t.Errorf("the instructions are\n%s\nwant\n%s", got.Instructions, test.instructions)
			}
			if got.Message != test.message {
				t.Errorf("the message is\n%s\nwant\n%s", got.Message, test.message)
			}
			if (got.Problem == nil) != (test.problem == "") || got.Problem != nil && !strings.Contains(got.Problem.Error(), test.problem) {
				t.Errorf("the problem is %v, want %s", got.Problem, test.problem)
			}
		})
	}
}

// What somebody gives an agent is never taken for a part of its text.
func TestInputIsNotExecuted(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"secret.txt": "hush"})
	input := "{{.Git.Branch}} !`rm -rf /` @secret.txt $ARGUMENTS"
	for _, text := range []string{"Do $ARGUMENTS", "Do {{.Input}}"} {
		d := parse(t, agentfile.Command, text)
		got := d.Render(t.Context(), agentfile.Facts{Input: input, Dir: dir, Run: func(_ context.Context, c agentfile.ShellCommand) (string, error) {
			t.Errorf("%q is run", c.Line)
			return "", nil
		}})
		if got.Message != "Do "+input || got.Problem != nil {
			t.Errorf("%s is %q, %v", text, got.Message, got.Problem)
		}
	}
}

func TestCommandsAreRefusedWhereNobodyRunsThem(t *testing.T) {
	d := parse(t, agentfile.Command, "See !`git status`.")
	got := d.Render(t.Context(), agentfile.Facts{Input: "go"})
	if got.Message != "go" || got.Problem == nil || !strings.Contains(got.Problem.Error(), `the command "git status" is not allowed here`) {
		t.Errorf("got %+v", got)
	}
}

// The text of an agent may be as long as its file.
func TestLongTextsAreTold(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, kind := range []agentfile.Kind{agentfile.Agent, agentfile.Skill, agentfile.Command} {
		got := parse(t, kind, long).Render(t.Context(), agentfile.Facts{Input: "go"})
		if got.Problem != nil || len(got.Instructions)+len(got.Message) < 1<<20 {
			t.Errorf("%s: %v", kind, got.Problem)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": strings.Repeat("a", 200<<10), "b.txt": strings.Repeat("b", 200<<10), "c.txt": "c"})
	d := parse(t, agentfile.Agent, "---\ntemplate: '{{files \"*.txt\"}}'\n---\nx")
	got := d.Render(t.Context(), agentfile.Facts{Input: "go", Dir: dir})
	if got.Problem != nil || len(got.Message) > 257<<10 || !strings.Contains(got.Message, "the rest is left out") || !strings.HasSuffix(got.Message, "[… 1 more files are left out …]") {
		t.Errorf("%d bytes, %v: …%s", len(got.Message), got.Problem, got.Message[max(0, len(got.Message)-200):])
	}
}

func TestInputsAreTyped(t *testing.T) {
	d := parse(t, agentfile.Agent, `---
inputs:
  name: {type: string, required: true, description: who}
  count: {type: integer, minimum: 1, default: 3}
  flag: boolean
  list: {type: array, items: {type: string}}
---
x`)
	for _, test := range []struct{ given, want, err string }{
		{`{"name": "ada"}`, `{"count":3,"name":"ada"}`, ""},
		{`{"name": "7", "count": "7", "flag": "true", "list": "[\"a\"]"}`, `{"count":7,"flag":true,"list":["a"],"name":"7"}`, ""},
		{`{}`, ``, "agent f needs the input name (who); give it with --set name=…"},
		{`{"name": "a", "count": 0}`, ``, "input count of agent f: "},
		{`{"name": "a", "count": "many"}`, ``, "input count of agent f: "},
		{`{"name": "a", "other": 1}`, ``, `agent f has no input "other"; there are: name, count, flag, list`},
	} {
		var given map[string]json.RawMessage
		if err := json.Unmarshal([]byte(test.given), &given); err != nil {
			t.Fatal(err)
		}
		got, err := d.CheckInputs(given)
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %s", test.given, err, test.err)
			}
			continue
		}
		text, _ := json.Marshal(got)
		if err != nil || string(text) != test.want {
			t.Errorf("%s: got %s, %v, want %s", test.given, text, err, test.want)
		}
	}
}

func TestArgumentsOfCustomToolsStayOne(t *testing.T) {
	d := parse(t, agentfile.Skill, `---
custom_tools:
  - name: t
    input_schema: {type: object, properties: {a: {type: string}, n: {type: number}, o: {type: object}}}
    command: ["${CLAUDE_SKILL_DIR}/run", "{{a}}", "--n={{ n }}/{{n}}", "{{o}}"]
---
x`)
	argv, err := d.CustomTools[0].Argv(json.RawMessage(`{"a": "x; rm -rf / {{n}} $(ls)", "n": 2.5, "o": {"b":1}}`), "/s")
	want := []string{"/s/run", "x; rm -rf / {{n}} $(ls)", "--n=2.5/2.5", `{"b":1}`}
	if err != nil || fmt.Sprintf("%q", argv) != fmt.Sprintf("%q", want) {
		t.Errorf("got %q, %v", argv, err)
	}
	if argv, err := d.CustomTools[0].Argv(json.RawMessage(`{}`), ""); err != nil || argv[1] != "" || argv[2] != "--n=/" {
		t.Errorf("without fields: %q, %v", argv, err)
	}
	for _, bad := range []string{`[]`, `{"a": "\u0000"}`, `x`} {
		if _, err := d.CustomTools[0].Argv(json.RawMessage(bad), ""); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
