package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// realProject is a project whose runs are done by the real CLI, or by our own
// loop, with a model that follows a script. Nothing of this machine is seen but
// PATH and LANG.
type realProject struct {
	provider string
	dir      string
	home     string
	env      []string
}

// realProviders are what runs are done by.
var realProviders = []string{"sdk", "api"}

// newRealProject makes a project. In the script and in the config $WORK is its
// folder; the config is the project's, over one that knows the provider.
func newRealProject(t *testing.T, provider, script, config string) *realProject {
	t.Helper()
	cli := newPlaces(t, provider == "sdk")
	p := &realProject{provider: provider, dir: cli.Dir, home: cli.Home, env: append(cli.Env, quickExit, passQuickExit, "NESTOR_TRUST_PROJECT=1")}
	model := scriptmodel.Start(t, strings.NewReplacer("$WORK", p.dir, "$HOME", p.home).Replace(script))
	var user strings.Builder
	fmt.Fprintf(&user, "provider: %s\nproviders:\n  api: {base_url: %q, api_key: key}\n  sdk:\n    path: %q\n    env:\n", provider, model.URL, cli.Path)
	for _, kv := range append(scriptmodel.ClientEnv(model.URL), "CLAUDE_CODE_MAX_RETRIES=1") {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&user, "      %s: %q\n", name, value)
	}
	user.WriteString("limits: {backoff: 10ms, max_attempts: 2}\n")
	writeNew(t, filepath.Join(p.home, ".config", "nestor", "config.yaml"), user.String())
	writeNew(t, filepath.Join(p.dir, ".nestor", "config.yaml"), "# of the project\n"+strings.ReplaceAll(config, "$WORK", p.dir))
	return p
}

// newPlaces returns folders with short names, for the sockets in them, and the
// real CLI if it is needed.
func newPlaces(t *testing.T, real bool) *claudetest.CLI {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if real {
		if os.Getenv(claudetest.SkipVariable) == "1" {
			t.Skipf("%s=1: not tested against the real Claude CLI", claudetest.SkipVariable)
		}
		cli, err := claudetest.Install(dir)
		if err != nil {
			t.Fatal(err)
		}
		return cli
	}
	p := &claudetest.CLI{Path: "none", Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "work")}
	for _, d := range []string{p.Home, p.Dir, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.Env = []string{"HOME=" + p.Home, "TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG")}
	return p
}

func writeNew(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command returns nestor with args, in the project; it is killed when the test
// ends.
func (p *realProject) command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "nestor", args...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, stdout, stderr
	cmd.WaitDelay = 5 * time.Second
	return cmd, stdout, stderr
}

// told is what a command told.
type told struct {
	code   int
	stdout string
	stderr string
}

func (p *realProject) nestor(t *testing.T, args ...string) told {
	t.Helper()
	cmd, stdout, stderr := p.command(t, args...)
	return told{exitOf(t, cmd.Run()), stdout.String(), stderr.String()}
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// ending is how a run ended, as its last event and 'runs show' say.
type ending struct {
	told
	run   api.Run // as 'runs show' tells
	story string  // the types of the events; what is live, progress and what we have no type for left out
}

// end reads what 'run --stream-json' printed, and compares it with 'runs show'.
func (p *realProject) end(t *testing.T, out told) ending {
	t.Helper()
	e := ending{told: out}
	var types []string
	var last *nestor.ExecutionComplete
	var seq uint64
	for line := range strings.Lines(out.stdout) {
		event, err := nestor.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if at := event.Head().Seq; at > 0 {
			if at <= seq {
				t.Errorf("position %d comes behind %d", at, seq)
			}
			seq = at
		}
		var head struct{ Type string }
		json.Unmarshal([]byte(line), &head)
		switch event := event.(type) {
		case *nestor.AgentDelta, *nestor.ThinkingDelta, *nestor.ExecutionProgress, *nestor.ProviderMessage:
			continue
		case *nestor.ExecutionComplete:
			last = event
		}
		types = append(types, head.Type)
	}
	e.story = strings.Join(types, " ")
	if last == nil {
		t.Fatalf("it has no end: %s\n%s", e.story, out.stderr)
	}
	show := p.nestor(t, "runs", "show", string(last.Run), "--json")
	if err := json.Unmarshal([]byte(show.stdout), &e.run); err != nil {
		t.Fatalf("runs show: %v\n%s", err, show.stderr)
	}
	if e.run.State != last.Status || e.run.Result == nil || last.Result == nil || e.run.Result.Output != last.Result.Output || kindIn(e.run.Error) != kindIn(last.Error) {
		t.Errorf("runs show says %s, and its last event %s", show.stdout, out.stdout[strings.LastIndex(strings.TrimSpace(out.stdout), "\n")+1:])
	}
	return e
}

func kindIn(f *nestor.Failure) nestor.Kind {
	if f == nil {
		return ""
	}
	return f.Kind
}

// run runs to the end.
func (p *realProject) run(t *testing.T, args ...string) ending {
	t.Helper()
	return p.end(t, p.nestor(t, append([]string{"run", "--stream-json"}, args...)...))
}

// Stories of runs, by the types of their events.
const (
	opening = "run_queued agent_execution_start chat_start agent_start "
	closing = " chat_complete agent_execution_complete"
)

func TestRunsOfRealProviders(t *testing.T) {
	for _, test := range []struct {
		name   string
		script string
		config string
		args   []string
		only   string // provider; empty means both
		status nestor.State
		kind   nestor.Kind
		code   int
		story  string // regular expression
		output string // in it
		stderr string // in it
		tries  int    // failed connections
		file   string // which is there, with its content behind =
	}{
		{
			name: "text", script: `rules: [{turns: [{text: Hello.}]}]`,
			status: nestor.Success, output: "Hello.", story: opening + "agent_complete" + closing,
		},
		{
			name: "tools", script: `
rules:
  - turns:
      - {text: I write., tools: [{name: Write, input: {file_path: $WORK/out.txt, content: hello}}]}
      - text: It is written.`,
			status: nestor.Success, output: "It is written.", file: "out.txt=hello",
			story: opening + "agent_complete tool_start tool_complete workspace_write agent_complete" + closing,
		},
		{
			name: "thinking", script: `rules: [{turns: [{thinking: hm, text: I thought.}]}]`,
			status: nestor.Success, output: "I thought.", story: opening + "thinking_complete agent_complete" + closing,
		},
		{
			name: "subagents", only: "sdk", script: `
rules:
  - when: {user: delegate}
    turns:
      - {text: I delegate., tools: [{name: Agent, input: {description: look, prompt: look closely, subagent_type: general-purpose, run_in_background: false}}]}
      - text: "it said: {{.ToolResult}}"
  - when: {user: look closely}
    turns: [{text: I saw it.}]`, args: []string{"--delegation", "cli", "delegate"},
			status: nestor.Success, output: "I saw it.",
			story: opening + "agent_complete tool_start agent_complete tool_complete agent_complete" + closing,
		},
		{
			name: "subagents of the CLI are taken away", only: "sdk", script: `
rules:
  - turns:
      - {text: I delegate., tools: [{name: Agent, input: {description: look, prompt: look closely, subagent_type: general-purpose}}]}
      - text: "it said: {{.ToolResult}}"`,
			status: nestor.Success, output: "No such tool available: Agent",
			story: opening + "agent_complete tool_start tool_complete agent_complete" + closing,
		},
		{
			// Our own loop has no such tool: it says so to the model. Runs below a run are
			// what is there for it.
			name: "subagents", only: "api", script: `
rules:
  - turns:
      - {text: I delegate., tools: [{name: Agent, input: {description: look, prompt: look closely, subagent_type: general-purpose}}]}
      - text: "it said: {{.ToolResult}}"`,
			status: nestor.Success, output: "No such tool available: Agent",
			story: opening + "agent_complete tool_start tool_complete agent_complete" + closing,
		},
		{
			name: "permission denied", args: []string{"--permission-mode", "default", "go"}, script: `
rules:
  - turns:
      - {text: I try., tools: [{name: Write, input: {file_path: $WORK/out.txt, content: hello}}]}
      - text: "It said: {{.ToolResult}}"`,
			status: nestor.Success, output: "ermission", file: "out.txt",
			story: opening + "agent_complete tool_start tool_complete agent_complete" + closing,
		},
		{
			name: "max turns", args: []string{"--max-turns", "1", "--tools", "Bash", "go"}, script: `
rules: [{repeat: true, turns: [{text: again, tools: [{name: Bash, input: {command: "true", description: nothing}}]}]}]`,
			status: nestor.Partial, kind: nestor.Turns, code: 3, output: "again", stderr: " is partial: turns: ",
			story: opening + "agent_complete tool_start tool_complete chat_complete error agent_execution_complete",
		},
		{
			name: "max turns without output", args: []string{"--max-turns", "1", "--tools", "Bash", "go"}, script: `
rules: [{repeat: true, turns: [{tools: [{name: Bash, input: {command: "true", description: nothing}}]}]}]`,
			status: nestor.Error, kind: nestor.Turns, code: 1, stderr: " ended with an error: turns: ",
			story: opening + "tool_start tool_complete chat_complete error agent_execution_complete",
		},
		{
			name: "budget", args: []string{"--max-budget-usd", "0.000001", "--tools", "Bash", "go"}, script: `
rules: [{repeat: true, turns: [{text: again, tools: [{name: Bash, input: {command: "true", description: nothing}}]}]}]`,
			status: nestor.Partial, kind: nestor.Budget, code: 3, output: "again", stderr: " is partial: budget: ",
			// The provider ends it, or what it reports to have spent does, whichever is first.
			story: opening + ".*agent_complete .*error agent_execution_complete",
		},
		{
			name: "time-out", args: []string{"--timeout", "3s", "go"}, script: `rules: [{turns: [{text: late, wait: 1h}]}]`,
			status: nestor.Error, kind: nestor.Timeout, code: 1, stderr: " ended with an error: timeout by deadline: ",
			// Our own loop may be quick enough to tell how its turn ended.
			story: opening + "run_cancelled (chat_complete )?error agent_execution_complete",
		},
		{
			name: "overload that passes", script: `rules: [{turns: [{text: At last., fail: {times: 1, status: 529, retry_after: 1ms}}]}]`,
			status: nestor.Success, output: "At last.", story: opening + "agent_complete" + closing,
		},
		{
			name: "overload that does not", script: `rules: [{repeat: true, turns: [{text: never, fail: {status: 529, retry_after: 1ms}}]}]`,
			status: nestor.Error, kind: nestor.Connection, code: 1, tries: 1, output: "API Error: 529", stderr: " ended with an error: connection: ",
			story: opening + "agent_complete chat_complete error run_retry agent_execution_start chat_start agent_start agent_complete chat_complete error agent_execution_complete",
		},
		{
			name: "bad key", script: `rules: [{repeat: true, turns: [{text: never, fail: {status: 401, message: invalid x-api-key}}]}]`,
			status: nestor.Error, kind: nestor.Provider, code: 1, output: "API", stderr: " ended with an error: provider: ",
			story: opening + "agent_complete chat_complete error agent_execution_complete",
		},
		{
			name: "silence", config: "limits: {silence: 12s}\n", script: `
rules:
  - when: {user: You were interrupted}
    turns: [{text: I go on.}]
  - turns: [{text: never, wait: 1h}]`,
			status: nestor.Success, output: "I go on.", tries: 1,
			story: opening + "(chat_complete )?error run_retry agent_execution_start chat_start agent_start agent_complete" + closing,
		},
		{
			name: "binary missing", only: "sdk", config: "providers: {sdk: {path: $WORK/nowhere/claude}}\n",
			script: `rules: [{turns: [{text: never}]}]`,
			status: nestor.Error, kind: nestor.Provider, code: 1, stderr: "nowhere/claude: ",
			story: opening + "error agent_execution_complete",
		},
	} {
		for _, provider := range realProviders {
			if test.only != "" && test.only != provider {
				continue
			}
			t.Run(test.name+" on "+provider, func(t *testing.T) {
				t.Parallel()
				p := newRealProject(t, provider, test.script, test.config)
				args := test.args
				if args == nil {
					args = []string{"go"}
				}
				e := p.run(t, args...)
				if e.run.State != test.status || kindIn(e.run.Error) != test.kind || e.code != test.code || e.run.Retries != test.tries {
					t.Errorf("it is %s, %v, exit code %d, %d failed connections", e.run.State, e.run.Error, e.code, e.run.Retries)
				}
				if !regexp.MustCompile("^" + test.story + "$").MatchString(e.story) {
					t.Errorf("the story is\n%s, want\n%s", e.story, test.story)
				}
				if !strings.Contains(e.run.Result.Output, test.output) || test.output == "" && e.run.Result.Output != "" {
					t.Errorf("the output is %q", e.run.Result.Output)
				}
				if !strings.Contains(e.stderr, test.stderr) || test.stderr == "" && e.stderr != "" {
					t.Errorf("it says %q", e.stderr)
				}
				if name, content, want := strings.Cut(test.file, "="); name != "" {
					data, err := os.ReadFile(filepath.Join(p.dir, name))
					if (err == nil) != want || string(data) != content {
						t.Errorf("%s holds %q, %v", name, data, err)
					}
				}
			})
		}
	}
}

func TestMissingCLINamesThePlaces(t *testing.T) {
	p := newRealProject(t, "sdk", `rules: [{turns: [{text: never}]}]`, "")
	config := filepath.Join(p.home, ".config", "nestor", "config.yaml")
	if err := os.WriteFile(config, []byte("limits: {backoff: 10ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nestor, err := exec.LookPath("nestor")
	if err != nil {
		t.Fatal(err)
	}
	p.env = append(slices.DeleteFunc(p.env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }), "PATH="+filepath.Dir(nestor))
	out := p.nestor(t, "run", "-q", "go")
	for _, want := range []string{"Claude Code not found", "claude on PATH", p.home, "install it with 'npm install", "CLAUDE_CLI"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("no %q in %s", want, out.stderr)
		}
	}
	if out.code != 1 {
		t.Errorf("the exit code is %d", out.code)
	}
}
