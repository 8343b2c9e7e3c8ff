package spawn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Write sends a letter, and returns to whom: who has ended does not get it. If
// nobody does, it fails.
func (r *Run) Write(ctx context.Context, l api.Letter) ([]nestor.ID, error) {
	if l.Content == "" {
		return nil, invalid("content: empty; say what is to be told")
	}
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return nil, err
	}
	to, err := r.recipients(ctx, mine, l.To)
	if err != nil {
		return nil, err
	}
	write := plan.Write{ID: rand.Text(), From: signature(mine), Content: l.Content}
	var sent []nestor.ID
	var failed []error
	for _, id := range to {
		if err := r.deliver(ctx, id, write); err != nil {
			failed = append(failed, err)
			continue
		}
		sent = append(sent, id)
	}
	if len(sent) == 0 {
		return nil, errors.Join(failed...)
	}
	return sent, nil
}

// signature says who writes.
func signature(run plan.Run) string {
	if run.Task.Agent == "" {
		return "run " + string(run.ID)
	}
	return run.Task.Agent + " (run " + string(run.ID) + ")"
}

// recipients returns whom a letter goes to.
func (r *Run) recipients(ctx context.Context, mine plan.Run, to string) (list []nestor.ID, err error) {
	switch to {
	case "":
		return nil, invalid("to: empty; want the id of a run, a child's name, parent, children or all")
	case "parent":
		if mine.Parent() == "" {
			return nil, invalid("to parent: this run has none; ask_person reaches a person")
		}
		return []nestor.ID{mine.Parent()}, nil
	case "children":
		list = mine.Live()
	case "all":
		list, err = r.below(ctx, mine)
	case string(mine.Parent()):
		return []nestor.ID{mine.Parent()}, nil
	default:
		id, err := r.find(ctx, mine, to)
		if err == nil && id == r.id {
			err = invalid("to %s: a run cannot write to itself", id)
		}
		return []nestor.ID{id}, err
	}
	if err == nil && len(list) == 0 {
		err = invalid("to %s: there are none that have not ended", to)
	}
	return list, err
}

// deliver writes to a run. One that was started in this moment is waited for.
func (r *Run) deliver(ctx context.Context, id nestor.ID, letter plan.Write) error {
	err := r.engine.Write(ctx, id, letter)
	if errors.Is(err, nestor.ErrRunNotFound) && r.engine.Arrived(ctx, id) == nil {
		err = r.engine.Write(ctx, id, letter)
	}
	return err
}

// Inbox returns the letters that the agent has not been given. It has then.
func (r *Run) Inbox(context.Context) ([]api.Letter, error) {
	list := []api.Letter{}
	for _, l := range r.attempt.Read() {
		list = append(list, api.Letter{From: l.From, Content: l.Content})
	}
	return list, nil
}

// errLate says that nobody has answered in time.
var errLate = errors.New("nobody has answered in time")

// Ask asks a person, and waits for the answer, or for the time in which one may
// come. What an earlier attempt of the run has asked is not asked again.
func (r *Run) Ask(ctx context.Context, q api.Question) (api.Reply, error) {
	if q.Question == "" {
		return api.Reply{}, invalid("question: empty; say what a person is asked")
	}
	name, err := r.again("ask", q.Question, q.Options)
	if err != nil {
		return api.Reply{}, err
	}
	name = name[16:] // people type it
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return api.Reply{}, err
	}
	ask := nestor.Ask{AskID: name, Question: clip(q.Question, maxQuestion), Options: q.Options, Default: q.Default}
	answer, err := r.ask(ctx, mine, ask, q.Timeout)
	if err != nil {
		return api.Reply{}, fmt.Errorf("asking a person: %w", err)
	}
	return api.Reply{Answer: answer.Decision, By: answer.By}, nil
}

// maxQuestion is how many bytes of a question are kept.
const maxQuestion = 2 << 10
