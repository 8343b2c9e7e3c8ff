package anthropic

import (
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/agenttest"
)

// The suite that every provider passes, in both modes. What a turn left
// unanswered stands before the next prompt, so rules look at its end.
func TestSuite(t *testing.T) {
	for _, mode := range []string{"query", "client"} {
		t.Run(mode, func(t *testing.T) {
			agenttest.Run(t, func(t *testing.T) agenttest.Subject {
				b := open(t, `
rules:
  - when: {user: "slow$"}
    turns: [{text: "and on ", endless: true, delay: 10ms}]
  - when: {user: "bad$"}
    repeat: true
    turns: [{fail: {status: 400, message: it cannot be}}]
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]`)
				c := agent.Config{Credentials: map[string]string{"mode": mode}, Dir: t.TempDir()}
				return agenttest.Subject{Provider: b.p, Config: c, Say: "say", Slow: "slow", Bad: "bad"}
			})
		})
	}
}
