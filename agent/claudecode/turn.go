package claudecode

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// turn is the work on one message. What is not guarded belongs to the goroutine
// that handles it.
type turn struct {
	yield    func(agent.Message, error) bool
	left     bool                  // whoever reads wants no more
	heard    bool                  // the CLI took the message up
	answered bool                  // a result was seen
	cut      bool                  // the last one is of work that was interrupted
	tasks    bool                  // an agent works in the background
	gone     bool                  // the session is over
	apiError claude.AssistantError // of the last API call; empty if it went well
	call     *spawnCall            // that is being written, until it is known whom it starts; nil if none is

	ready chan struct{} // closed by open and close, whichever comes first

	mu      sync.Mutex // guards what follows
	session *claude.Session
	closed  bool     // nothing can be pushed any more
	pushed  []string // ids of pushed messages that have no result yet
}

func newTurn(yield func(agent.Message, error) bool) *turn {
	return &turn{yield: yield, ready: make(chan struct{})}
}

// say yields messages and tells whether more are wanted.
func (t *turn) say(messages ...agent.Message) bool {
	for _, m := range messages {
		if t.left {
			break
		}
		t.left = !t.yield(m, nil)
	}
	return !t.left
}

// open says where messages can be pushed to, from the first time on: to a CLI
// that has taken the message up, and so is not dead.
func (t *turn) open(s *claude.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil && !t.closed {
		t.session = s
		close(t.ready)
	}
}

// close says that nothing can be pushed any more, and tells whether something
// that was pushed has no result yet.
func (t *turn) close() (waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && t.session == nil {
		close(t.ready)
	}
	t.closed = true
	return len(t.pushed) > 0
}

// push sends m into the turn. The session's ledger knows of m before it is
// written: either the turn still waits for its result, or close tells of it.
func (t *turn) push(ctx context.Context, m agent.Message) error {
	select {
	case <-t.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	id := newUUID()
	t.mu.Lock()
	s, closed := t.session, t.closed
	if !closed {
		t.pushed = append(t.pushed, id)
	}
	t.mu.Unlock()
	if closed {
		return agent.ErrNotBusy
	}
	// Half a message would be worse than a late one: the session bounds the
	// writing, not ctx.
	err := s.Send(context.WithoutCancel(ctx), claude.UserMessage{Text: m.Content, UUID: id})
	if err == nil {
		return nil
	}
	t.done(id)
	if errors.Is(err, claude.ErrClosed) {
		return agent.ErrNotBusy
	}
	return errorOf(ctx, err, "")
}

// done crosses off a pushed message.
func (t *turn) done(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pushed = slices.DeleteFunc(t.pushed, func(s string) bool { return s == id })
}

// result crosses off what m answers: everything, if the CLI does not say what.
func (t *turn) result(m *claude.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := m.UserMessageUUID != "" || len(m.UserMessageUUIDs) > 0
	t.pushed = slices.DeleteFunc(t.pushed, func(id string) bool {
		return !named || id == m.UserMessageUUID || slices.Contains(m.UserMessageUUIDs, id)
	})
}

// waiting tells whether something that was pushed has no result yet.
func (t *turn) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pushed) > 0
}

// observe takes note of what the CLI says.
func (t *turn) observe(msg claude.Message) {
	switch m := msg.(type) {
	case *claude.Init, *claude.StreamEvent, *claude.User:
		t.heard = true
	case *claude.Assistant:
		t.heard, t.apiError = true, m.Error
	case *claude.BackgroundTasks:
		// Shells may run on from one message to the next.
		t.tasks = slices.ContainsFunc(m.Tasks, func(b claude.BackgroundTask) bool {
			return !b.Ambient && (b.TaskType == "local_agent" || b.TaskType == "local_workflow")
		})
	case *claude.Result:
		t.heard, t.answered, t.cut = true, true, m.Interrupted()
		t.result(m)
	case *claude.Unknown:
		// How a message ends that has no result of its own. Seen in 2.1.325.
		var frame struct {
			ID    string `json:"command_uuid"`
			State string `json:"state"`
		}
		if m.Type == lifecycleType && json.Unmarshal(m.Raw(), &frame) == nil &&
			slices.Contains([]string{"completed", "cancelled", "discarded", "refused"}, frame.State) {
			t.done(frame.ID)
		}
	}
}

// spawnCall is a call that starts an agent, as far as it is written.
type spawnCall struct {
	block int
	input string
}

// maxBegin is how much of a call's input is looked at.
const maxBegin = 512

// spawns tells whether with m it is known that the model writes a call that starts
// an agent like the one that works. It is true once for a call.
func (t *turn) spawns(m *claude.StreamEvent, by agent.Spawner) bool {
	if by.Alike == nil || m.ParentToolUseID != "" {
		return false
	}
	if use, ok := m.Block.(*claude.ToolUse); ok && use.Name == by.Tool {
		t.call = &spawnCall{block: m.Index}
		return false
	}
	if t.call == nil || m.Kind != claude.EventContentBlockDelta || m.Index != t.call.block {
		return false
	}
	t.call.input += m.Delta.PartialJSON
	alike, known := by.Alike(t.call.input)
	if known || len(t.call.input) > maxBegin {
		t.call = nil
	}
	return known && alike
}

// dirty tells whether the session cannot be used for another message: it is
// over, or a turn that was stopped early left work in it.
func (t *turn) dirty() bool { return t.gone || t.tasks || t.waiting() }

// lifecycleType is the type of frames that tell what became of a prompt. The CLI
// does not document it; seen in 2.1.325.
const lifecycleType = "command_lifecycle"

// newUUID returns a random UUID, which the CLI wants as the id of a message.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
