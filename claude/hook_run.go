package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// HookAnswer is what one hook said to [RunHooks].
type HookAnswer[Out any] struct {
	Out   *Out  // nil means no opinion
	Err   error // why the hook failed; Out is nil then
	Block bool  // it failed, and has BlockOnFailure
}

// RunHooks calls those of the hooks that are for the subject (the tool, the
// source, the trigger: see [Matcher]) in this process, as the CLI would: all at
// the same time, each with an input of its own. It returns when all have, with
// their answers in the order of the hooks. CallID is the tool call, or empty.
//
// It is for those who run a conversation without the CLI. A hook without a
// Timeout and BlockOnFailure has as much time as ctx.
func RunHooks[In, Out any](ctx context.Context, event, subject, callID string, hooks []Hook[In, Out], in In) []HookAnswer[Out] {
	var mine []Hook[In, Out]
	for _, h := range hooks {
		if h.Match.covers(subject) {
			mine = append(mine, h)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	answers := make([]HookAnswer[Out], len(mine))
	raw, err := json.Marshal(in)
	var all sync.WaitGroup
	for i, h := range mine {
		all.Go(func() {
			out, err := h.run(ctx, raw, callID, err)
			if err != nil {
				answers[i] = HookAnswer[Out]{Err: fmt.Errorf("%s hook: %w", event, err), Block: h.BlockOnFailure}
				return
			}
			answers[i].Out = out
		})
	}
	all.Wait()
	return answers
}

// run calls Func with the input in raw, unless that could not be made.
func (h Hook[In, Out]) run(ctx context.Context, raw json.RawMessage, callID string, unmade error) (out *Out, err error) {
	if unmade != nil {
		return nil, fmt.Errorf("writing the input: %w", unmade)
	}
	in, err := decodeHookInput[In](raw, callID)
	if err != nil {
		return nil, err
	}
	if h.Timeout == 0 && h.BlockOnFailure {
		h.Timeout = blockTimeout
	}
	if h.Timeout > 0 {
		return h.inTime(ctx, in)
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return h.Func(ctx, in)
}

// Check tells what is wrong with the hooks: what a session would refuse, and
// for [RunHooks] patterns that only JavaScript understands.
func (h *Hooks) Check() error {
	wire, _, err := h.register()
	errs := []error{err}
	for event, matchers := range wire {
		for _, m := range matchers {
			if listed().MatchString(m.Matcher) {
				continue
			}
			if _, failed := regexp.Compile(m.Matcher); failed != nil {
				errs = append(errs, badOption("Hooks.%s: its Match: pattern %q: %w", event, m.Matcher, failed))
			}
		}
	}
	return errors.Join(errs...)
}

// covers tells whether the hook is for the subject. A pattern that cannot be
// read is for everything: better one call too many than a guard asleep.
func (m Matcher) covers(subject string) bool {
	switch {
	case m.pattern == "":
		return true
	case m.expr == nil:
		return slices.Contains(strings.Split(m.pattern, "|"), subject)
	}
	expr, err := m.expr()
	return err != nil || expr.MatchString(subject)
}
