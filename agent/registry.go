package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Providers holds the providers that a program has, by type. It is filled when
// it is made and never changed.
type Providers struct{ byType map[string]Provider }

// NewProviders returns the given providers. Two of one type are an error.
func NewProviders(list ...Provider) (*Providers, error) {
	p := &Providers{byType: map[string]Provider{}}
	for _, one := range list {
		if _, twice := p.byType[one.Type()]; twice {
			return nil, fmt.Errorf("there are two providers of type %q", one.Type())
		}
		p.byType[one.Type()] = one
	}
	return p, nil
}

// Names returns the types, sorted.
func (p *Providers) Names() []string { return slices.Sorted(maps.Keys(p.byType)) }

// Get returns the provider of that type, or an error that lists which there
// are.
func (p *Providers) Get(name string) (Provider, error) {
	one, ok := p.byType[name]
	if !ok {
		return nil, fmt.Errorf("there is no provider %q; there are: %s", name, strings.Join(p.Names(), ", "))
	}
	return one, nil
}

// ErrUnknownAgent is returned for a name that no agent has.
var ErrUnknownAgent = errors.New("no agent has that name")

// ErrNameTaken is returned when an agent is to be made under a name that
// another has.
var ErrNameTaken = errors.New("another agent has that name")

// Info is what a Registry tells of an agent.
type Info struct {
	Name  string
	Type  string
	State State
	Since time.Time // when State began
}

// Registry keeps the agents that live, by name. Its methods may be called from
// any goroutine.
type Registry struct {
	providers *Providers

	mu     sync.Mutex // guards what follows
	agents map[string]Agent
	closed bool
}

// NewRegistry returns a registry without agents.
func NewRegistry(p *Providers) *Registry {
	return &Registry{providers: p, agents: map[string]Agent{}}
}

// Spawn makes an agent and keeps it under its name. If it fails, nothing is
// left: the name is free again. The error is [ErrNameTaken] if it was not free.
func (r *Registry) Spawn(ctx context.Context, c Config) (Agent, error) {
	if c.Name == "" {
		return nil, errors.New("spawning an agent: it has no name")
	}
	provider, err := r.providers.Get(c.Provider)
	if err != nil {
		return nil, fmt.Errorf("spawning agent %q: %w", c.Name, err)
	}
	if err := r.reserve(c.Name); err != nil {
		return nil, fmt.Errorf("spawning agent %q: %w", c.Name, err)
	}
	a, err := provider.Create(ctx, c)
	if err == nil && !r.keep(c.Name, a) {
		err = errors.Join(ErrTerminated, a.Shutdown(ctx)) // the registry was closed meanwhile
	}
	if err != nil {
		r.free(c.Name, nil)
		return nil, fmt.Errorf("spawning agent %q: %w", c.Name, err)
	}
	return a, nil
}

// keep puts an agent under the name that was reserved for it, unless the
// registry was closed.
func (r *Registry) keep(name string, a Agent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.agents[name] = a
	}
	return !r.closed
}

// free gives the name up, if a is who has it.
func (r *Registry) free(name string, a Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[name] == a {
		delete(r.agents, name)
	}
}

// reserve keeps a name for an agent that is being made.
func (r *Registry) reserve(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrTerminated
	}
	if _, taken := r.agents[name]; taken {
		return ErrNameTaken
	}
	r.agents[name] = nil
	return nil
}

// Get returns the agent with that name, or [ErrUnknownAgent].
func (r *Registry) Get(name string) (Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[name]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("agent %q: %w", name, ErrUnknownAgent)
}

// List tells of all agents, by name.
func (r *Registry) List() []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []Info{}
	for _, name := range slices.Sorted(maps.Keys(r.agents)) {
		if a := r.agents[name]; a != nil {
			state, since := a.State()
			list = append(list, Info{Name: name, Type: a.Type(), State: state, Since: since})
		}
	}
	return list
}

// Shutdown ends the agent with that name before ctx ends. The name is free
// then, also if that failed.
func (r *Registry) Shutdown(ctx context.Context, name string) error {
	a, err := r.Get(name)
	if err != nil {
		return err
	}
	err = a.Shutdown(ctx)
	r.free(name, a)
	if err != nil {
		return fmt.Errorf("shutting down agent %q: %w", name, err)
	}
	return nil
}

// Close ends all agents at once, before ctx ends, and refuses new ones. It
// returns the errors of those that did not end well.
func (r *Registry) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	names := slices.Collect(maps.Keys(r.agents))
	r.mu.Unlock()
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			if err := r.Shutdown(ctx, name); !errors.Is(err, ErrUnknownAgent) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
