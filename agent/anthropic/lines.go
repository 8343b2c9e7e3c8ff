package anthropic

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// What an agent says it says in lines as the Claude CLI writes them; these are
// the shapes of 2.1.325.

// fields are those of a line.
type fields map[string]any

// line returns a line of the session with these fields.
func line(session string, f fields) json.RawMessage {
	f["session_id"] = session
	if _, ok := f["uuid"]; !ok {
		f["uuid"] = newUUID()
	}
	raw, err := json.Marshal(f)
	if err != nil {
		// Texts and numbers always marshal, and raw JSON in a line was read
		// from JSON.
		panic(fmt.Sprintf("a line does not marshal: %v", err))
	}
	return raw
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// userLine is what stands on the user's side.
func userLine(session string, blocks []json.RawMessage, more fields) json.RawMessage {
	f := fields{
		"type": "user", "message": fields{"role": "user", "content": blocks},
		"parent_tool_use_id": nil, "timestamp": now(),
	}
	maps.Copy(f, more)
	return line(session, f)
}

// systemLine is something that happened.
func systemLine(session, subtype string, f fields) json.RawMessage {
	f["type"], f["subtype"] = "system", subtype
	return line(session, f)
}

// assistantLine is an answer, or some blocks of one. A stop of nil means that it
// is not complete.
func assistantLine(session string, a *answer, blocks []json.RawMessage, stop any, more fields) json.RawMessage {
	if blocks == nil {
		blocks = []json.RawMessage{}
	}
	m := fields{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": blocks,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.tokens.wire(),
	}
	if a.stopDetails != nil {
		m["stop_details"] = a.stopDetails
	}
	f := fields{"type": "assistant", "message": m, "parent_tool_use_id": nil, "timestamp": now()}
	if a.request != "" {
		f["request_id"] = a.request
	}
	maps.Copy(f, more)
	return line(session, f)
}

// resultBlock is the result of a call, as the model is told. Text and blocks may
// both be empty.
func resultBlock(id, text string, more []claude.Block, isError bool) json.RawMessage {
	b := fields{"type": "tool_result", "tool_use_id": id}
	if isError {
		b["is_error"] = true
	}
	switch {
	case len(more) == 0:
		b["content"] = text
	case text == "":
		b["content"] = more
	default:
		b["content"] = append([]claude.Block{&claude.Text{Text: text}}, more...)
	}
	raw, err := json.Marshal(b)
	if err != nil { // a block that cannot be sent
		return resultBlock(id, fmt.Sprintf("%s\n[part of the result cannot be shown: %v]", text, err), nil, isError)
	}
	return raw
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
