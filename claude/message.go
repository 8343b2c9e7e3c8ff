package claude

import "encoding/json"

// Message is something that the CLI tells its host. The set is closed: every
// message is a pointer to one of the types of this package that embed
// [Header], and what has no type of its own is an [Unknown].
//
// The types follow CLI 2.1.325. Fields that the CLI did not send are zero
// values. Unknown fields stay reachable through [Header.Raw]. Strings may
// share memory with the whole line: clone those that outlive a very large
// message.
type Message interface {
	// Head returns what every message has. It is never nil.
	Head() *Header
	// Raw returns a copy of the line.
	Raw() json.RawMessage

	// field reads the value of key, or tells that it does not know key.
	field(s *scanner, key string) bool
}

// Header is what every message has.
type Header struct {
	Type      string
	Subtype   string // of system messages and results, otherwise empty
	UUID      string // of this message; empty on some
	SessionID string

	// Mismatch names the first field that the CLI sent with an unexpected JSON
	// type, or left out though the message means nothing without it, such as
	// "usage: want object, got string". That field is zero, the others are as
	// sent. Empty means that all fitted.
	Mismatch string

	raw string
}

// Head returns h.
func (h *Header) Head() *Header { return h }

// Raw returns a copy of the line that the message was decoded from, without
// its newline, and nil if it was not decoded from a line.
func (h *Header) Raw() json.RawMessage {
	if h.raw == "" {
		return nil
	}
	return json.RawMessage(h.raw)
}

// value returns the value of a key that is too rare to be a field, or nil.
func (h *Header) value(key string) json.RawMessage {
	s := &scanner{text: h.raw}
	for ok := s.object(); ok; ok = s.more('}') {
		if s.key() == key {
			return s.raw()
		}
		s.skip()
	}
	return nil
}

// Unknown is a message that this package has no type for: one of a newer CLI,
// an undocumented one, or a frame of the control protocol. Type, Subtype and
// Raw say all there is to know.
type Unknown struct {
	Header

	// Err says why a line could not be decoded: a *[DecodeError] or a
	// *[LineTooLongError], whose line is lost. It is nil for what is merely
	// unknown.
	Err error
}

func (*Unknown) field(*scanner, string) bool { return false }
