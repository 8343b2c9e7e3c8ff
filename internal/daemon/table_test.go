package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// attempt is something that the model is made to try.
type attempt struct {
	cell   string // of the table
	tool   string
	input  map[string]any
	may    []string // roles that may; "all", "none"
	effect string   // the file that is there if it was done; empty if nothing shows it
	stays  string   // a file that does not come to be whoever tries: the operating system sees to it
}

// by returns a command of the model.
func by(command string) map[string]any {
	return map[string]any{"command": command, "description": "try"}
}

// attempts are the cells of the table of roles, with file tools and with Bash. The
// run works in $DIR/work.
func attempts(dir string) []attempt {
	work, logs := filepath.Join(dir, "work"), filepath.Join(dir, ".nestor", "logs")
	writers := []string{"orchestrator", "implementer", "researcher"}
	readers := append([]string{"critic", "reviewer"}, writers...)
	file := func(name string) map[string]any { return map[string]any{"file_path": name} }
	content := func(name string) map[string]any { return map[string]any{"file_path": name, "content": "x"} }
	return []attempt{
		{cell: "read: the workspace", tool: "Read", input: file(work + "/in.txt"), may: readers},
		{cell: "read: beside it", tool: "Read", input: file(dir + "/secret.txt"), may: nil},
		{cell: "read: logs", tool: "Read", input: file(logs + "/a.log"), may: []string{"monitor"}},
		{cell: "read: by bash", tool: "Bash", input: by("cat in.txt"), may: append([]string{"reviewer"}, writers...)},
		{cell: "read: logs by bash", tool: "Bash", input: by("cat " + logs + "/a.log"), may: append([]string{"monitor"}, writers...)},
		{cell: "read: beside it by bash", tool: "Bash", input: by("cat " + dir + "/secret.txt > stolen.txt && cp stolen.txt really-stolen.txt; true"), may: writers, stays: work + "/really-stolen.txt"},
		{cell: "write: the workspace", tool: "Write", input: content(work + "/tool.txt"), may: writers, effect: work + "/tool.txt"},
		{cell: "write: beside it", tool: "Write", input: content(dir + "/tool.txt"), may: nil, effect: dir + "/tool.txt"},
		{cell: "write: by bash", tool: "Bash", input: by("echo x > bash.txt"), may: writers, effect: work + "/bash.txt"},
		{cell: "write: beside it by bash", tool: "Bash", input: by("echo x > " + dir + "/bash.txt; true"), may: writers, stays: dir + "/bash.txt"},
		{cell: "bash: only reads", tool: "Bash", input: by("ls"), may: append([]string{"reviewer"}, writers...)},
		{cell: "bash: a pipe", tool: "Bash", input: by("ls | sort > sorted.txt"), may: writers, effect: work + "/sorted.txt"},
		{cell: "bash: any program", tool: "Bash", input: by("sh -c 'echo x > ran.txt'"), may: writers, effect: work + "/ran.txt"},
		{cell: "git: reads", tool: "Bash", input: by("git log --oneline"), may: append([]string{"reviewer"}, writers...)},
		{cell: "git: commits", tool: "Bash", input: by("git commit -q --allow-empty -m more && touch committed.txt"), may: []string{"implementer"}, effect: work + "/committed.txt"},
		{cell: "git: elsewhere", tool: "Bash", input: by("git push origin main"), may: nil},
		{cell: "web", tool: "WebFetch", input: map[string]any{"url": "https://127.0.0.1:9/x", "prompt": "read"}, may: readers},
		{cell: "web: by bash", tool: "Bash", input: by("curl -s --max-time 1 http://127.0.0.1:9/; true"), may: writers},
	}
}

// The table of roles, cell by cell: what the model tries is allowed or refused as
// the table says, with each provider, and what no rule can see is stopped by the
// sandbox.
func TestTableOfRoles(t *testing.T) {
	if err := sandbox.Check().Refuses(sandbox.Files, sandbox.Web); err != nil {
		t.Skip(err)
	}
	for _, role := range soak.Draw(t, 1, []string{"orchestrator", "implementer", "researcher", "critic", "reviewer", "monitor"}) {
		for _, provider := range []string{"api", "sdk"} {
			t.Run(provider+" "+role, func(t *testing.T) {
				t.Setenv("GIT_AUTHOR_NAME", "ada") // which implementers get
				t.Setenv("GIT_AUTHOR_EMAIL", "ada@example.com")
				t.Setenv("GIT_COMMITTER_NAME", "ada")
				t.Setenv("GIT_COMMITTER_EMAIL", "ada@example.com")
				dir := place(t)
				work := filepath.Join(dir, "work")
				write(t, filepath.Join(work, "in.txt"), "in\n")
				write(t, filepath.Join(dir, "secret.txt"), "secret\n")
				write(t, filepath.Join(dir, ".nestor", "logs", "a.log"), "log\n")
				gitIn(t, work, "init", "-q", "-b", "work")
				gitIn(t, work, "commit", "-q", "--allow-empty", "-m", "first")
				all := attempts(dir)
				model := scriptmodel.Start(t, scriptOf(t, all))
				client, _ := serving(t, settings{Dir: dir}.with(t, provider, model.URL))
				run := finish(t, client, nestor.Task{Input: "go", Dir: work, Limits: nestor.Limits{Turns: len(all) + 2}, Data: fmt.Appendf(nil, `{%s,"role":%q,"sandbox":"files"}`, bypass, role)})
				decided, said := decisions(t, client, run.ID)
				if len(decided) != len(all) {
					t.Fatalf("%d calls were decided about, of %d: %+v", len(decided), len(all), said)
				}
				for i, a := range all {
					d := decided[i]
					if d.Tool != a.tool || d.Allowed != slices.Contains(a.may, role) {
						t.Errorf("%s: %s %v: allowed is %v, by %s: %s", a.cell, a.tool, a.input, d.Allowed, d.Rule, d.Reason)
					}
					if _, err := os.Stat(a.effect); a.effect != "" && (err == nil) != slices.Contains(a.may, role) {
						t.Errorf("%s: %v; it was told: %s", a.cell, err, said[d.ToolUseID])
					}
					if _, err := os.Stat(a.stays); a.stays != "" && err == nil {
						t.Errorf("%s: it got out", a.cell)
					}
				}
			})
		}
	}
}

// scriptOf makes the model try all of it, one after the other.
func scriptOf(t *testing.T, all []attempt) string {
	t.Helper()
	turns := []any{}
	for _, a := range all {
		turns = append(turns, map[string]any{"tools": []any{map[string]any{"name": a.tool, "input": a.input}}})
	}
	// JSON is YAML.
	data, err := json.Marshal(map[string]any{"rules": []any{map[string]any{"turns": append(turns, map[string]any{"text": "done"})}}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "\\u0026", "&")
}

// decisions returns what was decided about a run's calls, in order, and what came
// of them.
func decisions(t *testing.T, client *api.Client, id nestor.ID) (list []*nestor.Decision, said map[string]string) {
	t.Helper()
	said = map[string]string{}
	for e, err := range client.Events(bound(t), id, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *nestor.Decision:
			list = append(list, e)
		case *nestor.ToolComplete:
			said[e.ToolUseID] = e.Summary
		}
	}
	return list, said
}
