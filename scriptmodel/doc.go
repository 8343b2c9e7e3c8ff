// Package scriptmodel is a model that says what a script tells it to: the
// Anthropic Messages API on loopback, without a model, an account or a
// network. The Claude CLI and the API clients cannot tell the difference.
//
//	model := scriptmodel.Start(t, `
//	rules:
//	  - when: {user: "write (\\S+)"}
//	    turns:
//	      - tools: [{name: Write, input: {file_path: "{{index .Match 1}}", content: hello}}]
//	      - text: "the tool said: {{.ToolResult}}"
//	`)
//	cmd.Env = append(cmd.Env, scriptmodel.ClientEnv(model.URL)...)
//
// # Scripts
//
// A script is YAML (so JSON will do) and strict: an unknown key is an error
// that names file, line and column. It holds rules. For each request the
// rules are tried in order, and the first that matches and still has a turn
// left answers with its next turn:
//
//	usage: {input_tokens: 100}     # for turns that do not say; optional
//	rules:
//	  - name: greet                # for errors and records; optional
//	    when:                      # all that are given must hold
//	      model: haiku             # regular expression on the model's name
//	      system: reviewer         # … on the system prompt
//	      user: "hello (\\w+)"     # … on the prompt: the last text of the user
//	      turn: 1                  # the first model call since the prompt
//	      tool_result: false       # whether the last message holds a tool result
//	      tools: [Read]            # tools that must be offered
//	    repeat: true               # start over after the last turn
//	    turns:
//	      - thinking: hm           # thinking, then text, then tool calls, then blocks
//	        signature: c2ln        # of the thinking; made up when absent
//	        text: "hello {{index .Match 1}}"
//	        tools: [{name: Read, id: toolu_1, input: {file_path: a.txt}}]
//	        blocks: [{type: redacted_thinking, data: eA==}]   # as they are
//	        stop: end_turn         # or tool_use, max_tokens, refusal, pause_turn …
//	        usage: {input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 3}
//	        wait: 50ms             # from the end of the request to the first byte
//	        delay: 5ms             # before each chunk
//	        chunk: 24              # characters in a chunk
//	        endless: true          # the text again and again until the client goes
//	        fail:                  # the first times this turn is asked for
//	          times: 2             # absent means always
//	          status: 529          # an API error, with retry_after: 1s, type and message
//	          drop_after: 3        # or: the connection ends after 3 events
//	          malformed_after: 3   # or: broken JSON after 3 events
//	          error_after: 3       # or: an error event after 3 events
//
// Which turn is next follows from the request alone: the model calls since
// the prompt are the assistant messages behind it. So a script has no state,
// gives the same answers whatever runs beside it, and survives a restart.
// Only fail counts, by request.
//
// # Templates
//
// Texts and the strings in a tool's input are Go templates over the request:
// .Prompt, .System, .Model, .Turn, .Tools, .ToolResult (the last one's text),
// .ToolResults (all of the last message), .Match (what user matched, and its
// groups), .Named (its named groups).
//
// # Prompts that carry their script
//
// A prompt can bring its own turns in a fenced block, so that each agent of a
// tree brings the script of the model that will play it:
//
//	Summarise the file.
//	```script
//	- tools: [{name: Read, input: {file_path: a.txt}}]
//	- text: "it says {{.ToolResult}}"
//	```
//
// It goes before the rules. The templates inside a carried script belong to
// the model that gets it: an outer script that hands it on leaves them alone.
package scriptmodel
