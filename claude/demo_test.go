package claude_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// demo returns the options of the examples. They need neither the CLI nor an
// account: a fake CLI plays the part that is named. A program of yours begins
// with claude.Options{} instead.
func demo(part string) claude.Options { return fake("example: " + part) }

const demoSession = "5f2c7a8e-1b34-4c56-8d9e-0a1b2c3d4e5f"

// actor is Claude in the examples.
type actor struct {
	*claudetest.Conn
	setup  claudetest.HostLine // what the host said first
	prompt claudetest.HostLine
	turn   int // counted from 1
}

// part makes a script of what Claude does for each prompt. Between them it
// answers the requests of the host.
func part(turn func(a *actor)) claudetest.Script {
	return func(c *claudetest.Conn) {
		a := &actor{Conn: c, setup: c.AcceptInitialize()}
		for {
			l, err := c.Next()
			switch {
			case err != nil:
				return
			case l.Type == "control_request":
				a.obey(l)
			case l.Type == "user":
				a.prompt, a.turn = l, a.turn+1
				c.SendRaw(running)
				turn(a)
				c.SendRaw(idle)
			}
		}
	}
}

// obey answers a request of the host.
func (a *actor) obey(l claudetest.HostLine) {
	switch l.Subtype {
	case "get_context_usage":
		a.Answer(l, map[string]any{
			"model": "claude-opus-5-5", "totalTokens": 30000, "maxTokens": 200000, "percentage": 15,
			"categories": []any{
				map[string]any{"name": "Messages", "tokens": 12000, "kind": "used"},
				map[string]any{"name": "Free space", "tokens": 170000, "kind": "free"},
			},
		})
	case "set_model", "interrupt":
		a.Answer(l, map[string]any{})
	default:
		a.Refuse(l, "unsupported_request", "Unsupported control request subtype: "+l.Subtype)
	}
}

// say is a message of Claude.
func (a *actor) say(text string) {
	a.message(map[string]any{"type": "text", "text": text}, nil)
}

func (a *actor) message(block, usage map[string]any) {
	a.Send(map[string]any{"type": "assistant", "session_id": demoSession, "message": map[string]any{
		"id": fmt.Sprint("msg_", a.turn), "role": "assistant", "model": "claude-opus-5-5", "content": []any{block}, "usage": usage,
	}})
}

// finish ends the turn. The fields come as key and value.
func (a *actor) finish(text string, fields ...any) {
	result := map[string]any{
		"type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": demoSession,
		"user_message_uuid": uuidOf(a.prompt), "num_turns": 1,
	}
	for i := 0; i < len(fields); i += 2 {
		result[fields[i].(string)] = fields[i+1]
	}
	a.Send(result)
}

// answer says a text and ends the turn with it.
func (a *actor) answer(text string) {
	a.say(text)
	a.finish(text)
}

// ask has the host answer a request, and reads the answer into reply.
func (a *actor) ask(reply any, request map[string]any) {
	answer, err := a.Ask(request)
	must(a.Conn, fmt.Sprintf("%v is answered: %s %v", request["subtype"], answer, err), err == nil && json.Unmarshal(answer, reply) == nil)
}

// permitted asks the host whether a tool may run, and returns what it may run
// with, or why it may not.
func (a *actor) permitted(tool string, input any) (updated json.RawMessage, message string) {
	var d struct {
		Behavior, Message string
		UpdatedInput      json.RawMessage
	}
	a.ask(&d, map[string]any{"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": "toolu_1"})
	return d.UpdatedInput, d.Message
}

// call runs the hooks of the host that match a tool, as the CLI does, and says
// what became of the call.
func (a *actor) call(tool string, input any) {
	var m struct {
		Request struct {
			Hooks struct {
				PreToolUse []struct {
					Matcher string
					IDs     []string `json:"hookCallbackIds"`
				}
			}
		}
	}
	must(a.Conn, "the host sends its hooks", json.Unmarshal(a.setup.Raw, &m) == nil)
	for _, h := range m.Request.Hooks.PreToolUse {
		if h.Matcher != "" && !slices.Contains(strings.Split(h.Matcher, "|"), tool) {
			continue
		}
		var out struct {
			Output struct {
				Decision string `json:"permissionDecision"`
				Reason   string `json:"permissionDecisionReason"`
			} `json:"hookSpecificOutput"`
		}
		a.ask(&out, map[string]any{"subtype": "hook_callback", "callback_id": h.IDs[0], "tool_use_id": "toolu_1", "input": map[string]any{
			"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": "toolu_1",
		}})
		if out.Output.Decision == "deny" {
			a.say(tool + " was denied: " + out.Output.Reason)
			return
		}
	}
	a.say(tool + " ran")
}

// examples are the parts that Claude plays in the examples.
var examples = map[string]claudetest.Script{
	"example: answers": part(func(a *actor) { a.answer("42") }),
	"example: remembers": part(func(a *actor) {
		a.answer([]string{"Nice to meet you, Ada.", "Your name is Ada."}[(a.turn-1)%2])
	}),
	"example: counts": part(func(a *actor) {
		a.say("one, two, three")
		second, _ := a.Next()
		a.say("quatre, cinq, six")
		interrupt, _ := a.Next()
		must(a.Conn, "the turn is interrupted", interrupt.Subtype == "interrupt")
		a.obey(interrupt)
		a.finish("", "subtype", "error_during_execution", "is_error", true, "terminal_reason", "aborted_streaming",
			"user_message_uuids", []string{uuidOf(a.prompt), uuidOf(second)})
	}),
	"example: streams": part(func(a *actor) {
		a.Send(map[string]any{"type": "stream_event", "event": map[string]any{"type": "message_start", "message": map[string]any{"id": "msg_1"}}})
		for _, text := range []string{"Once ", "upon ", "a time."} {
			a.Send(map[string]any{"type": "stream_event", "event": map[string]any{
				"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": text},
			}})
		}
		a.answer("Once upon a time.")
	}),
	"example: runs a command": part(func(a *actor) {
		if _, no := a.permitted("Bash", map[string]any{"command": "rm -r build"}); no != "" {
			a.answer("I may not: " + no)
			return
		}
		a.answer("I removed it.")
	}),
	"example: asks": part(func(a *actor) {
		input, _ := a.permitted("AskUserQuestion", map[string]any{"questions": []any{map[string]any{
			"question": "Which database?", "header": "Database", "multiSelect": false,
			"options": []any{map[string]any{"label": "SQLite"}, map[string]any{"label": "PostgreSQL"}},
		}}})
		var m struct{ Answers map[string]string }
		must(a.Conn, "the question is answered", json.Unmarshal(input, &m) == nil)
		a.answer("Then I take " + m.Answers["Which database?"] + ".")
	}),
	"example: uses tools": part(func(a *actor) {
		a.call("Read", map[string]any{"file_path": "/etc/hosts"})
		a.call("Write", map[string]any{"file_path": "/etc/hosts"})
		a.finish("done")
	}),
	"example: adds": part(func(a *actor) {
		var m struct {
			Reply struct {
				Result struct{ Content []struct{ Text string } }
			} `json:"mcp_response"`
		}
		a.ask(&m, map[string]any{"subtype": "mcp_message", "server_name": "calculator", "message": map[string]any{
			"jsonrpc": "2.0", "id": 1, "method": "tools/call",
			"params": map[string]any{"name": "add", "arguments": map[string]any{"a": 19, "b": 23}},
		}})
		must(a.Conn, "the tool says something", len(m.Reply.Result.Content) == 1)
		a.answer("The tool says " + m.Reply.Result.Content[0].Text)
	}),
	"example: reviews": part(func(a *actor) {
		a.finish("", "structured_output", map[string]any{"approve": false, "problems": []string{"the file is not closed"}})
	}),
	"example: spends": part(func(a *actor) {
		usage := map[string]any{"input_tokens": 1000 * a.turn, "output_tokens": 200}
		a.message(map[string]any{"type": "text", "text": "Let me think."}, usage)
		a.message(map[string]any{"type": "text", "text": "Done."}, usage) // the same API call
		a.finish("Done.", "usage", usage, "total_cost_usd", 0.02*float64(a.turn))
	}),
	"example: resumes": part(func(a *actor) {
		session := demoSession
		if slices.Contains(a.Args(), "--fork-session") {
			session = "c0ffee00-1b34-4c56-8d9e-0a1b2c3d4e5f"
		}
		text := "We have just met."
		if slices.Contains(a.Args(), "--resume="+demoSession) {
			text = "I remember you."
		}
		a.say(text)
		a.finish(text, "session_id", session)
	}),
	"example: is mirrored": part(func(a *actor) {
		entry := func(id, parent, role, text string) map[string]any {
			return map[string]any{
				"type": role, "uuid": id, "parentUuid": parent, "sessionId": demoSession,
				"timestamp": "2026-01-01T12:00:00.000Z", "message": map[string]any{"role": role, "content": text},
			}
		}
		dir, ok := os.LookupEnv("CLAUDE_CONFIG_DIR")
		if !ok {
			dir = filepath.Join(os.Getenv("HOME"), ".claude")
		}
		a.Send(map[string]any{
			"type": "transcript_mirror", "filePath": filepath.Join(dir, "projects", claude.ProjectKey(""), demoSession+".jsonl"),
			"entries": []any{entry("1", "", "user", "Say hello."), entry("2", "1", "assistant", "Hello.")},
		})
		a.answer("Hello.")
	}),
	"example: takes too many turns": part(func(a *actor) {
		a.finish("", "subtype", "error_max_turns", "is_error", true, "errors", []string{"Reached maximum number of turns (3)"})
		a.SendRaw(idle)
		a.Next()
		a.Exit(1)
	}),
	"example: crashes": part(func(a *actor) {
		a.say("Let me see.")
		fmt.Fprintln(a.Stderr, "out of memory")
		a.Exit(134)
	}),
	"example: works in the background": part(func(a *actor) {
		a.Send(map[string]any{"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent", "description": "run the tests"})
		a.answer("The tests run in the background.")
		a.Send(map[string]any{"type": "system", "subtype": "task_notification", "task_id": "a1", "status": "completed", "summary": "all pass"})
		a.say("All tests pass.")
		a.finish("All tests pass.", "user_message_uuid", "", "origin", map[string]any{"kind": "task-notification"})
	}),
	"example: looks": part(func(a *actor) {
		var m struct {
			Message struct {
				Content []struct {
					Type   string
					Source struct {
						MediaType string `json:"media_type"`
					}
				}
			}
		}
		must(a.Conn, "the prompt is read", json.Unmarshal(a.prompt.Raw, &m) == nil && len(m.Message.Content) == 2)
		a.answer("I see one " + m.Message.Content[1].Source.MediaType + ".")
	}),
}
