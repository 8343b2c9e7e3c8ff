// Package scripted is a provider whose agents play a written conversation: for
// tests and demonstrations of what lies above a provider.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

// Type is the type of the provider.
const Type = "scripted"

// Turn is how an agent answers a message. Of those whose When matches, the
// first answers.
type Turn struct {
	When *regexp.Regexp // on the content of the message; nil matches all
	Say  []Line
	Fail error // what the turn ends with, as an agent.Error; nil if it ends well
	Hang bool  // say all lines again and again until it is stopped
}

// Line is one message of an agent.
type Line struct {
	Content  string         // $1, ${name} … stand for what When matched
	Kind     agent.Kind     // empty means chat
	Metadata map[string]any // nil means none
	After    time.Duration  // how long it takes to say it
}

// Provider makes agents that play a conversation.
type Provider struct{ turns []Turn }

// New returns a provider for the conversation. The caller must not change it
// any more.
func New(turns ...Turn) *Provider { return &Provider{turns} }

// Type returns "scripted".
func (p *Provider) Type() string { return Type }

// Check returns true: nothing is needed.
func (p *Provider) Check(context.Context) bool { return true }

// Create makes an agent. It fails for a config without a name.
func (p *Provider) Create(_ context.Context, c agent.Config) (agent.Agent, error) {
	if c.Name == "" {
		return nil, &agent.Error{Provider: Type, Err: errors.New("the agent has no name")}
	}
	return &player{name: c.Name, timeout: c.Limits.Timeout, turns: p.turns}, nil
}

// player is an agent.
type player struct {
	agent.Lifecycle
	name    string
	timeout time.Duration // for a message; zero means none
	turns   []Turn
}

func (a *player) Name() string { return a.name }
func (a *player) Type() string { return Type }

func (a *player) Handle(ctx context.Context, m agent.Message) iter.Seq2[agent.Message, error] {
	return func(yield func(agent.Message, error) bool) {
		work, end, err := a.Begin(ctx)
		if err != nil {
			yield(agent.Message{}, err)
			return
		}
		err = a.play(work, m.Content, func(m agent.Message) bool { return yield(m, nil) })
		if errors.Is(err, errBroken) {
			end(nil)
			return
		}
		end(err)
		if err != nil {
			yield(agent.Message{}, err)
		}
	}
}

// errBroken says that nobody wants to hear more.
var errBroken = errors.New("broken out of")

func (a *player) play(ctx context.Context, content string, say func(agent.Message) bool) error {
	late := &agent.Error{Provider: Type, Kind: agent.ErrTimeout, Err: fmt.Errorf("no end within %v", a.timeout)}
	if a.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.timeout, late)
		defer stop()
	}
	turn, match := a.find(content)
	if turn == nil {
		return &agent.Error{Provider: Type, Err: fmt.Errorf("no turn answers %.100q", content)}
	}
	for again := true; again; again = turn.Hang {
		for _, line := range turn.Say {
			if err := pause(ctx, line.After); err != nil {
				return err
			}
			if !say(a.message(turn, line, content, match)) {
				return errBroken
			}
		}
		if turn.Hang && len(turn.Say) == 0 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	if turn.Fail != nil {
		return &agent.Error{Provider: Type, Err: turn.Fail}
	}
	return nil
}

// find returns the turn that answers, and what it matched.
func (a *player) find(content string) (*Turn, []int) {
	for i := range a.turns {
		t := &a.turns[i]
		if t.When == nil {
			return t, nil
		}
		if match := t.When.FindStringSubmatchIndex(content); match != nil {
			return t, match
		}
	}
	return nil, nil
}

func (a *player) message(t *Turn, line Line, content string, match []int) agent.Message {
	m := agent.NewMessage(a.name, line.Content)
	if match != nil {
		m.Content = string(t.When.ExpandString(nil, line.Content, content, match))
	}
	if line.Kind != "" {
		m.Kind = line.Kind
	}
	m.Metadata = maps.Clone(line.Metadata)
	return m
}

// pause takes d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shutdown ends the agent and waits for what it says.
func (a *player) Shutdown(ctx context.Context) error {
	a.Terminate()
	return a.Wait(ctx)
}
