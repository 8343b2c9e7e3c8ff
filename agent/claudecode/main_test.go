package claudecode

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) {
	code := claudetest.Main(m, scripts)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// scripts are CLIs that real ones are too slow or too healthy to be.
var scripts = map[string]claudetest.Script{
	// environ answers each prompt with that variable.
	"environ": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			value, set := os.LookupEnv(prompt(l))
			c.SendRaw(success(l, fmt.Sprint(set, " ", value)))
		}
	},
	// writer answers a prompt of tools and their inputs, after the events of a model
	// that writes them, some characters at a time.
	"writer": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			c.SendRaw(initLine)
			words := strings.Fields(prompt(l))
			for i := 0; i < len(words); i += 2 {
				send := func(event string) {
					c.SendRaw(`{"type":"stream_event","event":` + event + `,"parent_tool_use_id":null,"session_id":"s","uuid":"u"}`)
				}
				send(fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"t","name":%q,"input":{}}}`, i, words[i]))
				for part := range slices.Chunk([]byte(words[i+1]), 5) {
					send(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, i, part))
				}
				send(fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
			}
			c.SendRaw(success(l, "done"))
		}
	},
	// mortal dies when it is told to, and otherwise answers with how it was told
	// to resume.
	"mortal": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			switch prompt(l) {
			case "die":
				c.SendRaw(initLine)
				fmt.Fprintln(c.Stderr, "aargh")
				c.Exit(7)
			case "answer and die":
				c.SendRaw(success(l, "farewell"))
				c.SendRaw(idle)
				c.Exit(8)
			case "leave":
				c.SendRaw(initLine)
				c.Exit(0)
			}
			c.SendRaw(success(l, resumes(c)))
		}
	},
	// busy begins a turn at "work" and ends it when it is interrupted, or when
	// something is pushed. What else it is told it repeats.
	"busy": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		var turn claudetest.HostLine
		for {
			l, err := c.Next()
			switch {
			case err != nil:
				return
			case l.Type == "user" && prompt(l) == "work":
				turn = l
				c.SendRaw(initLine)
			case l.Type == "user" && turn.Raw != nil:
				c.SendRaw(success(turn, "done after "+prompt(l)))
				c.SendRaw(success(l, "pushed"))
				turn = claudetest.HostLine{}
			case l.Type == "user":
				c.SendRaw(success(l, prompt(l)))
			case l.Type == "control_request":
				c.Answer(l, map[string]any{})
				if turn.Raw != nil {
					c.SendRaw(fmt.Sprintf(`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","user_message_uuid":%q,"session_id":"s1"}`, uuid(turn)))
					turn = claudetest.HostLine{}
				}
			}
		}
	},
	// background answers at once, and goes on in the background.
	"background": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			if l.Type != "user" {
				c.Answer(l, map[string]any{})
				continue
			}
			c.SendRaw(`{"type":"system","subtype":"session_state_changed","state":"running"}`)
			if prompt(l) == "serve" {
				c.SendRaw(`{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"t","task_type":"local_bash"}]}`)
			}
			if prompt(l) == "delegate" {
				c.SendRaw(`{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"t","task_type":"local_agent"}]}`)
				c.SendRaw(success(l, "on its way"))
				continue // for ever
			}
			c.SendRaw(success(l, resumes(c)))
			c.SendRaw(idle)
		}
	},
	// forgetful has nothing to resume.
	"forgetful": func(c *claudetest.Conn) {
		if resumes(c) != "" {
			c.SendRaw(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: s1"]}`)
			c.Exit(1)
		}
		c.AcceptInitialize()
		l, _ := c.Next()
		c.SendRaw(success(l, "new"))
		c.SendRaw(idle)
		c.Exit(1)
	},
	// deaf takes a prompt and does nothing, whatever it is asked.
	"deaf": func(c *claudetest.Conn) {
		c.Signals()
		c.AcceptInitialize()
		c.Next()
		c.SendRaw(initLine)
		select {}
	},
	// garbled says something that is not JSON, which is a line of its own.
	"garbled": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		l, _ := c.Next()
		c.SendRaw(`{"type":"assistant","message":{`)
		c.SendRaw(success(l, "well"))
		c.Next()
	},
	// mute does not get ready.
	"mute": func(c *claudetest.Conn) {
		c.Next()
		fmt.Fprintln(c.Stderr, "I am here")
		select {}
	},
}

// resumes returns the argument that makes the CLI resume, or nothing.
func resumes(c *claudetest.Conn) string {
	i := slices.IndexFunc(c.Args(), func(a string) bool { return strings.HasPrefix(a, "--resume") })
	if i < 0 {
		return ""
	}
	return c.Args()[i]
}

const (
	idle     = `{"type":"system","subtype":"session_state_changed","state":"idle"}`
	initLine = `{"type":"system","subtype":"init","session_id":"s1","model":"m","tools":["Read"]}`
)

func prompt(l claudetest.HostLine) string {
	var m struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	}
	json.Unmarshal(l.Raw, &m)
	return m.Message.Content
}

func uuid(l claudetest.HostLine) string {
	var m struct {
		UUID string `json:"uuid"`
	}
	json.Unmarshal(l.Raw, &m)
	return m.UUID
}

// success is the line of a good result for the prompt.
func success(prompt claudetest.HostLine, text string) string {
	return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"result":%q,"num_turns":1,"session_id":"s1","user_message_uuid":%q}`, text, uuid(prompt))
}

func bounded(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

// fake returns a provider of a CLI that plays the script.
func fake(script string) *Provider {
	path, env := claudetest.Fake(script)
	return New(Options{Path: path, Env: env})
}

// live returns a provider of the real CLI with a model that follows script, in
// which $WORK stands for the working directory.
func live(t testing.TB, script string) (*Provider, agent.Config, *scriptmodel.Server) {
	t.Helper()
	cli := claudetest.Real(t)
	model := scriptmodel.Start(t, strings.ReplaceAll(script, "$WORK", cli.Dir))
	env := slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL))
	return New(Options{Path: cli.Path, Env: env, ReplaceEnv: true}), agent.Config{Name: "ada", Dir: cli.Dir}, model
}

const echo = `rules: [{repeat: true, turns: [{text: "You said: {{.Prompt}}"}]}]`

// create makes an agent that the test's end shuts down.
func create(t testing.TB, p *Provider, c agent.Config) agent.Pusher {
	t.Helper()
	a, err := p.Create(bounded(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := a.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: %v", err)
		}
	})
	return a.(agent.Pusher)
}

// client is the configuration of an agent that remembers.
func client(c agent.Config) agent.Config {
	c.Credentials = map[string]string{"mode": "client"}
	return c
}

// say has the agent handle a message and returns what it yields. It fails the
// test if anything comes behind an error.
func say(t testing.TB, ctx context.Context, a agent.Agent, content string) (messages []agent.Message, last error) {
	t.Helper()
	for m, err := range a.Handle(ctx, agent.NewMessage("tester", content)) {
		if last != nil {
			t.Fatalf("%v came behind the error %v", m, last)
		}
		if last = err; err == nil {
			messages = append(messages, m)
		}
	}
	return messages, last
}

// answer is say for what must succeed, and returns the texts of the results.
func answer(t testing.TB, a agent.Agent, content string) string {
	t.Helper()
	messages, err := say(t, bounded(t), a, content)
	if err != nil {
		t.Fatalf("%q was answered with the error %v", content, err)
	}
	var texts []string
	for _, m := range of(messages, "result") {
		texts = append(texts, m.Content)
	}
	return strings.Join(texts, "|")
}

// of returns the messages of one sdk_type.
func of(messages []agent.Message, sdkType string) (list []agent.Message) {
	for _, m := range messages {
		if m.Metadata["sdk_type"] == sdkType {
			list = append(list, m)
		}
	}
	return list
}

// types returns the sdk_types of the messages.
func types(messages []agent.Message) (list []string) {
	for _, m := range messages {
		list = append(list, fmt.Sprint(m.Metadata["sdk_type"]))
	}
	return list
}
