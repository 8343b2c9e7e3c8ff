// Package plan decides what happens next to a run: one pure function, [Decide],
// without clock, I/O or goroutine.
//
// A run is a document. All that concerns it comes as an [Input], one at a time;
// what has to be done elsewhere goes out as a [Command]. Runs speak to each other
// in inputs too: a run tells its parent when it ends, and those that come after
// it, so no document spans a tree. Inputs may come twice, late and out of order;
// what was said before, or by an attempt that is not the current one, changes
// nothing.
//
// Money and descendants are leased downward: a child gets a part of what its
// parent has left, and gives back what it did not use when it ends, which is
// after all of its own children have ended.
package plan

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// Run is the document of one run. Its zero value is a run that was not
// submitted.
type Run struct {
	ID      nestor.ID    `json:"id"`
	Key     string       `json:"key,omitempty"` // that it was submitted by; empty if by none
	Root    nestor.ID    `json:"root"`
	Path    Path         `json:"path,omitempty"`
	Lineage Lineage      `json:"lineage,omitempty"` // what those of Path were asked to do; empty once it has ended
	Task    nestor.Task  `json:"task"`              // with limits as they were granted
	State   nestor.State `json:"state,omitempty"`
	Wait    *nestor.Wait `json:"wait,omitempty"` // what it waits for; nil if it does not
	Created time.Time    `json:"created,omitzero"`
	Started time.Time    `json:"started,omitzero"`
	Ended   time.Time    `json:"ended,omitzero"`

	Attempt  int       `json:"attempt,omitempty"`  // which of its task messages counts, from 1
	Fence    uint64    `json:"fence,omitempty"`    // of whoever runs it; grows with each that does
	Worker   string    `json:"worker,omitempty"`   // who runs it; empty if nobody does
	Message  uint64    `json:"message,omitempty"`  // the task message that Worker has; zero if it was handed the run by who submitted it
	Delivery string    `json:"delivery,omitempty"` // which delivery of it
	Resumes  int       `json:"resumes,omitempty"`  // how often a worker was lost
	Retries  int       `json:"retries,omitempty"`  // how often an attempt failed and was made again
	Limited  int       `json:"limited,omitempty"`  // how often it met a usage limit and waited
	Session  string    `json:"session,omitempty"`  // the provider's, which later attempts go on with; empty if there is none
	Deadline time.Time `json:"deadline,omitzero"`

	Cancel *nestor.Cause `json:"cancel,omitempty"` // it is to end
	Stop   bool          `json:"stop,omitempty"`   // Worker is to stop now: all below has ended

	After    []nestor.ID          `json:"after,omitempty"`    // those of Task.After that have not ended
	Watchers []nestor.ID          `json:"watchers,omitempty"` // runs that come after this one
	Children map[nestor.ID]*Child `json:"children,omitempty"`
	Asks     map[string]*Question `json:"asks,omitempty"`

	Letters []Letter `json:"letters,omitempty"` // those that it has not heard, in order
	Heard   int      `json:"heard,omitempty"`   // the number of the last that it has
	Written int      `json:"written,omitempty"` // the number of the last that was written

	Spent float64 `json:"spent_usd,omitempty"` // by all of its attempts
	Prior float64 `json:"prior_usd,omitempty"` // by those before the current one
	Below float64 `json:"below_usd,omitempty"` // by children that ended, and all below them
	Used  int     `json:"used,omitempty"`      // descendants that have ended

	Failed int `json:"failed,omitempty"` // how many children failed since the last that did not

	Result *nestor.Result `json:"result,omitempty"` // set before Ended while children are ending
}

// Child is what a run knows of one of its children.
type Child struct {
	Agent       string       `json:"agent,omitempty"`
	Name        string       `json:"name,omitempty"`        // that its parent gave it; empty if none
	Background  bool         `json:"background,omitempty"`  // the parent is told of its end by a letter
	Granted     float64      `json:"granted_usd,omitempty"` // zero means that it has no limit
	Descendants int          `json:"descendants,omitempty"` // leased to it, besides itself
	Status      nestor.State `json:"status,omitempty"`      // its end; empty while it lives
	Spent       float64      `json:"spent_usd,omitempty"`   // by it and all below, once it ended
}

// Letter is a message to the run.
type Letter struct {
	N       int       `json:"n"` // its number in the run, from 1
	ID      string    `json:"id"`
	From    string    `json:"from"`
	Content string    `json:"content"`
	Of      nestor.ID `json:"of,omitempty"` // the child whose end it tells; empty if it tells none
}

// Question is an ask and its answer.
type Question struct {
	Ask    nestor.Ask     `json:"ask"`
	Answer *nestor.Answer `json:"answer,omitempty"` // nil while it is open
}

// Depth returns how far below the root the run is.
func (r Run) Depth() int { return r.Path.Len() }

// Parent returns the run above; empty for a root.
func (r Run) Parent() nestor.ID {
	if r.Depth() == 0 {
		return ""
	}
	return r.Path.At(r.Depth() - 1)
}

// Live returns the children that have not ended, in the order of their ids.
func (r Run) Live() (list []nestor.ID) {
	for _, id := range slices.Sorted(maps.Keys(r.Children)) {
		if r.Children[id].Status == "" {
			list = append(list, id)
		}
	}
	return list
}

// alive returns how many children have not ended.
func (r Run) alive() (n int) {
	for _, c := range r.Children {
		if c.Status == "" {
			n++
		}
	}
	return n
}

// Left returns what of its budget nobody has spent or been granted. It means
// nothing for a run without budget.
func (r Run) Left() float64 {
	left := r.Task.Limits.BudgetUSD - r.Spent - r.Below
	for _, c := range r.Children {
		if c.Status == "" {
			left -= c.Granted
		}
	}
	return left
}

// room returns how many descendants it may still have.
func (r Run) room() int {
	room := r.Task.Limits.Descendants - r.Used
	for _, c := range r.Children {
		if c.Status == "" {
			room -= 1 + c.Descendants
		}
	}
	return room
}

// clone returns a copy that shares nothing that Decide changes.
func (r Run) clone() Run {
	r.After, r.Watchers, r.Letters = slices.Clone(r.After), slices.Clone(r.Watchers), slices.Clone(r.Letters)
	children := make(map[nestor.ID]*Child, len(r.Children))
	for id, c := range r.Children {
		children[id] = new(*c)
	}
	asks := make(map[string]*Question, len(r.Asks))
	for id, q := range r.Asks {
		asks[id] = new(*q)
	}
	r.Children, r.Asks = children, asks
	return r
}

// Refusals, besides those of package nestor. An input that is refused changes
// nothing.
var (
	ErrRepeated = errors.New("another message made somebody run this attempt")
	ErrNoAsk    = errors.New("there is no such question")
	ErrAncestor = errors.New("a run cannot come after one that it is below")
	ErrStranger = errors.New("a child comes after children of the same run")
	ErrUnheard  = errors.New("the run has letters that it has not heard")
	ErrNamed    = errors.New("another child that has not ended has this name")
)

// Decide returns what run becomes by in at now, and what has to be done for it.
// The error is for whoever gave the input, and changes nothing.
func Decide(run Run, in Input, now time.Time) (Run, []Command, error) {
	d := decision{Run: run.clone(), now: now.UTC()}
	if err := in.decide(&d); err != nil {
		return run, nil, err
	}
	d.settle()
	return d.Run, d.commands, nil
}

// decision is a run that is being decided about.
type decision struct {
	Run
	now      time.Time
	commands []Command
}

func (d *decision) command(c Command) { d.commands = append(d.commands, c) }

func (d *decision) tell(run nestor.ID, in Input) { d.command(Tell{Run: run, Input: in}) }

func (d *decision) emit(e nestor.Event) {
	*e.Head() = nestor.Header{Time: d.now, Run: d.ID, Root: d.Root, Depth: d.Depth()}
	d.command(Emit{Event: e})
}

// submitted tells whether the run exists, and has not ended.
func (d *decision) submitted() error {
	switch {
	case d.State == "":
		return nestor.ErrRunNotFound
	case d.State.Ended():
		return nestor.ErrEnded
	}
	return nil
}

// current tells whether fence is that of whoever runs it.
func (d *decision) current(fence uint64) error {
	if err := d.submitted(); err != nil {
		return err
	}
	if d.Worker == "" || fence != d.Fence {
		return nestor.ErrStale
	}
	return nil
}

// settle draws the conclusions of any input: it ends what can end.
func (d *decision) settle() {
	if d.State == "" || d.State.Ended() {
		return
	}
	live := d.alive() > 0
	switch {
	case d.Result != nil && !live:
		d.end()
	case d.Cancel == nil || d.Result != nil:
	case d.Worker != "":
		// It is not stopped before what is below it, unless it only waits for that.
		d.Stop = d.Stop || !live || d.Wait != nil && d.Wait.For == nestor.ForChildren
	case !live:
		d.Result = &nestor.Result{}
		d.end()
	}
}

// cancel has the run end, what is below it first. The first cause counts.
func (d *decision) cancel(cause nestor.Cause) {
	if d.Cancel != nil {
		return
	}
	d.Cancel = &cause
	d.emit(&nestor.RunCancelled{Reason: cause.Error(), Cause: cause})
	d.cancelChildren(cause)
}

func (d *decision) cancelChildren(cause nestor.Cause) {
	for _, id := range d.Live() {
		d.tell(id, Cancel{Cause: cause, Told: true})
	}
}

// finish takes the result of a run that nobody runs any more. It ends when all
// below it has.
func (d *decision) finish(result nestor.Result) {
	d.Result, d.Worker, d.Delivery, d.Stop = &result, "", "", false
	if live := d.Live(); len(live) > 0 {
		d.State = nestor.Waiting
		d.Wait = &nestor.Wait{For: nestor.ForChildren, Runs: live, Since: d.now, Reason: "it is done; what it started is being ended"}
		if d.Cancel == nil { // or they were told already
			d.cancelChildren(nestor.Cause{Kind: nestor.Stopped, By: "the end of the run above", Run: d.ID})
		}
	}
}

// end ends the run, once.
func (d *decision) end() {
	r := new(*d.Result) // the run as it was may have it, too
	d.Result = r
	if cause := d.Cancel; cause != nil && r.Status != nestor.Success {
		why := cause.Error()
		if r.Error != nil && strings.HasPrefix(r.Error.Message, why) { // it says more
			why = r.Error.Message
		}
		r.Error = &nestor.Failure{Kind: cause.Kind, Message: why}
		switch {
		case cause.Kind == nestor.Stopped:
			r.Status = nestor.Cancelled
		case r.Output != "" || r.Structured != nil:
			r.Status = nestor.Partial
		default:
			r.Status = nestor.Error
		}
	}
	d.State, d.Ended, d.Wait, d.Worker, d.Stop, d.Lineage = r.Status, d.now, nil, "", false, ""
	d.emit(&nestor.ExecutionComplete{
		ExecutionID: string(d.ID), Agent: d.Task.Agent, Success: r.Status == nestor.Success, Status: r.Status,
		ResultSummary: cut(r.Output, summarySize), CostUSD: d.Spent, Usage: r.Usage, Error: r.Error, Turns: r.Turns, Result: r,
	})
	if parent := d.Parent(); parent != "" {
		d.tell(parent, ChildEnded{Child: d.ID, Status: r.Status, Spent: d.Spent + d.Below, Used: d.Used, Told: told(r)})
	}
	for _, id := range d.Watchers {
		d.tell(id, RunEnded{Run: d.ID, Status: r.Status})
	}
}

// summarySize is how many bytes of an output an event carries.
const summarySize = 400

// cut shortens text to n bytes, before the rune that would go beyond.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n] + "…"
}
