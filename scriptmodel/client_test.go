package scriptmodel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns the official API client, pointed at the model.
func client(t testing.TB, model *scriptmodel.Server, opts ...option.RequestOption) anthropic.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(model.URL), option.WithAPIKey("anything"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}),
	}, opts...)...)
}

func ask(prompt string, more ...anthropic.MessageParam) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 100,
		Messages: append([]anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))}, more...),
	}
}

// stream asks for a streamed answer and puts its pieces together.
func stream(ctx context.Context, c anthropic.Client, p anthropic.MessageNewParams) (anthropic.Message, error) {
	var m anthropic.Message
	s := c.Messages.NewStreaming(ctx, p)
	defer s.Close()
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			return m, err
		}
	}
	return m, s.Err()
}

func describe(m anthropic.Message) string {
	var parts []string
	for _, b := range m.Content {
		switch b := b.AsAny().(type) {
		case anthropic.TextBlock:
			parts = append(parts, "text:"+b.Text)
		case anthropic.ThinkingBlock:
			parts = append(parts, "thinking:"+b.Thinking+":"+b.Signature)
		case anthropic.ToolUseBlock:
			parts = append(parts, "tool:"+b.Name+":"+string(b.Input))
		default:
			parts = append(parts, fmt.Sprintf("%T", b))
		}
	}
	return strings.Join(append(parts, string(m.StopReason)), " | ")
}

func TestOfficialClientReadsEveryKindOfAnswer(t *testing.T) {
	for _, tc := range []struct{ name, turn, want string }{
		{"text", `{text: "hello, 世界, in several chunks", chunk: 3}`, "text:hello, 世界, in several chunks | end_turn"},
		{"thinking", `{thinking: hm, signature: c2ln, text: done}`, "thinking:hm:c2ln | text:done | end_turn"},
		{"tools", `{tools: [{name: Read, input: {path: a, n: 1, deep: {list: [x, true, null]}}}, {name: Stop}]}`,
			`tool:Read:{"deep":{"list":["x",true,null]},"n":1,"path":"a"} | tool:Stop:{} | tool_use`},
		{"blocks", `{text: a, blocks: [{type: redacted_thinking, data: eA==}]}`, "text:a | anthropic.RedactedThinkingBlock | end_turn"},
		{"max_tokens", `{text: cut, stop: max_tokens}`, "text:cut | max_tokens"},
		{"refusal", `{text: no, stop: refusal}`, "text:no | refusal"},
		{"pause_turn", `{text: wait, stop: pause_turn}`, "text:wait | pause_turn"},
		{"nothing", `{stop: end_turn}`, "end_turn"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			model := scriptmodel.Start(t, "rules: [{turns: ["+tc.turn+"]}]")
			c := client(t, model)
			whole, err := c.Messages.New(t.Context(), ask("go"))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(*whole); got != tc.want {
				t.Errorf("plain:\n got %s\nwant %s", got, tc.want)
			}
			pieces, err := stream(t.Context(), c, ask("go"))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(pieces); got != tc.want {
				t.Errorf("streamed:\n got %s\nwant %s", got, tc.want)
			}
			if whole.ID == pieces.ID {
				t.Errorf("two answers share the id %s", whole.ID)
			}
		})
	}
}

func TestUsageIsWhatTheScriptSays(t *testing.T) {
	model := scriptmodel.Start(t, `
usage: {input_tokens: 7, cache_read_input_tokens: 3}
rules: [{turns: [{text: "12345678", usage: {output_tokens: 99, cache_creation_input_tokens: 5}}]}]`)
	m, err := stream(t.Context(), client(t, model), ask("go"))
	if err != nil {
		t.Fatal(err)
	}
	u := m.Usage
	if u.InputTokens != 7 || u.OutputTokens != 99 || u.CacheReadInputTokens != 3 || u.CacheCreationInputTokens != 5 {
		t.Errorf("usage is %d in, %d out, %d read, %d created", u.InputTokens, u.OutputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens)
	}
	model = scriptmodel.Start(t, `rules: [{turns: [{text: "12345678"}]}]`)
	if m, err = stream(t.Context(), client(t, model), ask("go")); err != nil {
		t.Fatal(err)
	}
	if m.Usage.OutputTokens != 2 || m.Usage.InputTokens == 0 {
		t.Errorf("estimated usage is %d in, %d out", m.Usage.InputTokens, m.Usage.OutputTokens)
	}
}

func TestModelsAndTokens(t *testing.T) {
	model := scriptmodel.Start(t, `rules: [{turns: [{text: hi}]}]`)
	c := client(t, model)
	models, err := c.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(models.Data) == 0 {
		t.Fatalf("models: %v, %v", models, err)
	}
	one, err := c.Models.Get(t.Context(), models.Data[0].ID, anthropic.ModelGetParams{})
	if err != nil || one.DisplayName != models.Data[0].DisplayName {
		t.Errorf("model: %v, %v", one, err)
	}
	if _, err := c.Models.Get(t.Context(), "gpt", anthropic.ModelGetParams{}); status(err) != 404 {
		t.Errorf("an unknown model gives %v", err)
	}
	n, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "claude-sonnet-5", Messages: ask("some words").Messages,
	})
	if err != nil || n.InputTokens < 3 {
		t.Errorf("tokens: %v, %v", n, err)
	}
}

func status(err error) int {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

func TestFailsAsTheScriptSays(t *testing.T) {
	for _, tc := range []struct {
		name, fail string
		status     int
		text       string
	}{
		{"rate limit", "{status: 429, retry_after: 2s}", 429, "rate_limit_error"},
		{"server error", "{status: 500, message: broken}", 500, "broken"},
		{"overloaded", "{status: 529}", 529, "overloaded_error"},
		{"own type", "{status: 400, type: odd_error}", 400, "odd_error"},
		{"dropped", "{drop_after: 3}", 0, "EOF"},
		{"dropped at once", "{drop_after: 0}", 0, "EOF"},
		{"malformed", "{malformed_after: 3}", 0, "invalid character"},
		{"error event", "{error_after: 3, type: overloaded_error}", 200, "overloaded_error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			model := scriptmodel.Start(t, `rules: [{turns: [{text: "a text in pieces", chunk: 2, fail: `+tc.fail+`}]}]`)
			_, err := stream(t.Context(), client(t, model), ask("go"))
			if err == nil || status(err) != tc.status || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got status %d, %v; want %d, %q", status(err), err, tc.status, tc.text)
			}
		})
	}
}

func TestFailsOnlySoManyTimes(t *testing.T) {
	model := scriptmodel.Start(t, `rules: [{turns: [{text: at last, fail: {status: 529, times: 2, retry_after: 1ms}}]}]`)
	c := client(t, model, option.WithMaxRetries(2))
	m, err := stream(t.Context(), c, ask("go"))
	if err != nil || describe(m) != "text:at last | end_turn" {
		t.Fatalf("got %s, %v", describe(m), err)
	}
	var got []int
	for _, r := range model.Requests() {
		got = append(got, r.Status)
	}
	if fmt.Sprint(got) != "[529 529 200]" {
		t.Errorf("statuses were %v", got)
	}
	// Another conversation starts to count from nothing.
	if _, err := stream(t.Context(), client(t, model), ask("go on")); status(err) != 529 {
		t.Errorf("another request got %v", err)
	}
}

func TestEndlessUntilTheClientGoes(t *testing.T) {
	model := scriptmodel.Start(t, `rules: [{turns: [{text: "on and ", endless: true}]}]`)
	c := client(t, model)
	ctx, stop := context.WithCancel(t.Context())
	s := c.Messages.NewStreaming(ctx, ask("go"))
	defer s.Close()
	for range 1000 {
		if !s.Next() {
			t.Fatalf("the stream ended: %v", s.Err())
		}
	}
	stop()
	for s.Next() {
	}
	if !errors.Is(s.Err(), context.Canceled) {
		t.Errorf("the stream ended with %v", s.Err())
	}
}

func TestServerEndsWithOpenStreams(t *testing.T) {
	// Start's clean-up waits for every handler: with one that never ends by
	// itself this test ends only because the server cuts it.
	model := scriptmodel.Start(t, `rules: [{turns: [{text: zzz, endless: true, delay: 1h}]}]`)
	c := client(t, model)
	s := c.Messages.NewStreaming(t.Context(), ask("go"))
	t.Cleanup(func() { s.Close() })
	if !s.Next() {
		t.Fatal(s.Err())
	}
}

func TestThousandStreamsAtOnce(t *testing.T) {
	model := scriptmodel.Start(t, `
rules:
  - when: {user: "number (?P<n>\\d+)"}
    turns: [{text: "this is answer {{.Named.n}}", chunk: 4, delay: 1ms}]`)
	c := client(t, model)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var all sync.WaitGroup
	ids := sync.Map{}
	for i := range 1000 {
		all.Go(func() {
			m, err := stream(ctx, c, ask(fmt.Sprintf("number %d", i)))
			if want := fmt.Sprintf("text:this is answer %d | end_turn", i); err != nil || describe(m) != want {
				t.Errorf("%d: %s, %v", i, describe(m), err)
			}
			if _, twice := ids.LoadOrStore(m.ID, i); twice {
				t.Errorf("%d: the id %s was given before", i, m.ID)
			}
		})
	}
	all.Wait()
	if n := len(model.Requests()); n != 1000 {
		t.Errorf("%d requests were recorded", n)
	}
}

func TestClientEnvNamesNoOtherHost(t *testing.T) {
	env := strings.Join(scriptmodel.ClientEnv("http://127.0.0.1:1"), "\n")
	for _, want := range []string{"ANTHROPIC_BASE_URL=http://127.0.0.1:1", "ANTHROPIC_API_KEY=anything", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is missing in\n%s", want, env)
		}
	}
	if root := os.Geteuid() == 0; root != strings.Contains(env, "IS_SANDBOX=1") {
		t.Errorf("root is %v, the environment is\n%s", root, env)
	}
}
