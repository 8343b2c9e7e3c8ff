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

// What a run had is found also when its tree is in the archive alone.
func TestArchivedRunIsResumedWithItsAgent(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	writeAgent(t, s.Dir, ".claude/agents/a.md", "---\ndescription: d\nrole: critic\ntools: Read\nlimits: {max_turns: 7}\n---\nText.\n")
	client, _ := serving(t, s, func(o *daemon.Options) { o.ArchiveAfter, o.ArchiveEvery = time.Millisecond, 20*time.Millisecond })
	first := wait(t, client, submit(t, client, nestor.Task{Agent: "a", Input: "x"}))
	until(t, client, first.ID, func(r api.Run) bool { return r.Archived })
	if err := os.Remove(filepath.Join(s.Dir, ".claude/agents/a.md")); err != nil {
		t.Fatal(err)
	}
	past, err := client.Run(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	second := wait(t, client, submit(t, client, resuming(t, past, "y", api.TaskOptions{})))
	var kept struct{ Options api.TaskOptions }
	data, err := json.Marshal(second.Result.Metadata["resume"])
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := kept.Options
	if second.State != nestor.Success || second.Agent != "a" || second.Limits.Turns != 7 || o.Role != "critic" || strings.Join(o.Tools, " ") != "Read" || o.Agent == nil || !o.Agent.Resumed || o.Agent.First != "x" {
		t.Errorf("it is %s, %v, of %q with %+v: %s", second.State, second.Error, second.Agent, second.Limits, data)
	}
	if second.Result.Output != "you said: y" || hashOf(t, second) != hashOf(t, first) {
		t.Errorf("it says %q, of %s after %s", second.Result.Output, hashOf(t, second), hashOf(t, first))
	}
}

// What a run was bounded by bounds who goes on with it, except for what is given anew.
func TestResumedRunIsBoundedAsItWas(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	client, _ := serving(t, s)
	data, err := json.Marshal(api.TaskOptions{Tools: []string{"Read"}, Role: "critic", Sandbox: "off", PermissionMode: "plan"})
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, client, submit(t, client, nestor.Task{Input: "x", Data: data, Limits: nestor.Limits{Turns: 5, Timeout: time.Hour}}))
	again := resuming(t, first, "y", api.TaskOptions{Tools: []string{"Bash"}, Role: "implementer", Given: []string{"role", "limits.max_turns"}})
	again.Limits = nestor.Limits{Turns: 9, Timeout: time.Minute}
	second := wait(t, client, submit(t, client, again))
	var kept struct{ Options api.TaskOptions }
	data, err = json.Marshal(second.Result.Metadata["resume"])
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o := kept.Options; strings.Join(o.Tools, " ") != "Read" || o.Role != "implementer" || o.PermissionMode != "plan" || second.Limits.Turns != 9 || second.Limits.Timeout != time.Hour {
		t.Errorf("it has %+v, within %+v", o, second.Limits)
	}
	if _, err := client.Submit(t.Context(), api.Submission{Task: resuming(t, api.Run{ID: nestor.NewID(time.Now()), Session: "s"}, "y", api.TaskOptions{})}); err == nil {
		t.Error("a run that there is not is resumed")
	}
}
