package anthropic

import (
	"encoding/json"
	"maps"
	"slices"
)

// tokens are those of one answer, or of several.
type tokens struct {
	Input, Output, Thinking             int
	CacheRead, CacheCreation            int
	CacheCreation5m, CacheCreation1h    int
	WebSearchRequests, WebFetchRequests int
}

// apiUsage is how the API writes tokens. A nil field was not told.
type apiUsage struct {
	Input         *int `json:"input_tokens"`
	CacheCreation *int `json:"cache_creation_input_tokens"`
	CacheRead     *int `json:"cache_read_input_tokens"`
	Output        *int `json:"output_tokens"`
	Details       struct {
		Thinking *int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	Server struct {
		WebSearch *int `json:"web_search_requests"`
		WebFetch  *int `json:"web_fetch_requests"`
	} `json:"server_tool_use"`
	Creation struct {
		Hour *int `json:"ephemeral_1h_input_tokens"`
		Five *int `json:"ephemeral_5m_input_tokens"`
	} `json:"cache_creation"`
}

// take sets what u tells. The API's counts are of the whole answer so far.
func (t *tokens) take(u apiUsage) {
	for to, from := range map[*int]*int{
		&t.Input: u.Input, &t.Output: u.Output, &t.Thinking: u.Details.Thinking,
		&t.CacheRead: u.CacheRead, &t.CacheCreation: u.CacheCreation,
		&t.CacheCreation5m: u.Creation.Five, &t.CacheCreation1h: u.Creation.Hour,
		&t.WebSearchRequests: u.Server.WebSearch, &t.WebFetchRequests: u.Server.WebFetch,
	} {
		if from != nil && *from >= 0 {
			*to = *from
		}
	}
}

// wire returns the tokens as the API writes them.
func (t tokens) wire() apiUsage {
	var u apiUsage
	u.Input, u.Output, u.CacheRead, u.CacheCreation = &t.Input, &t.Output, &t.CacheRead, &t.CacheCreation
	u.Details.Thinking = &t.Thinking
	u.Server.WebSearch, u.Server.WebFetch = &t.WebSearchRequests, &t.WebFetchRequests
	u.Creation.Five, u.Creation.Hour = &t.CacheCreation5m, &t.CacheCreation1h
	return u
}

func (t tokens) plus(v tokens) tokens {
	t.Input += v.Input
	t.Output += v.Output
	t.Thinking += v.Thinking
	t.CacheRead += v.CacheRead
	t.CacheCreation += v.CacheCreation
	t.CacheCreation5m += v.CacheCreation5m
	t.CacheCreation1h += v.CacheCreation1h
	t.WebSearchRequests += v.WebSearchRequests
	t.WebFetchRequests += v.WebFetchRequests
	return t
}

// prompt is the size of what was sent.
func (t tokens) prompt() int { return t.Input + t.CacheRead + t.CacheCreation }

// spent is what one model used. The cost is added up answer by answer: what a
// token costs may depend on the size of its request.
type spent struct {
	tokens
	usd     float64
	unknown bool // the model has no price
}

// ledger is what a conversation used, by model.
type ledger map[string]spent

func (l ledger) add(model string, t tokens, prices Prices) {
	price, known := prices.find(model)
	s := l[model]
	s.tokens = s.plus(t)
	s.usd += price.of(t)
	s.unknown = s.unknown || !known
	l[model] = s
}

// cost returns the sum, and whether it is all of it.
func (l ledger) cost() (usd float64, known bool) {
	known = true
	for _, model := range slices.Sorted(maps.Keys(l)) {
		usd += l[model].usd
		known = known && !l[model].unknown
	}
	return usd, known
}

// modelUsage is how the CLI writes what a model used. Seen in 2.1.325.
type modelUsage struct {
	Input         int      `json:"inputTokens"`
	Output        int      `json:"outputTokens"`
	CacheRead     int      `json:"cacheReadInputTokens"`
	CacheCreation int      `json:"cacheCreationInputTokens"`
	WebSearch     int      `json:"webSearchRequests"`
	CostUSD       *float64 `json:"costUSD,omitempty"` // absent if unknown
	Window        int      `json:"contextWindow"`
	MaxOutput     int      `json:"maxOutputTokens"`
	Thinking      int      `json:"thinkingTokens"`
	Creation5m    int      `json:"cacheCreationEphemeral5mInputTokens"`
	Creation1h    int      `json:"cacheCreationEphemeral1hInputTokens"`
	Canonical     string   `json:"canonicalModel"`
	Basis         string   `json:"costBasis"`
}

func (l ledger) wire(prices Prices) map[string]modelUsage {
	all := map[string]modelUsage{}
	for model, s := range l {
		u := modelUsage{
			Input: s.Input, Output: s.Output, CacheRead: s.CacheRead, CacheCreation: s.CacheCreation,
			WebSearch: s.WebSearchRequests, Window: prices.window(model), MaxOutput: prices.maxOutput(model),
			Thinking: s.Thinking, Creation5m: s.CacheCreation5m, Creation1h: s.CacheCreation1h,
			Canonical: model, Basis: "unknown",
		}
		if !s.unknown {
			u.CostUSD, u.Basis = &s.usd, "list"
		}
		all[model] = u
	}
	return all
}

// ledgerOf reads what wire wrote.
func ledgerOf(raw json.RawMessage) (ledger, error) {
	var all map[string]modelUsage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	l := ledger{}
	for model, u := range all {
		s := spent{unknown: u.CostUSD == nil, tokens: tokens{
			Input: u.Input, Output: u.Output, Thinking: u.Thinking, CacheRead: u.CacheRead, CacheCreation: u.CacheCreation,
			CacheCreation5m: u.Creation5m, CacheCreation1h: u.Creation1h, WebSearchRequests: u.WebSearch,
		}}
		if u.CostUSD != nil {
			s.usd = *u.CostUSD
		}
		l[model] = s
	}
	return l, nil
}
