package daemon_test

import (
	"context"
	"errors"
	"fmt"
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

// serving is a daemon in this process.
func serving(t *testing.T, s settings, change ...func(*daemon.Options)) (*api.Client, func()) {
	t.Helper()
	o := s.options()
	for _, f := range change {
		f(&o)
	}
	d := daemon.New(o)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case <-d.Ready():
	case err := <-done:
		stop()
		t.Fatal(err)
	}
	client := api.NewClient(daemon.SocketPath(s.Dir))
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		client.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	}
	t.Cleanup(end)
	return client, end
}

// until asks for a run until it is as wanted.
func until(t *testing.T, c *api.Client, id nestor.ID, wanted func(api.Run) bool) api.Run {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for {
		run, err := c.Run(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if wanted(run) {
			return run
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("it stays %s: %s", run.State, run.Doing)
		}
	}
}

func submit(t *testing.T, c *api.Client, task nestor.Task) nestor.ID {
	t.Helper()
	run, err := c.Submit(t.Context(), api.Submission{Task: task})
	if err != nil {
		t.Fatal(err)
	}
	return run.ID
}

func TestOneOwner(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	_, end := serving(t, s)
	if err := daemon.New(s.options()).Run(t.Context()); !errors.Is(err, daemon.ErrOwned) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second owner: %v", err)
	}
	end()
	serving(t, s)
}

// Who works with git in a project neither sees nor commits what is recorded there.
func TestGitIgnoresWhatIsRecorded(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	name := filepath.Join(s.Dir, ".nestor", ".gitignore")
	_, end := serving(t, s)
	if data, err := os.ReadFile(name); err != nil || string(data) != "*\n!/config.yaml\n" {
		t.Errorf("it says %q, %v", data, err)
	}
	end()
	if err := os.WriteFile(name, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serving(t, s)
	if data, err := os.ReadFile(name); err != nil || string(data) != "mine\n" {
		t.Errorf("what somebody wrote there is %q, %v", data, err)
	}
}

func TestRunsGoOnWithTheNextOwner(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `
turns:
  - when: interrupted
    say: [{text: I went on.}]
  - say: [{text: I begin.}, {text: never, after: 1h}]`}
	client, end := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "go"})
	until(t, client, id, func(r api.Run) bool { return r.State == nestor.Running && r.Session != "" })
	end()
	client, _ = serving(t, s)
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success || run.Result.Output != "I went on." || run.Resumes != 0 {
		t.Errorf("it is %+v, %v", run, err)
	}
}

func TestUsageLimitIsWaitedFor(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `
turns:
  - when: first
    say: [{text: I try.}]
    usage_limit: {resets_in: 1500ms}
  - say: [{text: done}]`}
	client, _ := serving(t, s)
	limits := nestor.Limits{LimitWait: time.Hour}
	id := submit(t, client, nestor.Task{Input: "first", Limits: limits})
	waiting := until(t, client, id, func(r api.Run) bool { return r.State == nestor.Waiting })
	if waiting.Wait.For != nestor.ForLimit || !strings.Contains(waiting.Doing, "waits for the reset of the provider's usage limit, until ") {
		t.Errorf("it %s (%+v)", waiting.Doing, waiting.Wait)
	}
	// Others of the same provider are held back, and are not tried.
	other := submit(t, client, nestor.Task{Input: "second", Limits: limits})
	held := until(t, client, other, func(r api.Run) bool { return r.State == nestor.Waiting || r.State.Ended() })
	if held.State != nestor.Waiting || held.Wait.For != nestor.ForLimit || !strings.Contains(held.Doing, string(id)) {
		t.Errorf("the other one %s (%+v)", held.Doing, held.Wait)
	}
	for _, id := range []nestor.ID{id, other} {
		run, err := client.Wait(t.Context(), id)
		if err != nil || run.State != nestor.Success {
			t.Errorf("in the end it is %s, %+v, %v", run.State, run.Error, err)
		}
	}
}

func TestWhatARunDoesIsOneLine(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Slots: 1, Script: `
turns:
  - say: [{text: I begin.}, {tool: {name: Bash, input: {command: make test}, result: ok, after: 1h}}]`}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "go"})
	run := until(t, client, id, func(r api.Run) bool { return strings.Contains(r.Doing, "runs Bash") })
	if !strings.HasPrefix(run.Doing, "works, since ") || !strings.Contains(run.Doing, "; runs Bash make test, since ") {
		t.Errorf("it %s", run.Doing)
	}
	second := submit(t, client, nestor.Task{Input: "go", After: nil})
	if run := until(t, client, second, func(r api.Run) bool { return true }); !strings.HasPrefix(run.Doing, "waits for a free slot, since ") {
		t.Errorf("the second %s", run.Doing)
	}
	third := submit(t, client, nestor.Task{Input: "go", After: []nestor.ID{id}})
	if run := until(t, client, third, func(r api.Run) bool { return true }); !strings.HasPrefix(run.Doing, "waits for 1 run that it comes after, since ") {
		t.Errorf("the third %s", run.Doing)
	}
	if err := client.Cancel(t.Context(), id, api.Cancellation{By: "ada", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	ended, err := client.Wait(t.Context(), id)
	if err != nil || ended.State != nestor.Cancelled || ended.Doing != "ended with cancelled: cancelled by ada: enough" {
		t.Errorf("it %s, %v", ended.Doing, err)
	}
	if err := client.Cancel(t.Context(), id, api.Cancellation{}); !errors.Is(err, nestor.ErrEnded) {
		t.Errorf("cancelled again: %v", err)
	}
}

func TestLetterReachesTheRun(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `
turns:
  - when: also this
    say: [{text: That too.}]
  - say: [{text: I begin., after: 300ms}]`}
	client, _ := serving(t, s)
	id := submit(t, client, nestor.Task{Input: "go"})
	if err := client.Send(t.Context(), id, api.Message{From: "ada", Content: "also this"}); err != nil {
		t.Fatal(err)
	}
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success || run.Result.Output != "That too." {
		t.Errorf("it is %s, %+v, %v", run.State, run.Result, err)
	}
	if err := client.Send(t.Context(), id, api.Message{Content: "late"}); !errors.Is(err, nestor.ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
}

// What a run is asked after its tree was archived is what it was before.
func TestArchivedRunIsStillThere(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	client, _ := serving(t, s, func(o *daemon.Options) { o.ArchiveAfter, o.ArchiveEvery = time.Millisecond, 20*time.Millisecond })
	id := submit(t, client, nestor.Task{Input: "hello"})
	before, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	after := until(t, client, id, func(r api.Run) bool { return r.Archived })
	if after.State != before.State || after.Result == nil || after.Result.Output != before.Result.Output || after.Session != before.Session ||
		after.Turns != before.Turns || after.Provider != "scripted" || after.Input != "hello" {
		t.Errorf("it was %+v, %+v\nand is %+v, %+v", before, before.Result, after, after.Result)
	}
	n := 0
	for _, err := range client.Events(t.Context(), id, api.EventsQuery{Follow: true}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Error("it has no events")
	}
}

// A log does not only grow where nothing but short commands are run: who owns a
// project for a moment archives what ended before.
func TestShortOwnersArchive(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	rarely := func(o *daemon.Options) { o.ArchiveAfter, o.ArchiveEvery = time.Millisecond, time.Hour }
	client, stop := serving(t, s, rarely)
	id := submit(t, client, nestor.Task{Input: "hello"})
	if _, err := client.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	stop()
	client, _ = serving(t, s, rarely)
	until(t, client, id, func(r api.Run) bool { return r.Archived })
}

func TestSubmissionsThatCannotRunAreRefused(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted"}
	client, _ := serving(t, s)
	for want, task := range map[string]nestor.Task{
		`no provider "sky"`: {Provider: "sky"},
		`unknown field`:     {Data: []byte(`{"tool":["Read"]}`)},
		`want NAME=VALUE`:   {Data: []byte(`{"env":["A"]}`)},
		`priority "soon"`:   {Priority: "soon"},
	} {
		_, err := client.Submit(t.Context(), api.Submission{Task: task})
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// A command that outlives its killed daemon ends with the next one.
func TestNextOwnerEndsWhatIsLeftRunning(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, `
rules:
  - when: {user: interrupted}
    turns: [{text: I went on.}]
  - turns: [{tools: [{name: Bash, input: {command: "touch began; exec sleep 1000", description: wait}}]}]`)
	s := settings{Dir: dir, URL: model.URL, Provider: "api"}
	p := s.start(t)
	client := s.client(t)
	id := submit(t, client, nestor.Task{Input: "go", Data: []byte(`{"permission_mode":"bypassPermissions"}`)})
	until(t, client, id, func(api.Run) bool { _, err := os.Stat(filepath.Join(dir, "began")); return err == nil })
	p.kill()
	p = s.start(t)
	if left := leftovers(t, dir); len(left) > 0 && !vanish(t.Context(), t, dir) {
		t.Errorf("left running: %q", left)
	}
	run, err := client.Wait(t.Context(), id)
	if err != nil || run.State != nestor.Success || run.Resumes != 1 {
		t.Errorf("it is %s, %+v, %v", run.State, run.Error, err)
	}
	p.stop(t)
}
