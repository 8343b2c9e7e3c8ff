package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const remembers = `
rules:
  - when: {user: "^work$"}
    turns:
      - thinking: hm
        text: both at once
        tools: [{name: Look, input: {name: a}}, {name: Look, input: {name: b}}]
      - text: worked
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]`

// A session goes on from its records exactly as it would have in the agent that
// had it.
func TestResumeIsExact(t *testing.T) {
	records := DirRecords(t.TempDir())
	b := open(t, remembers, func(o *Options) { o.Records = records })
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	first := b.create(remembering(agent.Config{}))
	id := answerTo(t, first, "work").result(t).Metadata["session_id"].(string)
	answerTo(t, first, "and now?")
	cost := answerTo(t, first, "last").result(t).Metadata["total_cost_usd"]

	// Another one goes on from the same records, but for the last turn.
	all, err := records.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, r := range all {
		if results < 2 {
			if err := records.Append(t.Context(), "copy", r); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Contains(r, []byte(`"type":"result"`)) {
			results++
		}
	}
	second := b.create(remembering(agent.Config{Resume: "copy"}))
	said := answerTo(t, second, "last")
	if said[0].Metadata["sdk_type"] != "resumed" || said[0].Metadata["session_id"] != "copy" {
		t.Errorf("first it says %+v", said[0])
	}
	if got := said.result(t).Metadata["total_cost_usd"]; got != cost {
		t.Errorf("it cost %v, then %v", cost, got)
	}
	requests := b.requests()
	a, c := requests[len(requests)-2], requests[len(requests)-1]
	if !bytes.Equal(a.Body, c.Body) {
		t.Errorf("the requests differ:\n%s\n%s", a.Body, c.Body)
	}
}

// An agent of mode query begins anew with each message, but for what it resumes.
func TestModes(t *testing.T) {
	b := open(t, remembers)
	fresh := b.create(agent.Config{})
	one := answerTo(t, fresh, "one").result(t).Metadata["session_id"].(string)
	two := answerTo(t, fresh, "two").result(t).Metadata["session_id"].(string)
	if one == two {
		t.Error("both messages are of one session")
	}
	resumed := b.create(agent.Config{Resume: one})
	for i := range 2 {
		answerTo(t, resumed, "more")
		last := b.requests()
		if n := len(messagesOf(t, last[len(last)-1])); n != 3+2*i {
			t.Errorf("the model is told %d messages", n)
		}
	}
	gone := b.create(agent.Config{Resume: "nobody"})
	if _, e := fails(t, gone, "hello"); !strings.Contains(e.Error(), "no conversation found") {
		t.Errorf("the error is %v", e)
	}
	answerTo(t, gone, "then begin anew")
}

// From any prefix of its records a session goes on, with calls that were
// interrupted said to be so.
func TestResumeFromAnyPrefix(t *testing.T) {
	records := &MemRecords{}
	b := open(t, remembers, func(o *Options) { o.Records = records })
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	id := answerTo(t, b.create(remembering(agent.Config{})), "work").result(t).Metadata["session_id"].(string)
	all, _ := records.Load(t.Context(), id)
	interrupted := 0
	for n := 1; n <= len(all); n++ {
		session := fmt.Sprintf("prefix-%d", n)
		for _, r := range all[:n] {
			records.Append(t.Context(), session, r)
		}
		said := answerTo(t, b.create(agent.Config{Resume: session}), "go on")
		for _, r := range said.of("tool_result") {
			if r.Content != interruptedCall || r.Metadata["is_error"] != true {
				t.Errorf("with %d records a result is %q", n, r.Content)
			}
			interrupted++
		}
		if r := said.result(t); !strings.HasSuffix(r.Content, "go on") {
			t.Errorf("with %d records it says %q", n, r.Content)
		}
	}
	if interrupted != 3 { // both calls, then one
		t.Errorf("%d calls were interrupted", interrupted)
	}
	b.requests()
}

// A record that cannot be read is named.
func TestResumeOfBrokenRecords(t *testing.T) {
	records := &MemRecords{}
	b := open(t, remembers, func(o *Options) { o.Records = records })
	records.Append(t.Context(), "s", json.RawMessage(`{"type":"user","message":{"content":"hi"}}`))
	records.Append(t.Context(), "s", json.RawMessage(`{"type":"user","mess`))
	if _, e := fails(t, b.create(agent.Config{Resume: "s"}), "hello"); !strings.Contains(e.Error(), "session s: record 2: it is not a line of a session") {
		t.Errorf("the error is %v", e)
	}
}

// forgetful are records that fail from some record on.
type forgetful struct {
	MemRecords
	left int
}

func (f *forgetful) Append(ctx context.Context, session string, r json.RawMessage) error {
	if f.left--; f.left < 0 {
		return errors.New("the disk is full")
	}
	return f.MemRecords.Append(ctx, session, r)
}

// Nothing is done that is not on record.
func TestNothingIsDoneOffTheRecord(t *testing.T) {
	for left := range 4 { // init, prompt, answer, result of the call
		b := open(t, `rules: [{turns: [{tools: [{name: Look, input: {name: a}}]}, {text: done}]}]`, func(o *Options) { o.Records = &forgetful{left: left} })
		var j journal
		b.tools = []tools.Tool{j.reader("Look")}
		_, e := fails(t, b.create(agent.Config{}), "go")
		if !strings.Contains(e.Error(), "the disk is full") {
			t.Errorf("the error is %v", e)
		}
		if requests, calls := len(b.requests()), j.String(); requests != min(left/2, 1) || (calls != "") != (left == 3) {
			t.Errorf("with %d records there were %d requests and the calls %q", left, requests, calls)
		}
	}
}

// Past calls that went well are told to the tools.
func TestDoneCalls(t *testing.T) {
	c := newConversation(nil)
	for _, r := range []string{
		`{"type":"user","message":{"content":"go"}}`,
		`{"type":"assistant","message":{"model":"m","content":[{"type":"tool_use","id":"1","name":"Read","input":{"n":1}},{"type":"tool_use","id":"2","name":"Edit","input":{"n":2}},{"type":"tool_use","id":"3","name":"Read","input":{"n":3}}]}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2","content":"no","is_error":true}]}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"yes"}]}}`,
	} {
		if err := c.add(json.RawMessage(r)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	c.done(func(name string, input json.RawMessage) { got = append(got, name+string(input)) })
	if want := []string{`Read{"n":1}`}; !reflect.DeepEqual(got, want) {
		t.Errorf("done were %v", got)
	}
}

// Any records add up to a conversation that the API takes, or to an error.
func FuzzRebuild(f *testing.F) {
	for _, lines := range [][]string{
		{`{"type":"user","message":{"content":"go"}}`, `{"type":"assistant","message":{"model":"m","content":[{"type":"tool_use","id":"1","name":"R","input":{}}]}}`},
		{`{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"x"}]}}`, `{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":""},{"type":"thinking","thinking":"x"}]}}`},
		{`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"x"}]}}`},
		{`{"type":"assistant","message":{"model":"m","content":[{"type":"tool_use","id":"1","name":"R","input":{}},{"type":"tool_use","id":"1","name":"R","input":{}},{"type":"tool_use","id":"2","name":"R","input":{}}]}}`,
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2"}]}}`, `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1"},{"type":"tool_result","tool_use_id":"1"}]}}`},
		{`{"type":"system","subtype":"compact_boundary","nestor_compaction":{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"9"}]},{"role":"assistant","content":[{"type":"text","text":"x"}]}]}}`},
		{`{"type":"system","subtype":"compact_boundary","nestor_compaction":{"cleared":["1"]}}`, `{"type":"result","modelUsage":{"m":{"inputTokens":-1}}}`},
	} {
		f.Add([]byte(strings.Join(lines, "\n")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var records []json.RawMessage
		for l := range bytes.SplitSeq(data, []byte("\n")) {
			records = append(records, l)
		}
		c, err := rebuild(ListPrices(), records)
		if err != nil {
			return
		}
		c.user([]json.RawMessage{textBlock("go on")})
		r := newRequest("m", 1, "", nil, c.messages)
		var messages []message
		for _, m := range r.Messages {
			messages = append(messages, message{Role: m.Role, Content: m.Content})
		}
		body, err := r.encode()
		if err != nil || !json.Valid(body) {
			t.Fatalf("%v\n%s", err, body)
		}
		if err := valid(messages); err != nil {
			t.Errorf("%v\n%s", err, body)
		}
	})
}

// The marks for the cache stay within what the API takes, and the next request
// begins with what this one marked.
func TestCacheMarks(t *testing.T) {
	b := open(t, remembers)
	var j journal
	b.tools = []tools.Tool{j.reader("Look"), j.reader("Last")}
	a := b.create(remembering(agent.Config{Instructions: "be kind"}))
	answerTo(t, a, "work")
	answerTo(t, a, "more")
	var before *scriptmodel.Request
	for _, r := range b.requests() {
		var body struct {
			System, Tools []struct {
				Cache *struct{} `json:"cache_control"`
			}
			Messages []struct {
				Content []struct {
					Cache *struct{} `json:"cache_control"`
				}
			}
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(r.Body), `"cache_control"`); n > 4 {
			t.Errorf("request %d has %d marks", r.Seq, n)
		}
		last := body.Messages[len(body.Messages)-1].Content
		if body.System[0].Cache == nil || body.Tools[0].Cache != nil || body.Tools[len(body.Tools)-1].Cache == nil || last[len(last)-1].Cache == nil {
			t.Errorf("request %d has its marks elsewhere: %s", r.Seq, r.Body)
		}
		if before != nil {
			old, now := messagesOf(t, before), messagesOf(t, r)
			marked := now[len(old)-1].Content
			if !strings.Contains(string(marked[len(marked)-1]), `"cache_control"`) {
				t.Errorf("request %d does not mark what the one before wrote", r.Seq)
			}
		}
		before = r
	}
}
