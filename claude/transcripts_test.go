package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testHome is a configuration folder of the CLI that a test fills.
type testHome struct {
	*testing.T
	Transcripts
}

func newTestHome(t *testing.T) *testHome {
	t.Helper()
	return &testHome{T: t, Transcripts: Transcripts{ConfigDir: t.TempDir()}}
}

// path returns a path below the folder of the directory's sessions.
func (h *testHome) path(dir string, parts ...string) string {
	return filepath.Join(append([]string{h.ConfigDir, "projects", pathKey(dir)}, parts...)...)
}

// write writes lines to a file below the folder of the directory's sessions.
func (h *testHome) write(dir, name string, lines ...string) string {
	h.Helper()
	path := h.path(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
	return path
}

// session writes a session that was modified n minutes after the first.
func (h *testHome) session(dir string, n int, lines ...string) string {
	h.Helper()
	path := h.write(dir, sid(n)+".jsonl", lines...)
	at := time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC)
	if err := os.Chtimes(path, at, at); err != nil {
		h.Fatal(err)
	}
	return path
}

func (h *testHome) list(opts ListOptions) []SessionInfo {
	h.Helper()
	infos, err := h.List(h.Context(), opts)
	if err != nil {
		h.Fatalf("List: %v", err)
	}
	return infos
}

// wantList fails unless the listing has the sessions with these numbers.
func (h *testHome) wantList(opts ListOptions, want ...int) {
	h.Helper()
	var got, ids []string
	for _, info := range h.list(opts) {
		got = append(got, info.ID)
	}
	for _, n := range want {
		ids = append(ids, sid(n))
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		h.Errorf("listed %v, want %v", got, ids)
	}
}

func (h *testHome) info(n int) SessionInfo {
	h.Helper()
	info, err := h.Info(h.Context(), sid(n), "")
	if err != nil {
		h.Fatalf("Info: %v", err)
	}
	return info
}

// sid is the id of the n-th session, and mid that of the n-th message.
func sid(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-00000000000a", n) }
func mid(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-00000000000b", n) }

// line returns a JSON object with the members given in turn, on top of base.
// A nil value removes a member.
func line(base map[string]any, members ...any) string {
	m := maps.Clone(base)
	for i := 0; i < len(members); i += 2 {
		if members[i+1] == nil {
			delete(m, members[i].(string))
		} else {
			m[members[i].(string)] = members[i+1]
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// message returns the n-th entry of a conversation, which follows the
// parent-th; zero means none.
func message(kind string, n, parent int, content any, more ...any) string {
	base := map[string]any{
		"type": kind, "uuid": mid(n), "parentUuid": nil, "sessionId": sid(1),
		"timestamp": time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC).Format(time.RFC3339),
		"cwd":       "/x/work", "gitBranch": "main",
		"message": map[string]any{"role": kind, "content": content},
	}
	if parent > 0 {
		base["parentUuid"] = mid(parent)
	}
	return line(base, more...)
}

func user(n, parent int, content any, more ...any) string {
	return message("user", n, parent, content, more...)
}

func assistant(n, parent int, content any, more ...any) string {
	return message("assistant", n, parent, content, more...)
}

type obj = map[string]any

func TestValidSessionID(t *testing.T) {
	for id, want := range map[string]bool{
		sid(1): true, strings.ToUpper(sid(1)): true, "": false, "x": false,
		"../" + sid(1): false, sid(1) + "\n": false, sid(1) + ".jsonl": false, strings.ReplaceAll(sid(1), "-", ""): false,
	} {
		t.Run(fmt.Sprintf("item 373: %q", id), func(t *testing.T) {
			if got := validSessionID(id); got != want {
				t.Errorf("got %v", got)
			}
		})
	}
	if id := newTranscriptID(); !validSessionID(id) || id[14] != '4' {
		t.Errorf("a new id is %q", id)
	}
}

func TestNotFoundNamesTheFolders(t *testing.T) {
	h := newTestHome(t)
	_, err := h.Info(t.Context(), sid(1), "")
	if !errors.Is(err, ErrSessionNotFound) || !strings.Contains(err.Error(), filepath.Join(h.ConfigDir, "projects")) {
		t.Errorf("without any project: %v", err)
	}
	h.session("/x/work", 2, user(1, 0, "hi"))
	_, err = h.Info(t.Context(), sid(1), "/elsewhere")
	if !errors.Is(err, ErrSessionNotFound) || !strings.Contains(err.Error(), h.path("/elsewhere")) {
		t.Errorf("in another directory: %v", err)
	}
}

func TestPage(t *testing.T) {
	all := []int{1, 2, 3, 4}
	for _, test := range []struct {
		offset, limit int
		want          string
	}{
		{0, 0, "[1 2 3 4]"}, {0, -1, "[1 2 3 4]"}, {1, 2, "[2 3]"}, {3, 5, "[4]"}, {9, 1, "[]"}, {-3, 1, "[1]"},
		{1, int(^uint(0) >> 1), "[2 3 4]"},
	} {
		if got := fmt.Sprint(page(all, test.offset, test.limit)); got != test.want {
			t.Errorf("page(%d, %d) = %s, want %s", test.offset, test.limit, got, test.want)
		}
	}
}
