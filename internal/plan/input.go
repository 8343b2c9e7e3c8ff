package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dfaf701a/nestor"
)

// Input is something that concerns a run: one of the types below.
type Input interface{ decide(*decision) error }

// Together are several inputs as one: if one of them is refused, all are.
type Together []Input

func (list Together) decide(d *decision) error {
	for _, in := range list {
		if err := in.decide(d); err != nil {
			return err
		}
		d.settle()
	}
	return nil
}

// Submit makes the run. For one that exists it changes nothing.
type Submit struct {
	ID       nestor.ID   `json:"id"`
	Key      string      `json:"key,omitempty"` // that it was submitted by; empty if by none
	Path     Path        `json:"path,omitempty"`
	Lineage  Lineage     `json:"lineage,omitempty"`
	Task     nestor.Task `json:"task"` // its limits are what it is granted
	Deadline time.Time   `json:"deadline,omitzero"`
}

func (in Submit) decide(d *decision) error {
	if d.State != "" {
		return nil
	}
	for _, id := range in.Task.After {
		if id == in.ID || in.Path.Contains(id) {
			return ErrAncestor
		}
	}
	d.ID, d.Key, d.Path, d.Root, d.Task, d.Deadline = in.ID, in.Key, in.Path, in.ID, in.Task, in.Deadline
	d.Lineage = in.Lineage
	if in.Path.Len() > 0 {
		d.Root = in.Path.At(0)
	}
	d.Created, d.State, d.Attempt = d.now, nestor.Queued, 1
	d.After = slices.Compact(slices.Sorted(slices.Values(in.Task.After)))
	for _, id := range d.After {
		d.tell(id, Watch{By: d.ID})
	}
	if len(d.After) > 0 {
		d.Wait = &nestor.Wait{For: nestor.ForRuns, Runs: d.After, Since: d.now}
	} else {
		d.enqueue(time.Time{})
	}
	d.emit(&nestor.RunQueued{Parent: d.Parent(), Agent: d.Task.Agent, Wait: d.Wait})
	return nil
}

// enqueue puts the current attempt into the queue of tasks, at some time or at
// once.
func (d *decision) enqueue(at time.Time) {
	d.command(Enqueue{Attempt: d.Attempt, At: at})
	if at.IsZero() {
		d.Wait = &nestor.Wait{For: nestor.ForSlot, Since: d.now}
	}
}

// Start says that a worker has the task message of an attempt. If it is
// accepted, the worker runs the attempt, with the run's Fence. Otherwise there is
// nothing to do; unless it is refused with ErrRepeated, and the run's Message is
// gone: then this one is the only one, and says so.
type Start struct {
	Attempt  int    `json:"attempt"`
	Worker   string `json:"worker"`
	Message  uint64 `json:"message"`        // names the message: another one for the same attempt is a repetition
	Delivery string `json:"delivery"`       // names this delivery of it
	Only     bool   `json:"only,omitempty"` // the message that made another run the attempt is gone

	// Submit makes the run if it is not there yet: its message brought it.
	Submit *Submit `json:"submit,omitempty"`
	// New says that there is no message: who submits the run has handed it to the
	// worker. One that is there already is not started so.
	New bool `json:"new,omitempty"`
}

func (in Start) decide(d *decision) error {
	if in.New && d.State != "" {
		return ErrRepeated
	}
	if in.Submit != nil && d.State == "" {
		if err := in.Submit.decide(d); err != nil {
			return err
		}
		d.commands = slices.DeleteFunc(d.commands, func(c Command) bool { _, ok := c.(Enqueue); return ok }) // it has been
	}
	if err := d.submitted(); err != nil {
		return err
	}
	if in.Attempt != d.Attempt || d.Result != nil || len(d.After) > 0 {
		return nestor.ErrStale
	}
	if d.Worker != "" {
		if in.Message != d.Message && !in.Only {
			return ErrRepeated
		}
		if in.Delivery == d.Delivery {
			return nil
		}
		// The message is delivered again: whoever had it is lost.
		lost := d.Worker
		d.Worker, d.Delivery, d.Stop, d.Prior = "", "", false, d.Spent
		d.Resumes++
		if d.Resumes > d.Task.Limits.Resumes {
			d.finish(nestor.Result{Status: nestor.Error, Error: &nestor.Failure{
				Kind: nestor.Interrupted, Message: fmt.Sprintf("lost %d times, last by %s", d.Resumes, lost),
			}})
			return nil
		}
		d.emit(&nestor.RunResumed{Reason: "worker " + lost + " was lost"})
	}
	if !d.Deadline.IsZero() && !d.now.Before(d.Deadline) {
		d.cancel(d.late())
	}
	if d.Cancel != nil {
		return nil // it ends without having been run
	}
	if d.Started.IsZero() {
		d.Started = d.now
		if timeout := d.Task.Limits.Timeout; timeout > 0 {
			if at := d.now.Add(timeout); d.Deadline.IsZero() || at.Before(d.Deadline) {
				d.Deadline = at
			}
		}
	}
	if d.Wait != nil && d.Wait.For == nestor.ForLimit {
		d.emit(&nestor.RunResumed{Reason: "the usage limit is reset"})
	}
	d.Fence++
	d.Worker, d.Message, d.Delivery, d.State, d.Wait = in.Worker, in.Message, in.Delivery, nestor.Starting, nil
	d.emit(&nestor.ExecutionStart{ExecutionID: string(d.ID), Agent: d.Task.Agent, Swarm: d.Task.Swarm, Attempt: int(d.Fence)})
	return nil
}

// late is the cause of what its deadline ends: its own, or that of a run above it.
func (d *decision) late() nestor.Cause {
	why := "at " + d.Deadline.Format(time.RFC3339)
	if timeout := d.Task.Limits.Timeout; d.Deadline.Equal(d.Started.Add(timeout)) {
		why = fmt.Sprintf("after %v, %s", timeout, why)
	}
	return nestor.Cause{Kind: nestor.Timeout, By: "deadline", Run: d.ID, Reason: why}
}

// Release gives the current attempt back: its worker ends, and the message will
// be delivered again. One that was started without a message gets one.
type Release struct {
	Fence uint64 `json:"fence"`
}

func (in Release) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	d.Worker, d.Delivery, d.Stop, d.Prior = "", "", false, d.Spent
	if d.Message == 0 {
		d.command(Enqueue{Attempt: d.Attempt, Again: true})
	}
	d.State, d.Wait = nestor.Queued, &nestor.Wait{For: nestor.ForSlot, Since: d.now, Reason: "its worker ended"}
	d.remind()
	return nil
}

// remind has the deadline come while nobody works on the run. Who does gives it
// the Timer.
func (d *decision) remind() {
	if !d.Deadline.IsZero() {
		d.command(SetTimer{At: d.Deadline})
	}
}

// Report says what the current attempt does.
type Report struct {
	Fence uint64       `json:"fence"`
	Wait  *nestor.Wait `json:"wait,omitempty"`      // nil means that it works
	Spent float64      `json:"spent_usd,omitempty"` // so far
}

func (in Report) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	d.spend(in.Spent)
	switch {
	case in.Wait != nil:
		wait := *in.Wait
		wait.Since = d.now
		d.State, d.Wait = nestor.Waiting, &wait
		d.emit(&nestor.RunWaiting{Reason: wait.Reason, Wait: wait})
	case d.State == nestor.Waiting:
		d.State, d.Wait = nestor.Running, nil
		d.emit(&nestor.RunResumed{})
	default:
		d.State = nestor.Running
	}
	d.afford()
	return nil
}

// Note is what is known of the current attempt by now. Whatever it does or waits
// for, it goes on with that.
type Note struct {
	Fence   uint64  `json:"fence"`
	Spent   float64 `json:"spent_usd,omitempty"` // so far
	Session string  `json:"session,omitempty"`   // the provider's, which a later attempt goes on with; empty if it is not known
	Heard   int     `json:"heard,omitempty"`     // the number of the last letter that it has heard
}

func (in Note) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	d.spend(in.Spent)
	d.hear(in.Heard)
	if in.Session != "" {
		d.Session = in.Session
	}
	if d.State == nestor.Starting {
		d.State = nestor.Running
	}
	d.afford()
	return nil
}

// afford ends a run that has spent more than it has.
func (d *decision) afford() {
	if d.Task.Limits.BudgetUSD > 0 && d.Left() < -tolerance {
		d.cancel(nestor.Cause{Kind: nestor.Budget, Run: d.ID, Reason: fmt.Sprintf("%s USD spent of %s", dollars(d.Spent+d.Below), dollars(d.Task.Limits.BudgetUSD))})
	}
}

// dollars returns an amount as it is said, to a millionth.
func dollars(usd float64) string {
	return strconv.FormatFloat(math.Round(usd*1e6)/1e6, 'f', -1, 64)
}

// Cancel has the run end, what is below it first.
type Cancel struct {
	Cause nestor.Cause `json:"cause"`
	Now   bool         `json:"now,omitempty"`  // the run does not wait for what is below it
	Told  bool         `json:"told,omitempty"` // by another run, which knows that this one will be submitted
}

func (in Cancel) decide(d *decision) error {
	if d.State == "" && in.Told {
		d.Cancel = &in.Cause // before Submit came
		return nil
	}
	if err := d.submitted(); err != nil {
		return err
	}
	d.cancel(in.Cause)
	if in.Now && d.Worker != "" {
		d.Stop = true
	}
	return nil
}

// Timer is a time that has come: the deadline.
type Timer struct{}

func (Timer) decide(d *decision) error {
	if err := d.submitted(); err != nil {
		return err
	}
	switch {
	case d.Deadline.IsZero() || d.Result != nil || d.Cancel != nil:
	case d.now.Before(d.Deadline): // by another clock, or one that was set back
		at := d.now.Add(time.Second)
		if at.Before(d.Deadline) {
			at = d.Deadline
		}
		d.command(SetTimer{At: at})
	default:
		d.cancel(d.late())
	}
	return nil
}

// ChildEnded is the end of a child, told by it.
type ChildEnded struct {
	Child  nestor.ID    `json:"child"`
	Status nestor.State `json:"status"`
	Spent  float64      `json:"spent_usd,omitempty"` // by it and all below it
	Used   int          `json:"used,omitempty"`      // descendants that it had
	Told   string       `json:"told,omitempty"`      // what is said of it to a parent that does not wait
}

func (in ChildEnded) decide(d *decision) error {
	if err := d.submitted(); err != nil {
		return err
	}
	c := d.Children[in.Child]
	if c == nil {
		return nestor.ErrRunNotFound
	}
	if c.Status != "" {
		return nil
	}
	c.Status, c.Spent = in.Status, in.Spent
	d.Below += in.Spent
	d.Used += 1 + in.Used
	switch in.Status {
	case nestor.Error:
		d.Failed++
	case nestor.Success, nestor.Partial:
		d.Failed = 0
	}
	d.hearEnd(in.Child, c, in.Told)
	if c.Granted > 0 {
		d.emit(&nestor.Lease{Child: in.Child, Granted: c.Granted, Spent: in.Spent, Returned: max(0, c.Granted-in.Spent)})
	}
	return nil
}

// Watch asks to be told when the run ends.
type Watch struct {
	By nestor.ID `json:"by"`
}

func (in Watch) decide(d *decision) error {
	switch {
	case d.State.Ended():
		d.tell(in.By, RunEnded{Run: d.ID, Status: d.State})
	case !slices.Contains(d.Watchers, in.By):
		d.Watchers = append(d.Watchers, in.By) // also before Submit came
	}
	return nil
}

// RunEnded is the end of a run that this one comes after.
type RunEnded struct {
	Run    nestor.ID    `json:"run"`
	Status nestor.State `json:"status"`
}

func (in RunEnded) decide(d *decision) error {
	if err := d.submitted(); err != nil {
		return err
	}
	i := slices.Index(d.After, in.Run)
	if i < 0 {
		return nil
	}
	d.After = slices.Delete(d.After, i, i+1)
	switch {
	case d.Cancel != nil || d.Result != nil:
	case in.Status != nestor.Success && !d.Task.Despite:
		d.finish(nestor.Result{Status: nestor.Error, Error: &nestor.Failure{
			Kind: nestor.Dependency, Message: fmt.Sprintf("run %s, which it comes after, ended with %s", in.Run, in.Status),
		}})
	case len(d.After) == 0:
		d.enqueue(time.Time{})
	default:
		d.Wait = &nestor.Wait{For: nestor.ForRuns, Runs: d.After, Since: d.now}
	}
	return nil
}

// AskPerson is a question of the current attempt. One that was asked before
// changes nothing: its answer, if there is one, still counts.
type AskPerson struct {
	Fence uint64     `json:"fence"`
	Ask   nestor.Ask `json:"ask"`
}

func (in AskPerson) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	q := d.Asks[in.Ask.AskID]
	if q != nil && q.Answer != nil {
		return nil
	}
	if q == nil {
		if err := d.makeRoomForAsk(); err != nil {
			return err
		}
		ask := in.Ask
		ask.PathFromRoot = append(d.Path.IDs(), d.ID)
		d.emit(&ask)
		d.Asks[ask.AskID] = &Question{Ask: ask}
	}
	d.State, d.Wait = nestor.Waiting, &nestor.Wait{For: nestor.ForPerson, Ask: in.Ask.AskID, Since: d.now, Reason: in.Ask.Question}
	return nil
}

// maxAsks is how many questions of a run are kept.
const maxAsks = 32

// makeRoomForAsk forgets the question that was answered longest ago if there are
// many. What is open is not forgotten.
func (d *decision) makeRoomForAsk() error {
	if len(d.Asks) < maxAsks {
		return nil
	}
	oldest := ""
	for id, q := range d.Asks {
		if q.Answer != nil && (oldest == "" || q.Answer.Time.Before(d.Asks[oldest].Answer.Time) || q.Answer.Time.Equal(d.Asks[oldest].Answer.Time) && id < oldest) {
			oldest = id
		}
	}
	if oldest == "" {
		return &nestor.LimitError{Limit: "open questions", Max: maxAsks, Asked: 1}
	}
	delete(d.Asks, oldest)
	return nil
}

// AnswerAsk answers a question. The first answer counts.
type AnswerAsk struct {
	Answer nestor.Answer `json:"answer"`
}

func (in AnswerAsk) decide(d *decision) error {
	if err := d.submitted(); err != nil {
		return err
	}
	q := d.Asks[in.Answer.AskID]
	if q == nil {
		return ErrNoAsk
	}
	if q.Answer != nil {
		return nil
	}
	answer := in.Answer
	d.emit(&answer)
	q.Answer = &answer
	if d.Wait != nil && d.Wait.Ask == answer.AskID {
		d.State, d.Wait = nestor.Running, nil
	}
	return nil
}
