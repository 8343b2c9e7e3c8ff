package claude

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
)

// Query has one prompt answered by a CLI of its own and returns what it says:
// all of it, background work and the turns that this leads to included. The
// process ends when nothing is left to do. The iteration is single-use and
// starts the CLI. An error is the last thing that it yields: what [Start]
// fails with, the cause when ctx ends, or, after the failed result itself, a
// *[ProcessError] that wraps its *[ResultError]. Breaking out ends the process.
func Query(ctx context.Context, prompt string, opts Options) iter.Seq2[Message, error] {
	return QueryAll(ctx, func(yield func(UserMessage) bool) { yield(UserMessage{Text: prompt}) }, opts)
}

// QueryAll is Query with many messages, which are taken from prompts and sent
// as they come, while the CLI works. Prompts runs in a goroutine of its own and
// must return when ctx ends, or soon after its yield has returned false; if it
// panics, the iteration ends with that as its error.
func QueryAll(ctx context.Context, prompts iter.Seq[UserMessage], opts Options) iter.Seq2[Message, error] {
	return once(func(yield func(Message, error) bool) {
		s, err := Start(ctx, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		s.query(ctx, prompts, yield)
	})
}

// query sends the prompts and yields everything until the session ends.
func (s *Session) query(ctx context.Context, prompts iter.Seq[UserMessage], yield func(Message, error) bool) {
	ctx, stop := context.WithCancel(ctx)
	defer s.Close()
	defer stop()
	s.spawn(func() {
		defer s.CloseInput()
		defer func() {
			if p := recover(); p != nil { // of the caller's prompts
				s.closeWith(fmt.Errorf("taking the prompts: panic: %v", p))
			}
		}()
		for m := range prompts {
			if s.Send(ctx, m) != nil {
				return // the reason is the session's end, which the reader is told
			}
		}
	})
	for msg, err := range s.Messages() {
		if !yield(msg, err) {
			return
		}
	}
}

// Warmed is a CLI that is started and initialized and waits for its prompt.
type Warmed struct {
	s    *Session
	used atomic.Bool
}

// Warm starts a CLI ahead of time: the prompt is then answered without the half
// second that a start takes. It lives until it is used, closed, or ctx ends. It
// fails as [Start] does.
func Warm(ctx context.Context, opts Options) (*Warmed, error) {
	s, err := Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &Warmed{s: s}, nil
}

// Query is [Query] on the waiting CLI, which ends with it. It can be used once,
// after which it fails with [ErrClosed].
func (w *Warmed) Query(ctx context.Context, prompt string) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if w.used.Swap(true) {
			yield(nil, ErrClosed)
			return
		}
		stop := context.AfterFunc(ctx, func() { w.s.closeWith(context.Cause(ctx)) })
		defer stop()
		w.s.query(ctx, func(yield func(UserMessage) bool) { yield(UserMessage{Text: prompt}) }, yield)
	}
}

// Session returns the waiting CLI as a session for many prompts. It is closed
// with the Warmed, or by itself.
func (w *Warmed) Session() *Session { return w.s }

// Done returns a channel that is closed when the CLI has ended, for whatever
// reason, and cannot be used any more.
func (w *Warmed) Done() <-chan struct{} { return w.s.gone }

// Pid returns the id of the CLI's process, or zero if [Options.Spawn] started
// it.
func (w *Warmed) Pid() int {
	if p, ok := w.s.proc.(*localProcess); ok {
		return p.cmd.Process.Pid
	}
	return 0
}

// Close ends the CLI, whether or not it was used.
func (w *Warmed) Close() error { return w.s.Close() }

// OutputError says that a run succeeded without the output that was asked for.
type OutputError struct {
	Text string // what the agent said instead
	Err  error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("structured output: %v; the result is %.200q", e.Err, e.Text)
}

func (e *OutputError) Unwrap() error { return e.Err }

// Run has one prompt answered as a value of type T. The JSON Schema that the
// agent must follow comes from T, as package jsonschema-go derives it: field
// names and optional fields from the json tags, descriptions from jsonschema
// tags. A T that is no struct or map travels as the field "value" of an object.
//
// The result is returned whenever there is one. Besides the errors of [Query],
// Run fails with an *[OutputError] when the agent succeeded but its output is
// missing or is no T.
func Run[T any](ctx context.Context, prompt string, opts Options) (T, *Result, error) {
	var value T
	schema, err := schemaFor[T]()
	if err != nil {
		return value, nil, fmt.Errorf("making a schema of %T: %w", value, err)
	}
	opts.Schema = schema.JSON
	var result *Result
	for msg, err := range Query(ctx, prompt, opts) {
		if err != nil {
			return value, result, err
		}
		if r, ok := msg.(*Result); ok && (result == nil || r.StructuredOutput != nil) {
			result = r
		}
	}
	switch {
	case result == nil:
		return value, nil, &OutputError{Err: errors.New("the CLI ended without a result")}
	case result.Failed():
		return value, result, result.Err()
	case result.StructuredOutput == nil:
		return value, result, &OutputError{Text: result.Result, Err: errors.New("there is none")}
	}
	if err := schema.decode(result.StructuredOutput, &value); err != nil {
		return value, result, &OutputError{Text: string(result.StructuredOutput), Err: err}
	}
	return value, result, nil
}
