package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

const recordVersion = 1

// The states of a record. Each is written before what it announces is done.
const (
	opening  = "opening"  // nobody has worked there yet: it may be made anew
	open     = "open"     // a run works there, or was interrupted
	kept     = "kept"     // the run is over
	dropping = "dropping" // nothing there is needed any more
)

// record is what is known of a run's folder: .nestor/spaces/<run>/record.json.
type record struct {
	Version int       `json:"version"`
	Run     nestor.ID `json:"run"`
	Root    nestor.ID `json:"root,omitempty"`
	Kind    Kind      `json:"kind"`
	State   string    `json:"state"`
	Swarm   string    `json:"swarm,omitempty"`
	Slug    string    `json:"slug,omitempty"`
	Dir     string    `json:"dir"`
	Made    time.Time `json:"made"`
	Used    time.Time `json:"used"`

	// Of folders that are no worktrees.
	Start   string `json:"start,omitempty"`    // the tree at the start
	NoStart string `json:"no_start,omitempty"` // why there is none

	// Of worktrees.
	Approved *Approval `json:"approved,omitempty"` // nil means by nobody
	From     string    `json:"from,omitempty"`     // the folder whose checkout it is made of
	Top      string    `json:"top,omitempty"`      // the worktree's folder; Dir is it, or in it
	Branch   string    `json:"branch,omitempty"`
	Base     string    `json:"base,omitempty"`     // the commit where it began
	BaseRef  string    `json:"base_ref,omitempty"` // refs/heads/… that it is merged into; empty if the base is no branch
}

func homeOf(project string, run nestor.ID) string {
	return filepath.Join(project, ".nestor", "spaces", string(run))
}

func worktreeOf(project string, run nestor.ID) string {
	return filepath.Join(project, ".nestor", "worktrees", string(run))
}

// makeHome makes the folder for what is known of a run. Git is told to see nothing
// of what is beside it.
func makeHome(project, home string) error {
	for _, name := range []string{"spaces", "worktrees"} {
		dir := filepath.Join(project, ".nestor", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		file := filepath.Join(dir, ".gitignore")
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			if err := os.WriteFile(file, []byte("*\n"), 0o644); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(home, 0o700)
}

// lockHome takes a run for this process until the file is closed; nil means that
// somebody has it.
func lockHome(home string) (*os.File, error) { return lockFile(filepath.Join(home, "lock")) }

// lockFile locks a file, which it makes; nil means that somebody has it.
func lockFile(name string) (*os.File, error) {
	for {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		taken, err := tryLock(file)
		if err != nil || !taken {
			file.Close()
			return nil, err
		}
		// Who had it may have removed it meanwhile, and this is the lock of nothing.
		mine, err := file.Stat()
		if err != nil {
			file.Close()
			return nil, err
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(mine, now) {
			return file, nil
		}
		file.Close()
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			return nil, nil // all of it is gone
		}
	}
}

// readRecord returns what is known of a run, if anything is.
func readRecord(home string) (rec record, known bool, err error) {
	name := filepath.Join(home, "record.json")
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		return record{}, false, fmt.Errorf("reading %s: %w: remove it, and what is on the run's branch is found by its name", name, err)
	}
	if rec.Version != recordVersion {
		return record{}, false, fmt.Errorf("reading %s: it is of version %d; this is for version %d", name, rec.Version, recordVersion)
	}
	if err := rec.check(home); err != nil {
		return record{}, false, fmt.Errorf("reading %s: %w", name, err)
	}
	return rec, true, nil
}

// check tells what no record of ours says: others can write there, too.
func (rec record) check(home string) error {
	project := filepath.Dir(filepath.Dir(filepath.Dir(home)))
	switch {
	case string(rec.Run) != filepath.Base(home):
		return fmt.Errorf("it is about run %.60q", rec.Run)
	case rec.Kind != Worktree:
		return nil
	case rec.Top != worktreeOf(project, rec.Run):
		return fmt.Errorf("it says %.200q, which is not where worktrees of this project are: was the project moved? Then run git worktree repair, and correct the paths", rec.Top)
	case !strings.HasPrefix(rec.Branch, "nestor/"+string(rec.Run)):
		return fmt.Errorf("branch %.100q is none of the run", rec.Branch)
	case rec.BaseRef != "" && !strings.HasPrefix(rec.BaseRef, "refs/heads/"), strings.Trim(rec.Base, "0123456789abcdef") != "":
		return fmt.Errorf("base %.100q %.100q is none", rec.BaseRef, rec.Base)
	}
	if err := within(rec.Top, rec.Dir); err != nil {
		return err
	}
	return within(project, rec.From)
}

// within tells whether a path is a folder, or below it, by their names.
func within(dir, name string) error {
	if rel, err := filepath.Rel(dir, name); err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("%.200q is outside of %s", name, dir)
	}
	return nil
}

// write replaces the record, all at once, and so that a loss of power keeps it.
func (rec record) write(home string) error {
	text, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(home, "record.json"), append(text, '\n'))
}

// replaceFile gives a file other content, all at once.
func replaceFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(name))
}
