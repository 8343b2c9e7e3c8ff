package claude

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// MirrorMode says when entries that the CLI wrote go to a [Store].
type MirrorMode int

const (
	// MirrorBatched collects entries until a turn ends, or until there are
	// more than 500 of them or more than 1 MiB.
	MirrorBatched MirrorMode = iota
	// MirrorEager sends entries as soon as the CLI reports them, each report
	// in its own Append.
	MirrorEager
)

const (
	mirrorMaxEntries = 500
	mirrorMaxBytes   = 1 << 20
	mirrorTimeout    = 60 * time.Second
)

// mirrorBackoff is how long to wait before the second and third attempt.
var mirrorBackoff = [...]time.Duration{200 * time.Millisecond, 800 * time.Millisecond}

// mirror copies what the CLI writes into a store. Its methods may be called at
// once. The owner calls close, after which no goroutine of it is left.
type mirror struct {
	store    Store
	projects []string // spellings of the folder that the CLI's paths start with
	eager    bool
	onError  func(SessionKey, error) // called from one goroutine at a time

	mu      sync.Mutex
	pending []mirrorBatch // in the order in which their files were first seen
	count   int           // entries pending
	size    int           // bytes pending
	added   int           // frames taken
	due     int           // frames to deliver without waiting for more
	settled int           // frames delivered or given up
	closed  bool
	stop    context.CancelFunc // of the worker; nil if none runs
	changed chan struct{}      // closed by the worker when it settled something or ended
}

// mirrorBatch is one Append to come.
type mirrorBatch struct {
	key     SessionKey
	entries []json.RawMessage
}

// newMirror makes a mirror of what the CLI writes below projectsDir. It tells
// onError of each batch that it had to give up. onError must not call back.
func newMirror(store Store, projectsDir string, mode MirrorMode, onError func(SessionKey, error)) *mirror {
	m := &mirror{store: store, eager: mode == MirrorEager, onError: onError, changed: make(chan struct{})}
	m.projects = []string{filepath.Clean(projectsDir)}
	if real, err := filepath.EvalSymlinks(projectsDir); err == nil && real != m.projects[0] {
		m.projects = append(m.projects, real)
	}
	return m
}

// add takes one frame of entries that the CLI wrote to a file, and keeps them.
// It never waits for the store. Files that are no transcript below the
// projects folder, and frames after close, are dropped.
func (m *mirror) add(filePath string, entries []json.RawMessage) {
	key, ok := m.key(filePath)
	if !ok || len(entries) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.added++
	m.count += len(entries)
	for _, e := range entries {
		m.size += len(e)
	}
	m.enqueue(key, entries)
	if m.eager || m.count > mirrorMaxEntries || m.size > mirrorMaxBytes {
		m.due = m.added
		m.work()
	}
}

// enqueue adds entries to the batch of their file, unless each frame is to be
// a batch of its own.
func (m *mirror) enqueue(key SessionKey, entries []json.RawMessage) {
	if !m.eager {
		for i := range m.pending {
			if m.pending[i].key == key {
				m.pending[i].entries = append(m.pending[i].entries, entries...)
				return
			}
		}
	}
	m.pending = append(m.pending, mirrorBatch{key, append([]json.RawMessage(nil), entries...)})
}

// flush waits until the store has everything added before, or the mirror gave
// it up. Only the end of ctx is an error. Each batch takes at most a minute,
// or three attempts.
func (m *mirror) flush(ctx context.Context) error {
	m.mu.Lock()
	target := m.added
	m.due = max(m.due, target)
	m.work()
	m.mu.Unlock()
	return m.wait(ctx, func() bool { return m.settled >= target })
}

// close flushes and ends the mirror. When ctx ends it gives up what is left,
// and tells onError.
func (m *mirror) close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	err := m.flush(ctx)
	m.mu.Lock()
	if err != nil && m.stop != nil {
		m.stop()
	}
	m.mu.Unlock()
	// The worker does not outlive its context for long: it waits for no store
	// that ignores it.
	_ = m.wait(context.WithoutCancel(ctx), func() bool { return m.stop == nil })
	return err
}

// wait waits until the worker made cond true, which is asked under the lock.
func (m *mirror) wait(ctx context.Context, cond func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := cond(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// work starts the worker if there is work and no worker. The lock is held.
func (m *mirror) work() {
	if m.stop != nil || m.due <= m.settled {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.deliver(ctx)
}

// deliver is the worker: it sends what is pending, in order, until nothing is
// due. There is one at a time, so appends never overlap.
func (m *mirror) deliver(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.due > m.settled {
		batches, upTo := m.pending, m.added
		m.pending, m.count, m.size = nil, 0, 0
		m.mu.Unlock()
		for _, b := range batches {
			if err := m.append(ctx, b); err != nil {
				m.onError(b.key, err)
			}
		}
		m.mu.Lock()
		m.settled = upTo
		m.signal()
	}
	m.stop()
	m.stop = nil
	m.signal()
}

func (m *mirror) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// append tries a batch three times. One that timed out is not tried again: it
// may still arrive.
func (m *mirror) append(ctx context.Context, b mirrorBatch) error {
	for attempt := 0; ; attempt++ {
		_, err := callStore(ctx, mirrorTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, m.store.Append(ctx, b.key, b.entries)
		})
		if err == nil || errors.Is(err, errStoreTimeout) || ctx.Err() != nil || attempt == len(mirrorBackoff) {
			return err
		}
		select {
		case <-time.After(mirrorBackoff[attempt]):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// key returns the key of a file that the CLI writes.
func (m *mirror) key(filePath string) (SessionKey, bool) {
	for _, projects := range m.projects {
		if key, ok := transcriptKey(projects, filePath); ok {
			return key, true
		}
	}
	return SessionKey{}, false
}

// transcriptKey returns the key of the transcript at filePath, and false for
// what is not a transcript below projects.
func transcriptKey(projects, filePath string) (SessionKey, bool) {
	rel, err := filepath.Rel(projects, filePath)
	if err != nil || !filepath.IsLocal(rel) {
		return SessionKey{}, false
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	last, isTranscript := strings.CutSuffix(parts[len(parts)-1], ".jsonl")
	switch {
	case len(parts) == 2 && isTranscript && last != "":
		return SessionKey{Project: parts[0], Session: last}, true
	case len(parts) >= 4:
		parts[len(parts)-1] = last
		return SessionKey{Project: parts[0], Session: parts[1], Subpath: strings.Join(parts[2:], "/")}, true
	}
	return SessionKey{}, false
}
