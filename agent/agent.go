// Package agent is the contract between what runs agents and what they run on.
//
// A [Provider] makes agents of one type from a [Config]; an [Agent] takes a
// [Message] and answers with a stream of messages. Providers are handed to a
// [Providers] by whoever composes the program; nothing registers itself. A
// [Registry] keeps the agents that live.
//
// The words of a conversation, its messages, hooks and permissions, are those of
// package claude whatever the provider, so that one handler serves them all.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"net"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
)

// Agent handles messages. Its methods may be called from any goroutine.
type Agent interface {
	Name() string
	Type() string // that of its provider
	// State returns what the agent does now and since when.
	State() (State, time.Time)
	// Handle works on m and yields what the agent says while it does, all
	// results included. It handles one message at a time: a second Handle
	// waits. The iteration is single-use; an error, an *[Error] or the cause of
	// ctx, is the last thing that it yields. Breaking out, or the end of ctx,
	// stops the work, and the agent can be given another message.
	Handle(ctx context.Context, m Message) iter.Seq2[Message, error]
	// Shutdown ends the agent and all that it holds, also while it handles a
	// message, before ctx ends. A second call does nothing.
	Shutdown(ctx context.Context) error
}

// Pusher is an agent that takes messages while it handles another.
type Pusher interface {
	Agent
	// Push hands m to the agent. What it says to it comes with the answer to
	// the message that it handles. If it handles none, Push fails with
	// [ErrNotBusy].
	Push(ctx context.Context, m Message) error
}

// Provider makes agents of one type.
type Provider interface {
	Type() string
	// Create makes an agent. It may start what the agent needs, or leave that
	// to the first message.
	Create(ctx context.Context, c Config) (Agent, error)
	// Check tells whether agents could work: what they run on is there, and
	// has credentials. It takes a second at most and starts no conversation.
	Check(ctx context.Context) bool
}

// Config says what an agent is to be. Each provider takes from it what it can.
type Config struct {
	Name           string
	Provider       string               // the type of the provider
	Instructions   string               // the system prompt; empty means none
	Model          string               // empty means the provider's default
	AllowedTools   []string             // nil means all
	Approved       []string             // that need no question, besides AllowedTools; nil means none
	DeniedTools    []string             // that do not exist, whatever AllowedTools says; nil means none
	PermissionMode string               // empty means acceptEdits: nobody is there to be asked
	Dir            string               // where it works; empty means the current directory
	Files          []string             // files elsewhere that it may read and change; nil means none
	Dirs           []string             // folders elsewhere that it may read and change; nil means none
	ReadDirs       []string             // folders elsewhere that it may read; nil means none
	SettingSources []string             // user, project, local; nil means none
	MCPServers     map[string]MCPServer // by name
	Schema         json.RawMessage      // the result follows this JSON Schema; nil means free text
	Limits         Limits
	Env            []string // K=V, for what the agent starts
	Own            []string // likewise, over Env: what tells this agent from others like it, for which a program that it runs on may be started before these are known
	BaseEnv        []string // what Env is added to; nil means the environment of this process

	// CanUseTool decides about the tool calls that neither AllowedTools nor
	// PermissionMode decide; nil denies them. Hooks are asked before it, about
	// every call. Both may be called from any goroutine.
	CanUseTool func(context.Context, *claude.PermissionRequest) (claude.Decision, error)
	Hooks      claude.Hooks

	// OnFrame is called for each sign of life of what the agent runs on, also
	// those that are no messages, from any goroutine; nil tells nobody.
	OnFrame func()

	// Wrap returns the command line that is started instead of argv, such as one
	// that confines it, for every process that works for the agent; nil means
	// argv. It may be called from any goroutine.
	Wrap func(argv []string) []string

	// Dial connects what works for the agent in this process to hosts; nil leaves it
	// to the provider. It may be called from any goroutine.
	Dial Dial

	// Spawner is the tool with which the agent starts others. What one of them runs on
	// may be started while the call is still being written.
	Spawner Spawner

	// Resume is the session to go on with: the session_id in the metadata of
	// what an earlier agent said. Empty begins a new one. If there is no such
	// session, the first message fails with [ErrNoSession].
	Resume string

	// Credentials is for what one provider alone knows. Provider "sdk" reads
	// the key "mode": "query" (a fresh process for each message, the default)
	// or "client" (one process, which remembers). Keys, tokens and base URLs in
	// it are for providers that talk to an API themselves.
	Credentials map[string]string
}

// Spawner is a tool with which an agent starts others. The zero value is none.
type Spawner struct {
	Tool string
	// Alike tells whether a call whose input, a JSON object, begins so starts an agent
	// like the one that calls. Known is false as long as that cannot be told. It may
	// be called from any goroutine.
	Alike func(input string) (alike, known bool)
}

// Dial connects to an address, as the method DialContext of a [net.Dialer] does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Limits bound the work on one message. Zero means no limit.
type Limits struct {
	MaxTurns     int
	MaxBudgetUSD float64
	Timeout      time.Duration
}

// MCPServer is a server whose tools an agent may use. One of Command, URL, Server
// and Tools is set.
type MCPServer struct {
	Command string // with Args and Env: a program that speaks on its stdin and stdout
	Args    []string
	Env     map[string]string
	URL     string // with Headers: streamable HTTP
	Headers map[string]string
	Server  *mcp.Server // in this process
	Tools   []Tool      // likewise, with Instructions: who calls tools itself calls these without the protocol

	Instructions string // what a model is told of Tools, all together; empty means nothing
}

// Message is what goes to an agent and comes from it.
type Message struct {
	ID         string
	Sender     string
	Recipients []string
	Content    string
	Kind       Kind
	Metadata   map[string]any // what more there is to know; see the provider
	Time       time.Time
}

// Kind says what a message is.
type Kind string

// The kinds of messages.
const (
	Chat    Kind = "chat"    // something said
	System  Kind = "system"  // something that happened
	Command Kind = "command" // something to be done
)

// Everybody is the recipient of what an agent says: who gets it is decided
// elsewhere.
const Everybody = "all"

// NewMessage returns a chat message with an id and the current time.
func NewMessage(sender, content string) Message {
	return Message{
		ID: rand.Text(), Sender: sender, Recipients: []string{Everybody},
		Content: content, Kind: Chat, Time: time.Now().UTC(),
	}
}
