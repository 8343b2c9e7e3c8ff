package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Slot is the right to work on a task.
type Slot interface {
	// Wanted is closed when the slot has no task yet and others need one.
	Wanted() <-chan struct{}
	// Claim is told which task it is for, and waits until such a task may run.
	Claim(ctx context.Context, root nestor.ID, task nestor.Task) error
	// Lend lets others use the slot until Reclaim returns.
	Lend()
	Reclaim(ctx context.Context) error
	Release()
}

// Worker is who works.
type Worker struct {
	// Acquire waits until one more task may be taken.
	Acquire func(context.Context) (Slot, error)
	// TryAcquire returns nil instead of waiting. It may be nil: then tasks are
	// taken one by one.
	TryAcquire func() Slot
	// Labels are those of the tasks that it takes besides the ones without.
	Labels []string
	// Execute does what a task wants. Its context ends when the run is to end,
	// with a *nestor.Cause or the reason why the worker must let go of it; it
	// then returns soon, with what there is. Its panic is an error of the run.
	// It is called again, for the same attempt, if letters came before the run
	// could end well.
	Execute func(context.Context, *Execution) nestor.Result
	// Over is called once for an attempt that was executed, when it is not going to
	// be any more; nil means that nobody wants to know.
	Over func(*Execution)
}

// Reasons why an execution's context ends, besides a *nestor.Cause.
var (
	// ErrShutdown says that the worker ends. The run goes on elsewhere, or here
	// later.
	ErrShutdown = errors.New("the worker is shutting down")
	// ErrCutOff says that the broker could not be reached for a whole lease.
	ErrCutOff = errors.New("the broker cannot be reached")
)

// Work takes tasks and executes them until ctx ends, and returns when all that
// it executes has let go.
func (e *Engine) Work(ctx context.Context, w Worker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var tasks *queues
	e.offers.Add(1) // there will be one soon: who submits a task meanwhile waits for it
	free, err := e.early(ctx, w, &all)
	if err == nil {
		tasks, err = e.open(ctx, w.Labels)
	}
	if err == nil {
		e.Mend(ctx) // what was decided before a crash comes before what was interrupted by it: a cancel, for one
	}
	e.offers.Add(-1)
	if err != nil {
		e.vacate(free)
		stop()
		all.Wait()
		return err
	}
	defer tasks.close()
	defer e.rest()
	defer all.Wait()
	defer func() { e.vacate(free) }() // as many tasks are asked for as can be run
	for {
		if free, err = e.occupy(ctx, w, free); err != nil {
			return context.Cause(ctx)
		}
		all.Add(1) // for the first, if it is had
		messages, had, err := tasks.next(ctx, free, vacancy{ctx, w, free[0], all.Done})
		if had {
			e.took()
			free = free[1:]
			continue
		}
		all.Done()
		for i, msg := range messages {
			slot := free[i]
			e.took()
			all.Go(func() {
				defer slot.Release()
				e.attempt(ctx, w, slot, msg)
			})
		}
		if free = free[len(messages):]; len(messages) == 0 { // others may need them
			e.vacate(free)
			free = nil
		}
		if err != nil || ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
	}
}

// early offers a slot for a moment before there are queues, and returns the slots that
// were free and still are: the one task of a command that works alone need not wait for
// queues in which there is nothing, or what can wait. What was interrupted cannot.
func (e *Engine) early(ctx context.Context, w Worker, all *sync.WaitGroup) ([]Slot, error) {
	if !e.opts.Alone || !e.isWhole() {
		return nil, nil
	}
	free, err := e.occupy(ctx, w, nil)
	if err != nil {
		return nil, context.Cause(ctx)
	}
	moment := time.NewTimer(vacantWithin)
	defer moment.Stop()
	all.Add(1)
	select {
	case e.vacant <- vacancy{ctx, w, free[0], all.Done}:
		e.took()
		return free[1:], nil
	case <-moment.C:
	case <-ctx.Done():
	}
	all.Done()
	return free, nil
}

// took takes note that a slot that was offered has a task.
func (e *Engine) took() {
	e.lastTaken.Store(time.Now().UnixNano())
	e.offers.Add(-1)
}

// occupy waits until there is a slot, and returns all that are free, which are
// offered from then on.
func (e *Engine) occupy(ctx context.Context, w Worker, free []Slot) ([]Slot, error) {
	if len(free) == 0 {
		first, err := w.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		e.offers.Add(1)
		free = append(free, first)
	}
	for w.TryAcquire != nil && len(free) < maxBatch {
		slot := w.TryAcquire()
		if slot == nil {
			break
		}
		e.offers.Add(1)
		free = append(free, slot)
	}
	return free, nil
}

// vacate gives back slots that have no task.
func (e *Engine) vacate(free []Slot) {
	for _, slot := range free {
		e.offers.Add(-1)
		slot.Release()
	}
}

// Trees returns the roots of the runs that are executed in this process.
func (e *Engine) Trees() []nestor.ID {
	e.mu.Lock()
	working := slices.Collect(maps.Values(e.working))
	e.mu.Unlock()
	roots := map[nestor.ID]bool{}
	for _, x := range working {
		if root := x.Run().Root; root != "" { // else it is about to begin
			roots[root] = true
		}
	}
	list := slices.AppendSeq([]nestor.ID{}, maps.Keys(roots))
	slices.Sort(list)
	return list
}

// repairFirst is how long what was left undone may keep others from their work.
const repairFirst = 2 * time.Second

// maxBatch is how many tasks are asked for at once.
const maxBatch = 32

// queues are the queues of tasks that a worker takes from.
type queues struct {
	e       *Engine
	pullers []*puller    // the most urgent first
	asked   []bool       // whether a pull is under way, for each, or what came of it has not arrived
	arrived chan arrival // sent once by each pull, unless the work ends, and received by next; never closed
	pulls   sync.WaitGroup
	empty   bool // nothing was left when all were last looked at, and nothing has arrived since
}

// arrival is what a pull gave.
type arrival struct {
	from int       // the number of the puller
	msg  *nats.Msg // nil if there was none, or nobody had a slot for it
	err  error
}

// open returns the queues of tasks without a label and of those with the given
// ones.
func (e *Engine) open(ctx context.Context, labels []string) (*queues, error) {
	var sources []source
	for _, priority := range nestor.Priorities() {
		for _, label := range append([]string{""}, labels...) {
			task := nestor.Task{Label: label, Priority: priority}
			if err := task.Check(); err != nil {
				return nil, fmt.Errorf("worker: %w", err)
			}
			name := "tasks-any-" + string(priority)
			if label != "" {
				name = "tasks-label-" + label + "-" + string(priority)
			}
			sources = append(sources, source{broker.Tasks, jetstream.ConsumerConfig{
				Durable: name, FilterSubject: taskSubject(task), AckPolicy: jetstream.AckExplicitPolicy, AckWait: e.opts.Lease, MaxAckPending: -1,
			}})
		}
	}
	pullers, err := e.pullersFrom(ctx, sources)
	if err != nil {
		return nil, err
	}
	return &queues{e: e, arrived: make(chan arrival), pullers: pullers, asked: make([]bool, len(pullers))}, nil
}

// close waits until nothing is asked any more.
func (q *queues) close() {
	q.pulls.Wait()
	closeAll(q.pullers)
}

// next waits for tasks, for as many slots as are free: the most urgent ones if
// there are more. It returns none when ctx ends, or when others need a slot. Whoever
// submits a task meanwhile may have the first slot, v, itself.
func (q *queues) next(ctx context.Context, free []Slot, v vacancy) (list []*nats.Msg, had bool, err error) {
	for ctx.Err() == nil {
		if list := q.waiting(ctx, len(free)); len(list) > 0 {
			return list, false, nil
		}
		q.request(ctx)
		select {
		case q.e.vacant <- v:
			return nil, true, nil
		case got := <-q.arrived:
			q.asked[got.from] = false
			if got.msg != nil {
				q.empty = false // there may be more
				return []*nats.Msg{got.msg}, false, nil
			}
			if got.err != nil {
				return nil, false, got.err
			}
		case <-free[0].Wanted():
			return nil, false, nil
		case <-ctx.Done():
		}
	}
	return nil, false, nil
}

// waiting returns up to n tasks that wait. Where none did, each queue is being asked
// for one: what comes arrives.
func (q *queues) waiting(ctx context.Context, n int) (list []*nats.Msg) {
	if q.empty {
		return nil
	}
	for _, p := range q.pullers {
		some, err := p.fetch(ctx, n-len(list), 0)
		if list = append(list, some...); err != nil || len(list) == n {
			return list // if something is wrong, waiting will tell
		}
	}
	q.empty = len(list) == 0
	return list
}

// request asks each queue for a task that is not asked already. What comes of it
// arrives.
func (q *queues) request(ctx context.Context) {
	for i, p := range q.pullers {
		if q.asked[i] {
			continue
		}
		q.asked[i] = true
		q.pulls.Go(func() {
			msg, err := q.e.pull(ctx, p)
			late := time.NewTimer(q.e.opts.Lease / 4)
			defer late.Stop()
			select {
			case q.arrived <- arrival{i, msg, err}:
				return
			case <-late.C: // nobody has a slot for it any more
			case <-ctx.Done():
			}
			if msg != nil {
				msg.Nak()
			}
			select {
			case q.arrived <- arrival{from: i, err: err}: // to be asked again
			case <-ctx.Done():
			}
		})
	}
}

// attempt has one delivered task executed, unless there is nothing to do.
func (e *Engine) attempt(ctx context.Context, w Worker, slot Slot, msg *nats.Msg) {
	var task taskData
	meta, err := msg.Metadata()
	if err != nil || json.Unmarshal(msg.Data, &task) != nil {
		msg.Term() // not ours
		return
	}
	if at := e.at(task.Run); at != nil && at.adopt(msg, task.Attempt) {
		return // it was started without it
	}
	x, work, end := e.execution(ctx, task.Run, slot, msg)
	defer end()
	defer x.live(ctx)()
	root, what := task.Run, nestor.Task{}
	if task.Submit != nil {
		what = task.Submit.Task
		if late := meta.NumDelivered > 1 || time.Since(meta.Timestamp) > e.opts.Lease; late && e.endedBefore(work, task.Run) {
			msg.Ack() // it has been forgotten since: do not make it again
			return
		}
	} else {
		run, err := e.Get(work, task.Run)
		if err != nil && settled(err) != nil {
			msg.NakWithDelay(retryAfter)
			return
		}
		root, what = run.Root, run.Task
	}
	if slot.Claim(work, root, what) != nil {
		msg.Nak()
		return
	}
	start := plan.Start{
		Attempt: task.Attempt, Worker: e.opts.Name, Message: meta.Sequence.Stream, Delivery: rand.Text(), Submit: task.Submit,
	}
	en, err := e.heard(work, task.Run, start)
	if errors.Is(err, plan.ErrRepeated) {
		if start.Only, err = e.gone(work, en.doc.Run); err == nil && start.Only {
			en, err = e.heard(work, task.Run, start)
		}
	}
	if err != nil || en.doc.Run.Delivery != start.Delivery {
		if err == nil {
			err = en.carriedOut(work)
		}
		if err == nil || vain(msg, err) {
			msg.Ack() // there is nothing to do
		} else {
			msg.NakWithDelay(retryAfter)
		}
		return
	}
	x.perform(work, w, en)
}

// execution returns an attempt and the context of its work. The caller calls end.
func (e *Engine) execution(ctx context.Context, id nestor.ID, slot Slot, msg *nats.Msg) (x *Execution, work context.Context, end func()) {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	x = &Execution{e: e, id: id, slot: slot, msg: msg, stop: stop, done: work.Done(), turn: make(chan struct{}, 1)}
	unwatch := context.AfterFunc(ctx, func() { stop(ErrShutdown) })
	return x, work, func() {
		unwatch()
		stop(nil)
	}
}

// live has an attempt give signs of life, and stopped when it is not to go on, until
// end is called.
func (x *Execution) live(ctx context.Context) (end func()) {
	beating, still := context.WithCancel(context.WithoutCancel(ctx)) // until the end is written
	deaf, err := x.e.listen(x.id, func(serial uint64) { x.noticed(beating, serial) })
	if err != nil {
		x.stop(err)
		return still
	}
	over := make(chan struct{})
	first := time.AfterFunc(min(x.e.opts.Lease/3, messageAfter), func() { // many have ended by then
		defer close(over)
		x.beat(beating)
	})
	return func() {
		still()
		deaf()
		if !first.Stop() {
			<-over
		}
	}
}

// noticed draws the conclusions from a change of the run.
func (x *Execution) noticed(ctx context.Context, serial uint64) {
	if x.ended() || x.Fence() == 0 {
		return // it made the change itself, or has not begun
	}
	if en := x.e.recall(x.id); en != nil && en.doc.Serial >= serial {
		x.conclude(en.doc) // this process wrote it
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changes = x.looking; !x.looking {
		x.looking = true
		x.e.behind(func() { x.lookOn(ctx) })
	}
}

// lookOn reads the run's document until it has not changed meanwhile.
func (x *Execution) lookOn(ctx context.Context) {
	for {
		x.look(ctx)
		x.mu.Lock()
		x.looking, x.changes = x.changes && ctx.Err() == nil, false
		done := !x.looking
		x.mu.Unlock()
		if done {
			return
		}
	}
}

// perform executes an attempt whose start is written.
func (x *Execution) perform(work context.Context, w Worker, en *entry) {
	// What its start commands is in its document: it happens meanwhile, and before
	// the next change.
	x.sent = en.carriedOut
	x.begin(en.doc)
	defer x.e.atWork(x)()
	if x.e.recall(x.id) != en { // it has been changed since, and that may have been said before it could be heard
		x.noticed(work, en.doc.Serial)
	}
	defer x.expire(work)()
	if w.Over != nil {
		defer w.Over(x)
	}
	var before nestor.Result // of the same attempt
	for again := true; again; {
		result := x.execute(work, w.Execute)
		result.CostUSD, result.Turns, result.Usage = result.CostUSD+before.CostUSD, result.Turns+before.Turns, result.Usage.Add(before.Usage)
		again, before = x.end(work, result), result
	}
}

// atWork has an attempt stopped when its run is to end, until the caller calls what
// it returns.
func (e *Engine) atWork(x *Execution) (over func()) {
	e.mu.Lock()
	e.working[x.id] = x
	e.mu.Unlock()
	e.ahead.mu.Lock()
	r := e.ahead.runs[x.id]
	var run plan.Run
	if r != nil {
		run = r.run
	}
	e.ahead.mu.Unlock()
	if run.Stop { // since it began
		x.concludeAhead(run)
	}
	return func() { e.left(x) }
}

// left takes note that an attempt is not at work any more.
func (e *Engine) left(x *Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.working[x.id] == x {
		delete(e.working, x.id)
	}
}

// errStarting says that it is not known yet whether a run is at work in this process.
var errStarting = errors.New("somebody is about to start it, or to find that it was")

// gone tells whether the message that made somebody run r is in the queue no more.
// A message of a schedule can be: if the server is killed as the time comes, it
// comes again, as another one (seen in 2.15.2).
func (e *Engine) gone(ctx context.Context, r plan.Run) (bool, error) {
	if r.Message == 0 { // it never had one, in this process or in one that was alone before it
		switch x := e.at(r.ID); {
		case x == nil:
			return true, nil
		case x.Fence() == 0:
			return false, errStarting
		}
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	stream, err := e.js.Stream(ctx, broker.Tasks)
	if err != nil {
		return false, err
	}
	msg, err := stream.GetMsg(ctx, r.Message)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var task taskData
	err = json.Unmarshal(msg.Data, &task)
	return err != nil || task.Run != r.ID || task.Attempt != r.Attempt, nil
}

// beat says that the task is being worked on, and looks whether it still is to
// be, at once and now and then, until ctx ends.
func (x *Execution) beat(ctx context.Context) {
	lease := x.e.opts.Lease
	heard := time.Now()      // when the broker was last known to know
	message := time.After(0) // when to see to one, if it was handed over
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-message:
			if x.message() == nil && (x.Fence() == 0 || x.e.enqueue(ctx, x.Run()) != nil) {
				message = time.After(messageAfter)
			}
		case <-tick.C:
			tick.Reset(lease / 3)
			if x.progress() == nil && x.e.reachable(ctx, lease/3) {
				heard = time.Now()
			} else if time.Since(heard) > lease {
				x.stop(ErrCutOff)
				return
			}
			if x.Fence() != 0 {
				x.look(ctx)
			}
		}
	}
}

// progress says of its message that it is being worked on.
func (x *Execution) progress() error {
	if msg := x.message(); msg != nil {
		return msg.InProgress()
	}
	return nil
}

// reachable tells whether the broker answers within that time.
func (e *Engine) reachable(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return e.b.Conn().FlushWithContext(ctx) == nil
}

// look reads the run's document and draws the conclusions.
func (x *Execution) look(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, x.e.opts.Lease/3)
	defer done()
	if d, err := x.e.readDocument(ctx, x.id); err == nil { // otherwise the next look will tell
		x.conclude(d)
	}
}

// conclude stops the work if a document says that it is not to go on. One that is older
// than what was seen says nothing: a server that has just become the leader may still
// have it, and of two who read at once the first may be the last to say what it read.
func (x *Execution) conclude(d document) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.Serial >= x.serial {
		x.serial = d.Serial
		x.concludeLocked(d.Run)
	}
}

// concludeAhead does the same with a run as it was decided ahead of its document.
func (x *Execution) concludeAhead(run plan.Run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.concludeLocked(run)
}

func (x *Execution) concludeLocked(run plan.Run) {
	switch {
	case x.fence == 0: // it has not begun
	case run.Fence != x.fence || run.Worker == "" && !x.over:
		x.stop(nestor.ErrStale)
	case run.Stop:
		x.stop(run.Cancel)
	default:
		x.updateLocked(run)
	}
}
