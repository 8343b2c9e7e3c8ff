package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Control sends a control request that has no method of its own. The fields of
// request, a struct or a map or nil for none, go beside the subtype. The answer
// is nil if it was empty.
//
// All methods that ask the CLI something work alike. They may be called at any
// time, also during a turn, and by several goroutines at once. They wait for
// the answer until ctx ends, which withdraws the request. They return a
// [*ControlError] if the CLI refuses, an [*UnsupportedError] if it does not know
// the request, and fail at once when its process is gone. They are those of CLI
// 2.1.325; an older one knows some of them, and a method says so where it is
// known to answer differently.
func (s *Session) Control(ctx context.Context, subtype string, request any) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := s.call(ctx, subtype, request, &raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// Reply is what the answers to control requests have in common. What a newer
// CLI adds to an answer is in Raw alone.
type Reply struct {
	Raw      json.RawMessage `json:"-"` // the whole answer; nil if it was empty
	Mismatch string          `json:"-"` // the first field of an unexpected type, which is left zero; empty if none is
}

func (r *Reply) reply() *Reply { return r }

// replyPtr is a pointer to a struct that embeds Reply.
type replyPtr[T any] interface {
	*T
	reply() *Reply
}

// ask sends a control request and decodes its answer.
func ask[T any, A replyPtr[T]](ctx context.Context, s *Session, subtype string, request any) (A, error) {
	raw, err := s.Control(ctx, subtype, request)
	if err != nil {
		return nil, err
	}
	return decodeReply[T, A](subtype, raw)
}

// decodeReply decodes an answer. A field of an unexpected type costs nothing
// but itself: encoding/json goes on after it.
func decodeReply[T any, A replyPtr[T]](subtype string, raw json.RawMessage) (A, error) {
	a := A(new(T))
	a.reply().Raw = raw
	if len(raw) == 0 {
		return a, nil
	}
	err := json.Unmarshal(raw, a)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		a.reply().Mismatch = fmt.Sprintf("%s: want %s, got %s", e.Field, e.Type, e.Value)
	} else if err != nil {
		return nil, fmt.Errorf("decoding answer to %s: %w", subtype, err)
	}
	return a, nil
}
