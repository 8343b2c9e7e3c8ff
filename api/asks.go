package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/dfaf701a/nestor"
)

// OpenAsk is a question to a person that nobody has answered.
type OpenAsk struct {
	ID       string          `json:"ask_id"`
	Run      nestor.ID       `json:"run"`
	Root     nestor.ID       `json:"root"`
	Path     []nestor.ID     `json:"path_from_root"` // to the run, which is the last
	Agents   []string        `json:"agents"`         // of these runs; empty for one without a name
	Tool     string          `json:"tool,omitempty"` // that it would use, with Input
	Input    json.RawMessage `json:"input,omitempty"`
	Question string          `json:"question,omitempty"`
	Options  []string        `json:"options,omitempty"` // of which one is chosen; none means any answer
	Default  string          `json:"default,omitempty"`
	Asked    time.Time       `json:"asked,omitzero"`
	Until    time.Time       `json:"until,omitzero"` // when Default counts; zero means never
}

// Answer answers a question.
type Answer struct {
	Decision string `json:"decision"`        // allow, deny, or what was chosen
	By       string `json:"by,omitempty"`    // who answers
	Scope    string `json:"scope,omitempty"` // once, run or role; empty means once
}

// Asks returns the questions that are open, the oldest first.
func (c *Client) Asks(ctx context.Context) ([]OpenAsk, error) {
	var list struct{ Asks []OpenAsk }
	err := c.do(ctx, request{path: "/v1/asks"}, &list)
	return list.Asks, err
}

// Answer answers a question of a run. The first answer counts.
func (c *Client) Answer(ctx context.Context, run nestor.ID, ask string, a Answer) error {
	return c.do(ctx, request{method: http.MethodPost, path: runPath(run, "/asks/"+url.PathEscape(ask)), body: a, again: true}, nil)
}
