package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// conversation is what the records of a session add up to: what the model is
// sent. It is only ever changed by [conversation.add], so one that is rebuilt
// from its records is the one that made them. Whatever is added, it is one that
// the API takes: it begins with the user, the sides take turns, and every tool
// call has exactly one result, right behind it.
type conversation struct {
	prices   Prices
	messages []message
	calls    []call // of the newest answer
	spent    ledger
	last     string // what the newest answer said

	context int // tokens when the newest answer was complete
	added   int // tokens behind it, by estimate
	results int // how many turns ended
}

// message is one side's turn.
type message struct {
	Role    string            `json:"role"`
	Model   string            `json:"model,omitempty"` // of an answer
	Content []json.RawMessage `json:"content"`
}

// call is a tool call of the model.
type call struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`

	answered bool
}

// record is a line, as far as the conversation reads it.
type record struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Message struct {
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
		Usage   apiUsage        `json:"usage"`
	} `json:"message"`
	ModelUsage json.RawMessage `json:"modelUsage"`
	Compact    *compaction     `json:"nestor_compaction"`
}

// compaction is what the record of a boundary has over what is said of it.
type compaction struct {
	Cleared  []string  `json:"cleared,omitempty"`  // calls whose results were dropped
	Messages []message `json:"messages,omitempty"` // all that is left; nil if only results were dropped
	Model    string    `json:"model,omitempty"`    // who wrote the summary
	Usage    apiUsage  `json:"usage,omitzero"`     // of the summary
	Overhead int       `json:"overhead,omitempty"` // tokens of the system prompt and the tools
}

// block is the part of a content block that the conversation looks at.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Signature string          `json:"signature"`
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
}

const (
	synthetic = "<synthetic>" // the model of what the CLI, or we, say in its place

	interruptedCall = "The call was interrupted before its result was known. It may or may not have taken effect: look before you do it again."
	clearedResult   = "[The result of this call was dropped to save room. Make the call again if you need it.]"
	lostBeginning   = "[The beginning of this conversation is not known.]"
)

// newConversation returns one that prices what it uses.
func newConversation(prices Prices) *conversation {
	return &conversation{prices: prices, spent: ledger{}}
}

// rebuild adds up the records of a session.
func rebuild(prices Prices, records []json.RawMessage) (*conversation, error) {
	c := newConversation(prices)
	for i, r := range records {
		if err := c.add(r); err != nil {
			return nil, fmt.Errorf("record %d: %w", i+1, err)
		}
	}
	return c, nil
}

// add takes a record up. What has no part in the conversation changes nothing.
func (c *conversation) add(line json.RawMessage) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("it is not a line of a session: %w", err)
	}
	switch {
	case r.Type == "user":
		blocks, err := blocksOf(r.Message.Content)
		if err != nil {
			return err
		}
		c.user(blocks)
	case r.Type == "assistant" && r.Message.Model != synthetic:
		blocks, err := blocksOf(r.Message.Content)
		if err != nil {
			return err
		}
		c.assistant(r.Message.Model, blocks)
		var t tokens
		t.take(r.Message.Usage)
		if t != (tokens{}) {
			c.spent.add(r.Message.Model, t, c.prices)
			c.context, c.added = t.prompt()+t.Output, 0
		}
	case r.Type == "result":
		c.results++
		if r.ModelUsage != nil {
			spent, err := ledgerOf(r.ModelUsage)
			if err != nil {
				return fmt.Errorf("the usage in it: %w", err)
			}
			c.spent = spent
		}
	case r.Type == "system" && r.Subtype == "compact_boundary" && r.Compact != nil:
		return c.compacted(r.Compact)
	case r.Type == "":
		return errors.New("it is not a line of a session: it has no type")
	}
	return nil
}

// blocksOf reads content: blocks, or a text that stands for one.
func blocksOf(content json.RawMessage) ([]json.RawMessage, error) {
	content = bytes.TrimSpace(content)
	if len(content) > 0 && content[0] == '"' {
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return nil, err
		}
		return []json.RawMessage{textBlock(text)}, nil
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, fmt.Errorf("its content: %w", err)
	}
	return blocks, nil
}

func textBlock(text string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"type": "text", "text": text}) // strings always marshal
	return raw
}

// user adds what stands on the user's side. Results that answer no open call are
// left out; anything else ends the wait for those that are missing.
func (c *conversation) user(blocks []json.RawMessage) {
	for _, raw := range blocks {
		var b block
		if json.Unmarshal(raw, &b) != nil || b.Type == "" || b.Type == "text" && b.Text == "" {
			continue
		}
		if b.Type != "tool_result" {
			c.closeCalls()
			c.append("user", "", raw)
			continue
		}
		i := slices.IndexFunc(c.calls, func(l call) bool { return l.ID == b.ToolUseID && !l.answered })
		if i >= 0 {
			c.answer(i, raw)
		}
	}
}

// answer adds the result of a call. Results stand in the order of the calls,
// whenever they came.
func (c *conversation) answer(i int, result json.RawMessage) {
	place := 0
	for _, l := range c.calls[:i] {
		if l.answered {
			place++
		}
	}
	c.calls[i].answered = true
	c.append("user", "", result)
	content := c.messages[len(c.messages)-1].Content
	copy(content[place+1:], content[place:len(content)-1])
	content[place] = result
}

// closeCalls answers what is open: the calls were interrupted.
func (c *conversation) closeCalls() {
	for i, l := range c.calls {
		if !l.answered {
			c.answer(i, resultBlock(l.ID, interruptedCall, nil, true))
		}
	}
}

// open returns the calls that have no result.
func (c *conversation) open() (list []call) {
	for _, l := range c.calls {
		if !l.answered {
			list = append(list, l)
		}
	}
	return list
}

// assistant adds an answer. What the API would not take back is left out.
func (c *conversation) assistant(model string, blocks []json.RawMessage) {
	c.closeCalls()
	c.calls, c.last = nil, ""
	for _, raw := range blocks {
		var b block
		if json.Unmarshal(raw, &b) != nil {
			continue
		}
		switch b.Type {
		case "", "tool_result":
			continue
		case "text":
			if b.Text == "" {
				continue
			}
			c.last += b.Text
		case "thinking":
			if b.Signature == "" {
				continue
			}
		case "tool_use":
			if b.ID == "" || b.Name == "" || !isObject(b.Input) || slices.ContainsFunc(c.calls, func(l call) bool { return l.ID == b.ID }) {
				continue
			}
			c.calls = append(c.calls, call{ID: b.ID, Name: b.Name, Input: b.Input})
		}
		if len(c.messages) == 0 {
			c.append("user", "", textBlock(lostBeginning))
		}
		c.append("assistant", model, raw)
	}
}

// append adds a block to the message of that side.
func (c *conversation) append(role, model string, raw json.RawMessage) {
	if n := len(c.messages); n == 0 || c.messages[n-1].Role != role {
		c.messages = append(c.messages, message{Role: role})
	}
	m := &c.messages[len(c.messages)-1]
	m.Content = append(m.Content, raw)
	m.Model = model
	c.added += estimate(raw)
}

// compacted makes the conversation what the boundary says.
func (c *conversation) compacted(k *compaction) error {
	var t tokens
	if t.take(k.Usage); t != (tokens{}) {
		c.spent.add(k.Model, t, c.prices)
	}
	next := newConversation(c.prices)
	next.spent, next.results, next.added = c.spent, c.results, max(k.Overhead, 0)
	messages := k.Messages
	if messages == nil {
		messages = c.messages
	}
	for _, m := range messages {
		switch m.Role {
		case "user":
			next.user(clearResults(m.Content, k.Cleared))
		case "assistant":
			next.assistant(m.Model, spokenOnly(m.Content))
		default:
			return fmt.Errorf("a message in it is of %q", m.Role)
		}
	}
	*c = *next
	return nil
}

// spokenOnly returns the content of an answer without thoughts, which the API
// takes back only in the conversation that they were had in.
func spokenOnly(content []json.RawMessage) []json.RawMessage {
	return slices.DeleteFunc(slices.Clone(content), thought)
}

// clearResults returns the content without the text of the results of those
// calls.
func clearResults(content []json.RawMessage, calls []string) []json.RawMessage {
	if len(calls) == 0 {
		return content
	}
	content = slices.Clone(content)
	for i, raw := range content {
		var b block
		if json.Unmarshal(raw, &b) == nil && b.Type == "tool_result" && slices.Contains(calls, b.ToolUseID) {
			content[i] = resultBlock(b.ToolUseID, clearedResult, nil, b.IsError)
		}
	}
	return content
}

// size returns how many tokens the conversation has: what the newest answer
// counted, and an estimate of what came behind it.
func (c *conversation) size() int { return c.context + c.added }

// done calls f with every call in the conversation that went well.
func (c *conversation) done(f func(name string, input json.RawMessage)) {
	calls := map[string]call{}
	for _, m := range c.messages {
		for _, raw := range m.Content {
			var b block
			if json.Unmarshal(raw, &b) != nil {
				continue
			}
			switch b.Type {
			case "tool_use":
				calls[b.ID] = call{Name: b.Name, Input: b.Input}
			case "tool_result":
				if l, ok := calls[b.ToolUseID]; ok && !b.IsError {
					f(l.Name, l.Input)
				}
			}
		}
	}
}

// estimate guesses the tokens of a block. Pictures and documents do not cost
// what their letters would.
func estimate(raw json.RawMessage) int {
	n := (len(raw) + 3) / 4
	if bytes.Contains(raw, []byte(`"base64"`)) {
		n = min(n, 5000)
	}
	return n
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && json.Valid(raw)
}
