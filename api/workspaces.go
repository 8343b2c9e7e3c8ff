package api

import (
	"encoding/json"
	"time"

	"github.com/dfaf701a/nestor"
)

// WorkspaceOptions say what a run works in. The zero value leaves it to the
// daemon's config.
type WorkspaceOptions struct {
	Kind string `json:"kind,omitempty"` // plain, swarm or worktree
	End  string `json:"end,omitempty"`  // keep, merge or drop
}

// Workspace is what became of the folder that a run worked in. Its result has it
// as "workspace" among its metadata, unless it worked in a plain folder of which
// nothing was noted.
type Workspace struct {
	Kind      string   `json:"kind"`
	Dir       string   `json:"dir"`
	Branch    string   `json:"branch,omitempty"`    // where the work is, if that is kept on one
	Commit    string   `json:"commit,omitempty"`    // its last one
	Beside    string   `json:"beside,omitempty"`    // a second branch, with work that was not on the first
	End       string   `json:"end"`                 // what was done: keep, merge or drop
	Into      string   `json:"into,omitempty"`      // the branch that it was merged into
	Merged    string   `json:"merged,omitempty"`    // the commit that this has then
	Why       string   `json:"why,omitempty"`       // why it was not merged, or why its folder stays
	Conflicts []string `json:"conflicts,omitempty"` // paths that keep it from being merged
	Approval  string   `json:"approval,omitempty"`  // whose it waits for to be merged: critic or person
	Changed   int      `json:"changed"`             // files
	Diff      string   `json:"diff,omitempty"`      // where what was changed is kept; see [Client.Diff]
	NoDiff    string   `json:"no_diff,omitempty"`   // why it is not
}

// Diff is what a run changed.
type Diff struct {
	Files []FileDiff `json:"files"`
	Patch string     `json:"patch,omitempty"` // as git writes it; empty if only the files are known
	Cut   bool       `json:"cut,omitempty"`   // there is more than is here
	Left  []string   `json:"left,omitempty"`  // paths that cannot be compared
	Live  bool       `json:"live,omitempty"`  // the run works still
}

// FileDiff is a file that a run changed.
type FileDiff struct {
	Path   string `json:"path"`   // in its folder, with slashes
	Action string `json:"action"` // write, edit or remove
	Size   int64  `json:"size,omitempty"`
	Link   string `json:"link,omitempty"` // where a link leads
}

// Space is the folder of a run of which something is there.
type Space struct {
	Run      nestor.ID `json:"run"`
	Root     nestor.ID `json:"root,omitempty"`
	Kind     string    `json:"kind"`
	Dir      string    `json:"dir"`
	Branch   string    `json:"branch,omitempty"`
	Made     time.Time `json:"made"`
	Used     time.Time `json:"used"` // when its run used it last
	Size     int64     `json:"size"` // bytes that are the run's alone
	InUse    bool      `json:"in_use,omitempty"`
	Closed   bool      `json:"closed,omitempty"` // its run is over
	Work     string    `json:"work,omitempty"`   // what would be lost with it; empty if nothing would
	Approved string    `json:"approved,omitempty"`
}

// Collection says which folders are removed.
type Collection struct {
	Age   time.Duration `json:"age,omitempty"`  // those used last so long ago; zero means as the config says
	Size  int64         `json:"size,omitempty"` // the oldest, until the rest has so many bytes; likewise
	Force bool          `json:"force,omitempty"`
}

// Ending says what becomes of the folder of a run that is over.
type Ending struct {
	End string `json:"end"` // merge or drop
}

// Approval says that somebody finds the work of a run good.
type Approval struct {
	By     string `json:"by,omitempty"` // who; empty means a person
	Reason string `json:"reason,omitempty"`
}

// metadataWorkspace is the name that a Workspace has in the metadata of a result.
const metadataWorkspace = "workspace"

// WorkspaceOf returns the workspace in a result; ok is false if there is none, or
// if r is nil.
func WorkspaceOf(r *nestor.Result) (w Workspace, ok bool) {
	if r == nil || r.Metadata[metadataWorkspace] == nil {
		return Workspace{}, false
	}
	data, err := json.Marshal(r.Metadata[metadataWorkspace])
	if err != nil || json.Unmarshal(data, &w) != nil {
		return Workspace{}, false
	}
	return w, true
}

// SetWorkspace puts a workspace into a result.
func SetWorkspace(r *nestor.Result, w Workspace) {
	if r.Metadata == nil {
		r.Metadata = map[string]any{}
	}
	r.Metadata[metadataWorkspace] = w
}
