package daemon_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/daemon"
)

func writeAgent(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func told(text string) string {
	return "---\ndescription: d\ntemplate: '" + text + ": {{.Input}}'\n---\nText.\n"
}

// A file that changes counts from the next submission on, without a restart; a run
// keeps what it was submitted with, also when it goes on with the next owner.
func TestRunKeepsItsDefinition(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `
turns:
  - when: interrupted
    say: [{text: I went on.}]
  - when: hold
    say: [{text: I begin.}, {text: never, after: 1h}]
  - say: [{text: done}]`}
	writeAgent(t, s.Dir, ".claude/agents/a.md", told("hold, first"))
	client, end := serving(t, s)
	held := submit(t, client, nestor.Task{Agent: "a", Input: "x"})
	until(t, client, held, func(r api.Run) bool { return r.State == nestor.Running && r.Session != "" })
	writeAgent(t, s.Dir, ".claude/agents/a.md", told("second one"))
	after := wait(t, client, submit(t, client, nestor.Task{Agent: "a", Input: "x"}))
	if err := os.Remove(filepath.Join(s.Dir, ".claude/agents/a.md")); err != nil {
		t.Fatal(err)
	}
	end()
	client, _ = serving(t, s)
	before := wait(t, client, held)
	for run, want := range map[*api.Run]string{&before: "hold, first: x", &after: "second one: x"} {
		var said strings.Builder
		for e, err := range client.Events(t.Context(), run.ID, api.EventsQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if start, ok := e.(*nestor.ChatStart); ok {
				said.WriteString(start.Message + "\n")
			}
		}
		if run.State != nestor.Success || !strings.Contains(said.String(), want) {
			t.Errorf("it is %s, %v, and was told %q, want %q", run.State, run.Error, said.String(), want)
		}
	}
	if hashOf(t, before) == hashOf(t, after) {
		t.Error("both have the same hash")
	}
	if _, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Agent: "a", Input: "x"}}); err == nil {
		t.Error("an agent whose file is gone is run")
	}
}

func hashOf(t *testing.T, run api.Run) string {
	t.Helper()
	var definition struct{ SHA256 string }
	data, err := json.Marshal(run.Result.Metadata["definition"])
	if err == nil {
		err = json.Unmarshal(data, &definition)
	}
	if err != nil || len(definition.SHA256) != 64 {
		t.Fatalf("its definition is %s, %v", data, err)
	}
	return definition.SHA256
}

func TestAgentsThatCannotRunAreRefused(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	writeAgent(t, s.Dir, ".claude/agents/needs.md", "---\ndescription: d\ninputs: {a: {type: string, required: true}}\n---\nText.\n")
	writeAgent(t, s.Dir, ".claude/agents/wild.md", "---\ndescription: d\ntools: Bash\n---\nText.\n")
	writeAgent(t, s.Dir, ".claude/agents/bad.md", "---\nrole: x\n---\nText.\n")
	client, _ := serving(t, s)
	forged, err := json.Marshal(api.TaskOptions{Agent: &api.AgentOptions{Definition: "agents/" + strings.Repeat("0", 64)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"critc": `there is no agent "critc"; did you mean critic?`,
		"needs": "agent needs needs the input a; give it with --set a=…",
		"wild":  "agent wild: .claude/agents/wild.md wants what counts only if you trust it: tools Bash;",
		"bad":   ".claude/agents/bad.md:2:7: ",
	} {
		_, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Agent: name, Input: "go"}})
		problem, ok := errors.AsType[*api.Problem](err)
		if !ok || problem.Status != http.StatusBadRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	// Nobody but the daemon says which definition it is.
	run := wait(t, client, submit(t, client, nestor.Task{Input: "go", Data: forged}))
	if run.State != nestor.Success || run.Result.Metadata["definition"] != nil {
		t.Errorf("a forged definition: %s, %v, %v", run.State, run.Error, run.Result.Metadata)
	}
}

func TestTrustIsAskedForEachSubmission(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	writeAgent(t, s.Dir, ".claude/agents/wild.md", "---\ndescription: d\ntools: Bash\n---\nText.\n")
	trusts := make(chan bool, 2)
	client, _ := serving(t, s, func(o *daemon.Options) {
		o.Agents.Trusts = func(d agentfile.Definition) bool { return d.Name == "wild" && <-trusts }
	})
	for _, trust := range []bool{false, true} {
		trusts <- trust
		if _, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Agent: "wild", Input: "go"}}); (err == nil) != trust {
			t.Errorf("trusted %v: %v", trust, err)
		}
	}
}

// Each failed attempt is in the metadata with its kind, whatever came of the run.
func TestFailuresAreInTheMetadata(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `
turns:
  - {when: always, fail: {status: 529, message: overloaded}}
  - {when: refused, fail: {status: 401, message: no such key}}
  - say: [{text: fine}]`}
	client, _ := serving(t, s)
	for _, test := range []struct {
		input string
		want  []string
	}{
		{"always", []string{"1 connection", "2 connection", "3 connection"}},
		{"refused", []string{"1 provider"}},
		{"well", nil},
	} {
		run := wait(t, client, submit(t, client, nestor.Task{Input: test.input, Limits: nestor.Limits{Attempts: 3, Backoff: time.Millisecond}}))
		var list []struct {
			Attempt int
			Kind    nestor.Kind
			Message string
		}
		data, err := json.Marshal(run.Result.Metadata["failures"])
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			got = append(got, string(rune('0'+f.Attempt))+" "+string(f.Kind))
			if f.Message == "" {
				t.Errorf("%s: a failure without a message", test.input)
			}
		}
		if strings.Join(got, ", ") != strings.Join(test.want, ", ") {
			t.Errorf("%s: the failures are %q, want %q", test.input, got, test.want)
		}
	}
}

// A worker elsewhere has the definition of the daemon's project, though its own
// folder has none.
func TestDefinitionReachesWorkersElsewhere(t *testing.T) {
	d := project(t)
	writeAgent(t, d.Dir, ".claude/agents/far.md", told("from afar"))
	m := d.worker(t, "a")
	m.Script = ""
	w := m.start(t)
	client := d.client(t)
	run := wait(t, client, submit(t, client, nestor.Task{Agent: "far", Input: "x"}))
	if run.State != nestor.Success || run.Result.Output != "you said: from afar: x" {
		t.Errorf("it is %s, %v: %+v", run.State, run.Error, run.Result)
	}
	w.stop(t)
	d.stop(t)
}

// What a definition brings is there for a worker elsewhere, in its copy of the
// project.
func TestDefinitionIsEquippedElsewhere(t *testing.T) {
	d := project(t)
	writeAgent(t, d.Dir, ".claude/agents/far.md", "---\ndescription: d\nmemory: project\nskills: [s]\n---\nText.\n")
	writeAgent(t, d.Dir, ".claude/skills/s/SKILL.md", "---\ndescription: d\n---\nMind.\n")
	m := d.worker(t, "a")
	m.Script = ""
	w := m.start(t)
	client := d.client(t)
	run := wait(t, client, submit(t, client, nestor.Task{Agent: "far", Input: "x"}))
	if run.State != nestor.Success || run.Result.Output != "you said: x" {
		t.Errorf("it is %s, %v: %+v", run.State, run.Error, run.Result)
	}
	w.stop(t)
	d.stop(t)
}
