package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
)

// PermissionMode says what the CLI does with a tool call that no rule decides.
type PermissionMode string

// The permission modes.
const (
	ModeDefault     PermissionMode = "default"           // ask
	ModeAcceptEdits PermissionMode = "acceptEdits"       // ask, but edit files below the working directory
	ModeBypass      PermissionMode = "bypassPermissions" // never ask
	ModePlan        PermissionMode = "plan"              // look, do not touch
	ModeDontAsk     PermissionMode = "dontAsk"           // deny instead of asking
	ModeAuto        PermissionMode = "auto"              // a classifier decides
)

// PermissionRequest is a tool call that waits for a [Decision].
type PermissionRequest struct {
	ID string `json:"-"` // of the control request that carried it

	Tool      string          `json:"tool_name"`
	Input     json.RawMessage `json:"input"` // what the tool will be given, an object
	ToolUseID string          `json:"tool_use_id"`
	AgentID   string          `json:"agent_id"` // the subagent that calls the tool; empty for the main loop
	MCPServer *ServerOrigin   `json:"mcp_server"`

	Title       string `json:"title"`
	DisplayName string `json:"display_name"`
	Description string `json:"description"`

	Suggestions []PermissionUpdate `json:"permission_suggestions"` // what "always allow" would change
	BlockedPath string             `json:"blocked_path"`           // the file that made the CLI ask

	Reason     string   `json:"decision_reason"`      // why the CLI asks; may hold terminal colours
	ReasonType string   `json:"decision_reason_type"` // rule, mode, hook, safetyCheck …
	AskRule    *AskRule `json:"matched_ask_rule"`     // the rule that made the CLI ask

	ClassifierApprovable bool `json:"classifier_approvable"`
	NoAlwaysAllow        bool `json:"suppress_always_allow_rule"` // do not offer "always allow"
	DefaultToNo          bool `json:"default_to_no"`
	RequiresUser         bool `json:"requires_user_interaction"` // a person has to answer

	Raw json.RawMessage `json:"-"` // the request as the CLI sent it
}

// ServerOrigin names the MCP server of a tool and where its configuration is from.
type ServerOrigin struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// AskRule is a rule of the settings that wants a question asked.
type AskRule struct {
	Source  string `json:"source"`
	Tool    string `json:"tool_name"`
	Content string `json:"rule_content"` // empty when the rule is about the whole tool
}

// Decision answers a [PermissionRequest]: [Allow], [Deny] or [Elsewhere], as a
// value, not a pointer.
type Decision interface{ decision() }

// Allow lets the tool run.
type Allow struct {
	Input   json.RawMessage    // what the tool is given instead; nil means what Claude wrote
	Updates []PermissionUpdate // rules to keep; the request's Suggestions mean "always allow"
	Class   DecisionClass      // how the person decided; empty leaves it open
}

// Deny keeps the tool from running.
type Deny struct {
	Message   string // what Claude is told; empty means that the call was denied
	Interrupt bool   // also ends the turn
}

// Elsewhere leaves the answer to somebody else who was asked too: nothing is
// sent, and the call waits.
type Elsewhere struct{}

func (Allow) decision()     {}
func (Deny) decision()      {}
func (Elsewhere) decision() {}

// DecisionClass says how a person decided, for the CLI's statistics.
type DecisionClass string

// The classes of decisions.
const (
	UserTemporary DecisionClass = "user_temporary" // this once
	UserPermanent DecisionClass = "user_permanent" // from now on
	UserReject    DecisionClass = "user_reject"
)

// UpdateType says what a [PermissionUpdate] does.
type UpdateType string

// The types of permission updates.
const (
	UpdateAddRules          UpdateType = "addRules"
	UpdateReplaceRules      UpdateType = "replaceRules"
	UpdateRemoveRules       UpdateType = "removeRules"
	UpdateSetMode           UpdateType = "setMode"
	UpdateAddDirectories    UpdateType = "addDirectories"
	UpdateRemoveDirectories UpdateType = "removeDirectories"
)

// RuleBehavior is what a permission rule does with the calls it matches.
type RuleBehavior string

// The behaviours of rules.
const (
	RuleAllow RuleBehavior = "allow"
	RuleDeny  RuleBehavior = "deny"
	RuleAsk   RuleBehavior = "ask"
)

// Destination is where the CLI keeps a permission update.
type Destination string

// The destinations of permission updates.
const (
	ToUserSettings    Destination = "userSettings"
	ToProjectSettings Destination = "projectSettings"
	ToLocalSettings   Destination = "localSettings"
	ToSession         Destination = "session"
	ToCLIArgument     Destination = "cliArg"
)

// PermissionUpdate changes the permission rules, the mode or the directories.
// Which fields count depends on Type. One that came from the CLI is sent back
// as it came, with what this package does not know, unless it was changed.
type PermissionUpdate struct {
	Type        UpdateType       `json:"type"`
	Rules       []PermissionRule `json:"rules,omitempty"`
	Behavior    RuleBehavior     `json:"behavior,omitempty"`
	Mode        PermissionMode   `json:"mode,omitempty"`
	Directories []string         `json:"directories,omitempty"`
	Destination Destination      `json:"destination,omitempty"`

	raw json.RawMessage // as the CLI sent it; nil for one made by the caller
}

// PermissionRule is one rule of a [PermissionUpdate].
type PermissionRule struct {
	Tool    string `json:"toolName"`
	Content string `json:"ruleContent,omitempty"` // empty means the whole tool
}

// plainUpdate has the fields of a PermissionUpdate without its methods.
type plainUpdate PermissionUpdate

// UnmarshalJSON accepts any object: a variant that this package does not know
// keeps its bytes.
func (u *PermissionUpdate) UnmarshalJSON(data []byte) error {
	var p plainUpdate
	err := json.Unmarshal(data, &p)
	if _, mistyped := errors.AsType[*json.UnmarshalTypeError](err); mistyped && bytes.HasPrefix(data, []byte("{")) {
		err = nil
	}
	if err != nil {
		return err
	}
	p.raw = bytes.Clone(data)
	*u = PermissionUpdate(p)
	return nil
}

// MarshalJSON writes the object that the CLI understands.
func (u PermissionUpdate) MarshalJSON() ([]byte, error) {
	if u.raw == nil {
		return json.Marshal(plainUpdate(u))
	}
	var came PermissionUpdate
	if err := came.UnmarshalJSON(u.raw); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(came, u) {
		return u.raw, nil
	}
	// Changed by the caller: what the fields say goes over what came.
	changed, err := json.Marshal(plainUpdate(u))
	if err != nil {
		return nil, err
	}
	var known, all map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(u.raw, &all), json.Unmarshal(changed, &known)); err != nil {
		return nil, err
	}
	for _, key := range []string{"rules", "behavior", "mode", "directories", "destination"} {
		delete(all, key)
	}
	maps.Copy(all, known)
	return json.Marshal(all)
}

func decodePermissionRequest(raw json.RawMessage) (*PermissionRequest, error) {
	r := &PermissionRequest{Raw: raw}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("reading a permission request: %w", err)
	}
	return r, nil
}

// decide asks the callback that r is for. Without one the answer is a denial.
func (o *Options) decide(ctx context.Context, r *PermissionRequest) (Decision, error) {
	question := r.Tool == questionTool
	switch {
	case question && o.OnQuestion != nil:
		return o.answer(ctx, r)
	case o.CanUseTool == nil:
		return Deny{Message: "nobody is there to approve the call"}, nil
	}
	d, err := o.CanUseTool(ctx, r)
	if a, ok := d.(Allow); ok && question && a.Input == nil && err == nil {
		// The input has no answers yet: to allow it as it is would tell
		// Claude that the user answered nothing.
		return Deny{Message: "nobody is there to answer questions"}, nil
	}
	return d, err
}

// encodeDecision returns the answer to r, or nil when nothing is to be sent.
func encodeDecision(r *PermissionRequest, d Decision) (json.RawMessage, error) {
	type allow struct {
		Behavior    string             `json:"behavior"`
		Input       json.RawMessage    `json:"updatedInput"` // CLIs before 2.1.207 insist on it
		Permissions []PermissionUpdate `json:"updatedPermissions,omitempty"`
		ToolUseID   string             `json:"toolUseID,omitempty"`
		Class       DecisionClass      `json:"decisionClassification,omitempty"`
	}
	type deny struct {
		Behavior  string `json:"behavior"`
		Message   string `json:"message"`
		Interrupt bool   `json:"interrupt,omitempty"`
		ToolUseID string `json:"toolUseID,omitempty"`
	}
	if p := reflect.ValueOf(d); p.Kind() == reflect.Pointer && !p.IsNil() {
		d, _ = p.Elem().Interface().(Decision) // a pointer to one is a decision too
	}
	switch d := d.(type) {
	case Allow:
		input := d.Input
		if input == nil {
			input = r.Input
		}
		if !isObject(input) {
			return nil, fmt.Errorf("allowing %s: the input is not a JSON object: %.80q", r.Tool, input)
		}
		return json.Marshal(allow{"allow", input, d.Updates, r.ToolUseID, d.Class})
	case Deny:
		message := d.Message
		if message == "" {
			message = "the call was denied"
		}
		return json.Marshal(deny{"deny", message, d.Interrupt, r.ToolUseID})
	case Elsewhere:
		return nil, nil
	}
	return nil, fmt.Errorf("deciding about %s: %T is not a decision; return Allow, Deny or Elsewhere", r.Tool, d)
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) && json.Valid(raw)
}
