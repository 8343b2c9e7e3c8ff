package claude

import (
	"encoding/json"
	"slices"
)

// InitializeInfo is what the CLI tells of itself when a session starts, before
// the first prompt.
type InitializeInfo struct {
	Reply
	Version               string         `json:"claude_code_version"` // empty from older CLIs
	PID                   int            `json:"pid"`                 // zero if not told
	Commands              []SlashCommand `json:"commands"`            // until a [CommandsChanged]
	Agents                []AgentInfo    `json:"agents"`
	Models                []ModelInfo    `json:"models"`
	Account               AccountInfo    `json:"account"`
	OutputStyle           string         `json:"output_style"`
	AvailableOutputStyles []string       `json:"available_output_styles"`
	UserOutputStylesDir   string         `json:"user_output_styles_dir"`
	PermissionMode        string         `json:"current_permission_mode"` // empty if not told
	SessionState          string         `json:"session_state"`           // "idle", "running", "requires_action"; empty if not told
	FastModeState         string         `json:"fast_mode_state"`         // "off", "cooldown" or "on"; empty if not told
	FastModeDisabled      string         `json:"fast_mode_disabled_reason"`
	Capabilities          []string       `json:"capabilities"` // such as "interrupt_receipt_v1"

	// What became of the request: nil if it did not ask for it, or the CLI
	// predates the answer.
	HooksApplied           *bool             `json:"hooks_applied"`
	PluginsApplied         *bool             `json:"plugins_applied"`
	ManagedSettingsApplied *bool             `json:"managed_settings_applied"`
	ManifestsParked        map[string]string `json:"sdk_mcp_manifests_parked"` // by MCP server: "parked", or why not

	// HookOnFailureSupported tells that the CLI obeys what a hook says is to
	// happen when it fails. Another CLI lets the action go on.
	HookOnFailureSupported bool `json:"hook_on_failure_supported"`
}

// Has tells whether the CLI has that capability, such as
// "interrupt_receipt_v1".
func (i *InitializeInfo) Has(capability string) bool {
	return slices.Contains(i.Capabilities, capability)
}

// ModelInfo is a model that a session can use.
type ModelInfo struct {
	Value                    string   `json:"value"`         // what to give [Session.SetModel]
	ResolvedModel            string   `json:"resolvedModel"` // the model's own id; empty if not told
	DisplayName              string   `json:"displayName"`
	Description              string   `json:"description"`
	SupportsEffort           bool     `json:"supportsEffort"`
	SupportedEffortLevels    []string `json:"supportedEffortLevels"`
	SupportsAdaptiveThinking bool     `json:"supportsAdaptiveThinking"`
	SupportsFastMode         bool     `json:"supportsFastMode"`
	SupportsAutoMode         bool     `json:"supportsAutoMode"`
	SupportsThinkingOff      *bool    `json:"supportsThinkingOff"` // nil if not told
}

// AgentInfo is a subagent that a session can use.
type AgentInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Model       string `json:"model"` // empty or "inherit" means that of the session
}

// AccountInfo is who pays. What the CLI does not know is empty.
type AccountInfo struct {
	Email            string `json:"email"`
	Organization     string `json:"organization"`
	SubscriptionType string `json:"subscriptionType"`
	TokenSource      string `json:"tokenSource"`
	APIKeySource     string `json:"apiKeySource"` // such as "ANTHROPIC_API_KEY"
	APIProvider      string `json:"apiProvider"`  // such as "firstParty" or "bedrock"
}

// decodeInitialize reads the answer to initialize.
func decodeInitialize(raw json.RawMessage) (*InitializeInfo, error) {
	return decodeReply[InitializeInfo]("initialize", raw)
}
