package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// kit is what a session does things with.
type kit struct {
	tools   []tools.Tool
	servers []serverStatus
	recall  func(name string, input json.RawMessage) // a call that went well in an earlier life
	bound   func(id, text string) (string, error)    // a result that is short enough for the model
	close   func() error                             // ends what calls left running
}

// serverStatus is how an MCP server is, as the CLI says it.
type serverStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// maxResult is how many bytes of a result the model is told.
const maxResult = 100_000

// open makes the kit of a session. Tools may talk to the hosts that
// s.mayReach allows, and keep long results in a folder of the session's own.
func (p *Provider) open(_ context.Context, s *session) (*kit, error) {
	k := &kit{
		recall: func(string, json.RawMessage) {},
		bound:  func(_, text string) (string, error) { return cut(text), nil },
		close:  func() error { return nil },
	}
	if p.opts.Tools != nil {
		k.tools = append(k.tools, p.opts.Tools(s.set.Config)...)
	}
	return k, nil
}

// cut shortens a result that has nowhere else to go.
func cut(text string) string {
	if len(text) <= maxResult {
		return text
	}
	end := maxResult
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[cut here: the result has %d bytes]", text[:end], len(text))
}
