package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/history"
)

// place says in the task where in the project it works, for workers on other
// machines. If there may be some, it names the folder also of what names none, for
// those whom they start there, and refuses one that they cannot have.
func (b *backend) place(t *nestor.Task, o api.TaskOptions) error {
	shared := b.opts.Idle || b.opts.Broker != Broker{}
	if shared && t.Dir == "" && t.Swarm == "" {
		t.Dir = b.worker.dir
	}
	given := o.Subdir
	o.Subdir = ""
	if t.Dir != "" {
		var inside bool
		if o.Subdir, inside = within(b.opts.Dir, t.Dir); !inside && shared {
			return fmt.Errorf("dir %s is outside of the project %s, which is all that workers on other machines have", t.Dir, b.opts.Dir)
		}
	}
	if o.Subdir == given {
		return nil
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	t.Data = data
	return nil
}

// within returns the place of dir in the project, with slashes, through whatever
// links they are named.
func within(project, dir string) (place string, inside bool) {
	try := func(project, dir string) bool {
		rel, err := filepath.Rel(project, dir)
		place = filepath.ToSlash(rel)
		return err == nil && filepath.IsLocal(rel)
	}
	if try(project, dir) {
		return place, true
	}
	project, err := filepath.EvalSymlinks(project)
	if err != nil {
		return "", false
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil || !try(project, dir) {
		return "", false
	}
	return place, true
}

// Changes returns the archive of the files that a run changed on another machine.
func (b *backend) Changes(ctx context.Context, id nestor.ID) ([]byte, error) {
	run, err := b.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	if !run.State.Ended() {
		return nil, b.noChanges(id, "it has not ended; what it changes on another machine comes back then")
	}
	c, ok := api.ChangesOf(run.Result)
	if !ok || c.Ref == "" {
		return nil, b.noChanges(id, "no files come back: it changed none, or worked in the project itself")
	}
	data, err := b.blob(ctx, run.Root, c.Ref)
	if errors.Is(err, history.ErrNoBlob) {
		return nil, b.noChanges(id, "its files are gone: neither the log nor the archive has them")
	}
	return data, err
}

// forget lets go of the documents of an archived tree. What its events refer to is
// put into the history first.
func (b *backend) forget(ctx context.Context, root nestor.ID, runs []nestor.ID) error {
	refs, err := b.log.Blobs(ctx, string(root))
	if err != nil {
		return err
	}
	for _, ref := range refs {
		data, err := b.log.Blob(ctx, ref)
		if err != nil {
			return err
		}
		if err := b.history.KeepBlob(ctx, string(root), ref, data); err != nil {
			return err
		}
	}
	if err := b.engine.Forget(ctx, runs...); err != nil || len(refs) == 0 {
		return err
	}
	return b.log.RemoveBlobs(ctx, string(root))
}
