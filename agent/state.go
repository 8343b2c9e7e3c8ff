package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// State is what an agent does.
type State string

// The states of an agent: idle → processing → idle or failed, and terminated
// after Shutdown. A failed agent may be given another message.
const (
	Idle       State = "idle"
	Processing State = "processing"
	Failed     State = "failed" // the last message could not be handled
	Terminated State = "terminated"
)

// ErrTerminated is returned by an agent that was shut down.
var ErrTerminated = errors.New("the agent is terminated")

// ErrNotBusy is returned by Push when no message is being handled.
var ErrNotBusy = errors.New("the agent handles no message")

// Lifecycle keeps the state of an agent, for those who write one. Its zero
// value is idle.
type Lifecycle struct {
	once  sync.Once
	turn  chan struct{} // holds a token while a message is handled
	ended chan struct{} // closed by Terminate

	mu    sync.Mutex // guards what follows
	state State
	since time.Time
	stop  context.CancelCauseFunc // of the work under way; nil if there is none
}

func (l *Lifecycle) init() {
	l.once.Do(func() {
		l.turn, l.ended = make(chan struct{}, 1), make(chan struct{})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.set(Idle)
	})
}

// set changes the state. The caller holds mu.
func (l *Lifecycle) set(s State) { l.state, l.since = s, time.Now() }

// State returns the state and since when it holds.
func (l *Lifecycle) State() (State, time.Time) {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.since
}

// Begin makes the agent process a message, once the one before it is done. It
// fails with ctx's cause, or with [ErrTerminated]. The context that it returns
// ends with ctx and when the agent is terminated. The caller calls end with how
// the work went: an agent fails by an error, unless ctx ended first.
func (l *Lifecycle) Begin(ctx context.Context) (work context.Context, end func(error), err error) {
	l.init()
	select {
	case l.turn <- struct{}{}:
	case <-l.ended:
		return nil, nil, ErrTerminated
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Terminated {
		<-l.turn
		return nil, nil, ErrTerminated
	}
	l.set(Processing)
	work, l.stop = context.WithCancelCause(ctx)
	return work, func(failure error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stop(nil)
		l.stop = nil
		switch {
		case l.state == Terminated:
		case failure != nil && ctx.Err() == nil:
			l.set(Failed)
		default:
			l.set(Idle)
		}
		<-l.turn
	}, nil
}

// Terminate ends the agent: Begin fails from now on, and what began ends. It
// tells whether this call did it.
func (l *Lifecycle) Terminate() bool {
	l.init()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Terminated {
		return false
	}
	l.set(Terminated)
	close(l.ended)
	if l.stop != nil {
		l.stop(ErrTerminated)
	}
	return true
}

// Wait waits until no message is being handled, or ctx ends.
func (l *Lifecycle) Wait(ctx context.Context) error {
	l.init()
	select {
	case l.turn <- struct{}{}:
		<-l.turn
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
