// Package claudecode is the provider "sdk": agents that run on the Claude Code
// CLI.
//
// An agent of mode "query" starts a CLI for each message and remembers nothing.
// One of mode "client" keeps its CLI, and with it the conversation, until it is
// shut down. What the CLI says becomes messages as [agent.Translate] makes
// them.
package claudecode

import (
	"context"
	"log/slog"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// Type is the type of the provider and of its agents.
const Type = "sdk"

// Options say how a Provider starts the CLI. The zero value works.
type Options struct {
	Path       string   // the CLI; empty means that claude.Find looks for it
	PathKey    string   // where Path is said, for errors, such as "sdk.path" of a config; empty tells nothing
	Env        []string // K=V, for every agent's CLI; what Config.Env says wins
	ReplaceEnv bool     // they inherit nothing, whatever Config.BaseEnv says

	// Warm returns a CLI that was started ahead of time as one with these options
	// would be, calls their functions, has their servers, and env for what it starts,
	// and gives it away; or false if it has none. Nil means that every agent starts its
	// own.
	Warm func(ctx context.Context, opts claude.Options, env ...string) (*claude.Warmed, bool)

	// Expect is told that Warm will probably be called with these options in a moment:
	// an agent that has them is about to start another like it. Nil tells nobody.
	Expect func(opts claude.Options)

	Log *slog.Logger // gets package claude's warnings; nil discards
}

// Provider makes agents that run on the Claude Code CLI. Its methods may be
// called from any goroutine.
type Provider struct{ opts Options }

// New returns a provider. It starts nothing.
func New(opts Options) *Provider { return &Provider{opts: opts} }

// Type returns "sdk".
func (p *Provider) Type() string { return Type }

// Create makes an agent of the mode that c.Credentials["mode"] names, which says
// texts also as they are written if c.Credentials["partial"] is "true". It
// starts nothing: a CLI that is missing shows at the first message. The error,
// an *[agent.Error], says what is wrong with c.
//
// A CLI counts what it spends for as long as it runs: an agent of mode "client"
// has c.Limits.MaxBudgetUSD for all of its messages together.
func (p *Provider) Create(_ context.Context, c agent.Config) (agent.Agent, error) {
	opts, err := p.optionsOf(c)
	if err != nil {
		return nil, &agent.Error{Provider: Type, Err: err}
	}
	return &cliAgent{
		name: c.Name, opts: opts, pathKey: p.opts.PathKey, own: c.Own, warm: p.opts.Warm, expect: p.opts.Expect, spawner: c.Spawner, conversation: c.Resume,
		keep: c.Credentials[modeKey] == modeClient, timeout: c.Limits.Timeout,
		ended: make(chan struct{}),
	}, nil
}
