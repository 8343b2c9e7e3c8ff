package agentfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

func TestMemoriesHaveTheirPlaces(t *testing.T) {
	project, user := t.TempDir(), filepath.Join(t.TempDir(), ".claude")
	for _, test := range []struct {
		name, swarm string
		memory      agentfile.Memory
		want        string
	}{
		{"a", "", "", ""},
		{"a", "", agentfile.UserMemory, filepath.Join(user, "agent-memory", "a")},
		{"a", "", agentfile.ProjectMemory, filepath.Join(project, ".claude", "agent-memory", "a")},
		{"a", "", agentfile.LocalMemory, filepath.Join(project, ".claude", "agent-memory-local", "a")},
		{"a", "s", agentfile.ProjectMemory, filepath.Join(project, ".claude", "agent-memory", "s", "a")},
		{"..", "", agentfile.ProjectMemory, filepath.Join(project, ".claude", "agent-memory", "--")},
		{"my:agent ä", "", agentfile.ProjectMemory, filepath.Join(project, ".claude", "agent-memory", "my-agent--")},
	} {
		d := agentfile.Definition{Name: test.name, Memory: test.memory, Source: agentfile.Source{Swarm: test.swarm}}
		for range 2 { // the second time it is there
			got, err := d.MakeMemory(project, user)
			if err != nil || got != test.want {
				t.Errorf("%s, %s: got %q, %v, want %q", test.name, test.memory, got, err, test.want)
			}
		}
		if info, err := os.Stat(test.want); test.want != "" && (err != nil || !info.IsDir()) {
			t.Errorf("%s is no folder: %v", test.want, err)
		}
	}
	d := agentfile.Definition{Name: "a", Memory: agentfile.UserMemory}
	if _, err := d.MakeMemory(project, ""); err == nil || !strings.Contains(err.Error(), "set HOME, or use memory: project") {
		t.Errorf("without a user's folder: %v", err)
	}
}

// A project that somebody cloned cannot have an agent write elsewhere.
func TestMemoryOfAProjectFollowsNoLinks(t *testing.T) {
	elsewhere := t.TempDir()
	for _, link := range []string{".claude", ".claude/agent-memory", ".claude/agent-memory/a"} {
		for name, target := range map[string]string{"out": elsewhere, "inside": "../hooks", "dangling": "nowhere"} {
			t.Run(strings.ReplaceAll(link, "/", "-")+" "+name, func(t *testing.T) {
				project := t.TempDir()
				for _, dir := range []string{"hooks", filepath.Dir(link)} {
					if err := os.MkdirAll(filepath.Join(project, dir), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if name == "inside" {
					target = filepath.Join(project, "hooks")
				}
				if err := os.Symlink(target, filepath.Join(project, link)); err != nil {
					t.Fatal(err)
				}
				d := agentfile.Definition{Name: "a", Memory: agentfile.ProjectMemory}
				if dir, err := d.MakeMemory(project, ""); err == nil {
					t.Errorf("it is %s", dir)
				}
			})
		}
	}
	if list, err := os.ReadDir(elsewhere); err != nil || len(list) > 0 {
		t.Errorf("something was made elsewhere: %v, %v", list, err)
	}
}

func TestBeginningOfAMemoryIsTold(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i+1)
		}
		return b.String()
	}
	for _, test := range []struct {
		name, content string
		want          string // how it ends
	}{
		{"none", "", "MEMORY.md is empty so far."},
		{"short", "- It rains.\n", "\n## MEMORY.md\n\n- It rains."},
		{"200 lines", lines(200), "\nline 200"},
		{"201 lines", lines(201), "\nline 200\n\n[… the rest of MEMORY.md is left out: make it shorter …]"},
		{"long line", strings.Repeat("x", 30<<10), strings.Repeat("x", 25<<10) + "\n\n[… the rest of MEMORY.md is left out: make it shorter …]"},
		{"no text", "a\x00\xffb", "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if test.content != "" {
				write(t, dir, map[string]string{"MEMORY.md": test.content})
			}
			got := agentfile.Definition{Memory: agentfile.ProjectMemory}.MemoryPrompt(dir)
			if !strings.HasSuffix(got, test.want) || !strings.Contains(got, dir) || !strings.Contains(got, "others who work on it read it too") {
				t.Errorf("it is told %q", got)
			}
		})
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "MEMORY.md")); err != nil {
		t.Fatal(err)
	}
	if got := (agentfile.Definition{Memory: agentfile.UserMemory}).MemoryPrompt(dir); !strings.Contains(got, "MEMORY.md cannot be read: ") {
		t.Errorf("a link out of it: %q", got)
	}
}
