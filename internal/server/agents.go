package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// Agents knows the runs whose agents may ask something.
type Agents interface {
	// Agent returns the run whose token it is; nil if it is nobody's.
	Agent(token string) Agent
}

// Agent is what the processes of one run may do. All of it may be called at once,
// and returns soon after its context ends. Errors are answered as those of a
// [Backend].
type Agent interface {
	Spawn(context.Context, api.Spawn) (api.Child, error)
	Await(context.Context, api.WaitFor) ([]api.Child, error)
	Write(context.Context, api.Letter) ([]nestor.ID, error)
	Inbox(context.Context) ([]api.Letter, error)
	Report(context.Context, api.Progress) error
	Ask(context.Context, api.Question) (api.Reply, error)
	// Look, Tree and Cancel are about the run itself and those below it.
	Look(context.Context, nestor.ID) (api.Run, error)
	Tree(context.Context, nestor.ID) ([]api.Run, error)
	Cancel(context.Context, nestor.ID, api.Cancellation) error
	// Refused takes note of a request that was refused, and why.
	Refused(ctx context.Context, why string)
}

// NewAgents returns a server for the processes of runs. It answers only who shows
// the token of a run, and only about that.
func NewAgents(a Agents, o Options) *Server {
	s := New(nil, o)
	s.agents = a
	return s
}

// agentHandlers answer requests of agents.
type agentHandlers struct {
	handlers
	agents Agents
}

// agentHandler returns what answers the requests of agents.
func (s *Server) agentHandler(g *gate) http.Handler {
	h := &agentHandlers{handlers{log: s.log, gate: g}, s.agents}
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(Agent, http.ResponseWriter, *http.Request) error{
		"POST /v1/spawn":              h.spawn,
		"POST /v1/wait":               h.await,
		"POST /v1/letters":            h.write,
		"POST /v1/inbox":              h.inbox,
		"POST /v1/progress":           h.progress,
		"POST /v1/questions":          h.ask,
		"GET /v1/runs/{id}":           h.look,
		"GET /v1/runs/{id}/tree":      h.tree,
		"POST /v1/runs/{id}/cancel":   h.cancel,
		"POST /v1/runs/{id}/messages": h.message,
	} {
		mux.Handle(pattern, h.allowed(answer))
	}
	mux.Handle("/", h.allowed(func(_ Agent, _ http.ResponseWriter, r *http.Request) error {
		return problem(http.StatusForbidden, "%.20s %.200q: an agent may spawn, wait, write, read its letters, say how far it is, ask a person, and see and end what it has started", r.Method, r.URL.Path)
	}))
	return mux
}

// errNobody refuses who shows no token that counts.
var errNobody = &api.Problem{
	Type: api.TypeToken, Title: "No run has this token", Status: http.StatusUnauthorized,
	Detail: "the token is nobody's: it is that of a run, in " + api.TokenVariable + ", and ends with it",
}

// allowed lets the agent of a run in. What is refused is on record.
func (h *agentHandlers) allowed(answer func(Agent, http.ResponseWriter, *http.Request) error) http.Handler {
	return h.guard(func(w http.ResponseWriter, r *http.Request) error {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		var a Agent
		if ok && len(r.Header.Values("Authorization")) == 1 && token != "" {
			a = h.agents.Agent(token)
		}
		if a == nil {
			h.log.Warn("a token was refused", "method", r.Method, "path", r.URL.Path)
			return errNobody
		}
		err := answer(a, w, r)
		if p := refusal(err); p != nil {
			h.log.Warn("an agent was refused", "method", r.Method, "path", r.URL.Path, "why", p.Detail)
			a.Refused(context.WithoutCancel(r.Context()), p.Detail)
		}
		return err
	})
}

// refusal returns the problem of a request for something that the agent may not
// have, or that is nothing; nil for others.
func refusal(err error) *api.Problem {
	if err == nil {
		return nil
	}
	if limit, ok := errors.AsType[*nestor.LimitError](err); ok {
		return &api.Problem{Status: http.StatusForbidden, Detail: limit.Error()}
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status >= 400 && p.Status < 500 {
		return p
	}
	return nil
}

func (h *agentHandlers) spawn(a Agent, w http.ResponseWriter, r *http.Request) error {
	var s api.Spawn
	if err := firstError(noParameters(r), readBody(w, r, &s)); err != nil {
		return err
	}
	ctx, stop := h.gate.untilEnding(r.Context())
	defer stop()
	child, err := a.Spawn(ctx, s)
	if err != nil {
		return ending(ctx, err)
	}
	return writeJSON(w, http.StatusCreated, child)
}

// ending says that the daemon ends, if that is why something failed.
func ending(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}

func (h *agentHandlers) await(a Agent, w http.ResponseWriter, r *http.Request) error {
	var f api.WaitFor
	if err := firstError(noParameters(r), readOptionalBody(w, r, &f)); err != nil {
		return err
	}
	ctx, stop := h.gate.untilEnding(r.Context())
	defer stop()
	list, err := a.Await(ctx, f)
	if err != nil {
		return ending(ctx, err)
	}
	return writeJSON(w, http.StatusOK, map[string][]api.Child{"runs": append([]api.Child{}, list...)})
}

func (h *agentHandlers) write(a Agent, w http.ResponseWriter, r *http.Request) error {
	var l api.Letter
	if err := firstError(noParameters(r), readBody(w, r, &l)); err != nil {
		return err
	}
	if l.From != "" {
		return problem(http.StatusBadRequest, "from: who writes follows from the token; leave it out")
	}
	to, err := a.Write(r.Context(), l)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]nestor.ID{"to": to})
}

// message is write to a run that the path names, as 'nestor runs send' does.
func (h *agentHandlers) message(a Agent, w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var m api.Message
	if err := firstError(err, noParameters(r), readBody(w, r, &m)); err != nil {
		return err
	}
	if _, err := a.Write(r.Context(), api.Letter{To: string(id), Content: m.Content}); err != nil {
		return err
	}
	return writeNothing(w)
}

func (h *agentHandlers) inbox(a Agent, w http.ResponseWriter, r *http.Request) error {
	if err := firstError(noParameters(r), readOptionalBody(w, r, &struct{}{})); err != nil {
		return err
	}
	list, err := a.Inbox(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.Letter{"letters": append([]api.Letter{}, list...)})
}

func (h *agentHandlers) progress(a Agent, w http.ResponseWriter, r *http.Request) error {
	var p api.Progress
	if err := firstError(noParameters(r), readBody(w, r, &p)); err != nil {
		return err
	}
	if err := a.Report(r.Context(), p); err != nil {
		return err
	}
	return writeNothing(w)
}

func (h *agentHandlers) ask(a Agent, w http.ResponseWriter, r *http.Request) error {
	var q api.Question
	if err := firstError(noParameters(r), readBody(w, r, &q)); err != nil {
		return err
	}
	ctx, stop := h.gate.untilEnding(r.Context())
	defer stop()
	reply, err := a.Ask(ctx, q)
	if err != nil {
		return ending(ctx, err)
	}
	return writeJSON(w, http.StatusOK, reply)
}

func (h *agentHandlers) look(a Agent, w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err := firstError(err, noParameters(r)); err != nil {
		return err
	}
	run, err := a.Look(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, run)
}

func (h *agentHandlers) tree(a Agent, w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err := firstError(err, noParameters(r)); err != nil {
		return err
	}
	runs, err := a.Tree(r.Context(), id)
	if err != nil {
		return err
	}
	return writeRuns(w, runs)
}

func (h *agentHandlers) cancel(a Agent, w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var c api.Cancellation
	if err := firstError(err, noParameters(r), readOptionalBody(w, r, &c)); err != nil {
		return err
	}
	if err := a.Cancel(r.Context(), id, c); err != nil {
		return err
	}
	return writeNothing(w)
}
