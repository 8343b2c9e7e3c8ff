package claude

// Usage counts the tokens of API calls. What it covers depends on where it
// stands:
//
//   - [Assistant]: one API call, but every message of that call repeats it and
//     all but the last come before it is final. Do not add these up by hand.
//   - [StreamEvent]: the same call, so far.
//   - [Result]: one turn of the main loop, without subagents and helpers.
//
// For money use [Result].ModelUsage and TotalCostUSD, which cover everything
// and are running totals, or a [Meter], which does the sums.
type Usage struct {
	InputTokens              int // neither read from the cache nor written to it
	OutputTokens             int
	ThinkingTokens           int // part of OutputTokens; zero if not told
	CacheReadInputTokens     int
	CacheCreationInputTokens int
	CacheCreation5m          int // part of CacheCreationInputTokens that lives five minutes
	CacheCreation1h          int // part of CacheCreationInputTokens that lives an hour
	WebSearchRequests        int
	WebFetchRequests         int
	ServiceTier              string // "standard", "priority", "batch"; empty if not told
	Speed                    string // "standard", "fast"; empty if not told
}

// ModelUsage is what one model used, through every path: main loop,
// subagents, compaction, helpers. In a [Result] it is a running total since
// the process started or the conversation was cleared; a resumed session goes
// on from the total it had. Costs are estimates, not bills.
type ModelUsage struct {
	InputTokens              int
	OutputTokens             int
	ThinkingTokens           int // part of OutputTokens; zero if not recorded
	CacheReadInputTokens     int
	CacheCreationInputTokens int
	CacheCreation5m          int // part of CacheCreationInputTokens; zero if not recorded
	CacheCreation1h          int // part of CacheCreationInputTokens; zero if not recorded
	WebSearchRequests        int
	CostUSD                  float64
	ContextWindow            int
	MaxOutputTokens          int
	CanonicalModel           string // id that the price was looked up by; empty if not told
	Provider                 string // such as "firstParty" or "bedrock"; empty if not told
	CostBasis                string // "list", "managed" or "unknown"; empty if not told
}

// plus adds the counts of v, and takes the rest from v.
func (u ModelUsage) plus(v ModelUsage) ModelUsage {
	v.InputTokens += u.InputTokens
	v.OutputTokens += u.OutputTokens
	v.ThinkingTokens += u.ThinkingTokens
	v.CacheReadInputTokens += u.CacheReadInputTokens
	v.CacheCreationInputTokens += u.CacheCreationInputTokens
	v.CacheCreation5m += u.CacheCreation5m
	v.CacheCreation1h += u.CacheCreation1h
	v.WebSearchRequests += u.WebSearchRequests
	v.CostUSD += u.CostUSD
	return v
}

// minus subtracts the counts of v and keeps the rest.
func (u ModelUsage) minus(v ModelUsage) ModelUsage {
	u.InputTokens -= v.InputTokens
	u.OutputTokens -= v.OutputTokens
	u.ThinkingTokens -= v.ThinkingTokens
	u.CacheReadInputTokens -= v.CacheReadInputTokens
	u.CacheCreationInputTokens -= v.CacheCreationInputTokens
	u.CacheCreation5m -= v.CacheCreation5m
	u.CacheCreation1h -= v.CacheCreation1h
	u.WebSearchRequests -= v.WebSearchRequests
	u.CostUSD -= v.CostUSD
	return u
}

func (u *Usage) add(v Usage, sign int) {
	u.InputTokens += sign * v.InputTokens
	u.OutputTokens += sign * v.OutputTokens
	u.ThinkingTokens += sign * v.ThinkingTokens
	u.CacheReadInputTokens += sign * v.CacheReadInputTokens
	u.CacheCreationInputTokens += sign * v.CacheCreationInputTokens
	u.CacheCreation5m += sign * v.CacheCreation5m
	u.CacheCreation1h += sign * v.CacheCreation1h
	u.WebSearchRequests += sign * v.WebSearchRequests
	u.WebFetchRequests += sign * v.WebFetchRequests
}

// most returns the larger of each count: counts of one API call only grow.
func (u Usage) most(v Usage) Usage {
	return Usage{
		InputTokens:              max(u.InputTokens, v.InputTokens),
		OutputTokens:             max(u.OutputTokens, v.OutputTokens),
		ThinkingTokens:           max(u.ThinkingTokens, v.ThinkingTokens),
		CacheReadInputTokens:     max(u.CacheReadInputTokens, v.CacheReadInputTokens),
		CacheCreationInputTokens: max(u.CacheCreationInputTokens, v.CacheCreationInputTokens),
		CacheCreation5m:          max(u.CacheCreation5m, v.CacheCreation5m),
		CacheCreation1h:          max(u.CacheCreation1h, v.CacheCreation1h),
		WebSearchRequests:        max(u.WebSearchRequests, v.WebSearchRequests),
		WebFetchRequests:         max(u.WebFetchRequests, v.WebFetchRequests),
	}
}

func (s *scanner) usage(u *Usage) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "input_tokens":
			u.InputTokens = s.integer()
		case "output_tokens":
			u.OutputTokens = s.integer()
		case "cache_read_input_tokens":
			u.CacheReadInputTokens = s.integer()
		case "cache_creation_input_tokens":
			u.CacheCreationInputTokens = s.integer()
		case "cache_creation":
			for ok := s.object(); ok; ok = s.more('}') {
				switch s.key() {
				case "ephemeral_5m_input_tokens":
					u.CacheCreation5m = s.integer()
				case "ephemeral_1h_input_tokens":
					u.CacheCreation1h = s.integer()
				default:
					s.skip()
				}
			}
		case "output_tokens_details":
			for ok := s.object(); ok; ok = s.more('}') {
				if s.key() == "thinking_tokens" {
					u.ThinkingTokens = s.integer()
				} else {
					s.skip()
				}
			}
		case "server_tool_use":
			for ok := s.object(); ok; ok = s.more('}') {
				switch s.key() {
				case "web_search_requests":
					u.WebSearchRequests = s.integer()
				case "web_fetch_requests":
					u.WebFetchRequests = s.integer()
				default:
					s.skip()
				}
			}
		case "service_tier":
			u.ServiceTier = s.str()
		case "speed":
			u.Speed = s.str()
		default:
			s.skip()
		}
	}
}

func (s *scanner) modelUsage() (u ModelUsage) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "inputTokens":
			u.InputTokens = s.integer()
		case "outputTokens":
			u.OutputTokens = s.integer()
		case "thinkingTokens":
			u.ThinkingTokens = s.integer()
		case "cacheReadInputTokens":
			u.CacheReadInputTokens = s.integer()
		case "cacheCreationInputTokens":
			u.CacheCreationInputTokens = s.integer()
		case "cacheCreationEphemeral5mInputTokens":
			u.CacheCreation5m = s.integer()
		case "cacheCreationEphemeral1hInputTokens":
			u.CacheCreation1h = s.integer()
		case "webSearchRequests":
			u.WebSearchRequests = s.integer()
		case "costUSD":
			u.CostUSD = s.float()
		case "contextWindow":
			u.ContextWindow = s.integer()
		case "maxOutputTokens":
			u.MaxOutputTokens = s.integer()
		case "canonicalModel":
			u.CanonicalModel = s.str()
		case "provider":
			u.Provider = s.str()
		case "costBasis":
			u.CostBasis = s.str()
		default:
			s.skip()
		}
	}
	return u
}
