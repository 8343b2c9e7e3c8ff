package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

func uuidOf(l claudetest.HostLine) string {
	var m struct {
		UUID string `json:"uuid"`
	}
	json.Unmarshal(l.Raw, &m)
	return m.UUID
}

const (
	running = `{"type":"system","subtype":"session_state_changed","state":"running","sdk_host_only":true}`
	idle    = `{"type":"system","subtype":"session_state_changed","state":"idle","sdk_host_only":true}`
)

// must ends the fake CLI with a code of its own if something went wrong, which
// the test sees as the session's error.
func must(c *claudetest.Conn, what string, ok bool) {
	if !ok {
		fmt.Fprintln(c.Stderr, "it was expected that", what)
		c.Exit(9)
	}
}

// atEnd waits for the end of stdin, which must be the next thing that comes.
func atEnd(c *claudetest.Conn) {
	l, err := c.Next()
	must(c, "stdin ends, not that "+string(l.Raw)+" comes", err == io.EOF)
}

var permissionAsk = map[string]any{"subtype": "can_use_tool", "tool_name": "Bash", "input": map[string]any{"command": "ls"}, "tool_use_id": "t1"}

// talks are CLIs that do what real ones do in corners.
var talks = map[string]claudetest.Script{
	"asks after the result": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(running)
		c.SendRaw(success(p, "first"))
		_, err := c.Ask(permissionAsk)
		must(c, "a permission request after the result is answered", err == nil)
		c.SendRaw(`{"type":"result","subtype":"success","result":"second","origin":{"kind":"task-notification"}}`)
		c.SendRaw(idle)
		atEnd(c)
	},
	"old, with a background agent": func(c *claudetest.Conn) { // says nothing of its state, names no prompt
		c.AcceptInitialize()
		c.Next()
		c.SendRaw(`{"type":"system","subtype":"task_started","task_id":"a","task_type":"local_agent"}`)
		c.SendRaw(`{"type":"system","subtype":"task_started","task_id":"b","task_type":"local_bash"}`)
		c.SendRaw(`{"type":"result","subtype":"success","result":"first"}`)
		_, err := c.Ask(permissionAsk)
		must(c, "a permission request of a background agent is answered", err == nil)
		c.SendRaw(`{"type":"system","subtype":"task_updated","task_id":"a","patch":{"status":"killed"}}`)
		_, err = c.Ask(permissionAsk)
		must(c, "a permission request of the turn that the agent's end leads to is answered", err == nil)
		c.SendRaw(`{"type":"result","subtype":"success","result":"second","origin":{"kind":"task-notification"}}`)
		atEnd(c) // though the shell goes on
	},
	"leaves a shell running": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(running)
		c.SendRaw(`{"type":"system","subtype":"task_started","task_id":"b","task_type":"local_bash"}`)
		c.SendRaw(success(p, "done"))
		c.SendRaw(idle)
		atEnd(c)
	},
	"plain": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			if l.Type == "user" {
				c.SendRaw(running)
				c.SendRaw(success(l, "done"))
				c.SendRaw(idle)
			}
		}
	},
	"nothing is said": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		atEnd(c)
	},
	"checks lines": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for n := 0; ; n++ {
			l, err := c.Next()
			if err != nil {
				c.SendRaw(fmt.Sprintf(`{"type":"system","subtype":"notification","text":"%d"}`, n))
				return
			}
			must(c, "every line is whole", l.Type == "user" && json.Valid(l.Raw))
			c.SendRaw(success(l, "ok"))
		}
	},
	"asks everything": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		say := func(what string, answer json.RawMessage, err error) {
			c.Send(map[string]any{"type": "system", "subtype": "notification", "key": what, "text": fmt.Sprintf("%s %v", answer, err)})
		}
		for _, request := range []map[string]any{
			permissionAsk,
			{"subtype": "elicitation", "mcp_server_name": "s", "message": "which?"},
			{"subtype": "hook_callback", "callback_id": "nobody", "input": map[string]any{}},
			{"subtype": "mcp_message", "server_name": "nobody", "message": map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"}},
			{"subtype": "from the future"},
		} {
			answer, err := c.Ask(request)
			say(request["subtype"].(string), answer, err)
		}
		// Nobody renders this one: silence is the answer.
		c.SendRaw(`{"type":"control_request","request_id":"d","request":{"subtype":"request_user_dialog","dialog_kind":"k","payload":{}}}`)
		c.SendRaw(success(p, "done"))
		atEnd(c)
	},
	"withdraws": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(`{"type":"control_cancel_request","request_id":"nobody"}`)
		request := `{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t"}}`
		c.SendRaw(request)
		c.SendRaw(request) // delivered twice, asked once
		l, err := c.Next() // the callback says that it runs
		must(c, "the host sends a message", err == nil && l.Type == "user")
		c.SendRaw(`{"type":"control_cancel_request","request_id":"p"}`)
		c.SendRaw(success(p, "first"))
		c.SendRaw(success(l, "second"))
		atEnd(c) // and no answer
	},
	"fails and ends": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["it broke"],"user_message_uuid":"` + uuidOf(p) + `"}`)
		c.SendRaw(`{"type":"system","subtype":"session_state_changed","state":"idle"}`)
		c.Next()
		c.Exit(1)
	},
	"fails, goes on and ends badly": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["it broke"],"user_message_uuid":"` + uuidOf(p) + `"}`)
		p, _ = c.Next()
		c.SendRaw(success(p, "fine"))
		c.Next()
		fmt.Fprintln(c.Stderr, "something else")
		c.Exit(1)
	},
	"complains at length": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		c.Next()
		fmt.Fprint(c.Stderr, strings.Repeat("a complaint\n", 3000), "its last words\n") // what a pipe holds
		c.Exit(1)
	},
	"ends well, too early": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		c.Next()
	},
	"drops prompts": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(fmt.Sprintf(`{"type":"command_lifecycle","command_uuid":%q,"state":"refused"}`, uuidOf(p)))
		atEnd(c)
	},
	"says all at once": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(running)
		c.SendRaw(`{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"x"}]}}`)
		request, _ := c.Next() // the reader waits for its answer, which comes behind the rest
		c.SendRaw(success(p, "first"))
		c.SendRaw(`{"type":"result","subtype":"success","result":"second","origin":{"kind":"task-notification"}}`)
		c.SendRaw(idle)
		c.Answer(request, nil)
		atEnd(c)
	},
	"mixes results": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw(`{"type":"result","subtype":"success","result":"of a timer","origin":{"kind":"task-notification"},"user_message_uuid":"ffffffff-0000-4000-8000-000000000000"}`)
		c.SendRaw(success(p, "own"))
		c.SendRaw(`{"type":"prompt_suggestion","suggestion":"go on"}`)
		p, _ = c.Next()
		c.SendRaw(success(p, "own too"))
		atEnd(c)
	},
	"is noisy": func(c *claudetest.Conn) {
		c.SendRaw("[SandboxDebug] hello")
		c.AcceptInitialize()
		p, _ := c.Next()
		c.SendRaw("\n\r")
		c.SendRaw(`{"type":"assistant","message":`)
		c.SendRaw(`{"type":"from_the_future","x":1}`)
		c.SendRaw(`{"type":"user","message":{"role":"user","content":"` + strings.Repeat("x", 10<<20) + `"}}`)
		c.SendRaw(`{"type":"system","subtype":"commands_changed","commands":[{"name":"new","description":"d","argumentHint":""}]}`)
		for i := range 3 {
			fmt.Fprintf(c.Stderr, "line %d\n", i)
		}
		c.SendRaw(success(p, "done"))
		atEnd(c)
	},
	"hooks a lot": func(c *claudetest.Conn) {
		init := c.AcceptInitialize()
		var m struct {
			Request struct {
				Hooks map[string][]struct {
					IDs []string `json:"hookCallbackIds"`
				} `json:"hooks"`
			} `json:"request"`
		}
		json.Unmarshal(init.Raw, &m)
		id := m.Request.Hooks["PreToolUse"][0].IDs[0]
		p, _ := c.Next()
		c.SendRaw(running)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				_, err := c.Ask(map[string]any{"subtype": "hook_callback", "callback_id": id, "tool_use_id": fmt.Sprint(i),
					"input": map[string]any{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": map[string]any{}}})
				must(c, "a hook is answered", err == nil)
				c.SendRaw(`{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"x"}]}}`)
			})
		}
		all.Wait()
		c.SendRaw(success(p, "done"))
		c.SendRaw(idle)
		atEnd(c)
	},
	"is too old for blocking hooks": func(c *claudetest.Conn) {
		l, _ := c.Next()
		c.Answer(l, map[string]any{"claude_code_version": "2.0.1"})
		c.Next()
	},
	"has open questions": func(c *claudetest.Conn) {
		l, _ := c.Next()
		c.SendRaw(fmt.Sprintf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{},"pending_permission_requests":[`+
			`{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t"}}]}}`, l.ID))
		var prompt claudetest.HostLine
		for range 2 { // in either order
			l, err := c.Next()
			must(c, "the open question is answered", err == nil && (l.Type == "user" || l.Type == "control_response" && l.ID == "p"))
			if l.Type == "user" {
				prompt = l
			}
		}
		c.SendRaw(success(prompt, "done"))
		atEnd(c)
	},
}

func allow(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
	return claude.Allow{}, nil
}

// One rule for every form of prompt: the input is closed when nothing is left
// to do.
func TestInputIsClosedWhenAllIsDone(t *testing.T) {
	for _, script := range []string{"asks after the result", "old, with a background agent"} {
		t.Run("items 215, 217, 223, 224, 225, 410: "+script, func(t *testing.T) {
			t.Parallel()
			opts := fake(script)
			opts.CanUseTool = allow
			messages, err := collect(t, claude.Query(bounded(t), "go", opts))
			if err != nil || fmt.Sprint(results(messages)) != "[first second]" {
				t.Errorf("got %q, %v", results(messages), err)
			}
		})
		t.Run("items 220, 224, 225: many messages: "+script, func(t *testing.T) {
			t.Parallel()
			opts := fake(script)
			opts.CanUseTool = allow
			prompts := slices.Values([]claude.UserMessage{{Text: "go"}})
			messages, err := collect(t, claude.QueryAll(bounded(t), prompts, opts))
			if err != nil || fmt.Sprint(results(messages)) != "[first second]" {
				t.Errorf("got %q, %v", results(messages), err)
			}
		})
	}
	t.Run("items 217, 219: a shell that goes on", func(t *testing.T) {
		t.Parallel()
		messages, err := collect(t, claude.Query(bounded(t), "go", fake("leaves a shell running")))
		if err != nil || fmt.Sprint(results(messages)) != "[done]" {
			t.Errorf("got %q, %v", results(messages), err)
		}
	})
	t.Run("item 226: prompts that send nothing", func(t *testing.T) {
		t.Parallel()
		none := func(func(claude.UserMessage) bool) {}
		if messages, err := collect(t, claude.QueryAll(bounded(t), none, fake("nothing is said"))); err != nil || len(messages) != 0 {
			t.Errorf("got %v, %v", messages, err)
		}
	})
	t.Run("item 410: a session's input is closed on request", func(t *testing.T) {
		t.Parallel()
		opts := fake("asks after the result")
		opts.CanUseTool = allow
		s := start(t, opts)
		if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
			t.Fatal(err)
		}
		s.CloseInput()
		messages, err := collect(t, s.Messages())
		if err != nil || fmt.Sprint(results(messages)) != "[first second]" {
			t.Errorf("got %q, %v", results(messages), err)
		}
	})
}

func TestManyPrompts(t *testing.T) {
	t.Parallel()
	t.Run("items 189, 193: sent as they come", func(t *testing.T) {
		t.Parallel()
		prompts := func(yield func(claude.UserMessage) bool) {
			for i := range 3 {
				if !yield(claude.UserMessage{Text: fmt.Sprint(i)}) {
					return
				}
			}
		}
		messages, err := collect(t, claude.QueryAll(bounded(t), prompts, fake("plain")))
		if err != nil || len(results(messages)) != 3 {
			t.Errorf("got %q, %v", results(messages), err)
		}
	})
	t.Run("a panic of the prompts is the error", func(t *testing.T) {
		t.Parallel()
		prompts := func(func(claude.UserMessage) bool) { panic("no more ideas") }
		if _, err := collect(t, claude.QueryAll(bounded(t), prompts, fake("plain"))); err == nil || !strings.Contains(err.Error(), "no more ideas") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("item 120: at once, each whole", func(t *testing.T) {
		t.Parallel()
		s := start(t, fake("checks lines"))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := s.Send(bounded(t), claude.UserMessage{Text: fmt.Sprint(i, strings.Repeat("y", i*1000))}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s.CloseInput()
		messages, err := collect(t, s.Messages())
		last, _ := messages[len(messages)-1].(*claude.Notification)
		if err != nil || last == nil || last.Text != "50" {
			t.Errorf("got %d messages, the last %+v, %v", len(messages), last, err)
		}
		if err := s.Send(bounded(t), claude.UserMessage{Text: "late"}); err == nil {
			t.Error("a message was sent behind the end of the input")
		}
	})
}

func TestAnswersToTheCLI(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, opts claude.Options) map[string]string {
		answers := map[string]string{}
		messages, err := collect(t, claude.Query(bounded(t), "go", opts))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if n, ok := m.(*claude.Notification); ok {
				answers[n.Key] = n.Text
			}
		}
		return answers
	}
	t.Run("without handlers", func(t *testing.T) {
		t.Parallel()
		got := ask(t, fake("asks everything"))
		for what, want := range map[string]string{
			"can_use_tool":    `"behavior":"deny"`,
			"elicitation":     `{"action":"decline"} <nil>`,
			"hook_callback":   `there is no hook "nobody"`,
			"mcp_message":     `-32601`,
			"from the future": `does not support the request from the future`,
		} {
			if !strings.Contains(got[what], want) {
				t.Errorf("item 413: %s was answered %s, want %s", what, got[what], want)
			}
		}
	})
	t.Run("item 253: a callback that fails or panics", func(t *testing.T) {
		t.Parallel()
		opts := fake("asks everything")
		opts.CanUseTool = func(context.Context, *claude.PermissionRequest) (claude.Decision, error) { panic("oh") }
		opts.OnElicitation = func(context.Context, *claude.Elicitation) (*claude.ElicitationReply, error) {
			return nil, errors.New("no screen")
		}
		got := ask(t, opts)
		if !strings.Contains(got["can_use_tool"], "panicked: oh") || !strings.Contains(got["elicitation"], "no screen") {
			t.Errorf("got %q", got)
		}
	})
}

func TestWithdrawnRequest(t *testing.T) {
	t.Parallel()
	opts := fake("withdraws")
	var asked atomic.Int32
	ended := make(chan error, 1)
	running := make(chan struct{})
	opts.CanUseTool = func(ctx context.Context, _ *claude.PermissionRequest) (claude.Decision, error) {
		if asked.Add(1) == 1 {
			close(running)
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return claude.Allow{}, nil
	}
	s := start(t, opts)
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	<-running
	if err := s.Send(bounded(t), claude.UserMessage{Text: "it runs"}); err != nil {
		t.Fatal(err)
	}
	s.CloseInput()
	if _, err := collect(t, s.Messages()); err != nil {
		t.Errorf("item 231: %v", err)
	}
	if err := <-ended; err != context.Canceled || asked.Load() != 1 {
		t.Errorf("item 412: the callback ran %d times and ended with %v", asked.Load(), err)
	}
}

func TestEndBehindAFailedResult(t *testing.T) {
	t.Parallel()
	t.Run("items 235, 244: the result says why", func(t *testing.T) {
		t.Parallel()
		messages, err := collect(t, claude.Query(bounded(t), "go", fake("fails and ends")))
		re, ok := errors.AsType[*claude.ResultError](err)
		if !ok || re.Text() != "it broke" || len(results(messages)) != 1 {
			t.Errorf("got %v behind %d results", err, len(results(messages)))
		}
		if pe, ok := errors.AsType[*claude.ProcessError](err); !ok || pe.ExitCode != 1 {
			t.Errorf("got %#v", err)
		}
	})
	t.Run("items 243, 245: a later turn is no reason", func(t *testing.T) {
		t.Parallel()
		s := start(t, fake("fails, goes on and ends badly"))
		if _, err := collect(t, s.Prompt(bounded(t), "one")); err == nil || !strings.Contains(err.Error(), "it broke") {
			t.Errorf("the failed prompt ended with %v", err)
		}
		if messages, err := collect(t, s.Prompt(bounded(t), "two")); err != nil || fmt.Sprint(results(messages)) != "[fine]" {
			t.Errorf("the second prompt: %q, %v", results(messages), err)
		}
		s.CloseInput()
		_, err := collect(t, s.Messages())
		if pe, ok := errors.AsType[*claude.ProcessError](err); !ok || pe.Result != nil || !strings.Contains(err.Error(), "something else") {
			t.Errorf("the session ended with %v", err)
		}
	})
}

// What the CLI prints last says why it ends: it is read although the output has ended.
func TestLastWordsAreHeard(t *testing.T) {
	t.Parallel()
	opts := fake("complains at length")
	lines := 0
	opts.Stderr = func(string) { lines++; runtime.Gosched() }
	_, err := collect(t, claude.Query(bounded(t), "go", opts))
	if pe, ok := errors.AsType[*claude.ProcessError](err); !ok || !strings.HasSuffix(pe.Stderr, "its last words\n") || lines != 3001 {
		t.Errorf("got %v behind %d lines", err, lines)
	}
}

func TestPromptEndsWithItsOwnResult(t *testing.T) {
	t.Parallel()
	s := start(t, fake("mixes results"))
	for i, want := range []string{"[of a timer own]", "[own too]"} {
		messages, err := collect(t, s.Prompt(bounded(t), "go"))
		if err != nil || fmt.Sprint(results(messages)) != want {
			t.Errorf("item 198: prompt %d: %q, %v", i, results(messages), err)
		}
		if i == 1 {
			if _, ok := messages[0].(*claude.PromptSuggestion); !ok {
				t.Errorf("what came between two prompts is lost: %T", messages[0])
			}
		}
	}
}

func TestPromptThatIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, fake("drops prompts"))
	if _, err := collect(t, s.Prompt(bounded(t), "go")); !errors.Is(err, claude.ErrWithdrawn) {
		t.Errorf("got %v", err)
	}
}

func TestSettledWaitsForBackgroundWork(t *testing.T) {
	t.Parallel()
	opts := fake("asks after the result")
	opts.CanUseTool = allow
	s := start(t, opts)
	messages, err := collect(t, s.Ask(bounded(t), claude.UserMessage{Text: "go"}, claude.Settled))
	if err != nil || fmt.Sprint(results(messages)) != "[first second]" {
		t.Errorf("got %q, %v", results(messages), err)
	}
}

// What the CLI says of its state is known before the messages that came ahead
// of it are read.
func TestSettledReadsWhatWasSaidBefore(t *testing.T) {
	t.Parallel()
	s := start(t, fake("says all at once"))
	var texts []string
	for msg, err := range s.Ask(bounded(t), claude.UserMessage{Text: "go"}, claude.Settled) {
		if err != nil {
			t.Fatal(err)
		}
		switch m := msg.(type) {
		case *claude.Assistant:
			if _, err := s.Control(bounded(t), "say the rest", nil); err != nil {
				t.Fatal(err)
			}
		case *claude.Result:
			texts = append(texts, m.Result)
		}
	}
	if fmt.Sprint(texts) != "[first second]" {
		t.Errorf("got %q", texts)
	}
}

func TestNoiseIsNoError(t *testing.T) {
	t.Parallel()
	opts := fake("is noisy")
	var mu sync.Mutex
	var debug, stderr []string
	opts.OnDebugLine = func(line []byte) { debug = append(debug, string(line)) }
	var signs atomic.Int32
	opts.OnFrame = func() { signs.Add(1) }
	opts.Stderr = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		stderr = append(stderr, line)
		panic("item 125: a callback that panics")
	}
	s := start(t, opts)
	messages, err := collect(t, s.Prompt(bounded(t), "go"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range messages {
		kind := fmt.Sprintf("%T", m)
		if u, ok := m.(*claude.Unknown); ok {
			kind += fmt.Sprintf(" %T", u.Err)
		}
		kinds = append(kinds, kind)
	}
	want := "*claude.Unknown *claude.DecodeError, *claude.Unknown <nil>, *claude.User, *claude.CommandsChanged, *claude.Result"
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if u, ok := messages[2].(*claude.User); !ok || len(u.Text()) != 10<<20 {
		t.Error("item 420: the long message is not whole")
	}
	if c := s.Commands(); len(c) != 1 || c[0].Name != "new" {
		t.Errorf("item 416: the commands are %+v", c)
	}
	if signs.Load() < 2 { // the answer to initialize, and what followed
		t.Errorf("%d signs of life", signs.Load())
	}
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(debug) != "[[SandboxDebug] hello]" || fmt.Sprint(stderr) != "[line 0 line 1 line 2]" {
		t.Errorf("items 112, 126: debug %q, stderr %q", debug, stderr)
	}
}

func TestLineLimit(t *testing.T) {
	t.Parallel()
	opts := fake("is noisy")
	opts.MaxLine = 1 << 20
	messages, err := collect(t, claude.Query(bounded(t), "go", opts))
	long := slices.IndexFunc(messages, func(m claude.Message) bool {
		u, ok := m.(*claude.Unknown)
		if !ok {
			return false
		}
		_, ok = errors.AsType[*claude.LineTooLongError](u.Err)
		return ok
	})
	if err != nil || long < 0 || len(results(messages)) != 1 {
		t.Errorf("items 109, 110, 116: %d messages, %v", len(messages), err)
	}
}

// More callbacks and messages than any buffer holds, before anybody reads.
func TestCallbacksDoNotWaitForTheReader(t *testing.T) {
	t.Parallel()
	opts := fake("hooks a lot")
	var ran atomic.Int32
	opts.Hooks.PreToolUse = []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
		Func: func(context.Context, *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
			ran.Add(1)
			return nil, nil
		},
	}}
	s := start(t, opts)
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	for deadline := bounded(t); ran.Load() < 200; { // all run though nobody reads
		if deadline.Err() != nil {
			t.Fatalf("items 187, 214: %d callbacks ran", ran.Load())
		}
	}
	s.CloseInput()
	messages, err := collect(t, s.Messages())
	if err != nil || len(messages) != 201 {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

func TestBlockingHooksNeedASupportingCLI(t *testing.T) {
	t.Parallel()
	opts := fake("is too old for blocking hooks")
	opts.Hooks.PreToolUse = []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
		BlockOnFailure: true,
		Func: func(context.Context, *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
			return nil, nil
		},
	}}
	_, err := claude.Start(bounded(t), opts)
	if ue, ok := errors.AsType[*claude.UnsupportedError](err); !ok || ue.Version != "2.0.1" {
		t.Errorf("item 414: got %v", err)
	}
}

func TestOpenQuestionsOfAnEarlierHost(t *testing.T) {
	t.Parallel()
	opts := fake("has open questions")
	opts.CanUseTool = allow
	s := start(t, opts)
	if _, err := collect(t, s.Prompt(bounded(t), "go")); err != nil {
		t.Errorf("item 412: %v", err)
	}
}

func TestReadersTakeTurns(t *testing.T) {
	t.Parallel()
	s := start(t, fake("plain"))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			messages, err := collect(t, s.Prompt(bounded(t), "go"))
			if err != nil || len(results(messages)) != 1 {
				t.Errorf("item 203: %q, %v", results(messages), err)
			}
		})
	}
	all.Wait()
}

func TestConsumerIsReleasedByClose(t *testing.T) {
	t.Parallel()
	s := start(t, fake("plain"))
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { s.Close() })
	messages, err := collect(t, s.Messages())
	if !errors.Is(err, claude.ErrClosed) {
		t.Errorf("item 229: after %d messages the iteration ended with %v", len(messages), err)
	}
}

func TestIterationsAreSingleUse(t *testing.T) {
	t.Parallel()
	s := start(t, fake("plain"))
	for name, seq := range map[string]func(func(claude.Message, error) bool){
		"Query": claude.Query(bounded(t), "go", fake("plain")), "Prompt": s.Prompt(bounded(t), "go"),
	} {
		if messages, err := collect(t, seq); err != nil || len(messages) == 0 {
			t.Errorf("%s: %d messages, %v", name, len(messages), err)
		}
		if messages, err := collect(t, seq); !errors.Is(err, claude.ErrUsed) || len(messages) != 0 {
			t.Errorf("%s again: %d messages, %v", name, len(messages), err)
		}
	}
}

func TestEndInsteadOfAnAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, fake("ends well, too early"))
	if _, err := collect(t, s.Prompt(bounded(t), "go")); !errors.Is(err, claude.ErrClosed) {
		t.Errorf("a prompt that was not answered ended with %v", err)
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	w, err := claude.Warm(bounded(t), fake("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if messages, err := collect(t, w.Query(bounded(t), "go")); err != nil || fmt.Sprint(results(messages)) != "[done]" {
		t.Errorf("got %q, %v", results(messages), err)
	}
	if _, err := collect(t, w.Query(bounded(t), "again")); err == nil {
		t.Error("a warm CLI was used twice")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestWarmTellsThatItDied(t *testing.T) {
	t.Parallel()
	w, err := claude.Warm(bounded(t), fake("plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	select {
	case <-w.Done():
		t.Fatal("a CLI that waits is said to have ended")
	default:
	}
	p, err := os.FindProcess(w.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Done():
	case <-bounded(t).Done():
		t.Error("nobody noticed that the CLI was killed")
	}
}
