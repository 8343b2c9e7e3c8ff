package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// gitIn runs git in a folder and returns what it prints.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=ada", "GIT_COMMITTER_EMAIL=ada@example.com"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkout makes a repository with one commit.
func checkout(t *testing.T) string {
	t.Helper()
	dir := place(t)
	gitIn(t, dir, "init", "-q", "-b", "main")
	write(t, filepath.Join(dir, "a.txt"), "one\n")
	write(t, filepath.Join(dir, ".gitignore"), ".nestor/\nhome/\n")
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-q", "-m", "first")
	return dir
}

// spaceScript writes a file with a tool, and changes others with a command.
const spaceScript = `
rules:
  - when: {user: "approved"}
    turns: [{tools: [{name: StructuredOutput, input: {approved: true, reason: fine}}]}, {text: said}]
  - turns:
      - tools: [{name: Write, input: {file_path: new.txt, content: "new\n"}}]
      - tools: [{name: Bash, input: {command: "echo two >> a.txt; mkdir -p sub; echo made > sub/made.txt; echo in $AGENT_WORKSPACE", description: change}}]
      - tools: [{name: Bash, input: {command: "rm sub/made.txt", description: remove}}]
      - text: "{{.ToolResult}} done"`

func (s settings) with(t *testing.T, provider, url string) settings {
	s.Provider, s.URL = provider, url
	if provider == "sdk" {
		cli := claudetest.Real(t)
		s.Path, s.Env = cli.Path, slices.Concat(cli.Env, scriptmodel.ClientEnv(url))
	}
	return s
}

// finish waits for a run that must succeed.
func finish(t *testing.T, client *api.Client, task nestor.Task) api.Run {
	t.Helper()
	run, err := client.Wait(bound(t), submit(t, client, task))
	if err != nil || run.State != nestor.Success {
		t.Fatalf("it is %s, %+v, %v", run.State, run.Error, err)
	}
	return run
}

// writesOf returns what a run was told to change, in order.
func writesOf(t *testing.T, client *api.Client, id nestor.ID) (list []string) {
	t.Helper()
	for e, err := range client.Events(bound(t), id, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := e.(*nestor.WorkspaceWrite); ok {
			list = append(list, w.Action+" "+w.Path)
		}
	}
	return list
}

var spaceWrites = []string{"write new.txt", "edit a.txt", "write sub/made.txt", "remove sub/made.txt"}

const bypass = `"permission_mode":"bypassPermissions"`

// Each file that a run changes is told once, whether a tool or a command did it,
// and the folder of the project is what it works in.
func TestWritesInAPlainFolderAreTold(t *testing.T) {
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			dir := checkout(t)
			model := scriptmodel.Start(t, strings.ReplaceAll(spaceScript, "file_path: new.txt", "file_path: "+dir+"/new.txt"))
			client, _ := serving(t, settings{Dir: dir}.with(t, provider, model.URL))
			run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + "}")})
			if got := writesOf(t, client, run.ID); !slices.Equal(got, spaceWrites) {
				t.Errorf("told are %q", got)
			}
			if _, noted := api.WorkspaceOf(run.Result); noted {
				t.Errorf("the result speaks of a workspace: %+v", run.Result.Metadata)
			}
			d, err := client.Diff(t.Context(), run.ID)
			if err != nil || len(d.Files) != 3 || d.Patch != "" {
				t.Errorf("the diff is %+v, %v", d, err)
			}
		})
	}
}

// A run in a worktree leaves the checkout alone; its work is kept on its branch,
// with a diff, and merged when somebody says so.
func TestWorktreeIsKeptAndMerged(t *testing.T) {
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			dir := checkout(t)
			worktrees := filepath.Join(dir, ".nestor", "worktrees")
			script := spaceScript
			if provider == "sdk" { // which wants whole paths, and nobody knows them before
				script = strings.ReplaceAll(script, `{name: Write, input: {file_path: new.txt, content: "new\n"}}`, `{name: Bash, input: {command: "echo new > new.txt", description: write}}`)
			}
			model := scriptmodel.Start(t, script)
			client, _ := serving(t, settings{Dir: dir}.with(t, provider, model.URL))
			run := finish(t, client, nestor.Task{Input: "go on", Dir: dir, Data: []byte("{" + bypass + `,"workspace":{"kind":"worktree"}}`)})
			w, ok := api.WorkspaceOf(run.Result)
			if !ok || w.Kind != "worktree" || w.End != "keep" || w.Branch != "nestor/"+string(run.ID)+"-go-on" || w.Changed != 2 || w.Dir != filepath.Join(worktrees, string(run.ID)) {
				t.Fatalf("the workspace is %+v", w)
			}
			if !strings.Contains(run.Result.Output, "done") {
				t.Errorf("it said %q", run.Result.Output)
			}
			if got := writesOf(t, client, run.ID); !slices.Equal(got, spaceWrites) {
				t.Errorf("told are %q", got)
			}
			d, err := client.Diff(t.Context(), run.ID)
			if err != nil || len(d.Files) != 2 || !strings.Contains(d.Patch, "+two") || !strings.Contains(d.Patch, "+new") {
				t.Errorf("the diff is %+v, %v", d, err)
			}
			if read(t, dir, "a.txt") != "one\n" {
				t.Error("the checkout was changed")
			}
			if list, err := client.Workspaces(t.Context()); err != nil || len(list) != 1 || list[0].Run != run.ID || list[0].Work == "" || !list[0].Closed {
				t.Errorf("the list is %+v, %v", list, err)
			}
			if gone, err := client.CollectWorkspaces(t.Context(), api.Collection{Age: 1}); err != nil || len(gone) != 0 {
				t.Errorf("collected are %+v, %v", gone, err)
			}
			out, err := client.EndWorkspace(t.Context(), run.ID, api.Ending{End: "merge"})
			if err != nil || out.End != "merge" || out.Into != "main" {
				t.Fatalf("merged: %+v, %v", out, err)
			}
			if read(t, dir, "a.txt") != "one\ntwo\n" || read(t, dir, "new.txt") != "new\n" || gitIn(t, dir, "status", "--porcelain") != "" {
				t.Error("the checkout has not what was merged")
			}
			if _, err := client.EndWorkspace(t.Context(), run.ID, api.Ending{End: "drop"}); err == nil || !strings.Contains(err.Error(), "nothing is there of its workspace") {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

// A run of a swarm works in the swarm's folder, is told its state, and may write to
// that, and only that, outside of it.
func TestSwarmStateIsToldAndWritten(t *testing.T) {
	for _, provider := range []string{"api", "sdk"} {
		t.Run(provider, func(t *testing.T) {
			dir := place(t)
			state := filepath.Join(dir, "swarms", "bees", "STATE.md")
			write(t, state, "the hive is full\n")
			model := scriptmodel.Start(t, strings.NewReplacer("$STATE", state, "$DIR", dir).Replace(`
rules:
  - when: {user: "the hive is full"}
    turns:
      - tools: [{name: Read, input: {file_path: $STATE}}]
      - tools: [{name: Write, input: {file_path: $STATE, content: "the hive is empty\n"}}]
      - tools: [{name: Write, input: {file_path: $DIR/other.txt, content: no}}]
      - tools: [{name: Bash, input: {command: "pwd; echo $AGENT_SWARM", description: where}}]
      - text: "{{.ToolResult}}"
  - turns: [{text: nobody told me}]`))
			client, _ := serving(t, settings{Dir: dir}.with(t, provider, model.URL))
			run := finish(t, client, nestor.Task{Input: "go", Swarm: "bees", Dir: dir, Data: []byte(`{"tools":["Read","Write","Bash"],"permission_mode":"acceptEdits","role":"researcher"}`)})
			if want := filepath.Join(dir, "swarms", "bees", "workspace") + "\nbees"; run.Result.Output != want {
				t.Errorf("it said %q, want %q", run.Result.Output, want)
			}
			if got := read(t, dir, "swarms/bees/STATE.md"); got != "the hive is empty\n" {
				t.Errorf("the state is %q", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "other.txt")); err == nil {
				t.Error("it has written elsewhere")
			}
			if run.Input != "go" {
				t.Errorf("its input is on record as %q", run.Input)
			}
		})
	}
}

// Work that a critic has to approve is kept, cannot be merged, and is merged when
// the critic's run finds it good.
func TestCriticApprovesWork(t *testing.T) {
	for _, who := range []string{"critic", "person"} {
		t.Run(who, func(t *testing.T) {
			dir := checkout(t)
			model := scriptmodel.Start(t, strings.ReplaceAll(spaceScript, `user: "approved"`, `user: "You are a critic"`))
			s := settings{Dir: dir}.with(t, "api", model.URL)
			s.Workspace = daemon.Workspaces{Kind: "worktree", End: "merge", Approve: who}
			client, _ := serving(t, s)
			run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + "}")})
			w, _ := api.WorkspaceOf(run.Result)
			if w.End != "keep" || w.Approval != who || !strings.Contains(w.Why, "approval of a "+who) {
				t.Fatalf("the workspace is %+v", w)
			}
			if who == "person" {
				_, err := client.EndWorkspace(t.Context(), run.ID, api.Ending{End: "merge"})
				if err == nil || !strings.Contains(err.Error(), "nestor workspaces approve") {
					t.Errorf("it was merged, or: %v", err)
				}
				if out, err := client.ApproveWorkspace(t.Context(), run.ID, api.Approval{By: "ada"}); err != nil || out.End != "merge" {
					t.Errorf("approved: %+v, %v", out, err)
				}
			} else {
				until(t, client, criticOf(t, client), func(r api.Run) bool { return r.State == nestor.Success })
			}
			if got := read(t, dir, "a.txt"); got != "one\ntwo\n" {
				t.Errorf("the checkout has %q", got)
			}
		})
	}
}

// criticOf waits for the run of a critic.
func criticOf(t *testing.T, client *api.Client) nestor.ID {
	t.Helper()
	for {
		runs, err := client.Runs(bound(t), api.Query{Agent: "critic"})
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) > 0 {
			return runs[0].ID
		}
	}
}

func TestNobodyElseHasRunsApproved(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t), Provider: "scripted"})
	data, err := json.Marshal(api.TaskOptions{Approves: "0199d3a2-0000-7000-8000-000000000000"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Submit(t.Context(), api.Submission{Task: nestor.Task{Data: data}}); err == nil || !strings.Contains(err.Error(), "only the daemon") {
		t.Errorf("got %v", err)
	}
}

// What cannot be opened refuses the run, with the way out.
func TestWorkspaceThatCannotBeRefusesTheRun(t *testing.T) {
	client, _ := serving(t, settings{Dir: place(t), Provider: "scripted"})
	for data, want := range map[string]string{
		`{"workspace":{"kind":"worktree"}}`: "run git init",
		`{"workspace":{"kind":"swarm"}}`:    "needs the name of a swarm",
	} {
		run := until(t, client, submit(t, client, nestor.Task{Input: "go", Data: []byte(data)}), func(r api.Run) bool { return r.State.Ended() })
		if run.State != nestor.Error || run.Error.Kind != nestor.Refused || !strings.Contains(fmt.Sprint(run.Error), want) {
			t.Errorf("%s: it is %s, %+v", data, run.State, run.Error)
		}
	}
}

// In a sandbox a run commits to its own branch, and changes no other one, nor what
// git would run for others.
func TestSandboxedWorktreeCommitsToItsBranchAlone(t *testing.T) {
	if err := sandbox.Check().Refuses(sandbox.Files, sandbox.Web); err != nil {
		t.Skip(err)
	}
	dir := checkout(t)
	first := gitIn(t, dir, "rev-parse", "main")
	model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "echo two >> a.txt && git -c user.name=ada -c user.email=ada@example.com commit -qam mine && git log --oneline | wc -l", description: commit}}]
      - tools: [{name: Bash, input: {command: "git update-ref refs/heads/main HEAD; git tag stolen; g=$(git rev-parse --git-common-dir); echo x > $g/hooks/post-commit; echo '[core] fsmonitor = evil' >> $g/config; echo x > $g/../b.txt; ls $g/../.nestor; true", description: escape}}]
      - text: "{{.ToolResult}}"`)
	client, _ := serving(t, settings{Dir: dir}.with(t, "api", model.URL))
	run := finish(t, client, nestor.Task{Input: "go", Dir: dir, Data: []byte("{" + bypass + `,"sandbox":"files","workspace":{"kind":"worktree"}}`)})
	w, _ := api.WorkspaceOf(run.Result)
	if w.Branch == "" || gitIn(t, dir, "log", "-1", "--format=%an %s", w.Branch) != "ada mine" {
		t.Errorf("its branch %q does not end with its commit: %s", w.Branch, run.Result.Output)
	}
	if got := gitIn(t, dir, "rev-parse", "main"); got != first {
		t.Errorf("main was moved to %s", got)
	}
	if tags := gitIn(t, dir, "tag"); tags != "" {
		t.Errorf("there are tags: %s", tags)
	}
	for _, name := range []string{".git/hooks/post-commit", "b.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if strings.Contains(read(t, dir, ".git/config"), "evil") || strings.Contains(run.Result.Output, "history.db") {
		t.Errorf("it got out: %s", run.Result.Output)
	}
}
