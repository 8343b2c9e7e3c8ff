package anthropic

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// checkTime is how long the API may take to show that it is there.
const checkTime = 900 * time.Millisecond

// Check tells whether the API is there and takes the provider's key: it asks for
// the list of models. An endpoint that has no such list is there too.
func (p *Provider) Check(ctx context.Context) bool {
	o := p.opts
	if o.APIKey == "" && o.AuthToken == "" && o.BaseURL == "" {
		return false
	}
	ctx, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	base := or(o.BaseURL, "https://api.anthropic.com")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/v1/models?limit=1", nil)
	if err != nil {
		return false
	}
	r.Header.Set("Anthropic-Version", "2023-06-01")
	if o.APIKey != "" {
		r.Header.Set("X-Api-Key", o.APIKey)
	}
	if o.AuthToken != "" {
		r.Header.Set("Authorization", "Bearer "+o.AuthToken)
	}
	response, err := o.HTTPClient.Do(r)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden
}
