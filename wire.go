package nestor

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeEvent writes e as JSON: an object with "type" first. An [*UnknownEvent]
// is written as it came, but for what its header says now.
func EncodeEvent(e Event) ([]byte, error) {
	if u, ok := e.(*UnknownEvent); ok {
		return u.encode()
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s of run %s: %w", e.wire(), e.Head().Run, err)
	}
	data := make([]byte, 0, len(body)+len(e.wire())+len(`"type":"",`))
	data = append(data, `{"type":"`...)
	data = append(data, e.wire()...)
	data = append(data, `",`...)
	return append(data, body[1:]...), nil // a header is never empty
}

func (e *UnknownEvent) encode() ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(e.Raw, &fields); err != nil {
		return nil, fmt.Errorf("event %s of run %s: %w", e.Type, e.Run, err)
	}
	header, err := json.Marshal(e.Header)
	if err != nil {
		return nil, fmt.Errorf("event %s of run %s: %w", e.Type, e.Run, err)
	}
	if fields["type"], err = json.Marshal(e.Type); err != nil { // it may have several
		return nil, fmt.Errorf("event %s of run %s: %w", e.Type, e.Run, err)
	}
	delete(fields, "seq")
	if err := json.Unmarshal(header, &fields); err != nil {
		return nil, fmt.Errorf("event %s of run %s: %w", e.Type, e.Run, err)
	}
	return json.Marshal(fields)
}

// TypeOf returns the type of an event, as its JSON has it.
func TypeOf(e Event) string { return e.wire() }

// EventType returns the type of the event that data is, which is as [EncodeEvent]
// writes it, or at least JSON: of the first it looks at no more than the beginning.
func EventType(data []byte) (string, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`)); ok {
		other := func(c rune) bool { return (c < 'a' || c > 'z') && c != '_' }
		if end := bytes.IndexFunc(rest, other); end >= 0 && rest[end] == '"' {
			return string(rest[:end]), nil
		}
	}
	var head struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", fmt.Errorf("event %.80q: %w", data, err)
	}
	if head.Type == nil {
		return "", fmt.Errorf("event %.80q: no string \"type\"", data)
	}
	return *head.Type, nil
}

// DecodeEvent reads an event. One of a type that is not known is no error. The
// event does not refer to data.
func DecodeEvent(data []byte) (Event, error) {
	kind, err := EventType(data)
	if err != nil {
		return nil, err
	}
	e := newEvent(kind)
	if e == nil {
		u := &UnknownEvent{Type: kind, Raw: bytes.Clone(data)}
		if err := json.Unmarshal(data, &u.Header); err != nil {
			return nil, fmt.Errorf("event %.80q: %w", data, err)
		}
		return u, nil
	}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("event %s: %w", kind, err)
	}
	return e, nil
}
