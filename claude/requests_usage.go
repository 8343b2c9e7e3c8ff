package claude

import (
	"context"
	"encoding/json"
	"time"
)

// ContextUsage is what fills the model's context window.
type ContextUsage struct {
	Reply
	Model                string            `json:"model"`
	TotalTokens          int               `json:"totalTokens"`
	MaxTokens            int               `json:"maxTokens"`    // of the window, or less if the session is limited
	RawMaxTokens         int               `json:"rawMaxTokens"` // of the window
	Percentage           float64           `json:"percentage"`   // of MaxTokens
	Categories           []ContextCategory `json:"categories"`
	AutoCompactThreshold int               `json:"autoCompactThreshold"` // tokens; zero if there is none
	AutoCompactEnabled   bool              `json:"isAutoCompactEnabled"`
	MemoryFiles          []ContextFile     `json:"memoryFiles"`
	MCPTools             []ContextMCPTool  `json:"mcpTools"`
	Agents               []ContextAgent    `json:"agents"`
	APIUsage             *ContextAPIUsage  `json:"apiUsage"` // of the last call; nil before the first

	// What is for display, or comes with few sessions; nil if it did not.
	GridRows             json.RawMessage `json:"gridRows"`
	MCPInstructions      json.RawMessage `json:"mcpInstructions"`
	DeferredBuiltinTools json.RawMessage `json:"deferredBuiltinTools"`
	SystemTools          json.RawMessage `json:"systemTools"`
	SystemPromptSections json.RawMessage `json:"systemPromptSections"`
	SlashCommands        json.RawMessage `json:"slashCommands"`
	Skills               json.RawMessage `json:"skills"`
	MessageBreakdown     json.RawMessage `json:"messageBreakdown"`
}

// ContextCategory is one kind of contents of the context window, or what is
// left of it.
type ContextCategory struct {
	ID       string `json:"id"`   // such as "messages"; empty from older CLIs
	Name     string `json:"name"` // for people
	Tokens   int    `json:"tokens"`
	Color    string `json:"color"`
	Deferred bool   `json:"isDeferred"` // not in the window until it is needed
	Kind     string `json:"kind"`       // "used", "free", "buffer", "deferred"
}

// ContextFile is a memory file in the context window.
type ContextFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Tokens int    `json:"tokens"`
}

// ContextMCPTool is an MCP tool in the context window, or deferred.
type ContextMCPTool struct {
	Name   string `json:"name"`
	Server string `json:"serverName"`
	Tokens int    `json:"tokens"`
	Loaded *bool  `json:"isLoaded"` // nil if not told
}

// ContextAgent is a subagent whose description is in the context window.
type ContextAgent struct {
	Type   string `json:"agentType"`
	Source string `json:"source"`
	Path   string `json:"path"` // of its file; empty if it has none
	Tokens int    `json:"tokens"`
}

// ContextAPIUsage is what the API counted for one call.
type ContextAPIUsage struct {
	InputTokens              int `json:"input_tokens"`
	OutputTokens             int `json:"output_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
}

// ContextUsage asks what fills the context window. With the detail "full",
// which empty means too, the API counts the tokens of each category, which
// takes a while; with "summary" the CLI estimates them.
func (s *Session) ContextUsage(ctx context.Context, detail string) (*ContextUsage, error) {
	return ask[ContextUsage](ctx, s, "get_context_usage", struct {
		Detail string `json:"detail,omitempty"`
	}{detail})
}

// SessionCost asks for a text for people on what the session has cost so far.
// Programs read it from [Result], or ask [Session.PlanUsage].
func (s *Session) SessionCost(ctx context.Context) (string, error) {
	type reply struct {
		Reply
		Text string `json:"text"`
	}
	r, err := ask[reply](ctx, s, "get_session_cost", nil)
	if err != nil {
		return "", err
	}
	return r.Text, nil
}

// PlanUsage is what the session used, and how much of its plan the account
// has. The CLI calls it experimental.
type PlanUsage struct {
	Reply
	Session             SessionUsage    `json:"session"`
	SubscriptionType    string          `json:"subscription_type"`     // such as "max"; empty if the account has no plan
	RateLimitsAvailable bool            `json:"rate_limits_available"` // false if the account has no plan
	RateLimits          *PlanLimits     `json:"rate_limits"`           // nil if not available
	Behaviors           json.RawMessage `json:"behaviors"`             // what uses up the plan; nil if it was not asked for
}

// SessionUsage is what a session used since it started.
type SessionUsage struct {
	TotalCostUSD float64
	APIDuration  time.Duration // waiting for the API
	Duration     time.Duration
	LinesAdded   int
	LinesRemoved int
	ModelUsage   map[string]ModelUsage
}

// UnmarshalJSON reads what the CLI sends. A field of an unexpected type is left
// zero.
func (u *SessionUsage) UnmarshalJSON(data []byte) error {
	s := &scanner{text: string(data)}
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "total_cost_usd":
			u.TotalCostUSD = s.float()
		case "total_api_duration_ms":
			u.APIDuration = s.millis()
		case "total_duration_ms":
			u.Duration = s.millis()
		case "total_lines_added":
			u.LinesAdded = s.integer()
		case "total_lines_removed":
			u.LinesRemoved = s.integer()
		case "model_usage":
			u.ModelUsage = map[string]ModelUsage{}
			for ok := s.object(); ok; ok = s.more('}') {
				model := s.key()
				u.ModelUsage[model] = s.modelUsage()
			}
		default:
			s.skip()
		}
	}
	return nil
}

// PlanLimits is how much of each limit of a plan is used up. A limit that the
// plan does not have is nil.
type PlanLimits struct {
	FiveHour          *PlanWindow       `json:"five_hour"`
	SevenDay          *PlanWindow       `json:"seven_day"`
	SevenDayOpus      *PlanWindow       `json:"seven_day_opus"`
	SevenDaySonnet    *PlanWindow       `json:"seven_day_sonnet"`
	SevenDayOAuthApps *PlanWindow       `json:"seven_day_oauth_apps"`
	ModelScoped       []PlanModelWindow `json:"model_scoped"` // a week of one model each
	ExtraUsage        *PlanExtraUsage   `json:"extra_usage"`
}

// PlanWindow is one limit.
type PlanWindow struct {
	Utilization *float64 `json:"utilization"` // percent; nil if not known
	ResetsAt    string   `json:"resets_at"`   // ISO 8601; empty if not known
}

// PlanModelWindow is a limit of one model.
type PlanModelWindow struct {
	DisplayName string `json:"display_name"`
	PlanWindow
}

// PlanExtraUsage is what may be used beyond the plan.
type PlanExtraUsage struct {
	Enabled      bool     `json:"is_enabled"`
	MonthlyLimit *float64 `json:"monthly_limit"` // nil means none
	UsedCredits  *float64 `json:"used_credits"`
	Utilization  *float64 `json:"utilization"` // percent
	Currency     string   `json:"currency"`
}

// PlanUsage asks what the session used and how much of its plan the account
// has left. With behaviors it also tells what uses up the plan, for which the
// CLI reads all transcripts of the last week.
func (s *Session) PlanUsage(ctx context.Context, behaviors bool) (*PlanUsage, error) {
	return ask[PlanUsage](ctx, s, "get_usage", struct {
		SkipBehaviors bool `json:"skip_behaviors,omitempty"`
	}{!behaviors})
}
