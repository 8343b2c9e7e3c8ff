package claude

import (
	"fmt"
	"strings"
)

// ControlError is a control request that the CLI answered with an error. The
// session goes on.
type ControlError struct {
	Request string // what was asked, such as "set_permission_mode"
	Code    string // such as "invalid_mode"; empty for most
	Message string // what the CLI said
}

func (e *ControlError) Error() string {
	text := "claude code refused " + e.Request
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text
}

// UnsupportedError is a control request that this CLI does not know, or not in
// this kind of session. Another version of the CLI may.
type UnsupportedError struct {
	Request string // what was asked, such as "get_task_output"
	Version string // of the CLI; empty if it did not tell
}

func (e *UnsupportedError) Error() string {
	version := e.Version
	if version == "" {
		version = "of unknown version"
	}
	return fmt.Sprintf("claude code %s does not support the request %s", version, e.Request)
}

// unsupportedTexts are how CLIs say that they do not support a request. Those
// before the error code unsupported_request said nothing else, and 2.1.325
// still says it for their hosts.
var unsupportedTexts = []string{
	"Unsupported control request subtype",
	"does not handle control_request subtype",
	"is not supported in this context",
}

// controlError makes the error of an error answer: an [*UnsupportedError] or a
// [*ControlError].
func controlError(subtype, code, text, cliVersion string) error {
	unsupported := code == "unsupported_request"
	if code == "" {
		for _, t := range unsupportedTexts {
			unsupported = unsupported || strings.Contains(text, t)
		}
	}
	if unsupported {
		return &UnsupportedError{Request: subtype, Version: cliVersion}
	}
	return &ControlError{Request: subtype, Code: code, Message: text}
}
