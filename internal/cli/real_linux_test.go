package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// begins is a model that has a file written and then does not answer any more,
// unless it is told that it was interrupted.
const begins = `
rules:
  - when: {user: You were interrupted}
    turns: [{text: I go on.}]
  - turns:
      - {text: I begin., tools: [{name: Write, input: {file_path: $WORK/began, content: yes}}]}
      - {text: never, wait: 1h}`

// going is a run that has begun, and the command that follows it.
type going struct {
	*realProject
	cmd    *exec.Cmd
	stdout *bytes.Buffer
	stderr string // file
	run    api.Run
}

// begin starts a run of the model begins, and waits until it does not answer.
func (p *realProject) begin(t *testing.T, args ...string) *going {
	t.Helper()
	g := &going{realProject: p, stderr: filepath.Join(p.home, "stderr")}
	g.cmd, g.stdout, _ = p.command(t, append([]string{"run"}, args...)...)
	stderr, err := os.Create(g.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	g.cmd.Stderr = stderr
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			g.cmd.Process.Kill()
			g.cmd.Wait()
		}
	})
	await(t, "the file that the agent writes", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, "began"))
		return err == nil
	})
	out := p.nestor(t, "runs", "list", "--json")
	var list struct{ Runs []api.Run }
	if err := json.Unmarshal([]byte(out.stdout), &list); err != nil || len(list.Runs) != 1 {
		t.Fatalf("the list is %s %s, %v", out.stdout, out.stderr, err)
	}
	g.run = g.show(t, list.Runs[0].ID)
	if g.run.Session == "" {
		t.Fatalf("it has no session: %+v", g.run)
	}
	return g
}

func (p *realProject) show(t *testing.T, id nestor.ID) (run api.Run) {
	t.Helper()
	out := p.nestor(t, "runs", "show", string(id), "--json")
	if err := json.Unmarshal([]byte(out.stdout), &run); err != nil {
		t.Fatalf("%v\n%s", err, out.stderr)
	}
	return run
}

// wait waits for the end of the command.
func (g *going) wait(t *testing.T) told {
	t.Helper()
	code := exitOf(t, g.cmd.Wait())
	return told{code, g.stdout.String(), g.said(t)}
}

// said returns what the command has said so far.
func (g *going) said(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(g.stderr)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for !holds() {
		select {
		case <-late:
			t.Fatalf("waited too long for %s", what)
		case <-t.Context().Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// agents returns the processes that belong to a run, by their environment.
func agents(t *testing.T, id nestor.ID) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00NESTOR_RUN_ID="+string(id)+"\x00")) {
			continue // it is not ours, or has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// agent returns the only one that is the CLI: others look after it.
func (g *going) agent(t *testing.T) int {
	t.Helper()
	pids := slices.DeleteFunc(agents(t, g.run.ID), func(pid int) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || filepath.Base(exe) != "claude"
	})
	if len(pids) != 1 {
		t.Fatalf("the processes of the run are %v", pids)
	}
	return pids[0]
}

func (g *going) nothingIsLeft(t *testing.T) {
	t.Helper()
	await(t, "the end of the run's processes", func() bool { return len(agents(t, g.run.ID)) == 0 })
}

func TestKilledCLIGoesOn(t *testing.T) {
	t.Parallel()
	g := newRealProject(t, "sdk", begins, "").begin(t, "--stream-json", "go")
	if err := syscall.Kill(g.agent(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := g.end(t, g.wait(t))
	if e.code != 0 || e.run.State != nestor.Success || e.run.Result.Output != "I go on." || e.run.Session != g.run.Session || e.run.Retries != 1 {
		t.Errorf("exit code %d, %s: %+v", e.code, e.stderr, e.run)
	}
	// The tool dies with the CLI, which may just have told that it is done.
	e.story = strings.Replace(strings.Replace(e.story, "workspace_write error", "error", 1), "tool_complete error", "error", 1)
	want := opening + "agent_complete tool_start error run_retry agent_execution_start chat_start agent_start agent_complete" + closing
	if e.story != want {
		t.Errorf("the story is\n%s, want\n%s", e.story, want)
	}
	g.nothingIsLeft(t)
}

func TestHangingCLIIsEndedAndTriedAgain(t *testing.T) {
	t.Parallel()
	g := newRealProject(t, "sdk", begins, "limits: {silence: 12s}\n").begin(t, "--stream-json", "go")
	if err := syscall.Kill(g.agent(t), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e := g.end(t, g.wait(t))
	if e.code != 0 || e.run.State != nestor.Success || e.run.Result.Output != "I go on." || e.run.Session != g.run.Session || e.run.Retries != 1 {
		t.Errorf("exit code %d, %s: %+v", e.code, e.stderr, e.run)
	}
	if !strings.Contains(e.stdout, "no sign of life for 12s: it is interrupted") || !strings.Contains(e.stdout, "it is ended, for it gives no sign of life") {
		t.Errorf("it is not said why it was ended: %s", e.stdout)
	}
	g.nothingIsLeft(t)
}

func TestRunOfAKilledCommandGoesOn(t *testing.T) {
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			g := newRealProject(t, provider, begins, "").begin(t, "go")
			if err := g.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			g.cmd.Wait()
			g.nothingIsLeft(t) // not even of what was killed
			e := g.end(t, g.nestor(t, "run", "--stream-json", "--resume", string(g.run.ID)))
			if e.code != 0 || e.run.State != nestor.Success || e.run.Result.Output != "I go on." || e.run.Session != g.run.Session || e.run.Resumes != 1 {
				t.Errorf("exit code %d, %s: %+v", e.code, e.stderr, e.run)
			}
		})
	}
}

func TestInterruptSettles(t *testing.T) {
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			g := newRealProject(t, provider, begins, "").begin(t, "go")
			if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			out := g.wait(t)
			run := g.show(t, g.run.ID)
			if out.code != 130 || run.State != nestor.Cancelled || kindIn(run.Error) != nestor.Stopped || run.Error.Message != "cancelled by Ctrl-C" {
				t.Errorf("exit code %d, %s: %+v", out.code, out.stderr, run)
			}
			g.nothingIsLeft(t)
		})
	}
}

// stopped is a run whose CLI does not settle, or do anything else.
func stopped(t *testing.T) *going {
	t.Helper()
	g := newRealProject(t, "sdk", begins, "").begin(t, "go")
	if err := syscall.Kill(g.agent(t), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return g
}

// interrupt presses Ctrl-C, and waits for what it is answered.
func (g *going) interrupt(t *testing.T, answer string) {
	t.Helper()
	if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await(t, answer, func() bool { return strings.Contains(g.said(t), answer) })
}

func TestSecondInterruptEndsWhatDoesNotSettle(t *testing.T) {
	t.Parallel()
	g := stopped(t)
	g.interrupt(t, "interrupting; Ctrl-C again ends it now")
	g.interrupt(t, "ending it now; Ctrl-C again leaves it")
	out := g.wait(t)
	run := g.show(t, g.run.ID)
	if out.code != 130 || run.State != nestor.Cancelled || run.Error.Message != "cancelled by Ctrl-C" {
		t.Errorf("exit code %d, %s: %+v", out.code, out.stderr, run)
	}
	g.nothingIsLeft(t)
}

func TestThirdInterruptLeavesARunThatIsBeingEnded(t *testing.T) {
	t.Parallel()
	g := stopped(t)
	g.interrupt(t, "interrupting")
	g.interrupt(t, "ending it now")
	g.interrupt(t, "left before it had ended")
	if out := g.wait(t); out.code != 130 {
		t.Errorf("exit code %d, %s", out.code, out.stderr)
	}
	g.nothingIsLeft(t)
	if run := g.show(t, g.run.ID); run.State.Ended() || !strings.Contains(run.Doing, "is being ended (cancelled by Ctrl-C)") {
		t.Errorf("it is %s: %s", run.State, run.Doing)
	}
	out := g.nestor(t, "run", "-q", "--resume", string(g.run.ID))
	if run := g.show(t, g.run.ID); out.code != 130 || run.State != nestor.Cancelled {
		t.Errorf("the next command ends with %d, %s; it is %+v", out.code, out.stderr, run)
	}
}

// What --env says reaches the agent's process, and what that starts.
func TestEnvReachesTheAgent(t *testing.T) {
	const script = `
rules:
  - turns:
      - {text: I look., tools: [{name: Bash, input: {command: "printf %s \"$COLOUR-$NESTOR_DEPTH-$AGENT_NAME\" > $WORK/env", description: look}}]}
      - text: I looked.`
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, script, "")
			writeNew(t, filepath.Join(p.dir, ".claude", "agents", "ada.md"), "---\nname: ada\ndescription: Looks.\n---\nLook.\n")
			e := p.run(t, "--agent", "ada", "--env", "COLOUR=blue", "--env", "COLOUR=green", "--tools", "Bash", "go")
			data, err := os.ReadFile(filepath.Join(p.dir, "env"))
			if e.code != 0 || string(data) != "green-0-ada" {
				t.Errorf("it sees %q, %v; exit code %d, %s", data, err, e.code, e.stderr)
			}
		})
	}
}
