package scriptmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	fast "github.com/segmentio/encoding/json"
)

// Request is one request that the model was sent, kept for assertions. It is
// never changed after it is recorded; callers must not change it either.
type Request struct {
	Seq    int // from 1, in order of arrival
	Time   time.Time
	Method string
	Path   string
	Header http.Header
	Body   []byte

	// What follows is read from the body of a messages request, and zero for
	// any other.
	Model      string
	Stream     bool
	System     string   // all of the system prompt, system messages included
	Prompt     string   // the last text of the user, without system reminders
	Turn       int      // model calls since that prompt, this one included
	ToolResult string   // the text of the last tool result in the last message
	Tools      []string // names of the tools that were offered

	Rule   string // the rule that answered; empty when none did
	Status int    // the HTTP status of the answer

	came time.Time // all of it
}

func newRequest(r *http.Request) *Request {
	return &Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
}

// body is a request to the Messages API, as far as we read it.
type body struct {
	Model       string          `json:"model"`
	MaxTokens   *int            `json:"max_tokens"`
	Stream      bool            `json:"stream"`
	RawSystem   json.RawMessage `json:"system"`
	RawMessages json.RawMessage `json:"messages"`
	Tools       []tool          `json:"tools"`
	Thinking    json.RawMessage `json:"thinking"`

	system   content
	messages []message
}

// parse reads a body. Each request has the whole conversation again, which
// encoding/json takes five times as long for.
func parse(text []byte) (*body, error) {
	if deep(text) {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	b := new(body)
	if err := fast.Unmarshal(text, b); err != nil {
		return nil, err
	}
	if b.RawSystem != nil {
		if err := fast.Unmarshal(b.RawSystem, &b.system); err != nil {
			return nil, fmt.Errorf("system: %w", err)
		}
	}
	if b.RawMessages != nil {
		if err := fast.Unmarshal(b.RawMessages, &b.messages); err != nil {
			return nil, fmt.Errorf("messages: %w", err)
		}
	}
	return b, nil
}

// maxDepth is how many objects and lists may be in each other: the parser calls
// itself for each.
const maxDepth = 1000

// deep tells whether JSON is nested deeper than that.
func deep(text []byte) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

type tool struct {
	Name string `json:"name"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a list of blocks, or a text that stands for one text block.
type content []block

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"` // of a tool result: a content
}

// UnmarshalJSON reads what may be a content. Some blocks hold something else by that
// name, which is not ours to read.
func (c *content) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		var text string
		if err := fast.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = content{{Type: "text", Text: text}}
	case '[':
		var blocks []block
		if fast.Unmarshal(data, &blocks) == nil {
			*c = blocks
		}
	}
	return nil
}

func (c content) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

func (c content) toolResults() (texts []string) {
	for _, b := range c {
		if b.isResult() {
			var of content
			if len(b.Content) > 0 {
				of.UnmarshalJSON(b.Content) // what is none has no text
			}
			texts = append(texts, of.text())
		}
	}
	return texts
}

func (b block) isResult() bool { return b.Type == "tool_result" }

// What the Claude CLI adds to the user's messages by itself.
var (
	reminder    = pattern(`(?s)<system-reminder>.*?</system-reminder>`)
	interrupted = pattern(`(?m)^\[Request interrupted by user[^\]]*\]$`)
)

// prompt returns what a person or a program said in the message, if anything.
func (m message) prompt() string {
	if m.Role != "user" {
		return ""
	}
	text := reminder().ReplaceAllString(m.Content.text(), "")
	return strings.TrimSpace(interrupted().ReplaceAllString(text, ""))
}

// problem says what the real API would refuse, in its words, or nothing.
func (b *body) problem() string {
	switch {
	case b.Model == "":
		return "model: Field required"
	case b.MaxTokens == nil:
		return "max_tokens: Field required"
	case *b.MaxTokens < 1:
		return "max_tokens: must be greater than or equal to 1"
	}
	return b.messagesProblem()
}

func (b *body) messagesProblem() string {
	if len(b.messages) == 0 {
		return "messages: at least one message is required"
	}
	names := map[string]bool{}
	for _, t := range b.Tools {
		if names[t.Name] {
			return "tools: Tool names must be unique."
		}
		names[t.Name] = true
	}
	open := map[string]bool{} // tool calls of the last assistant message
	for i, m := range b.messages {
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return fmt.Sprintf("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		answered := map[string]bool{}
		for j, bl := range m.Content {
			switch {
			case bl.Type == "tool_result" && !open[bl.ToolUseID]:
				return fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, bl.ToolUseID)
			case bl.Type == "tool_result" && answered[bl.ToolUseID]:
				return fmt.Sprintf("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", i, j, bl.ToolUseID)
			case bl.Type == "tool_result":
				answered[bl.ToolUseID] = true
			}
		}
		for id := range open {
			if !answered[id] {
				return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i-1, id)
			}
		}
		clear(open)
		for _, bl := range m.Content {
			if bl.Type == "tool_use" {
				open[bl.ID] = true
			}
		}
	}
	return ""
}

// conversation is what the rules look at.
type conversation struct {
	body    *body
	system  string
	tools   []string
	prompts []prompt
}

// prompt is one thing the user said, and the model calls that followed.
type prompt struct {
	text  string
	calls []call // the last one of the last prompt is the call to answer
}

// call is one model call as a rule sees it.
type call struct{ toolResult bool }

func (b *body) conversation() *conversation {
	c := &conversation{body: b, system: b.system.text()}
	for _, t := range b.Tools {
		c.tools = append(c.tools, t.Name)
	}
	c.prompts = []prompt{{}} // what precedes the first prompt: rarely anything
	hasResult := false
	for _, m := range b.messages {
		if m.Role == "assistant" {
			last := &c.prompts[len(c.prompts)-1]
			last.calls = append(last.calls, call{hasResult})
			hasResult = false
			continue
		}
		if m.Role == "system" { // Claude Code 2.1.325 puts its environment there
			c.system += "\n" + m.Content.text()
			continue
		}
		hasResult = hasResult || slices.ContainsFunc(m.Content, block.isResult)
		if text := m.prompt(); text != "" {
			c.prompts = append(c.prompts, prompt{text: text})
		}
	}
	last := &c.prompts[len(c.prompts)-1]
	last.calls = append(last.calls, call{hasResult})
	return c
}

func (c *conversation) last() *prompt { return &c.prompts[len(c.prompts)-1] }

func (c *conversation) toolResults() (texts []string) {
	for i := len(c.body.messages) - 1; i >= 0 && c.body.messages[i].Role != "assistant"; i-- {
		texts = append(c.body.messages[i].Content.toolResults(), texts...)
	}
	return texts
}
