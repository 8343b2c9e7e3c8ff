package claude

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// launch is all that the options mean for a process and its first request.
type launch struct {
	path     string
	args     []string // without the program's name
	env      []string
	dir      string
	init     initRequest
	hooks    map[string]hookFunc   // by callback id
	servers  map[string]*InProcess // by name
	warnings []string              // about the options, for the log
	cleanup  func()                // removes private files, once the process has ended; never nil
}

// initRequest is the first request of a session.
type initRequest struct {
	Hooks                map[string][]hookMatcher   `json:"hooks,omitempty"`
	SDKServers           []string                   `json:"sdkMcpServers,omitempty"`
	SDKServerConfigs     map[string]serverWire      `json:"sdkMcpServerConfigs,omitempty"`
	SDKServerManifests   map[string]mcpManifest     `json:"sdkMcpServerManifests,omitempty"`
	Schema               json.RawMessage            `json:"jsonSchema,omitempty"`
	SystemPrompt         []string                   `json:"systemPrompt,omitempty"`
	AppendSystemPrompt   string                     `json:"appendSystemPrompt,omitempty"`
	SystemPromptSnapshot *bool                      `json:"systemPromptSnapshot,omitempty"`
	ExcludeDynamic       bool                       `json:"excludeDynamicSections,omitempty"`
	PlanInstructions     string                     `json:"planModeInstructions,omitempty"`
	ToolAliases          map[string]string          `json:"toolAliases,omitempty"`
	Agents               map[string]AgentDefinition `json:"agents,omitempty"`
	Title                string                     `json:"title,omitempty"`
	Skills               []string                   `json:"skills,omitzero"` // an empty list hides all
	PromptSuggestions    bool                       `json:"promptSuggestions,omitempty"`
	ProgressSummaries    bool                       `json:"agentProgressSummaries,omitempty"`
	ForwardSubagentText  bool                       `json:"forwardSubagentText,omitempty"`
	DialogKinds          []string                   `json:"supportedDialogKinds,omitempty"`
	PerTaskStop          bool                       `json:"perTaskStopAffordance,omitempty"`
}

// How long a command line may be. A value over maxInline goes into a private
// file where the CLI takes one.
const (
	maxInline        = 64 << 10
	maxInlineWindows = 8 << 10
	maxArgument      = 128<<10 - 1 // Linux: one argument, with its end
	maxLineWindows   = 32767       // Windows: all of them
)

// maxSchemaFlag is how long a schema may be to stand on the command line too.
// The CLI has taken it from initialize at least since 2.1.325.
const maxSchemaFlag = 16 << 10

// launch turns the options into what starts the CLI at path. The caller calls
// cleanup when the process has ended.
func (o *Options) launch(path string) (*launch, error) {
	return o.launchOn(runtime.GOOS, path, os.Environ())
}

func (o *Options) launchOn(goos, path string, inherited []string) (*launch, error) {
	if err := o.validate(goos); err != nil {
		return nil, err
	}
	wire, hooks, err := o.Hooks.register()
	if err != nil {
		return nil, err
	}
	c := &commandLine{goos: goos, private: o.User == ""}
	l := &launch{
		path:     path,
		dir:      o.Dir,
		env:      o.environ(inherited, goos),
		init:     o.initialize(wire),
		hooks:    hooks,
		servers:  o.inProcess(),
		warnings: o.warnings(),
		cleanup:  c.remove,
	}
	if err := o.arguments(c); err != nil {
		c.remove()
		return nil, err
	}
	l.args = c.args
	return l, nil
}

// arguments adds to c all that is said on the command line.
func (o *Options) arguments(c *commandLine) error {
	c.args = []string{"--output-format=stream-json", "--verbose", "--input-format=stream-json"}
	o.modelArguments(c)
	o.permissionArguments(c)
	o.sessionArguments(c)
	c.value("agent", o.Agent)
	c.value("system-prompt-file", o.SystemPrompt.File)
	c.list("betas", o.Betas, false)
	for _, p := range o.Plugins {
		if p.WithoutMCP {
			c.value("plugin-dir-no-mcp", p.Path)
		} else {
			c.value("plugin-dir", p.Path)
		}
	}
	for _, dir := range o.AddDirs {
		c.value("add-dir", dir)
	}
	c.value("project-config-root", o.ProjectConfigRoot)
	c.flag("include-partial-messages", o.PartialMessages)
	c.flag("include-hook-events", o.HookEvents)
	c.flag("replay-user-messages", o.ReplayUserMessages)
	c.flag("debug", o.Debug && o.DebugFile == "")
	c.value("debug-file", o.DebugFile)
	if len(o.Schema) <= maxSchemaFlag {
		c.value("json-schema", string(o.Schema))
	}
	if err := errors.Join(o.serverArguments(c), o.settingsArguments(c)); err != nil {
		return err
	}
	c.args = append(c.args, o.ExtraArgs...)
	return c.check()
}

func (o *Options) modelArguments(c *commandLine) {
	c.value("model", o.Model)
	c.list("fallback-model", o.FallbackModels, false)
	c.value("effort", string(o.Effort))
	switch t := o.Thinking; {
	case t.Mode == ThinkingEnabled && t.Budget > 0:
		c.number("max-thinking-tokens", t.Budget)
	case t.Mode == ThinkingEnabled:
		c.value("thinking", string(ThinkingAdaptive))
	default:
		c.value("thinking", string(t.Mode))
	}
	c.value("thinking-display", string(o.Thinking.Display))
	c.number("max-turns", o.MaxTurns)
	c.number("task-budget", o.TaskBudget)
	if o.MaxBudgetUSD > 0 {
		c.value("max-budget-usd", strconv.FormatFloat(o.MaxBudgetUSD, 'f', -1, 64))
	}
}

func (o *Options) permissionArguments(c *commandLine) {
	c.list("tools", o.Tools, true)
	c.list("allowedTools", o.approved(), false)
	c.list("disallowedTools", o.RemoveTools, false)
	c.value("permission-mode", string(o.PermissionMode))
	c.flag("allow-dangerously-skip-permissions", o.AllowBypass)
	c.value("permission-prompt-tool", o.PermissionPromptTool)
	if o.CanUseTool != nil || o.OnQuestion != nil {
		c.value("permission-prompt-tool", "stdio")
	}
	if o.DenyPrompts {
		c.value("permission-prompts", "none")
	}
}

func (o *Options) sessionArguments(c *commandLine) {
	c.flag("continue", o.Continue)
	c.value("resume", o.Resume)
	c.value("session-id", o.SessionID)
	c.flag("fork-session", o.Fork)
	c.value("resume-session-at", o.ResumeAt)
	if o.ResumeDropsTurn != nil {
		// The empty string too: the CLI rejects it, and not the check.
		c.args = append(c.args, "--resume-drops-turn="+*o.ResumeDropsTurn)
	}
	c.flag("no-session-persistence", o.NoPersistence)
	c.flag("session-mirror", o.Store != nil)
}

func (o *Options) serverArguments(c *commandLine) error {
	servers := map[string]MCPServer{}
	for name, s := range o.MCPServers {
		if _, ok := s.(*InProcess); !ok {
			servers[name] = s
		}
	}
	if len(servers) > 0 {
		config, err := json.Marshal(map[string]any{"mcpServers": servers})
		if err != nil {
			return badOption("MCPServers: %w", err)
		}
		if err := c.document("mcp-config", string(config)); err != nil {
			return badOption("MCPServers: %w", err)
		}
	}
	if err := c.document("mcp-config", o.MCPConfig); err != nil {
		return badOption("MCPConfig: %w", err)
	}
	c.flag("strict-mcp-config", o.StrictMCP)
	return nil
}

func (o *Options) settingsArguments(c *commandLine) error {
	if o.SettingSources != nil {
		sources := make([]string, len(o.SettingSources))
		for i, s := range o.SettingSources {
			sources[i] = string(s)
		}
		c.list("setting-sources", sources, true)
	}
	settings := o.Settings
	if o.Sandbox != nil {
		var err error
		if settings, err = settingsJSON(settings, o.Sandbox); err != nil {
			return err
		}
	}
	if err := c.document("settings", settings); err != nil {
		return badOption("Settings: %w", err)
	}
	c.value("managed-settings", string(o.ManagedSettings))
	return nil
}

// initialize returns the request that carries what is too long, or too new,
// for the command line.
func (o *Options) initialize(hooks map[string][]hookMatcher) initRequest {
	r := initRequest{
		Hooks:                hooks,
		Schema:               o.Schema,
		AppendSystemPrompt:   o.SystemPrompt.Append,
		SystemPromptSnapshot: o.SystemPrompt.Snapshot,
		ExcludeDynamic:       o.SystemPrompt.ExcludeDynamic,
		PlanInstructions:     o.PlanInstructions,
		ToolAliases:          o.ToolAliases,
		Agents:               o.Agents,
		Title:                o.Title,
		Skills:               o.Skills,
		PromptSuggestions:    o.PromptSuggestions,
		ProgressSummaries:    o.ProgressSummaries,
		ForwardSubagentText:  o.ForwardSubagentText,
		DialogKinds:          o.DialogKinds,
		PerTaskStop:          o.PerTaskStop,
	}
	switch p := o.SystemPrompt; {
	case p.ClaudeCode || p.File != "":
	case len(p.Blocks) > 0:
		r.SystemPrompt = p.Blocks
	default:
		r.SystemPrompt = []string{p.Text}
	}
	servers := o.inProcess()
	r.SDKServers = slices.Sorted(maps.Keys(servers))
	for name, s := range servers {
		if s.Timeout == 0 && s.Tools == nil {
			continue
		}
		if r.SDKServerConfigs == nil {
			r.SDKServerConfigs = map[string]serverWire{}
		}
		r.SDKServerConfigs[name] = serverWire{Timeout: s.Timeout.Milliseconds(), Tools: s.Tools}
	}
	return r
}

// inProcess returns the servers that live in this process.
func (o *Options) inProcess() map[string]*InProcess {
	servers := map[string]*InProcess{}
	for name, s := range o.MCPServers {
		if in, ok := s.(*InProcess); ok {
			servers[name] = in
		}
	}
	return servers
}

// commandLine collects arguments, each with its value in one token: what
// begins with a dash cannot become a flag, and what is empty cannot swallow
// the next one.
type commandLine struct {
	goos    string
	args    []string
	private bool   // the CLI can read private files of ours
	dir     string // of those files; empty until there is one
}

func (c *commandLine) flag(name string, set bool) {
	if set {
		c.args = append(c.args, "--"+name)
	}
}

func (c *commandLine) value(name, value string) {
	if value != "" {
		c.args = append(c.args, "--"+name+"="+value)
	}
}

func (c *commandLine) number(name string, n int) {
	if n != 0 {
		c.value(name, strconv.Itoa(n))
	}
}

// list joins values by commas. The empty list counts only if emptyCounts.
func (c *commandLine) list(name string, values []string, emptyCounts bool) {
	if len(values) > 0 || emptyCounts && values != nil {
		c.args = append(c.args, "--"+name+"="+strings.Join(values, ","))
	}
}

// document adds JSON or the path of a file that holds it; JSON that is too
// long becomes such a file.
func (c *commandLine) document(name, value string) error {
	limit := maxInline
	if c.goos == "windows" {
		limit = maxInlineWindows
	}
	if len(value) > limit && c.private {
		path, err := c.file(name+".json", value)
		if err != nil {
			return err
		}
		value = path
	}
	c.value(name, value)
	return nil
}

// file writes a file that only this user can read.
func (c *commandLine) file(name, content string) (string, error) {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "claude-launch-") // is private
		if err != nil {
			return "", err
		}
		c.dir = dir
	}
	path := filepath.Join(c.dir, strconv.Itoa(len(c.args))+"-"+name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// remove removes the private files. It may be called more than once.
func (c *commandLine) remove() {
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}

// check says which argument is too long, before the system does it in words
// that blame the program.
func (c *commandLine) check() error {
	total := 0
	for _, arg := range c.args {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.ContainsRune(arg, 0) {
			return badOption("%s has a zero byte in its value", flag)
		}
		if len(arg) >= maxArgument {
			return badOption("%s has %d bytes, and a command line takes %d", flag, len(arg), maxArgument)
		}
		total += len(arg) + 3 // a space, and quotes
	}
	if c.goos == "windows" && total > maxLineWindows {
		return badOption("the command line has %d characters, and Windows takes %d", total, maxLineWindows)
	}
	return nil
}
