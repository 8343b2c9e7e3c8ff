package api

import (
	"encoding/json"

	"github.com/dfaf701a/nestor"
)

// Changes are what a run changed in its folder on another machine. Its result has
// them as "changes" among its metadata; [Client.Changes] brings the files.
type Changes struct {
	Ref   string   `json:"ref,omitempty"`  // where the archive of the files is kept; empty if there are none
	Size  int64    `json:"size,omitempty"` // of that, in bytes
	Count int      `json:"count"`          // files
	Files []Change `json:"files,omitempty"`
	// Left are files that are different too, but do not come back, such as links
	// that lead out of the folder. Both lists are cut if they are long.
	Left []string `json:"left,omitempty"`
}

// Change is a file that a run changed.
type Change struct {
	Path   string `json:"path"`   // in the project, with slashes
	Action string `json:"action"` // write, edit or remove
}

// metadataChanges is the name that Changes have in the metadata of a result.
const metadataChanges = "changes"

// ChangesOf returns the changes in a result; ok is false if there are none, or if
// r is nil.
func ChangesOf(r *nestor.Result) (c Changes, ok bool) {
	if r == nil || r.Metadata[metadataChanges] == nil {
		return Changes{}, false
	}
	data, err := json.Marshal(r.Metadata[metadataChanges])
	if err != nil || json.Unmarshal(data, &c) != nil {
		return Changes{}, false
	}
	return c, true
}

// SetChanges puts changes into a result.
func SetChanges(r *nestor.Result, c Changes) {
	if r.Metadata == nil {
		r.Metadata = map[string]any{}
	}
	r.Metadata[metadataChanges] = c
}
