package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/runner"
)

func input(t *testing.T, fields map[string]string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a run was given besides its folder is allowed, and nothing by way of it.
func TestWhatARunWasGivenIsAllowed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"memory", "skill", "other"} {
		if err := os.Mkdir(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"memory/out": in("other"), "memory/nowhere": in("none"), "skill/out": in("other")} {
		if err := os.Symlink(target, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	place := runner.Place{Read: []string{in("skill")}, Folders: []string{in("memory")}, Write: []string{in("STATE.md")}}
	ask := allowFiles(place, nil)
	for _, test := range []struct {
		tool, key, path string
		want            bool
	}{
		{"Write", "file_path", in("memory/MEMORY.md"), true},
		{"Edit", "file_path", in("memory/new/deep/file.md"), true},
		{"Read", "file_path", in("memory/MEMORY.md"), true},
		{"Read", "file_path", in("skill/more.md"), true},
		{"Grep", "path", in("skill"), true},
		{"Edit", "file_path", in("STATE.md"), true},
		{"Write", "file_path", in("skill/more.md"), false},
		{"Write", "file_path", in("memory/../other/x"), false},
		{"Write", "file_path", in("memory/out/x"), false},
		{"Write", "file_path", in("memory/nowhere"), false},
		{"Read", "file_path", in("skill/out/x"), false},
		{"Write", "file_path", "memory/MEMORY.md", false},
		{"Grep", "path", "", false},
		{"Bash", "file_path", in("memory/MEMORY.md"), false},
	} {
		d, err := ask(t.Context(), &claude.PermissionRequest{Tool: test.tool, Input: input(t, map[string]string{test.key: test.path})})
		if _, allowed := d.(claude.Allow); allowed != test.want || err != nil {
			t.Errorf("%s %s: %v, %v", test.tool, test.path, d, err)
		}
	}
	never := func(string, json.RawMessage) runner.Verdict { return runner.Verdict{Ask: true} }
	d, _ := allowFiles(place, never)(t.Context(), &claude.PermissionRequest{Tool: "Write", Input: input(t, map[string]string{"file_path": in("memory/MEMORY.md")})})
	if _, allowed := d.(claude.Allow); allowed {
		t.Error("what the role wants asked about is allowed")
	}
}

// A role that writes nowhere writes into a memory, with every grant that it has, and
// nowhere else.
func TestRoleIsEquipped(t *testing.T) {
	for _, dir := range []string{"/p/.claude/agent-memory/a", "/p [x]/*/agent-memory/a"} {
		role, err := permission.ForRole("critic", permission.Place{Workspace: "/p/below", Project: "/p", Logs: "/l"})
		if err != nil {
			t.Fatal(err)
		}
		role.Also = []permission.Grant{{Mode: permission.ModeDefault}}
		equip(&role, runner.Place{Folders: []string{dir}, Read: []string{"/skills/s"}})
		for _, test := range []struct {
			tool, path string
			want       permission.Verdict
		}{
			{"Write", dir + "/MEMORY.md", permission.Allow},
			{"Edit", dir + "/deep/er/x.md", permission.Allow},
			{"Read", dir + "/MEMORY.md", permission.Allow},
			{"Read", "/skills/s/more.md", permission.Allow},
			{"Write", "/skills/s/more.md", permission.Deny},
			{"Write", "/p/below/x", permission.Deny},
			{"Write", dir + "/../b/x", permission.Deny},
		} {
			d := role.Decide(permission.Call{Tool: test.tool, Dir: "/p/below", Input: input(t, map[string]string{"file_path": test.path})})
			if d.Verdict != test.want {
				t.Errorf("%s %s: %+v", test.tool, test.path, d)
			}
		}
	}
}

func TestToolsForTheMemoryAlone(t *testing.T) {
	denied := memoryOnly([]string{"Write"}, "/m", "/p")
	for path, want := range map[string]bool{"/m/MEMORY.md": false, "/p/x": true, "x": true, "/m/../p/x": true, "": true} {
		if got := denied("Write", input(t, map[string]string{"file_path": path})); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	if denied("Edit", input(t, map[string]string{"file_path": "/p/x"})) {
		t.Error("a tool that the agent has anyway is denied")
	}
	if memoryOnly(nil, "/m", "/p") != nil {
		t.Error("tools are denied to an agent that has all")
	}
}
