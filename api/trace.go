package api

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor"
)

// Trace is a place in a W3C trace.
type Trace struct {
	ID   string // of the trace: 32 hex digits
	Span string // 16 hex digits
}

// ParseTrace reads a traceparent, such as
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.
func ParseTrace(text string) (Trace, error) {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 || len(parts[3]) != 2 ||
		!isHex(parts[0]) || !isHex(parts[3]) || !names(parts[1], 32) || !names(parts[2], 16) {
		return Trace{}, fmt.Errorf("traceparent %.80q: want one as W3C Trace Context says, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", text)
	}
	return Trace{ID: parts[1], Span: parts[2]}, nil
}

// names tells whether text is n hex digits, not all of them zero.
func names(text string, n int) bool {
	return len(text) == n && isHex(text) && strings.Trim(text, "0") != ""
}

func isHex(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && strings.ToLower(text) == text
}

// String returns the traceparent of t.
func (t Trace) String() string { return "00-" + t.ID + "-" + t.Span + "-01" }

// TraceOf returns the place of a run: the trace that was given to its tree, or that
// of the root, and a span of its own. Whoever asks gets the same.
func TraceOf(given string, root, run nestor.ID) Trace {
	bare := func(id nestor.ID) string { return strings.ReplaceAll(string(id), "-", "") }
	t := Trace{ID: bare(root)}
	if parent, err := ParseTrace(given); err == nil {
		t.ID = parent.ID
	}
	if span := bare(run); len(span) == 32 {
		t.Span = span[16:]
	}
	return t
}
