package claudetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// TestStore tells whether a store keeps the contract of [claude.Store] and of
// those optional interfaces that it implements; it skips and names the others.
// Every subtest opens its own store, which must be empty.
func TestStore(t *testing.T, open func(t *testing.T) claude.Store) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"item 342: loads what was appended, in order", (*suite).roundTrip},
		{"item 343: knows nothing of unknown keys", (*suite).unknown},
		{"item 344: keeps the order of appends", (*suite).order},
		{"item 345: appending nothing does nothing", (*suite).appendNothing},
		{"item 346: keeps subpaths apart", (*suite).subpaths},
		{"item 347: keeps projects apart", (*suite).projects},
		{"item 348: lists sessions with their time", (*suite).list},
		{"item 349: lists no subpaths as sessions", (*suite).listNoSubpaths},
		{"item 350: deletes a session", (*suite).deleteSession},
		{"item 351: deletes a session's subpaths with it", (*suite).deleteCascades},
		{"item 352: deletes one subpath alone", (*suite).deleteSubpath},
		{"item 353: lists the subpaths of one session", (*suite).listSubkeys},
		{"item 354: lists no main transcript as subpath", (*suite).listSubkeysNoMain},
		{"item 355: maintains summaries", (*suite).summaries},
		{"item 357: gives copies away", (*suite).copies},
		{"appends at once lose nothing", (*suite).concurrent},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&suite{T: t, store: open(t)})
		})
	}
}

type suite struct {
	*testing.T
	store claude.Store
}

// Two projects and two sessions with nothing in common.
const (
	projectA = "-home-a"
	projectB = "-home-b"
	session1 = "11111111-1111-4111-8111-111111111111"
	session2 = "22222222-2222-4222-8222-222222222222"
)

func key(project, session string, subpath ...string) claude.SessionKey {
	k := claude.SessionKey{Project: project, Session: session}
	if len(subpath) > 0 {
		k.Subpath = subpath[0]
	}
	return k
}

// entry returns an entry with a text that is awkward to store.
func entry(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"user","uuid":"%08d-0000-4000-8000-000000000000","n":%d,`+
		`"message":{"role":"user","content":"say \"%d\"\n<b>ä 😀\u2028 \\ /"},"nothing":null,"list":[1,2.5,true]}`, n, n, n)
}

func (s *suite) append(k claude.SessionKey, entries ...json.RawMessage) {
	s.Helper()
	if err := s.store.Append(s.Context(), k, entries); err != nil {
		s.Fatalf("Append(%v): %v", k, err)
	}
}

// wantLoad fails unless the store has exactly these entries.
func (s *suite) wantLoad(k claude.SessionKey, want ...json.RawMessage) {
	s.Helper()
	got, err := s.store.Load(s.Context(), k)
	if err != nil {
		s.Fatalf("Load(%v): %v", k, err)
	}
	if len(want) == 0 && got != nil {
		s.Fatalf("Load(%v) = %d entries, want nil", k, len(got))
	}
	if g, w := values(s.T, got), values(s.T, want); !reflect.DeepEqual(g, w) {
		s.Fatalf("Load(%v) =\n%v, want\n%v", k, g, w)
	}
}

// values decodes entries, which need only be equal in value.
func values(t *testing.T, entries []json.RawMessage) []any {
	t.Helper()
	var all []any
	for _, e := range entries {
		var v any
		if err := json.Unmarshal(e, &v); err != nil {
			t.Fatalf("entry %s: %v", e, err)
		}
		all = append(all, v)
	}
	return all
}

func (s *suite) roundTrip() {
	s.append(key(projectA, session1), entry(1), entry(2), entry(3))
	s.wantLoad(key(projectA, session1), entry(1), entry(2), entry(3))
}

func (s *suite) unknown() {
	s.wantLoad(key(projectA, session1))
	s.append(key(projectA, session1), entry(1))
	s.wantLoad(key(projectA, session2))
	s.wantLoad(key(projectA, session1, "subagents/agent-x"))
}

func (s *suite) order() {
	var want []json.RawMessage
	for n := range 20 {
		s.append(key(projectA, session1), entry(n))
		want = append(want, entry(n))
	}
	s.wantLoad(key(projectA, session1), want...)
}

func (s *suite) appendNothing() {
	s.append(key(projectA, session1))
	s.wantLoad(key(projectA, session1))
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session1))
	s.wantLoad(key(projectA, session1), entry(1))
}

func (s *suite) subpaths() {
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session1, "subagents/agent-x"), entry(2))
	s.append(key(projectA, session1, "subagents/workflows/run/agent-x"), entry(3))
	s.wantLoad(key(projectA, session1), entry(1))
	s.wantLoad(key(projectA, session1, "subagents/agent-x"), entry(2))
	s.wantLoad(key(projectA, session1, "subagents/workflows/run/agent-x"), entry(3))
}

func (s *suite) projects() {
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectB, session1), entry(2))
	s.wantLoad(key(projectA, session1), entry(1))
	s.wantLoad(key(projectB, session1), entry(2))
}

// concurrent appends to one transcript; the store need only keep each append
// whole.
func (s *suite) concurrent() {
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				if err := s.store.Append(s.Context(), key(projectA, session1), []json.RawMessage{entry(w*each + n)}); err != nil {
					s.Errorf("Append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.store.Load(s.Context(), key(projectA, session1))
	if err != nil {
		s.Fatal(err)
	}
	seen := make(map[int]bool)
	for _, e := range got {
		var v struct{ N int }
		if err := json.Unmarshal(e, &v); err != nil {
			s.Fatalf("entry %s: %v", e, err)
		}
		seen[v.N] = true
	}
	if len(got) != writers*each || len(seen) != writers*each {
		s.Errorf("loaded %d entries, %d of them different, want %d", len(got), len(seen), writers*each)
	}
}

func (s *suite) copies() {
	given := entry(1)
	s.append(key(projectA, session1), given)
	clear(given)
	got, err := s.store.Load(s.Context(), key(projectA, session1))
	if err != nil || len(got) != 1 {
		s.Fatalf("Load = %d entries, %v", len(got), err)
	}
	clear(got[0])
	s.wantLoad(key(projectA, session1), entry(1))
}

// supported skips the test if the store has not the optional part, or says it
// cannot serve it (item 356).
func supported[T any](s *suite, probe func(T) error) T {
	s.Helper()
	part, ok := s.store.(T)
	name := reflect.TypeFor[T]().Name()
	if !ok {
		s.Skipf("%T is no %s", s.store, name)
	}
	if err := probe(part); errors.Is(err, claude.ErrStoreUnsupported) {
		s.Skipf("%T does not serve %s", s.store, name)
	}
	return part
}

func (s *suite) lister() claude.SessionLister {
	s.Helper()
	return supported(s, func(l claude.SessionLister) error {
		_, err := l.ListSessions(s.Context(), projectA)
		return err
	})
}

func (s *suite) subkeys() claude.SubkeyLister {
	s.Helper()
	return supported(s, func(l claude.SubkeyLister) error {
		_, err := l.ListSubkeys(s.Context(), projectA, session1)
		return err
	})
}

func (s *suite) deleter() claude.SessionDeleter {
	s.Helper()
	return supported(s, func(d claude.SessionDeleter) error {
		return d.DeleteTranscript(s.Context(), key(projectA, session1))
	})
}

func (s *suite) wantSessions(l claude.SessionLister, project string, want ...string) []claude.SessionStamp {
	s.Helper()
	stamps, err := l.ListSessions(s.Context(), project)
	if err != nil {
		s.Fatalf("ListSessions(%s): %v", project, err)
	}
	var got []string
	for _, st := range stamps {
		got = append(got, st.Session)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Fatalf("ListSessions(%s) = %q, want %q", project, got, want)
	}
	return stamps
}

func (s *suite) list() {
	l := s.lister()
	s.wantSessions(l, projectA)
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session2), entry(2))
	s.append(key(projectB, session1), entry(3))
	for _, st := range s.wantSessions(l, projectA, session1, session2) {
		// A clock elsewhere may be off by some, but not by years.
		if d := time.Since(st.Modified).Abs(); d > 24*time.Hour {
			s.Errorf("session %s was modified at %v, want about now", st.Session, st.Modified)
		}
	}
	s.wantSessions(l, projectB, session1)
}

func (s *suite) listNoSubpaths() {
	l := s.lister()
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session1, "subagents/agent-x"), entry(2))
	s.append(key(projectA, session2, "subagents/agent-x"), entry(2))
	s.wantSessions(l, projectA, session1)
}

func (s *suite) delete(d claude.SessionDeleter, k claude.SessionKey) {
	s.Helper()
	if err := d.DeleteTranscript(s.Context(), k); err != nil {
		s.Fatalf("DeleteTranscript(%v): %v", k, err)
	}
}

func (s *suite) deleteSession() {
	d := s.deleter()
	s.delete(d, key(projectA, session1)) // unknown
	s.append(key(projectA, session1), entry(1))
	s.delete(d, key(projectA, session1))
	s.wantLoad(key(projectA, session1))
	if l, ok := s.store.(claude.SessionLister); ok {
		s.wantSessions(l, projectA)
	}
	s.append(key(projectA, session1), entry(2))
	s.wantLoad(key(projectA, session1), entry(2))
}

func (s *suite) deleteCascades() {
	d := s.deleter()
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session1, "subagents/agent-x"), entry(2))
	s.append(key(projectA, session2), entry(3))
	s.append(key(projectA, session2, "subagents/agent-x"), entry(4))
	s.append(key(projectB, session1), entry(5))
	s.delete(d, key(projectA, session1))
	s.wantLoad(key(projectA, session1))
	s.wantLoad(key(projectA, session1, "subagents/agent-x"))
	s.wantLoad(key(projectA, session2), entry(3))
	s.wantLoad(key(projectA, session2, "subagents/agent-x"), entry(4))
	s.wantLoad(key(projectB, session1), entry(5))
}

func (s *suite) deleteSubpath() {
	d := s.deleter()
	s.append(key(projectA, session1), entry(1))
	s.append(key(projectA, session1, "subagents/agent-x"), entry(2))
	s.append(key(projectA, session1, "subagents/agent-y"), entry(3))
	s.delete(d, key(projectA, session1, "subagents/agent-x"))
	s.wantLoad(key(projectA, session1), entry(1))
	s.wantLoad(key(projectA, session1, "subagents/agent-x"))
	s.wantLoad(key(projectA, session1, "subagents/agent-y"), entry(3))
}

func (s *suite) wantSubkeys(l claude.SubkeyLister, project, session string, want ...string) {
	s.Helper()
	got, err := l.ListSubkeys(s.Context(), project, session)
	if err != nil {
		s.Fatalf("ListSubkeys(%s, %s): %v", project, session, err)
	}
	got = slices.Sorted(slices.Values(got))
	if !slices.Equal(got, want) {
		s.Fatalf("ListSubkeys(%s, %s) = %q, want %q", project, session, got, want)
	}
}

func (s *suite) listSubkeys() {
	l := s.subkeys()
	s.append(key(projectA, session1, "subagents/agent-x"), entry(1))
	s.append(key(projectA, session1, "subagents/workflows/run/agent-y"), entry(2))
	s.append(key(projectA, session2, "subagents/agent-z"), entry(3))
	s.append(key(projectB, session1, "subagents/agent-z"), entry(3))
	s.wantSubkeys(l, projectA, session1, "subagents/agent-x", "subagents/workflows/run/agent-y")
}

func (s *suite) listSubkeysNoMain() {
	l := s.subkeys()
	s.wantSubkeys(l, projectA, session1)
	s.append(key(projectA, session1), entry(1))
	s.wantSubkeys(l, projectA, session1)
}

func (s *suite) summaries() {
	l := supported(s, func(l claude.SummaryLister) error {
		_, err := l.ListSummaries(s.Context(), projectA)
		return err
	})
	summary := func(ctx context.Context, project string) claude.Summary {
		s.Helper()
		sums, err := l.ListSummaries(ctx, project)
		if err != nil {
			s.Fatalf("ListSummaries(%s): %v", project, err)
		}
		if len(sums) != 1 || sums[0].Session != session1 {
			s.Fatalf("ListSummaries(%s) = %+v, want one of %s", project, sums, session1)
		}
		return sums[0]
	}
	main := key(projectA, session1)
	s.append(main, entry(1))
	s.append(main, json.RawMessage(`{"type":"tag","tag":"done"}`))
	s.append(key(projectB, session1), entry(2))

	got := summary(s.Context(), projectA)
	want := claude.FoldSummary(claude.Summary{}, main, []json.RawMessage{entry(1)})
	want = claude.FoldSummary(want, main, []json.RawMessage{json.RawMessage(`{"type":"tag","tag":"done"}`)})
	if g, w := values(s.T, []json.RawMessage{got.Data}), values(s.T, []json.RawMessage{want.Data}); !reflect.DeepEqual(g, w) {
		s.Errorf("summary is %v, want %v", g, w)
	}
	if list, ok := s.store.(claude.SessionLister); ok {
		for _, st := range s.wantSessions(list, projectA, session1) {
			if got.Modified.Before(st.Modified) {
				s.Errorf("summary of %v is older than its session of %v", got.Modified, st.Modified)
			}
		}
	}
	if again := claude.FoldSummary(got, main, nil); !again.Modified.Equal(got.Modified) {
		s.Errorf("folding again changed the time from %v to %v", got.Modified, again.Modified)
	}

	s.append(key(projectA, session1, "subagents/agent-x"), json.RawMessage(`{"type":"tag","tag":"other"}`))
	if after := summary(s.Context(), projectA); !reflect.DeepEqual(values(s.T, []json.RawMessage{after.Data}), values(s.T, []json.RawMessage{got.Data})) {
		s.Errorf("a subagent changed the summary to %s", after.Data)
	}

	if d, ok := s.store.(claude.SessionDeleter); ok {
		s.delete(d, main)
		if sums, err := l.ListSummaries(s.Context(), projectA); err != nil || len(sums) != 0 {
			s.Errorf("after deleting, ListSummaries = %+v, %v", sums, err)
		}
		summary(s.Context(), projectB)
	}
}
