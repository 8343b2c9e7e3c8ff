package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/history"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/runner"
)

// backend is what the server asks: the engine for what lives, the history for
// what has ended.
type backend struct {
	opts    Options
	broker  *broker.Broker
	log     *eventlog.Log
	engine  *engine.Engine
	history *history.History
	worker  *worker
	agents  *agents
	began   time.Time

	followers atomic.Int32 // clients that wait for a run
}

func (b *backend) Submit(ctx context.Context, s api.Submission) (api.Run, error) {
	if err := b.resume(ctx, &s.Task); err != nil {
		return api.Run{}, invalid(err)
	}
	options, err := api.ParseTaskOptions(s.Task.Data)
	if err != nil {
		return api.Run{}, invalid(err)
	}
	if options.Approves != "" {
		return api.Run{}, invalid(errors.New("data of the task: approves: only the daemon has runs approve others; use 'nestor workspaces approve'"))
	}
	if err := s.Task.Check(); err != nil {
		return api.Run{}, invalid(fmt.Errorf("task: %w", err))
	}
	if err := runner.CheckSchema(s.Task.Schema); err != nil {
		return api.Run{}, invalid(err)
	}
	if err := b.worker.knows(s.Task); err != nil {
		return api.Run{}, invalid(err)
	}
	if options.Graph != nil {
		if err := b.worker.checkGraph(ctx, &s.Task, options); err != nil {
			return api.Run{}, invalid(err)
		}
	}
	if err := b.place(&s.Task, options); err != nil {
		return api.Run{}, invalid(err)
	}
	if !options.Whole {
		s.Task.Limits = s.Task.Limits.Or(b.opts.Limits)
	}
	id, err := b.engine.Submit(ctx, engine.Submission{Task: s.Task, Key: s.Key})
	if err == nil {
		err = b.engine.Told(ctx, id) // who asks for its tree next finds it
	}
	if err != nil {
		return api.Run{}, err
	}
	return b.stands(ctx, id)
}

// invalid is the problem of a request that asks for something wrong.
func invalid(err error) error {
	return &api.Problem{Status: http.StatusBadRequest, Detail: err.Error()}
}

// Run returns a run, with what its agent was seen to do last.
func (b *backend) Run(ctx context.Context, id nestor.ID) (api.Run, error) {
	run, err := b.stands(ctx, id)
	if err == nil && !b.deserted() && (run.State == nestor.Running || run.State == nestor.Starting) {
		run.Doing += b.activity(ctx, run)
	}
	return run, err
}

// deserted tells whether nobody works in the project: it is owned by a command that
// only answers.
func (b *backend) deserted() bool { return b.opts.Idle && b.opts.Broker == Broker{} }

// doing says in one line what a run does or waits for.
func (b *backend) doing(r plan.Run) string {
	switch {
	case r.State.Ended() || !b.deserted():
		return doingOf(r, time.Now())
	case r.Cancel == nil && (r.State == nestor.Starting || r.State == nestor.Running):
		return "was interrupted: it goes on when the next command of the project runs agents, such as 'nestor serve'"
	}
	return doingOf(r, time.Now()) + "; nobody works in the project now"
}

// stands returns a run as it stands. One that its parent has told of in this moment is
// waited for.
func (b *backend) stands(ctx context.Context, id nestor.ID) (run api.Run, err error) {
	err = b.arriving(ctx, id, func() error {
		run, err = b.look(ctx, id)
		return err
	})
	return run, err
}

// arriving does something with a run, and once more if it was not there yet.
func (b *backend) arriving(ctx context.Context, id nestor.ID, do func() error) error {
	err := do()
	if errors.Is(err, nestor.ErrRunNotFound) && b.engine.Arrived(ctx, id) == nil {
		err = do()
	}
	return err
}

// look returns a run as the engine has it or, if it has been forgotten there, as the
// history has it.
func (b *backend) look(ctx context.Context, id nestor.ID) (api.Run, error) {
	r, err := b.engine.Get(ctx, id)
	if errors.Is(err, nestor.ErrRunNotFound) {
		return b.past(ctx, id)
	}
	if err != nil {
		return api.Run{}, err
	}
	return runOf(r, b.doing(r)), nil
}

// past returns a run that is in the history alone.
func (b *backend) past(ctx context.Context, id nestor.ID) (api.Run, error) {
	info, err := b.history.Run(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	list, err := b.listed(ctx, info)
	if err != nil {
		return api.Run{}, err
	}
	run := list[0]
	if siblings, err := b.history.Runs(ctx, history.Query{Parent: id, Limit: 1000}); err == nil {
		for _, child := range slices.Backward(siblings) {
			run.Children = append(run.Children, child.ID)
		}
	}
	for e, err := range b.log.Read(ctx, eventlog.Filter{Root: string(info.Root), Run: string(id)}, 0) {
		if err != nil {
			return api.Run{}, err
		}
		event, err := e.Decode()
		if err != nil {
			continue
		}
		switch event := event.(type) {
		case *nestor.ChatStart:
			if run.Input == "" {
				run.Input = event.Message
			}
		case *nestor.AgentStart:
			run.Provider = event.AgentType
		case *nestor.ExecutionComplete:
			run.Result, run.Turns = event.Result, event.Turns
			if event.Result != nil {
				run.Session = event.Result.Session
			}
		}
	}
	return run, nil
}

// Wait returns the run when it has ended, or as it stands when ctx ends.
func (b *backend) Wait(ctx context.Context, id nestor.ID) (api.Run, error) {
	run, err := b.stands(ctx, id)
	if err == nil && run.State.Ended() {
		b.engine.Mend(ctx) // so that its end is in the log
	}
	if err != nil || run.State.Ended() {
		return run, err
	}
	b.followers.Add(1)
	defer b.followers.Add(-1)
	if _, err := b.engine.Wait(ctx, id); err != nil && ctx.Err() == nil {
		return api.Run{}, err
	}
	return b.stands(context.WithoutCancel(ctx), id)
}

// How long the history may take to catch up with the log before somebody is told
// what it has, and how often it is looked at.
const (
	catchUpFor   = 5 * time.Second
	catchUpEvery = 5 * time.Millisecond
)

// catchUp waits until the history has what the log has now: who saw the end of a
// run finds it in the list.
func (b *backend) catchUp(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, catchUpFor)
	defer stop()
	err := b.caughtUp(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (b *backend) caughtUp(ctx context.Context) error {
	stats, err := b.log.Stats(ctx)
	if err != nil {
		return err
	}
	for {
		behind, err := b.behind(ctx, stats.Last)
		if err != nil || !behind {
			return err
		}
		b.history.Hurry()
		select {
		case <-time.After(catchUpEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// behind tells whether the log has events up to a position that the history does
// not have yet.
func (b *backend) behind(ctx context.Context, last eventlog.Position) (bool, error) {
	projected, err := b.history.Projected(ctx)
	if err != nil {
		return false, err
	}
	for e, err := range b.log.Read(ctx, eventlog.Filter{}, projected) {
		if _, gap := errors.AsType[*eventlog.GapError](err); gap {
			return false, nil // what is missing will not come
		}
		return err == nil && e.Position <= last, err
	}
	return false, nil
}

func (b *backend) Runs(ctx context.Context, q api.Query) ([]api.Run, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	list, err := b.history.Runs(ctx, queryOf(q))
	if err != nil {
		return nil, err
	}
	runs, err := b.listed(ctx, list...)
	if err != nil {
		return nil, err
	}
	for i := range runs {
		b.update(ctx, &runs[i])
	}
	return runs, nil
}

// listed are runs as the history knows them, with what is below them.
func (b *backend) listed(ctx context.Context, list ...history.RunInfo) ([]api.Run, error) {
	below, err := b.history.Below(ctx, list)
	if err != nil {
		return nil, err
	}
	runs := make([]api.Run, len(list))
	for i, info := range list {
		runs[i] = listed(info)
		runs[i].BelowUSD = below[info.ID]
	}
	return runs, nil
}

// update has a run of a list say how it stands: what the log does not tell, such as
// that its worker ended, and what it was told before it began.
func (b *backend) update(ctx context.Context, run *api.Run) {
	if run.State.Ended() {
		return
	}
	r, err := b.engine.Get(ctx, run.ID)
	if err != nil || r.State.Ended() { // of which the list is not told yet
		return
	}
	run.CostUSD, run.BelowUSD = r.Spent, r.Below
	if run.State != r.State {
		run.State, run.Wait, run.Doing = r.State, r.Wait, b.doing(r)
	}
	run.Provider, run.Input = r.Task.Provider, cmp.Or(run.Input, strings.ToValidUTF8(r.Task.Input[:min(len(r.Task.Input), listedInput)], ""))
}

// listedInput is how many bytes of what a run was told are in lists.
const listedInput = 400

func (b *backend) Tree(ctx context.Context, id nestor.ID) ([]api.Run, error) {
	run, err := b.stands(ctx, id)
	if err == nil {
		err = b.engine.Told(ctx, id) // its document may be there before the log knows of it
	}
	if err != nil {
		return nil, err
	}
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	list, err := b.history.Tree(ctx, run.Root)
	if err != nil {
		return nil, err
	}
	all, err := b.listed(ctx, list...)
	if err != nil {
		return nil, err
	}
	// What is above it and beside it is left out.
	below := map[nestor.ID]bool{id: true}
	var tree []api.Run
	for _, one := range all {
		if one.ID == id || below[one.Parent] {
			below[one.ID] = true
			if live, err := b.engine.Get(ctx, one.ID); err == nil {
				one = runOf(live, b.doing(live))
				one.Result = nil
			}
			tree = append(tree, one)
		}
	}
	return tree, nil
}

func (b *backend) Search(ctx context.Context, text string, q api.Query) ([]api.Hit, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	list, err := b.history.Search(ctx, text, queryOf(q))
	hits := make([]api.Hit, len(list))
	for i, h := range list {
		hits[i] = api.Hit{Run: h.Run, Seq: uint64(h.Position), Snippet: h.Snippet}
	}
	return hits, err
}

func (b *backend) Cancel(ctx context.Context, id nestor.ID, c api.Cancellation) error {
	by := c.By
	if by == "" {
		by = "somebody"
	}
	cause := nestor.Cause{Kind: nestor.Stopped, By: by, Run: id, Reason: c.Reason}
	return b.arriving(ctx, id, func() error { return b.known(ctx, id, b.engine.Cancel(ctx, id, cause, c.Now)) })
}

func (b *backend) Send(ctx context.Context, id nestor.ID, m api.Message) error {
	if m.ID == "" {
		m.ID = string(nestor.NewID(time.Now()))
	}
	letter := plan.Write{ID: m.ID, From: m.From, Content: m.Content}
	return b.arriving(ctx, id, func() error { return b.known(ctx, id, b.engine.Write(ctx, id, letter)) })
}

// known makes of a run that the engine does not find one that has ended, if the
// history has it.
func (b *backend) known(ctx context.Context, id nestor.ID, err error) error {
	if errors.Is(err, nestor.ErrRunNotFound) {
		if _, ended := b.history.Ended(ctx, id); ended {
			return fmt.Errorf("run %s: %w", id, nestor.ErrEnded)
		}
	}
	return err
}

func (b *backend) Backup(ctx context.Context, path string) error {
	if err := b.catchUp(ctx); err != nil {
		return err
	}
	return b.history.Backup(ctx, path)
}

func (b *backend) Info(ctx context.Context) (api.Info, error) {
	stats := b.worker.slots.Stats()
	queued, err := b.history.Runs(ctx, history.Query{State: nestor.Queued, Limit: 1000})
	if err != nil {
		return api.Info{}, err
	}
	if b.opts.Idle {
		stats.Total, stats.Free = 0, 0
	}
	where := b.opts.Broker.URL
	if where == "" {
		where = "embedded"
		if b.opts.Broker.Listen != "" {
			where = b.broker.Addr()
		}
	}
	ready := 0
	if b.worker.warm != nil {
		ready = b.worker.warm.Stats().Idle
	}
	return api.Info{
		Ready: ready, Version: b.opts.Version, PID: os.Getpid(), Project: b.opts.Dir, Started: b.began, Slots: stats.Total, Busy: stats.Total - stats.Free - stats.Idle,
		Queued: len(queued), Trees: b.engine.Trees(), Broker: where, Lone: b.opts.Lone, Idle: b.opts.Idle, Followers: int(b.followers.Load()),
	}, nil
}

// archive puts what has ended into the history.
func (b *backend) archive(ctx context.Context, older time.Duration) error {
	_, err := b.history.Archive(ctx, b.log, b.forget, older)
	return err
}

// Events yields the events of a run, or of it and all below it.
func (b *backend) Events(ctx context.Context, id nestor.ID, q api.EventsQuery) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		run, err := b.stands(ctx, id)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		if q.Follow {
			b.followers.Add(1)
			defer b.followers.Add(-1)
		}
		s := &selection{id: id, query: q, runs: map[string]bool{string(id): true}}
		filter, after := eventlog.Filter{Root: string(run.Root), Run: string(id)}, q.After
		if q.Tree {
			filter.Run = ""
			if s.all = id == run.Root; !s.all {
				after = 0 // who belongs to it is told on the way
			}
		}
		for e, err := range b.events(ctx, filter, eventlog.Position(after), q, run) {
			if err != nil {
				if ctx.Err() == nil {
					yield(api.Event{}, err)
				}
				return
			}
			if s.wants(e) && !yield(api.Event{Seq: uint64(e.Position), Data: e.Data}, nil) || q.Follow && s.over {
				return
			}
		}
	}
}

// events reads or follows the log. What has ended and was seen to the end is not
// waited for.
func (b *backend) events(ctx context.Context, f eventlog.Filter, after eventlog.Position, q api.EventsQuery, run api.Run) iter.Seq2[eventlog.Event, error] {
	if q.Follow && run.State.Ended() {
		if err := b.catchUp(ctx); err != nil {
			return func(yield func(eventlog.Event, error) bool) { yield(eventlog.Event{}, err) }
		}
	}
	info, err := b.history.Run(ctx, run.ID)
	done := err == nil && info.State.Ended() && (info.Archived || uint64(info.Last) <= q.After)
	switch {
	case !q.Follow || done:
		return b.log.Read(ctx, f, after)
	case q.Deltas:
		return b.log.FollowLive(ctx, f, after)
	}
	return b.log.Follow(ctx, f, after)
}

// selection chooses events of a run and, if it is asked for, of all below it.
type selection struct {
	id    nestor.ID
	query api.EventsQuery
	all   bool            // runs belong to it that are in its tree
	runs  map[string]bool // else those that do
	over  bool            // its end was seen
}

// wants tells whether an event is one of those.
func (s *selection) wants(e eventlog.Event) bool {
	if e.Live {
		return s.query.Deltas && (s.all || s.runs[e.Run])
	}
	switch {
	case s.query.Tree && e.Is((*nestor.RunQueued)(nil)): // its first, which may come before its parent tells of it
		if event, err := e.Decode(); err == nil && s.runs[string(event.(*nestor.RunQueued).Parent)] {
			s.runs[e.Run] = true
		}
	case e.Run == string(s.id) && e.Is((*nestor.ExecutionComplete)(nil)):
		s.over = true
	}
	return (s.all || s.runs[e.Run]) && uint64(e.Position) > s.query.After
}
