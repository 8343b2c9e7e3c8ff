package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// Calls that only read run side by side: each waits here for the others.
func TestReadingCallsRunSideBySide(t *testing.T) {
	b := open(t, `
rules:
  - turns:
      - tools: [{name: Meet, input: {name: a}}, {name: Meet, input: {name: b}}, {name: Meet, input: {name: c}}]
      - text: "{{range .ToolResults}}{{.}} {{end}}"`)
	var all sync.WaitGroup
	all.Add(3)
	b.tools = []tools.Tool{{Name: "Meet", ReadOnly: true, Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
		all.Done()
		all.Wait()
		var in named
		json.Unmarshal(input, &in)
		return tools.Result{Text: in.Name}, nil
	}}}
	// Whatever the order in which they end, the results stand in that of the calls.
	if r := answerTo(t, b.create(agent.Config{}), "go").result(t); r.Content != "a b c " {
		t.Errorf("the result is %q", r.Content)
	}
	b.requests()
}

// Calls that write run one after the other, and none beside one that reads.
func TestWritingCallsRunInOrder(t *testing.T) {
	b := open(t, `
rules:
  - turns:
      - tools: [{name: W, input: {name: a}}, {name: W, input: {name: b}}, {name: R, input: {name: c}}, {name: W, input: {name: d}}]
      - text: done`)
	var j journal
	tool := func(name string, readOnly bool) tools.Tool {
		return tools.Tool{Name: name, ReadOnly: readOnly, Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
			var in named
			json.Unmarshal(input, &in)
			j.add("+%s", in.Name)
			defer j.add("-%s", in.Name)
			return tools.Result{}, nil
		}}
	}
	b.tools = []tools.Tool{tool("W", false), tool("R", true)}
	answerTo(t, b.create(agent.Config{PermissionMode: "bypassPermissions"}), "go")
	if got := j.String(); got != "+a, -a, +b, -b, +c, -c, +d, -d" {
		t.Errorf("they ran as %s", got)
	}
}

// When the context ends, every call has its one result, and nothing is made that
// had not begun; the conversation goes on.
func TestEveryCallHasOneResultWhenCancelled(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "^go"}
    turns:
      - tools: [{name: Hang, id: toolu_1, input: {}}, {name: W, id: toolu_2, input: {}}]
  - repeat: true
    turns: [{text: "{{.Prompt}}"}]`)
	ctx, stop := context.WithCancelCause(bounded(t))
	why := errors.New("enough")
	var j journal
	b.tools = []tools.Tool{
		{Name: "Hang", Run: func(ctx context.Context, _ json.RawMessage) (tools.Result, error) {
			stop(why)
			<-ctx.Done()
			return tools.Result{}, context.Cause(ctx)
		}},
		{Name: "W", Run: func(context.Context, json.RawMessage) (tools.Result, error) {
			j.add("W")
			return tools.Result{}, nil
		}},
	}
	a := b.create(remembering(agent.Config{PermissionMode: "bypassPermissions"}))
	all, err := say(t, ctx, a, "go")
	if !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
	results := all.of("tool_result")
	if len(results) != 2 || results[0].Content != interruptedCall || results[1].Content != notRun || j.String() != "" {
		t.Errorf("the results are %q, made was %q", results.texts(), &j)
	}
	if r := all.result(t); r.Metadata["interrupted"] != true || r.Metadata["reason"] != "error_during_execution" {
		t.Errorf("the result is %+v", r.Metadata)
	}
	if r := answerTo(t, a, "are you there?").result(t); r.Content != "are you there?" {
		t.Errorf("then it says %q", r.Content)
	}
	last := b.requests()
	if text := string(last[len(last)-1].Body); !strings.Contains(text, toolsInterrupt) {
		t.Errorf("the model is not told of the interruption: %s", text)
	}
}

// What the model had said when it was stopped stays said.
func TestWhatWasSaidWhenStoppedStays(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "^slow"}
    turns: [{text: "and on ", endless: true, delay: 1ms, chunk: 7}]
  - repeat: true
    turns: [{text: "still here"}]`)
	a := b.create(agent.Config{Credentials: map[string]string{"mode": "client", "partial": "true"}})
	for m, err := range a.Handle(bounded(t), agent.NewMessage("tester", "slow")) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Metadata["sdk_type"] == "partial_text" {
			break
		}
	}
	answerTo(t, a, "are you there?")
	requests := b.requests()
	last := messagesOf(t, requests[len(requests)-1])
	if len(last) != 3 || !strings.HasPrefix(string(last[1].Content[0]), `{"text":"and on `) || !strings.Contains(string(last[2].Content[0]), userInterrupt) {
		t.Errorf("the model is told %s", requests[len(requests)-1].Body)
	}
}

// A tool that fails, panics or gets nonsense tells the model, which goes on.
func TestFailingTools(t *testing.T) {
	b := open(t, `
rules:
  - turns:
      - tools: [{name: Fall, input: {}}, {name: Write, input: {file_path: 7}}, {name: Bash, input: {command: "false"}}, {name: Trip, input: {}}]
      - text: "{{range .ToolResults}}{{.}}|{{end}}"`)
	var j journal
	b.tools = []tools.Tool{
		j.writer("Write"), j.bash(),
		{Name: "Trip", Access: func(json.RawMessage) (tools.Access, error) { panic("oops") }},
		{Name: "Fall", Run: func(context.Context, json.RawMessage) (tools.Result, error) { panic("ouch") }},
	}
	all := answerTo(t, b.create(agent.Config{PermissionMode: "bypassPermissions"}), "go")
	if r := all.result(t); !strings.HasPrefix(r.Content, "Fall broke: ouch|json: cannot unmarshal number") || !strings.HasSuffix(r.Content, "|exit status 1|Trip broke: oops|") {
		t.Errorf("the result is %q", r.Content)
	}
	for _, r := range all.of("tool_result") {
		if r.Metadata["is_error"] != true {
			t.Errorf("%q is no error", r.Content)
		}
	}
}

// A result that is too long is cut, and pictures go along.
func TestLongResultsAndPictures(t *testing.T) {
	b := open(t, `rules: [{turns: [{tools: [{name: Long, input: {}}]}, {text: "{{len .ToolResult}}"}]}]`)
	b.tools = []tools.Tool{{Name: "Long", ReadOnly: true, Run: func(context.Context, json.RawMessage) (tools.Result, error) {
		picture := &claude.Image{Source: claude.Source{Type: "base64", MediaType: "image/png", Data: "aGVsbG8="}}
		return tools.Result{Text: strings.Repeat("é", maxResult), Blocks: []claude.Block{picture}}, nil
	}}}
	answerTo(t, b.create(agent.Config{}), "go")
	last := b.requests()[1]
	if n := len(last.ToolResult); n < 1000 || n > maxResult+100 || strings.Count(last.ToolResult, "\n") == 0 {
		t.Errorf("the model gets %d bytes: …%s", n, last.ToolResult[max(0, n-80):])
	}
	if !strings.Contains(string(last.Body), `"media_type":"image/png"`) {
		t.Error("the picture is not there")
	}
}

// What is pushed is taken up with the next request, and there is one result.
func TestPushedMessageIsTakenUp(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "^go"}
    turns: [{tools: [{name: Wait, input: {}}]}]
  - turns: [{text: "heard: {{.Prompt}}"}]`)
	var a agent.Pusher
	b.tools = []tools.Tool{{Name: "Wait", ReadOnly: true, Run: func(ctx context.Context, _ json.RawMessage) (tools.Result, error) {
		return tools.Result{Text: "ok"}, errors.Join(a.Push(ctx, agent.NewMessage("t", "one")), a.Push(ctx, agent.NewMessage("t", "two")))
	}}}
	a = b.create(agent.Config{})
	if err := a.Push(t.Context(), agent.NewMessage("t", "nobody")); !errors.Is(err, agent.ErrNotBusy) {
		t.Errorf("pushing to an idle agent: %v", err)
	}
	if r := answerTo(t, a, "go").result(t); r.Content != "heard: one\ntwo" {
		t.Errorf("the result is %q", r.Content)
	}
	if n := len(b.requests()); n != 2 {
		t.Errorf("there were %d requests", n)
	}
}

// What is pushed while the model gives its last answer is answered too.
func TestPushedAtTheEnd(t *testing.T) {
	b := open(t, `rules: [{repeat: true, turns: [{text: "heard: {{.Prompt}}"}]}]`)
	a := b.create(agent.Config{})
	var all heardAll
	for m, err := range a.Handle(bounded(t), agent.NewMessage("tester", "go")) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		if m.Content == "heard: go" && m.Metadata["sdk_type"] == "assistant_text" {
			if err := a.Push(t.Context(), agent.NewMessage("t", "more")); err != nil {
				t.Error(err)
			}
		}
	}
	if r := all.result(t); r.Content != "heard: more" {
		t.Errorf("the result is %q", r.Content)
	}
}

// A result in a schema.
func TestStructuredOutput(t *testing.T) {
	config := agent.Config{Schema: json.RawMessage(`{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"],"additionalProperties":false}`)}
	t.Run("at the second try", func(t *testing.T) {
		b := open(t, `rules: [{turns: [{tools: [{name: StructuredOutput, input: {answer: many}}]}, {tools: [{name: StructuredOutput, input: {answer: 42}}]}]}]`)
		all := answerTo(t, b.create(config), "answer")
		r := all.result(t)
		if output, _ := r.Metadata["structured_output"].(json.RawMessage); string(output) != `{"answer":42}` || r.Content != `{"answer":42}` || r.Metadata["num_turns"] != 3 {
			t.Errorf("the result is %q, %+v", r.Content, r.Metadata)
		}
		if results := all.of("tool_result"); results[0].Metadata["is_error"] != true || !strings.Contains(results[0].Content, "answer") {
			t.Errorf("the model is told %q", results.texts())
		}
		if !slices.Contains(b.requests()[0].Tools, "StructuredOutput") {
			t.Error("the tool is not offered")
		}
	})
	t.Run("only when asked for", func(t *testing.T) {
		b := open(t, `rules: [{when: {user: "^answer"}, turns: [{text: "42"}]}, {turns: [{tools: [{name: StructuredOutput, input: {answer: 42}}]}]}]`)
		if r := answerTo(t, b.create(config), "answer").result(t); r.Content != `{"answer":42}` {
			t.Errorf("the result is %q", r.Content)
		}
	})
	t.Run("never", func(t *testing.T) {
		b := open(t, `rules: [{repeat: true, turns: [{tools: [{name: StructuredOutput, input: {answer: many}}]}, {text: no}]}]`)
		all, e := fails(t, b.create(config), "answer")
		if r := all.result(t); r.Metadata["reason"] != "error_max_structured_output_retries" || !strings.Contains(r.Content, "after 5 attempts") || e.Kind != agent.ErrAPI {
			t.Errorf("the result is %q, %+v, %v", r.Content, r.Metadata, e)
		}
		if n := len(b.requests()); n != 5 {
			t.Errorf("there were %d requests", n)
		}
	})
}

// What a hostile model writes as the input of a call breaks nothing.
func TestHostileInputs(t *testing.T) {
	deepInput := strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000)
	for name, input := range map[string]string{"deep": deepInput, "broken": `{"a":`, "a list": `[1]`, "a text": `"x"`, "null": "null"} {
		t.Run(name, func(t *testing.T) {
			quoted, _ := json.Marshal(input)
			turn := 0
			endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if turn++; turn > 1 {
					scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{}).ServeHTTP(w, r)
					return
				}
				for _, e := range []string{
					`{"type":"message_start","message":{"id":"m","model":"x","usage":{"input_tokens":1,"output_tokens":1}}}`,
					`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"Look","input":{}}}`,
					`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":` + string(quoted) + `}}`,
					`{"type":"content_block_stop","index":0}`,
					`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}`,
					`{"type":"message_stop"}`,
				} {
					var event struct{ Type string }
					json.Unmarshal([]byte(e), &event)
					fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event.Type, e)
				}
			})
			var j journal
			p := New(Options{
				APIKey: "key", HTTPClient: &http.Client{Transport: loopback{endpoint}},
				Tools: func(agent.Config) []tools.Tool { return []tools.Tool{j.reader("Look")} },
			})
			a, err := p.Create(t.Context(), agent.Config{Name: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Shutdown(t.Context())
			all := answerTo(t, a, "go")
			if got := all.of("tool_result").texts(); len(got) != 1 || !strings.Contains(got[0], "was not a JSON object") || j.String() != "" {
				t.Errorf("the model is told %q, made was %q", got, &j)
			}
		})
	}
}

// Neither does an answer without end, or one that no one can read.
func TestHostileAnswers(t *testing.T) {
	for name, block := range map[string]string{
		"deep":     `{"type":"x","a":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`,
		"orphan":   "",
		"mistyped": `7`,
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n")
				if block != "" {
					fmt.Fprintf(w, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":%s}\n\n", block)
				}
				fmt.Fprint(w, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n")
				fmt.Fprint(w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
			})
			p := New(Options{APIKey: "key", Retries: -1, HTTPClient: &http.Client{Transport: loopback{endpoint}}})
			a, err := p.Create(t.Context(), agent.Config{Name: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Shutdown(t.Context())
			if _, e := fails(t, a, "go"); e.Kind != agent.ErrAPI {
				t.Errorf("the error is %v", e)
			}
		})
	}
}
