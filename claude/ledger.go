package claude

import (
	"encoding/json"
	"slices"
	"sync"
)

// ledger keeps what a session still has to do, so that its input is closed
// neither too early, when a hook, a permission request or a background agent
// would find nobody to answer it, nor never.
type ledger struct {
	mu       sync.Mutex // guards what follows
	sent     []string   // ids of the prompts whose result has not come, oldest first
	tasks    map[string]bool
	owed     bool   // an agent in the background has ended, and the CLI has yet to take a turn on it
	requests int    // of the CLI that are being answered
	state    string // what the CLI said last of itself; empty if it never does (before 2.1.140 or so)
	failed   *Result
}

// busy tells whether anything is still to be done: a prompt to be answered, a
// request of the CLI, or, as the CLI says itself, work in the background. A
// CLI that does not say counts as busy while an agent or a workflow of its
// runs, and until the result of the turn that its end leads to; shells and
// monitors do not count, they may run for ever.
func (l *ledger) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent) > 0 || l.requests > 0 {
		return true
	}
	if l.state != "" {
		return l.state != stateIdle
	}
	return len(l.tasks) > 0 || l.owed
}

const stateIdle = "idle"

// send notes that a prompt with that id is on its way.
func (l *ledger) send(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, id)
}

// unsent takes back what could not be sent.
func (l *ledger) unsent(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered(id)
}

// waits tells whether the prompt with that id has no result yet.
func (l *ledger) waits(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.sent, id)
}

// request notes that a request of the CLI is being answered, until the
// function that it returns is called.
func (l *ledger) request() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.requests--
	}
}

// observe takes note of what the CLI says.
func (l *ledger) observe(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks == nil {
		l.tasks = map[string]bool{}
	}
	switch m := m.(type) {
	case *Result:
		l.result(m)
		return // the memory of a failure survives what follows it at once
	case *SessionState:
		l.state = m.State
		return
	case *SessionWritesLost, *PluginInstall:
		return
	case *TaskStarted:
		if m.TaskType == "local_agent" || m.TaskType == "local_workflow" {
			l.tasks[m.TaskID] = true
		}
	case *TaskNotification:
		l.ended(m.TaskID)
	case *TaskUpdated:
		if m.Patch.Status.Terminal() {
			l.ended(m.TaskID)
		}
	case *Unknown:
		if m.Type == "command_lifecycle" {
			l.lifecycle(m)
		}
		return
	}
	l.failed = nil
}

// ended crosses off a task, if it is one that counts.
func (l *ledger) ended(task string) {
	l.owed = l.owed || l.tasks[task]
	delete(l.tasks, task)
}

// result crosses off the prompts that m answers, and keeps a failure for the
// error that the process may end with.
func (l *ledger) result(m *Result) {
	l.failed, l.owed = nil, false
	if m.Failed() {
		l.failed = m
	}
	ids := m.UserMessageUUIDs
	if len(ids) == 0 && m.UserMessageUUID != "" {
		ids = []string{m.UserMessageUUID}
	}
	for _, id := range ids {
		l.answered(id)
	}
	// A CLI that does not name the prompt answers them in order; what it does
	// by itself has an origin that says so.
	if len(ids) == 0 && len(l.sent) > 0 && (m.Origin == nil || m.Origin.Human()) {
		l.sent = l.sent[1:]
	}
}

// lifecycle crosses off a prompt that will have no result of its own.
func (l *ledger) lifecycle(m *Unknown) {
	var frame struct {
		ID    string `json:"command_uuid"`
		State string `json:"state"`
	}
	if json.Unmarshal(m.Raw(), &frame) != nil {
		return
	}
	if slices.Contains([]string{"completed", "cancelled", "discarded", "refused"}, frame.State) {
		l.answered(frame.ID)
	}
}

func (l *ledger) answered(id string) {
	l.sent = slices.DeleteFunc(l.sent, func(s string) bool { return s == id })
}

// lastFailure is the failed result that nothing came after.
func (l *ledger) lastFailure() *Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
