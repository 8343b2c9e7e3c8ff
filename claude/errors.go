package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is what fails with a session that was closed, or that has ended
// well. With one whose context has ended, the error is the context's cause.
var ErrClosed = errors.New("session is closed")

// ErrInputClosed is what [Session.Send] and the like fail with once the input
// of the CLI is closed, as [Session.CloseInput] asks for.
var ErrInputClosed = errors.New("the session's input is closed")

// ConnectionError says that the CLI could not be started or spoken to.
type ConnectionError struct {
	Op     string // what was tried
	Stderr string // the end of what the CLI printed there, without secrets; may be empty
	Err    error
}

func (e *ConnectionError) Error() string {
	return withStderr(fmt.Sprintf("%s: %v", e.Op, e.Err), e.Stderr)
}

func (e *ConnectionError) Unwrap() error { return e.Err }

// ProcessError says that the CLI ended on its own, and not well.
type ProcessError struct {
	ExitCode int          // -1 when a signal ended it
	Signal   string       // such as "killed"; empty when it returned
	Stderr   string       // the end of what it printed there, without secrets; may be empty
	Result   *ResultError // the error result that it ended after; nil if there was none
}

func (e *ProcessError) Error() string {
	if e.Result != nil {
		return e.Result.Error()
	}
	text := fmt.Sprintf("claude code ended with exit code %d", e.ExitCode)
	if e.Signal != "" {
		text = "claude code was ended by a signal: " + e.Signal
	}
	return withStderr(text, e.Stderr)
}

// Unwrap returns the error result, if there was one.
func (e *ProcessError) Unwrap() error {
	if e.Result == nil {
		return nil
	}
	return e.Result
}

func withStderr(text, stderr string) string {
	if stderr = strings.TrimSpace(stderr); stderr != "" {
		text += "; its stderr: " + stderr
	}
	return text
}

// maxErrorLine is how many bytes of a line a DecodeError keeps.
const maxErrorLine = 1024

// DecodeError says that a line of the CLI is not one JSON object with a
// string "type".
type DecodeError struct {
	Line []byte // the line, cut after 1024 bytes
	Err  error  // what is wrong with it
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decoding message: %v: %.100q", e.Err, e.Line)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// LineTooLongError says that a line of the CLI was longer than
// Options.MaxLine. The line is lost; the lines after it are not.
type LineTooLongError struct {
	Size  int // bytes of the line without its newline
	Limit int
}

func (e *LineTooLongError) Error() string {
	return fmt.Sprintf("reading message: line of %d bytes is over the limit of %d", e.Size, e.Limit)
}

// ResultError is a turn that failed, made from its result by [Result.Err].
type ResultError struct {
	Subtype        string   // "success" if the turn ended on an API error
	Errors         []string // what the CLI says went wrong; may be empty
	Result         string   // the final text; on an API error what the API said
	APIErrorStatus int      // HTTP status; zero if the API gave none
	TerminalReason TerminalReason
	StartupFailure string // why the CLI did not start; empty if it did
	SessionID      string
	Raw            json.RawMessage // the whole result
}

func (e *ResultError) Error() string {
	return "claude code returned an error result: " + e.Text()
}

// Text returns the most telling text of the result: its errors, or else its
// text, its subtype, its HTTP status. It is never empty.
func (e *ResultError) Text() string {
	text := strings.TrimSpace(e.Result)
	switch {
	case len(e.Errors) > 0:
		return strings.Join(e.Errors, "; ")
	case text != "":
		return text
	case e.Subtype != "" && e.Subtype != ResultSuccess:
		return e.Subtype
	case e.APIErrorStatus != 0:
		return fmt.Sprintf("API error (HTTP %d)", e.APIErrorStatus)
	}
	return "unknown error"
}
