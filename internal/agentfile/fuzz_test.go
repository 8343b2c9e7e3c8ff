package agentfile_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

func seed(f *testing.F, add func(kind, text string)) {
	f.Helper()
	bundles, err := filepath.Glob("testdata/corpus/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, bundle := range bundles {
		archive, err := txtar.ParseFile(bundle)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if filepath.Ext(file.Name) == ".md" {
				add(filepath.Dir(file.Name), string(file.Data))
			}
		}
	}
}

// patience is more than any file may take, on any machine. What takes that long
// is no matter of speed.
const patience = 10 * time.Second

func FuzzFrontMatter(f *testing.F) {
	seed(f, func(kind, text string) { f.Add(kind, text) })
	f.Fuzz(func(t *testing.T, kind, text string) {
		switch agentfile.Kind(kind) {
		case agentfile.Agent, agentfile.Skill, agentfile.Command:
		default:
			kind = "agent"
		}
		began := time.Now()
		d, problems := agentfile.Parse(agentfile.Source{Scope: agentfile.Project, File: "f.md"}, agentfile.Kind(kind), "f", []byte(text), nil)
		if took := time.Since(began); took > patience {
			t.Fatalf("%d bytes took %v", len(text), took)
		}
		broken := false
		for _, p := range problems {
			broken = broken || !p.Warning
			if p.File != "f.md" || p.Message == "" || p.Line < 0 {
				t.Fatalf("a problem without a place: %+v", p)
			}
		}
		if broken != (d == nil) {
			t.Fatalf("%v and %v", d, problems)
		}
		if d == nil {
			return
		}
		if !utf8.ValidString(d.Name) || d.Name == "" {
			t.Fatalf("the name is %q", d.Name)
		}
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again agentfile.Definition
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		if again.Fingerprint() != d.Fingerprint() || !reflect.DeepEqual(again.Tools, d.Tools) {
			t.Fatalf("it is %+v, and was %+v", again, d)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		"{{.Input}}", "{{range 1000000}}{{range 1000000}}{{end}}{{end}}", `{{with .Inputs}}{{.a}}{{end}}`, `{{files "**/*.go"}}`, "$1 @x !`y` ${CLAUDE_SKILL_DIR}",
		`{{define "a"}}{{end}}`, `{{printf "%99999999d" 1}}`, `{{((((.Input))))}}`, `{{$x := .Input}}{{$x}}{{break}}`, `{{/* c */}}{{- json .Git -}}`, `{{.Input}} {{index .Inputs "a"}}`,
		`{{range $k, $v := .Inputs}}{{$k}}{{else}}{{$.Inptu}}{{end}}`,
	} {
		f.Add(text, "one 'two three'")
	}
	seed(f, func(_, text string) { f.Add(text, "x") })
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, input string) {
		front, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"---\ninputs: {a: string}\ntemplate: " + string(front) + "\n---\nx", text} {
			began := time.Now()
			d, _ := agentfile.Parse(agentfile.Source{File: "f.md"}, agentfile.Command, "f", []byte(file), nil)
			if d == nil {
				continue
			}
			out := d.Render(t.Context(), agentfile.Facts{Input: input, Dir: dir, Run: func(context.Context, agentfile.ShellCommand) (string, error) { return "said", nil }})
			if took := time.Since(began); took > patience {
				t.Fatalf("%d bytes took %v", len(text), took)
			}
			if len(out.Message) > 2<<20+len(input)+len(text) {
				t.Fatalf("the message has %d bytes", len(out.Message))
			}
		}
	})
}
