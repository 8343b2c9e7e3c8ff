package claudecode

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// aliveTime is how long a CLI may take to show that it still answers.
const aliveTime = 2 * time.Second

// cliAgent is an agent on a CLI.
type cliAgent struct {
	name    string
	opts    claude.Options                                                          // without own
	pathKey string                                                                  // where the path is said; may be empty
	own     []string                                                                // K=V, for what the CLI starts
	warm    func(context.Context, claude.Options, ...string) (*claude.Warmed, bool) // nil if there is none
	expect  func(claude.Options)                                                    // likewise
	spawner agent.Spawner
	keep    bool          // the CLI, from one message to the next
	timeout time.Duration // for one message; zero means none
	life    agent.Lifecycle
	ended   chan struct{} // closed by the goroutine of Shutdown

	mu           sync.Mutex // guards what follows
	session      *claude.Session
	conversation string // the id to resume; empty if there is nothing to resume
	turn         *turn  // the message that is handled; nil if none is
}

var _ agent.Pusher = (*cliAgent)(nil)

func (a *cliAgent) Name() string                    { return a.name }
func (a *cliAgent) Type() string                    { return Type }
func (a *cliAgent) State() (agent.State, time.Time) { return a.life.State() }

// Handle has m answered by the CLI. It goes on until what the CLI started in
// the background has ended too.
func (a *cliAgent) Handle(ctx context.Context, m agent.Message) iter.Seq2[agent.Message, error] {
	return func(yield func(agent.Message, error) bool) {
		work, end, err := a.life.Begin(ctx)
		if err != nil {
			yield(agent.Message{}, err)
			return
		}
		t := newTurn(yield)
		func() { // the state is settled before the error is seen
			defer func() { end(err) }()
			a.enter(t)
			defer a.leave(t)
			err = a.handle(work, t, m)
		}()
		if err != nil && !t.left {
			yield(agent.Message{}, err)
		}
	}
}

// handle has m answered, by the CLI that waits for it or by a new one. One that
// waited and ends without taking m up was dead, and is replaced.
func (a *cliAgent) handle(ctx context.Context, t *turn, m agent.Message) error {
	if m.Content == "" {
		return &agent.Error{Provider: Type, Err: errors.New("the message has no content")}
	}
	if a.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.timeout, timeoutError(a.timeout))
		defer stop()
	}
	if s := a.waiting(ctx); s != nil {
		err := a.converse(ctx, t, s, m)
		if t.heard || !lost(err) || ctx.Err() != nil {
			return errorOf(ctx, err, t.apiError)
		}
		a.hangUp()
	}
	s, err := a.start(ctx, t)
	if err == nil && !t.left {
		err = a.converse(ctx, t, s, m)
	}
	return errorOf(ctx, err, t.apiError)
}

// waiting returns the session that was kept, or one that was started ahead of
// time, or nil.
func (a *cliAgent) waiting(ctx context.Context) *claude.Session {
	a.mu.Lock()
	s, conversation := a.session, a.conversation
	a.mu.Unlock()
	if s != nil || conversation != "" || a.warm == nil || a.begins() {
		return s
	}
	w, ok := a.warm(ctx, a.opts, a.own...)
	if !ok {
		return nil
	}
	a.hold(w.Session())
	return w.Session()
}

// begins tells whether the CLI starts programs before its first message, which
// have to know what is the agent's own: servers, and hooks of settings.
func (a *cliAgent) begins() bool {
	if len(a.own) == 0 {
		return false
	}
	for _, s := range a.opts.MCPServers {
		if _, ok := s.(claude.StdioServer); ok {
			return true
		}
	}
	return len(a.opts.SettingSources) > 0
}

// hold makes s the session of the agent.
func (a *cliAgent) hold(s *claude.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
}

// start starts a session that goes on with the conversation, and says so. The
// session outlives ctx, which bounds the start alone.
func (a *cliAgent) start(ctx context.Context, t *turn) (*claude.Session, error) {
	a.mu.Lock()
	opts := a.opts
	opts.Resume = a.conversation
	opts.Env = slices.Concat(opts.Env, a.own)
	a.mu.Unlock()
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	unbind := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	s, err := claude.Start(life, opts)
	if err != nil {
		unbind()
		stop(nil)
		if noConversation(err) {
			a.remember("") // or the agent could never work again
		}
		return nil, naming(err, opts.Path, a.pathKey)
	}
	if !unbind() {
		s.Close()
		return nil, context.Cause(ctx)
	}
	a.hold(s)
	if opts.Resume != "" {
		t.say(resumed(opts.Resume, a.name))
	}
	return s, nil
}

// settleTime is how long a CLI that is interrupted may take to say what came of the
// turn.
const settleTime = 5 * time.Second

// converse has m answered by s. If ctx ends first, the turn is interrupted, and its
// result, which has what it cost, is passed on too.
func (a *cliAgent) converse(ctx context.Context, t *turn, s *claude.Session, m agent.Message) (failure error) {
	asking, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	result := make(chan struct{}) // closed when there is one
	over := make(chan struct{})   // closed when nothing is interrupted any more
	unbind := context.AfterFunc(ctx, func() {
		defer close(over)
		interrupt(asking, s, result)
		stop(context.Cause(ctx))
	})
	for msg, err := range s.Ask(asking, claude.UserMessage{Text: m.Content}, claude.Settled) {
		if err != nil {
			failure = err
			break
		}
		before := t.answered
		if !a.pass(t, s, msg) {
			break
		}
		if t.answered && !before {
			close(result)
		}
	}
	stop(nil)
	if !unbind() {
		<-over
	}
	switch {
	case failure != nil || t.left:
	case !t.answered:
		failure = errNoResult
	case t.cut: // by the end of ctx, if that came first
		failure = context.Cause(ctx)
	}
	if t.left || ctx.Err() != nil {
		t.gone = a.keep && !t.answered && !alive(s)
		return failure
	}
	if t.gone = lost(failure); !t.gone && t.close() {
		return errors.Join(failure, a.late(ctx, t, s))
	}
	return failure
}

// interrupt has s stop its turn, unless that has its result, and waits for this one. A CLI
// that does not give it is ended.
func interrupt(asking context.Context, s *claude.Session, result <-chan struct{}) {
	select {
	case <-result:
		return
	case <-asking.Done():
		return
	default:
	}
	settling, stop := context.WithTimeout(asking, settleTime)
	defer stop()
	if _, err := s.Interrupt(settling); err == nil {
		select {
		case <-result:
			return
		case <-settling.Done():
		}
	}
	if asking.Err() == nil {
		s.Close() // which ends the iteration
	}
}

// alive tells whether a CLI whose turn was stopped still answers.
func alive(s *claude.Session) bool {
	ctx, stop := context.WithTimeout(context.Background(), aliveTime)
	defer stop()
	_, err := s.MCPStatus(ctx)
	return !lost(err)
}

// late reads the answers to what was pushed in the moment when the turn ended.
// If ctx ends first, so does the session.
func (a *cliAgent) late(ctx context.Context, t *turn, s *claude.Session) (failure error) {
	stop := context.AfterFunc(ctx, func() { s.Close() }) // which ends the iteration
	defer func() {
		if !stop() {
			t.gone, failure = true, context.Cause(ctx)
		}
	}()
	for msg, err := range s.Messages() {
		if err != nil {
			return err
		}
		if !a.pass(t, s, msg) || !t.waiting() {
			return nil
		}
	}
	return nil
}

// pass passes on what s says and tells whether more is wanted.
func (a *cliAgent) pass(t *turn, s *claude.Session, msg claude.Message) bool {
	t.observe(msg)
	if t.heard {
		t.open(s)
	}
	switch m := msg.(type) {
	case *claude.StreamEvent:
		if a.expect != nil && !a.begins() && t.spawns(m, a.spawner) {
			a.expect(a.opts)
		}
	case *claude.Init, *claude.Result:
		if id := msg.Head().SessionID; a.keep && id != "" {
			a.remember(id)
		}
	}
	return t.say(agent.Translate(msg, a.name)...)
}

func (a *cliAgent) remember(conversation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conversation = conversation
}

// enter lets messages be pushed into the turn; nil means into none.
func (a *cliAgent) enter(t *turn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn = t
}

// leave ends the turn. The session is kept if it is to be and can be.
func (a *cliAgent) leave(t *turn) {
	a.enter(nil)
	t.close()
	if state, _ := a.life.State(); !a.keep || t.dirty() || state == agent.Terminated {
		a.hangUp()
	}
}

// hangUp ends the session, if there is one.
func (a *cliAgent) hangUp() {
	a.mu.Lock()
	s := a.session
	a.session = nil
	a.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Push sends m into the running turn.
func (a *cliAgent) Push(ctx context.Context, m agent.Message) error {
	a.mu.Lock()
	t := a.turn
	a.mu.Unlock()
	if t == nil {
		return agent.ErrNotBusy
	}
	return t.push(ctx, m)
}

// Shutdown ends the agent. If ctx ends first, the CLI is still brought to its
// end, which takes some seconds at most.
func (a *cliAgent) Shutdown(ctx context.Context) error {
	if a.life.Terminate() {
		go func() {
			defer close(a.ended)
			a.hangUp() // what is said now ends at once
			a.life.Wait(context.Background())
			a.hangUp()
		}()
	}
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// resumed says that a CLI goes on with a conversation that another one had.
func resumed(conversation, sender string) agent.Message {
	m := agent.NewMessage(sender, "The conversation is resumed.")
	m.Kind = agent.System
	m.Metadata = map[string]any{"sdk_type": "resumed", "session_id": conversation}
	return m
}
