package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/runner"
)

// Explanation is what a run of an agent would be.
type Explanation struct {
	Task    nestor.Task        // with limits as they would be
	Options api.TaskOptions    // of it
	Policy  *permission.Policy // nil if no role bounds it
	Told    agentfile.Rendered // what the agent is told
	Memory  string             // the folder of its memory, which need not be there yet; empty means none
	Refused error              // why it would not be run; nil if it would
}

// Explain says what would be run for a task of an agent with that definition. It
// runs nothing: the commands of a text are shown, not executed, and git is not
// asked.
func (o Options) Explain(d agentfile.Definition, t nestor.Task) (Explanation, error) {
	options, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return Explanation{}, err
	}
	a := &agents{opts: o.Agents, models: o.Worker.Models, own: defaults{tools: o.Worker.Tools, mode: o.Worker.Mode, role: o.Worker.Role}}
	e := Explanation{Task: t, Refused: a.allowed(d)}
	if err := a.settle(d, &e.Task, &options); err != nil {
		return e, err
	}
	e.Options = options
	if !options.Whole {
		e.Task.Limits = e.Task.Limits.Or(o.Limits)
	}
	dir := t.Dir
	if dir == "" {
		dir = o.Dir
	}
	roles, err := permission.Roles(o.Worker.Roles)
	if err != nil {
		return e, err
	}
	p := &policy{roles: roles, own: defaults{role: o.Worker.Role}, home: filepath.Join(o.Dir, ".nestor")}
	if e.Policy, err = p.bounds(e.Task, options, dir); err != nil {
		return e, err
	}
	w := &worker{project: o.Dir, user: o.Agents.User}
	memory := ""
	if root, name := d.MemoryPlace(o.Dir, o.Agents.User); root != "" { // it need not be there
		e.Memory = filepath.Join(root, name)
		memory = d.MemoryPrompt(e.Memory)
	}
	e.Told = d.Render(context.Background(), agentfile.Facts{
		Input: t.Input, Inputs: options.Inputs, Dir: dir, FocusFile: options.FocusFile, SkillDir: w.skillDir(d, runner.Run{}), Carried: w.carriedDirs(d, runner.Run{}), Memory: memory, Now: time.Now(),
		Git: agentfile.Git{Branch: "(branch)", Commit: "(commit)", Root: "(root)"},
		Run: func(_ context.Context, c agentfile.ShellCommand) (string, error) {
			return "[what `" + c.Line + "` says]", nil
		},
	})
	return e, nil
}
