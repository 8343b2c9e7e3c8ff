package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// errNoKey says that requests could be in nobody's name, to whoever has to give one: who
// types a command, or who writes a program.
var errNoKey = errors.New("there is no API key: set ANTHROPIC_API_KEY or providers.api.api_key_file; " +
	"a program gives api_key, auth_token or base_url in the credentials, or to the provider")

// failure is a request that failed.
type failure struct {
	status  int    // HTTP; zero if there was no answer
	kind    string // the API's type of the error; may be empty
	reason  claude.AssistantError
	text    string
	request string
	after   time.Duration // when to try again; zero if the API does not say
	reset   time.Time     // when a usage limit is reset; zero if it is none, or the API does not say
	again   bool          // trying again may help
	err     error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// statuses are what error events stand for that come after the answer began.
var statuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
	"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500,
	"timeout_error": 504, "overloaded_error": 529,
}

// failureOf tells what became of a request.
func failureOf(err error) *failure {
	f := &failure{err: err, text: "API Error: " + err.Error(), reason: claude.ErrorUnknown, again: true}
	api, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return f // the connection, or what came through it
	}
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	json.Unmarshal([]byte(api.RawJSON()), &body)
	f.status, f.kind, f.request = api.StatusCode, body.Error.Type, api.RequestID
	if f.status < 400 {
		f.status = statuses[f.kind]
	}
	if api.Response != nil {
		f.after = retryAfter(api.Response.Header)
		if f.status == 429 {
			f.reset = resetOf(api.Response.Header)
		}
	}
	message := body.Error.Message
	if message == "" {
		message = http.StatusText(f.status)
	}
	f.text = strings.TrimSpace(fmt.Sprintf("API Error: %d %s", f.status, message))
	f.again = f.status == 0 || f.status == 408 || f.status == 409 || f.status == 429 || f.status >= 500
	switch {
	case f.status == 401 || f.status == 403:
		f.reason = claude.ErrorAuthentication
	case f.status == 402:
		f.reason = claude.ErrorBilling
	case f.status == 404 && strings.Contains(message, "model"):
		f.reason = claude.ErrorModelNotFound
	case f.status == 429:
		f.reason = claude.ErrorRateLimit
	case f.status == 529:
		f.reason = claude.ErrorOverloaded
	case f.status >= 500:
		f.reason = claude.ErrorServer
	case f.status >= 400:
		f.reason = claude.ErrorInvalidRequest
	}
	return f
}

// tooLong tells whether the request was more than the model takes.
func (f *failure) tooLong() bool {
	return f.status == 413 || f.status == 400 &&
		(strings.Contains(f.text, "prompt is too long") || strings.Contains(f.text, "exceed context limit"))
}

// usageWait is how far ahead the reset of a limit is that is none of a burst of
// requests: there is no sense in trying meanwhile.
const usageWait = 2 * time.Minute

// limited tells whether a usage limit is met.
func (f *failure) limited() bool { return time.Until(f.reset) > usageWait }

// resetOf returns when a limit is reset, zero if that is not told. The API tells
// of that of a plan in a header of its own.
func resetOf(h http.Header) time.Time {
	if s, err := strconv.ParseInt(h.Get("Anthropic-Ratelimit-Unified-Reset"), 10, 64); err == nil && s > 0 && time.Until(time.Unix(s, 0)) < maxReset {
		return time.Unix(s, 0)
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 && s < maxReset.Seconds() {
		return time.Now().Add(time.Duration(s * float64(time.Second)))
	}
	if at, err := http.ParseTime(text); err == nil && time.Until(at) < maxReset {
		return at
	}
	return time.Time{}
}

// maxReset is the longest time to a reset that is believed.
const maxReset = 31 * 24 * time.Hour

// maxRetryAfter bounds how long an API may make an agent wait.
const maxRetryAfter = 10 * time.Minute

func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return min(time.Duration(min(ms, 1e9)*float64(time.Millisecond)), maxRetryAfter)
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 {
		return min(time.Duration(min(s, 1e6)*float64(time.Second)), maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return 0
}

// delay is how long to wait before attempt n+1: half a second, doubled each time
// up to half a minute, and up to a quarter more so that not all come at once.
func (f *failure) delay(n int) time.Duration {
	if f.after > 0 {
		return f.after
	}
	d := min(500*time.Millisecond<<min(n-1, 10), 32*time.Second)
	return d + time.Duration(rand.Int64N(int64(d)/4))
}

// errorOf makes of a result that is an error the error of an agent, nil if it is
// none, or if the turn was interrupted.
func errorOf(r *claude.Result, reason claude.AssistantError) error {
	err := r.Err()
	if err == nil || r.Interrupted() {
		return nil
	}
	e := &agent.Error{Provider: Type, Kind: agent.ErrAPI, Status: r.APIErrorStatus, Err: err}
	if reason == claude.ErrorAuthentication {
		e.Kind = agent.ErrAuth
	}
	return e
}

// timeoutError is the cause of a context that Limits.Timeout ends.
func timeoutError(limit time.Duration) error {
	return &agent.Error{Provider: Type, Kind: agent.ErrTimeout, Err: fmt.Errorf("the message was not handled within %v", limit)}
}
