package runner

import (
	"context"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

// lingers is how long an agent stays that may end behind its run. Who waits for the
// result goes on in that time, and the end of a process would take the processor from it.
const lingers = 250 * time.Millisecond

// leaving are agents that end behind their runs: the Claude CLI takes some 30 ms to
// exit, which nobody who waits for the result has to wait for.
type leaving struct {
	all   sync.WaitGroup
	hurry chan struct{} // closed when none is to linger any more
	once  sync.Once     // closes it

	mu       sync.Mutex         // guards what follows
	sessions map[string]*leaver // by their sessions
}

// leaver is an agent that ends behind its run.
type leaver struct {
	wanted chan struct{} // closed when somebody wants its session
	once   sync.Once     // closes it
	gone   chan struct{} // closed when it is
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

// add ends an agent that had the session, soon.
func (l *leaving) add(session string, end func()) {
	one := &leaver{wanted: make(chan struct{}), gone: make(chan struct{})}
	l.mu.Lock()
	l.sessions[session] = one
	l.mu.Unlock()
	l.all.Go(func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.sessions[session] == one {
				delete(l.sessions, session)
			}
			close(one.gone)
		}()
		late := time.NewTimer(lingers)
		defer late.Stop()
		select {
		case <-late.C:
		case <-one.wanted:
		case <-l.hurry:
		}
		end()
	})
}

// gone waits until no agent has the session that was given to it before.
func (l *leaving) gone(ctx context.Context, session string) error {
	l.mu.Lock()
	one := l.sessions[session]
	l.mu.Unlock()
	if session == "" || one == nil {
		return nil
	}
	one.once.Do(func() { close(one.wanted) })
	select {
	case <-one.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait returns when the agents of runs that were executed are gone. It is called when
// no more are.
func (r *Runner) Wait() {
	r.leaving.once.Do(func() { close(r.leaving.hurry) })
	r.leaving.all.Wait()
}
