package claude

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestList(t *testing.T) {
	t.Run("item 377: nothing there", func(t *testing.T) {
		h := newTestHome(t)
		h.wantList(ListOptions{})
		h.wantList(ListOptions{Dir: "/x/work"})
		h.session("/x/work", 1, user(1, 0, "hi"))
		h.wantList(ListOptions{Dir: "/unknown"})
	})
	t.Run("item 377: what is said of a session", func(t *testing.T) {
		h := newTestHome(t)
		path := h.session("/x/work", 1, user(1, 0, "fix\nthe bug"), assistant(2, 1, "done", "gitBranch", "fix"))
		stat, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		got := h.list(ListOptions{})[0]
		got.Created, got.Modified = got.Created.UTC(), got.Modified.UTC()
		want := SessionInfo{
			ID: sid(1), Summary: "fix the bug", FirstPrompt: "fix the bug", GitBranch: "fix", Dir: "/x/work",
			Created:  time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC),
			Modified: time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC),
			Size:     stat.Size(),
		}
		if got != want {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
	})
	t.Run("item 377: newest first, then by id; limit and offset", func(t *testing.T) {
		h := newTestHome(t)
		for n := 1; n <= 5; n++ {
			h.session("/x/work", n, user(1, 0, "hi"))
		}
		same := time.Date(2026, 1, 1, 0, 4, 0, 0, time.UTC)
		os.Chtimes(h.path("/x/work", sid(3)+".jsonl"), same, same)
		h.wantList(ListOptions{}, 5, 4, 3, 2, 1)
		h.wantList(ListOptions{Limit: 2}, 5, 4)
		h.wantList(ListOptions{Limit: 2, Offset: 1}, 4, 3)
		h.wantList(ListOptions{Offset: 4}, 1)
		h.wantList(ListOptions{Offset: 9})
		h.wantList(ListOptions{Limit: -1}, 5, 4, 3, 2, 1)
	})
	t.Run("item 377: what is no session", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/x/work", 1, user(1, 0, "hi"))
		h.session("/x/work", 2, user(1, 0, "hi", "isSidechain", true))
		h.session("/x/work", 3)
		h.session("/x/work", 4, user(1, 0, "hi", "isMeta", true))
		h.write("/x/work", "notes.jsonl", user(1, 0, "hi"))
		h.write("/x/work", sid(5)+".json", user(1, 0, "hi"))
		h.write("/x/work", sid(6)+".jsonl/file", "x")
		h.wantList(ListOptions{}, 1)
	})
	t.Run("item 377: all projects, each session once, its newest copy", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/a", 1, user(1, 0, "hi"))
		h.session("/b", 2, user(1, 0, "old"))
		h.session("/c", 2, user(1, 0, "new"))
		newer := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
		os.Chtimes(h.path("/c", sid(2)+".jsonl"), newer, newer)
		h.wantList(ListOptions{}, 2, 1)
		if got := h.list(ListOptions{})[0].FirstPrompt; got != "new" {
			t.Errorf("got the copy that says %q", got)
		}
	})
	t.Run("item 377: the directory stands in for a missing cwd", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/none", 1, user(1, 0, "hi", "cwd", nil))
		if got := h.list(ListOptions{Dir: "/none"})[0].Dir; got != "/none" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("7.4: another directory with the same key is hidden", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/none/a-b", 1, user(1, 0, "hi", "cwd", "/none/a/b"))
		h.session("/none/a-b", 2, user(1, 0, "hi", "cwd", "/none/a-b"))
		h.session("/none/a-b", 3, user(1, 0, "hi", "cwd", "/moved"))
		h.wantList(ListOptions{Dir: "/none/a-b"}, 3, 2)
	})
	t.Run("7.4: programs' sessions can be hidden", func(t *testing.T) {
		h := newTestHome(t)
		h.session("/x/work", 1, user(1, 0, "hi", "entrypoint", "sdk-go"))
		h.session("/x/work", 2, user(1, 0, "hi", "entrypoint", "cli"))
		h.wantList(ListOptions{}, 2, 1)
		h.wantList(ListOptions{HideProgrammatic: true}, 2)
	})
	t.Run("7.4: sessions that went on elsewhere are hidden", func(t *testing.T) {
		h := newTestHome(t)
		goesOn := func(n, to int) {
			h.session("/x/work", n, user(1, 0, "hi"), line(obj{"type": "continued-in", "continuedInSessionId": sid(to)}))
		}
		goesOn(1, 2)
		goesOn(2, 3)
		h.session("/x/work", 3, user(1, 0, "hi"))
		goesOn(4, 99) // not there
		goesOn(5, 5)
		goesOn(6, 7)
		goesOn(7, 6) // a circle hides all but one
		h.wantList(ListOptions{}, 6, 5, 4, 3)
		h.info(1)
	})
	t.Run("7.2: folders that an older hash named", func(t *testing.T) {
		h := newTestHome(t)
		dir := "/" + strings.Repeat("x", 250)
		other := dir + "other"
		folder := func(hash string) string { return pathKey(dir)[:201] + hash }
		for n, f := range map[int]string{1: folder("bun1"), 2: folder("bun2")} {
			cwd := map[int]string{1: dir, 2: other}[n]
			path := filepath.Join(h.ConfigDir, "projects", f, sid(n)+".jsonl")
			os.MkdirAll(filepath.Dir(path), 0o700)
			os.WriteFile(path, []byte(user(1, 0, "hi", "cwd", cwd)), 0o600)
		}
		h.wantList(ListOptions{Dir: dir}, 1)
	})
}

func TestListInForcedFolder(t *testing.T) {
	h := newTestHome(t)
	path := filepath.Join(h.ConfigDir, "projects", "shared", sid(1)+".jsonl")
	os.MkdirAll(filepath.Dir(path), 0o700)
	os.WriteFile(path, []byte(user(1, 0, "hi")), 0o600)
	t.Setenv("CLAUDE_CONFIG_DIR", h.ConfigDir)
	t.Setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "shared")
	h.wantList(ListOptions{Dir: "/x/work"}) // the folder was named, so the variable does not count
	h.ConfigDir = ""
	h.wantList(ListOptions{Dir: "/x/work"}, 1)
}

func TestListWorktrees(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	repo := filepath.Join(canonicalDir(t.TempDir()), "repo")
	tree := repo + "-tree"
	for _, args := range [][]string{
		{"init", "-q", repo},
		{"-C", repo, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x"},
		{"-C", repo, "worktree", "add", "-q", tree},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = append(gitEnvironment(os.Environ()), "GIT_CONFIG_GLOBAL="+os.DevNull)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	// A caller inside a git hook has these set; git must not believe them.
	t.Setenv("GIT_DIR", "/nowhere")
	h := newTestHome(t)
	h.session(repo, 1, user(1, 0, "hi", "cwd", repo))
	h.session(tree, 2, user(1, 0, "hi", "cwd", tree))
	h.session("/other", 3, user(1, 0, "hi"))
	h.wantList(ListOptions{Dir: repo}, 2, 1)
	h.wantList(ListOptions{Dir: tree}, 2, 1)
	h.wantList(ListOptions{Dir: repo, NoWorktrees: true}, 1)
	if _, err := h.Info(t.Context(), sid(2), repo); err != nil {
		t.Errorf("item 381: Info of a worktree's session: %v", err)
	}
}

func TestTitles(t *testing.T) {
	filler := user(90, 0, strings.Repeat("x", 70<<10), "isMeta", true)
	custom := func(s string) string { return line(obj{"type": "custom-title", "customTitle": s}) }
	ai := func(s string) string { return line(obj{"type": "ai-title", "aiTitle": s}) }
	first := user(1, 0, "first")
	for _, test := range []struct {
		name    string
		lines   []string
		sidecar string
		want    string
	}{
		{"item 377: first prompt", []string{first}, "", "first"},
		{"item 377: summary before first prompt", []string{first, `{"type":"summary","summary":"sum","leafUuid":"x"}`}, "", "sum"},
		{"item 377: last prompt before summary", []string{first, `{"type":"summary","summary":"sum"}`, `{"type":"last-prompt","lastPrompt":"last"}`}, "", "last"},
		{"item 377: title before last prompt", []string{first, ai("made"), `{"type":"last-prompt","lastPrompt":"last"}`}, "", "made"},
		{"item 377: custom before made", []string{first, custom("mine"), ai("made")}, "", "mine"},
		{"item 384: last title wins", []string{first, custom("one"), custom("two")}, "", "two"},
		{"7.4: only title entries have titles", []string{user(1, 0, "first", "customTitle", "fake")}, "", "first"},
		{"7.4: sidecar", []string{first}, `{"customTitle":"side"}`, "side"},
		{"7.4: tail before sidecar", []string{first, filler, custom("tail")}, `{"customTitle":"side"}`, "tail"},
		{"7.4: sidecar before head", []string{first, custom("head"), filler}, `{"customTitle":"side"}`, "side"},
		{"7.4: head", []string{first, custom("head"), filler}, `{"customTitle":7}`, "head"},
		{"7.4: custom in head before made in tail", []string{first, custom("head"), filler, ai("made")}, "", "head"},
		{"7.4: old prompts are not the last", []string{first, `{"type":"last-prompt","lastPrompt":"old"}`, filler}, "", "first"},
		{"7.4: image", []string{user(1, 0, []obj{{"type": "image"}})}, "", "Image"},
		{"7.4: document", []string{user(1, 0, []obj{{"type": "document"}})}, "", "Document"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHome(t)
			h.session("/x/work", 1, test.lines...)
			if test.sidecar != "" {
				h.write("/x/work", sid(1)+"/custom-title.json", test.sidecar)
			}
			if got := h.info(1).Summary; got != test.want {
				t.Errorf("summary is %q, want %q", got, test.want)
			}
		})
	}
}

func TestFields(t *testing.T) {
	filler := user(90, 0, strings.Repeat("x", 70<<10), "isMeta", true, "gitBranch", nil)
	for _, test := range []struct {
		name  string
		lines []string
		want  func(SessionInfo) string
		is    string
	}{
		{"item 379: tag", []string{user(1, 0, "hi"), `{"type":"tag","tag":"a"}`}, tagOf, "a"},
		{"item 379: last tag wins", []string{user(1, 0, "hi"), `{"type":"tag","tag":"a"}`, `{"type":"tag","tag":"b"}`}, tagOf, "b"},
		{"item 379: empty tag clears", []string{user(1, 0, "hi"), `{"type":"tag","tag":"a"}`, `{"type":"tag","tag":""}`}, tagOf, ""},
		{"item 379: no tag", []string{user(1, 0, "hi")}, tagOf, ""},
		{"item 379: a tool's tag is not the session's", []string{user(1, 0, "hi"), assistant(2, 1, []obj{{"type": "tool_use", "input": obj{"tag": "no"}}}, "tag", "no")}, tagOf, ""},
		{"item 379: only the tail has tags", []string{user(1, 0, "hi"), `{"type":"tag","tag":"a"}`, filler}, tagOf, ""},
		{"item 377: branch of the tail", []string{user(1, 0, "hi", "gitBranch", "a"), filler, user(2, 1, "x", "gitBranch", "b")}, branchOf, "b"},
		{"item 377: else of the head", []string{user(1, 0, "hi", "gitBranch", "a"), filler}, branchOf, "a"},
		{"7.4: first cwd", []string{user(1, 0, "hi", "cwd", "/a"), user(2, 1, "hi", "cwd", "/b")}, dirOf, "/a"},
		{"7.4: relocated", []string{user(1, 0, "hi", "cwd", "/a"), `{"type":"relocated","relocatedCwd":"/c"}`}, dirOf, "/c"},
		{"item 380: created", []string{user(1, 0, "hi", "timestamp", "2026-02-03T04:05:06.789Z")}, createdOf, "2026-02-03T04:05:06.789Z"},
		{"item 380: created, with offset", []string{user(1, 0, "hi", "timestamp", "2026-02-03T04:05:06+02:00")}, createdOf, "2026-02-03T02:05:06Z"},
		{"item 380: created in a later line", []string{`{"type":"summary","summary":"x"}`, user(1, 0, "hi")}, createdOf, "2026-01-01T00:00:01Z"},
		{"item 380: not created", []string{user(1, 0, "hi", "timestamp", nil)}, createdOf, "never"},
		{"item 380: created at a bad time", []string{user(1, 0, "hi", "timestamp", "yesterday")}, createdOf, "never"},
		{"item 375: spaces and escapes", []string{`{ "type" : "tag" , "tag" : "a\"\u00e4\\" }`, user(1, 0, "hi")}, tagOf, `a"ä\`},
		{"item 375: a cut line counts as far as it goes", []string{`{"type":"user","cwd":"/cut","message":{"content":"` + strings.Repeat("x", 70<<10) + `"}}`, `{"type":"ai-title","aiTitle":"t"}`}, dirOf, "/cut"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newTestHome(t)
			h.session("/x/work", 1, test.lines...)
			if got := test.want(h.info(1)); got != test.is {
				t.Errorf("got %q, want %q", got, test.is)
			}
		})
	}
}

func tagOf(i SessionInfo) string    { return i.Tag }
func branchOf(i SessionInfo) string { return i.GitBranch }
func dirOf(i SessionInfo) string    { return i.Dir }
func createdOf(i SessionInfo) string {
	if i.Created.IsZero() {
		return "never"
	}
	return i.Created.UTC().Format(time.RFC3339Nano)
}

func TestInfo(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, user(1, 0, "hi"), `{"type":"tag","tag":"a"}`)
	h.session("/x/work", 2, user(1, 0, "hi", "isSidechain", true))
	h.session("/x/work", 3, `{"type":"mode"}`)
	for _, test := range []struct {
		name, id, dir string
		want          error
	}{
		{"item 381: in its directory", sid(1), "/x/work", nil},
		{"item 381: anywhere", sid(1), "", nil},
		{"item 381: invalid", "../" + sid(1), "", ErrInvalidSessionID},
		{"item 381: missing", sid(9), "", ErrSessionNotFound},
		{"item 381: wrong directory", sid(1), "/other", ErrSessionNotFound},
		{"item 381: sidechain", sid(2), "", ErrSessionNotFound},
		{"item 381: nothing to show", sid(3), "", ErrSessionNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			info, err := h.Info(t.Context(), test.id, test.dir)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err == nil && info.Tag != "a" {
				t.Errorf("got %+v", info)
			}
		})
	}
}

// TestListHostile has files that must cost nothing but their own row.
func TestListHostile(t *testing.T) {
	h := newTestHome(t)
	h.session("/x/work", 1, user(1, 0, "hi"))
	h.session("/x/work", 2, "not json", `{"type":"user"`, "[]", "null", "\x00\xff\xfe", user(1, 0, "hi"))
	h.session("/x/work", 3, strings.Repeat("[", 200_000))
	h.session("/x/work", 4, strings.Repeat(`{"a":`, 50_000))
	h.session("/x/work", 5, `{"type":["user"],"uuid":7,"cwd":{},"message":"x","timestamp":1,"isSidechain":"no"}`)
	h.session("/x/work", 6, `{"type":"user","message":{"content":[1,null,"x",{"type":"text","text":{}}]}}`)
	h.session("/x/work", 7, string(bytes.Repeat([]byte{'x'}, 300<<10)))
	h.session("/x/work", 8, user(1, 0, "hi", "pad", strings.Repeat("é", 40<<10)), user(2, 1, "x"))
	if runtime.GOOS != "windows" {
		outside := t.TempDir()
		secret := filepath.Join(outside, sid(9)+".jsonl")
		os.WriteFile(secret, []byte(user(1, 0, "secret")), 0o600)
		os.Symlink(secret, h.path("/x/work", sid(9)+".jsonl"))
		os.Symlink(sid(1)+".jsonl", h.path("/x/work", sid(12)+".jsonl"))
		os.Symlink(outside, filepath.Join(h.ConfigDir, "projects", "-outside"))
		os.Symlink("..", filepath.Join(h.ConfigDir, "projects", "-up"))
		os.Symlink("-loop", filepath.Join(h.ConfigDir, "projects", "-loop"))
		makeFIFO(t, h.path("/x/work", sid(10)+".jsonl"))
		if err := os.Chmod(h.session("/x/work", 11, user(1, 0, "hi")), 0); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			os.Remove(h.path("/x/work", sid(11)+".jsonl"))
		}
	}
	h.wantList(ListOptions{}, 8, 2, 1)
	h.wantList(ListOptions{Dir: "/x/work"}, 8, 2, 1)
	for _, n := range []int{9, 10, 12} { // links and a pipe
		if got, err := h.Messages(t.Context(), sid(n), MessageOptions{}); len(got) != 0 || err != nil {
			t.Errorf("Messages of session %d = %v, %v", n, got, err)
		}
		if err := h.Rename(t.Context(), sid(n), "", "x"); !errors.Is(err, ErrSessionNotFound) {
			t.Errorf("Rename of session %d: %v", n, err)
		}
	}
}
