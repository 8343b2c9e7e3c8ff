package claudecode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

func isProviderError(err error) bool {
	_, ok := errors.AsType[*agent.Error](err)
	return ok && errors.Is(err, agent.ErrProvider)
}

// checkError checks the kind of an error: nil means that it is none of the
// special ones.
func checkError(t *testing.T, err error, kind error, status int, text string) {
	t.Helper()
	e, ok := errors.AsType[*agent.Error](err)
	if !ok || !errors.Is(err, agent.ErrProvider) || e.Provider != "sdk" {
		t.Fatalf("it is no error of the provider: %v", err)
	}
	for _, k := range []error{agent.ErrAuth, agent.ErrAPI, agent.ErrTimeout} {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("that it is %q is %v: %v", k, errors.Is(err, k), err)
		}
	}
	if e.Status != status || !strings.Contains(err.Error(), text) {
		t.Errorf("status %d, %v; want %d and %q", e.Status, err, status, text)
	}
}

// Each row of the table of errors, and what package claude has besides.
func TestErrors(t *testing.T) {
	refused := &claude.ResultError{Subtype: "success", Result: "no", APIErrorStatus: 400}
	for _, test := range []struct {
		row    string
		err    error
		last   claude.AssistantError
		kind   error
		status int
	}{
		{"not found", &claude.NotFoundError{}, "", agent.ErrAuth, 0},
		{"no program", &claude.ProcessError{ExitCode: 126}, "", nil, 0},
		{"no interpreter", &claude.ProcessError{ExitCode: 127}, "", nil, 0},
		{"connection", &claude.ConnectionError{Op: "x", Err: io.EOF}, "", nil, 0},
		{"process", &claude.ProcessError{ExitCode: 3}, "", agent.ErrAPI, 3},
		{"process that a signal ended", &claude.ProcessError{ExitCode: -1, Signal: "killed"}, "", agent.ErrAPI, -1},
		{"process, after an API error", &claude.ProcessError{ExitCode: 1, Result: refused}, "", agent.ErrAPI, 400},
		{"process, after another result", &claude.ProcessError{ExitCode: 1, Result: &claude.ResultError{Subtype: "error_max_turns"}}, "", agent.ErrAPI, 1},
		{"result", refused, "", agent.ErrAPI, 400},
		{"result of a limit", &claude.ResultError{Subtype: "error_max_turns"}, "", agent.ErrAPI, 0},
		{"401", &claude.ResultError{APIErrorStatus: 401}, "", agent.ErrAuth, 401},
		{"403", &claude.ResultError{APIErrorStatus: 403}, "", agent.ErrAuth, 403},
		{"no login", &claude.ResultError{Subtype: "success"}, claude.ErrorAuthentication, agent.ErrAuth, 0},
		{"overloaded", &claude.ResultError{APIErrorStatus: 529}, claude.ErrorOverloaded, agent.ErrAPI, 529},
		{"decoding", &claude.DecodeError{Err: io.EOF}, "", nil, 0},
		{"long line", &claude.LineTooLongError{}, "", nil, 0},
		{"control", &claude.ControlError{}, "", nil, 0},
		{"unsupported", &claude.UnsupportedError{}, "", nil, 0},
		{"closed", claude.ErrClosed, "", nil, 0},
		{"withdrawn", claude.ErrWithdrawn, "", nil, 0},
		{"anything", errors.New("hm"), "", nil, 0},
	} {
		t.Run(test.row, func(t *testing.T) {
			err := errorOf(t.Context(), fmt.Errorf("around it: %w", test.err), test.last)
			checkError(t, err, test.kind, test.status, "around it")
			if !errors.Is(err, test.err) {
				t.Error("the cause is lost")
			}
		})
	}
	if err := errorOf(t.Context(), nil, ""); err != nil {
		t.Errorf("nothing became %v", err)
	}
	reason := errors.New("changed my mind")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(reason)
	if err := errorOf(ctx, claude.ErrClosed, ""); err != reason {
		t.Errorf("the end of the context became %v", err)
	}
}

// The same, from processes.
func TestErrorsOfProcesses(t *testing.T) {
	t.Run("not found", func(t *testing.T) {
		t.Setenv(claude.PathVariable, filepath.Join(t.TempDir(), "nothing"))
		_, err := say(t, bounded(t), create(t, New(Options{}), agent.Config{}), "hi")
		checkError(t, err, agent.ErrAuth, 0, "sdk: not installed: Claude Code not found")
	})
	t.Run("not where it is said to be", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "nothing")
		_, err := say(t, bounded(t), create(t, New(Options{Path: path, PathKey: "the.key"}), agent.Config{}), "hi")
		checkError(t, err, agent.ErrAuth, 0, "the CLI is "+path+", as the.key says")
	})
	t.Run("a folder", func(t *testing.T) {
		path := t.TempDir()
		_, err := say(t, bounded(t), create(t, New(Options{Path: path, PathKey: "the.key"}), agent.Config{}), "hi")
		checkError(t, err, nil, 0, "the CLI is "+path+", as the.key says")
	})
	t.Run("connection", func(t *testing.T) {
		p := fake("busy")
		_, err := say(t, bounded(t), create(t, p, agent.Config{Dir: filepath.Join(t.TempDir(), "nowhere")}), "hi")
		checkError(t, err, nil, 0, "nowhere")
	})
	t.Run("process", func(t *testing.T) {
		messages, err := say(t, bounded(t), create(t, fake("mortal"), agent.Config{}), "die")
		checkError(t, err, agent.ErrAPI, 7, "sdk: claude code ended with exit code 7; its stderr: aargh")
		if len(of(messages, "init")) != 1 {
			t.Errorf("it was started more than once, or said nothing: %v", types(messages))
		}
	})
	t.Run("process that ends well, without a result", func(t *testing.T) {
		_, err := say(t, bounded(t), create(t, fake("mortal"), agent.Config{}), "leave")
		checkError(t, err, nil, 0, "without a result")
	})
	t.Run("decoding", func(t *testing.T) {
		messages, err := say(t, bounded(t), create(t, fake("garbled"), agent.Config{}), "hi")
		if err != nil || len(messages) != 2 || messages[0].Metadata["error"] == nil || messages[1].Content != "well" {
			t.Errorf("a line that is not JSON became %+v, %v", messages, err)
		}
	})
	t.Run("nothing to say", func(t *testing.T) {
		a := create(t, fake("busy"), client(agent.Config{}))
		_, err := say(t, bounded(t), a, "")
		checkError(t, err, nil, 0, "no content")
	})
}
