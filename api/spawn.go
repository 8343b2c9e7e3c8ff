package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/dfaf701a/nestor"
)

// Environment variables by which a process of a run finds its daemon. The token is
// what counts.
const (
	SocketVariable = "NESTOR_SOCKET"
	TokenVariable  = "NESTOR_TOKEN"
)

// Spawn is a child that a run asks for. Task is required; what is left open is as
// with the run itself, and nothing can be more than the run has.
type Spawn struct {
	Task           string          `json:"task"`            // what the child is told
	Agent          string          `json:"agent,omitempty"` // empty means none
	Name           string          `json:"name,omitempty"`  // by which the run speaks of it; empty means by its id
	Provider       string          `json:"provider,omitempty"`
	Model          string          `json:"model,omitempty"`
	Tools          []string        `json:"tools,omitzero"` // nil means those of the run
	Role           string          `json:"role,omitempty"`
	PermissionMode string          `json:"permission_mode,omitempty"`
	Sandbox        string          `json:"sandbox,omitempty"`
	Hosts          []string        `json:"hosts,omitzero"`   // nil means those of the run
	Dir            string          `json:"dir,omitempty"`    // below that of the run
	Env            []string        `json:"env,omitzero"`     // nil means that of the run
	Schema         json.RawMessage `json:"schema,omitempty"` // of the result; nil means free text
	Limits         nestor.Limits   `json:"limits,omitzero"`
	Background     bool            `json:"background,omitempty"` // do not wait for it
	Key            string          `json:"key,omitempty"`        // a second one with the same key is the first one again; empty means none
}

// Child is a run that another one started.
type Child struct {
	Run        nestor.ID       `json:"run"`
	Root       nestor.ID       `json:"root,omitempty"`
	Parent     nestor.ID       `json:"parent,omitempty"`
	Depth      int             `json:"depth,omitempty"`
	Name       string          `json:"name,omitempty"`
	Agent      string          `json:"agent,omitempty"`
	Status     nestor.State    `json:"status"` // an end, or where it stands
	Output     string          `json:"output,omitempty"`
	Structured json.RawMessage `json:"structured_output,omitempty"`
	Error      *nestor.Failure `json:"error,omitempty"`
	CostUSD    float64         `json:"cost_usd"` // with all below it
	Turns      int             `json:"num_turns,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`   // Output is not all
	File       string          `json:"result_file,omitempty"` // where all of it is
	Trace      string          `json:"trace_id,omitempty"`
}

// WaitFor says whose end is waited for.
type WaitFor struct {
	Runs    []string      `json:"runs,omitempty"`    // ids or names of children; none means all that live
	Any     bool          `json:"any,omitempty"`     // one of them is enough
	Timeout time.Duration `json:"timeout,omitempty"` // zero means none
}

// Letter is something said by a run, or to it.
type Letter struct {
	From    string `json:"from,omitempty"` // the daemon sets it
	To      string `json:"to,omitempty"`   // an id, a child's name, parent, children, all (that are below)
	Content string `json:"content"`
}

// Progress is how far a run is.
type Progress struct {
	Activity string  `json:"activity,omitempty"`
	Percent  float64 `json:"percent,omitempty"` // zero means that it is not known
}

// Question is for a person.
type Question struct {
	Question string        `json:"question"`
	Options  []string      `json:"options,omitempty"` // of which one is chosen; none means any answer
	Timeout  time.Duration `json:"timeout,omitempty"` // zero means as long as it takes
	Default  string        `json:"default,omitempty"` // the answer when nobody gives one in time
}

// Reply answers a Question.
type Reply struct {
	Answer string `json:"answer"`
	By     string `json:"by,omitempty"`
}

// NewAgentClient returns a client for a process of a run, on the socket that agents
// have, with the token of the run. What the token does not allow is refused.
func NewAgentClient(socket, token string) *Client {
	c := NewClient(socket)
	c.token = token
	return c
}

// Spawn starts a child of the run, and waits for its end unless it is to work in
// the background.
func (c *Client) Spawn(ctx context.Context, s Spawn) (Child, error) {
	var child Child
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/spawn", body: s, again: s.Key != ""}, &child)
	return child, err
}

// Await waits for children of the run.
func (c *Client) Await(ctx context.Context, w WaitFor) ([]Child, error) {
	var list struct{ Runs []Child }
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/wait", body: w, again: true}, &list)
	return list.Runs, err
}

// Write sends a letter, and returns to whom.
func (c *Client) Write(ctx context.Context, l Letter) ([]nestor.ID, error) {
	var sent struct{ To []nestor.ID }
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/letters", body: l}, &sent)
	return sent.To, err
}

// Inbox returns the letters that the run has not read. It has then.
func (c *Client) Inbox(ctx context.Context) ([]Letter, error) {
	var list struct{ Letters []Letter }
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/inbox"}, &list)
	return list.Letters, err
}

// Report says how far the run is.
func (c *Client) Report(ctx context.Context, p Progress) error {
	return c.do(ctx, request{method: http.MethodPost, path: "/v1/progress", body: p, again: true}, nil)
}

// Ask asks a person, and waits for the answer.
func (c *Client) Ask(ctx context.Context, q Question) (Reply, error) {
	var reply Reply
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/questions", body: q}, &reply)
	return reply, err
}
