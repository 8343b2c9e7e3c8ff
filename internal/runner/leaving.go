package runner

import (
	"context"
	"sync"

	"github.com/dfaf701a/nestor/agent"
)

// leaving are agents that end behind their runs: the Claude CLI takes some 30 ms to
// exit, which nobody who waits for the result has to wait for.
type leaving struct {
	all sync.WaitGroup

	mu       sync.Mutex               // guards what follows
	sessions map[string]chan struct{} // of theirs; closed when they are gone
}

// mayLinger tells whether the agent may end behind its run: whether it has answered,
// has started nothing that could change anything meanwhile, and uses nothing that is
// taken away at the end.
func (c *conversation) mayLinger(place Place, config agent.Config) bool {
	if c.failure != nil || c.bound || place.Close != nil || place.Watch == nil || c.writes.begun() || len(config.SettingSources) > 0 {
		return false
	}
	for _, s := range config.MCPServers {
		if s.Command != "" {
			return false
		}
	}
	return true
}

// add ends an agent that had the session.
func (l *leaving) add(session string, end func()) {
	gone := make(chan struct{})
	l.mu.Lock()
	if l.sessions == nil {
		l.sessions = map[string]chan struct{}{}
	}
	l.sessions[session] = gone
	l.mu.Unlock()
	l.all.Go(func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.sessions[session] == gone {
				delete(l.sessions, session)
			}
			close(gone)
		}()
		end()
	})
}

// gone waits until no agent has the session that was given to it before.
func (l *leaving) gone(ctx context.Context, session string) error {
	l.mu.Lock()
	gone := l.sessions[session]
	l.mu.Unlock()
	if session == "" || gone == nil {
		return nil
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait returns when the agents of runs that were executed are gone. It is called when
// no more are.
func (r *Runner) Wait() { r.leaving.all.Wait() }
