package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

// apiAgent is an agent on the Messages API.
type apiAgent struct {
	p      *Provider
	set    *settings
	life   agent.Lifecycle
	ended  chan struct{} // closed by the goroutine of Shutdown
	s      *session      // that is kept; belongs to who handles a message
	resume string        // the session to go on with; empty begins one; belongs likewise

	mu     sync.Mutex // guards what follows
	busy   bool       // messages can be pushed
	pushed []string   // and are not taken up yet
}

var _ agent.Pusher = (*apiAgent)(nil)

func (a *apiAgent) Name() string                    { return a.set.Name }
func (a *apiAgent) Type() string                    { return Type }
func (a *apiAgent) State() (agent.State, time.Time) { return a.life.State() }

// Handle has m answered by the model, with as many tool calls as it wants.
func (a *apiAgent) Handle(ctx context.Context, m agent.Message) iter.Seq2[agent.Message, error] {
	return func(yield func(agent.Message, error) bool) {
		work, end, err := a.life.Begin(ctx)
		if err != nil {
			yield(agent.Message{}, err)
			return
		}
		t := &turn{a: a, yield: yield, began: time.Now()}
		func() { // the state is settled before the error is seen
			defer func() { end(err) }()
			err = a.handle(work, t, m)
			if t.left {
				err = nil
			}
		}()
		if err != nil && !t.left {
			yield(agent.Message{}, err)
		}
	}
}

func (a *apiAgent) handle(ctx context.Context, t *turn, m agent.Message) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if m.Content == "" {
		return &agent.Error{Provider: Type, Err: errors.New("the message has no content")}
	}
	if !a.set.reachable {
		return &agent.Error{Provider: Type, Kind: agent.ErrAuth, Err: errNoKey}
	}
	if limit := a.set.Limits.Timeout; limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, timeoutError(limit))
		defer stop()
	}
	ctx, t.stop = context.WithCancelCause(ctx)
	defer t.stop(nil)
	a.openPush()
	defer a.closePush()

	s, err := a.session(ctx, t)
	if err == nil {
		t.s = s
		err = t.run(ctx, m.Content)
		if !a.set.keep {
			s.end(ctx)
		}
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*agent.Error](err); ok {
		return err
	}
	return &agent.Error{Provider: Type, Err: err}
}

// session returns the session that was kept, or one that goes on with what is on
// record, or a new one.
func (a *apiAgent) session(ctx context.Context, t *turn) (*session, error) {
	if a.s != nil {
		return a.s, nil
	}
	s := &session{
		p: a.p, set: a.set, id: a.resume, conv: newConversation(a.p.prices), log: a.p.opts.Log,
		gate: gate{mode: a.set.mode, allow: slices.Concat(a.set.allowed, a.set.approved)}, source: "startup",
	}
	if a.resume == "" {
		s.id = newUUID()
	} else if err := s.load(ctx); err != nil {
		a.resume = "" // or the agent could never work again
		return nil, err
	}
	var err error
	if s.dir, err = filepath.EvalSymlinks(a.set.Dir); err != nil {
		return nil, fmt.Errorf("the directory of the agent: %w", err)
	}
	if s.kit, err = a.p.open(ctx, s); err != nil {
		return nil, err
	}
	if a.set.keep {
		a.s = s
	}
	if a.resume == "" {
		return s, nil
	}
	t.s = s
	t.pass(resumed(s.id, a.set.Name))
	for _, c := range s.conv.open() {
		if err := t.report(&outcome{call: c, err: said(interruptedCall)}); err != nil {
			a.s = nil
			return nil, errors.Join(err, s.kit.close())
		}
	}
	s.conv.done(s.kit.recall)
	return s, nil
}

// Push keeps m for the next request of the message that is handled.
func (a *apiAgent) Push(_ context.Context, m agent.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.busy {
		return agent.ErrNotBusy
	}
	if m.Content == "" {
		return &agent.Error{Provider: Type, Err: errors.New("the message has no content")}
	}
	a.pushed = append(a.pushed, m.Content)
	return nil
}

// openPush lets messages be pushed.
func (a *apiAgent) openPush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = true
}

// takePushed returns what was pushed since the last time.
func (a *apiAgent) takePushed() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.pushed
	a.pushed = nil
	return list
}

// settle ends the time for pushing, unless something was pushed.
func (a *apiAgent) settle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = len(a.pushed) > 0
	return !a.busy
}

// closePush ends the time for pushing and returns what nobody took up.
func (a *apiAgent) closePush() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.pushed
	a.busy, a.pushed = false, nil
	return list
}

// Shutdown ends the agent and what its tools left running.
func (a *apiAgent) Shutdown(ctx context.Context) error {
	if a.life.Terminate() {
		go func() {
			defer close(a.ended)
			a.life.Wait(context.Background())
			if a.s != nil {
				a.s.end(context.Background())
			}
		}()
	}
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// resumed says that an agent goes on with a conversation that another one had.
func resumed(conversation, sender string) agent.Message {
	m := agent.NewMessage(sender, "The conversation is resumed.")
	m.Kind = agent.System
	m.Metadata = map[string]any{"sdk_type": "resumed", "session_id": conversation}
	return m
}

// session is a conversation and what it is had with. It belongs to who handles a
// message; what calls use of it does not change while they run.
type session struct {
	p      *Provider
	set    *settings
	id     string
	dir    string // where the agent works, through all symlinks
	conv   *conversation
	kit    *kit
	gate   gate
	log    *slog.Logger
	prompt string // id of the message that is handled
	source string // startup or resume, until hooks were told; then empty
}

// load rebuilds the conversation from its records.
func (s *session) load(ctx context.Context) error {
	records, err := s.p.opts.Records.Load(ctx, s.id)
	if err != nil {
		return fmt.Errorf("resuming session %s: %w", s.id, err)
	}
	if len(records) == 0 {
		return &agent.Error{Provider: Type, Kind: agent.ErrNoSession, Err: fmt.Errorf("resuming session %s: no conversation found with that session ID", s.id)}
	}
	if s.conv, err = rebuild(s.p.prices, records); err != nil {
		return fmt.Errorf("resuming session %s: %w", s.id, err)
	}
	s.source = "resume"
	return nil
}

// record keeps a line, and makes it part of the conversation. A line is on
// record before anybody acts on it.
func (s *session) record(l json.RawMessage) error {
	if err := s.p.opts.Records.Append(context.Background(), s.id, l); err != nil {
		return fmt.Errorf("recording session %s: %w", s.id, err)
	}
	return s.conv.add(l)
}

// endTime is how long hooks may take that are told of the end.
const endTime = 10 * time.Second

// end ends what tools left running, and tells hooks.
func (s *session) end(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer stop()
	if s.source == "" {
		s.hookEnd(ctx)
	}
	if err := s.kit.close(); err != nil {
		s.log.Warn("ending the tools of a session", "session", s.id, "error", err)
	}
}
