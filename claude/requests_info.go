package claude

import (
	"context"
	"encoding/json"
)

// SettingsReport is what settings a session has, and where they come from.
type SettingsReport struct {
	Reply
	Effective json.RawMessage   `json:"effective"` // all sources merged
	Sources   []SettingsLayer   `json:"sources"`   // weakest first
	Applied   AppliedSettings   `json:"applied"`
	Errors    []SettingsProblem `json:"errors"` // files that were left out
}

// SettingsLayer is what one source sets.
type SettingsLayer struct {
	Source   string          `json:"source"` // such as "userSettings"
	Settings json.RawMessage `json:"settings"`
}

// AppliedSettings is what the session makes of its settings.
type AppliedSettings struct {
	Model  string `json:"model"`
	Effort string `json:"effort"` // empty if the model has none
}

// SettingsProblem is a settings file that was left out because of an error.
type SettingsProblem struct {
	File    string `json:"file"` // empty if not told
	Path    string `json:"path"` // of the field, with dots; empty means the whole file
	Message string `json:"message"`
}

// Settings asks for the settings in effect.
func (s *Session) Settings(ctx context.Context) (*SettingsReport, error) {
	return ask[SettingsReport](ctx, s, "get_settings", nil)
}

// ApplyFlagSettings changes settings for this session, over those of files:
// top-level keys replace what they name, and nil clears what an earlier call
// set. One invalid value refuses the whole call.
func (s *Session) ApplyFlagSettings(ctx context.Context, settings map[string]any) error {
	if settings == nil {
		settings = map[string]any{} // the CLI wants an object
	}
	return s.call(ctx, "apply_flag_settings", struct {
		Settings map[string]any `json:"settings"`
	}{settings}, nil)
}

// UpdateSettings writes settings to a file: to "localSettings", the project's
// of this user, or to "userSettings". CLI 2.1.325 takes "outputStyle" for the
// first and "effortLevel" for the second, and refuses the rest.
func (s *Session) UpdateSettings(ctx context.Context, source string, settings map[string]any) error {
	if settings == nil {
		settings = map[string]any{}
	}
	return s.call(ctx, "update_settings", struct {
		Source   string         `json:"source"`
		Settings map[string]any `json:"settings"`
	}{source, settings}, nil)
}

// HookListing is the hooks of a session's settings and plugins, for display.
type HookListing struct {
	Reply
	Events   []HookEventInfo   `json:"events"`       // those that have hooks, in the order they happen
	Hooks    []HookEntry       `json:"hooks"`        // in the same order
	Catalog  []HookEventInfo   `json:"eventCatalog"` // all events
	Policy   HookPolicy        `json:"policy"`
	SafeMode json.RawMessage   `json:"safeMode"` // nil unless the session runs in safe mode
	BareMode json.RawMessage   `json:"bareMode"` // nil unless hooks are off by --bare
	Errors   []SettingsProblem `json:"errors"`   // files whose hooks are neither listed nor run
}

// HookEventInfo is an event that hooks can be for.
type HookEventInfo struct {
	Name            string `json:"name"`
	Summary         string `json:"summary"`
	SupportsMatcher bool   `json:"supportsMatcher"`
	HookCount       int    `json:"hookCount"` // zero in the catalog
}

// HookEntry is one hook.
type HookEntry struct {
	Event            string          `json:"event"`
	Matcher          string          `json:"matcher"` // empty means every
	Source           string          `json:"source"`  // such as "userSettings" or "pluginHook"
	SourceLabel      string          `json:"sourceLabel"`
	PluginName       string          `json:"pluginName"`
	Type             string          `json:"type"`        // "command", "prompt", "agent", "http", "mcp_tool"
	DisplayText      string          `json:"displayText"` // one line
	CommandText      string          `json:"commandText"` // the command, prompt or address itself
	ContentLabel     string          `json:"contentLabel"`
	Condition        string          `json:"condition"`
	Timeout          float64         `json:"timeout"` // seconds; zero if it has none
	StatusMessage    string          `json:"statusMessage"`
	RunsOnce         bool            `json:"runsOnce"`
	RunsInBackground bool            `json:"runsInBackground"`
	Disabled         bool            `json:"disabled"` // a mode or policy keeps it from running
	Editable         json.RawMessage `json:"editable"` // as stored; nil if the file may not be written
}

// HookPolicy is what keeps hooks from running.
type HookPolicy struct {
	DisabledByPolicy bool `json:"disabledByPolicy"` // no hook runs at all
	ManagedOnly      bool `json:"managedOnly"`      // only managed ones run, and are not listed
	PluginOnly       bool `json:"pluginOnly"`
	AllDisabled      bool `json:"allDisabled"` // by whatever source
	PolicyHookCount  int  `json:"policyHookCount"`
	PolicyUnreadable bool `json:"policyUnreadable"`
}

// HookListing asks for the hooks of settings and plugins. Those that the host
// registered are not among them.
func (s *Session) HookListing(ctx context.Context) (*HookListing, error) {
	return ask[HookListing](ctx, s, "get_hooks_listing", nil)
}

// PermissionRules is which tools are allowed, denied or asked for, and where.
type PermissionRules struct {
	Reply
	Rules                []PermissionRuleEntry `json:"rules"`
	WorkspaceDirectories []WorkspaceDirectory  `json:"workspaceDirectories"` // besides OriginalCWD
	OriginalCWD          string                `json:"originalCwd"`
	ManagedOnly          bool                  `json:"managedOnly"` // other rules are not in effect
	Errors               []SettingsProblem     `json:"errors"`      // files whose rules are not in effect
	Withheld             bool                  `json:"withheld"`    // the CLI left something out
}

// PermissionRuleEntry is one rule, with its home.
type PermissionRuleEntry struct {
	Behavior    string          `json:"behavior"` // "allow", "deny", "ask"
	Source      string          `json:"source"`   // such as "userSettings", "cliArg", "session"
	Rule        string          `json:"rule"`     // as stored; may hold control characters
	Description json.RawMessage `json:"description"`
	Editability string          `json:"editability"` // "persistent", "session", "readonly"
	NotInEffect bool            `json:"notInEffect"`
}

// WorkspaceDirectory is a folder that tools may use like the working directory.
type WorkspaceDirectory struct {
	Path   string `json:"path"`
	Source string `json:"source"` // such as "cliArg" or "session"
}

// PermissionRules asks for the permission rules in effect.
func (s *Session) PermissionRules(ctx context.Context) (*PermissionRules, error) {
	raw, err := s.Control(ctx, "list_permission_rules", nil)
	if err != nil {
		return nil, err
	}
	type wrapper struct {
		Reply
		State json.RawMessage `json:"state"`
	}
	w, err := decodeReply[wrapper]("list_permission_rules", raw)
	if err != nil {
		return nil, err
	}
	return decodeReply[PermissionRules]("list_permission_rules", w.State)
}

// ModelList is the models that a session can use.
type ModelList struct {
	Reply
	Models []ModelInfo `json:"models"`
}

// ListModels asks for the models that the session can use.
func (s *Session) ListModels(ctx context.Context) (*ModelList, error) {
	return ask[ModelList](ctx, s, "list_models", nil)
}

// BinaryVersion is the version of a CLI.
type BinaryVersion struct {
	Reply
	Version   string `json:"version"`   // such as "2.1.325"
	BuildTime string `json:"buildTime"` // ISO 8601; empty if not told
}

// BinaryVersion asks the CLI for its version.
func (s *Session) BinaryVersion(ctx context.Context) (*BinaryVersion, error) {
	return ask[BinaryVersion](ctx, s, "get_binary_version", nil)
}
