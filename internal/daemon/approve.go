package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// judgement is what a critic says of a run's work.
type judgement struct {
	Approved bool   `json:"approved"`
	Reason   string `json:"reason"`
}

const judgementSchema = `{"type":"object","properties":{"approved":{"type":"boolean"},"reason":{"type":"string"}},"required":["approved","reason"],"additionalProperties":false}`

// maxJudged is how much of a patch a critic is shown; the rest it finds in the
// folder.
const maxJudged = 64 << 10

// critic submits a run that looks at the work of another one, when that has ended.
func (b *backend) critic(ctx context.Context, of runner.Run, w api.Workspace) error {
	if b.opts.Idle || b.opts.Broker != (Broker{}) {
		return errors.New("a worker on another machine may take the critic's run, and has not the folder: approve by hand")
	}
	patch := ""
	if data, err := b.blob(ctx, of.Root, w.Diff); err == nil {
		var d api.Diff
		if json.Unmarshal(data, &d) == nil {
			patch = d.Patch[:min(len(d.Patch), maxJudged)]
		}
	}
	o, err := json.Marshal(api.TaskOptions{Role: "critic", Approves: of.ID, Tools: []string{"Read", "Grep", "Glob"}})
	if err != nil {
		return err
	}
	_, err = b.engine.Submit(ctx, engine.Submission{Key: "approve " + string(of.ID), Task: nestor.Task{
		Agent: "critic", Provider: of.Task.Provider, Model: of.Task.Model, Dir: w.Dir, After: []nestor.ID{of.ID}, Despite: true,
		Schema: json.RawMessage(judgementSchema), Limits: of.Task.Limits, Data: o,
		Input: fmt.Sprintf("You are a critic. A run was asked:\n\n%s\n\nWhat it did is in %s, on branch %s, and waits to be merged. This is its patch, from its beginning:\n\n%s\n\nLook at it closely. Say whether it may be merged, and why.",
			of.Task.Input[:min(len(of.Task.Input), 4<<10)], w.Dir, w.Branch, patch),
	}})
	return err
}

// judged does what a critic has said of a run's work.
func (s *spaces) judged(ctx context.Context, of nestor.ID, by nestor.ID, r *nestor.Result) {
	var j judgement
	if r.Status != nestor.Success || json.Unmarshal(r.Structured, &j) != nil {
		return
	}
	if !j.Approved {
		s.notes.Info("the work of a run is not approved", "run", of, "by", by, "reason", j.Reason)
		return
	}
	w, err := s.approved(ctx, of, workspace.Approval{By: "critic " + string(by), Reason: j.Reason, Time: time.Now().UTC()}, workspace.Merge)
	if err != nil {
		s.notes.Warn("approved work is not merged", "run", of, "error", err)
		return
	}
	api.SetWorkspace(r, w)
}

// approved takes note that somebody finds the work of a run good, and does with it
// what was waited for.
func (s *spaces) approved(ctx context.Context, run nestor.ID, a workspace.Approval, end workspace.End) (api.Workspace, error) {
	sp, err := s.all.Reopen(ctx, run)
	if err != nil {
		return api.Workspace{}, err
	}
	if err := sp.Approve(&a); err != nil {
		return api.Workspace{}, errors.Join(err, sp.Leave())
	}
	return closed(ctx, sp, end)
}

// finish merges or drops what a run has left.
func (s *spaces) finish(ctx context.Context, run nestor.ID, end workspace.End) (api.Workspace, error) {
	sp, err := s.all.Reopen(ctx, run)
	if err != nil {
		return api.Workspace{}, err
	}
	if who := s.approve(); end == workspace.Merge && who != "" && sp.Approved() == nil {
		err := &api.Problem{
			Status: http.StatusConflict, Title: "The work is not approved",
			Detail: fmt.Sprintf("run %s: its work waits for the approval of a %s (workspace.approve): look at it with 'nestor workspaces diff %s', then run 'nestor workspaces approve %s'", run, who, run, run),
		}
		_, closing := sp.Close(ctx, workspace.Keep)
		return api.Workspace{}, errors.Join(err, closing)
	}
	return closed(ctx, sp, end)
}

func closed(ctx context.Context, sp *workspace.Space, end workspace.End) (api.Workspace, error) {
	w := api.Workspace{Kind: string(sp.Kind), Dir: sp.Dir}
	out, err := sp.Close(ctx, end)
	told(&w, out)
	return w, err
}
