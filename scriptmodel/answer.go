package scriptmodel

import (
	"encoding/json"
	"fmt"
)

// answer is one message of the model, rendered.
type answer struct {
	ID    string
	Model string
	Stop  string
	Usage usage
	parts []part
}

type usage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

// part is one content block: how it begins, the pieces that follow, and what
// they add up to.
type part struct {
	start  map[string]any
	deltas []map[string]any
	whole  any
}

// compose renders the turn as the answer with that id.
func compose(t *Turn, q *quote, id string, otherwise usage) (*answer, error) {
	a := &answer{ID: "msg_" + id, Model: q.Model, Stop: t.Stop}
	size := t.Chunk
	if size == 0 {
		size = 24
	}
	output := 0
	if t.Thinking != nil {
		text, err := t.Thinking.render(q)
		if err != nil {
			return nil, err
		}
		signature := t.Signature
		if signature == "" {
			signature = "c2lnbmVk" + id
		}
		output += len(text)
		a.parts = append(a.parts, part{
			start: map[string]any{"type": "thinking", "thinking": "", "signature": ""},
			deltas: append(pieces(text, size, "thinking_delta", "thinking"),
				map[string]any{"type": "signature_delta", "signature": signature}),
			whole: map[string]any{"type": "thinking", "thinking": text, "signature": signature},
		})
	}
	if t.Text != nil {
		text, err := t.Text.render(q)
		if err != nil {
			return nil, err
		}
		output += len(text)
		a.parts = append(a.parts, part{
			start:  map[string]any{"type": "text", "text": ""},
			deltas: pieces(text, size, "text_delta", "text"),
			whole:  map[string]any{"type": "text", "text": text},
		})
	}
	for i, call := range t.Tools {
		p, n, err := callPart(call, q, fmt.Sprintf("toolu_%s%02d", id, i+1), size)
		if err != nil {
			return nil, err
		}
		output += n
		a.parts = append(a.parts, p)
	}
	for _, b := range t.Blocks {
		whole, err := b.render(q)
		if err != nil {
			return nil, err
		}
		start, ok := whole.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("a block must be a mapping, not %T", whole)
		}
		a.parts = append(a.parts, part{start: start, whole: whole})
	}
	if a.Stop == "" {
		a.Stop = "end_turn"
		if len(t.Tools) > 0 {
			a.Stop = "tool_use"
		}
	}
	if otherwise.Output == 0 {
		otherwise.Output = tokens(output)
	}
	a.Usage = t.Usage.or(otherwise)
	return a, nil
}

func callPart(call ToolCall, q *quote, id string, size int) (part, int, error) {
	if call.ID != "" {
		id = call.ID
	}
	input, err := call.Input.render(q)
	if err != nil {
		return part{}, 0, err
	}
	if input == nil {
		input = map[string]any{}
	}
	text, err := json.Marshal(input)
	if err != nil {
		return part{}, 0, fmt.Errorf("input of tool call %s: %w", call.Name, err)
	}
	return part{
		start:  map[string]any{"type": "tool_use", "id": id, "name": call.Name, "input": map[string]any{}},
		deltas: pieces(string(text), size, "input_json_delta", "partial_json"),
		whole:  map[string]any{"type": "tool_use", "id": id, "name": call.Name, "input": input},
	}, len(text), nil
}

// pieces cuts text into deltas of size characters.
func pieces(text string, size int, kind, field string) (deltas []map[string]any) {
	start, n := 0, 0
	for i := range text {
		if n == size {
			deltas = append(deltas, map[string]any{"type": kind, field: text[start:i]})
			start, n = i, 0
		}
		n++
	}
	if start < len(text) {
		deltas = append(deltas, map[string]any{"type": kind, field: text[start:]})
	}
	return deltas
}

// envelope is the message without its content, as both forms of it begin.
func (a *answer) envelope(content []any, stop any, u usage) map[string]any {
	return map[string]any{
		"id": a.ID, "type": "message", "role": "assistant", "model": a.Model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": u,
	}
}

// whole is the message as one document.
func (a *answer) whole() map[string]any {
	content := []any{}
	for _, p := range a.parts {
		content = append(content, p.whole)
	}
	return a.envelope(content, a.Stop, a.Usage)
}

// or fills in what u leaves out.
func (u Usage) or(otherwise usage) usage {
	for _, f := range []struct {
		from *int
		to   *int
	}{
		{u.Input, &otherwise.Input}, {u.Output, &otherwise.Output},
		{u.CacheRead, &otherwise.CacheRead}, {u.CacheCreation, &otherwise.CacheCreation},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return otherwise
}

// tokens estimates the tokens of a text of n bytes.
func tokens(n int) int { return (n + 3) / 4 }
