package runner

import (
	"fmt"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// retries takes note of a call of the API that failed and is tried again, and returns
// what is to be said of it.
func (c *conversation) retries(m agent.Message) nestor.Event {
	c.outage = outageOf(m)
	delay := time.Duration(number(m, "delay_ms")) * time.Millisecond
	if delay > time.Second {
		delay = delay.Round(time.Second)
	}
	return c.does(fmt.Sprintf("the API %s: retry %.0f of %.0f in %v", c.outage, number(m, "attempt"), number(m, "max_retries"), delay))
}

// answers takes note of what the model says, and returns what is to be said if the API had
// failed before. What a provider says in the model's place, such as that it has given up,
// is no answer.
func (c *conversation) answers(m agent.Message) []nestor.Event {
	if c.outage == "" || m.Metadata["error"] != nil {
		return nil
	}
	switch m.Metadata["sdk_type"] {
	case "assistant_text", "thinking", "tool_use", "partial_text", "partial_thinking":
		c.outage = ""
		return []nestor.Event{c.does("the API answers again")}
	}
	return nil
}

// unanswered says what the API did last instead of answering, to be put behind why the run
// ended; empty if it answered.
func (c *conversation) unanswered() string {
	if c.outage == "" {
		return ""
	}
	return "; the API " + c.outage
}

// maxOutage is how much is said of why there was no answer.
const maxOutage = 300

// outageOf says what the API did instead of answering.
func outageOf(m agent.Message) string {
	status, reason := number(m, "api_error_status"), claude.AssistantError("")
	if text, ok := m.Metadata["error"].(string); ok {
		reason = claude.AssistantError(text)
	}
	if status == 0 {
		why, _ := m.Metadata["message"].(string)
		if why = strings.TrimPrefix(why, "API Error: "); why == "" {
			return "does not answer"
		}
		return "does not answer: " + strings.ToValidUTF8(why[:min(len(why), maxOutage)], "")
	}
	what := "failed"
	switch reason {
	case claude.ErrorOverloaded:
		what = "is overloaded"
	case claude.ErrorRateLimit:
		what = "limits the rate of calls"
	case claude.ErrorAuthentication:
		what = "does not accept the credentials"
	}
	return fmt.Sprintf("%s (%.0f)", what, status)
}
