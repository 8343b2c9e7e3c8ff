package daemon_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// A task that says all has nothing of what the owner of the project was started with,
// neither has what it starts: what it leaves open is open.
func TestWholeTasks(t *testing.T) {
	dir := place(t)
	model := scriptmodel.Start(t, `
rules:
  - when: {user: "go"}
    turns:
      - tools: [{name: Write, input: {file_path: '`+dir+`/own.txt', content: x}}]
      - tools: [{name: mcp__nestor__spawn, input: {task: "child"}}]
      - text: "It said: {{.ToolResult}}"
  - when: {user: "child"}
    turns:
      - tools: [{name: Write, input: {file_path: '`+dir+`/child.txt', content: x}}]
      - text: done`)
	s := settings{Dir: dir, Limits: sandbox.Limits{Processes: 50}}.with(t, "api", model.URL)
	client, _ := serving(t, s, func(o *daemon.Options) {
		o.Worker.Role, o.Worker.Tools = "monitor", []string{"Read"}
		o.Limits = nestor.Limits{Turns: 7, BudgetUSD: 1, Silence: time.Hour, LimitWait: time.Hour}
	})
	written := func() (files []string) {
		for _, name := range []string{"own.txt", "child.txt"} {
			if os.Remove(filepath.Join(dir, name)) == nil {
				files = append(files, name)
			}
		}
		return files
	}
	for _, c := range []struct {
		whole string
		files int
		want  nestor.Limits
	}{
		{`{"whole":true}`, 2, nestor.Limits{Turns: 25}},
		{`{}`, 0, nestor.Limits{Turns: 7, BudgetUSD: 1, Silence: time.Hour, LimitWait: time.Hour}},
	} {
		run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte(c.whole)})
		if files := written(); len(files) != c.files {
			t.Errorf("%s: it wrote %q, and said %q", c.whole, files, run.Result.Output)
		}
		l := run.Limits
		if got := (nestor.Limits{Turns: l.Turns, BudgetUSD: l.BudgetUSD, Silence: l.Silence, LimitWait: l.LimitWait}); got != c.want {
			t.Errorf("%s: its limits are %+v, want %+v", c.whole, got, c.want)
		}
	}
}
