package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// Runs like those before get a CLI that was started ahead of them. Each is told who
// it is, and may do what it may; what is left ready when the daemon is killed dies
// with it.
func TestReadyCLIs(t *testing.T) {
	t.Parallel()
	p := newRealProject(t, "sdk", `
rules:
  - when: {user: "^leaf$"}
    repeat: true
    turns: [{text: I am the leaf.}]
  - repeat: true
    turns:
      - tools: [{name: Bash, input: {command: "echo run $NESTOR_RUN_ID of $PPID; nestor spawn --task leaf", description: delegate}}]
      - text: done
`, "tools: [Bash]\nproviders: {sdk: {warm: 1}}\n")
	daemon, _, _ := p.command(t, "serve")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		daemon.Wait()
		close(gone)
	}()
	kill := func() {
		daemon.Process.Kill()
		<-gone
	}
	defer kill()
	client := api.NewClient(filepath.Join(p.dir, ".nestor", "nestor.sock"))
	defer client.Close()
	ready := func() bool {
		info, err := client.Info(t.Context())
		return err == nil && info.Ready == 1
	}
	once := func() string {
		t.Helper()
		end := p.end(t, p.nestor(t, "run", "--stream-json", "go"))
		if end.run.State != nestor.Success || !strings.Contains(end.stdout, "run "+string(end.run.ID)+" of ") || !strings.Contains(end.stdout, "I am the leaf.") {
			t.Fatalf("run %s is %s\n%s\n%s", end.run.ID, end.run.State, end.stdout, end.stderr)
		}
		return end.stdout
	}
	await(t, "the daemon", func() bool { _, err := client.Info(t.Context()); return err == nil })
	once() // and its leaf, which is the second of the kind
	for range 2 {
		await(t, "a CLI that is ready", ready)
		ahead := having(t, "HOME="+p.home, "CLAUDE_ENV_FILE=")
		said := once()
		used := false
		for _, process := range ahead {
			used = used || strings.Contains(said, " of "+process)
		}
		if !used {
			t.Errorf("none of the processes %v was used: %s", ahead, said)
		}
	}
	await(t, "a CLI that is ready", ready)
	kill()
	await(t, "the end of all processes", func() bool { return len(having(t, "HOME="+p.home)) == 0 })
}

// The CLI of an agent is started while its parent still writes what it is to do, also
// the first one of a command that is alone.
func TestExpectedCLI(t *testing.T) {
	t.Parallel()
	p := newRealProject(t, "sdk", `
rules:
  - when: {user: "^leaf$"}
    turns:
      - tools: [{name: Bash, input: {command: "echo ahead: $(tr '\\0' '\\n' < /proc/$PPID/environ | grep -c ^CLAUDE_ENV_FILE=)", description: look}}]
      - text: "{{.ToolResult}}"
  - turns:
      - {tools: [{name: mcp__nestor__spawn, input: {task: leaf}}], chunk: 2, delay: 100ms}
      - text: "The leaf says: {{.ToolResult}}"
`, "tools: [Bash]\n")
	end := p.run(t, "go")
	if end.run.State != nestor.Success || !strings.Contains(end.stdout, "ahead: 1") {
		t.Errorf("run %s is %s\n%s\n%s", end.run.ID, end.run.State, end.stdout, end.stderr)
	}
	if left := having(t, "HOME="+p.home); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// having returns the processes whose environment has all of these texts in it.
func having(t *testing.T, texts ...string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, text := range texts {
			if !bytes.Contains(env, []byte(text)) {
				continue next
			}
		}
		pids = append(pids, filepath.Base(filepath.Dir(file)))
	}
	return pids
}
