package claudetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) {
	code := claudetest.Main(m, scripts)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const transcripts = "../testdata/transcripts"

func read(t testing.TB, path string) *claudetest.Transcript {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := claudetest.ParseTranscript(path, data)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// play has the conversation of a recorded transcript with the real CLI.
func play(t testing.TB, name string) (*claudetest.Transcript, *scriptmodel.Server, *claudetest.CLI) {
	t.Helper()
	tr := read(t, filepath.Join(transcripts, name+".txtar"))
	cli := claudetest.Real(t)
	model := scriptmodel.Start(t, tr.Script(cli))
	cli.Env = append(cli.Env, scriptmodel.ClientEnv(model.URL)...)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if err := tr.Play(ctx, cli); err != nil {
		for _, l := range tr.Lines {
			t.Logf("%.300s", l)
		}
		t.Fatal(err)
	}
	return tr, model, cli
}

// result returns the last line of that kind.
func result(t testing.TB, tr *claudetest.Transcript, kind string) map[string]any {
	t.Helper()
	for _, l := range slices.Backward(tr.Lines) {
		if l.From == claudetest.Claude && claudetest.Kind(l.JSON) == kind {
			var m map[string]any
			if err := json.Unmarshal(l.JSON, &m); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatalf("the CLI said no %s", kind)
	return nil
}

func TestRealVersion(t *testing.T) {
	cli := claudetest.Real(t)
	v, err := claude.Version(t.Context(), cli.Path)
	if err != nil || !claude.Supported(v) {
		t.Fatalf("version %q, %v", v, err)
	}
	if want := read(t, transcripts+"/text.txtar").Version; v != want {
		t.Errorf("the CLI is %s, the transcripts are of %s: run 'make transcripts' and look at what changed", v, want)
	}
}

func TestRealPrompt(t *testing.T) {
	t.Parallel()
	tr, model, _ := play(t, "text")
	if got := result(t, tr, "result/success")["result"]; got != "You said: hello" {
		t.Errorf("the result is %q", got)
	}
	asked := model.Requests()
	if len(asked) != 1 || asked[0].Prompt != "hello" || !asked[0].Stream || !slices.Contains(asked[0].Tools, "Read") {
		t.Errorf("the model was asked %+v", asked)
	}
}

func TestRealToolWritesAFile(t *testing.T) {
	t.Parallel()
	tr, model, cli := play(t, "write-file")
	data, err := os.ReadFile(filepath.Join(cli.Dir, "out.txt"))
	if err != nil || string(data) != "hello" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if got := result(t, tr, "result/success")["num_turns"]; got != 2.0 {
		t.Errorf("it took %v turns", got)
	}
	asked := model.Requests()
	if len(asked) != 2 || !strings.Contains(asked[1].ToolResult, "created successfully") || asked[1].Turn != 2 {
		t.Errorf("the model was asked %+v", asked)
	}
}

func TestRealSubagent(t *testing.T) {
	t.Parallel()
	tr, model, _ := play(t, "subagent")
	if got := fmt.Sprint(result(t, tr, "result/success")["result"]); !strings.Contains(got, "I saw it.") {
		t.Errorf("the result is %q", got)
	}
	if n := result(t, tr, "system/task_notification"); n["status"] != "completed" {
		t.Errorf("the task ended as %v", n)
	}
	var prompts []string
	for _, r := range model.Requests() {
		prompts = append(prompts, r.Prompt)
	}
	if fmt.Sprint(prompts) != "[delegate look closely look closely delegate]" {
		t.Errorf("the model was asked %q", prompts)
	}
}

func TestRealStructuredResult(t *testing.T) {
	t.Parallel()
	tr, model, _ := play(t, "structured")
	if got := fmt.Sprint(result(t, tr, "result/success")["structured_output"]); got != "map[answer:42]" {
		t.Errorf("the structured output is %s", got)
	}
	if asked := model.Requests(); len(asked) == 0 || !slices.Contains(asked[0].Tools, "StructuredOutput") {
		t.Errorf("the model was asked %+v", asked)
	}
}

func TestRealOverloadIsRetried(t *testing.T) {
	t.Parallel()
	tr, model, _ := play(t, "api-retry")
	if got := result(t, tr, "system/api_retry"); got["error_status"] != 529.0 || got["error"] != "overloaded" {
		t.Errorf("the retry is %v", got)
	}
	if got := result(t, tr, "result/success")["result"]; got != "at last" {
		t.Errorf("the result is %q", got)
	}
	var statuses []int
	for _, r := range model.Requests() {
		statuses = append(statuses, r.Status)
	}
	if fmt.Sprint(statuses) != "[529 200]" {
		t.Errorf("the model answered %v", statuses)
	}
}

// Every scenario goes today as it went when it was recorded: the CLI says the
// same kinds of things, as often.
func TestRealTranscriptsHold(t *testing.T) {
	files, err := filepath.Glob(transcripts + "/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range soak.Draw(t, 16, files) {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := kinds(read(t, file))
			tr, _, _ := play(t, name)
			if got := kinds(tr); !slices.Equal(got, want) {
				t.Errorf("the CLI said\n  %s\nand when it was recorded\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// kinds counts what the CLI said, by kind. What depends on the machine's speed
// is left out.
func kinds(tr *claudetest.Transcript) (lines []string) {
	count := map[string]int{}
	for _, l := range tr.Lines {
		kind := l.Note
		if l.From == claudetest.Claude {
			kind = claudetest.Kind(l.JSON)
		}
		switch {
		case l.From == claudetest.Host:
		case strings.HasPrefix(kind, "stream_event/"), kind == "system/thinking_tokens", kind == "system/task_progress", kind == "transcript_mirror":
		case kind == "control_request/hook_callback": // some hooks are fired and forgotten
			count[kind] = 1
		default:
			count[kind]++
		}
	}
	for kind, n := range count {
		lines = append(lines, fmt.Sprintf("%s × %d", kind, n))
	}
	slices.Sort(lines)
	return lines
}

func TestRealFailsWithoutTheCLI(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := claudetest.Install(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "run 'make tools'") || !strings.Contains(err.Error(), claudetest.SkipVariable) {
		t.Errorf("without the CLI: %v", err)
	}
}

// The CLI sees nothing of the machine but PATH and LANG.
func TestRealEnvironmentIsItsOwn(t *testing.T) {
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "secret")
	cli, err := claudetest.Install(t.TempDir(), "A=b")
	if err != nil {
		t.Skipf("not installed: %v", err)
	}
	var names []string
	for _, kv := range cli.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	if fmt.Sprint(names) != "[HOME TMPDIR PATH LANG A]" || strings.Contains(cli.Env[0], os.Getenv("HOME")) {
		t.Errorf("the environment is %q", cli.Env)
	}
}
