package scripted_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/agenttest"
	"github.com/dfaf701a/nestor/agent/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProvider(t *testing.T) {
	agenttest.Run(t, func(t *testing.T) agenttest.Subject {
		return agenttest.Subject{
			Provider: scripted.New(
				scripted.Turn{When: regexp.MustCompile("slow"), Say: []scripted.Line{{Content: "and on", After: time.Millisecond}}, Hang: true},
				scripted.Turn{When: regexp.MustCompile("bad"), Say: []scripted.Line{{Content: "hm"}}, Fail: errors.New("it broke")},
				scripted.Turn{Say: []scripted.Line{{Content: "hello"}, {Content: "done", Kind: agent.System}}},
			),
			Say: "say", Slow: "slow", Bad: "bad",
		}
	})
}

func handle(ctx context.Context, t *testing.T, p *scripted.Provider, c agent.Config, content string) (said []agent.Message, last error) {
	t.Helper()
	a, err := p.Create(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range a.Handle(ctx, agent.NewMessage("test", content)) {
		if last = err; err == nil {
			said = append(said, m)
		}
	}
	return said, last
}

func TestLinesQuoteTheMessage(t *testing.T) {
	p := scripted.New(scripted.Turn{When: regexp.MustCompile(`copy (?P<from>\w+) to (\w+)`),
		Say: []scripted.Line{{Content: "${from} → $2", Metadata: map[string]any{"tool": "cp"}}}})
	said, err := handle(t.Context(), t, p, agent.Config{Name: "a"}, "please copy x to y")
	if err != nil || len(said) != 1 || said[0].Content != "x → y" || said[0].Metadata["tool"] != "cp" {
		t.Errorf("got %+v, %v", said, err)
	}
}

func TestNoTurnIsAnError(t *testing.T) {
	said, err := handle(t.Context(), t, scripted.New(), agent.Config{Name: "a"}, "hello")
	if !errors.Is(err, agent.ErrProvider) || len(said) != 0 {
		t.Errorf("got %+v, %v", said, err)
	}
}

func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := scripted.New(scripted.Turn{Hang: true})
		begin := time.Now()
		_, err := handle(t.Context(), t, p, agent.Config{Name: "a", Limits: agent.Limits{Timeout: time.Hour}}, "wait")
		if !errors.Is(err, agent.ErrTimeout) || time.Since(begin) != time.Hour {
			t.Errorf("after %v it ended with %v", time.Since(begin), err)
		}
	})
}

func TestNameIsNeeded(t *testing.T) {
	if _, err := scripted.New().Create(t.Context(), agent.Config{}); !errors.Is(err, agent.ErrProvider) {
		t.Errorf("got %v", err)
	}
}

// A call reaches a server of the agent, and what it says can be said on.
func TestCallReachesAServer(t *testing.T) {
	type input struct {
		Text string `json:"text"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		if in.Text == "" {
			return nil, nil, errors.New("there is no text")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "kept $1 " + in.Text}}}, nil, nil
	})
	config := agent.Config{Name: "a", MCPServers: map[string]agent.MCPServer{"notes": {Server: server}}}
	p := parse(t, `turns: [{when: "keep (.*)", say: [{call: {name: mcp__notes__add, input: {text: $1}}}, {text: "it says: ${result}"}]}]`)
	a, err := p.Create(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Shutdown(context.WithoutCancel(t.Context()))
	for given, want := range map[string]string{"keep this": "it says: kept $1 this", "keep ": "it says: there is no text"} {
		var last agent.Message
		for m, err := range a.Handle(t.Context(), agent.NewMessage("test", given)) {
			if err != nil {
				t.Fatal(err)
			}
			last = m
		}
		if last.Content != want {
			t.Errorf("%q: it says %q", given, last.Content)
		}
	}
	for m, err := range a.Handle(t.Context(), agent.NewMessage("test", "keep this")) {
		if err == nil && m.Metadata["sdk_type"] == "tool_result" && m.Metadata["is_error"] != false {
			t.Errorf("the result is %+v", m)
		}
	}
}
