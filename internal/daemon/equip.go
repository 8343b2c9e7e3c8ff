package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/runner"
)

// equipped is a workspace in which a run also has what the definition of its agent
// brings: the files of skills and of hooks, to be read, and its memory.
type equipped struct {
	runner.Workspace
	w *worker
}

func (e equipped) Open(ctx context.Context, run runner.Run) (runner.Place, error) {
	o, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return runner.Place{}, err
	}
	d, ok, err := e.w.definition(ctx, o)
	if err != nil {
		return runner.Place{}, err
	}
	place, err := e.Workspace.Open(ctx, run)
	if err != nil || !ok {
		return place, err
	}
	place.Read = append(place.Read, e.w.brought(d, run, place.Dir)...)
	memory, err := d.MakeMemory(e.w.root(run), e.w.user)
	if err != nil {
		f := &nestor.Failure{Kind: nestor.Refused, Message: err.Error()}
		if place.Close != nil {
			place.Close(&nestor.Result{Status: nestor.Error, Error: f})
		}
		return runner.Place{}, f
	}
	if memory != "" {
		place.Folders = append(place.Folders, memory)
	}
	return place, nil
}

// root returns the project, as it is on this machine for a run.
func (w *worker) root(run runner.Run) string {
	if w.copies != nil {
		return w.copies.where(run.ID, run.Attempt, "")
	}
	return w.project
}

// brought returns the folders that a definition brings to be read, as far as they
// are there and not in dir.
func (w *worker) brought(d agentfile.Definition, run runner.Run, dir string) []string {
	var list []string
	for _, s := range append([]agentfile.Definition{d}, d.Carried...) {
		if folder := w.skillDir(s, run); folder != "" {
			list = append(list, folder)
		}
	}
	if len(d.Hooks) > 0 {
		list = append(list, filepath.Join(w.projectDir(run, dir), ".claude", "hooks"))
		if d.Source.Scope == agentfile.User && w.user != "" {
			list = append(list, filepath.Join(w.user, "hooks"))
		}
	}
	for _, folder := range slices.Clone(list) { // and where they are, if links lead there
		if real, err := filepath.EvalSymlinks(folder); err == nil && real != folder && d.Source.Scope == agentfile.User {
			list = append(list, real)
		}
	}
	return elsewhere(list, dir)
}

// projectDir returns the folder that a run which works in dir takes for its
// project: a worktree is one.
func (w *worker) projectDir(run runner.Run, dir string) string {
	trees := filepath.Join(w.project, ".nestor", "worktrees")
	if below, inside := within(trees, dir); inside && w.copies == nil {
		if name, _, _ := strings.Cut(filepath.ToSlash(below), "/"); name != "" && name != "." {
			return filepath.Join(trees, name)
		}
	}
	return w.root(run)
}

// equip lets a role use what a run was given, whatever else it allows.
func equip(role *permission.Policy, place runner.Place) {
	role.Read = slices.Concat(role.Read, place.Read, place.Folders)
	role.Write = slices.Concat(role.Write, place.Folders)
	var rules []permission.Rule
	for _, dir := range place.Folders {
		rules = append(rules, permission.Rule{Tool: "Edit", Content: "**"}.At(dir))
	}
	role.Allow = append(slices.Clip(role.Allow), rules...)
	role.Also = slices.Clone(role.Also)
	for i := range role.Also {
		role.Also[i].Allow = append(slices.Clip(role.Also[i].Allow), rules...)
	}
}

// allowFiles allows what a run was given that is not where it works, or that the
// Claude CLI asks about whatever its rules say, as it does of all in .claude (seen
// in 2.1.325). It has to be allowed by decide, too; nil allows all.
func allowFiles(place runner.Place, decide func(string, json.RawMessage) runner.Verdict) func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
	return func(_ context.Context, q *claude.PermissionRequest) (claude.Decision, error) {
		if decide != nil && !decide(q.Tool, q.Input).Allowed {
			return claude.Deny{Message: "nobody is there to be asked"}, nil
		}
		var in struct {
			File string `json:"file_path"`
			Path string `json:"path"`
		}
		if json.Unmarshal(q.Input, &in) != nil {
			return claude.Deny{Message: "its input cannot be read"}, nil
		}
		file := filepath.Clean(in.File)
		switch q.Tool {
		case "Read", "Write", "Edit", "MultiEdit":
			if slices.Contains(place.Write, file) || inFolders(place.Folders, file) {
				return claude.Allow{}, nil
			}
		}
		switch q.Tool {
		case "Read":
			if inFolders(place.Read, file) {
				return claude.Allow{}, nil
			}
		case "Glob", "Grep":
			if inFolders(slices.Concat(place.Read, place.Folders), filepath.Clean(in.Path)) {
				return claude.Allow{}, nil
			}
		}
		return claude.Deny{Message: "nobody is there to be asked"}, nil
	}
}

// inFolders tells whether a file is really in one of the folders, which are.
func inFolders(folders []string, file string) bool {
	if !filepath.IsAbs(file) {
		return false
	}
	real := file
	for at, rest := file, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if _, err := os.Lstat(at); err != nil && at != filepath.Dir(at) {
			continue // it is not there yet
		}
		resolved, err := filepath.EvalSymlinks(at)
		if err != nil {
			return false // a link that leads nowhere
		}
		real = filepath.Join(resolved, rest)
		break
	}
	return slices.ContainsFunc(folders, func(folder string) bool {
		_, inside := within(folder, real)
		return inside
	})
}

// memoryOnly denies tools that are there for the memory alone what is elsewhere.
func memoryOnly(tools []string, memory, dir string) func(tool string, input json.RawMessage) bool {
	if len(tools) == 0 {
		return nil
	}
	p := permission.Policy{Read: []string{"/"}, Write: []string{memory}, Grant: permission.Grant{Mode: permission.ModeBypass}}
	return func(tool string, input json.RawMessage) bool {
		return slices.Contains(tools, tool) && p.Decide(permission.Call{Tool: tool, Input: input, Dir: dir}).Verdict != permission.Allow
	}
}
