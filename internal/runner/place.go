package runner

import (
	"context"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor"
)

// Workspace is where runs work.
type Workspace interface {
	// Open returns the place of a run. A run that was interrupted gets the one that
	// it had.
	Open(ctx context.Context, run Run) (Place, error)
}

// Place is where one run works.
type Place struct {
	Dir     string
	Below   string   // where Dir is in the project, with slashes, which paths in events begin with; empty means that it is the project, or none
	Env     []string // K=V, for what the agent starts
	Context string   // what the agent is told besides its input; empty means nothing
	Write   []string // files elsewhere that it may change, such as the state of its swarm
	Read    []string // folders elsewhere that it may read, whatever its role says
	Folders []string // folders that it may read and change, likewise, such as its memory
	// Repository is what git uses that is not in Dir; zero if there is none.
	Repository Repository
	// Watch looks at the folder, and returns what sees all changes from then on, by
	// whomever. Nil means that nobody looks.
	Watch func(ctx context.Context) (Watcher, error)
	// Close is called once, when nothing of the run uses the place any more, with
	// what came of it, and may add to that; nil means that nobody wants to know.
	Close func(*nestor.Result) error
}

// End closes the place of a run with that result. If it fails, nothing is a success.
func (p Place) End(r *nestor.Result) {
	if p.Close == nil {
		return
	}
	if err := p.Close(r); err != nil && r.Status == nestor.Success {
		r.Status = nestor.Error
		r.Error = &nestor.Failure{Kind: nestor.Internal, Message: fmt.Sprintf("closing the workspace: %v", err)}
	}
}

// rules are those about tools that let an agent use what it was given besides its
// folder. A folder that cannot be written in a rule has none: whoever is asked
// allows it.
func (p Place) rules() (list []string) {
	add := func(tool string, dirs ...string) {
		for _, dir := range dirs {
			if !strings.ContainsAny(dir, "*?[]{}(),!\\") {
				list = append(list, tool+"(/"+dir+"/**)")
			}
		}
	}
	add("Read", p.Read...)
	add("Read", p.Folders...)
	add("Edit", p.Folders...)
	return list
}

// Watcher sees what is changed in a folder.
type Watcher interface {
	// Run calls report for every file that is changed, until ctx ends; then once
	// more for what was changed last. Paths are relative to the folder, with
	// slashes.
	Run(ctx context.Context, report func(path, action string)) error
	// Sync waits until Run has reported all that was changed before.
	Sync(ctx context.Context) error
}

// Repository is what git needs of a repository in whose worktree a run works.
type Repository struct {
	Dir   string   // to be read
	Write []string // in it, what is written when the run commits
}

// Dir is a Workspace in which a run works in the folder that its task names, or
// else in this one; empty means the current directory.
type Dir string

// Open returns the folder.
func (d Dir) Open(_ context.Context, run Run) (Place, error) {
	dir := string(d)
	if run.Task.Dir != "" {
		dir = run.Task.Dir
	}
	return Place{Dir: dir}, nil
}
