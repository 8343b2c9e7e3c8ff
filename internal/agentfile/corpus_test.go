package agentfile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

var update = flag.Bool("update", false, "write what is expected of the corpus")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCorpus reads files as people have them. A file says by its folder of which
// kind it is, and by .crlf and .bom in its name how it is written.
func TestCorpus(t *testing.T) {
	bundles, err := filepath.Glob("testdata/corpus/*.txtar")
	if err != nil || len(bundles) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	total := 0
	for _, bundle := range bundles {
		archive, err := txtar.ParseFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		var files []txtar.File
		for _, f := range archive.Files {
			if name, ok := strings.CutSuffix(f.Name, ".want"); ok {
				want[name] = string(f.Data)
				continue
			}
			files = append(files, f)
		}
		written := &txtar.Archive{Comment: archive.Comment}
		for _, f := range files {
			total++
			name := strings.TrimSuffix(f.Name, ".md")
			got := outcome(f)
			if !*update && got != want[name] {
				t.Errorf("%s: %s:\n%s\nwant\n%s", bundle, f.Name, got, want[name])
			}
			written.Files = append(written.Files, f, txtar.File{Name: name + ".want", Data: []byte(got)})
		}
		if *update {
			if err := os.WriteFile(bundle, txtar.Format(written), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if total < 60 {
		t.Errorf("there are %d files", total)
	}
}

// parseFile reads a file of the corpus.
func parseFile(f txtar.File) (*agentfile.Definition, []agentfile.Problem) {
	kind, name := path.Split(strings.TrimSuffix(f.Name, ".md"))
	data := f.Data
	if n, ok := strings.CutSuffix(name, ".crlf"); ok {
		name, data = n, bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
	}
	if n, ok := strings.CutSuffix(name, ".bom"); ok {
		name, data = n, append([]byte("\ufeff"), data...)
	}
	src := agentfile.Source{Scope: agentfile.Project, File: path.Base(f.Name)}
	return agentfile.Parse(src, agentfile.Kind(strings.Trim(kind, "/")), name, data, nil)
}

// outcome tells what came of a file.
func outcome(f txtar.File) string {
	d, problems := parseFile(f)
	var b strings.Builder
	for _, p := range problems {
		what := "error"
		if p.Warning {
			what = "warning"
		}
		fmt.Fprintf(&b, "%s: %v\n", what, &p)
	}
	if d == nil {
		return b.String()
	}
	d.Hash, d.Source = "", agentfile.Source{}
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err.Error()
	}
	var fields map[string]any
	json.Unmarshal(data, &fields)
	delete(fields, "hash")
	delete(fields, "source")
	data, _ = json.MarshalIndent(fields, "", "  ")
	return b.String() + string(data) + "\n"
}

func TestHugeFilesAreRefusedByName(t *testing.T) {
	src := agentfile.Source{File: "huge.md"}
	d, problems := agentfile.Parse(src, agentfile.Agent, "huge", bytes.Repeat([]byte("x"), agentfile.MaxFile+1), nil)
	if d != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "huge.md: it has more than 1048576 bytes") {
		t.Errorf("got %v, %v", d, problems)
	}
	d, problems = agentfile.Parse(src, agentfile.Agent, "huge", bytes.Repeat([]byte("text\n"), agentfile.MaxFile/5), nil)
	if d == nil || len(problems) != 0 {
		t.Errorf("the largest that may be: %v", problems)
	}
	d, problems = agentfile.Parse(src, agentfile.Agent, "huge", []byte("---\nx: "+strings.Repeat("y", 300<<10)+"\n---\ntext"), nil)
	if d != nil || len(problems) != 1 || !strings.Contains(problems[0].Error(), "the front matter has more than") {
		t.Errorf("a long front matter: %v, %v", d, problems)
	}
}

func TestBytesThatAreNoTextAreNamed(t *testing.T) {
	for data, want := range map[string]string{
		"a\nb\x00c":          "f.md:2:2: there is a byte 0x00",
		"ab\xffc":            "f.md:1:3: there is a byte 0xff",
		"\xff\xfea\x00b\x00": "f.md:1:1: it is UTF-16; save it as UTF-8",
	} {
		d, problems := agentfile.Parse(agentfile.Source{File: "f.md"}, agentfile.Agent, "f", []byte(data), nil)
		if d != nil || len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", data, d, problems, want)
		}
	}
}
