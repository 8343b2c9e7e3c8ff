package anthropic

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// An answer without tool calls is a success.
func TestAnswerWithoutCallsIsSuccess(t *testing.T) {
	b := open(t, `
usage: {input_tokens: 1000, output_tokens: 50}
rules: [{turns: [{thinking: hm, text: "hello"}]}]`)
	all := answerTo(t, b.create(agent.Config{Instructions: "be kind", Model: "opus"}), "hi")
	if all.types() != "thinking assistant_text result" {
		t.Errorf("it says %s", all.types())
	}
	r := all.result(t)
	usage := r.Metadata["usage"].(map[string]int)
	if r.Content != "hello" || r.Kind != agent.Chat || r.Metadata["subtype"] != "success" || r.Metadata["num_turns"] != 1 ||
		r.Metadata["reason"] != "completed" || usage["input_tokens"] != 1000 || usage["output_tokens"] != 50 {
		t.Errorf("the result is %+v", r)
	}
	if usd := r.Metadata["total_cost_usd"].(float64); usd != 0.005 {
		t.Errorf("it cost %v", usd)
	}
	init := all.of("init")
	if len(init) != 1 || init[0].Metadata["model"] != "claude-opus-5-5" || init[0].Metadata["permission_mode"] != "acceptEdits" {
		t.Errorf("the init is %+v", init)
	}
	req := b.requests()[0]
	if req.System != "be kind" || !req.Stream || req.Header.Get("X-Api-Key") != "key" {
		t.Errorf("the request is %s", req.Body)
	}
}

// Tool calls are made, and the loop goes on.
func TestCallsAreMadeAndTheLoopGoesOn(t *testing.T) {
	b := open(t, `
rules:
  - turns:
      - text: Let me see.
        tools: [{name: Look, id: toolu_1, input: {name: a}}]
      - text: "the tool said: {{.ToolResult}}"`)
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	all := answerTo(t, b.create(agent.Config{}), "look")
	if all.types() != "assistant_text tool_use tool_result assistant_text result" {
		t.Errorf("it says %s", all.types())
	}
	if r := all.result(t); r.Content != "the tool said: read a" || r.Metadata["num_turns"] != 2 {
		t.Errorf("the result is %+v", r)
	}
	if result := all.of("tool_result")[0]; result.Metadata["tool_use_id"] != "toolu_1" || result.Metadata["is_error"] != false {
		t.Errorf("the tool's result is %+v", result)
	}
	if n := len(b.requests()); n != 2 {
		t.Errorf("there were %d requests", n)
	}
	if body := string(b.requests()[0].Body); strings.Count(body, `"cache_control"`) != 2 {
		t.Errorf("the request has %d marks for the cache: %s", strings.Count(body, `"cache_control"`), body)
	}
}

// The decision table, row by row: what the model does, and how the turn ends.
func TestDecisionTable(t *testing.T) {
	for _, test := range []struct {
		name     string
		script   string
		config   agent.Config
		types    string // what is said
		subtype  string // of the result; empty means success
		reason   string
		content  string // of the result
		turns    int
		requests int
	}{
		{
			name:   "max turns",
			script: `rules: [{repeat: true, turns: [{tools: [{name: Look, input: {name: a}}]}]}]`,
			config: agent.Config{Limits: agent.Limits{MaxTurns: 2}},
			types:  "tool_use tool_result tool_use tool_result result", subtype: "error", reason: "error_max_turns",
			content: "Reached maximum number of turns (2)", turns: 3, requests: 2,
		},
		{
			name:   "max turns is enough",
			script: `rules: [{turns: [{tools: [{name: Look, input: {name: a}}]}, {text: done}]}]`,
			config: agent.Config{Limits: agent.Limits{MaxTurns: 2}},
			types:  "tool_use tool_result assistant_text result", reason: "completed", content: "done", turns: 2, requests: 2,
		},
		{
			name:   "budget",
			script: `rules: [{repeat: true, turns: [{tools: [{name: Look, input: {name: a}}], usage: {input_tokens: 100000, output_tokens: 1000}}]}]`,
			config: agent.Config{Limits: agent.Limits{MaxBudgetUSD: 0.42}},
			types:  "tool_use tool_result result", subtype: "error", reason: "error_max_budget_usd",
			content: "Reached maximum budget ($0.42)", turns: 2, requests: 1,
		},
		{
			name:   "budget is enough",
			script: `rules: [{turns: [{text: done, usage: {input_tokens: 100000, output_tokens: 1000}}]}]`,
			config: agent.Config{Limits: agent.Limits{MaxBudgetUSD: 0.421}},
			types:  "assistant_text result", reason: "completed", content: "done", turns: 1, requests: 1,
		},
		{
			name: "max_tokens, and it goes on",
			script: `rules: [{when: {user: ^go}, turns: [{text: "the first half", stop: max_tokens}]},
			  {turns: [{text: "the second half"}]}]`,
			types: "assistant_text assistant_text result", reason: "completed", content: "the second half", turns: 2, requests: 2,
		},
		{
			name:   "max_tokens again and again",
			script: `rules: [{repeat: true, turns: [{text: "more", stop: max_tokens}]}]`,
			types:  "assistant_text assistant_text assistant_text assistant_text assistant_text result", subtype: "error", reason: "api_error",
			content: "API Error: Claude's response exceeded the 32000 output token maximum.", turns: 4, requests: 4,
		},
		{
			name:   "max_tokens behind a whole call",
			script: `rules: [{turns: [{tools: [{name: Look, input: {name: a}}], stop: max_tokens}, {text: "{{.ToolResult}}"}]}]`,
			types:  "tool_use tool_result assistant_text result", reason: "completed", content: "read a", turns: 2, requests: 2,
		},
		{
			name:   "pause_turn",
			script: `rules: [{turns: [{text: "a pause ", stop: pause_turn}, {text: "and the rest"}]}]`,
			types:  "assistant_text assistant_text result", reason: "completed", content: "and the rest", turns: 1, requests: 2,
		},
		{
			name:   "pause_turn for ever",
			script: `rules: [{turns: [{text: "x", stop: pause_turn}, {text: "y", stop: pause_turn}], repeat: true}]`,
			types:  strings.Repeat("assistant_text ", 11) + "result", reason: "completed", content: "y", turns: 1, requests: 11,
		},
		{
			name:   "refusal, and it goes on",
			script: `rules: [{when: {user: ^go}, turns: [{text: "I cannot", stop: refusal}]}, {turns: [{text: fine}]}]`,
			types:  "assistant_text notice assistant_text result", reason: "completed", content: "fine", turns: 2, requests: 2,
		},
		{
			name:   "refusal twice",
			script: `rules: [{repeat: true, turns: [{text: "I cannot", stop: refusal}]}]`,
			types:  "assistant_text notice assistant_text model_refusal assistant_text result", subtype: "error", reason: "api_error",
			content: "API Error: the safeguards of claude-opus-5-5 stopped the answer twice. Rephrase the request in a new session, or use another model.",
			turns:   2, requests: 2,
		},
		{
			name:   "refusal with a call in it",
			script: `rules: [{repeat: true, turns: [{tools: [{name: Look, input: {name: a}}], stop: refusal}]}]`,
			types:  "tool_use tool_result notice tool_use tool_result model_refusal assistant_text result", subtype: "error", reason: "api_error",
			content: "API Error: the safeguards of claude-opus-5-5 stopped the answer twice. Rephrase the request in a new session, or use another model.",
			turns:   4, requests: 2,
		},
		{
			name:   "a request that cannot be",
			script: `rules: [{repeat: true, turns: [{fail: {status: 400, message: it cannot be}}]}]`,
			types:  "assistant_text result", subtype: "error", reason: "api_error", content: "API Error: 400 it cannot be", turns: 1, requests: 1,
		},
		{
			name:   "a tool that is not there",
			script: `rules: [{turns: [{tools: [{name: Nope, input: {}}]}, {text: "{{.ToolResult}}"}]}]`,
			types:  "tool_use tool_result assistant_text result", reason: "completed", content: "Error: No such tool available: Nope", turns: 2, requests: 2,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := open(t, test.script)
			var j journal
			b.tools = []tools.Tool{j.reader("Look")}
			all, err := say(t, bounded(t), b.create(test.config), "go")
			r := all.result(t)
			if test.subtype == "" {
				test.subtype = "success"
			}
			if (err != nil) != (test.subtype == "error") {
				t.Errorf("the error is %v", err)
			}
			if all.types() != test.types {
				t.Errorf("it says %s\n    want %s", all.types(), test.types)
			}
			if r.Metadata["subtype"] != test.subtype || r.Metadata["reason"] != test.reason || r.Content != test.content || r.Metadata["num_turns"] != test.turns {
				t.Errorf("the result is %q, %+v", r.Content, r.Metadata)
			}
			if n := len(b.requests()); n != test.requests {
				t.Errorf("there were %d requests, want %d", n, test.requests)
			}
			if strings.Contains(test.name, "refusal with") && j.String() != "" {
				t.Errorf("calls of a refused answer were made: %v", &j)
			}
		})
	}
}

// Agents share a client, and its connections, and nothing else.
func TestManyAgentsAtOnce(t *testing.T) {
	b := open(t, `rules: [{repeat: true, turns: [{tools: [{name: Look, input: {name: "{{.Prompt}}"}}]}, {text: "{{.ToolResult}}"}]}]`)
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	var all sync.WaitGroup
	for i := range 100 {
		a := b.create(remembering(agent.Config{Name: fmt.Sprint("agent", i)}))
		all.Go(func() {
			for n := range 2 {
				want := fmt.Sprintf("read %d of %d", n, i)
				got := answerTo(t, a, fmt.Sprintf("%d of %d", n, i)).result(t)
				if got.Content != want || got.Sender != a.Name() {
					t.Errorf("%s says %q, want %q", got.Sender, got.Content, want)
				}
			}
		})
	}
	all.Wait()
}

// A connection is used again for the next request.
func TestConnectionsAreUsedAgain(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: Look, input: {}}]}, {tools: [{name: Look, input: {}}]}, {text: done}]}]`)
	dials := 0
	b.opts.HTTPClient.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	answerTo(t, b.create(agent.Config{}), "go")
	if dials != 1 || len(b.requests()) != 3 {
		t.Errorf("%d requests took %d connections", len(b.requests()), dials)
	}
}
