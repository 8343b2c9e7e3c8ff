package claude

import (
	"encoding/json"
	"strings"
	"time"
)

// The subtypes of a result.
const (
	ResultSuccess                         = "success" // may still be an error: see [Result.Failed]
	ResultErrorDuringExecution            = "error_during_execution"
	ResultErrorMaxTurns                   = "error_max_turns"
	ResultErrorMaxBudget                  = "error_max_budget_usd"
	ResultErrorMaxStructuredOutputRetries = "error_max_structured_output_retries"
)

// Result ends a turn: the CLI sends exactly one for each. Other messages may
// still follow it, and so may further turns.
type Result struct {
	Header
	IsError bool   // see [Result.Failed]
	Result  string // the final text; on an API error what the API said

	// Errors says what went wrong. Blank entries and those that are not
	// strings are left out.
	Errors []string

	// StructuredOutput is the answer in the schema that the host asked for, nil
	// if the model gave none, which happens on success too.
	StructuredOutput json.RawMessage

	DeferredToolUse *ToolUse // call that a hook deferred; nil if none
	StopReason      string   // of the last API call; empty if null or absent
	TerminalReason  TerminalReason
	APIErrorStatus  int // HTTP status of the API error; zero if none or no answer

	// StartupFailure says why the CLI did not start, such as
	// "org_pin_mismatch"; empty if it did.
	StartupFailure    string
	InvalidConfigFile *InvalidConfigFile // nil unless StartupFailure is "config_file_invalid"

	NumTurns      int           // API round trips of this turn
	Duration      time.Duration // of this turn
	APIDuration   time.Duration // time spent waiting for the API
	TTFT          time.Duration // until the first token; zero if not told
	TTFTStream    time.Duration // until the first token, from the start of the stream; zero if not told
	TimeToRequest time.Duration // until the request was sent; zero if not told
	RequestSent   time.Time     // when the request was sent; zero if not told

	Usage        Usage                 // this turn's main loop only
	ModelUsage   map[string]ModelUsage // running totals of everything by model; nil if absent
	TotalCostUSD float64               // running total like ModelUsage; an estimate

	// PermissionDenials lists every tool call of the turn that was denied.
	PermissionDenials []PermissionDenial

	Index            *int     // how many results came before; a gap means a lost one; nil if not told
	QueuedTurns      int      // user messages still waiting, each of which starts a turn
	LocalCommand     string   // slash command that the turn was; empty if none
	Origin           *Origin  // of the message that started the turn; nil if not told
	UserMessageUUID  string   // message that started the turn; empty if it had no UUID
	UserMessageUUIDs []string // all user messages that the turn took up
	ResumeReason     string   // why the turn continued one that a restart cut; empty if it did not

	FastModeState          string // "off", "cooldown" or "on"; empty if not told
	FastModeDisabledReason string
	CredentialExpiresAt    string // ISO 8601; empty if not told
}

// PermissionDenial is a tool call that was denied.
type PermissionDenial struct {
	ToolName  string
	ToolUseID string
	ToolInput json.RawMessage
}

// InvalidConfigFile is a config file of the CLI that does not parse.
type InvalidConfigFile struct {
	Path           string
	IsGlobal       bool   // it is the CLI's global config
	BackupSearched bool   // the CLI knows whether there is a backup
	BackupPath     string // empty if none was found
}

// TerminalReason is why a turn ended.
type TerminalReason string

// The terminal reasons of CLI 2.1.325. A newer one may send others; older
// ones, and local slash commands, have none.
const (
	TerminalCompleted                      TerminalReason = "completed"
	TerminalMaxTurns                       TerminalReason = "max_turns"
	TerminalBudgetExhausted                TerminalReason = "budget_exhausted"
	TerminalStructuredOutputRetryExhausted TerminalReason = "structured_output_retry_exhausted"
	TerminalAbortedStreaming               TerminalReason = "aborted_streaming"
	TerminalAbortedTools                   TerminalReason = "aborted_tools"
	TerminalAPIError                       TerminalReason = "api_error"
	TerminalModelError                     TerminalReason = "model_error"
	TerminalImageError                     TerminalReason = "image_error"
	TerminalPromptTooLong                  TerminalReason = "prompt_too_long"
	TerminalBlockingLimit                  TerminalReason = "blocking_limit"
	TerminalRapidRefillBreaker             TerminalReason = "rapid_refill_breaker"
	TerminalMalformedToolUseExhausted      TerminalReason = "malformed_tool_use_exhausted"
	TerminalStopHookPrevented              TerminalReason = "stop_hook_prevented"
	TerminalHookStopped                    TerminalReason = "hook_stopped"
	TerminalToolDeferred                   TerminalReason = "tool_deferred"
	TerminalToolDeferredUnavailable        TerminalReason = "tool_deferred_unavailable"
	TerminalBackgroundRequested            TerminalReason = "background_requested"
	TerminalTurnSetupFailed                TerminalReason = "turn_setup_failed"
)

// Failed tells whether the turn failed. The CLI says so in two places: a turn
// that ends on an API error has the subtype "success" and IsError set.
func (m *Result) Failed() bool { return m.IsError || m.Subtype != ResultSuccess }

// Interrupted tells whether the turn ended because the host or the user
// stopped it. Such a turn may count as failed.
func (m *Result) Interrupted() bool {
	return m.TerminalReason == TerminalAbortedStreaming || m.TerminalReason == TerminalAbortedTools
}

// Err returns a [*ResultError] if the turn failed, otherwise nil.
func (m *Result) Err() error {
	if !m.Failed() {
		return nil
	}
	return &ResultError{
		Subtype:        m.Subtype,
		Errors:         m.Errors,
		Result:         m.Result,
		APIErrorStatus: m.APIErrorStatus,
		TerminalReason: m.TerminalReason,
		StartupFailure: m.StartupFailure,
		SessionID:      m.SessionID,
		Raw:            m.Raw(),
	}
}

func (m *Result) field(s *scanner, key string) bool {
	switch key {
	case "is_error":
		m.IsError = s.boolean()
	case "result":
		m.Result = s.str()
	case "errors":
		m.Errors = s.errorTexts()
	case "structured_output":
		m.StructuredOutput = s.raw()
	case "deferred_tool_use":
		m.DeferredToolUse = s.deferredToolUse()
	case "stop_reason":
		m.StopReason = s.str()
	case "terminal_reason":
		m.TerminalReason = TerminalReason(s.str())
	case "api_error_status":
		m.APIErrorStatus = s.integer()
	case "startup_failure_reason":
		m.StartupFailure = s.str()
	case "invalid_config_file":
		m.InvalidConfigFile = s.invalidConfigFile()
	case "num_turns":
		m.NumTurns = s.integer()
	case "duration_ms":
		m.Duration = s.millis()
	case "duration_api_ms":
		m.APIDuration = s.millis()
	case "ttft_ms":
		m.TTFT = s.millis()
	case "ttft_stream_ms":
		m.TTFTStream = s.millis()
	case "time_to_request_ms":
		m.TimeToRequest = s.millis()
	case "request_sent_wall_ms":
		m.RequestSent = s.unix(time.Millisecond)
	case "usage":
		s.usage(&m.Usage)
	case "modelUsage":
		m.ModelUsage = s.modelUsages()
	case "total_cost_usd":
		m.TotalCostUSD = s.float()
	case "permission_denials":
		m.PermissionDenials = s.permissionDenials()
	case "result_index":
		m.Index = s.optInt()
	case "queued_turn_count":
		m.QueuedTurns = s.integer()
	case "local_command":
		m.LocalCommand = s.str()
	case "origin":
		m.Origin = s.origin()
	case "user_message_uuid":
		m.UserMessageUUID = s.str()
	case "user_message_uuids":
		m.UserMessageUUIDs = s.strs()
	case "resume_reason":
		m.ResumeReason = s.str()
	case "fast_mode_state":
		m.FastModeState = s.str()
	case "fast_mode_disabled_reason":
		m.FastModeDisabledReason = s.str()
	case "credential_expires_at":
		m.CredentialExpiresAt = s.str()
	default:
		return false
	}
	return true
}

// errorTexts reads the texts of "errors", which some CLIs send as one string.
func (s *scanner) errorTexts() (list []string) {
	if s.token() == '"' {
		list = []string{s.quoted()}
	} else {
		list = s.strs()
	}
	kept := list[:0]
	for _, text := range list {
		if strings.TrimSpace(text) != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

func (s *scanner) deferredToolUse() *ToolUse {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	call := new(ToolUse)
	for ok := s.object(); ok; ok = s.more('}') {
		if !call.field(s, s.key()) {
			s.skip()
		}
	}
	return call
}

func (s *scanner) invalidConfigFile() *InvalidConfigFile {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	f := new(InvalidConfigFile)
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "path":
			f.Path = s.str()
		case "is_global":
			f.IsGlobal = s.boolean()
		case "backup_searched":
			f.BackupSearched = s.boolean()
		case "backup_path":
			f.BackupPath = s.str()
		default:
			s.skip()
		}
	}
	return f
}

func (s *scanner) modelUsages() map[string]ModelUsage {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	models := make(map[string]ModelUsage)
	for ok := s.object(); ok; ok = s.more('}') {
		model := s.key()
		models[model] = s.modelUsage()
	}
	return models
}

func (s *scanner) permissionDenials() (list []PermissionDenial) {
	for ok := s.array(); ok; ok = s.more(']') {
		var d PermissionDenial
		for ok := s.object(); ok; ok = s.more('}') {
			switch s.key() {
			case "tool_name":
				d.ToolName = s.str()
			case "tool_use_id":
				d.ToolUseID = s.str()
			case "tool_input":
				d.ToolInput = s.raw()
			default:
				s.skip()
			}
		}
		list = append(list, d)
	}
	return list
}
