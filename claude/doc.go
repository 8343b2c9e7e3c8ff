// Package claude runs Claude Code, the coding agent, from a Go program: it
// starts the claude CLI as a child process, gives it prompts, and hands back
// what it says and does as Go values. It needs the CLI and an account that the
// CLI can use, and nothing else.
//
//	for msg, err := range claude.Query(ctx, "Why does the build fail?", claude.Options{}) {
//		if err != nil {
//			return err
//		}
//		if m, ok := msg.(*claude.Assistant); ok {
//			fmt.Println(m.Text())
//		}
//	}
//
// Who talks to whom (in this documentation your program is the host, and the
// main loop is the agent itself, as opposed to the subagents that it starts):
//
//	your program                            Claude Code CLI            the API
//	Session     ── prompts, requests ────▶  the agent: keeps the  ◀──▶ the model
//	            ◀──────────── messages ──   conversation, runs
//	CanUseTool  ◀── may I? what if? ─────   tools, files, shell
//	Hooks, MCP  ── decisions, results ───▶  and writes transcripts
//	Transcripts ◀───────────────────────────── ~/.claude
//
// # One prompt
//
// [Query] has one prompt answered by a CLI of its own and ends it. [QueryAll]
// does so with many messages, and [Warm] starts the CLI before there is a
// prompt. [Options] is one struct whose zero value works, with three defaults
// worth knowing: the system prompt is empty (set SystemPrompt.ClaudeCode for
// Claude Code's own), the user's and the project's settings are read (set
// SettingSources to change that), and nobody is asked for permission, so that
// what needs it is denied.
//
// # Sessions
//
// [Start] returns a [Session]: one CLI that takes prompt after prompt.
// [Session.Prompt] sends a text and yields what is said up to its result.
// [Session.Ask] takes a whole [UserMessage], with pictures or documents, and
// can go on until background work has ended too, which is [Settled].
// [Session.Send] puts a message in while the agent works, [Session.Interrupt]
// stops the turn, and [Session.Messages] yields everything there is, for
// programs that send in one place and read in another. A turn is what the agent
// does from a prompt to its [Result].
//
// The other methods of Session are requests that the CLI answers at any time,
// also during a turn: [Session.SetModel], [Session.SetPermissionMode],
// [Session.ContextUsage], [Session.SetMCPServers], [Session.RewindFiles] and
// more. [Session.Control] sends one that has no method yet.
//
// # Messages
//
// A [Message] is a pointer to one of a closed set of types: switch on it.
//
//	switch m := msg.(type) {
//	case *claude.Assistant: // the model said something or calls tools
//	case *claude.User: // mostly: what the tools returned
//	case *claude.Result: // the turn is over: text, cost, whether it failed
//	case *claude.StreamEvent: // a piece of text, with Options.PartialMessages
//	}
//
// [Init], [Status], [APIRetry], [CompactBoundary], the four task messages
// ([TaskStarted] and so on) and some thirty others tell what the CLI is doing.
// A type of a newer CLI is an [Unknown]. Every message has its [Header] and, in
// [Header.Raw], the line it came in. The content of messages is a list of
// [Block].
//
// # Permissions and hooks
//
// Who decides about a tool call, in this order:
//
//  1. [Hooks].PreToolUse, yours and those of the settings; one that allows a
//     call does not skip 2 and 3
//  2. deny rules: RemoveTools and the settings
//  3. ask rules of the settings, which lead to 6
//  4. the [PermissionMode]
//  5. allow rules: AutoApprove and the settings
//  6. Options.CanUseTool, which answers [Allow], [Deny] or [Elsewhere]
//
// So CanUseTool sees only what nothing before it has decided. To see every
// call, use [GateEveryCall]. Questions of Claude to the user go to
// Options.OnQuestion, those of MCP servers to Options.OnElicitation. [Hooks]
// has a list for each event, from SessionStart to WorktreeRemove, with its own
// input and output types; a [Matcher] says which tools a hook is for.
//
// # Tools in your process
//
// A tool is a function of an [mcp.Server]. Give the server to the session as an
// [InProcess] in Options.MCPServers; Claude calls the tool by its [ToolName].
// [StdioServer], [HTTPServer] and [SSEServer] are servers elsewhere. [EndTurn],
// [AlwaysLoad] and [MaxResultSize] mark a tool for the CLI.
//
// # Typed results
//
// [Run] makes a JSON Schema of a Go type, has the prompt answered in it and
// returns a value of that type. Options.Schema does the first half:
// Result.StructuredOutput then holds JSON.
//
// # Cost and tokens
//
// Result.TotalCostUSD and ModelUsage are running totals of the process, and
// several [Assistant] messages repeat the usage of one API call. A [Meter] that
// is given every message does the sums: [Meter.Last] for the turn, [Meter.Total]
// for the session. Costs are estimates. Options.MaxBudgetUSD and MaxTurns set
// limits.
//
// # Sessions on disk
//
// The CLI keeps each conversation in a file. Options.Resume goes on with one by
// its id, Options.Continue with the last of the directory, and Options.Fork in
// a copy. [Transcripts] lists, reads, renames, forks and deletes them, without a
// CLI. With a [Store] in the options a copy goes to a place of your own while
// the session runs, and Resume finds it there, on any machine: [DirStore] and
// [MemoryStore] are two, and package claudetest tests yours.
//
// # Errors
//
// Ask for them with errors.AsType and errors.Is:
//
//   - *[NotFoundError]: there is no CLI; it says where it was sought
//   - *[ConnectionError]: the CLI could not be started or spoken to
//   - *[ProcessError]: the CLI ended by itself, and not well
//   - *[ResultError]: a turn failed; the [Result] was yielded before. When the
//     process ended over it, a *ProcessError wraps it
//   - *[OutputError]: [Run] got an answer that is no value of its type
//   - *[ControlError], *[UnsupportedError]: a request was refused, or this CLI
//     does not know it; the session goes on
//   - [ErrClosed], [ErrInputClosed], [ErrWithdrawn]: it was the caller's wish
//   - [ErrSessionNotFound], [ErrInvalidSessionID], [ErrMessageNotFound],
//     [ErrStoreUnsupported]: of [Transcripts] and stores
//
// Options that contradict each other fail [Start] with an error that names the
// fields. A line that cannot be read ends nothing: it is an [Unknown] with Err.
//
// # What is promised
//
// Streams. Range over the answer to a prompt once: a second time would send the
// prompt again. An error is the last thing that is yielded. Breaking out stops
// the work: of [Query] the process, of [Session.Prompt] and [Session.Ask] the
// turn, while the session goes on. Only [Session.Messages] leaves the work alone
// and the rest to the next reader. Until the session is closed nothing is
// dropped: when 8 MiB wait for their reader, the CLI waits too.
//
// Nothing is left. When [Session.Close] has returned, or an iteration over
// [Query] has ended, no process and no goroutine of the session remains, but for
// callbacks that ignore their context. What the CLI started is ended too: on
// Linux all of it, on other Unix systems its process group, on Windows what the
// CLI ends itself. Close gives the CLI Options.Grace to save the conversation,
// then asks it to terminate, then kills it.
//
// Contexts. The one given to [Start] is the life of the session; the one given
// to a prompt, of its turn; the one given to a request, of the wait for its
// answer. Errors carry the context's cause.
//
// Concurrency. The methods of a [Session] may be called from any goroutine;
// messages are read by one at a time, and the others wait. Callbacks run in
// goroutines of their own, several at once. They may call the session, except
// to read messages or to close it: both would wait for them. A callback that
// panics has failed; the program goes on.
//
// What is not known passes through: messages, blocks, fields, hook events,
// permission updates and stored entries of a newer CLI arrive with their raw
// bytes. The types follow CLI 2.1.325; [MinVersion] is the oldest that can be
// spoken to.
//
// There is no global state, and nothing happens by import. The package imports
// the standard library, the MCP Go SDK with its schemas, and golang.org/x/text.
//
// Who comes from the TypeScript or Python SDK finds every option, message and
// method of theirs in docs/claude-sdk.md.
package claude
