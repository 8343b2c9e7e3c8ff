package daemon_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// resuming returns a task that goes on with a run.
func resuming(t *testing.T, run api.Run, input string, o api.TaskOptions) nestor.Task {
	t.Helper()
	o.Session, o.Resumes = run.Session, run.ID
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return nestor.Task{Input: input, Provider: run.Provider, Data: data}
}

// A run that is gone on with has the agent that it had, as that was defined then,
// with its role, its tools and its limits; also when its tree is in the archive
// alone. What is given anew goes over it.
func TestResumedRunIsAsItWas(t *testing.T) {
	const script = `
rules:
  - repeat: true
    turns:
      - {text: I try., tools: [{name: Write, input: {file_path: made.txt, content: made}}]}
      - text: "It said: {{.ToolResult}}"`
	for _, archived := range []bool{false, true} {
		t.Run(map[bool]string{false: "lately", true: "archived"}[archived], func(t *testing.T) {
			model := scriptmodel.Start(t, script)
			s := settings{Dir: place(t), Provider: "api", URL: model.URL}
			writeAgent(t, s.Dir, ".claude/agents/a.md", "---\ndescription: d\nrole: critic\ntools: Read, Write\nlimits: {max_turns: 7}\n---\nText.\n")
			client, _ := serving(t, s, func(o *daemon.Options) {
				if archived {
					o.ArchiveAfter, o.ArchiveEvery = time.Millisecond, 20*time.Millisecond
				}
			})
			run := wait(t, client, submit(t, client, nestor.Task{Agent: "a", Input: "x"}))
			if err := os.Remove(filepath.Join(s.Dir, ".claude/agents/a.md")); err != nil {
				t.Fatal(err)
			}
			sum := hashOf(t, run)
			for _, test := range []struct {
				given api.TaskOptions
				role  string
			}{
				{api.TaskOptions{}, "critic"},
				{api.TaskOptions{Role: "reviewer", Given: []string{"role"}}, "reviewer"}, // besides the agent's own
				{api.TaskOptions{Role: "implementer", Tools: []string{"Bash"}}, "reviewer"},
			} {
				if archived {
					run = until(t, client, run.ID, func(r api.Run) bool { return r.Archived })
				}
				run = wait(t, client, submit(t, client, resuming(t, run, "y", test.given)))
				decided, said := decisions(t, client, run.ID)
				if run.State != nestor.Success || run.Agent != "a" || run.Limits.Turns != 7 || hashOf(t, run) != sum {
					t.Errorf("it is %s, %v, of %q within %+v", run.State, run.Error, run.Agent, run.Limits)
				}
				if len(decided) != 1 || decided[0].Allowed || !strings.Contains(decided[0].Rule, test.role) {
					t.Errorf("given %q, it was decided %+v: %v", test.given.Role, decided, said)
				}
			}
		})
	}
}

// Limits that were given, and are not now, are as they were.
func TestResumedRunHasItsLimits(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	client, _ := serving(t, s)
	first := wait(t, client, submit(t, client, nestor.Task{Input: "x", Limits: nestor.Limits{Turns: 5, Timeout: time.Hour}}))
	again := resuming(t, first, "y", api.TaskOptions{Given: []string{"limits.max_turns"}})
	again.Limits = nestor.Limits{Turns: 9, Timeout: time.Minute}
	if second := wait(t, client, submit(t, client, again)); second.Limits.Turns != 9 || second.Limits.Timeout != time.Hour {
		t.Errorf("it is bounded by %+v", second.Limits)
	}
	if _, err := client.Submit(t.Context(), api.Submission{Task: resuming(t, api.Run{ID: nestor.NewID(time.Now()), Session: "s"}, "y", api.TaskOptions{})}); err == nil {
		t.Error("a run that there is not is resumed")
	}
}
