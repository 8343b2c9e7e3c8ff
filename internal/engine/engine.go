// Package engine gets a submitted task to its end, whatever restarts. It carries
// out on JetStream what package plan decides.
//
// Each run is a document in a bucket: its state, and the commands that its last
// change brought and that may not have been carried out yet. Whoever has an input
// for a run (a client that submits, a worker that starts or finishes, the planner
// for what runs tell each other) decides about it with the document at hand and
// writes both in one compare-and-set; then it carries the commands out, each
// with a message id, and only then acknowledges what brought the input. So an
// input that was acknowledged is never lost, and one that comes twice is decided
// twice, which changes nothing.
//
// Who is cut off between the write and its commands leaves them in the document.
// The same input brings them up again when it is delivered again; all others are
// found when an engine is run, among the documents that changed last.
package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Log is where the events of plan's decisions go.
type Log interface {
	// OnceEach appends events of one run: of events[i] all or none, unless some of
	// the same mark, which is marks[i], or a higher one were appended to it before.
	OnceEach(ctx context.Context, marks []uint64, events [][]nestor.Event) error
	// OnceAll is the same for several runs, in that order, of which each is there once.
	OnceAll(ctx context.Context, marks []uint64, events [][]nestor.Event) error
}

// Options are those of an Engine. The zero value works.
type Options struct {
	// Name names this process to others; empty means a random name.
	Name string
	// Lease is how long a worker may give no sign of life before its run is
	// given to another; zero means 10 s.
	Lease time.Duration
	// Sole says that no other process works on this broker, now or since this
	// one has begun: what was interrupted goes on at once, not a lease later.
	Sole bool
	// Alone says that nobody but this engine writes to the broker, nor ever has since
	// it began: what it wrote last is what is there, and is not asked for.
	Alone bool
	// Ended tells how a run ended that is not in the broker any more; nil means
	// that nobody knows.
	Ended func(ctx context.Context, id nestor.ID) (nestor.State, bool)
	// Settled is what [Engine.Settled] said of the last engine that was alone with
	// this broker: if nothing was written since, nothing is looked for that may have
	// been left undone. Empty means that nothing is known.
	Settled string
}

// Engine submits tasks and works on them. Its methods may be called from any
// goroutine.
type Engine struct {
	b    *broker.Broker
	js   jetstream.JetStream
	log  Log
	opts Options
	runs map[string]jetstream.Stream // those of the buckets of documents

	// replicated says that the documents are kept by several servers, of which one
	// that has just become the leader may answer before it has all.
	replicated bool

	hash  maphash.Seed
	turns [256]chan struct{} // each holds a token while a run of its share is being decided about

	ahead   ahead // runs that are being ended
	notices notices

	offers atomic.Int32 // slots in this process that wait for a task, or are about to
	vacant chan vacancy // them: sent by Work, received by who submits, never closed

	lastTaken atomic.Int64 // when one got a task, at first when the engine was made, in nanoseconds since 1970

	before   map[string]lastChange // of a document before this process, by bucket; not there if it has none
	repaired chan struct{}         // closed when what was left undone in the last moments before it is done
	mended   func()                // closes it, once

	ended chan nestor.ID // whose deadlines are to be taken back: sent by those who carry commands out, received by Run, never closed

	mu      sync.Mutex               // guards what follows
	known   map[nestor.ID]*entry     // documents that this process wrote, of runs that have not ended
	ending  map[nestor.ID]*entry     // those of runs that have, until their commands are carried out
	ends    map[nestor.ID][]*gift    // ends of children that wait for the turn of their parent
	working map[nestor.ID]*Execution // attempts that are at work in this process
	whole   bool                     // what other processes left undone is done
	undone  bool                     // something could not be carried out
	sending int                      // what is done behind: documents that are written ahead, and their commands
	quiet   sync.Cond                // sending is zero
}

// lastChange is the last one in a bucket.
type lastChange struct {
	at       time.Time
	sequence uint64
}

// New returns an engine on b. It starts nothing; [Engine.Run] must run for
// anything to happen.
func New(ctx context.Context, b *broker.Broker, log Log, opts Options) (*Engine, error) {
	if opts.Name == "" {
		opts.Name = rand.Text()[:8]
	}
	if opts.Lease == 0 {
		opts.Lease = 10 * time.Second
	}
	e := &Engine{
		b: b, js: b.JetStream(), log: log, opts: opts, known: map[nestor.ID]*entry{}, ending: map[nestor.ID]*entry{}, ends: map[nestor.ID][]*gift{}, ended: make(chan nestor.ID, maxOver), repaired: make(chan struct{}),
		vacant: make(chan vacancy), working: map[nestor.ID]*Execution{}, ahead: ahead{runs: map[nestor.ID]*falling{}, changed: map[nestor.ID]*falling{}, more: make(chan struct{}, 1), sent: make(chan struct{})},
		before: map[string]lastChange{}, hash: maphash.MakeSeed(),
	}
	var err error
	if e.runs, err = e.documents(ctx); err != nil {
		return nil, err
	}
	for name, stream := range e.runs {
		info := stream.CachedInfo()
		e.replicated = e.replicated || info.Config.Replicas > 1
		if last := info.State.LastTime; !last.IsZero() {
			e.before[name] = lastChange{last, info.State.LastSeq}
		}
	}
	e.notices.listeners = map[nestor.ID][]*listener{}
	e.quiet.L = &e.mu
	close(e.ahead.sent)                      // nothing is
	e.lastTaken.Store(time.Now().UnixNano()) // whoever is to work here is about to begin
	e.mended = sync.OnceFunc(func() { close(e.repaired) })
	if e.whole = mark(e.runs) == opts.Settled; e.whole {
		e.mended()
	}
	for i := range e.turns {
		e.turns[i] = make(chan struct{}, 1)
	}
	return e, nil
}

// Submission says what is submitted, and by whom.
type Submission struct {
	Task nestor.Task
	// Key makes it idempotent: a second submission with the same key, below the
	// same parent, returns the first one's run. Empty means none.
	Key string
	// Parent is the run that asks for a child, and Fence that of its attempt.
	// Empty makes a root.
	Parent nestor.ID
	Fence  uint64
	Spent  float64 // by that attempt so far, in USD
	// Name is what the parent calls the child; empty means nothing.
	Name string
	// Background says that the parent is told of the child's end by a letter.
	Background bool
}

// maxTask is how large a task may be: a document must hold it, and more.
const maxTask = broker.MaxDocument / 2

// Submit makes a run and returns its id when it will be run whatever happens. What
// the log says of it may come a moment later: see [Engine.Told].
// A child that goes beyond a limit of its parent is refused with a
// *nestor.LimitError.
func (e *Engine) Submit(ctx context.Context, s Submission) (nestor.ID, error) {
	if err := s.Task.Check(); err != nil {
		return "", fmt.Errorf("task of agent %q: %w", s.Task.Agent, err)
	}
	if size := len(s.Task.Input) + len(s.Task.Schema) + len(s.Task.Data); size > maxTask {
		return "", fmt.Errorf("task of agent %q: %d bytes of input, schema and data: %d are possible; put more into a file", s.Task.Agent, size, maxTask)
	}
	id := newID(s.Parent)
	if s.Key != "" {
		var err error
		if id, err = e.claim(ctx, string(s.Parent)+"\n"+s.Key, id); err != nil {
			return "", err
		}
	}
	if s.Parent != "" {
		_, err := e.apply(ctx, s.Parent, plan.Spawn{
			Fence: s.Fence, Child: id, Key: s.Key, Task: s.Task, Spent: s.Spent, Name: s.Name, Background: s.Background,
		})
		if err != nil {
			return "", fmt.Errorf("starting a child of run %s: %w", s.Parent, err)
		}
		return id, nil
	}
	for _, after := range s.Task.After {
		if _, err := e.Get(ctx, after); err != nil && !e.endedBefore(ctx, after) {
			return "", fmt.Errorf("task of agent %q: after %s: %w", s.Task.Agent, after, err)
		}
	}
	s.Task.Limits = s.Task.Limits.Or(nestor.DefaultLimits())
	if err := e.root(ctx, plan.Submit{ID: id, Key: s.Key, Task: s.Task}); err != nil {
		return "", fmt.Errorf("submitting a task of agent %q: %w", s.Task.Agent, err)
	}
	return id, nil
}

// gathered tells whether all documents of a tree are in one bucket, as they are unless
// layout 5 had it before there were two. Tests change it.
var gathered = true

// newID makes the id of a run below parent, which is empty if it is a root. All documents
// of a tree are in one bucket: those of runs that end together are written together.
func newID(parent nestor.ID) nestor.ID {
	for {
		id := nestor.NewID(time.Now())
		if parent == "" || !gathered || bucketOf(id) == bucketOf(parent) {
			return id
		}
	}
}

// smallTask is the size of a task that its message can carry too.
const smallTask = 8 << 10

// root submits a root. One that a slot here waits for is started in it. Another that
// can start at once is sent off while its document is being written: whoever gets
// the message can make the document itself.
func (e *Engine) root(ctx context.Context, in plan.Submit) error {
	if e.hand(ctx, in) {
		return nil // its document says all that follows
	}
	var ahead jetstream.PubAckFuture
	if len(in.Task.After) == 0 && len(in.Task.Input)+len(in.Task.Schema)+len(in.Task.Data) < smallTask {
		msg, err := taskMessage(taskData{Run: in.ID, Attempt: 1, Submit: &in}, in.Task, time.Time{})
		if err != nil {
			return err
		}
		if ahead, err = e.js.PublishMsgAsync(msg); err != nil && !isAway(err) {
			return e.b.Explain(err)
		}
	}
	run, err := e.apply(ctx, in.ID, in)
	if err != nil {
		return err
	}
	if err := e.unhanded(ctx, run); err != nil {
		return e.b.Explain(err)
	}
	if ahead != nil { // what comes of it does not matter: the document has it enqueued too
		select {
		case <-ahead.Ok():
		case <-ahead.Err():
		case <-ctx.Done():
		}
	}
	return nil
}

// Told waits until the log says what has become of a run so far by this process.
func (e *Engine) Told(ctx context.Context, id nestor.ID) error {
	en := e.recall(id)
	if en == nil {
		en = e.underWay(id)
	}
	if en == nil {
		return nil // it has even ended, or is not kept in mind
	}
	if err := en.carriedOut(ctx); err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

// within waits for done, at most for d, and tells whether it came.
func within(ctx context.Context, d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

func (e *Engine) endedBefore(ctx context.Context, id nestor.ID) bool {
	if e.opts.Ended == nil {
		return false
	}
	_, ok := e.opts.Ended(ctx, id)
	return ok
}

// claim returns the id of whoever had the key first.
func (e *Engine) claim(ctx context.Context, key string, id nestor.ID) (nestor.ID, error) {
	name := keyName(key)
	for began := time.Now(); ; {
		_, err := e.write(ctx, name, []byte(id), 0)
		if err == nil {
			return id, nil
		}
		if errors.Is(err, errConflict) {
			var first *jetstream.RawStreamMsg
			if first, err = e.get(ctx, name); err == nil {
				return nestor.ParseID(string(first.Data))
			}
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // it was forgotten in between
			}
		}
		if !e.patient(ctx, began, err) {
			return "", fmt.Errorf("claiming a key: %w", e.b.Explain(err))
		}
	}
}

func keyName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key." + hex.EncodeToString(sum[:])
}

// Get returns the run as it stands, which is not to be changed: others may hold it
// too. It fails with nestor.ErrRunNotFound if it is
// not in the broker, or not any more.
func (e *Engine) Get(ctx context.Context, id nestor.ID) (plan.Run, error) {
	run, err := e.read(ctx, id)
	if err == nil && run.State == "" {
		err = fmt.Errorf("run %s: %w", id, nestor.ErrRunNotFound)
	}
	if err != nil {
		return plan.Run{}, err
	}
	return run, nil
}

// arriveFor is how long a run that was just submitted may take to be there.
const arriveFor = 5 * time.Second

// Arrived waits until a run is there that is being submitted: its parent tells of it
// a moment before it has a document. It fails with nestor.ErrRunNotFound if it does
// not come, and at once if its id is not of this moment.
func (e *Engine) Arrived(ctx context.Context, id nestor.ID) error {
	if time.Since(id.Time()) > arriveFor {
		_, err := e.Get(ctx, id)
		return err
	}
	missing := fmt.Errorf("run %s: %w", id, nestor.ErrRunNotFound)
	ctx, stop := context.WithTimeoutCause(ctx, arriveFor, missing)
	defer stop()
	_, err := e.until(ctx, id, func(plan.Run) bool { return true })
	return err
}

// Wait waits until the run has ended and returns it. If ctx ends first it returns
// the cause. A run that was told of but is not there yet is waited for too. If its
// end was written by this process, it is in the log too; where this process is alone,
// also if one before it wrote it and was killed.
func (e *Engine) Wait(ctx context.Context, id nestor.ID) (plan.Run, error) {
	run, err := e.until(ctx, id, hasEnded)
	if err != nil {
		return run, err
	}
	e.Mend(ctx)
	if en := e.underWay(id); en != nil {
		en.carriedOut(ctx) // if it cannot be, the next process does it
	}
	return run, nil
}

// Mend waits until what a process that was killed has left undone in its last moments
// is done, such as to tell the log of ends; for two seconds at most, and only where
// this process is alone.
func (e *Engine) Mend(ctx context.Context) {
	if e.opts.Alone {
		within(ctx, repairFirst, e.repaired)
	}
}

func hasEnded(r plan.Run) bool { return r.State.Ended() }

// until waits until a run is as done wants it.
func (e *Engine) until(ctx context.Context, id nestor.ID, done func(plan.Run) bool) (plan.Run, error) {
	if _, err := nestor.ParseID(string(id)); err != nil {
		return plan.Run{}, err
	}
	changed, stop, err := e.changes(id)
	if err != nil {
		return plan.Run{}, err
	}
	defer stop()
	look := time.NewTicker(e.opts.Lease / 2) // should a notice be lost
	defer look.Stop()
	for {
		r, err := e.Get(ctx, id)
		if err == nil && done(r) {
			return r, nil
		}
		if err != nil && !errors.Is(err, nestor.ErrRunNotFound) && ctx.Err() == nil {
			return plan.Run{}, err
		}
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return plan.Run{}, context.Cause(ctx)
		}
	}
}

// Cancel has a run end, what is below it first; with now without waiting for
// that. It returns when that is decided, not when it has ended.
func (e *Engine) Cancel(ctx context.Context, id nestor.ID, cause nestor.Cause, now bool) error {
	if cause.Kind == "" {
		cause.Kind = nestor.Stopped
	}
	if cause.Run == "" {
		cause.Run = id
	}
	_, err := e.apply(ctx, id, plan.Cancel{Cause: cause, Now: now})
	if err != nil {
		return fmt.Errorf("cancelling run %s: %w", id, err)
	}
	return nil
}

// Write sends a letter to a run. The id makes it idempotent as long as the run
// has not heard it.
func (e *Engine) Write(ctx context.Context, id nestor.ID, letter plan.Write) error {
	if _, err := e.apply(ctx, id, letter); err != nil {
		return fmt.Errorf("writing to run %s: %w", id, err)
	}
	return nil
}

// Answer answers a question of a run. The first answer counts.
func (e *Engine) Answer(ctx context.Context, id nestor.ID, answer nestor.Answer) error {
	if _, err := e.apply(ctx, id, plan.AnswerAsk{Answer: answer}); err != nil {
		return fmt.Errorf("answering %q of run %s: %w", answer.AskID, id, err)
	}
	return nil
}
