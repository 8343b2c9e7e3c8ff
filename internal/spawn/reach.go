package spawn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/plan"
)

// invalid is the problem of a request that asks for something wrong.
func invalid(format string, args ...any) error {
	return &api.Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// forbidden is the problem of a request for what the run may not have.
func forbidden(format string, args ...any) error {
	return &api.Problem{Status: http.StatusForbidden, Detail: fmt.Sprintf(format, args...)}
}

func sortedChildren(run plan.Run) []nestor.ID { return slices.Sorted(maps.Keys(run.Children)) }

// find returns the run that is meant by an id or by the name of a child: the run
// itself or one below it.
func (r *Run) find(ctx context.Context, mine plan.Run, name string) (nestor.ID, error) {
	if id, err := nestor.ParseID(name); err == nil {
		return id, r.reach(ctx, mine, id)
	}
	var found nestor.ID
	for _, id := range sortedChildren(mine) { // the last one that had the name, or the one that lives
		if c := mine.Children[id]; name != "" && c.Name == name && (found == "" || mine.Children[found].Status != "") {
			found = id
		}
	}
	if found == "" {
		return "", invalid("%.80q is neither the id of a run nor the name of a child of this one%s", name, namesOf(mine))
	}
	return found, nil
}

func namesOf(mine plan.Run) string {
	var names []string
	for _, c := range mine.Children {
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	if names == nil {
		return ""
	}
	slices.Sort(names)
	return "; there are " + strings.Join(slices.Compact(names), ", ")
}

// reach fails for a run that is neither this one nor below it. Which runs there are
// elsewhere is not told.
func (r *Run) reach(ctx context.Context, mine plan.Run, id nestor.ID) error {
	if id == r.id || mine.Children[id] != nil {
		return nil
	}
	run, err := r.engine.Get(ctx, id)
	if errors.Is(err, nestor.ErrRunNotFound) && r.engine.Arrived(ctx, id) == nil {
		run, err = r.engine.Get(ctx, id)
	}
	if err != nil && !errors.Is(err, nestor.ErrRunNotFound) {
		return err
	}
	if err != nil || !run.Path.Contains(r.id) {
		return forbidden("run %s is not below run %s: a run reaches those that it has started, and what these have", id, r.id)
	}
	return nil
}

// Reach fails unless id is the run itself or one below it.
func (r *Run) Reach(ctx context.Context, id nestor.ID) error {
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return err
	}
	return r.reach(ctx, mine, id)
}

// Cancel ends a run below this one.
func (r *Run) Cancel(ctx context.Context, id nestor.ID, c api.Cancellation) error {
	if err := r.Reach(ctx, id); err != nil {
		return err
	}
	if id == r.id {
		return forbidden("run %s cannot end itself: it is done when it has its result", id)
	}
	return r.engine.Cancel(ctx, id, nestor.Cause{Kind: nestor.Stopped, By: "run " + string(r.id), Run: id, Reason: clip(c.Reason, maxActivity)}, c.Now)
}

// below returns the runs below one that have not ended, each behind its parent.
func (r *Run) below(ctx context.Context, run plan.Run) (list []nestor.ID, err error) {
	for _, id := range run.Live() {
		list = append(list, id)
		child, err := r.engine.Get(ctx, id)
		if errors.Is(err, nestor.ErrRunNotFound) {
			continue // it is about to be there, and has none
		}
		if err != nil {
			return nil, err
		}
		more, err := r.below(ctx, child)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}
