package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// What the real CLI says to a prompt, this provider says too, message by message:
// what it is, in which words, and how the turn ends.
func TestLiveSameAsTheCLI(t *testing.T) {
	object := json.RawMessage(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
	for _, test := range []struct {
		name      string
		script    string
		config    agent.Config
		miscounts bool // CLI 2.1.325 may leave the last answer out of the usage and the cost of a turn that fails there
	}{
		{name: "text", script: `[{turns: [{text: hello}]}]`},
		{name: "thinking", script: `[{turns: [{thinking: hm, text: hello}]}]`},
		{name: "partial", script: `[{turns: [{text: "a text in pieces", chunk: 5}]}]`, config: agent.Config{Credentials: map[string]string{"partial": "true"}}},
		{name: "max tokens", script: `[{when: {user: ^go}, turns: [{text: one, stop: max_tokens}]}, {turns: [{text: two}]}]`},
		{name: "structured", script: `[{turns: [{tools: [{name: StructuredOutput, input: {answer: 42}}]}]}]`, config: agent.Config{Schema: object}},
		{name: "structured never", script: `[{repeat: true, turns: [{tools: [{name: StructuredOutput, input: {answer: many}}]}]}]`, config: agent.Config{Schema: object}, miscounts: true},
		{name: "API error", script: `[{repeat: true, turns: [{fail: {status: 400, message: it cannot be}}]}]`},
		{name: "no such tool", script: `[{turns: [{tools: [{name: Nope, input: {}}]}, {text: so be it}]}]`},
		{name: "max turns", script: `[{repeat: true, turns: [{tools: [{name: Nope, input: {}}]}]}]`, config: agent.Config{Limits: agent.Limits{MaxTurns: 2}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cli := claudetest.Real(t)
			script := "usage: {input_tokens: 1000, output_tokens: 50}\nrules: " + test.script
			model := scriptmodel.Start(t, script)
			test.config.Dir, test.config.Model = cli.Dir, "claude-opus-5-5"
			env := slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))
			want := transcript(t, claudecode.New(claudecode.Options{Path: cli.Path, Env: env, ReplaceEnv: true}), test.config, test.miscounts)
			got := transcript(t, open(t, script).p, test.config, test.miscounts)
			if got != want {
				t.Errorf("it says\n%s\nand the CLI says\n%s", got, want)
			}
		})
	}
}

// transcript has an agent say what it says, and leaves out what no two of them
// have in common.
func transcript(t *testing.T, p agent.Provider, c agent.Config, miscounts bool) string {
	t.Helper()
	c.Name = "ada"
	a, err := p.Create(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Shutdown(bounded(t))
	all, last := say(t, bounded(t), a, "go")
	var b strings.Builder
	for _, m := range all {
		kind := m.Metadata["sdk_type"]
		content := m.Content
		if kind == "tool_result" { // each has words of its own for what went wrong
			content = ""
		}
		content, _, _ = strings.Cut(content, "— last "+outputTool)
		fmt.Fprintf(&b, "%s %s %q", m.Kind, kind, content)
		for _, key := range []string{"subtype", "reason", "usage", "total_cost_usd", "num_turns", "structured_output", "api_error_status", "is_error", "tool_name", "tool_input", "model"} {
			if value, ok := m.Metadata[key]; ok && !(miscounts && (key == "usage" || key == "total_cost_usd")) {
				text, _ := json.Marshal(value)
				fmt.Fprintf(&b, " %s=%s", key, text)
			}
		}
		b.WriteByte('\n')
	}
	e, _ := last.(*agent.Error)
	if e != nil {
		fmt.Fprintf(&b, "error %v %d", e.Kind, e.Status)
	}
	return b.String()
}
