package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// newMaterialHome returns options to resume from an empty store, with a
// configuration folder and a folder for temporary ones that tests can look at.
func newMaterialHome(t *testing.T) (materialOptions, *MemoryStore, string) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp)
	t.Setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "")
	s := new(MemoryStore)
	return materialOptions{Store: s, Dir: "/x/work", ConfigDir: t.TempDir()}, s, temp
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func mustMaterialize(t *testing.T, opts materialOptions) *material {
	t.Helper()
	m, err := materialize(t.Context(), opts)
	if err != nil || m == nil {
		t.Fatalf("materialize = %v, %v", m, err)
	}
	t.Cleanup(func() { m.remove() })
	return m
}

// read returns a file of the new configuration folder, "" if there is none.
func (m *material) read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{m.ConfigDir}, parts...)...))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func TestMaterializeNothing(t *testing.T) {
	opts, s, temp := newMaterialHome(t)
	s.Append(t.Context(), storeKey("not-a-uuid", "/x/work"), rawEntries("{}"))
	for name, change := range map[string]func(*materialOptions){
		"no store":               func(o *materialOptions) { o.Store, o.Resume = nil, sid(1) },
		"nothing to resume":      func(o *materialOptions) {},
		"not a UUID":             func(o *materialOptions) { o.Resume = "not-a-uuid" },
		"unknown":                func(o *materialOptions) { o.Resume = sid(1) },
		"continue with no UUIDs": func(o *materialOptions) { o.Continue = true },
	} {
		t.Run("item 328: "+name, func(t *testing.T) {
			o := opts
			change(&o)
			if m, err := materialize(t.Context(), o); m != nil || err != nil {
				t.Errorf("got %v, %v", m, err)
			}
			wantEmpty(t, temp)
		})
	}
}

func TestMaterialize(t *testing.T) {
	opts, s, temp := newMaterialHome(t)
	opts.Resume = sid(1)
	lines := []string{user(1, 0, "a <b> & c"), assistant(2, 1, "b")}
	s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(lines...))
	s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries("{\n\"tag\": \"x\",\n\"n\": 12345678901234567890, \"type\": \"tag\"}"))
	for subpath, lines := range map[string][]string{
		"subagents/agent-x":             {`{"toolUseId":"old","type":"agent_metadata"}`, user(1, 0, "x"), `{"type":"agent_metadata","toolUseId":"toolu_1"}`},
		"subagents/workflows/r/agent-y": {user(1, 0, "y")},
		"/abs":                          {"{}"}, "../up": {"{}"}, "a/../../up": {"{}"}, "C:drive": {"{}"}, "nul\x00": {"{}"}, "a//b": {"{}"},
	} {
		key := storeKey(sid(1), "/x/work")
		key.Subpath = subpath
		s.Append(t.Context(), key, rawEntries(lines...))
	}
	m := mustMaterialize(t, opts)
	project := pathKey("/x/work")
	t.Run("items 329, 336: one line per entry", func(t *testing.T) {
		got := m.read(t, "projects", project, sid(1)+".jsonl")
		split := strings.Split(got, "\n")
		if m.Session != sid(1) || len(split) != 4 || split[3] != "" {
			t.Fatalf("session %s is %q", m.Session, got)
		}
		for i, want := range lines {
			var g, w any
			if json.Unmarshal([]byte(split[i]), &g) != nil || json.Unmarshal([]byte(want), &w) != nil || !reflect.DeepEqual(g, w) {
				t.Errorf("line %d is %s, want %s", i, split[i], want)
			}
		}
		// The type comes first, and numbers keep their digits.
		if want := `{"type":"tag","tag":"x","n":12345678901234567890}`; split[2] != want {
			t.Errorf("line 2 is %s, want %s", split[2], want)
		}
	})
	t.Run("item 337: subagents", func(t *testing.T) {
		if got := m.read(t, "projects", project, sid(1), "subagents", "agent-x.jsonl"); strings.Count(got, "\n") != 1 || strings.Contains(got, agentMetadata) {
			t.Errorf("x is %q", got)
		}
		if got := m.read(t, "projects", project, sid(1), "subagents", "agent-x.meta.json"); got != `{"toolUseId":"toolu_1"}` {
			t.Errorf("x is from %q", got)
		}
		if m.read(t, "projects", project, sid(1), "subagents", "workflows", "r", "agent-y.jsonl") == "" {
			t.Error("y is missing")
		}
		var files []string
		filepath.WalkDir(temp, func(name string, e fs.DirEntry, err error) error {
			if !e.IsDir() {
				files = append(files, filepath.Base(name))
			}
			return err
		})
		slices.Sort(files)
		if want := []string{sid(1) + ".jsonl", "agent-x.jsonl", "agent-x.meta.json", "agent-y.jsonl"}; !slices.Equal(files, want) {
			t.Errorf("files are %q, want %q", files, want)
		}
	})
	t.Run("item 332: modes", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("no modes on Windows")
		}
		filepath.WalkDir(m.ConfigDir, func(name string, e fs.DirEntry, _ error) error {
			info, err := e.Info()
			if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()]; err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
			return nil
		})
	})
	t.Run("item 337: a store that cannot list them", func(t *testing.T) {
		o := opts
		o.Store = listerOnly{s, s}
		if m := mustMaterialize(t, o); m.read(t, "projects", project, sid(1), "subagents", "agent-x.jsonl") != "" {
			t.Error("x is there")
		}
	})
	t.Run("7.2: in the folder that the environment forces on the CLI", func(t *testing.T) {
		t.Setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "shared")
		if mustMaterialize(t, opts).read(t, "projects", "shared", sid(1)+".jsonl") == "" {
			t.Error("it is not there")
		}
	})
	t.Run("item 329: removed", func(t *testing.T) {
		if err := m.remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(m.ConfigDir); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestMaterializeContinue(t *testing.T) {
	add := func(s *MemoryStore, n int, lines ...string) {
		s.Append(context.Background(), storeKey(sid(n), "/x/work"), rawEntries(lines...))
	}
	t.Run("item 335: the newest that is no sidechain", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		opts.Continue = true
		add(s, 3, user(1, 0, "a"))
		add(s, 1, user(1, 0, "b"))
		add(s, 2, user(1, 0, "c", "isSidechain", true))
		if m := mustMaterialize(t, opts); m.Session != sid(1) {
			t.Errorf("got %s", m.Session)
		}
	})
	t.Run("item 335: only sidechains", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		opts.Continue = true
		add(s, 2, user(1, 0, "c", "isSidechain", true))
		if m, err := materialize(t.Context(), opts); m != nil || err != nil {
			t.Errorf("got %v, %v", m, err)
		}
	})
	t.Run("item 335: ties", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		opts.Continue = true
		add(s, 1, user(1, 0, "a"))
		add(s, 2, user(1, 0, "b"))
		at := time.Unix(1, 0)
		for _, order := range [][]SessionStamp{{{sid(1), at}, {sid(2), at}}, {{sid(2), at}, {sid(1), at}}} {
			opts.Store = &countingStore{MemoryStore: s, stamps: order}
			if m := mustMaterialize(t, opts); m.Session != sid(2) {
				t.Errorf("got %s", m.Session)
			}
		}
	})
	t.Run("item 358: a store that cannot list", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		opts.Continue = true
		opts.Store = struct{ Store }{s}
		if _, err := materialize(t.Context(), opts); !errors.Is(err, ErrStoreUnsupported) {
			t.Errorf("got %v", err)
		}
		opts.Resume = sid(1) // needs no listing
		if _, err := materialize(t.Context(), opts); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestMaterializeSeeds(t *testing.T) {
	seed := func(t *testing.T, opts materialOptions, s *MemoryStore, files map[string]string) *material {
		t.Helper()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(opts.ConfigDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		opts.Resume = sid(1)
		s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(user(1, 0, "a")))
		return mustMaterialize(t, opts)
	}
	settings := `{ "model": "x",  "env": {"A": "1"} }` + "\n"
	for _, test := range []struct{ name, file, text, want string }{
		{"item 330: no refresh token", ".credentials.json", `{"claudeAiOauth":{"accessToken":"a","refreshToken":"secret"},"other":1}`, `{"claudeAiOauth":{"accessToken":"a"},"other":1}`},
		{"item 330: nor a hidden one", ".credentials.json", `{"claudeAiOauth":{"refreshToken":"s1","refreshToken":"s2"},"claudeAiOauth":{"refreshToken":"s3"}}`, `{"claudeAiOauth":{}}`},
		{"item 330: nor in what cannot be read", ".credentials.json", `{"claudeAiOauth":{"refreshToken":"secret"`, ""},
		{"item 331: global configuration", ".claude.json", `{"a": 1}`, `{"a": 1}`},
		{"7.8: older global configuration", ".config.json", `{"a": 1}`, `{"a": 1}`},
		{"item 332: settings as they are", "settings.json", settings, settings},
		{"item 332: cowork settings too", "cowork_settings.json", settings, settings},
		{"item 334: no plugins", "settings.json", `{"enabledPlugins":{"a":true},"extraKnownMarketplaces":{},"additionalMarketplaces":[],"model":"x"}`, `{"model":"x"}`},
		{"item 334: no folder of its own", "settings.json", `{"env":{"CLAUDE_CONFIG_DIR":"/x","A":"1"}}`, `{"env":{"A":"1"}}`},
		{"item 334: byte order mark", "settings.json", "\ufeff" + `{"enabledPlugins":{},"a":1}`, `{"a":1}`},
		{"item 334: malformed", "settings.json", `{"enabledPlugins":`, `{"enabledPlugins":`},
		{"item 334: not an object", "settings.json", `[1]`, `[1]`},
		{"item 334: numbers beyond all bounds", "settings.json", `{"enabledPlugins":{},"n":1e999}`, `{"n":1e999}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts, s, _ := newMaterialHome(t)
			m := seed(t, opts, s, map[string]string{test.file: test.text})
			if got := m.read(t, test.file); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			files, _ := os.ReadDir(m.ConfigDir)
			if want := map[bool]int{true: 1, false: 2}[test.want == ""]; len(files) != want {
				t.Errorf("files are %v", files)
			}
		})
	}
	t.Run("items 330, 331: the home's global configuration", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		home := t.TempDir()
		t.Setenv("HOME", home)
		t.Setenv("USERPROFILE", home)
		t.Setenv("CLAUDE_CONFIG_DIR", "")
		config := filepath.Join(home, ".claude")
		os.Mkdir(config, 0o700)
		os.WriteFile(filepath.Join(home, ".claude.json"), []byte("home"), 0o600)
		os.WriteFile(filepath.Join(config, ".claude.json"), []byte("config"), 0o600)
		opts.ConfigDir = ""
		opts.Resume = sid(1)
		s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(user(1, 0, "a")))
		if got := mustMaterialize(t, opts).read(t, ".claude.json"); got != "home" {
			t.Errorf("without CLAUDE_CONFIG_DIR got that of %q", got)
		}
		t.Setenv("CLAUDE_CONFIG_DIR", config)
		if got := mustMaterialize(t, opts).read(t, ".claude.json"); got != "config" {
			t.Errorf("with CLAUDE_CONFIG_DIR got that of %q", got)
		}
	})
	t.Run("item 333: pipes and unreadable files are skipped", func(t *testing.T) {
		opts, s, _ := newMaterialHome(t)
		makeFIFO(t, filepath.Join(opts.ConfigDir, "settings.json"))
		os.Mkdir(filepath.Join(opts.ConfigDir, ".claude.json"), 0o700)
		os.WriteFile(filepath.Join(opts.ConfigDir, "target"), []byte("{}"), 0o600)
		os.Symlink("target", filepath.Join(opts.ConfigDir, "cowork_settings.json"))
		m := seed(t, opts, s, nil)
		if m.read(t, "settings.json") != "" || m.read(t, ".claude.json") != "" {
			t.Error("copied what is no file")
		}
		if m.read(t, "cowork_settings.json") != "{}" {
			t.Error("did not copy a file behind a link")
		}
	})
}

// slowStore blocks in one of its methods until its context ends.
type slowStore struct {
	*MemoryStore
	method string
}

func (s slowStore) wait(ctx context.Context, method string) error {
	if s.method != method {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s slowStore) Load(ctx context.Context, key SessionKey) ([]json.RawMessage, error) {
	if err := s.wait(ctx, "Load"); err != nil {
		return nil, err
	}
	return s.MemoryStore.Load(ctx, key)
}

func (s slowStore) ListSessions(ctx context.Context, project string) ([]SessionStamp, error) {
	if err := s.wait(ctx, "ListSessions"); err != nil {
		return nil, err
	}
	return s.MemoryStore.ListSessions(ctx, project)
}

func (s slowStore) ListSubkeys(ctx context.Context, project, session string) ([]string, error) {
	if err := s.wait(ctx, "ListSubkeys"); err != nil {
		return nil, err
	}
	return s.MemoryStore.ListSubkeys(ctx, project, session)
}

func TestMaterializeFailures(t *testing.T) {
	for _, method := range []string{"Load", "ListSessions", "ListSubkeys"} {
		t.Run("item 338: slow "+method, func(t *testing.T) {
			opts, s, temp := newMaterialHome(t)
			s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(user(1, 0, "a")))
			synctest.Test(t, func(t *testing.T) {
				opts.Store = slowStore{s, method}
				opts.Continue = true
				start := time.Now()
				m, err := materialize(t.Context(), opts)
				if m != nil || !errors.Is(err, errStoreTimeout) || !strings.Contains(err.Error(), "1m0s") {
					t.Errorf("got %v, %v", m, err)
				}
				if took := time.Since(start); took != time.Minute {
					t.Errorf("took %v", took)
				}
			})
			wantEmpty(t, temp)
		})
	}
	t.Run("item 338: cancelled after the folder was made", func(t *testing.T) {
		opts, s, temp := newMaterialHome(t)
		s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(user(1, 0, "a")))
		synctest.Test(t, func(t *testing.T) {
			opts.Store, opts.Resume = slowStore{s, "ListSubkeys"}, sid(1)
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(enough) })
			if _, err := materialize(ctx, opts); !errors.Is(err, enough) {
				t.Errorf("got %v", err)
			}
		})
		wantEmpty(t, temp)
	})
	t.Run("item 338: a load that fails", func(t *testing.T) {
		opts, s, temp := newMaterialHome(t)
		opts.Store, opts.Resume = &countingStore{MemoryStore: s, fail: sid(1)}, sid(1)
		if _, err := materialize(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "broken disk") || !strings.Contains(err.Error(), sid(1)) {
			t.Errorf("got %v", err)
		}
		wantEmpty(t, temp)
	})
	t.Run("item 338: an entry that is no JSON", func(t *testing.T) {
		opts, s, temp := newMaterialHome(t)
		opts.Resume = sid(1)
		s.Append(t.Context(), storeKey(sid(1), "/x/work"), rawEntries(user(1, 0, "a"), "{"))
		if _, err := materialize(t.Context(), opts); err == nil {
			t.Error("no error")
		}
		wantEmpty(t, temp)
	})
}

func TestRemoveDir(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   error
		fails int
		tries int
	}{
		{"at once", nil, 0, 1},
		{"busy twice", syscall.EBUSY, 2, 3},
		{"not permitted twice", syscall.EPERM, 2, 3},
		{"busy for ever", syscall.EBUSY, 99, 5},
		{"another error", syscall.EIO, 99, 1},
	} {
		t.Run("item 340: "+test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				start := time.Now()
				err := removeDir("x", func(string) error {
					tries++
					if tries <= test.fails {
						return fmt.Errorf("removing: %w", test.err)
					}
					return nil
				})
				if tries != test.tries || (err != nil) != (test.fails >= tries) {
					t.Errorf("%d tries, %v", tries, err)
				}
				if took := time.Since(start); took != time.Duration(tries-1)*100*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestMirrorThenResume(t *testing.T) {
	opts, s, _ := newMaterialHome(t)
	projects := filepath.Join(opts.ConfigDir, "projects")
	m := newMirror(s, projects, MirrorBatched, func(k SessionKey, err error) { t.Errorf("%v: %v", k, err) })
	m.add(filepath.Join(projects, pathKey("/x/work"), sid(1)+".jsonl"), rawEntries(user(1, 0, "a")))
	m.add(filepath.Join(projects, pathKey("/x/work"), sid(1), "subagents", "agent-x.jsonl"), rawEntries(user(1, 0, "x")))
	if err := m.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opts.Continue = true
	out := mustMaterialize(t, opts)
	back := Transcripts{ConfigDir: out.ConfigDir}
	if got, err := back.Messages(t.Context(), out.Session, MessageOptions{Dir: "/x/work"}); len(got) != 1 || err != nil {
		t.Errorf("session reads as %v, %v", got, err)
	}
	if got, err := back.SubagentMessages(t.Context(), out.Session, "x", MessageOptions{}); len(got) != 1 || err != nil {
		t.Errorf("subagent reads as %v, %v", got, err)
	}
}
