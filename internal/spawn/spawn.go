// Package spawn is what an agent can do with others: start them, wait for them,
// write to them, ask a person, say how far it is.
//
// There is one room and two doors. The room is a [Run]: one attempt of a run, with
// what it may do. The doors are tools in the agent itself ([NewServer], which
// speaks to the Run) and a socket for what the agent starts (a client with the
// run's token, see [Tokens], which speaks to the same Run); 'nestor mcp' is the
// tools again, on the socket. What is said at one door means the same at the other.
//
// Nothing that an agent says of itself counts: which run it is follows from the
// token, how deep it is and what it has left from the run's document, and what a
// child may do is what is asked for and what the run itself may do ([Narrow]).
package spawn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Attempt is an attempt of a run, which starts and waits. While it waits, others
// use its slot. Its methods may be called from any goroutine.
type Attempt interface {
	Start(ctx context.Context, c Start) (nestor.ID, error)
	Await(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error)
	AwaitAny(ctx context.Context, runs ...nestor.ID) ([]plan.Run, error)
	Collect(ctx context.Context, runs ...nestor.ID) error
	Ask(ctx context.Context, ask nestor.Ask) (*nestor.Answer, error)
	// Read returns the letters that the agent was not given, and has them given.
	Read() []plan.Letter
	Append(ctx context.Context, events ...nestor.Event) error
}

// Start is a child to start.
type Start struct {
	Task       nestor.Task
	Key        string
	Name       string
	Background bool
}

// Engine is where other runs are reached.
type Engine interface {
	Get(ctx context.Context, id nestor.ID) (plan.Run, error)
	Arrived(ctx context.Context, id nestor.ID) error
	Write(ctx context.Context, id nestor.ID, letter plan.Write) error
	Cancel(ctx context.Context, id nestor.ID, cause nestor.Cause, now bool) error
	Answer(ctx context.Context, id nestor.ID, answer nestor.Answer) error
}

// Options are those of a Run. Task is required.
type Options struct {
	// Task makes the task of a child that a run asks for, or says why it may not.
	Task func(ctx context.Context, parent plan.Run, s api.Spawn) (nestor.Task, error)
	// MaxResult is how many bytes of a result go up; zero means the constant.
	MaxResult int
}

// MaxResult is how many bytes of a result go up, if nothing else is said.
const MaxResult = 32 << 10

// Run is what an attempt of a run can do with others. Its methods may be called
// from any goroutine.
type Run struct {
	id      nestor.ID
	attempt Attempt
	engine  Engine
	opts    Options

	mu      sync.Mutex // guards what follows
	asked   map[string]int
	refused int
}

var _ Verbs = (*Run)(nil)

// New returns what the attempt of a run can do.
func New(id nestor.ID, a Attempt, e Engine, o Options) *Run {
	if o.MaxResult == 0 {
		o.MaxResult = MaxResult
	}
	return &Run{id: id, attempt: a, engine: e, opts: o, asked: map[string]int{}}
}

// ID returns the run.
func (r *Run) ID() nestor.ID { return r.id }

// again names the nth time that the attempt asks for something. Another attempt,
// which does it all again, finds by the same name what was there.
func (r *Run) again(what ...any) (string, error) {
	data, err := json.Marshal([]any{r.id, what})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:12])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[name]++
	return fmt.Sprintf("%s-%d", name, r.asked[name]), nil
}

// Spawn starts a child and, unless it is to work in the background, waits for its
// end. What an earlier attempt of the run has started in the same way is not
// started again.
func (r *Run) Spawn(ctx context.Context, s api.Spawn) (api.Child, error) {
	if strings.TrimSpace(s.Task) == "" {
		return api.Child{}, invalid("task: empty; say what the child is to do")
	}
	if err := checkName(s.Name); err != nil {
		return api.Child{}, err
	}
	parent, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return api.Child{}, err
	}
	task, err := r.opts.Task(ctx, parent, s)
	if err != nil {
		return api.Child{}, err
	}
	key := "given\n" + s.Key
	if s.Key == "" {
		if key, err = r.again("spawn", task, s.Name, s.Background); err != nil {
			return api.Child{}, err
		}
	}
	id, err := r.attempt.Start(ctx, Start{Task: task, Key: key, Name: s.Name, Background: s.Background})
	if errors.Is(err, plan.ErrNamed) {
		return api.Child{}, invalid("name %q: a child that has not ended has it; give this one another", s.Name)
	}
	if err != nil {
		return api.Child{}, err
	}
	if s.Background {
		// If it takes long it comes all the same: the run that starts it knows of it.
		if err := r.engine.Arrived(ctx, id); err != nil && !errors.Is(err, nestor.ErrRunNotFound) {
			return api.Child{}, err
		}
		return api.Child{Run: id, Root: parent.Root, Parent: r.id, Depth: parent.Depth() + 1, Name: s.Name, Agent: s.Agent, Status: nestor.Queued}, nil
	}
	ended, err := r.attempt.Await(ctx, id)
	if err != nil {
		return api.Child{}, fmt.Errorf("waiting for run %s: %w", id, err)
	}
	return r.child(ended[0], s.Name), nil
}

// maxName is how long the name of a child may be.
const maxName = 60

func checkName(name string) error {
	switch name {
	case "parent", "children", "all":
		return invalid("name %q: it stands for others; choose another", name)
	}
	if _, err := nestor.ParseID(name); err == nil {
		return invalid("name %q: it is the id of a run; choose another", name)
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c))
	}) {
		return invalid("name %.80q: want letters, digits, '-', '_' and '.', %d at most", name, maxName)
	}
	return nil
}

// errWaited ends a wait in time.
var errWaited = errors.New("the time to wait is over")

// Await waits for children, and returns what came of them: of all that were asked
// for, or with Any of those that have ended. When the time is over, it returns them
// as they stand.
func (r *Run) Await(ctx context.Context, w api.WaitFor) ([]api.Child, error) {
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return nil, err
	}
	ids, err := r.waitedFor(ctx, mine, w.Runs)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	waiting, stop := ctx, context.CancelFunc(func() {})
	if w.Timeout > 0 {
		waiting, stop = context.WithTimeoutCause(ctx, w.Timeout, errWaited)
	}
	defer stop()
	await := r.attempt.Await
	if w.Any {
		await = r.attempt.AwaitAny
	}
	runs, err := await(waiting, ids...)
	if errors.Is(err, errWaited) {
		runs, err = r.standing(ctx, ids)
	}
	if err != nil {
		return nil, err
	}
	var list []api.Child
	var known []nestor.ID
	for _, run := range runs {
		c := mine.Children[run.ID]
		name := ""
		if c != nil {
			name = c.Name
		}
		if c != nil && run.State.Ended() {
			known = append(known, run.ID)
		}
		list = append(list, r.child(run, name))
	}
	if len(known) > 0 {
		err = r.attempt.Collect(ctx, known...)
	}
	return list, err
}

// waitedFor returns the runs that are waited for.
func (r *Run) waitedFor(ctx context.Context, mine plan.Run, names []string) (ids []nestor.ID, err error) {
	for _, name := range names {
		id, err := r.find(ctx, mine, name)
		if err != nil {
			return nil, err
		}
		if id == r.id {
			return nil, invalid("run %s: a run cannot wait for itself", id)
		}
		ids = append(ids, id)
	}
	if len(names) > 0 {
		return ids, nil
	}
	for _, id := range sortedChildren(mine) {
		if c := mine.Children[id]; c.Background || c.Status == "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// standing returns runs as they stand.
func (r *Run) standing(ctx context.Context, ids []nestor.ID) (runs []plan.Run, err error) {
	for _, id := range ids {
		run, err := r.engine.Get(ctx, id)
		if errors.Is(err, nestor.ErrRunNotFound) {
			run, err = plan.Run{ID: id, State: nestor.Queued}, nil // it is about to be there
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// Report says how far the run is.
func (r *Run) Report(ctx context.Context, p api.Progress) error {
	if !(p.Percent >= 0 && p.Percent <= 100) {
		return invalid("percent is %v: want 0 to 100", p.Percent)
	}
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return err
	}
	return r.attempt.Append(ctx, &nestor.ExecutionProgress{
		Header: header(mine), ExecutionID: string(r.id), Agent: mine.Task.Agent, Progress: p.Percent / 100, Activity: clip(p.Activity, maxActivity),
	})
}

// maxActivity is how many bytes of what a run says of itself are kept.
const maxActivity = 1000

func header(run plan.Run) nestor.Header {
	return nestor.Header{Time: time.Now().UTC(), Run: run.ID, Root: run.Root, Depth: run.Depth()}
}

// maxRefused is how many refusals of an attempt are put on record.
const maxRefused = 100

// Refused puts on record that the run asked for something that it may not have.
func (r *Run) Refused(ctx context.Context, why string) error {
	r.mu.Lock()
	r.refused++
	n := r.refused
	r.mu.Unlock()
	if n > maxRefused {
		return nil
	}
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return err
	}
	return r.attempt.Append(ctx, &nestor.ErrorEvent{Header: header(mine), Kind: nestor.Refused, Message: clip("refused: "+why, maxActivity)})
}
