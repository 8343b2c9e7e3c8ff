package spawn

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/api"
)

// Verbs are what an agent can do with others: by a [Run] in the daemon, or by an
// api.Client elsewhere.
type Verbs interface {
	Spawn(ctx context.Context, s api.Spawn) (api.Child, error)
	Await(ctx context.Context, w api.WaitFor) ([]api.Child, error)
	Write(ctx context.Context, l api.Letter) ([]nestor.ID, error)
	Inbox(ctx context.Context) ([]api.Letter, error)
	Report(ctx context.Context, p api.Progress) error
	Ask(ctx context.Context, q api.Question) (api.Reply, error)
}

// ServerName is what the server of the tools is called, among those of an agent.
const ServerName = "nestor"

// SpawnTool is the name by which agents know the tool that starts others.
const SpawnTool = "mcp__" + ServerName + "__spawn"

// Tools returns the names that agents know the tools by; with delegates also of
// those that start others.
func Tools(delegates bool) []string {
	names := []string{"send", "inbox", "progress", "ask_person"}
	if delegates {
		names = append(names, "spawn", "wait")
	}
	for i, name := range names {
		names[i] = "mcp__" + ServerName + "__" + name
	}
	return names
}

// AgentOf returns the definition that a call of the tool names whose input begins
// so; empty means none. Known is false as long as that cannot be told: an agent that
// is named is named first, as in the schema of the tool.
func AgentOf(input string) (agent string, known bool) {
	d := json.NewDecoder(strings.NewReader(input))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	key, err := d.Token()
	if err != nil {
		return "", false
	}
	if key != "agent" {
		return "", true
	}
	name, err := d.Token()
	agent, known = name.(string)
	return agent, known && err == nil
}

type limitsInput struct {
	MaxTurns       int     `json:"max_turns,omitempty" jsonschema:"turns of the child"`
	Timeout        string  `json:"timeout,omitempty" jsonschema:"time of the child from its start, such as 90s or 10m"`
	MaxBudgetUSD   float64 `json:"max_budget_usd,omitempty" jsonschema:"money of the child and all below it; it is reserved from your own"`
	MaxDepth       int     `json:"max_depth,omitempty" jsonschema:"how deep below the root of all runs the child's own children may be"`
	MaxChildren    int     `json:"max_children,omitempty" jsonschema:"children of the child that live at once"`
	MaxDescendants int     `json:"max_descendants,omitempty" jsonschema:"runs below the child, in all; they are reserved from your own"`
}

type spawnInput struct {
	Agent          string         `json:"agent,omitempty" jsonschema:"the name of an agent definition; leave it out for an agent without one"` // first: see AgentOf
	Task           string         `json:"task" jsonschema:"what the agent is to do. It knows nothing of this conversation: say all that it needs"`
	Name           string         `json:"name,omitempty" jsonschema:"a name by which you speak of it in wait and send"`
	Background     bool           `json:"background,omitempty" jsonschema:"return at once with its run id; you are told when it ends, and wait gives its result"`
	Schema         map[string]any `json:"schema,omitempty" jsonschema:"a JSON Schema: the result is validated and comes as structured_output"`
	Tools          []string       `json:"tools,omitzero" jsonschema:"the tools that it has, among yours; leave it out for the same as yours"`
	Role           string         `json:"role,omitempty" jsonschema:"what bounds it besides your own bounds: orchestrator, implementer, researcher, critic, reviewer or monitor"`
	Model          string         `json:"model,omitempty" jsonschema:"leave it out for yours"`
	Provider       string         `json:"provider,omitempty" jsonschema:"leave it out for yours"`
	PermissionMode string         `json:"permission_mode,omitempty" jsonschema:"yours or a stricter one"`
	Sandbox        string         `json:"sandbox,omitempty" jsonschema:"off, files or strict: yours or a stricter one"`
	Hosts          []string       `json:"hosts,omitzero" jsonschema:"the hosts that it may reach and no others, among yours, such as example.com or *.example.com; leave it out for the same as yours"`
	Dir            string         `json:"dir,omitempty" jsonschema:"a folder below yours; leave it out for yours"`
	Limits         *limitsInput   `json:"limits,omitempty" jsonschema:"none can be more than yours"`
}

type waitInput struct {
	Runs    []string `json:"runs,omitempty" jsonschema:"run ids, or names that you gave; leave it out for all that you started in the background"`
	Any     bool     `json:"any,omitempty" jsonschema:"return as soon as one of them has ended"`
	Timeout string   `json:"timeout,omitempty" jsonschema:"return then in any case, such as 90s or 10m; leave it out to wait as long as it takes"`
}

type sendInput struct {
	To      string `json:"to" jsonschema:"a run id, a name that you gave, parent, children (yours that live), or all (that live below you)"`
	Content string `json:"content" jsonschema:"what they are told"`
}

type inboxInput struct{}

type progressInput struct {
	Activity string  `json:"activity" jsonschema:"what you do now, in a few words"`
	Percent  float64 `json:"percent,omitempty" jsonschema:"how much of all is done, 0 to 100"`
}

type askInput struct {
	Question string   `json:"question" jsonschema:"what the person is asked: all that is needed to answer it"`
	Options  []string `json:"options,omitempty" jsonschema:"answers of which one is chosen; leave it out for any answer"`
	Timeout  string   `json:"timeout,omitempty" jsonschema:"how long an answer is waited for, such as 10m; leave it out to wait as long as it takes"`
	Default  string   `json:"default,omitempty" jsonschema:"the answer that counts when none comes in time"`
}

// Server returns the tools of an agent as a server; with delegates also those that start
// others and wait for them.
func Server(v Verbs, delegates bool) agent.MCPServer {
	// A client runs calls that only read side by side. To spawn is one: what the
	// child may change is decided by its own rights, call by call.
	const sideBySide = true
	var tools []agent.Tool
	if delegates {
		tools = []agent.Tool{
			newTool("spawn", sideBySide,
				"Start an agent below you, and get its result: {run, status, output, structured_output, cost_usd, error}. It works in your folder with your tools, or fewer. "+
					"With background it returns {run} at once: go on with other work, and wait later. To have several work at once, start them in the background, then wait. "+
					"If it is refused, the error names the limit and what is left of it.",
				func(ctx context.Context, in spawnInput) (any, error) {
					s, err := in.spawn()
					if err != nil {
						return nil, err
					}
					return v.Spawn(ctx, s)
				}),
			newTool("wait", sideBySide,
				"Wait for agents that you started, and get their results. It costs nothing to wait, however long it takes.",
				func(ctx context.Context, in waitInput) (any, error) {
					timeout, err := spanOf(in.Timeout)
					if err != nil {
						return nil, err
					}
					list, err := v.Await(ctx, api.WaitFor{Runs: in.Runs, Any: in.Any, Timeout: timeout})
					return map[string][]api.Child{"runs": append([]api.Child{}, list...)}, err
				}),
		}
	}
	tools = append(tools,
		newTool("send", !sideBySide,
			"Write to other agents: to those below you, or to the one that started you. They get it at their next turn.",
			func(ctx context.Context, in sendInput) (any, error) {
				to, err := v.Write(ctx, api.Letter{To: in.To, Content: in.Content})
				return map[string][]nestor.ID{"to": to}, err
			}),
		newTool("inbox", sideBySide,
			"Read what others have written to you and you have not read yet.",
			func(ctx context.Context, in inboxInput) (any, error) {
				list, err := v.Inbox(ctx)
				return map[string][]api.Letter{"letters": append([]api.Letter{}, list...)}, err
			}),
		newTool("progress", !sideBySide,
			"Say what you do now and how far you are, for the person who watches.",
			func(ctx context.Context, in progressInput) (any, error) {
				return map[string]bool{"ok": true}, v.Report(ctx, api.Progress{Activity: in.Activity, Percent: in.Percent})
			}),
		newTool("ask_person", sideBySide,
			"Ask the person at the root, who sees little of what you see, and wait for the answer. Use it for what only a person can decide.",
			func(ctx context.Context, in askInput) (any, error) {
				timeout, err := spanOf(in.Timeout)
				if err != nil {
					return nil, err
				}
				return v.Ask(ctx, api.Question{Question: in.Question, Options: in.Options, Timeout: timeout, Default: in.Default})
			}),
	)
	return agent.MCPServer{Tools: tools, Instructions: "Start other agents, wait for them, write to them, ask the person at the root."}
}

// newTool returns a tool that answers with JSON. What goes wrong is an answer too, for
// the agent to act on.
func newTool[In any](name string, sideBySide bool, description string, do func(context.Context, In) (any, error)) agent.Tool {
	return agent.Tool{
		Name: name, Description: description, Schema: schemas()[name], ReadOnly: sideBySide,
		Call: func(ctx context.Context, input json.RawMessage) (string, error) {
			var in In
			if err := read(name, input, &in); err != nil {
				return "", err
			}
			answer, err := do(ctx, in)
			if err != nil {
				return "", err
			}
			var text bytes.Buffer
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false)
			err = encoder.Encode(answer)
			return strings.TrimSpace(text.String()), err
		},
	}
}

// schemasFile has the schemas of the inputs, by the names of the tools, as they follow
// from the types: to make them takes milliseconds, and each command would. The test of
// the tools writes it.
//
//go:embed schemas.json
var schemasFile []byte

var schemas = sync.OnceValue(func() (all map[string]json.RawMessage) {
	if err := json.Unmarshal(schemasFile, &all); err != nil {
		panic(err) // it is a part of the program
	}
	return all
})

// resolved has the schemas as what inputs are checked with.
var resolved = sync.OnceValue(func() map[string]*jsonschema.Resolved {
	all := map[string]*jsonschema.Resolved{}
	for name, text := range schemas() {
		var schema jsonschema.Schema
		err := json.Unmarshal(text, &schema)
		if err == nil {
			all[name], err = schema.Resolve(nil)
		}
		if err != nil {
			panic(err) // as above
		}
	}
	return all
})

// read reads the input of a tool, if it follows its schema.
func read(tool string, input json.RawMessage, in any) error {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	var object map[string]any
	if err := json.Unmarshal(input, &object); err != nil {
		return fmt.Errorf("the input of %s is no JSON object: %w", tool, err)
	}
	if err := resolved()[tool].Validate(object); err != nil {
		return fmt.Errorf("the input of %s: %w", tool, err)
	}
	return json.Unmarshal(input, in)
}

// spawn returns what is asked for.
func (in spawnInput) spawn() (api.Spawn, error) {
	s := api.Spawn{
		Task: in.Task, Agent: in.Agent, Name: in.Name, Background: in.Background, Tools: in.Tools, Role: in.Role, Model: in.Model,
		Provider: in.Provider, PermissionMode: in.PermissionMode, Sandbox: in.Sandbox, Hosts: in.Hosts, Dir: in.Dir,
	}
	if in.Schema != nil {
		var err error
		if s.Schema, err = json.Marshal(in.Schema); err != nil {
			return s, fmt.Errorf("schema: %w", err)
		}
	}
	if l := in.Limits; l != nil {
		timeout, err := spanOf(l.Timeout)
		if err != nil {
			return s, err
		}
		s.Limits = nestor.Limits{
			Turns: l.MaxTurns, Timeout: timeout, BudgetUSD: l.MaxBudgetUSD, Depth: l.MaxDepth, Children: l.MaxChildren, Descendants: l.MaxDescendants,
		}
	}
	return s, s.Limits.Check()
}

// spanOf reads a span of time; none if text is empty.
func spanOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("timeout %.40q: want a span of time, such as 90s or 10m", text)
	}
	return d, nil
}
