package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// MemoryStore is a [Store] with every optional part that keeps everything in
// memory, for tests and short-lived programs. The zero value is empty and
// ready, and may be used from several goroutines at once.
type MemoryStore struct {
	mu        sync.Mutex
	entries   map[SessionKey][]json.RawMessage
	summaries map[SessionKey]Summary // of main transcripts; its Modified is the session's
	last      time.Time              // the newest stamp given
}

// Append implements [Store].
func (s *MemoryStore) Append(_ context.Context, key SessionKey, entries []json.RawMessage) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = make(map[SessionKey][]json.RawMessage)
		s.summaries = make(map[SessionKey]Summary)
	}
	for _, e := range entries {
		s.entries[key] = append(s.entries[key], bytes.Clone(e))
	}
	if key.Subpath == "" {
		sum := FoldSummary(s.summaries[key], key, entries)
		sum.Modified = s.stamp()
		s.summaries[key] = sum
	}
	return nil
}

// stamp returns the time, later than any it returned before, so that sessions
// written within one tick of the clock still have an order.
func (s *MemoryStore) stamp() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(s.last) {
		now = s.last.Add(time.Millisecond)
	}
	s.last = now
	return now
}

// Load implements [Store].
func (s *MemoryStore) Load(_ context.Context, key SessionKey) ([]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries []json.RawMessage
	for _, e := range s.entries[key] {
		entries = append(entries, bytes.Clone(e))
	}
	return entries, nil
}

// ListSessions implements [SessionLister].
func (s *MemoryStore) ListSessions(_ context.Context, project string) ([]SessionStamp, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stamps []SessionStamp
	for key, sum := range s.summaries {
		if key.Project == project {
			stamps = append(stamps, SessionStamp{Session: key.Session, Modified: sum.Modified})
		}
	}
	return stamps, nil
}

// ListSummaries implements [SummaryLister].
func (s *MemoryStore) ListSummaries(_ context.Context, project string) ([]Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sums []Summary
	for key, sum := range s.summaries {
		if key.Project == project {
			sum.Data = bytes.Clone(sum.Data)
			sums = append(sums, sum)
		}
	}
	return sums, nil
}

// ListSubkeys implements [SubkeyLister]. The result is sorted.
func (s *MemoryStore) ListSubkeys(_ context.Context, project, session string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var subpaths []string
	for key := range s.entries {
		if key.Project == project && key.Session == session && key.Subpath != "" {
			subpaths = append(subpaths, key.Subpath)
		}
	}
	slices.Sort(subpaths)
	return subpaths, nil
}

// DeleteTranscript implements [SessionDeleter].
func (s *MemoryStore) DeleteTranscript(_ context.Context, key SessionKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
	delete(s.summaries, key)
	if key.Subpath == "" {
		for k := range s.entries {
			if k.Project == key.Project && k.Session == key.Session {
				delete(s.entries, k)
			}
		}
	}
	return nil
}

// Len returns the number of sessions, not counting their subagents.
func (s *MemoryStore) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.summaries)
}

// Clear forgets everything.
func (s *MemoryStore) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.entries)
	clear(s.summaries)
}
