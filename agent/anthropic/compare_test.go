package anthropic

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// scenario is a task that the real CLI and this provider are both given.
type scenario struct {
	name    string
	files   map[string]string // that are there before
	config  agent.Config
	more    func(*scene) // what the configuration needs of the scene; nil means nothing
	script  string       // the rules of the model; $W is where the agent works
	prompts []string     // nil means one: go
	told    []string     // texts that the model must have been sent, by both
	differs []difference // that are known, and in docs/api-provider.md or docs/api-tools.md
}

// difference is a text of the CLI's transcript that is another one in ours.
type difference struct{ cli, ours string }

// scene is where a scenario is played by one of the two.
type scene struct {
	t        *testing.T
	dir      string
	provider agent.Provider
	config   agent.Config
	model    *scriptmodel.Server
	cli      *claudecode.Options // of the CLI's provider; nil for ours
}

// clis bounds how many CLIs run at once.
var clis = make(chan struct{}, 2)

// The same scenarios, with the real tools, through the real CLI and through this
// provider: the same files are there in the end, calls have the same results,
// and turns end in the same way, but for the differences that are listed.
func TestLiveScenarios(t *testing.T) {
	for _, s := range soak.Draw(t, 16, scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			clis <- struct{}{}
			defer func() { <-clis }()
			want, theirs := s.playCLI(t)
			got, ours := s.playOurs(t)
			for _, d := range s.differs {
				if !strings.Contains(want, d.cli) {
					t.Errorf("the CLI does not differ any more: there is no %q", d.cli)
				}
				want = strings.ReplaceAll(want, d.cli, d.ours)
			}
			if got != want {
				t.Errorf("ours is -, the CLI's with what is known to differ +:\n%s", unlike(got, want))
			}
			for _, text := range s.told {
				for who, requests := range map[string][]*scriptmodel.Request{"the CLI": theirs, "ours": ours} {
					if !slices.ContainsFunc(requests, func(r *scriptmodel.Request) bool { return strings.Contains(string(r.Body), text) }) {
						t.Errorf("%s did not tell the model %q", who, text)
					}
				}
			}
		})
	}
}

func (s scenario) playCLI(t *testing.T) (string, []*scriptmodel.Request) {
	cli := claudetest.Real(t, "CLAUDE_CODE_ENABLE_TASKS=0", "EMBEDDED_SEARCH_TOOLS=0", "ENABLE_TOOL_SEARCH=false")
	model := scriptmodel.Start(t, s.rules(cli.Dir))
	opts := claudecode.Options{Path: cli.Path, ReplaceEnv: true, Env: slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))}
	return s.play(&scene{t: t, dir: cli.Dir, provider: claudecode.New(opts), model: model, cli: &opts})
}

func (s scenario) playOurs(t *testing.T) (string, []*scriptmodel.Request) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, s.rules(dir))
	text, requests := s.play(&scene{t: t, dir: dir, provider: b.p, model: b.model})
	b.requests() // are checked
	return text, requests
}

func (s scenario) rules(dir string) string {
	return "usage: {input_tokens: 1000, output_tokens: 50}\nrules: " + strings.ReplaceAll(s.script, "$W", dir)
}

// play has the agent do its work, and tells all that matters of it.
func (s scenario) play(sc *scene) (string, []*scriptmodel.Request) {
	t := sc.t
	for name, content := range s.files {
		path := filepath.Join(sc.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	sc.config = s.config
	sc.config.Name, sc.config.Dir, sc.config.Model = "ada", sc.dir, or(sc.config.Model, "claude-opus-5-5")
	if s.more != nil {
		s.more(sc)
	}
	prompts := s.prompts
	if prompts == nil {
		prompts = []string{"go"}
	}
	var b strings.Builder
	a, err := sc.provider.Create(bounded(t), sc.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range prompts {
		if prompt == another {
			a.Shutdown(bounded(t))
			if a, err = sc.provider.Create(bounded(t), sc.config); err != nil {
				t.Fatal(err)
			}
			continue
		}
		all, last := say(t, bounded(t), a, prompt)
		var lines []string
		for _, m := range all {
			sc.config.Resume = fmt.Sprint(m.Metadata["session_id"])
			if l := sc.said(m); l != "" {
				lines = append(lines, l)
			}
		}
		b.WriteString(strings.Join(inOrder(lines), ""))
		if e, ok := last.(*agent.Error); ok {
			fmt.Fprintf(&b, "error: %v %d\n", e.Kind, e.Status)
		} else if last != nil {
			t.Errorf("the error is %v", last)
		}
	}
	if err := a.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
	b.WriteString(sc.tree())
	return b.String(), sc.model.Requests()
}

// unlike shows where two transcripts are not the same.
func unlike(ours, theirs string) string {
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	var out strings.Builder
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x == y {
			fmt.Fprintf(&out, "  %s\n", x)
		} else {
			fmt.Fprintf(&out, "- %s\n+ %s\n", x, y)
		}
	}
	return out.String()
}

// another is a prompt that stands for the next ones being given to another
// agent, which goes on with the session.
const another = "\x00another"

var (
	taskID   = regexp.MustCompile(`\bb[a-z0-9]{8}\b`)
	counted  = regexp.MustCompile(`(\\n\d+){400,}`) // Bash was told to count
	traceID  = regexp.MustCompile(`\b(req|msg)_[0-9a-f]+`)
	taskFile = regexp.MustCompile(`[^ ']*/([a-z0-9_-]*TASK)\.(output|txt)`)
)

// inOrder sorts the results that follow on each other: both say them in the
// order in which calls happen to end.
func inOrder(lines []string) []string {
	for i := range lines {
		n := i
		for n < len(lines) && strings.HasPrefix(lines[n], "tool_result") {
			n++
		}
		slices.Sort(lines[i:n])
	}
	return lines
}

// sorted is JSON with its keys in order, without what the CLI adds to inputs.
func sorted(value any) []byte {
	raw, _ := json.Marshal(value)
	var v any
	json.Unmarshal(raw, &v)
	if m, ok := v.(map[string]any); ok && m["replace_all"] == false {
		delete(m, "replace_all")
	}
	raw, _ = json.Marshal(v)
	return raw
}

// said is a message as both would say it: nothing in it is of one run alone.
func (sc *scene) said(m agent.Message) string {
	kind := m.Metadata["sdk_type"].(string)
	text := strings.TrimSuffix(strings.TrimPrefix(m.Content, "<tool_use_error>"), "</tool_use_error>")
	keys := []string{}
	switch kind {
	case "assistant_text", "model_refusal", "resumed":
	case "tool_use":
		keys = []string{"tool_input"}
	case "tool_result":
		keys = []string{"is_error"}
	case "model_fallback":
		text, keys = "", []string{"from", "to", "trigger"}
	case "permission_denied":
		text, keys = "", []string{"tool_name"}
	case "api_retry":
		text, keys = "", []string{"attempt", "api_error_status", "error"}
	case "result":
		text, _, _ = strings.Cut(text, "— last "+outputTool)
		keys = []string{"subtype", "reason", "num_turns", "structured_output", "api_error_status", "permission_denials"}
	default:
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %q", kind, text)
	for _, key := range keys {
		value, ok := m.Metadata[key]
		if !ok {
			continue
		}
		raw := sorted(value)
		if key == "permission_denials" {
			raw = regexp.MustCompile(`,?"tool_use_id":"[^"]*"`).ReplaceAll(raw, nil)
		}
		fmt.Fprintf(&b, " %s=%s", key, raw)
	}
	line := counted.ReplaceAllString(strings.ReplaceAll(b.String(), sc.dir, "W"), "…")
	line = traceID.ReplaceAllString(line, "$1")
	line = taskFile.ReplaceAllString(taskID.ReplaceAllString(line, "TASK"), "TASK.$2")
	return line + "\n"
}

// tree lists the files that there are in the end.
func (sc *scene) tree() string {
	var b strings.Builder
	err := filepath.WalkDir(sc.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == sc.dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "file: %s %s %q\n", strings.TrimPrefix(path, sc.dir+"/"), info.Mode(), content)
		return nil
	})
	if err != nil {
		sc.t.Fatal(err)
	}
	return b.String()
}
