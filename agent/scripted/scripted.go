// Package scripted is a provider whose agents play a written conversation: for
// tests and demonstrations of what lies above a provider.
//
// # Scripts
//
// A conversation can be written in Go, as [Turn] values, or in YAML, which
// [Load] and [Parse] read. They are strict: what is wrong is told with file,
// line and column, all at once.
//
//	turns:
//	  - when: "copy (\\w+) to (\\w+)"   # regular expression on the message; absent matches all
//	    say:
//	      - thinking: hm
//	      - text: I copy $1.            # $1, ${name} … stand for what when matched, $$ for $
//	      - tool: {name: Bash, input: {command: cp $1 $2}, result: ok, error: false, after: 20ms}
//	      - call: {name: mcp__notes__add, input: {text: I copied $1.}}   # of an MCP server, really
//	      - text: the server says ${result}
//	      - text: done
//	        after: 100ms                # how long it takes to say it
//	    cost_usd: 0.01
//	    usage: {input: 10, output: 5, cache_read: 3, cache_write: 2}
//	    structured: {answer: 42}        # the result in the schema that was asked for
//	  - when: overload
//	    fail: {status: 529, message: overloaded}   # or kind: api, auth or timeout
//	  - when: limit
//	    usage_limit: {resets_in: 2s}    # fails until then, and goes well from then on
//	  - when: forever
//	    say: [{text: still here, after: 1s}]
//	    hang: true                      # all lines again and again until it is stopped
//
// Of the turns whose when matches, the first answers. In when, a pattern is
// searched for; the syntax is that of package regexp. Without a when, $ is just $.
//
// What the agent of a script says has the metadata that provider "sdk" gives it,
// see [agent.Translate]: init at the beginning, assistant_text, thinking, tool_use
// and tool_result, a result at the end. No tool is run, except by call: that of one
// of the agent's MCP servers, in this process, whose text is ${result} in what
// follows. Each call is another turn of the model, and counts against
// Limits.MaxTurns.
package scripted

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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

	// UsageLimit makes the turn fail for that long from when it first fails, for
	// the usage limit of the provider. Zero means that there is none.
	UsageLimit time.Duration

	// Result is what is told besides the lines, as provider "sdk" does: a session
	// at the beginning, a result at the end. If it is nil, nothing is told but
	// the lines as they are.
	Result *Result
}

// Line is one message of an agent, or a call of a tool and its result.
type Line struct {
	Content  string         // $1, ${name} … stand for what When matched
	Kind     agent.Kind     // empty means chat
	Metadata map[string]any // nil means what provider "sdk" would tell; none in a turn without a Result, or if Kind is set
	After    time.Duration  // how long it takes to say it
	Thinking bool           // it is what the agent thinks
	Tool     *Tool          // the call; nil if it is none
}

// Tool is a call of a tool, which is not run unless Call is set.
type Tool struct {
	Name   string
	Input  map[string]any // its strings are filled in as Line.Content is
	Result string         // filled in, too
	Error  bool           // Result says what went wrong
	After  time.Duration  // how long the tool takes
	// Call has the tool run, whose name is mcp__server__tool: of a server in this
	// process, among those of the agent. Result and Error are not used.
	Call bool
}

// Result is what is told at the end of a turn.
type Result struct {
	CostUSD    float64
	Usage      Usage
	Structured any // the result in the schema that was asked for, its strings filled in; nil means none
}

// Usage counts tokens.
type Usage struct{ Input, Output, CacheRead, CacheWrite int }

// Provider makes agents that play a conversation.
type Provider struct {
	turns []Turn

	mu     sync.Mutex          // guards what follows
	resets map[*Turn]time.Time // when usage limits that were met are reset
}

// New returns a provider for the conversation. The caller must not change it
// any more.
func New(turns ...Turn) *Provider { return &Provider{turns: turns, resets: map[*Turn]time.Time{}} }

// Echo returns the conversation of an agent that repeats what it is told.
func Echo() []Turn {
	return []Turn{{
		When: regexp.MustCompile(`(?s)^.*$`), Say: []Line{{Content: "you said: $0"}}, Result: &Result{},
	}}
}

// Type returns "scripted".
func (p *Provider) Type() string { return Type }

// Check returns true: nothing is needed.
func (p *Provider) Check(context.Context) bool { return true }

// Create makes an agent. It fails for a config without a name. The agent keeps
// the session that c.Resume names, or has a new one.
func (p *Provider) Create(_ context.Context, c agent.Config) (agent.Agent, error) {
	if c.Name == "" {
		return nil, &agent.Error{Provider: Type, Err: errors.New("the agent has no name")}
	}
	session := c.Resume
	if session == "" {
		session = newSession()
	}
	return &player{provider: p, config: c, session: session}, nil
}

// newSession returns a random UUID, as the CLI names its sessions.
func newSession() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// limited returns when the usage limit of t is reset, and whether that is ahead.
// The first time starts it.
func (p *Provider) limited(t *Turn) (time.Time, bool) {
	if t.UsageLimit <= 0 {
		return time.Time{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	reset, met := p.resets[t]
	if !met {
		reset = now.Add(t.UsageLimit)
		if whole := reset.Truncate(time.Second); whole.Before(reset) { // it is told in seconds
			reset = whole.Add(time.Second)
		}
		p.resets[t] = reset
	}
	return reset, now.Before(reset)
}

// player is an agent.
type player struct {
	agent.Lifecycle
	provider *Provider
	config   agent.Config
	session  string
	cost     float64                       // so far; belongs to whoever handles a message
	once     sync.Once                     // ends the connections
	servers  map[string]*mcp.ClientSession // that were called; likewise
}

func (a *player) Name() string { return a.config.Name }
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
	if limit := a.config.Limits.Timeout; limit > 0 {
		late := &agent.Error{Provider: Type, Kind: agent.ErrTimeout, Err: fmt.Errorf("no end within %v", limit)}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, late)
		defer stop()
	}
	for i := range a.provider.turns {
		turn := &a.provider.turns[i]
		var match []int
		if turn.When != nil {
			if match = turn.When.FindStringSubmatchIndex(content); match == nil {
				continue
			}
		}
		p := &performance{player: a, turn: turn, content: content, match: match, yield: say, began: time.Now()}
		return p.run(ctx)
	}
	return &agent.Error{Provider: Type, Err: fmt.Errorf("no turn answers %.100q", content)}
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
	if err := a.Wait(ctx); err != nil {
		return err
	}
	a.once.Do(a.hangUp)
	return nil
}
