package spawn

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// Call is a tool call that a person is asked about.
type Call struct {
	Tool   string
	Input  json.RawMessage
	Reason string        // why; calls with the same tool and reason are alike
	Role   string        // of the run; empty if it has none
	Within time.Duration // how long an answer is waited for
}

// Permits are the answers that hold for more than one run. The zero value has none;
// methods may be called from any goroutine. They are bounded: when there are too
// many, all are forgotten and people are asked again.
type Permits struct {
	mu   sync.Mutex // guards said
	said map[permit]nestor.Answer
}

// permit is what an answer holds for.
type permit struct {
	root               nestor.ID
	role, tool, reason string
}

func (p *Permits) find(key permit) (nestor.Answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.said[key]
	return a, ok
}

// maxPermits is how many answers are remembered.
const maxPermits = 4096

func (p *Permits) keep(key permit, a nestor.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said == nil || len(p.said) >= maxPermits {
		p.said = map[permit]nestor.Answer{}
	}
	p.said[key] = a
}

// Permit asks a person whether a call may be made, and returns the answer. One that
// was given for all calls like it, in the run or in all of its role in the tree, is
// not asked for again. Nobody's answer is no.
func (r *Run) Permit(ctx context.Context, c Call, all *Permits) (nestor.Answer, error) {
	mine, err := r.engine.Get(ctx, r.id)
	if err != nil {
		return nestor.Answer{}, err
	}
	key := permit{mine.Root, c.Role, c.Tool, c.Reason}
	if a, ok := all.find(key); ok {
		return a, nil
	}
	for _, q := range mine.Asks {
		if a := q.Answer; a != nil && a.Scope != "once" && q.Ask.Tool == c.Tool && q.Ask.Question == c.Reason {
			return *a, nil
		}
	}
	name, err := r.again("permit", c.Tool, c.Input, c.Reason)
	if err != nil {
		return nestor.Answer{}, err
	}
	name = name[16:]
	a, err := r.ask(ctx, mine, nestor.Ask{
		AskID: name, Tool: c.Tool, Input: bounded(c.Input), Question: c.Reason, Options: []string{"allow", "deny"}, Default: "deny",
	}, c.Within)
	if err == nil && a.Scope == "role" {
		all.keep(key, *a)
	}
	if err != nil {
		return nestor.Answer{}, err
	}
	return *a, nil
}

// maxInput is how many bytes of an input a person is shown.
const maxInput = 4 << 10

// bounded returns an input that a person can be shown.
func bounded(input json.RawMessage) json.RawMessage {
	if len(input) <= maxInput {
		return input
	}
	text, err := json.Marshal(clip(string(input), maxInput) + "… (cut)")
	if err != nil {
		return nil
	}
	return text
}

// ask asks, and waits for an answer, or for the time in which one may come; zero
// means as long as it takes. One that an earlier attempt asked has the time that is
// left.
func (r *Run) ask(ctx context.Context, mine plan.Run, ask nestor.Ask, within time.Duration) (*nestor.Answer, error) {
	waiting, stop := ctx, context.CancelFunc(func() {})
	if within > 0 {
		ask.Until = time.Now().Add(within).UTC()
		if before := mine.Asks[ask.AskID]; before != nil {
			ask.Until = before.Ask.Until
		}
		waiting, stop = context.WithDeadlineCause(ctx, ask.Until, errLate)
	}
	defer stop()
	answer, err := r.attempt.Ask(waiting, ask)
	if !errors.Is(err, errLate) {
		return answer, err
	}
	late := nestor.Answer{AskID: ask.AskID, Decision: or(ask.Default, "no answer"), By: "time-out", Scope: "once"}
	if err := r.engine.Answer(ctx, r.id, late); err != nil {
		return nil, err
	}
	return r.attempt.Ask(ctx, ask) // the first answer counts, and it is there
}
