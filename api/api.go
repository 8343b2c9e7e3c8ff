// Package api is how programs reach Nestor's daemon: the types that its HTTP
// interface speaks, and a client for its Unix socket.
//
//	POST /v1/runs                  Submission → Run
//	GET  /v1/runs                  Query → {"runs": [Run]}
//	GET  /v1/runs/{id}             Run; with wait=30s when it has ended, or after that time
//	GET  /v1/runs/{id}/tree        {"runs": [Run]}
//	GET  /v1/runs/{id}/events      EventsQuery → server-sent events
//	GET  /v1/runs/{id}/changes     the files that it changed on another machine, in an archive
//	GET  /v1/runs/{id}/diff        what it changed on this machine: Diff
//	POST /v1/runs/{id}/cancel      Cancellation
//	POST /v1/runs/{id}/messages    Message
//	GET  /v1/workspaces            {"workspaces": [Space]}
//	POST /v1/workspaces/collect    Collection → {"workspaces": [Space]}
//	POST /v1/workspaces/{id}/end   Ending → Workspace
//	POST /v1/workspaces/{id}/approve  Approval → Workspace
//	POST /v1/runs/{id}/asks/{ask}  Answer
//	GET  /v1/asks                  {"asks": [OpenAsk]}
//	GET  /v1/search                q and Query → {"hits": [Hit]}
//	POST /v1/backup                {"path": file}
//	GET  /v1/info                  Info
//	GET  /healthz, /readyz
//
// A stream of events has the position of each as its id and its JSON as data;
// what is live only has no id. "event: end" says that all was said, "event:
// error" has a Problem as data, and a comment comes at least every 15 seconds.
// Last-Event-ID goes on where a stream was cut, as after does.
//
// Processes of runs have a socket of their own, on which every request shows the
// run's token, as a bearer's. There is what an agent can do with others:
//
//	POST /v1/spawn                 Spawn → Child
//	POST /v1/wait                  WaitFor → {"runs": [Child]}
//	POST /v1/letters               Letter → {"to": [id]}
//	POST /v1/inbox                 → {"letters": [Letter]}
//	POST /v1/progress              Progress
//	POST /v1/questions             Question → Reply
//	GET  /v1/runs/{id}, /v1/runs/{id}/tree, POST /v1/runs/{id}/cancel, /messages
//
// What goes wrong is a [Problem]. Times are RFC 3339, spans of time in bodies
// are nanoseconds.
package api

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/dfaf701a/nestor"
)

// Submission is a task to run.
type Submission struct {
	Task nestor.Task `json:"task"`
	Key  string      `json:"key,omitempty"` // a second submission with the same key is the first one again; empty means none
}

// Run is a run as it stands.
type Run struct {
	ID       nestor.ID       `json:"run"`
	Root     nestor.ID       `json:"root"`
	Parent   nestor.ID       `json:"parent,omitempty"` // empty for a root
	Depth    int             `json:"depth"`
	Agent    string          `json:"agent,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Model    string          `json:"model,omitempty"`
	Swarm    string          `json:"swarm,omitempty"`
	Dir      string          `json:"dir,omitempty"`
	Input    string          `json:"input,omitempty"` // in lists, the beginning of it
	State    nestor.State    `json:"state"`
	Wait     *nestor.Wait    `json:"wait,omitempty"` // nil if it does not wait
	Doing    string          `json:"doing"`          // one line for people: what it does or waits for right now, and since when
	Created  time.Time       `json:"created,omitzero"`
	Started  time.Time       `json:"started,omitzero"` // zero if it has not
	Ended    time.Time       `json:"ended,omitzero"`   // likewise
	Deadline time.Time       `json:"deadline,omitzero"`
	Attempt  int             `json:"attempt,omitempty"`
	Resumes  int             `json:"resumes,omitempty"`
	Retries  int             `json:"retries,omitempty"`
	Worker   string          `json:"worker,omitempty"`
	Trace    string          `json:"trace_id,omitempty"`   // the W3C trace of its tree
	Session  string          `json:"session_id,omitempty"` // the provider's
	Limits   nestor.Limits   `json:"limits,omitzero"`
	CostUSD  float64         `json:"cost_usd"`  // its own
	BelowUSD float64         `json:"below_usd"` // of all below it
	Usage    nestor.Usage    `json:"usage"`     // its own
	Turns    int             `json:"num_turns"`
	Result   *nestor.Result  `json:"result,omitempty"` // nil until it has ended, and in lists
	Error    *nestor.Failure `json:"error,omitempty"`  // why it is no success; nil if it is, or has not ended
	Children []nestor.ID     `json:"children,omitempty"`
	Archived bool            `json:"archived,omitempty"`
	Cursor   uint64          `json:"cursor,omitempty"` // its place in a list: Query.After goes on behind it
}

// Query chooses runs. Its zero value chooses all, the newest first.
type Query struct {
	Root   nestor.ID    // empty means of every tree
	Parent nestor.ID    // whose children; empty means anybody's
	Roots  bool         // only those that have no parent
	State  nestor.State // empty means any
	Agent  string       // empty means any
	Swarm  string       // empty means any
	Text   string       // words that occur in it; empty means any
	Since  time.Time    // created then or later; zero means always
	Until  time.Time    // created before; zero means always
	Limit  int          // how many are returned; zero means what the daemon finds right
	After  uint64       // go on behind the run with this Cursor, or the hit with this Seq; zero means begin
}

// Values returns q as the parameters of a URL.
func (q Query) Values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("root", string(q.Root))
	set("parent", string(q.Parent))
	set("state", string(q.State))
	set("agent", q.Agent)
	set("swarm", q.Swarm)
	set("text", q.Text)
	if q.Roots {
		v.Set("roots", "true")
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After != 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	return v
}

// Hit is a text that was found.
type Hit struct {
	Run     nestor.ID `json:"run"`
	Seq     uint64    `json:"seq"` // of its event
	Snippet string    `json:"snippet"`
}

// EventsQuery chooses events of a run. Its zero value chooses those that it
// has now.
type EventsQuery struct {
	After  uint64 // only those behind this position; zero means from the first
	Tree   bool   // also those of all below it
	Follow bool   // wait for more until the run, with Tree all of its tree, has ended
	Deltas bool   // also what is live only
}

// Values returns q as the parameters of a URL.
func (q EventsQuery) Values() url.Values {
	v := url.Values{}
	if q.After != 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	for name, on := range map[string]bool{"tree": q.Tree, "follow": q.Follow, "deltas": q.Deltas} {
		if on {
			v.Set(name, "true")
		}
	}
	return v
}

// Event is an event on its way to a client.
type Event struct {
	Seq  uint64          // its position; zero for what is live only
	Data json.RawMessage // as nestor.EncodeEvent writes it
}

// Cancellation ends a run and all below it. Its zero value asks without a
// reason.
type Cancellation struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`  // who asks
	Now    bool   `json:"now,omitempty"` // do not let it finish what it does
}

// Message is something said to a run.
type Message struct {
	From    string `json:"from,omitempty"`
	Content string `json:"content"`
	ID      string `json:"id,omitempty"` // a second message with the same id is not delivered; empty means none
}

// Info says what a daemon is and does.
type Info struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Project string    `json:"project"` // its folder
	Started time.Time `json:"started"`
	Slots   int       `json:"slots"`
	Busy    int       `json:"busy"`   // slots
	Queued  int       `json:"queued"` // runs
	Ready   int       `json:"ready"`  // CLIs that were started ahead of runs
	// Trees are those that it executes runs of, by their roots.
	Trees  []nestor.ID `json:"trees"`
	Broker string      `json:"broker"`
	// Followers are clients that wait for a run at this moment.
	Followers int  `json:"followers"`
	Lone      bool `json:"lone,omitempty"` // it lives as long as one command
	Idle      bool `json:"idle,omitempty"` // it executes no runs: workers elsewhere do
}
