package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/history"
	"github.com/dfaf701a/nestor/internal/plan"
)

// doingOf says in one line what a run does or waits for at now, and since when.
func doingOf(r plan.Run, now time.Time) string {
	since := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprintf(", since %s (%s)", t.Local().Format("15:04:05"), rough(now.Sub(t)))
	}
	if r.Cancel != nil && !r.State.Ended() {
		return fmt.Sprintf("is being ended (%s)", r.Cancel.Error())
	}
	if w := r.Wait; w != nil {
		line := waitingFor(w, r)
		if !w.Until.IsZero() {
			left := "due now"
			if d := w.Until.Sub(now); d >= time.Second {
				left = rough(d) + " from now"
			}
			line += fmt.Sprintf(", until %s (%s)", w.Until.Local().Format("15:04:05"), left)
		}
		if w.Reason != "" {
			line += ": " + w.Reason
		}
		return line + since(w.Since)
	}
	switch r.State {
	case nestor.Queued:
		return waitingForSlot(r) + since(r.Created)
	case nestor.Starting:
		return "is being started by " + r.Worker + since(r.Started)
	case nestor.Running:
		line := "works"
		if r.Retries > 0 {
			line += fmt.Sprintf(", attempt %d", r.Retries+1)
		}
		return line + since(r.Started)
	case nestor.Waiting:
		return "waits" + since(r.Started)
	}
	if r.Result != nil && r.Result.Error != nil {
		return fmt.Sprintf("ended with %s: %s", r.State, r.Result.Error)
	}
	return "ended with " + string(r.State)
}

func waitingFor(w *nestor.Wait, r plan.Run) string {
	switch w.For {
	case nestor.ForRuns:
		return fmt.Sprintf("waits for %s that it comes after", count(len(w.Runs), "run"))
	case nestor.ForSlot:
		return waitingForSlot(r)
	case nestor.ForChildren:
		return fmt.Sprintf("waits for %s that it started", count(len(w.Runs), "run"))
	case nestor.ForPerson:
		return "waits for an answer of a person"
	case nestor.ForLimit:
		return "waits for the reset of the provider's usage limit"
	case nestor.ForRetry:
		return fmt.Sprintf("waits for attempt %d", r.Retries+1)
	}
	return "waits for " + string(w.For)
}

// waitingForSlot says who can give the run a slot.
func waitingForSlot(r plan.Run) string {
	if r.Task.Label != "" {
		return fmt.Sprintf("waits for a free slot of a worker with label %s", r.Task.Label)
	}
	return "waits for a free slot"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// rough returns a span of time as people would say it.
func rough(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-2]
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// activity says what the agent of a run was seen to do last; empty if nothing was
// seen.
func (b *backend) activity(ctx context.Context, r api.Run) string {
	tools := map[string]*nestor.ToolStart{}
	var last *nestor.ToolStart
	doing := ""
	for e, err := range b.log.Read(ctx, eventlog.Filter{Root: string(r.Root), Run: string(r.ID)}, 0) {
		if err != nil {
			return ""
		}
		event, err := e.Decode()
		if err != nil {
			continue
		}
		switch event := event.(type) {
		case *nestor.ToolStart:
			tools[event.ToolUseID], last = event, event
		case *nestor.ToolComplete:
			delete(tools, event.ToolUseID)
		case *nestor.ExecutionProgress:
			if event.Activity != "" {
				doing = event.Activity
			}
		case *nestor.ExecutionStart:
			clear(tools)
			doing = ""
		}
	}
	switch {
	case last != nil && tools[last.ToolUseID] != nil:
		return fmt.Sprintf("; runs %s %.80s, since %s", last.Tool, last.Description, last.Time.Local().Format("15:04:05"))
	case doing != "":
		return "; " + doing
	}
	return ""
}

// runOf is a run that lives, or has ended not long ago.
func runOf(r plan.Run, doing string) api.Run {
	run := api.Run{
		ID: r.ID, Root: r.Root, Parent: r.Parent(), Depth: r.Depth(), Agent: r.Task.Agent, Provider: r.Task.Provider, Model: r.Task.Model,
		Swarm: r.Task.Swarm, Dir: r.Task.Dir, Input: r.Task.Input, State: r.State, Wait: r.Wait, Doing: doing,
		Created: r.Created, Started: r.Started, Ended: r.Ended, Deadline: r.Deadline, Attempt: int(r.Fence), Resumes: r.Resumes,
		Retries: r.Retries, Worker: r.Worker, Session: r.Session, Limits: r.Task.Limits, CostUSD: r.Spent, BelowUSD: r.Below,
	}
	if o, err := api.ParseTaskOptions(r.Task.Data); err == nil {
		run.Trace = api.TraceOf(o.Trace, r.Root, r.ID).ID
	}
	for id := range r.Children {
		run.Children = append(run.Children, id)
	}
	slices.Sort(run.Children)
	if r.State.Ended() {
		run.Result = r.Result
	}
	if r.Result != nil {
		run.Usage, run.Turns, run.Error = r.Result.Usage, r.Result.Turns, r.Result.Error
	}
	return run
}

// listed is a run as the history knows it.
func listed(i history.RunInfo) api.Run {
	doing := string(i.State)
	switch {
	case i.State.Ended():
		doing = "ended with " + string(i.State)
		if i.Error != nil {
			doing += ": " + i.Error.Error()
		}
	case i.Reason != "":
		doing += ": " + i.Reason
	}
	return api.Run{
		ID: i.ID, Root: i.Root, Parent: i.Parent, Depth: i.Depth, Agent: i.Agent, Swarm: i.Swarm, Input: i.Title, State: i.State, Doing: doing,
		Created: i.Queued, Started: i.Started, Ended: i.Ended, Attempt: i.Attempt, CostUSD: i.CostUSD, Usage: i.Usage, Error: i.Error,
		Archived: i.Archived, Cursor: uint64(i.First), Trace: api.TraceOf("", i.Root, i.ID).ID,
	}
}

func queryOf(q api.Query) history.Query {
	return history.Query{
		Root: q.Root, Parent: q.Parent, Roots: q.Roots, State: q.State, Agent: q.Agent, Swarm: q.Swarm, Since: q.Since, Until: q.Until,
		Text: q.Text, Limit: q.Limit, After: eventlog.Position(q.After),
	}
}
