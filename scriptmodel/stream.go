package scriptmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// errFailed ends a stream that the script wants to fail.
var errFailed = errors.New("the script ends the stream here")

// stream sends an answer as server-sent events.
type stream struct {
	ctx   context.Context
	w     http.ResponseWriter
	flush func() error
	turn  *Turn
	fail  *Fail // nil when this attempt is to succeed
	sent  int
}

func (s *stream) send(a *answer) error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)

	begin := a.Usage
	begin.Output = min(1, a.Usage.Output)
	if err := s.event("message_start", map[string]any{"message": a.envelope([]any{}, nil, begin)}); err != nil {
		return err
	}
	for i, p := range a.parts {
		if err := s.part(i, p); err != nil {
			return err
		}
	}
	if err := s.event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": a.Stop, "stop_sequence": nil}, "usage": a.Usage,
	}); err != nil {
		return err
	}
	return s.event("message_stop", map[string]any{})
}

func (s *stream) part(i int, p part) error {
	if err := s.event("content_block_start", map[string]any{"index": i, "content_block": p.start}); err != nil {
		return err
	}
	if i == 0 {
		if err := s.event("ping", map[string]any{}); err != nil {
			return err
		}
	}
	for again := true; again; again = s.turn.Endless && p.start["type"] == "text" {
		for _, d := range p.deltas {
			if err := pause(s.ctx, s.turn.Delay); err != nil {
				return err
			}
			if err := s.event("content_block_delta", map[string]any{"index": i, "delta": d}); err != nil {
				return err
			}
		}
	}
	return s.event("content_block_stop", map[string]any{"index": i})
}

// event sends one event, or fails where the script says so.
func (s *stream) event(name string, data map[string]any) error {
	if s.fail != nil {
		switch at := s.sent; {
		case s.fail.DropAfter != nil && at >= *s.fail.DropAfter:
			panic(http.ErrAbortHandler) // closes the connection, not the stream
		case s.fail.MalformedAfter != nil && at >= *s.fail.MalformedAfter:
			fmt.Fprintf(s.w, "event: %s\ndata: {\"type\":%q,\"broken\n\n", name, name)
			return errors.Join(errFailed, s.flush())
		case s.fail.ErrorAfter != nil && at >= *s.fail.ErrorAfter:
			name, data = "error", map[string]any{"error": s.fail.body(http.StatusInternalServerError)}
		}
	}
	data["type"] = name
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, text); err != nil {
		return err
	}
	s.sent++
	if err := s.flush(); err != nil {
		return err
	}
	if name == "error" {
		return errFailed
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
