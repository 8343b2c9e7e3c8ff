package claude

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Options says how a session is to be had. The zero value works: it starts
// the CLI that [Find] finds in the caller's directory, with an empty system
// prompt and nobody to ask for permission. Options are copied and never
// changed; callbacks may be called from several goroutines at once.
type Options struct {
	// The program.

	Path       string   // the CLI; empty means that Find looks for it
	Dir        string   // its working directory; empty means the caller's
	Env        []string // "K=V", over the inherited environment
	ReplaceEnv bool     // Env is all there is, besides what this package sets
	Unset      []string // variables of the inherited environment that the CLI does not get, unless Env sets them
	User       string   // the OS user to run as, on Unix; empty means the caller's
	ExtraArgs  []string // added to the end of the command line as they are

	// The model.

	Model          string         // an alias or an id; empty means the CLI's default
	FallbackModels []string       // tried in this order when Model is overloaded or fails
	Thinking       ThinkingConfig // zero leaves it to the CLI
	Effort         Effort         // empty leaves it to the CLI
	MaxTurns       int            // zero means no limit
	MaxBudgetUSD   float64        // what the process may spend; zero means no limit
	TaskBudget     int            // tokens that the model is told to make do with; zero means none
	Betas          []string       // of the API, such as "context-1m-2025-08-07"

	// What Claude is told and what it answers.

	SystemPrompt     SystemPrompt    // zero is an empty prompt, as in the official SDKs, not Claude Code's
	PlanInstructions string          // how to plan in plan mode; empty means the CLI's own
	Schema           json.RawMessage // the result follows this JSON Schema of an object; nil means free text
	VerbatimPrompts  bool            // prompts are not looked at for slash commands and the like; since 2.1.248

	// Tools and permissions.

	Tools                []string          // the built-in tools there are; nil means the CLI's default, empty means none
	AutoApprove          []string          // rules for calls that need no question, such as "Read" or "Bash(git log *)"
	RemoveTools          []string          // tools that are taken away, and rules for calls that are denied
	ToolAliases          map[string]string // the tool that is meant, by the name that Claude may use
	PermissionMode       PermissionMode    // empty leaves it to the settings; ModeDefault makes sure that they are not asked
	AllowBypass          bool              // ModeBypass may be used, now or later
	PermissionPromptTool string            // the MCP tool that decides instead of CanUseTool
	DenyPrompts          bool              // whatever would need a question is denied at once
	QuestionPreview      string            // the form of Choice.Preview: markdown or html; empty means none

	// CanUseTool decides what neither the rules nor the mode decide. With nil
	// such calls are denied, and when it fails so does the call. See Hooks for
	// who is asked before, and [GateEveryCall] to be asked about everything.
	CanUseTool func(context.Context, *PermissionRequest) (Decision, error)
	// OnQuestion answers Claude's questions to the user; nil answers mean
	// that the user declines. Without OnQuestion they go to CanUseTool, whose
	// Allow has to carry the answers in its Input.
	OnQuestion func(context.Context, *Questions) (*Answers, error)
	// OnElicitation answers the questions of MCP servers; nil declines.
	OnElicitation func(context.Context, *Elicitation) (*ElicitationReply, error)
	// OnDialog answers the dialogs of DialogKinds. A nil reply leaves the
	// answer to another host.
	OnDialog func(context.Context, *Dialog) (*DialogReply, error)
	// Hooks run when something happens in the CLI.
	Hooks Hooks

	// Servers, agents, skills, plugins.

	MCPServers map[string]MCPServer       // by name
	MCPConfig  string                     // more servers: the path of a file, or JSON
	StrictMCP  bool                       // only these servers, not those of the settings
	Agents     map[string]AgentDefinition // subagents, by name
	Agent      string                     // the one of Agents, or of the settings, that is the main loop; empty means none
	Skills     []string                   // the skills Claude may use; nil leaves them to the CLI, empty hides all
	AllSkills  bool                       // Claude may use every skill without a question
	Plugins    []Plugin                   // besides those of the settings

	// Settings and directories.

	SettingSources    []SettingSource // the settings files to read; nil means the CLI's default, which is all; empty means none
	Settings          string          // more settings, over those: the path of a file, or a JSON object
	Sandbox           *Sandbox        // merged into Settings, which have to be JSON then; nil leaves it to the settings
	ManagedSettings   json.RawMessage // a JSON object with restrictions that no other settings lift
	AddDirs           []string        // more directories that tools may use
	ProjectConfigRoot string          // where the project's configuration is read; empty means Dir

	// The conversation.

	SessionID       string  // a UUID for the new conversation; empty means that the CLI makes one up
	Resume          string  // the id or title of a conversation to go on with; it is looked for by Dir
	Continue        bool    // go on with the last conversation in Dir
	Fork            bool    // go on in a copy
	ResumeAt        string  // the UUID of the last transcript entry to keep
	ResumeDropsTurn *string // the UUID of the prompt that ResumeAt is expected to drop first; nil means no check
	NoPersistence   bool    // write no transcript
	Title           string  // of a new conversation; empty means that the CLI makes one up
	FileCheckpoints bool    // keep what is needed to rewind files

	// What the CLI reports.

	PartialMessages     bool     // a StreamEvent for each piece of an answer as it is written
	HookEvents          bool     // HookStarted, HookProgress and HookResponse for every hook
	ForwardSubagentText bool     // what subagents say
	PromptSuggestions   bool     // a PromptSuggestion after each turn
	ProgressSummaries   bool     // what subagents are doing, in a sentence
	ReplayUserMessages  bool     // a User with Replay for each message of the host, once it is taken up
	DialogKinds         []string // the dialogs that OnDialog can draw
	PerTaskStop         bool     // an interrupt spares background agents: the host can stop each

	// The process.

	Debug     bool   // debug output of the CLI
	DebugFile string // where debug output goes; empty means stderr; implies Debug
	// Store keeps a copy of the session, and is where Resume and Continue find
	// it, unless there is a Spawn. Nil means the CLI's own files alone.
	Store     Store
	StoreMode MirrorMode // when the copy is made; zero means at the end of each turn

	// Spawn starts the CLI where this machine is not the place for it: in a
	// container, on another host. Nil starts it here. ctx is that of Start.
	Spawn func(ctx context.Context, c Command) (Process, error)

	// Wrap returns the command line that is started here instead of argv, such
	// as one that confines it. It begins with a path. Nil means argv. Spawn does
	// its own wrapping.
	Wrap func(argv []string) []string

	MaxLine     int           // bytes in a line of the CLI; zero means no limit
	InitTimeout time.Duration // how long the CLI may take to start; zero means 60s
	Grace       time.Duration // how long Close waits before it terminates the CLI, and again before it kills it; zero means 5s

	Stderr      func(line string) // is called for each line, without its end; nil drops them
	OnFrame     func()            // is called for each frame of the CLI, or some at once, also those that are no messages: signs of life; nil tells nobody
	OnDebugLine func(line []byte) // is called for lines on stdout that are not JSON; nil drops them
	Log         *slog.Logger      // gets warnings about the options and the CLI's version; nil discards

	TraceParent string // W3C trace context for the CLI; empty passes on what is inherited
	TraceState  string // goes with TraceParent
}

// ThinkingConfig says how Claude thinks before it answers.
type ThinkingConfig struct {
	Mode    ThinkingMode    // empty leaves it to the CLI
	Budget  int             // tokens, with ThinkingEnabled; zero means adaptive
	Display ThinkingDisplay // what is shown of it; empty leaves it to the model
}

// ThinkingMode says whether Claude thinks.
type ThinkingMode string

// The modes of thinking.
const (
	ThinkingAdaptive ThinkingMode = "adaptive" // as much as is needed
	ThinkingEnabled  ThinkingMode = "enabled"  // within a budget; for older models
	ThinkingDisabled ThinkingMode = "disabled"
)

// ThinkingDisplay says what is shown of the thinking.
type ThinkingDisplay string

// The displays of thinking.
const (
	ThinkingSummarized ThinkingDisplay = "summarized"
	ThinkingOmitted    ThinkingDisplay = "omitted" // signatures only
)

// Effort is how hard Claude works on an answer.
type Effort string

// The levels of effort.
const (
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
	EffortXHigh  Effort = "xhigh"
	EffortMax    Effort = "max"
)

// SystemPrompt is what Claude is told about its work. It has one of four
// forms: Text, Blocks, File, or ClaudeCode. The zero value is an empty prompt.
type SystemPrompt struct {
	Text   string
	Blocks []string // joined; DynamicBoundary may stand between them
	File   string   // the path of a file that holds the prompt

	ClaudeCode     bool   // Claude Code's own prompt
	Append         string // added to Claude Code's own
	ExcludeDynamic bool   // Claude Code's own without what differs between users and directories

	// Snapshot says whether the CLI reuses the prompt that it sent first until
	// the conversation is compacted; nil leaves it to the CLI.
	Snapshot *bool
}

// DynamicBoundary, as an element of SystemPrompt.Blocks, ends the part that
// may be cached for all sessions.
const DynamicBoundary = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"

// SettingSource is a settings file that the CLI reads.
type SettingSource string

// The sources of settings.
const (
	SourceUser    SettingSource = "user"    // ~/.claude/settings.json
	SourceProject SettingSource = "project" // .claude/settings.json, and CLAUDE.md
	SourceLocal   SettingSource = "local"   // .claude/settings.local.json
)

// Plugin is a plugin in a directory or a zip file.
type Plugin struct {
	Path       string
	WithoutMCP bool // its MCP servers are not started
}
