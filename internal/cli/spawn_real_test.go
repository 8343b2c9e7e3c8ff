package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
)

// nestingModel answers "level N" by starting "level N-1" below: by the tool at odd
// levels, by a command at even ones. The lowest answers by itself.
func nestingModel(depth int) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for n := depth; n > 0; n-- {
		call := fmt.Sprintf(`{name: mcp__nestor__spawn, input: {task: "level %d", schema: {type: object, properties: {level: {type: integer}}, required: [level]}}}`, n-1)
		if n%2 == 0 {
			call = fmt.Sprintf(`{name: Bash, input: {command: "nestor spawn --task 'level %d' --schema $WORK/schema.json --json", description: delegate, timeout: 600000}}`, n-1)
		}
		fmt.Fprintf(&b, "  - when: {user: \"^level %d$\"}\n    turns:\n      - tools: [%s]\n      - tools: [{name: StructuredOutput, input: {level: %d}}]\n      - text: done\n", n, call, n)
	}
	b.WriteString("  - when: {user: \"^level 0$\"}\n    turns:\n      - tools: [{name: StructuredOutput, input: {level: 0}}]\n      - text: done\n")
	return b.String()
}

// Five levels on one slot, the real agent at each, by the tool and by a command in
// turn: all of them end, with results that follow their schema, in one trace.
func TestFiveLevelsOnOneSlot(t *testing.T) {
	for _, provider := range realProviders {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, provider, nestingModel(5), "slots: 1\ntools: [Bash]\nlimits: {max_depth: 5, timeout: 3m}\n")
			schema := `{"type":"object","properties":{"level":{"type":"integer"}},"required":["level"]}`
			writeNew(t, p.dir+"/schema.json", schema)
			const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
			out := p.nestor(t, "spawn", "--task", "level 5", "--schema", "schema.json", "--json", "--parent-trace", "00-"+trace+"-00f067aa0ba902b7-01")
			var root struct {
				Run, Root  string
				Status     string
				Trace      string               `json:"trace_id"`
				Cost       float64              `json:"cost_usd"`
				Structured struct{ Level *int } `json:"structured_output"`
			}
			if err := json.Unmarshal([]byte(out.stdout), &root); err != nil || out.code != 0 {
				t.Fatalf("it ends with %d: %s\n%s", out.code, out.stdout, out.stderr)
			}
			if root.Status != "success" || root.Trace != trace || root.Structured.Level == nil || *root.Structured.Level != 5 {
				t.Errorf("the root is %+v", root)
			}
			tree := p.nestor(t, "runs", "tree", root.Run, "--json")
			var list struct {
				Runs []struct {
					State   string
					TraceID string `json:"trace_id"`
					Depth   int
					Cost    float64 `json:"cost_usd"`
				}
			}
			if err := json.Unmarshal([]byte(tree.stdout), &list); err != nil {
				t.Fatalf("%v in %s", err, tree.stdout)
			}
			sum := 0.0
			for i, r := range list.Runs {
				if r.Depth != i || r.State != "success" || r.TraceID != trace {
					t.Errorf("run %d is %+v", i, r)
				}
				sum += r.Cost
			}
			if len(list.Runs) != 6 || sum <= 0 || sum-root.Cost > 1e-9 || root.Cost-sum > 1e-9 {
				t.Errorf("%d runs cost %v together, the root says %v\n%s", len(list.Runs), sum, root.Cost, tree.stdout)
			}
		})
	}
}

// The door for commands is open from inside a sandbox, and no other one is.
func TestSandboxHasOneDoor(t *testing.T) {
	for _, level := range []string{"files", "strict"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			p := newRealProject(t, "api", `
rules:
  - when: {user: "^leaf$"}
    turns: [{text: I am the leaf.}]
  - turns:
      - tools: [{name: Bash, input: {command: "nestor spawn --task leaf", description: delegate}}]
      - tools: [{name: Bash, input: {command: "ls -a .nestor; NESTOR_TOKEN= nestor runs list; NESTOR_TOKEN=00 nestor spawn --task leaf", description: look}}]
      - text: done
`, "tools: [Bash]\nsandbox: "+level+"\n")
			end := p.end(t, p.nestor(t, "run", "--stream-json", "go"))
			if end.run.State != nestor.Success {
				t.Fatalf("it is %s, %+v\n%s", end.run.State, end.run.Error, end.stderr)
			}
			var results []string
			for line := range strings.Lines(end.stdout) {
				if e, err := nestor.DecodeEvent([]byte(line)); err == nil {
					if tool, ok := e.(*nestor.ToolComplete); ok {
						results = append(results, tool.Summary)
					}
				}
			}
			if len(results) != 2 || strings.TrimSpace(results[0]) != "I am the leaf." {
				t.Fatalf("the tools say %q", results)
			}
			if strings.Contains(results[1], "nestor.sock") || strings.Contains(results[1], "RUN ") || !strings.Contains(results[1], "the token is nobody's") {
				t.Errorf("inside there is more: %s", results[1])
			}
		})
	}
}
