package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
)

// turn is the work on one message. What is not guarded belongs to the goroutine
// that handles it.
type turn struct {
	a     *apiAgent
	s     *session
	yield func(agent.Message, error) bool
	left  bool                    // whoever reads wants no more
	stop  context.CancelCauseFunc // of the work
	began time.Time

	model   string // who answers: the fallback once the other failed
	tools   map[string]tools.Tool
	names   []string          // of the tools, in their order
	offered []json.RawMessage // the tools, as the API is told of them

	spentBefore float64 // dollars
	used        tokens
	turns       int // as the CLI counts: one, and one for each message on the user's side
	rounds      int // answers of the model
	apiTime     time.Duration
	firstByte   time.Duration // until the first event; zero if there was none
	denials     []fields
	stopReason  string
	reason      claude.AssistantError // of the failure that ended the turn
	said        []string              // ids of lines about the answer that is not complete

	recoveries int // from the limit on tokens
	pauses     int
	refusals   int
	forced     bool // a compaction because the API wanted it
	refills    int  // answers in a row before which the conversation was too long
	active     bool // a stop hook already kept the turn going

	mu       sync.Mutex // guards what follows
	output   json.RawMessage
	tries    int   // to give it
	tryError error // what was wrong with the last one
}

// How often the model may go on after it stopped for no reason of its own.
const (
	maxRecoveries = 3
	maxPauses     = 10
	maxRefills    = 3
)

// What the model is told when it goes on.
const (
	resumeText  = "Your answer reached the limit of output tokens. Go on exactly where it stopped, without an excuse or a summary, and do what is left in smaller steps."
	refusedText = "A safety check stopped your last answer: it is no failure of a tool or of the API. What it withheld was not said, and tool calls in it that were not complete were not made. Do not try to say the same in other words."
	outputText  = "Give the result now: call " + outputTool + " with it."
)

var errLeft = errors.New("nobody reads any more")

// say says a line, and notices when nobody listens.
func (t *turn) say(l json.RawMessage) {
	msg, err := claude.Decode(l)
	if err != nil { // it was made here
		t.s.log.Error("a line cannot be said", "session", t.s.id, "error", err)
		return
	}
	t.pass(agent.Translate(msg, t.a.set.Name)...)
}

func (t *turn) pass(messages ...agent.Message) {
	for _, m := range messages {
		if t.left {
			return
		}
		if t.left = !t.yield(m, nil); t.left {
			t.stop(errLeft)
		}
	}
}

// tell records a line, then says it.
func (t *turn) tell(l json.RawMessage) error {
	if err := t.s.record(l); err != nil {
		return err
	}
	t.say(l)
	return nil
}

// note tells the model something that no person said.
func (t *turn) note(text string) error {
	t.turns++
	return t.hint(text)
}

// hint is note for what does not count as a turn.
func (t *turn) hint(text string) error {
	return t.tell(userLine(t.s.id, []json.RawMessage{textBlock(text)}, fields{"isSynthetic": true}))
}

// run works on a prompt until there is a result. Its error is that of the agent.
func (t *turn) run(ctx context.Context, prompt string) error {
	s := t.s
	s.prompt = newUUID()
	t.model, t.turns = s.set.model, 1
	t.spentBefore, _ = s.conv.spent.cost()
	if err := t.prepare(); err != nil {
		return err
	}
	if err := t.tell(t.initLine()); err != nil {
		return err
	}
	end, err := t.begin(ctx, prompt)
	for end == nil && err == nil {
		end, err = t.round(ctx)
	}
	if err != nil {
		return err
	}
	for _, text := range t.a.closePush() { // too late for this turn, not for the next
		if err := s.record(userLine(s.id, []json.RawMessage{textBlock(text)}, nil)); err != nil {
			return err
		}
	}
	result := t.resultLine(end)
	if err := s.record(result); err != nil {
		return err
	}
	t.say(result)
	if cause := context.Cause(ctx); cause != nil && end.failed {
		return cause
	}
	msg, err := claude.Decode(result)
	if err != nil {
		return err
	}
	return errorOf(msg.(*claude.Result), t.reason)
}

// prepare collects the tools. Of two with one name the later one counts, in the
// place of the first.
func (t *turn) prepare() error {
	t.tools, t.names, t.offered = map[string]tools.Tool{}, []string{}, nil
	list := t.s.kit.tools
	if sc := t.s.set.schema; sc != nil {
		list = append(list[:len(list):len(list)], sc.tool(t.accept, t.refuse))
	}
	for _, tool := range list {
		if tool.Name != outputTool && !t.s.set.offers(tool.Name) {
			continue
		}
		if _, twice := t.tools[tool.Name]; !twice {
			t.names = append(t.names, tool.Name)
		}
		t.tools[tool.Name] = tool
	}
	for _, name := range t.names {
		raw, err := definition(t.tools[name])
		if err != nil {
			return err
		}
		t.offered = append(t.offered, raw)
	}
	return nil
}

// accept takes the result in the schema, from any goroutine.
func (t *turn) accept(output json.RawMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.output = output
}

// refuse counts a try that did not follow the schema.
func (t *turn) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries++
	t.tryError = err
}

// given returns the result in the schema, and how often it was tried in vain.
func (t *turn) given() (output json.RawMessage, tries int, last error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.output, t.tries, t.tryError
}

// begin takes up the message that the turn is about.
func (t *turn) begin(ctx context.Context, prompt string) (*ending, error) {
	s := t.s
	var contexts []string
	if s.source != "" {
		h := s.hookStart(ctx, s.source)
		contexts, s.source = h.contexts, ""
	}
	blocked, err := t.submit(ctx, prompt, s.prompt, contexts)
	switch { // seen in 2.1.325: a prompt that never was is no turn, and has no terminal reason
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return t.interrupted(claude.TerminalAbortedStreaming)
	case blocked != "":
		t.turns = 0
		return &ending{subtype: claude.ResultSuccess, text: blocked}, nil
	}
	return nil, nil
}

// submit records what the user said, unless a hook keeps it back: then it
// returns why.
func (t *turn) submit(ctx context.Context, prompt, id string, contexts []string) (blocked string, err error) {
	h, hide := t.s.hookPrompt(ctx, prompt)
	switch {
	case h.block && hide:
		return "UserPromptSubmit operation blocked by hook:\n" + h.reason, nil
	case h.block:
		return "UserPromptSubmit operation blocked by hook:\n" + h.reason + "\n\nOriginal prompt: " + prompt, nil
	case h.stop:
		return "Operation stopped by hook: " + h.why, nil
	}
	blocks := []json.RawMessage{textBlock(prompt)}
	if contexts = append(contexts, h.contexts...); len(contexts) > 0 {
		blocks = append(blocks, textBlock(reminder(strings.Join(contexts, "\n"))))
	}
	return "", t.s.record(userLine(t.s.id, blocks, fields{"uuid": id}))
}

// takeUp takes up what was pushed, and tells whether anything was.
func (t *turn) takeUp(ctx context.Context) (taken bool, err error) {
	for _, text := range t.a.takePushed() {
		blocked, err := t.submit(ctx, text, newUUID(), nil)
		if err != nil {
			return taken, err
		}
		if blocked != "" {
			t.say(systemLine(t.s.id, "informational", fields{"content": blocked, "level": "warning"}))
		}
		taken = taken || blocked == ""
	}
	return taken, nil
}

// round has the model answer once, and does what it wants done. It returns how
// the turn ends, or nil if it goes on.
func (t *turn) round(ctx context.Context) (*ending, error) {
	s := t.s
	if _, err := t.takeUp(ctx); err != nil {
		return nil, err
	}
	if limit := s.set.Limits.MaxTurns; limit > 0 && t.rounds >= limit {
		return &ending{
			subtype: claude.ResultErrorMaxTurns, failed: true, terminal: claude.TerminalMaxTurns,
			errors: []string{fmt.Sprintf("Reached maximum number of turns (%d)", limit)},
		}, nil
	}
	if err := t.compact(ctx, false); err != nil {
		return nil, err
	}
	if t.refills > maxRefills {
		return t.refilled()
	}
	a, f, err := t.ask(ctx)
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return t.cutShort(a)
	case f != nil && f.tooLong() && !t.forced:
		t.forced = true
		return nil, t.compact(ctx, true)
	case f != nil:
		return t.failed(ctx, f)
	}
	t.rounds++
	t.stopReason = a.stop
	t.used = t.used.plus(a.tokens)
	a.cutCalls()
	if err := s.record(assistantLine(s.id, a, a.blocks, a.stop, nil)); err != nil {
		return nil, err
	}
	if limit := s.set.Limits.MaxBudgetUSD; limit > 0 && t.cost() >= limit {
		return t.overBudget(limit)
	}
	if a.stop == "refusal" {
		return t.refused(ctx, a)
	}
	if calls := s.conv.open(); len(calls) > 0 {
		return t.called(ctx, calls)
	}
	return t.stopped(ctx, a)
}

// called makes the calls of an answer.
func (t *turn) called(ctx context.Context, calls []call) (*ending, error) {
	ended, err := t.runCalls(ctx, calls)
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil, ended != nil && ended.interrupt:
		return t.interrupted(claude.TerminalAbortedTools)
	case ended != nil:
		return &ending{subtype: claude.ResultSuccess, terminal: claude.TerminalHookStopped, text: or(ended.why, t.s.conv.last)}, nil
	}
	output, tries, last := t.given()
	switch {
	case output != nil && t.a.settle():
		return &ending{subtype: claude.ResultSuccess, terminal: claude.TerminalCompleted, text: string(output)}, nil
	case tries >= maxOutputs:
		return t.noOutput(tries, last), nil
	}
	return nil, nil
}

// stopped decides what follows on an answer without calls.
func (t *turn) stopped(ctx context.Context, a *answer) (*ending, error) {
	s := t.s
	switch {
	case a.stop == "max_tokens" && t.recoveries < maxRecoveries:
		t.recoveries++
		return nil, t.note(resumeText)
	case a.stop == "max_tokens":
		return t.failed(ctx, &failure{
			reason: claude.ErrorMaxOutputTokens,
			text:   fmt.Sprintf("API Error: Claude's response exceeded the %d output token maximum.", t.maxTokens()),
		})
	case a.stop == "pause_turn" && t.pauses < maxPauses:
		t.pauses++
		return nil, nil // the API goes on from what it said
	case a.stop == "model_context_window_exceeded" && !t.forced:
		t.forced = true
		if err := t.compact(ctx, true); err != nil {
			return nil, err
		}
		return nil, t.note(resumeText)
	}
	if s.set.schema != nil {
		if output, _, _ := t.given(); output == nil {
			t.refuse(fmt.Errorf("the model did not call %s", outputTool))
			if _, tries, last := t.given(); tries >= maxOutputs {
				return t.noOutput(tries, last), nil
			}
			return nil, t.note(outputText)
		}
	}
	h := s.hookStop(ctx, t.active)
	switch {
	case ctx.Err() != nil:
		return t.interrupted(claude.TerminalAbortedStreaming)
	case h.stop:
		return &ending{subtype: claude.ResultSuccess, terminal: claude.TerminalStopHookPrevented, text: s.conv.last}, nil
	case h.block:
		t.active = true
		return nil, t.note("Stop hook feedback:\n" + h.reason)
	case len(h.contexts) > 0 && !t.active:
		t.active = true
		return nil, t.note(reminder(strings.Join(h.contexts, "\n")))
	}
	for !t.a.settle() {
		if taken, err := t.takeUp(ctx); taken || err != nil {
			return nil, err
		}
	}
	return &ending{subtype: claude.ResultSuccess, terminal: claude.TerminalCompleted, text: s.conv.last}, nil
}

// cost is what the turn cost so far, in dollars.
func (t *turn) cost() float64 {
	usd, _ := t.s.conv.spent.cost()
	return usd - t.spentBefore
}

// initLine says what the agent is, as the CLI does at the start of each turn.
func (t *turn) initLine() json.RawMessage {
	servers := t.s.kit.servers
	if servers == nil {
		servers = []serverStatus{}
	}
	return systemLine(t.s.id, "init", fields{
		"cwd": t.s.set.Dir, "tools": t.names, "mcp_servers": servers, "model": t.model,
		"permissionMode": t.s.gate.current(), "slash_commands": []string{}, "apiKeySource": "none", "output_style": "default",
		"agents": []string{}, "skills": []string{}, "plugins": []string{},
	})
}
