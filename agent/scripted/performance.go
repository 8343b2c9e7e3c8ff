package scripted

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// performance is one turn while it is played.
type performance struct {
	player  *player
	turn    *Turn
	content string // what is answered
	match   []int  // what turn.When matched in it; nil without a When
	yield   func(agent.Message) bool
	began   time.Time

	id     string // of what the model says, with the number of the round
	rounds int    // calls of the model so far
	last   string // text that was said last
	reply  string // of the last tool that was run
	called bool   // there was one
}

func (p *performance) run(ctx context.Context) error {
	if err := pause(ctx, 0); err != nil {
		return err
	}
	p.id, p.rounds = "msg_"+rand.Text(), 1
	if p.turn.Result != nil {
		c := p.player.config
		err := p.tell(&claude.Init{Header: p.header(), Model: c.Model, Tools: c.AllowedTools, PermissionMode: c.PermissionMode, CWD: c.Dir})
		if err != nil {
			return err
		}
	}
	if reset, limited := p.player.provider.limited(p.turn); limited {
		return p.limit(reset)
	}
	for again := true; again; again = p.turn.Hang {
		for i := range p.turn.Say {
			if err := p.line(ctx, &p.turn.Say[i]); err != nil {
				return err
			}
		}
		if p.turn.Hang && len(p.turn.Say) == 0 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	return p.end()
}

// line says one line.
func (p *performance) line(ctx context.Context, line *Line) error {
	if err := pause(ctx, line.After); err != nil {
		return err
	}
	switch {
	case line.Tool != nil:
		return p.tool(ctx, line.Tool)
	case line.Thinking:
		return p.block(&claude.Thinking{Thinking: p.fill(line.Content)})
	case p.turn.Result != nil && line.Metadata == nil && line.Kind == "":
		p.last = p.fill(line.Content)
		return p.block(&claude.Text{Text: p.last})
	}
	m := agent.NewMessage(p.player.config.Name, p.fill(line.Content))
	if line.Kind != "" {
		m.Kind = line.Kind
	}
	m.Metadata = maps.Clone(line.Metadata)
	return p.say(m)
}

// tool says that a tool is called, and what it gives.
func (p *performance) tool(ctx context.Context, t *Tool) error {
	filled := p.fillAll(t.Input)
	if t.Input == nil {
		filled = map[string]any{}
	}
	input, err := json.Marshal(filled)
	if err != nil {
		return &agent.Error{Provider: Type, Err: fmt.Errorf("the input of tool %s: %w", t.Name, err)}
	}
	id := "toolu_" + rand.Text()
	if err := p.block(&claude.ToolUse{ID: id, Name: t.Name, Input: input}); err != nil {
		return err
	}
	if err := pause(ctx, t.After); err != nil {
		return err
	}
	if t.Call {
		text, failed := p.player.call(ctx, t.Name, input)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.reply, p.called = text, true
		t = &Tool{Result: p.escape(text), Error: failed}
	}
	result := &claude.ToolResult{ToolUseID: id, Content: []claude.Block{&claude.Text{Text: p.fill(t.Result)}}, IsError: t.Error}
	if err := p.tell(&claude.User{Header: p.header(), Content: []claude.Block{result}}); err != nil {
		return err
	}
	p.rounds++
	if limit := p.player.config.Limits.MaxTurns; p.turn.Result != nil && limit > 0 && p.rounds > limit {
		return p.exceed(claude.ResultErrorMaxTurns, claude.TerminalMaxTurns, fmt.Sprintf("Reached maximum number of turns (%d)", limit))
	}
	return nil
}

// end says how the turn ends.
func (p *performance) end() error {
	if p.turn.Result == nil {
		if p.turn.Fail != nil {
			return &agent.Error{Provider: Type, Err: p.turn.Fail}
		}
		return nil
	}
	if p.turn.Fail != nil {
		return p.fail()
	}
	if limit := p.player.config.Limits.MaxBudgetUSD; limit > 0 && p.turn.Result.CostUSD > limit {
		return p.exceed(claude.ResultErrorMaxBudget, claude.TerminalBudgetExhausted, fmt.Sprintf("Reached maximum budget ($%v)", limit))
	}
	r := p.spend()
	r.Result, r.TerminalReason = p.last, claude.TerminalCompleted
	if p.turn.Result.Structured != nil {
		var err error
		if r.StructuredOutput, err = json.Marshal(p.fillAll(p.turn.Result.Structured)); err != nil {
			return &agent.Error{Provider: Type, Err: fmt.Errorf("the structured result: %w", err)}
		}
	}
	return p.tell(r)
}

// fail ends the turn with its error. What the API answered with is told as a
// result first; if nothing answered, there is none.
func (p *performance) fail() error {
	failure := &agent.Error{Provider: Type, Err: p.turn.Fail}
	inner, ok := errors.AsType[*agent.Error](p.turn.Fail)
	if ok && inner.Provider == Type {
		failure = inner
	}
	if ok && inner.Status != 0 {
		r := p.spend()
		r.IsError, r.TerminalReason = true, claude.TerminalAPIError
		r.APIErrorStatus, r.Result = inner.Status, inner.Err.Error()
		if err := p.tell(r); err != nil {
			return err
		}
	}
	return failure
}

// exceed ends the turn because of a limit of the agent.
func (p *performance) exceed(subtype string, reason claude.TerminalReason, text string) error {
	r := p.spend()
	r.Subtype, r.IsError, r.TerminalReason, r.Errors = subtype, true, reason, []string{text}
	if err := p.tell(r); err != nil {
		return err
	}
	return &agent.Error{Provider: Type, Kind: agent.ErrAPI, Err: errors.New(text)}
}

// limit ends the turn because of the usage limit of the provider.
func (p *performance) limit(reset time.Time) error {
	text := "usage limit reached; it is reset at " + reset.UTC().Format(time.RFC3339)
	err := p.tell(&claude.RateLimit{Header: p.header(), Info: claude.RateLimitInfo{Status: "rejected", Type: "five_hour", ResetsAt: reset}})
	if err != nil {
		return err
	}
	failure := &agent.Error{Provider: Type, Kind: agent.ErrAPI, Status: 429, Err: errors.New(text)}
	if p.turn.Result == nil {
		return failure
	}
	r := p.result()
	r.IsError, r.TerminalReason, r.APIErrorStatus, r.Result = true, claude.TerminalAPIError, 429, text
	if err := p.tell(r); err != nil {
		return err
	}
	return failure
}

// result returns a result with what every one tells.
func (p *performance) result() *claude.Result {
	return &claude.Result{
		Header:   claude.Header{Type: "result", Subtype: claude.ResultSuccess, SessionID: p.player.session},
		NumTurns: p.rounds, Duration: time.Since(p.began), TotalCostUSD: p.player.cost,
	}
}

// spend counts what the turn costs, and returns a result that tells it.
func (p *performance) spend() *claude.Result {
	p.player.cost += p.turn.Result.CostUSD
	r := p.result()
	r.Usage = p.turn.Result.Usage.tokens()
	return r
}

func (u Usage) tokens() claude.Usage {
	return claude.Usage{
		InputTokens: u.Input, OutputTokens: u.Output, CacheReadInputTokens: u.CacheRead, CacheCreationInputTokens: u.CacheWrite,
	}
}

func (p *performance) header() claude.Header { return claude.Header{SessionID: p.player.session} }

// block says one block of an answer of the model.
func (p *performance) block(b claude.Block) error {
	m := &claude.Assistant{
		Header: p.header(), MessageID: fmt.Sprintf("%s_%d", p.id, p.rounds), Model: p.player.config.Model, Content: []claude.Block{b},
	}
	if p.rounds == 1 && p.turn.Result != nil {
		m.Usage = p.turn.Result.Usage.tokens() // all at once: a script does not say which round cost what
	}
	return p.tell(m)
}

// tell says what the CLI would tell by m.
func (p *performance) tell(m claude.Message) error {
	for _, message := range agent.Translate(m, p.player.config.Name) {
		if err := p.say(message); err != nil {
			return err
		}
	}
	return nil
}

func (p *performance) say(m agent.Message) error {
	if !p.yield(m) {
		return errBroken
	}
	return nil
}

// fill replaces $1, ${name} … in text by what was matched.
func (p *performance) fill(text string) string {
	if p.called {
		text = strings.ReplaceAll(text, "${result}", p.escape(p.reply))
	}
	if p.match == nil {
		return text
	}
	return string(p.turn.When.ExpandString(nil, text, p.content, p.match))
}

// escape returns text as it has to be written for fill to give it.
func (p *performance) escape(text string) string {
	if p.match == nil {
		return text
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// fillAll fills in all strings of a value.
func (p *performance) fillAll(value any) any {
	switch v := value.(type) {
	case string:
		return p.fill(v)
	case []any:
		filled := make([]any, len(v))
		for i := range v {
			filled[i] = p.fillAll(v[i])
		}
		return filled
	case map[string]any:
		filled := map[string]any{}
		for key := range v {
			filled[key] = p.fillAll(v[key])
		}
		return filled
	}
	return value
}
