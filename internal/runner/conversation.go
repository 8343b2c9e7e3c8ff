package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
)

// conversation turns what an agent says into events and a result.
type conversation struct {
	run   Run
	host  Host
	agent string

	brief    Brief           // of the definition
	wanted   []string        // tools that the agent is to have; nil means whatever there is
	writes   *writes         // of its workspace; set before an agent speaks
	exceeded func() []string // what was stopped for using too much; nil if nothing is
	bound    bool            // what its processes use is taken away at the end

	tools    map[string]string // names of tools, by the id of their use
	thinking strings.Builder   // of the text that follows
	text     strings.Builder   // all that was said
	growing  strings.Builder   // the text that is being written, as far as it is kept
	last     nestor.Result     // as far as results have told
	ended    bool              // a result was heard
	failure  *nestor.Failure   // that the last result told
	reset    time.Time         // of a usage limit that was met; zero if none was
	outage   string            // what the API does instead of answering; empty if it answers
	mismatch string            // what is wrong with a result that has a schema; empty if nothing is

	answer string       // the message_id of the answer that comes
	turns  int          // answers so far
	usage  nestor.Usage // of those before it

	mu    sync.Mutex        // guards what follows
	given int               // the last letter that the agent was given
	asked map[string]string // why a person is asked about a tool call, by the id of its use
}

func newConversation(run Run, host Host) *conversation {
	return &conversation{run: run, host: host, tools: map[string]string{}}
}

// say appends events.
func (c *conversation) say(ctx context.Context, events ...nestor.Event) error {
	if len(events) == 0 {
		return nil
	}
	for _, e := range events {
		*e.Head() = c.header()
	}
	if err := c.host.Append(ctx, events...); err != nil {
		return fmt.Errorf("appending to the log: %w", err)
	}
	return nil
}

// explain says what ended the work. If that was nobody's decision about the run,
// it goes on elsewhere, or later. Of a run that was cancelled it is on record by whom.
func (c *conversation) explain(ctx, work context.Context, f *nestor.Failure) error {
	switch cause, decided := errors.AsType[*nestor.Cause](context.Cause(work)); {
	case work.Err() != nil && !decided:
		return c.progress(ctx, "interrupted: "+f.Message)
	case decided && cause.Kind == nestor.Stopped:
		return nil
	}
	return c.say(ctx, &nestor.ErrorEvent{Message: f.Message, Kind: f.Kind})
}

// progress says what the run does now.
func (c *conversation) progress(ctx context.Context, activity string) error {
	return c.say(ctx, c.does(activity))
}

func (c *conversation) does(activity string) nestor.Event {
	return &nestor.ExecutionProgress{ExecutionID: string(c.run.ID), Agent: c.agent, Activity: activity}
}

func (c *conversation) header() nestor.Header {
	return nestor.Header{Time: time.Now().UTC(), Run: c.run.ID, Root: c.run.Root, Depth: c.run.Depth}
}

// hear takes note of a message of the agent. See agent.Translate for what there
// is to hear.
func (c *conversation) hear(ctx context.Context, m agent.Message) error {
	who := c.agent
	if kind, _ := m.Metadata["subagent_type"].(string); kind != "" {
		who = kind
	}
	str := func(key string) string {
		text, _ := m.Metadata[key].(string)
		return text
	}
	if id := str("session_id"); id != "" && id != c.last.Session {
		c.last.Session = id
		if err := c.host.Began(ctx, id); err != nil {
			return fmt.Errorf("taking note of the session: %w", err)
		}
	}
	counted := append(c.count(m), c.answers(m)...)
	say := func(events ...nestor.Event) error { return c.say(ctx, append(counted, events...)...) }
	switch str("sdk_type") {
	case "assistant_text":
		thinking := c.thinking.String()
		c.thinking.Reset()
		if str("parent_tool_use_id") == "" {
			c.growing.Reset()
			if c.text.Len() > 0 {
				c.text.WriteString("\n")
			}
			c.text.WriteString(m.Content)
		}
		return say(&nestor.AgentComplete{Agent: who, Content: m.Content, Thinking: thinking})
	case "thinking":
		c.thinking.WriteString(m.Content)
		return say(&nestor.ThinkingComplete{Agent: who, Thinking: m.Content})
	case "partial_text":
		if str("parent_tool_use_id") == "" {
			c.growing.WriteString(m.Content[:min(len(m.Content), maxGrowing-c.growing.Len())])
		}
		c.delta(&nestor.AgentDelta{Agent: who, Delta: m.Content})
		return say()
	case "partial_thinking":
		c.delta(&nestor.ThinkingDelta{Agent: who, Delta: m.Content})
		return say()
	case "tool_use":
		input, raw := m.Metadata["tool_input"].(json.RawMessage)
		if !raw {
			input, _ = json.Marshal(m.Metadata["tool_input"])
		}
		c.tools[str("tool_use_id")] = str("tool_name")
		c.writes.called(who, str("tool_name"), str("tool_use_id"), input)
		return say(&nestor.ToolStart{
			Tool: str("tool_name"), Description: describe(input), Input: input, ToolUseID: str("tool_use_id"),
		})
	case "tool_result":
		failed, _ := m.Metadata["is_error"].(bool)
		complete := &nestor.ToolComplete{
			Tool: c.tools[str("tool_use_id")], Success: !failed, Summary: m.Content, ToolUseID: str("tool_use_id"),
		}
		if w := c.writes.returned(str("tool_use_id"), !failed); w != nil {
			return say(complete, w)
		}
		return say(complete)
	case "result":
		c.conclude(m)
		c.host.Spent(c.last.CostUSD)
		c.heard()
		return say(&nestor.ChatComplete{Success: c.failure == nil}, &nestor.ExecutionProgress{
			ExecutionID: string(c.run.ID), Agent: c.agent, Turns: c.last.Turns, CostUSD: c.last.CostUSD, Usage: new(c.last.Usage),
		})
	case "init":
		there, _ := m.Metadata["tools"].([]string)
		return c.lacking(ctx, there)
	case "api_retry":
		c.growing.Reset() // the answer begins anew
		counted = append(counted, c.retries(m))
	case "rate_limit":
		if at, err := time.Parse(time.RFC3339, str("resets_at")); err == nil && str("status") == "rejected" {
			c.reset = at
		}
	case "":
		// A provider that says nothing but texts.
		c.text.WriteString(m.Content)
		return say(&nestor.AgentComplete{Agent: who, Content: m.Content})
	}
	raw, err := json.Marshal(map[string]any{"content": m.Content, "metadata": m.Metadata})
	if err != nil {
		return say() // what cannot be written is nothing that a provider sent
	}
	return say(&nestor.ProviderMessage{Raw: raw})
}

func (c *conversation) delta(e nestor.Event) {
	*e.Head() = c.header()
	c.host.Delta(e)
}

// count counts the agent's own answers, and returns what is to be said of each.
func (c *conversation) count(m agent.Message) []nestor.Event {
	id, _ := m.Metadata["message_id"].(string)
	if _, below := m.Metadata["parent_tool_use_id"]; id == "" || id == c.answer || below {
		return nil
	}
	c.answer = id
	c.turns++
	tokens, _ := m.Metadata["usage"].(map[string]int)
	c.usage = c.usage.Add(usageOf(tokens))
	return []nestor.Event{&nestor.ExecutionProgress{
		ExecutionID: string(c.run.ID), Agent: c.agent, Turns: c.turns, CostUSD: c.last.CostUSD, Usage: new(c.usage),
	}}
}

func usageOf(tokens map[string]int) nestor.Usage {
	return nestor.Usage{
		Input: tokens["input_tokens"], Output: tokens["output_tokens"],
		CacheRead: tokens["cache_read_input_tokens"], CacheWrite: tokens["cache_creation_input_tokens"],
	}
}

// describe returns what the model says a call is for, or the first thing in its
// input that names a file or a command.
func describe(input json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(input, &fields) != nil {
		return ""
	}
	for _, key := range []string{"description", "file_path", "path", "command", "pattern", "url", "query"} {
		if text, ok := fields[key].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// number returns a number of a message's metadata, zero if there is none.
func number(m agent.Message, key string) float64 {
	switch n := m.Metadata[key].(type) {
	case float64:
		return n
	case int:
		return float64(n)
	case int64:
		return float64(n)
	}
	return 0
}

// conclude takes note of the end of a turn.
func (c *conversation) conclude(m agent.Message) {
	number := func(key string) float64 { return number(m, key) }
	c.ended, c.failure = true, nil
	c.last.CostUSD = max(c.last.CostUSD, number("total_cost_usd"))
	c.last.Turns += int(number("num_turns"))
	if usage, ok := m.Metadata["usage"].(map[string]int); ok {
		c.last.Usage = c.last.Usage.Add(usageOf(usage))
	}
	if structured, ok := m.Metadata["structured_output"].(json.RawMessage); ok {
		c.last.Structured = structured
	}
	if m.Metadata["subtype"] != "error" {
		c.last.Output = m.Content
		return
	}
	reason, _ := m.Metadata["reason"].(string)
	c.failure = &nestor.Failure{Kind: kindOf(reason, int(number("api_error_status"))), Message: m.Content}
	if c.failure.Kind == nestor.Turns && c.turns > 0 { // the CLI counts what it would have told the model next
		c.last.Turns = min(c.last.Turns, c.turns)
	}
	// So did older versions tell when a limit is reset.
	if _, at, ok := strings.Cut(m.Content, "limit reached|"); ok {
		if s, err := strconv.ParseInt(at, 10, 64); err == nil {
			c.reset = time.Unix(s, 0)
		}
	}
}

// kindOf returns the kind of a failure that a result tells, by its subtype or
// terminal reason and the status of the API.
func kindOf(reason string, status int) nestor.Kind {
	switch {
	case reason == "error_max_turns":
		return nestor.Turns
	case reason == "error_max_budget_usd":
		return nestor.Budget
	case reason == "error_max_structured_output_retries":
		return nestor.Invalid
	case status == 429 || status >= 500:
		return nestor.Connection
	}
	return nestor.Provider
}

// result is what came of the run. The error is why the conversation ended, nil if
// it just did.
func (c *conversation) result(ctx context.Context, err error) nestor.Result {
	for key, value := range c.brief.Metadata {
		c.note(key, value)
	}
	r := c.last
	if r.Output == "" {
		r.Output = c.text.String()
		if unfinished := strings.ToValidUTF8(c.growing.String(), ""); unfinished != "" && (ctx.Err() != nil || errors.Is(err, errSilent)) {
			r.Output = strings.TrimPrefix(r.Output+"\n"+unfinished, "\n")
		}
	}
	f := c.failure
	switch {
	case ctx.Err() != nil:
		f = &nestor.Failure{Kind: nestor.Stopped, Message: context.Cause(ctx).Error()}
		if cause, ok := errors.AsType[*nestor.Cause](context.Cause(ctx)); ok {
			f.Kind = cause.Kind
		}
		f.Message += c.unanswered()
	case errors.Is(err, errSilent):
		f = &nestor.Failure{Kind: nestor.Silence, Message: fmt.Sprintf("no sign of life for %v", c.run.Task.Limits.Silence) + c.unanswered()}
	case f != nil: // what the result told, of which err is a repetition
	case err != nil:
		f = failureOf(err)
	case !c.ended && c.text.Len() == 0:
		f = &nestor.Failure{Kind: nestor.Connection, Message: "the agent ended without a result"}
	case c.mismatch != "":
		f = &nestor.Failure{Kind: nestor.Invalid, Message: "the result does not follow its schema: " + c.mismatch}
	}
	if f != nil && !c.reset.IsZero() && (f.Kind == nestor.Connection || f.Kind == nestor.Provider) {
		f = &nestor.Failure{Kind: nestor.Limited, Message: f.Message, Until: c.reset}
	}
	r.Error = f
	switch {
	case f == nil:
		r.Status = nestor.Success
	case limited(f.Kind) && (r.Output != "" || r.Structured != nil):
		r.Status = nestor.Partial
	default:
		r.Status = nestor.Error
	}
	return r
}

// metadataExceeded is the name that what overran has in the metadata of a result.
const metadataExceeded = "exceeded"

// overrun says what was stopped for using too much of the machine. If that was the
// agent itself, it is what ended the run, and would again.
func (c *conversation) overrun(ctx context.Context, grace time.Duration, r *nestor.Result) error {
	if c.exceeded == nil {
		return nil
	}
	lines := c.exceeded()
	if len(lines) == 0 {
		return nil
	}
	if r.Metadata == nil {
		r.Metadata = map[string]any{}
	}
	r.Metadata[metadataExceeded] = lines
	if r.Error != nil && (r.Error.Kind == nestor.Connection || r.Error.Kind == nestor.Provider) && ctx.Err() == nil {
		r.Error = &nestor.Failure{Kind: nestor.Resources, Message: lines[len(lines)-1]}
		if r.Output != "" || r.Structured != nil {
			r.Status = nestor.Partial
		}
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	for _, line := range lines {
		if err := c.progress(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// maxGrowing is how much is kept of a text that is not complete.
const maxGrowing = 64 << 10

// limited tells whether a limit is what ended a run.
func limited(k nestor.Kind) bool {
	switch k {
	case nestor.Turns, nestor.Budget, nestor.Timeout, nestor.Silence:
		return true
	}
	return false
}

// failureOf says what kind of failure err is.
func failureOf(err error) *nestor.Failure {
	if f, ok := errors.AsType[*nestor.Failure](err); ok {
		return f
	}
	kind := nestor.Internal
	e, ok := errors.AsType[*agent.Error](err)
	for ok && e.Kind == nil {
		inner, more := errors.AsType[*agent.Error](e.Err)
		if !more {
			break
		}
		e = inner // the one that knows
	}
	if ok {
		kind = nestor.Provider
		switch {
		case errors.Is(err, agent.ErrTimeout):
			kind = nestor.Connection
		case errors.Is(err, agent.ErrAPI) && (e.Status == 0 || e.Status == 429 || e.Status >= 500 || e.Status < 400):
			kind = nestor.Connection // of the model; or its process died, with that exit code
		}
	}
	return &nestor.Failure{Kind: kind, Message: err.Error()}
}
