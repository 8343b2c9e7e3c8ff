package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrStoreUnsupported says that a [Store] lacks an optional part that a call
// needs. A store that has the method but cannot serve it returns this error
// from it, and counts as one without the method.
var ErrStoreUnsupported = errors.New("not supported by this store")

// SessionKey names one transcript in a [Store].
type SessionKey struct {
	Project string // the scope of the session, by default the [ProjectKey] of its directory
	Session string // the session's id
	Subpath string // empty for the session itself; "subagents/agent-x" for one of its subagents
}

// String returns the parts with slashes between them, for people.
func (k SessionKey) String() string {
	if k.Subpath == "" {
		return k.Project + "/" + k.Session
	}
	return k.Project + "/" + k.Session + "/" + k.Subpath
}

// Store keeps copies of transcripts outside of the CLI's own folder. Its
// methods may be called from several goroutines at once, and must return when
// their context ends. The package claudetest has the tests that every store
// must pass.
//
// A store may also be a [SessionLister], [SubkeyLister], [SummaryLister] and
// [SessionDeleter].
type Store interface {
	// Append adds entries to the end of a transcript, in order, and creates
	// the transcript if need be. An empty list does nothing and creates
	// nothing. Entries are JSON objects, opaque to the store, and belong to
	// the caller once Append has returned.
	//
	// An Append that failed is tried again, so entries may arrive twice; most
	// have a "uuid" by which a store can tell. The readers of this package
	// count entries with the same uuid once.
	Append(ctx context.Context, key SessionKey, entries []json.RawMessage) error

	// Load returns all entries of a transcript in order, equal in value to
	// those appended though not byte for byte. It returns nil and no error
	// for a key it does not know. The result belongs to the caller.
	Load(ctx context.Context, key SessionKey) ([]json.RawMessage, error)
}

// SessionStamp is one session of a project and when the store last wrote it.
type SessionStamp struct {
	Session  string
	Modified time.Time
}

// SessionLister is a [Store] that knows its sessions. Without it sessions
// cannot be listed or continued, only resumed by id.
type SessionLister interface {
	// ListSessions returns the sessions of a project in any order, none for a
	// project it does not know.
	ListSessions(ctx context.Context, project string) ([]SessionStamp, error)
}

// SubkeyLister is a [Store] that knows the subagents of a session. Without it
// a resumed session comes back without them.
type SubkeyLister interface {
	// ListSubkeys returns the subpaths kept for a session in any order, and
	// never the session's own, empty one.
	ListSubkeys(ctx context.Context, project, session string) ([]string, error)
}

// SummaryLister is a [Store] that maintains a [Summary] for each session with
// [FoldSummary], so that listing need not load every transcript.
type SummaryLister interface {
	// ListSummaries returns the summaries of a project in any order, none for a
	// project it does not know.
	ListSummaries(ctx context.Context, project string) ([]Summary, error)
}

// SessionDeleter is a [Store] that can forget. Without it deleting does
// nothing, as suits an archive that only grows.
type SessionDeleter interface {
	// DeleteTranscript removes a transcript, and for a key without subpath all
	// the session's subpaths and its summary too. An unknown key is no error.
	DeleteTranscript(ctx context.Context, key SessionKey) error
}

// errStoreTimeout is the cause of a store call that took too long.
var errStoreTimeout = errors.New("the store did not answer in time")

// recovered makes an error of a panic, for calls of foreign code on goroutines
// where its owner could not recover it.
func recovered[T any](call func() (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return call()
}

// callStore runs call for at most limit. It does not wait for a call that
// ignores its context.
func callStore[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errStoreTimeout, limit))
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1) // sent to once, never closed: the reader may be gone
	go func() {
		var o outcome
		o.value, o.err = recovered(func() (T, error) { return call(ctx) })
		done <- o
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		o.err = ctx.Err()
	}
	if o.err != nil && ctx.Err() != nil {
		o.err = context.Cause(ctx)
	}
	return o.value, o.err
}
