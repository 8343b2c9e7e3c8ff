package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
)

// tailSize is how much is kept of a text that grows: more than a screen shows.
const tailSize = 16 << 10

// forest is what is known of a tree of runs from its events.
type forest struct {
	now   func() time.Time
	root  nestor.ID // empty until the first event
	runs  map[nestor.ID]*watched
	names map[string]int // how many runs each agent has
}

// watched is a run as its events tell it.
type watched struct {
	id       nestor.ID
	parent   *watched // nil for the root, and for who nobody spoke of
	children []*watched

	name     string // of its agent, with a number if it is not the first; empty if it is not known
	state    nestor.State
	wait     nestor.Wait // of a run that is queued or waits
	ending   string      // why it is to end; empty if it is not
	failure  *nestor.Failure
	started  time.Time // zero while it never was
	ended    time.Time
	activity string
	turns    int
	cost     float64
	usage    nestor.Usage

	text     string    // that it writes now: the end of it
	thought  string    // that it thinks now: the end of it
	thinking time.Time // since when; zero if it does not
	calls    []*call   // that go on, in order
}

// call is a tool that runs.
type call struct {
	id, tool, description string
	since                 time.Time
}

func newForest(root nestor.ID, now func() time.Time) forest {
	return forest{now: now, root: root, runs: map[nestor.ID]*watched{}, names: map[string]int{}}
}

// run returns the run of that id. One that was not heard of before is below the
// root until somebody says more.
func (f *forest) run(id nestor.ID) *watched {
	r, known := f.runs[id]
	if !known {
		r = &watched{id: id, state: nestor.Queued}
		f.runs[id] = r
		if id != f.root {
			f.adopt(f.run(f.root), r)
		}
	}
	return r
}

// adopt makes child a child of parent, unless parent is below it.
func (f *forest) adopt(parent, child *watched) {
	if child.id == f.root || child.parent == parent {
		return
	}
	for above := parent; above != nil; above = above.parent {
		if above == child {
			return
		}
	}
	if old := child.parent; old != nil {
		old.children = slices.DeleteFunc(old.children, func(r *watched) bool { return r == child })
	}
	child.parent, parent.children = parent, append(parent.children, child)
}

// call names the agent of r, if it has none yet.
func (f *forest) call(r *watched, agent string) {
	if agent = oneLine(agent); r.name != "" || agent == "" {
		return
	}
	f.names[agent]++
	if r.name = agent; f.names[agent] > 1 {
		r.name = fmt.Sprintf("%s %d", agent, f.names[agent])
	}
}

// hasChildren tells whether there is more than the root.
func (f *forest) hasChildren() bool { return len(f.runs) > 1 }

// total returns what the whole tree has cost so far.
func (f *forest) total() (usd float64, usage nestor.Usage) {
	for _, r := range f.runs {
		usd += r.cost
		usage = usage.Add(r.usage)
	}
	return usd, usage
}

// time returns when e happened, now if it does not say.
func (f *forest) time(e nestor.Event) time.Time {
	if at := e.Head().Time; !at.IsZero() {
		return at
	}
	return f.now()
}

// apply takes e in, and returns the run that it is about.
func (f *forest) apply(e nestor.Event) *watched {
	head := e.Head()
	if f.root == "" {
		if f.root = head.Root; f.root == "" {
			f.root = head.Run
		}
	}
	r, at := f.run(head.Run), f.time(e)
	switch e := e.(type) {
	case *nestor.RunQueued:
		if e.Parent != "" {
			f.adopt(f.run(e.Parent), r)
		}
		f.call(r, e.Agent)
		r.state, r.wait = nestor.Queued, nestor.Wait{For: nestor.ForSlot, Since: at}
		if e.Wait != nil {
			r.wait = *e.Wait
		}
	case *nestor.AgentSpawn:
		child := f.run(e.Child)
		f.adopt(r, child)
		f.call(child, e.Agent)
	case *nestor.ExecutionStart:
		f.call(r, e.Agent)
		if r.started.IsZero() {
			r.started = at
		}
		r.state, r.text, r.thought, r.thinking, r.calls = nestor.Starting, "", "", time.Time{}, nil
	case *nestor.AgentStart:
		f.call(r, e.Agent)
		r.goesOn(at)
	case *nestor.AgentDelta:
		r.goesOn(at)
		r.text, r.thought, r.thinking = clipStart(r.text+e.Delta, tailSize), "", time.Time{}
	case *nestor.AgentComplete:
		r.goesOn(at)
		r.text, r.thought, r.thinking = "", "", time.Time{}
	case *nestor.ThinkingStart:
		r.goesOn(at)
		r.thought, r.thinking = "", at
	case *nestor.ThinkingDelta:
		r.goesOn(at)
		if r.thinking.IsZero() {
			r.thinking = at
		}
		r.thought = clipStart(r.thought+e.Delta, tailSize)
	case *nestor.ThinkingComplete:
		r.goesOn(at)
		r.thought, r.thinking = "", time.Time{}
	case *nestor.ToolStart:
		r.goesOn(at)
		if r.call(e.ToolUseID) == nil {
			r.calls = append(r.calls, &call{id: e.ToolUseID, tool: oneLine(e.Tool), description: oneLine(e.Description), since: at})
		}
	case *nestor.ToolComplete:
		r.goesOn(at)
		r.calls = slices.DeleteFunc(r.calls, func(c *call) bool { return c.id == e.ToolUseID })
	case *nestor.ExecutionProgress:
		f.call(r, e.Agent)
		r.activity = oneLine(e.Activity)
		r.turns, r.cost = max(r.turns, e.Turns), max(r.cost, e.CostUSD)
		if e.Usage != nil {
			r.usage = *e.Usage
		}
	case *nestor.RunWaiting:
		r.state, r.wait = nestor.Waiting, e.Wait
		if r.wait.Since.IsZero() {
			r.wait.Since = at
		}
	case *nestor.Ask:
		r.state, r.wait = nestor.Waiting, nestor.Wait{For: nestor.ForPerson, Ask: e.AskID, Since: at, Reason: e.Question}
	case *nestor.Answer:
		if r.wait.For == nestor.ForPerson && r.wait.Ask == e.AskID {
			r.goesOn(at)
		}
	case *nestor.RunRetry:
		r.state, r.wait = nestor.Waiting, nestor.Wait{For: nestor.ForRetry, Until: e.At, Since: at, Reason: e.Reason}
		r.text, r.thought, r.thinking, r.calls = "", "", time.Time{}, nil
	case *nestor.RunResumed:
		r.goesOn(at)
	case *nestor.RunCancelled:
		r.ending = oneLine(e.Reason)
		if r.ending == "" {
			r.ending = oneLine(e.Cause.Error())
		}
	case *nestor.ExecutionComplete:
		f.call(r, e.Agent)
		r.state, r.ended, r.failure = e.Status, at, e.Error
		r.turns, r.cost, r.usage = max(r.turns, e.Turns), e.CostUSD, e.Usage
		r.text, r.thought, r.thinking, r.calls = "", "", time.Time{}, nil
	}
	return r
}

// goesOn notes that r does something. One that has ended does not any more.
func (r *watched) goesOn(at time.Time) {
	if r.state.Ended() {
		return
	}
	if r.started.IsZero() {
		r.started = at
	}
	r.state, r.wait, r.activity = nestor.Running, nestor.Wait{}, ""
}

// call returns the call of that id that goes on, nil if none does.
func (r *watched) call(id string) *call {
	for _, c := range r.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

// elapsed returns how long r has run, or ran.
func (r *watched) elapsed(now time.Time) time.Duration {
	switch {
	case r.started.IsZero():
		return 0
	case !r.ended.IsZero():
		return r.ended.Sub(r.started)
	}
	return now.Sub(r.started)
}
