// Package anthropic is the provider "api": agents that are a loop in this
// process over the Messages API, with no CLI beneath them.
//
// An agent says what the Claude CLI would say, in the CLI's own lines, which
// [agent.Translate] makes messages of; it has Claude Code's tools, asks the same
// hooks and obeys the same permissions. So nobody above can tell the two apart
// but by the name. The same lines are the records of its session, from which the
// session goes on after the process was killed: see [Records].
//
// An agent of mode "query" begins anew with each message. One of mode "client"
// remembers the conversation.
package anthropic

import (
	"context"
	"log/slog"
	"net/http"
	"os/exec"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// Type is the type of the provider and of its agents.
const Type = "api"

// DefaultModel is the model of agents that name none.
const DefaultModel = "claude-opus-5-5"

// Options say how a Provider talks to the API. The zero value works for agents
// that bring credentials of their own. Nothing is read from the environment.
type Options struct {
	BaseURL   string // of anything that speaks the Messages API; empty means Anthropic's
	APIKey    string // sent as X-Api-Key; empty sends none
	AuthToken string // sent as a bearer token; empty sends none

	Model         string        // empty means DefaultModel
	FallbackModel string        // for when the model fails; empty means none
	Prices        Prices        // over ListPrices, model by model
	MaxTokens     int           // of one answer; zero means 32,000, or less if the model gives less
	Retries       int           // of a request that failed; zero means 10, negative none
	Idle          time.Duration // how long the API may send nothing; zero means 5m

	// CompactAt is how much of the model's window a conversation may fill
	// before its older part is summarized; zero means 0.8.
	CompactAt float64

	Records    Records      // nil means a MemRecords of the provider's own
	HTTPClient *http.Client // nil means one of the provider's own, for all agents

	// Command makes the commands that tools start; nil means exec.Command.
	Command func(name string, arg ...string) *exec.Cmd
	// Spool is the folder for results of tools that are too long for the
	// model: each session has a folder of its own in it. Empty means that they
	// are only cut.
	Spool string
	// Tools returns tools that an agent has besides its own, or in their place
	// if they have their names; nil means none.
	Tools func(agent.Config) []tools.Tool

	Log *slog.Logger // gets what goes wrong where nobody can be told; nil discards
}

// Provider makes agents that talk to the Messages API. Its methods may be called
// from any goroutine.
type Provider struct {
	opts   Options
	prices Prices
	client *client
}

// New returns a provider. It starts nothing.
func New(opts Options) *Provider {
	if opts.Model == "" {
		opts.Model = DefaultModel
	}
	if opts.Records == nil {
		opts.Records = &MemRecords{}
	}
	if opts.Retries == 0 {
		opts.Retries = 10
	}
	if opts.Idle <= 0 {
		opts.Idle = 5 * time.Minute
	}
	if opts.CompactAt <= 0 || opts.CompactAt > 1 {
		opts.CompactAt = 0.8
	}
	if opts.HTTPClient == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.WriteBufferSize = 32 << 10 // or a request is copied through a buffer of this size that is made for it
		t.MaxIdleConnsPerHost = 64
		opts.HTTPClient = &http.Client{Transport: t}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Provider{
		opts: opts, prices: ListPrices().with(opts.Prices),
		client: newClient(opts.HTTPClient, opts.Idle),
	}
}

// Type returns "api".
func (p *Provider) Type() string { return Type }

// Create makes an agent, which costs next to nothing: it starts nothing and
// connects to nobody before its first message. The error, an *[agent.Error],
// says what is wrong with c.
//
// It reads from c.Credentials: "api_key", "auth_token", "base_url" and
// "fallback_model", which go over the provider's; "mode", which is "query" (the
// default) or "client"; and "partial", which is "true" for texts as they are
// written.
func (p *Provider) Create(_ context.Context, c agent.Config) (agent.Agent, error) {
	s, err := p.settingsOf(c)
	if err != nil {
		return nil, &agent.Error{Provider: Type, Err: err}
	}
	return &apiAgent{p: p, set: s, resume: c.Resume, ended: make(chan struct{})}, nil
}
