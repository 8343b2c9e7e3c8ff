package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// small makes a model with a window of 4,000 tokens.
func small(o *Options) {
	o.Model, o.MaxTokens = "small", 500
	o.Prices = Prices{"small": {Input: 1, Output: 1, Window: 4000, MaxOutput: 500}}
}

// Old results of tools go first, and that is enough if there are many.
func TestCompactionDropsOldResults(t *testing.T) {
	records := &MemRecords{}
	b := open(t, `
rules:
  - when: {user: "^work$"}
    turns: [`+strings.Repeat(`{tools: [{name: Big, input: {}}]}, `, 12)+`{text: done}]
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]`, small, func(o *Options) { o.Records = records })
	n := 0
	b.tools = []tools.Tool{{Name: "Big", ReadOnly: true, Run: func(context.Context, json.RawMessage) (tools.Result, error) {
		n++
		return tools.Result{Text: fmt.Sprintf("result %d %s", n, strings.Repeat("x", 1200))}, nil
	}}}
	all := answerTo(t, b.create(remembering(agent.Config{AllowedTools: []string{"Big"}})), "work")
	compacted := all.of("compacted")
	if len(compacted) == 0 || all.result(t).Content != "done" {
		t.Fatalf("it says %s", all.types())
	}
	m := compacted[0].Metadata
	if m["trigger"] != "auto" || m["pre_tokens"].(int) < 3200 || m["post_tokens"].(int) > 2400 {
		t.Errorf("the boundary is %+v", m)
	}
	requests := b.requests()
	last := string(requests[len(requests)-1].Body)
	if !strings.Contains(last, "result 12 x") || strings.Contains(last, "result 1 x") || !strings.Contains(last, clearedResult) {
		t.Errorf("the last request is %s", last)
	}
	if len(requests) != 13 {
		t.Errorf("there were %d requests: a summary was not needed", len(requests))
	}

	// A resumed session begins where the boundary left it.
	id := all.result(t).Metadata["session_id"].(string)
	answerTo(t, b.create(agent.Config{Resume: id, AllowedTools: []string{"Big"}}), "more")
	requests = b.requests()
	if again := string(requests[len(requests)-1].Body); strings.Contains(again, "result 1 x") || !strings.Contains(again, "result 12 x") {
		t.Errorf("the resumed request is %s", again)
	}
}

const summarizes = `
rules:
  - when: {user: "about to be shortened"}
    repeat: true
    turns: [{text: "<summary>what was before</summary>", usage: {input_tokens: 3000, output_tokens: 10}}]
  - repeat: true
    turns: [{text: "I heard you."}]`

// What is not results becomes a summary; the newest part stays.
func TestCompactionSummarizes(t *testing.T) {
	b := open(t, summarizes, small)
	var told []string
	hooks := claude.Hooks{
		PreCompact: []claude.Hook[claude.PreCompactInput, claude.HookOutput]{{Match: claude.Exactly("auto"), Func: func(_ context.Context, in *claude.PreCompactInput) (*claude.HookOutput, error) {
			told = append(told, "pre "+in.Trigger)
			return nil, nil
		}}},
		PostCompact: []claude.Hook[claude.PostCompactInput, claude.HookOutput]{{Func: func(_ context.Context, in *claude.PostCompactInput) (*claude.HookOutput, error) {
			told = append(told, "post "+in.Summary)
			return nil, nil
		}}},
	}
	a := b.create(remembering(agent.Config{Hooks: hooks, AllowedTools: []string{}}))
	var compacted heardAll
	var result agent.Message
	for i := range 6 {
		all := answerTo(t, a, fmt.Sprintf("message %d: %s", i, strings.Repeat("y", 2600)))
		compacted = append(compacted, all.of("compacted")...)
		result = all.result(t)
	}
	if len(compacted) != 1 || strings.Join(told, ", ") != "pre auto, post what was before" {
		t.Fatalf("it was compacted %d times; hooks were told %q", len(compacted), told)
	}
	requests := b.requests()
	last := string(requests[len(requests)-1].Body)
	if !strings.Contains(last, `Summary:\nwhat was before`) || strings.Contains(last, "message 0") || !strings.Contains(last, "message 5") {
		t.Errorf("the last request is %s", last)
	}
	if n := len(requests); n != 7 {
		t.Errorf("there were %d requests", n)
	}
	// What the summary cost is part of the cost.
	sum := 0.0
	for _, r := range requests {
		if strings.Contains(r.Prompt, "about to be shortened") {
			sum += 3010
			if !strings.Contains(string(r.Body), "message 0") {
				t.Errorf("the summary is made of %s", r.Body)
			}
		} else {
			sum += float64((len(r.Body)+3)/4) + 3
		}
	}
	if usd := result.Metadata["total_cost_usd"].(float64) * 1e6; usd < sum-1 || usd > sum+1 {
		t.Errorf("it cost %v millionths, want %v", usd, sum)
	}
}

// When the API says that the request is too long, that counts.
func TestCompactionBecauseTheAPIWantsIt(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "about to be shortened"}
    turns: [{text: "just the facts"}]
  - when: {user: "^long"}
    repeat: true
    turns: [{fail: {status: 400, message: "prompt is too long: 9 tokens > 5 maximum"}}]
  - turns: [{text: "{{.Prompt}}"}]`)
	all := answerTo(t, b.create(agent.Config{}), "long")
	if r := all.result(t); !strings.Contains(r.Content, "just the facts") || len(all.of("compacted")) != 1 {
		t.Errorf("the result is %q of %s", r.Content, all.types())
	}
}

// It is tried once: a prompt that is too long even so ends the turn.
func TestPromptTooLong(t *testing.T) {
	b := open(t, `rules: [{repeat: true, turns: [{fail: {status: 400, message: "prompt is too long: 9 tokens > 5 maximum"}}]}]`)
	all, e := fails(t, b.create(agent.Config{}), "long")
	if r := all.result(t); r.Metadata["reason"] != "prompt_too_long" || e.Status != 400 {
		t.Errorf("the result is %+v, %v", r.Metadata, e)
	}
	if n := len(b.model.Requests()); n != 3 { // the prompt, its summary, the prompt
		t.Errorf("there were %d requests", n)
	}
}

// A hook can keep a conversation as it is.
func TestCompactionBlocked(t *testing.T) {
	b := open(t, summarizes, small)
	hooks := claude.Hooks{PreCompact: []claude.Hook[claude.PreCompactInput, claude.HookOutput]{{Func: func(context.Context, *claude.PreCompactInput) (*claude.HookOutput, error) {
		return &claude.HookOutput{Block: true}, nil
	}}}}
	a := b.create(remembering(agent.Config{Hooks: hooks, AllowedTools: []string{}}))
	for range 6 {
		if all := answerTo(t, a, strings.Repeat("y", 2600)); len(all.of("compacted")) != 0 {
			t.Fatal("it was compacted")
		}
	}
	if n := len(messagesOf(t, b.requests()[5])); n != 11 {
		t.Errorf("the last request has %d messages", n)
	}
}

// In the middle of the work a summary is made too, and a session that is resumed
// behind it goes on exactly as the agent that had it.
func TestCompactionInTheMiddleOfWork(t *testing.T) {
	records := &MemRecords{}
	b := open(t, `
rules:
  - when: {user: "about to be shortened"}
    repeat: true
    turns: [{text: "<summary>much was read</summary>"}]
  - when: {user: "^work$"}
    turns: [`+strings.Repeat(`{thinking: hm, text: reading, tools: [{name: Big, input: {}}, {name: Big, input: {}}]}, `, 9)+`{text: done}]
  - when: {user: "much was read"}
    turns: [`+strings.Repeat(`{thinking: hm, text: reading, tools: [{name: Big, input: {}}, {name: Big, input: {}}]}, `, 3)+`{text: done}]
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]`, small, func(o *Options) { o.Records = records })
	b.tools = []tools.Tool{{Name: "Big", ReadOnly: true, Run: func(context.Context, json.RawMessage) (tools.Result, error) {
		return tools.Result{Text: strings.Repeat("x", 1300)}, nil
	}}}
	a := b.create(remembering(agent.Config{AllowedTools: []string{"Big"}}))
	all := answerTo(t, a, "work")
	if len(all.of("compacted")) == 0 || all.result(t).Content != "done" {
		t.Fatalf("it says %s", all.types())
	}
	id := all.result(t).Metadata["session_id"].(string)
	list, _ := records.Load(t.Context(), id)
	for _, r := range list {
		records.Append(t.Context(), "copy", r)
	}
	answerTo(t, a, "more")
	live := b.requests()
	answerTo(t, b.create(agent.Config{Resume: "copy", AllowedTools: []string{"Big"}}), "more")
	resumed := b.requests()
	one, two := string(live[len(live)-1].Body), string(resumed[len(resumed)-1].Body)
	if one != two {
		t.Errorf("the agent that had it sends\n%s\nthe one that resumes\n%s", one, two)
	}
	summaries := 0
	for _, r := range live {
		if strings.Contains(r.Prompt, "about to be shortened") {
			summaries++
			if !strings.Contains(string(r.Body), `"tool_choice":{"type":"none"}`) {
				t.Errorf("the summary could call tools: %s", r.Body)
			}
		}
	}
	if summaries == 0 {
		t.Error("there was no summary")
	}
}

// When the summary cannot be made the conversation goes on as it is.
func TestCompactionThatFails(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "about to be shortened"}
    repeat: true
    turns: [{fail: {status: 400, message: no}}]
  - repeat: true
    turns: [{text: "I heard you."}]`, small)
	a := b.create(remembering(agent.Config{AllowedTools: []string{}}))
	for range 6 {
		if all := answerTo(t, a, strings.Repeat("y", 2600)); len(all.of("compacted")) != 0 {
			t.Fatal("it was compacted")
		}
	}
}

// A conversation that is too long even to be summarized is summarized in part.
func TestSummaryOfWhatFits(t *testing.T) {
	script, err := scriptmodel.ParseScript("script", []byte(summarizes))
	if err != nil {
		t.Fatal(err)
	}
	model, refused := scriptmodel.New(script, scriptmodel.Options{}), 0
	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("about to be shortened")) && bytes.Contains(body, []byte("message 0")) {
			refused++
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		model.ServeHTTP(w, r)
	})
	opts := Options{APIKey: "key", HTTPClient: &http.Client{Transport: loopback{endpoint}}}
	small(&opts)
	a, err := New(opts).Create(t.Context(), remembering(agent.Config{Name: "ada", AllowedTools: []string{}}))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Shutdown(t.Context())
	compacted := 0
	for i := range 6 {
		compacted += len(answerTo(t, a, fmt.Sprintf("message %d: %s", i, strings.Repeat("y", 2600))).of("compacted"))
	}
	if compacted != 1 || refused != 1 {
		t.Errorf("it was compacted %d times, and the API refused %d summaries", compacted, refused)
	}
}

// There is an end to it when shortening does not help.
func TestConversationThatFillsUpAgain(t *testing.T) {
	b := open(t, `
rules:
  - when: {user: "about to be shortened"}
    repeat: true
    turns: [{text: "it is all needed"}]
  - repeat: true
    turns: [{tools: [{name: Huge, input: {}}]}]`, small)
	b.tools = []tools.Tool{{Name: "Huge", ReadOnly: true, Run: func(context.Context, json.RawMessage) (tools.Result, error) {
		return tools.Result{Text: strings.Repeat("x", 20_000)}, nil
	}}}
	all, e := fails(t, b.create(agent.Config{AllowedTools: []string{"Huge"}}), "go")
	if r := all.result(t); r.Metadata["reason"] != "rapid_refill_breaker" || !strings.Contains(r.Content, "4 times in a row") || e.Kind != agent.ErrAPI {
		t.Errorf("the result is %q, %+v, %v", r.Content, r.Metadata, e)
	}
}
