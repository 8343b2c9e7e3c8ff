package claude

import (
	"reflect"
	"testing"
)

func TestControlError(t *testing.T) {
	for _, tc := range []struct {
		name, code, text string
		want             error
		says             string
	}{
		{"refused", "", "Server not found: x",
			&ControlError{Request: "r", Message: "Server not found: x"}, "claude code refused r: Server not found: x"},
		{"refused with a code", "invalid_mode", "no such mode",
			&ControlError{Request: "r", Code: "invalid_mode", Message: "no such mode"}, "claude code refused r: no such mode (invalid_mode)"},
		{"refused without a word", "", "", &ControlError{Request: "r"}, "claude code refused r"},
		{"unsupported", "unsupported_request", "whatever",
			&UnsupportedError{Request: "r", Version: "2.1.1"}, "claude code 2.1.1 does not support the request r"},
		{"unsupported, older CLI", "", "Unsupported control request subtype: r", &UnsupportedError{Request: "r", Version: "2.1.1"}, ""},
		{"unsupported, older bridge", "", "This session does not handle control_request subtype: r", &UnsupportedError{Request: "r", Version: "2.1.1"}, ""},
		{"unsupported here", "", "r is not supported in this context", &UnsupportedError{Request: "r", Version: "2.1.1"}, ""},
		{"another code outweighs the text", "busy", "Unsupported control request subtype: r",
			&ControlError{Request: "r", Code: "busy", Message: "Unsupported control request subtype: r"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := controlError("r", tc.code, tc.text, "2.1.1")
			if !reflect.DeepEqual(err, tc.want) {
				t.Fatalf("got %#v, want %#v", err, tc.want)
			}
			if tc.says != "" && err.Error() != tc.says {
				t.Errorf("it says %q", err)
			}
		})
	}
	if got := (&UnsupportedError{Request: "r"}).Error(); got != "claude code of unknown version does not support the request r" {
		t.Errorf("without a version it says %q", got)
	}
}
