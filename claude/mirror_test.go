package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testProjects = "/config/projects"

func TestTranscriptKey(t *testing.T) {
	for _, test := range []struct {
		name, projects, path string
		want                 SessionKey // zero means none
	}{
		{"main", testProjects, "/config/projects/p/s.jsonl", SessionKey{Project: "p", Session: "s"}},
		{"subagent", testProjects, "/config/projects/p/s/subagents/agent-x.jsonl", SessionKey{"p", "s", "subagents/agent-x"}},
		{"nested", testProjects, "/config/projects/p/s/subagents/workflows/r/agent-x.jsonl", SessionKey{"p", "s", "subagents/workflows/r/agent-x"}},
		{"outside", testProjects, "/other/projects/p/s.jsonl", SessionKey{}},
		{"the way up", testProjects, "/config/projects/../p/s.jsonl", SessionKey{}},
		{"sibling with the same start", testProjects, "/config/projects2/p/s.jsonl", SessionKey{}},
		{"too few parts", testProjects, "/config/projects/s.jsonl", SessionKey{}},
		{"the folder itself", testProjects, "/config/projects", SessionKey{}},
		{"three parts", testProjects, "/config/projects/p/s/x.jsonl", SessionKey{}},
		{"main without .jsonl", testProjects, "/config/projects/p/s", SessionKey{}},
		{"main without a name", testProjects, "/config/projects/p/.jsonl", SessionKey{}},
		{"relative", testProjects, "p/s.jsonl", SessionKey{}},
		{"trailing separator", testProjects + "/", "/config/projects/p/s.jsonl", SessionKey{Project: "p", Session: "s"}},
	} {
		t.Run("item 310: "+test.name, func(t *testing.T) {
			got, ok := transcriptKey(filepath.Clean(test.projects), test.path)
			if got != test.want || ok != (test.want != SessionKey{}) {
				t.Errorf("got %v, %v, want %v", got, ok, test.want)
			}
		})
	}
	t.Run("item 310: the folder's real path", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("no links on Windows")
		}
		dir := t.TempDir()
		real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
		if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, link)); err != nil {
			t.Fatal(err)
		}
		m := newMirror(nil, link, MirrorBatched, nil)
		for _, base := range []string{real, link} {
			if _, ok := m.key(filepath.Join(base, "p", "s.jsonl")); !ok {
				t.Errorf("no key below %s", base)
			}
		}
	})
}

// fakeStore records appends, and does what fail says first.
type fakeStore struct {
	fail func(ctx context.Context, attempt int) error

	mu       sync.Mutex
	attempts int
	active   int
	overlap  bool
	appends  []string // "session/subpath: 1 2 3"
}

func (s *fakeStore) Append(ctx context.Context, key SessionKey, entries []json.RawMessage) error {
	s.mu.Lock()
	s.attempts++
	attempt := s.attempts
	s.active++
	s.overlap = s.overlap || s.active > 1
	s.mu.Unlock()
	var err error
	if s.fail != nil {
		err = s.fail(ctx, attempt)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if err != nil {
		return err
	}
	var text []string
	for _, e := range entries {
		text = append(text, string(e))
	}
	s.appends = append(s.appends, strings.TrimSuffix(key.Session+"/"+key.Subpath, "/")+": "+strings.Join(text, " "))
	return nil
}

func (s *fakeStore) Load(context.Context, SessionKey) ([]json.RawMessage, error) { return nil, nil }

func (s *fakeStore) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.appends)
}

func (s *fakeStore) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

// testMirror is a mirror whose errors are collected.
type testMirror struct {
	*mirror
	errs []string
}

func newTestMirror(s Store, mode MirrorMode) *testMirror {
	m := new(testMirror)
	m.mirror = newMirror(s, testProjects, mode, func(k SessionKey, err error) {
		m.errs = append(m.errs, fmt.Sprintf("%v: %v", k, err))
	})
	return m
}

func (m *testMirror) send(session string, entries ...string) {
	var raw []json.RawMessage
	for _, e := range entries {
		raw = append(raw, json.RawMessage(e))
	}
	m.add(testProjects+"/p/"+session+".jsonl", raw)
}

func wantAppends(t *testing.T, s *fakeStore, want ...string) {
	t.Helper()
	if got := s.got(); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("appends are %q, want %q", got, want)
	}
}

func TestMirror(t *testing.T) {
	// Every case runs in a bubble: time passes when nothing else can happen,
	// and a goroutine that is left behind fails the test.
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	run("item 312: one append per flush", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1", "2")
		m.send("a")
		synctest.Wait()
		wantAppends(t, s)
		m.flush(t.Context())
		wantAppends(t, s, "a: 1 2")
		m.flush(t.Context())
		wantAppends(t, s, "a: 1 2")
	})
	run("item 313: frames of a file become one append, in order", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1")
		m.send("b", "2")
		m.send("a", "3")
		m.send("a/subagents/agent-x", "4")
		m.flush(t.Context())
		wantAppends(t, s, "a: 1 3", "b: 2", "a/subagents/agent-x: 4")
	})
	run("item 314: more than 500 entries do not wait", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorBatched)
		m.send("a", slices.Repeat([]string{"1"}, 500)...)
		synctest.Wait()
		wantAppends(t, s)
		m.send("a", "2")
		synctest.Wait()
		if got := s.got(); len(got) != 1 || len(strings.Fields(got[0])) != 502 {
			t.Errorf("got %d appends, want one of 501 entries", len(got))
		}
		m.send("a", "3")
		synctest.Wait()
		if len(s.got()) != 1 {
			t.Error("the count did not start again")
		}
		m.close(t.Context())
	})
	run("item 314: more than 1 MiB does not wait", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorBatched)
		m.send("a", strings.Repeat("x", 1<<20))
		synctest.Wait()
		wantAppends(t, s)
		m.send("a", "y")
		synctest.Wait()
		if len(s.got()) != 1 {
			t.Errorf("got %d appends, want 1", len(s.got()))
		}
	})
	run("items 315, 317: three failures are one error", func(t *testing.T) {
		s := &fakeStore{fail: func(context.Context, int) error { return errors.New("disk full") }}
		m := newTestMirror(s, MirrorBatched)
		start := time.Now()
		m.send("a", "1")
		if err := m.flush(t.Context()); err != nil {
			t.Errorf("flush: %v", err)
		}
		if want := []string{"p/a: disk full"}; !slices.Equal(m.errs, want) || s.tried() != 3 {
			t.Errorf("errors are %q after %d attempts, want %q after 3", m.errs, s.tried(), want)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v, want 200ms and 800ms", took)
		}
	})
	run("item 317: two failures are none", func(t *testing.T) {
		s := &fakeStore{fail: func(_ context.Context, attempt int) error {
			if attempt < 3 {
				return errors.New("busy")
			}
			return nil
		}}
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1")
		m.flush(t.Context())
		wantAppends(t, s, "a: 1")
		if m.errs != nil {
			t.Errorf("errors are %q", m.errs)
		}
	})
	run("item 316: a timeout is not tried again", func(t *testing.T) {
		s := &fakeStore{fail: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
		m := newTestMirror(s, MirrorBatched)
		start := time.Now()
		m.send("a", "1")
		m.flush(t.Context())
		if s.tried() != 1 || len(m.errs) != 1 || !strings.Contains(m.errs[0], "in time") {
			t.Errorf("errors are %q after %d attempts", m.errs, s.tried())
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %v, want a minute", took)
		}
	})
	run("item 316: a store that ignores its context is left behind", func(t *testing.T) {
		release := make(chan struct{})
		s := &fakeStore{fail: func(context.Context, int) error { <-release; return nil }}
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1")
		m.close(t.Context())
		if s.tried() != 1 || len(m.errs) != 1 {
			t.Errorf("errors are %q after %d attempts", m.errs, s.tried())
		}
		close(release)
	})
	run("item 318: close flushes and ends", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1")
		if err := m.close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		m.send("a", "2")
		m.flush(t.Context())
		wantAppends(t, s, "a: 1")
	})
	run("item 318: a panic is an error like others", func(t *testing.T) {
		s := &fakeStore{fail: func(context.Context, int) error { panic("oh no") }}
		m := newTestMirror(s, MirrorBatched)
		m.send("a", "1")
		m.flush(t.Context())
		if len(m.errs) != 1 || !strings.Contains(m.errs[0], "oh no") {
			t.Errorf("errors are %q", m.errs)
		}
	})
	run("item 318: other files are dropped", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorEager)
		m.add("/elsewhere/p/s.jsonl", []json.RawMessage{[]byte("1")})
		m.close(t.Context())
		wantAppends(t, s)
		if m.errs != nil {
			t.Errorf("errors are %q", m.errs)
		}
	})
	run("item 319: appends never overlap, and flush waits for all", func(t *testing.T) {
		s := &fakeStore{fail: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
		m := newTestMirror(s, MirrorEager)
		m.send("a", "1")
		synctest.Wait()
		m.send("a", "2")
		m.send("b", "3")
		m.flush(t.Context())
		wantAppends(t, s, "a: 1", "a: 2", "b: 3")
		if s.overlap {
			t.Error("appends overlapped")
		}
	})
	run("item 319: flush does not wait for what came after it", func(t *testing.T) {
		s := &fakeStore{fail: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
		m := newTestMirror(s, MirrorEager)
		m.send("a", "0")
		go func() {
			for range 20 {
				time.Sleep(time.Second / 2)
				m.send("a", "later")
			}
		}()
		start := time.Now()
		m.flush(t.Context())
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		m.close(t.Context())
		time.Sleep(time.Minute)
	})
	run("items 320, 324: eager sends each frame by itself", func(t *testing.T) {
		s := new(fakeStore)
		m := newTestMirror(s, MirrorEager)
		m.send("a", "1", "2")
		m.send("a", "3")
		synctest.Wait()
		wantAppends(t, s, "a: 1 2", "a: 3")
	})
	run("add never waits", func(t *testing.T) {
		s := &fakeStore{fail: func(context.Context, int) error { time.Sleep(30 * time.Second); return nil }}
		m := newTestMirror(s, MirrorEager)
		start := time.Now()
		for range 100 {
			m.send("a", "1")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		// Close gives up: the one append under way and all that wait.
		if err := m.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("closing took until %v", took)
		}
		if len(m.errs) != 100 {
			t.Errorf("%d errors, want 100", len(m.errs))
		}
		time.Sleep(time.Hour) // the abandoned append ends by itself
	})
}
