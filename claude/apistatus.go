package claude

import "time"

// APIRetry says that an API call failed and is tried again after a delay.
type APIRetry struct {
	Header
	Attempt     int
	MaxRetries  int
	RetryDelay  time.Duration
	ErrorStatus int // HTTP status; zero if there was no answer
	Error       AssistantError
	NoResponse  *NoResponse // nil unless the API stayed silent
}

// ControlProgress says how a request of the host goes.
type ControlProgress struct {
	Header
	RequestID   string
	Status      string // "started" or "api_retry"
	Attempt     int
	MaxRetries  int
	RetryDelay  time.Duration
	ErrorStatus int // HTTP status; zero if there was no answer
}

// ModelRefusalFallback says that the model refused and another one answers.
type ModelRefusalFallback struct {
	Header
	Trigger                string // "refusal"
	Direction              string // "retry", "revert" or "sticky"
	Scope                  string // "session" or "local"; empty, from older CLIs, means session
	OriginalModel          string
	FallbackModel          string
	RequestID              string
	RefusalCategory        string   // empty if the API gives none
	RefusalExplanation     string   // for display; empty if the API gives none
	RetractedUUIDs         []string // messages to remove
	RefusedUserMessageUUID string   // empty if no human wrote it
	Content                string   // text to show
}

// ModelRefusalNoFallback says that the model refused and none other answers.
type ModelRefusalNoFallback struct {
	Header
	OriginalModel          string
	RequestID              string
	RefusalCategory        string // empty if the API gives none
	RefusalExplanation     string // for display; empty if the API gives none
	RefusedUserMessageUUID string // empty if no human wrote it
	Content                string // text to show
}

// ModelFallback says that another model took over, such as for an overloaded
// one. Seen in CLI 2.1.325, which does not document it.
type ModelFallback struct {
	Header
	Trigger       string // "overloaded", "server_error", "last_resort", "model_not_found", "permission_denied"
	OriginalModel string
	FallbackModel string
	Content       string // text to show
}

// ThinkingTokens estimates how much the model has thought, while it does not
// show its thoughts.
type ThinkingTokens struct {
	Header
	Estimated       int    // of the current thinking block
	Delta           int    // since the message before
	UserMessageUUID string // user message that this answers; empty if it had no UUID
}

// RateLimit says where a subscription stands. It comes on nearly every session
// of a subscriber, also when all is well.
type RateLimit struct {
	Header
	Info RateLimitInfo
}

// NoResponse tells of an API that sent nothing.
type NoResponse struct {
	Waited    time.Duration // for the failed attempt
	RetryWait time.Duration // the next attempt will wait this long
}

// RateLimitInfo is the state of a subscription's limits.
type RateLimitInfo struct {
	Status      string    // "allowed", "allowed_warning" or "rejected"
	Type        string    // limit that is meant, such as "five_hour"; empty if not told
	ResetsAt    time.Time // zero if not told
	Utilization *float64  // 0 to 1; nil if not told
	Threshold   *float64  // utilization that was passed; nil if none was
	Scope       string    // whose limit, if not the member's own: "service", "channel", "group_pool"
	ErrorCode   string    // "credits_required" or empty

	OverageStatus         string    // like Status; empty if not told
	OverageResetsAt       time.Time // zero if not told
	OverageDisabledReason string    // empty if not told
	UsingOverage          bool
	OverageInUse          bool
	OverageEnabled        bool

	CanPurchaseCredits bool
	HasPaymentMethod   bool
}

func (m *APIRetry) field(s *scanner, key string) bool {
	switch key {
	case "attempt":
		m.Attempt = s.integer()
	case "max_retries":
		m.MaxRetries = s.integer()
	case "retry_delay_ms":
		m.RetryDelay = s.millis()
	case "error_status":
		m.ErrorStatus = s.integer()
	case "error":
		m.Error = AssistantError(s.str())
	case "no_response":
		m.NoResponse = s.noResponse()
	default:
		return false
	}
	return true
}

func (m *ControlProgress) field(s *scanner, key string) bool {
	switch key {
	case "request_id":
		m.RequestID = s.str()
	case "status":
		m.Status = s.str()
	case "attempt":
		m.Attempt = s.integer()
	case "max_retries":
		m.MaxRetries = s.integer()
	case "retry_delay_ms":
		m.RetryDelay = s.millis()
	case "error_status":
		m.ErrorStatus = s.integer()
	default:
		return false
	}
	return true
}

func (m *ModelRefusalFallback) field(s *scanner, key string) bool {
	switch key {
	case "trigger":
		m.Trigger = s.str()
	case "direction":
		m.Direction = s.str()
	case "scope":
		m.Scope = s.str()
	case "original_model":
		m.OriginalModel = s.str()
	case "fallback_model":
		m.FallbackModel = s.str()
	case "request_id":
		m.RequestID = s.str()
	case "api_refusal_category":
		m.RefusalCategory = s.str()
	case "api_refusal_explanation":
		m.RefusalExplanation = s.str()
	case "retracted_message_uuids":
		m.RetractedUUIDs = s.strs()
	case "refused_user_message_uuid":
		m.RefusedUserMessageUUID = s.str()
	case "content":
		m.Content = s.str()
	default:
		return false
	}
	return true
}

func (m *ModelRefusalNoFallback) field(s *scanner, key string) bool {
	switch key {
	case "original_model":
		m.OriginalModel = s.str()
	case "request_id":
		m.RequestID = s.str()
	case "api_refusal_category":
		m.RefusalCategory = s.str()
	case "api_refusal_explanation":
		m.RefusalExplanation = s.str()
	case "refused_user_message_uuid":
		m.RefusedUserMessageUUID = s.str()
	case "content":
		m.Content = s.str()
	default:
		return false
	}
	return true
}

func (m *ModelFallback) field(s *scanner, key string) bool {
	switch key {
	case "trigger":
		m.Trigger = s.str()
	case "original_model":
		m.OriginalModel = s.str()
	case "fallback_model":
		m.FallbackModel = s.str()
	case "content":
		m.Content = s.str()
	default:
		return false
	}
	return true
}

func (m *ThinkingTokens) field(s *scanner, key string) bool {
	switch key {
	case "estimated_tokens":
		m.Estimated = s.integer()
	case "estimated_tokens_delta":
		m.Delta = s.integer()
	case "user_message_uuid":
		m.UserMessageUUID = s.str()
	default:
		return false
	}
	return true
}

func (m *RateLimit) field(s *scanner, key string) bool {
	if key != "rate_limit_info" {
		return false
	}
	m.Info = s.rateLimitInfo()
	return true
}

func (s *scanner) noResponse() *NoResponse {
	if s.token() != '{' {
		s.misfit("object")
		return nil
	}
	n := new(NoResponse)
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "waited_ms":
			n.Waited = s.millis()
		case "retry_wait_ms":
			n.RetryWait = s.millis()
		default:
			s.skip()
		}
	}
	return n
}

func (s *scanner) rateLimitInfo() (r RateLimitInfo) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "status":
			r.Status = s.str()
		case "rateLimitType":
			r.Type = s.str()
		case "resetsAt":
			r.ResetsAt = s.unix(time.Second)
		case "utilization":
			r.Utilization = s.optFloat()
		case "surpassedThreshold":
			r.Threshold = s.optFloat()
		case "limitScope":
			r.Scope = s.str()
		case "errorCode":
			r.ErrorCode = s.str()
		case "overageStatus":
			r.OverageStatus = s.str()
		case "overageResetsAt":
			r.OverageResetsAt = s.unix(time.Second)
		case "overageDisabledReason":
			r.OverageDisabledReason = s.str()
		case "isUsingOverage":
			r.UsingOverage = s.boolean()
		case "overageInUse":
			r.OverageInUse = s.boolean()
		case "overageEnabled":
			r.OverageEnabled = s.boolean()
		case "canUserPurchaseCredits":
			r.CanPurchaseCredits = s.boolean()
		case "hasChargeableSavedPaymentMethod":
			r.HasPaymentMethod = s.boolean()
		default:
			s.skip()
		}
	}
	return r
}
