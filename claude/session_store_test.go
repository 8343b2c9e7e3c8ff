//go:build unix

package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// copies are CLIs that tell their host what they write to their files, and what
// they find there.
var copies = map[string]claudetest.Script{
	"writes a transcript": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		wrote := func(uuid string) {
			c.Send(map[string]any{
				"type": "transcript_mirror", "filePath": filepath.Join(projects(), "-p", storedID+".jsonl"),
				"entries": []any{map[string]any{"type": "user", "uuid": uuid}},
			})
		}
		wrote("1")
		wrote("2")
		c.SendRaw(success(p, "done"))
		atEnd(c)
		wrote("3")
	},
	"reads a transcript": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		say := func(key, text string) {
			c.Send(map[string]any{"type": "system", "subtype": "notification", "key": key, "text": text})
		}
		found, _ := filepath.Glob(filepath.Join(projects(), "*", "*.jsonl"))
		for _, file := range found {
			data, _ := os.ReadFile(file)
			say("file", filepath.Base(file)+" "+string(data))
		}
		say("args", strings.Join(c.Args(), "\n"))
		c.SendRaw(success(p, "done"))
		atEnd(c)
		_, err := os.Stat(os.Getenv("CLAUDE_CONFIG_DIR"))
		say("at the end", fmt.Sprint(err))
	},
}

// projects is where the fake CLI keeps its transcripts.
func projects() string {
	dir := os.Getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".claude")
	}
	return filepath.Join(dir, "projects")
}

// slowStore is a store that counts, and fails as long as it is told to.
type slowStore struct {
	claude.MemoryStore
	mu      sync.Mutex
	appends int
	fail    error
}

func (s *slowStore) Append(ctx context.Context, key claude.SessionKey, entries []json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.appends++; s.fail != nil {
		return s.fail
	}
	return s.MemoryStore.Append(ctx, key, entries)
}

func (s *slowStore) count() (appends, entries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, _ := s.Load(context.Background(), claude.SessionKey{Project: "-p", Session: storedID})
	return s.appends, len(all)
}

func TestSessionIsCopiedToTheStore(t *testing.T) {
	t.Parallel()
	// ask has one prompt answered and returns the messages, and what the store
	// held when the result was seen.
	ask := func(t *testing.T, opts claude.Options, store *slowStore) (messages []claude.Message, appends, entries int) {
		opts.Env = append(opts.Env, "HOME="+t.TempDir(), "CLAUDE_CONFIG_DIR=")
		s := start(t, opts)
		messages, err := collect(t, s.Prompt(bounded(t), "go"))
		if err != nil {
			t.Fatal(err)
		}
		if store != nil {
			appends, entries = store.count()
		}
		s.CloseInput() // now the CLI writes the rest
		rest, err := collect(t, s.Messages())
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, rest...)
		return messages, appends, entries
	}
	t.Run("items 321-323: up to the last frame", func(t *testing.T) {
		t.Parallel()
		opts, store := fake("writes a transcript"), &slowStore{}
		opts.Store = store
		messages, appends, entries := ask(t, opts, store)
		if len(messages) != 1 {
			t.Errorf("item 321: the consumer saw %d messages", len(messages))
		}
		if appends != 1 || entries != 2 {
			t.Errorf("item 322: at the result there were %d entries of %d appends", entries, appends)
		}
		if appends, entries := store.count(); appends != 2 || entries != 3 {
			t.Errorf("item 323: at the end there are %d entries of %d appends", entries, appends)
		}
	})
	t.Run("item 324: eagerly, frame by frame", func(t *testing.T) {
		t.Parallel()
		opts, store := fake("writes a transcript"), &slowStore{}
		opts.Store, opts.StoreMode = store, claude.MirrorEager
		if _, appends, entries := ask(t, opts, store); appends != 2 || entries != 2 {
			t.Errorf("at the result there were %d entries of %d appends", entries, appends)
		}
	})
	t.Run("item 325: without a store", func(t *testing.T) {
		t.Parallel()
		if messages, _, _ := ask(t, fake("writes a transcript"), nil); len(messages) != 1 {
			t.Errorf("the consumer saw %d messages", len(messages))
		}
	})
	t.Run("item 326: a store that fails", func(t *testing.T) {
		t.Parallel()
		opts, store := fake("writes a transcript"), &slowStore{fail: errors.New("the disk is full")}
		opts.Store = store
		messages, _, _ := ask(t, opts, store)
		failures := 0
		for _, m := range messages {
			if e, ok := m.(*claude.MirrorError); ok {
				failures++
				if e.ProjectKey != "-p" || e.StoreSessionID != storedID || e.Subpath != "" || !strings.Contains(e.Error, "the disk is full") || e.Subtype != "mirror_error" {
					t.Errorf("got %+v", e)
				}
			}
		}
		if failures != 2 || len(results(messages)) != 1 { // before the result and at the end
			t.Errorf("%d failures and %d results", failures, len(results(messages)))
		}
	})
}

// stored returns a store that holds a session of the directory.
func stored(t *testing.T, dir string) *claude.MemoryStore {
	t.Helper()
	store := &claude.MemoryStore{}
	entry := `{"type":"user","uuid":"u","sessionId":"` + storedID + `","message":{"role":"user","content":"before"}}`
	err := store.Append(t.Context(), claude.SessionKey{Project: claude.ProjectKey(dir), Session: storedID}, []json.RawMessage{json.RawMessage(entry)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestSessionIsResumedFromTheStore(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	resumes := "--resume=" + storedID
	for _, tc := range []struct {
		name    string
		change  func(*claude.Options)
		arg     string // among the arguments; empty means that none is about a conversation
		written bool   // the CLI finds the conversation
	}{
		{"by its id", func(o *claude.Options) { o.Store, o.Resume = stored(t, dir), storedID }, resumes, true},
		{"the last one", func(o *claude.Options) { o.Store, o.Continue = stored(t, dir), true }, resumes, true},
		{"none", func(o *claude.Options) { o.Store = stored(t, dir) }, "", false},
		{"without a store", func(o *claude.Options) { o.Continue = true }, "--continue", false},
	} {
		t.Run("item 339: "+tc.name, func(t *testing.T) {
			t.Parallel()
			opts := fake("reads a transcript")
			opts.Dir, opts.Env = dir, append(opts.Env, "HOME="+t.TempDir(), "CLAUDE_CONFIG_DIR=")
			tc.change(&opts)
			messages, err := collect(t, claude.Query(bounded(t), "go", opts))
			if err != nil {
				t.Fatal(err)
			}
			var about []string
			for arg := range strings.SplitSeq(strings.Join(notes(messages, "args"), ""), "\n") {
				if strings.HasPrefix(arg, "--resume") || strings.HasPrefix(arg, "--continue") {
					about = append(about, arg)
				}
			}
			if strings.Join(about, " ") != tc.arg {
				t.Errorf("the arguments are %q, want %q", about, tc.arg)
			}
			files := notes(messages, "file")
			if tc.written && (len(files) != 1 || !strings.HasPrefix(files[0], storedID+".jsonl") || !strings.Contains(files[0], "before")) || !tc.written && len(files) != 0 {
				t.Errorf("the CLI finds %q", files)
			}
			if end := notes(messages, "at the end"); tc.written && fmt.Sprint(end) != "[<nil>]" {
				t.Errorf("item 341: when the CLI ends its folder is gone: %q", end)
			}
		})
	}
	t.Run("item 339: not for a process elsewhere", func(t *testing.T) {
		t.Parallel()
		var started claude.Command
		opts := claude.Options{Dir: dir, Store: stored(t, dir), Resume: storedID, Spawn: func(_ context.Context, c claude.Command) (claude.Process, error) {
			started = c
			return nil, errors.New("enough")
		}}
		if _, err := claude.Start(bounded(t), opts); err == nil {
			t.Fatal("it started")
		}
		if !slices.Contains(started.Args, resumes) {
			t.Errorf("the arguments are %q", started.Args)
		}
		if slices.ContainsFunc(started.Env, func(kv string) bool { return strings.Contains(kv, "claude-resume-") }) {
			t.Errorf("it is told of a folder of this machine: %q", started.Env)
		}
	})
}

// However a start or a session ends, the folder with the resumed conversation,
// which may hold credentials, does not stay.
func TestResumedFolderIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp) // so it does not run beside others
	dir := t.TempDir()
	resumed := func(script string) claude.Options {
		opts := fake(script)
		opts.Dir, opts.Store, opts.Resume, opts.Grace = dir, stored(t, dir), storedID, 100*time.Millisecond
		return opts
	}
	made := 0
	for _, tc := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"no such CLI", func(t *testing.T) {
			opts := resumed("echo")
			opts.Path = filepath.Join(dir, "nowhere")
			if _, err := claude.Start(bounded(t), opts); err == nil {
				t.Error("it started")
			}
		}},
		{"bad options", func(t *testing.T) {
			opts := resumed("echo")
			opts.MaxTurns = -1
			if _, err := claude.Start(bounded(t), opts); err == nil {
				t.Error("it started")
			}
		}},
		{"a program that does not run", func(t *testing.T) {
			opts := resumed("echo")
			opts.Path = filepath.Join(dir, "claude")
			if err := os.WriteFile(opts.Path, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := claude.Start(bounded(t), opts); err == nil {
				t.Error("it started")
			}
		}},
		{"a CLI that dies", func(t *testing.T) {
			if _, err := claude.Start(bounded(t), resumed("dies at once")); err == nil {
				t.Error("it started")
			}
		}},
		{"a CLI that is never ready", func(t *testing.T) {
			opts := resumed("never answers")
			opts.InitTimeout = 100 * time.Millisecond
			if _, err := claude.Start(bounded(t), opts); err == nil {
				t.Error("it started")
			}
		}},
		{"a start that is given up", func(t *testing.T) {
			ctx, stop := context.WithCancel(bounded(t))
			opts := resumed("never answers")
			opts.Stderr = func(string) { stop() } // it runs by now
			if _, err := claude.Start(ctx, opts); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}},
		{"a reader that leaves", func(t *testing.T) {
			for _, err := range claude.Query(bounded(t), "go", resumed("reads a transcript")) {
				if err != nil {
					t.Error(err)
				}
				if found, _ := os.ReadDir(tmp); len(found) > 0 {
					made++
				}
				break
			}
		}},
		{"a session that is closed", func(t *testing.T) { start(t, resumed("echo")).Close() }},
	} {
		t.Run("item 341: "+tc.name, func(t *testing.T) {
			tc.run(t)
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
	if made == 0 {
		t.Error("there never was such a folder: the test tests nothing")
	}
}
