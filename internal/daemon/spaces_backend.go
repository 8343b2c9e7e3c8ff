package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// Diff returns what a run changed on this machine: all of it, if something was
// noted when it began, else the files that it was seen to change.
func (b *backend) Diff(ctx context.Context, id nestor.ID) (api.Diff, error) {
	run, err := b.stands(ctx, id)
	if err != nil {
		return api.Diff{}, err
	}
	if d, ok, err := b.worker.spaces.live(ctx, id); ok {
		return d, err
	}
	w, ok := api.WorkspaceOf(run.Result)
	switch {
	case ok && w.NoDiff != "":
		return api.Diff{}, b.noChanges(id, "what it changed is not kept: "+w.NoDiff)
	case ok && w.Diff == "":
		return api.Diff{Files: []api.FileDiff{}}, nil
	case ok:
		data, err := b.blob(ctx, run.Root, w.Diff)
		if err != nil {
			return api.Diff{}, err
		}
		var d api.Diff
		err = json.Unmarshal(data, &d)
		return d, err
	}
	return b.seen(ctx, run)
}

// seen returns the files that a run was seen to change.
func (b *backend) seen(ctx context.Context, run api.Run) (api.Diff, error) {
	d := api.Diff{Files: []api.FileDiff{}, Live: !run.State.Ended()}
	at := map[string]int{}
	for e, err := range b.log.Read(ctx, eventlog.Filter{Root: string(run.Root), Run: string(run.ID)}, 0) {
		if err != nil {
			return d, err
		}
		event, err := e.Decode()
		if err != nil {
			continue
		}
		w, ok := event.(*nestor.WorkspaceWrite)
		if !ok {
			continue
		}
		i, known := at[w.Path]
		if !known {
			at[w.Path] = len(d.Files)
			d.Files = append(d.Files, api.FileDiff{Path: w.Path, Action: w.Action})
			continue
		}
		if d.Files[i].Action != workspace.Written || w.Action == workspace.Removed {
			d.Files[i].Action = w.Action // what it made and then edited, it made
		}
	}
	if len(d.Files) == 0 && !d.Live {
		return d, b.noChanges(run.ID, "it was not seen to change any file")
	}
	return d, nil
}

// noChanges is the problem of a run of which there is nothing to show.
func (b *backend) noChanges(id nestor.ID, why string) error {
	return &api.Problem{
		Type: api.TypeNoChanges, Status: http.StatusNotFound, Title: "There are no changes", Detail: fmt.Sprintf("run %s: %s", id, why),
	}
}

// blob returns what an event or a result of a tree refers to.
func (b *backend) blob(ctx context.Context, root nestor.ID, ref string) ([]byte, error) {
	if !strings.HasPrefix(ref, string(root)+"/") {
		return nil, fmt.Errorf("%.200q is not of the tree of run %s", ref, root)
	}
	data, err := b.log.Blob(ctx, ref)
	if !errors.Is(err, eventlog.ErrNotFound) {
		return data, err
	}
	return b.history.Blob(ctx, ref)
}

func (b *backend) Workspaces(ctx context.Context) ([]api.Space, error) {
	list, err := b.worker.spaces.all.List(ctx)
	return spacesOf(list), err
}

func (b *backend) CollectWorkspaces(ctx context.Context, c api.Collection) ([]api.Space, error) {
	p := b.worker.spaces.opts.Collect
	if c.Age != 0 || c.Size != 0 {
		p = workspace.Policy{Age: c.Age, Size: c.Size}
	}
	p.Force = c.Force
	gone, err := b.worker.spaces.all.Collect(ctx, p)
	return spacesOf(gone), err
}

func spacesOf(list []workspace.Info) []api.Space {
	told := make([]api.Space, len(list))
	for i, s := range list {
		told[i] = api.Space{
			Run: s.Run, Root: s.Root, Kind: string(s.Kind), Dir: s.Dir, Branch: s.Branch, Made: s.Made, Used: s.Used, Size: s.Size,
			InUse: s.InUse, Closed: s.Closed, Work: s.Work,
		}
		if s.Approved != nil {
			told[i].Approved = s.Approved.By
		}
	}
	return told
}

func (b *backend) EndWorkspace(ctx context.Context, id nestor.ID, e api.Ending) (api.Workspace, error) {
	if err := b.over(ctx, id); err != nil {
		return api.Workspace{}, err
	}
	w, err := b.worker.spaces.finish(ctx, id, workspace.End(e.End))
	return w, spaceProblem(id, err)
}

func (b *backend) ApproveWorkspace(ctx context.Context, id nestor.ID, a api.Approval) (api.Workspace, error) {
	if err := b.over(ctx, id); err != nil {
		return api.Workspace{}, err
	}
	if a.By == "" {
		a.By = "person"
	}
	end := workspace.Keep
	if run, err := b.stands(ctx, id); err == nil {
		if w, ok := api.WorkspaceOf(run.Result); ok && w.Approval != "" {
			end = workspace.Merge
		}
	}
	w, err := b.worker.spaces.approved(ctx, id, workspace.Approval{By: a.By, Reason: a.Reason, Time: time.Now().UTC()}, end)
	return w, spaceProblem(id, err)
}

// over fails for a run that works still. One that nobody knows any more may have
// left a folder all the same.
func (b *backend) over(ctx context.Context, id nestor.ID) error {
	run, err := b.stands(ctx, id)
	switch {
	case errors.Is(err, nestor.ErrRunNotFound):
		return nil
	case err == nil && !run.State.Ended():
		return &api.Problem{Status: http.StatusConflict, Title: "The run works still", Detail: fmt.Sprintf("run %s has not ended: wait for it, or cancel it", id)}
	}
	return err
}

// spaceProblem makes of an error about a run's folder an answer.
func spaceProblem(id nestor.ID, err error) error {
	inUse, used := errors.AsType[*workspace.InUseError](err)
	switch {
	case errors.Is(err, workspace.ErrNoSpace):
		return &api.Problem{Status: http.StatusNotFound, Title: "There is no workspace", Detail: fmt.Sprintf("run %s: nothing is there of its workspace: it worked in a folder of the project, or it is merged or dropped", id)}
	case used:
		return &api.Problem{Status: http.StatusConflict, Title: "The workspace is in use", Detail: inUse.Error()}
	}
	return err
}
