package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		victim(dir)
		return
	}
	if os.Getenv(stdioVariable) != "" {
		stdioServer()
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func bounded(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

// bench is a provider with a model that follows a script, and an agent of it.
type bench struct {
	t     testing.TB
	model *scriptmodel.Server
	opts  Options
	tools []tools.Tool
	p     *Provider
}

// open starts a model and a provider that talks to it.
func open(t testing.TB, script string, change ...func(*Options)) *bench {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b := &bench{t: t, model: scriptmodel.Start(t, script)}
	b.opts = Options{BaseURL: b.model.URL, APIKey: "key", HTTPClient: &http.Client{Transport: transport}}
	b.opts.Tools = func(agent.Config) []tools.Tool { return b.tools }
	for _, f := range change {
		f(&b.opts)
	}
	b.p = New(b.opts)
	return b
}

// create makes an agent that the test's end shuts down.
func (b *bench) create(c agent.Config) agent.Pusher {
	b.t.Helper()
	if c.Name == "" {
		c.Name = "ada"
	}
	if c.Dir == "" {
		c.Dir = b.t.TempDir()
	}
	a, err := b.p.Create(bounded(b.t), c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := a.Shutdown(ctx); err != nil {
			b.t.Errorf("shutting down: %v", err)
		}
	})
	return a.(agent.Pusher)
}

// remembering is the configuration of an agent that remembers.
func remembering(c agent.Config) agent.Config {
	c.Credentials = map[string]string{"mode": "client"}
	return c
}

// heardAll is what an agent said.
type heardAll []agent.Message

// of returns the messages of one sdk_type.
func (h heardAll) of(sdkType string) (list heardAll) {
	for _, m := range h {
		if m.Metadata["sdk_type"] == sdkType {
			list = append(list, m)
		}
	}
	return list
}

// types returns the sdk_types in order, without init.
func (h heardAll) types() string {
	var list []string
	for _, m := range h {
		if name := fmt.Sprint(m.Metadata["sdk_type"]); name != "init" {
			list = append(list, name)
		}
	}
	return strings.Join(list, " ")
}

// texts returns the contents.
func (h heardAll) texts() (list []string) {
	for _, m := range h {
		list = append(list, m.Content)
	}
	return list
}

// result returns the only result.
func (h heardAll) result(t testing.TB) agent.Message {
	t.Helper()
	results := h.of("result")
	if len(results) != 1 {
		t.Fatalf("there are %d results in %s", len(results), h.types())
	}
	return results[0]
}

// say has the agent handle a message. It fails the test if anything comes behind
// an error.
func say(t testing.TB, ctx context.Context, a agent.Agent, content string) (all heardAll, last error) {
	t.Helper()
	for m, err := range a.Handle(ctx, agent.NewMessage("tester", content)) {
		if last != nil {
			t.Fatalf("%v came behind the error %v", m, last)
		}
		if last = err; err == nil {
			all = append(all, m)
		}
	}
	return all, last
}

// answerTo is say for what must succeed.
func answerTo(t testing.TB, a agent.Agent, content string) heardAll {
	t.Helper()
	all, err := say(t, bounded(t), a, content)
	if err != nil {
		t.Fatalf("%q was answered with the error %v", content, err)
	}
	return all
}

// fails is say for what must fail with an agent.Error.
func fails(t testing.TB, a agent.Agent, content string) (heardAll, *agent.Error) {
	t.Helper()
	all, err := say(t, bounded(t), a, content)
	e, ok := errors.AsType[*agent.Error](err)
	if !ok {
		t.Fatalf("%q was answered with the error %v in %s", content, err, all.types())
	}
	return all, e
}

// journal is what fake tools did, in order.
type journal struct {
	mu   sync.Mutex
	list []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, fmt.Sprintf(format, args...))
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.list, ", ")
}

// named is the input of fake tools.
type named struct {
	Name string `json:"name"`
	Path string `json:"file_path"`
}

// reader is a tool that only reads.
func (j *journal) reader(name string) tools.Tool {
	return tools.Tool{Name: name, ReadOnly: true, Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
		var in named
		json.Unmarshal(input, &in)
		j.add("%s %s", name, in.Name)
		return tools.Result{Text: "read " + in.Name}, nil
	}}
}

// writer is a tool that edits files.
func (j *journal) writer(name string) tools.Tool {
	return tools.Tool{
		Name: name,
		Access: func(input json.RawMessage) (tools.Access, error) {
			var in named
			if err := json.Unmarshal(input, &in); err != nil {
				return tools.Access{}, err
			}
			return tools.Access{Path: in.Path, Edits: true, Outside: strings.HasPrefix(in.Path, "/outside")}, nil
		},
		Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
			var in named
			json.Unmarshal(input, &in)
			j.add("%s %s", name, in.Path)
			return tools.Result{Text: "wrote " + in.Path, Data: map[string]string{"filePath": in.Path}}, nil
		},
	}
}

// bash is a tool that runs commands, by name only.
func (j *journal) bash() tools.Tool {
	return tools.Tool{Name: "Bash", Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
		command, _ := commandOf(input)
		j.add("$ %s", command)
		if command == "false" {
			return tools.Result{}, errors.New("exit status 1")
		}
		return tools.Result{Text: "ran " + command}, nil
	}}
}

// messagesOf returns the conversation in a request, after it was checked.
func messagesOf(t testing.TB, r *scriptmodel.Request) []message {
	t.Helper()
	var body struct {
		Messages []message `json:"messages"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	if err := valid(body.Messages); err != nil {
		t.Fatalf("request %d: %v", r.Seq, err)
	}
	return body.Messages
}

// valid tells what the API would not take in a conversation, or what we promise
// over that.
func valid(messages []message) error {
	var open []string
	for i, m := range messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of the %s", i, m.Role)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		var calls, results []string
		for j, raw := range m.Content {
			var b block
			if err := json.Unmarshal(raw, &b); err != nil || b.Type == "" {
				return fmt.Errorf("block %d of message %d: %v", j, i, err)
			}
			switch {
			case b.Type == "text" && b.Text == "":
				return fmt.Errorf("message %d has an empty text", i)
			case b.Type == "tool_use":
				calls = append(calls, b.ID)
			case b.Type == "tool_result":
				results = append(results, b.ToolUseID)
			}
		}
		if !slices.Equal(results, open) {
			return fmt.Errorf("message %d has results for %q, want %q", i, results, open)
		}
		open = calls
	}
	return nil
}

// requests returns the requests for answers, each checked.
func (b *bench) requests() (list []*scriptmodel.Request) {
	b.t.Helper()
	for _, r := range b.model.Requests() {
		if strings.HasSuffix(r.Path, "/messages") {
			messagesOf(b.t, r)
			list = append(list, r)
		}
	}
	return list
}

// decided is a Config.CanUseTool.
func decided(d claude.Decision) func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
	return func(context.Context, *claude.PermissionRequest) (claude.Decision, error) { return d, nil }
}
