package claudecode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// errNoResult says that the CLI ended, and well, in the middle of a turn.
var errNoResult = errors.New("claude code ended without a result")

// authErrors are the failures of an API call that a login would mend.
var authErrors = []claude.AssistantError{
	claude.ErrorAuthentication, claude.ErrorOAuthOrgNotAllowed, claude.ErrorAccountOnHold,
	claude.ErrorVerificationRequired, claude.ErrorCloudCredential,
}

// neverRan tells whether the CLI could not be executed, by what shells and our own
// supervisor end with then. To try it again is no use.
func neverRan(p *claude.ProcessError) bool { return p.ExitCode == 126 || p.ExitCode == 127 }

// timeoutError is the cause of a context that Limits.Timeout ends.
func timeoutError(limit time.Duration) error {
	return &agent.Error{Provider: Type, Kind: agent.ErrTimeout, Err: fmt.Errorf("the message was not handled within %v", limit)}
}

// errorOf makes of what package claude fails with the error of an agent. If ctx
// has ended it is its cause. The last is what the model's API said last in this
// turn: a result does not always tell that a login is missing.
func errorOf(ctx context.Context, err error, last claude.AssistantError) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	e := &agent.Error{Provider: Type, Err: err}
	if _, missing := errors.AsType[*claude.NotFoundError](err); missing {
		e.Kind = agent.ErrMissing
		return e
	}
	if process, ok := errors.AsType[*claude.ProcessError](err); ok && !neverRan(process) {
		e.Kind, e.Status = agent.ErrAPI, process.ExitCode
	}
	if result, ok := errors.AsType[*claude.ResultError](err); ok {
		e.Kind = agent.ErrAPI
		if result.APIErrorStatus != 0 {
			e.Status = result.APIErrorStatus
		}
		if e.Status == 401 || e.Status == 403 || slices.Contains(authErrors, last) {
			e.Kind = agent.ErrAuth
		}
	}
	if noConversation(err) {
		e.Kind = agent.ErrNoSession
	}
	return e
}

// naming adds to why a CLI did not start which one it was, if somebody named it; by
// says where, and may be empty.
func naming(err error, path, by string) error {
	_, missing := errors.AsType[*claude.NotFoundError](err)
	_, connection := errors.AsType[*claude.ConnectionError](err)
	process, ended := errors.AsType[*claude.ProcessError](err)
	if path == "" || by == "" || !missing && !connection && (!ended || process.Result != nil) {
		return err
	}
	return fmt.Errorf("%w; the CLI is %s, as %s says (without that, one is looked for)", err, path, by)
}

// lost tells whether an error means that there is no CLI any more: it is none
// of those that a session survives.
func lost(err error) bool {
	if _, process := errors.AsType[*claude.ProcessError](err); process {
		return true
	}
	_, turn := errors.AsType[*claude.ResultError](err)
	_, control := errors.AsType[*claude.ControlError](err)
	_, unsupported := errors.AsType[*claude.UnsupportedError](err)
	return err != nil && !turn && !control && !unsupported && !errors.Is(err, claude.ErrWithdrawn)
}

// noConversation tells whether the CLI has nothing to resume. Seen in 2.1.325.
func noConversation(err error) bool {
	result, ok := errors.AsType[*claude.ResultError](err)
	return ok && strings.Contains(result.Text(), "No conversation found")
}
