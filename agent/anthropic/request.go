package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// request is a request to the Messages API; see encode.
type request struct {
	Model      string            `json:"model"`
	MaxTokens  int               `json:"max_tokens"`
	System     []json.RawMessage `json:"-"`
	Tools      []json.RawMessage `json:"-"`
	ToolChoice any               `json:"tool_choice,omitempty"`
	Messages   []turnOf          `json:"-"`
	Stream     bool              `json:"stream"`
}

// turnOf is a message in a request.
type turnOf struct {
	Role    string // user or assistant
	Content []json.RawMessage
}

// encode writes the request. What is JSON in it, which is nearly all and grows
// with the conversation, is known to be, and is not looked at again for every
// answer.
func (r *request) encode() ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	size := len(head) + 64
	for _, list := range [][]json.RawMessage{r.System, r.Tools} {
		for _, raw := range list {
			size += len(raw) + 1
		}
	}
	for _, m := range r.Messages {
		size += len(m.Role) + 32
		for _, raw := range m.Content {
			size += len(raw) + 1
		}
	}
	body := append(make([]byte, 0, size), head[:len(head)-1]...)
	if len(r.System) > 0 {
		body = appendList(append(body, `,"system":`...), r.System)
	}
	if len(r.Tools) > 0 {
		body = appendList(append(body, `,"tools":`...), r.Tools)
	}
	body = append(body, `,"messages":[`...)
	for i, m := range r.Messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(body, `{"role":"`...), m.Role...)
		body = append(appendList(append(body, `","content":`...), m.Content), '}')
	}
	return append(body, "]}"...), nil
}

// appendList appends a JSON array.
func appendList(to []byte, list []json.RawMessage) []byte {
	to = append(to, '[')
	for i, raw := range list {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, raw...)
	}
	return append(to, ']')
}

// newRequest makes the request for the next answer. Four places are marked for
// the API's cache, which is as many as it takes: the last tool, the system
// prompt, and the ends of the last two messages of the user, so that what was
// written for one request is read by the next.
func newRequest(model string, maxTokens int, system string, offered []json.RawMessage, messages []message) *request {
	r := &request{Model: model, MaxTokens: maxTokens, Stream: true, Tools: slices.Clone(offered), Messages: make([]turnOf, 0, len(messages))}
	if system != "" {
		r.System = []json.RawMessage{cached(textBlock(system))}
	}
	if n := len(r.Tools); n > 0 {
		r.Tools[n-1] = cached(r.Tools[n-1])
	}
	for _, m := range messages {
		content := m.Content
		if m.Role == "assistant" {
			content = sendable(content, m.Model == model)
		}
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == m.Role {
			r.Messages[n-1].Content = slices.Concat(r.Messages[n-1].Content, content)
		} else if len(content) > 0 {
			r.Messages = append(r.Messages, turnOf{Role: m.Role, Content: content})
		}
	}
	marks := 2
	for i := len(r.Messages) - 1; i >= 0 && marks > 0; i-- {
		if m := &r.Messages[i]; m.Role == "user" {
			m.Content = slices.Clone(m.Content)
			m.Content[len(m.Content)-1] = cached(m.Content[len(m.Content)-1])
			marks--
		}
	}
	return r
}

// sendable leaves out of an answer what the API takes from the model alone that
// wrote it, and thoughts that nothing follows.
func sendable(content []json.RawMessage, same bool) (kept []json.RawMessage) {
	end := len(content)
	for end > 0 && thought(content[end-1]) {
		end--
	}
	if same {
		return content[:end]
	}
	for _, raw := range content[:end] {
		if !thought(raw) {
			kept = append(kept, raw)
		}
	}
	return kept
}

func thought(raw json.RawMessage) bool {
	// All of an answer is asked about for each that follows: few are worth reading.
	if !bytes.Contains(raw, []byte("thinking")) && !bytes.Contains(raw, []byte(`\u`)) {
		return false
	}
	var b block
	return json.Unmarshal(raw, &b) == nil && (b.Type == "thinking" || b.Type == "redacted_thinking")
}

// cached marks an object as the end of what the API's cache keeps.
func cached(raw json.RawMessage) json.RawMessage {
	const key = "cache_control"
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return raw
	}
	mark := json.RawMessage(`{"type":"ephemeral"}`)
	// It is JSON, of which little has a mark, or may have, and is worth being read for it.
	if end := bytes.LastIndexByte(raw, '}'); end > 0 && bytes.IndexByte(raw, '"') > 0 && !bytes.Contains(raw, []byte(key)) && !bytes.Contains(raw, []byte(`\u`)) {
		return slices.Concat(raw[:end], []byte(`,"`+key+`":`), mark, raw[end:])
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return raw
	}
	object[key] = mark
	marked, err := json.Marshal(object)
	if err != nil {
		return raw
	}
	return marked
}

// definition is a tool as the API is told of it.
func definition(t tools.Tool) (json.RawMessage, error) {
	schema := t.Schema
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	raw, err := json.Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"input_schema"`
	}{t.Name, t.Description, schema})
	if err != nil {
		return nil, fmt.Errorf("the schema of tool %s: %w", t.Name, err)
	}
	return raw, nil
}
