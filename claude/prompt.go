package claude

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
)

// ErrWithdrawn ends the iteration over the answer to a prompt that was
// cancelled or refused before the CLI took it up.
var ErrWithdrawn = errors.New("the prompt was withdrawn before it was answered")

// ErrUsed ends an iteration that was had before: each is single-use.
var ErrUsed = errors.New("the iteration was had before")

// once makes an iteration single-use: it would send its prompt again.
func once(seq iter.Seq2[Message, error]) iter.Seq2[Message, error] {
	var used atomic.Bool
	return func(yield func(Message, error) bool) {
		if used.Swap(true) {
			yield(nil, ErrUsed)
			return
		}
		seq(yield)
	}
}

// Until says how far an iteration over the answer to a prompt goes.
type Until int

const (
	// Answered ends it with the prompt's own result.
	Answered Until = iota
	// Settled goes on until what the prompt started in the background has
	// ended too, and the turns that this led to.
	Settled
)

// Prompt sends text and returns what the CLI says, up to and including the
// result of this prompt. It is Ask with a text and Answered.
func (s *Session) Prompt(ctx context.Context, text string) iter.Seq2[Message, error] {
	return s.Ask(ctx, UserMessage{Text: text}, Answered)
}

// Ask sends m and returns what the CLI says, beginning with what nobody has
// read yet. The iteration is single-use. An error is the last thing that it
// yields: the cause when ctx ends, a *[ResultError] behind the result of a turn
// that failed without being interrupted, otherwise what the session ended
// with. Breaking out, or the end of ctx, interrupts the turn; the session goes
// on.
func (s *Session) Ask(ctx context.Context, m UserMessage, until Until) iter.Seq2[Message, error] {
	return once(func(yield func(Message, error) bool) {
		if err := s.acquire(ctx); err != nil {
			yield(nil, err)
			return
		}
		defer s.release()
		id, err := s.sendMessage(ctx, m)
		if err != nil {
			yield(nil, err)
			return
		}
		a := &exchange{s: s, id: id}
		for msg, err := range s.stream(ctx) {
			if err != nil {
				if ctx.Err() != nil {
					s.abandon(a)
				}
				yield(nil, err)
				return
			}
			if msg != nil {
				a.observe(msg)
				if !yield(msg, nil) {
					s.abandon(a)
					return
				}
			}
			// Nil comes when all that there was is read.
			if a.answered && (until == Answered || msg == nil && !s.busy()) {
				break
			}
		}
		if !a.answered {
			a.err = fmt.Errorf("the session ended without a result for the prompt: %w", s.over())
		}
		if a.err != nil {
			yield(nil, a.err)
		}
	})
}

// exchange follows the messages up to the end of the answer to one prompt.
type exchange struct {
	s        *Session
	id       string // of the prompt
	answered bool   // its result was seen
	err      error  // what the iteration is to end with
}

func (a *exchange) observe(m Message) {
	switch m := m.(type) {
	case *Result:
		if !a.own(m) {
			return
		}
		a.answered = true
		if !m.Interrupted() {
			a.err = m.Err()
		}
	case *Unknown:
		var frame struct {
			ID    string `json:"command_uuid"`
			State string `json:"state"`
		}
		if m.Type != "command_lifecycle" || json.Unmarshal(m.Raw(), &frame) != nil || frame.ID != a.id {
			return
		}
		if !a.answered && slices.Contains([]string{"cancelled", "discarded", "refused"}, frame.State) {
			a.answered, a.err = true, fmt.Errorf("%w: %s", ErrWithdrawn, frame.State)
		}
	}
}

// own tells whether m is the result of this prompt. A CLI that does not name
// the prompt answers them in order.
func (a *exchange) own(m *Result) bool {
	if m.UserMessageUUID != "" || len(m.UserMessageUUIDs) > 0 {
		return m.UserMessageUUID == a.id || slices.Contains(m.UserMessageUUIDs, a.id)
	}
	return !a.s.ledger.waits(a.id)
}

// abandon interrupts the turn of a prompt that nobody wants to read any more,
// and drops what it still says, so that the next prompt starts clean. It takes
// at most Options.Grace.
func (s *Session) abandon(a *exchange) {
	if a.answered {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), s.opts.grace())
	defer stop()
	if _, err := s.Interrupt(ctx); err != nil {
		return // the session is over, or will say so itself
	}
	for msg, err := range s.stream(ctx) {
		if err != nil || a.answered {
			return
		}
		if msg != nil {
			a.observe(msg)
		}
		if a.answered {
			return
		}
	}
}

// Send sends m without waiting for an answer, also while the agent works: it
// then takes m up when it can. What the CLI says is read with Messages, or by
// an iteration that is under way.
func (s *Session) Send(ctx context.Context, m UserMessage) error {
	_, err := s.sendMessage(ctx, m)
	return err
}

// sendMessage sends m, under an id that the result will name.
func (s *Session) sendMessage(ctx context.Context, m UserMessage) (id string, err error) {
	if m.UUID == "" {
		m.UUID = newUUID()
	}
	if s.opts.VerbatimPrompts {
		m.ClientComposed = true
	}
	line, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	s.ledger.send(m.UUID)
	if err := s.post(ctx, json.RawMessage(line)); err != nil {
		s.ledger.unsent(m.UUID)
		return "", fmt.Errorf("sending a message: %w", err)
	}
	return m.UUID, nil
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Messages returns everything that the CLI says, in order, beginning with what
// nobody has read yet, until the session ends. An error, what the session ended
// with unless it ended well, is the last thing that it yields. Breaking out
// leaves the rest to the next who reads; the session goes on.
func (s *Session) Messages() iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		ctx := context.Background() // the session ends the iteration
		if err := s.acquire(ctx); err != nil {
			yield(nil, err)
			return
		}
		defer s.release()
		for msg, err := range s.stream(ctx) {
			if (msg != nil || err != nil) && !yield(msg, err) {
				return
			}
		}
	}
}

// acquire makes the caller the one that reads messages.
func (s *Session) acquire(ctx context.Context) error {
	select {
	case s.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Session) release() { <-s.reading }

// stream yields what is in the queue, and nil whenever all that there was is
// read. An error is the last thing that it yields.
func (s *Session) stream(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			items, ok, err := s.queue.take(ctx)
			if !ok {
				if err != nil {
					yield(nil, err)
				}
				return
			}
			for i, m := range items {
				if m == nil {
					continue
				}
				if _, ok := m.(*Result); ok && s.mirror != nil {
					s.mirror.flush(ctx) // who sees the result finds it in the store
				}
				if !yield(m, nil) {
					s.queue.back(items[i+1:])
					return
				}
			}
			if !yield(nil, nil) {
				return
			}
		}
	}
}
