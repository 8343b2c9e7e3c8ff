//go:build unix

package anthropic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// A model that may do everything makes links with Bash, and tries to leave its
// folder through them with every file tool: nothing outside is changed, and
// nothing of it ever reaches the model.
func TestEscapesThroughTheWholeAgent(t *testing.T) {
	const canary = "canary-7d1f"
	for name, c := range map[string]agent.Config{
		"bypass":  {PermissionMode: "bypassPermissions"},
		"allowed": {PermissionMode: "default", CanUseTool: decided(claude.Allow{})},
		"hook allowed": {PermissionMode: "default", Hooks: preToolUse(func(*claude.PreToolUseInput) *claude.PreToolUseOutput {
			return &claude.PreToolUseOutput{Permission: claude.HookAllow}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			c.Dir = filepath.Join(top, "work")
			outside := filepath.Join(top, "outside")
			file := filepath.Join(outside, "file")
			for _, dir := range []string{c.Dir, outside} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(file, []byte(canary+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			setup := "ln -s ../outside out; ln -s ../outside/file soft; ln ../outside/file hard; ln -s / root; mkdir in; " +
				"ln -s soft twice; ln -s ../../outside/new in/new; ln -s /proc/self/cwd/../outside/file proc; ln -s ../outside .git"
			list := []string{use("Bash", in{"command": setup})}
			count := 4
			for _, path := range []string{
				"soft", "hard", "twice", "proc", "out/file", "root" + file, file, "../outside/file", "in/../../outside/file",
				"in/new", "out/new", filepath.Join(outside, "new"), ".git/file", "/proc/self/cwd/../outside/file",
			} {
				if !strings.HasPrefix(path, "/") {
					path = "$W/" + path
				}
				dir := filepath.Dir(path)
				tries := []string{
					use("Read", in{"file_path": path}),
					use("Edit", in{"file_path": path, "old_string": "canary", "new_string": "dead"}),
					use("Edit", in{"file_path": path, "old_string": "", "new_string": "dead"}),
					use("MultiEdit", in{"file_path": path, "edits": []in{{"old_string": "canary", "new_string": "dead"}}}),
					use("Write", in{"file_path": path, "content": "dead"}),
					use("Grep", in{"pattern": "7d1.", "path": path, "output_mode": "content"}),
					use("Grep", in{"pattern": "7d1.", "path": dir, "output_mode": "content"}),
					use("Glob", in{"pattern": "*", "path": dir}),
				}
				list = append(list, strings.Join(tries, ", "))
				count += len(tries)
			}
			// The other name of a hard link is its own file once it is written, so
			// the links are made anew for those that look last.
			list = append(list, use("Bash", in{"command": "rm -f hard soft; ln ../outside/file hard; ln -s ../outside/file soft"}),
				use("Read", in{"file_path": "$W/hard"}), use("Read", in{"file_path": "$W/soft"}), use("Grep", in{"pattern": "7d1."}))
			b := open(t, "rules: "+strings.ReplaceAll(calls(list...), "$W", c.Dir))
			all := answerTo(t, b.create(c), "go")
			if results := all.of("tool_result"); len(results) != count+1 || results[0].Metadata["is_error"] == true {
				t.Fatalf("%d of %d calls have results, the first is %v", len(results), count+1, results[0])
			}
			data, err := os.ReadFile(file)
			if err != nil || string(data) != canary+"\n" {
				t.Errorf("the file outside is %q, %v", data, err)
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
				t.Errorf("outside are %v, %v", entries, err)
			}
			for _, r := range b.requests() {
				if strings.Contains(string(r.Body), canary) {
					t.Fatalf("the model was told: %s", where(string(r.Body), canary))
				}
			}
		})
	}
}

// where returns what is around text in all.
func where(all, text string) string {
	i := strings.Index(all, text)
	return all[max(0, i-300):min(len(all), i+100)]
}
