package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/history"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Asks returns the questions that are open, of all runs.
func (b *backend) Asks(ctx context.Context) ([]api.OpenAsk, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	agents := map[nestor.ID]string{}
	var list []api.OpenAsk
	for _, state := range []nestor.State{nestor.Waiting, nestor.Running, nestor.Starting, nestor.Queued} {
		runs, err := b.history.Runs(ctx, history.Query{State: state, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, info := range runs {
			run, err := b.engine.Get(ctx, info.ID)
			if errors.Is(err, nestor.ErrRunNotFound) {
				continue // it has just been archived
			}
			if err != nil {
				return nil, err
			}
			agents[run.ID] = run.Task.Agent
			for _, q := range run.Asks {
				if q.Answer == nil && !run.State.Ended() {
					list = append(list, openAsk(run, q.Ask))
				}
			}
		}
	}
	for i := range list {
		for _, id := range list[i].Path {
			list[i].Agents = append(list[i].Agents, agents[id])
		}
	}
	slices.SortFunc(list, func(x, y api.OpenAsk) int {
		return cmp.Or(x.Asked.Compare(y.Asked), cmp.Compare(x.ID, y.ID))
	})
	return slices.CompactFunc(list, func(x, y api.OpenAsk) bool { return x.ID == y.ID && x.Run == y.Run }), nil
}

func openAsk(run plan.Run, a nestor.Ask) api.OpenAsk {
	return api.OpenAsk{
		ID: a.AskID, Run: run.ID, Root: run.Root, Path: a.PathFromRoot, Tool: a.Tool, Input: a.Input, Question: a.Question, Options: a.Options,
		Default: a.Default, Asked: a.Time, Until: a.Until,
	}
}

// Answer answers a question of a run.
func (b *backend) Answer(ctx context.Context, id nestor.ID, ask string, a api.Answer) error {
	by := a.By
	if by == "" {
		by = "somebody"
	}
	err := b.engine.Answer(ctx, id, nestor.Answer{AskID: ask, Decision: a.Decision, By: by, Scope: cmp.Or(a.Scope, "once")})
	if errors.Is(err, plan.ErrNoAsk) {
		return &api.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("run %s has not asked %.60q; 'nestor asks list' has what is open", id, ask)}
	}
	return b.known(ctx, id, err)
}
