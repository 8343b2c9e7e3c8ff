package server

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// handler returns what answers requests that the gate lets in.
func (s *Server) handler(g *gate) http.Handler {
	if s.agents != nil {
		return s.agentHandler(g)
	}
	h := &handlers{backend: s.backend, log: s.log, gate: g}
	mux := http.NewServeMux()
	methods := map[string][]string{} // by path
	for _, route := range []struct {
		method, path string
		answer       func(http.ResponseWriter, *http.Request) error
	}{
		{http.MethodPost, "/v1/runs", h.submit},
		{http.MethodGet, "/v1/runs", h.runs},
		{http.MethodGet, "/v1/runs/{id}", h.run},
		{http.MethodGet, "/v1/runs/{id}/tree", h.tree},
		{http.MethodGet, "/v1/runs/{id}/events", h.events},
		{http.MethodGet, "/v1/runs/{id}/changes", h.changes},
		{http.MethodGet, "/v1/runs/{id}/diff", h.diff},
		{http.MethodPost, "/v1/runs/{id}/cancel", h.cancel},
		{http.MethodPost, "/v1/runs/{id}/messages", h.send},
		{http.MethodGet, "/v1/workspaces", h.workspaces},
		{http.MethodPost, "/v1/workspaces/collect", h.collectWorkspaces},
		{http.MethodPost, "/v1/workspaces/{id}/end", h.endWorkspace},
		{http.MethodPost, "/v1/workspaces/{id}/approve", h.approveWorkspace},
		{http.MethodPost, "/v1/runs/{id}/asks/{ask}", h.answer},
		{http.MethodGet, "/v1/asks", h.asks},
		{http.MethodGet, "/v1/search", h.search},
		{http.MethodPost, "/v1/backup", h.backup},
		{http.MethodGet, "/v1/info", h.info},
		{http.MethodGet, "/healthz", h.healthy},
		{http.MethodGet, "/readyz", h.ready},
	} {
		mux.Handle(route.method+" "+route.path, h.guard(route.answer))
		methods[route.path] = append(methods[route.path], route.method)
	}
	for path, allowed := range methods {
		mux.Handle(path, h.guard(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			return problem(http.StatusMethodNotAllowed, "method %.20q: %s takes %s", r.Method, path, strings.Join(allowed, " and "))
		}))
	}
	mux.Handle("/", h.guard(func(_ http.ResponseWriter, r *http.Request) error {
		return problem(http.StatusNotFound, "nothing is at %.200q; runs are at /v1/runs", r.URL.Path)
	}))
	return mux
}

func (h *handlers) submit(w http.ResponseWriter, r *http.Request) error {
	var s api.Submission
	if err := firstError(noParameters(r), readBody(w, r, &s)); err != nil {
		return err
	}
	if err := s.Task.Check(); err != nil {
		return problem(http.StatusBadRequest, "task: %v", err)
	}
	run, err := h.backend.Submit(r.Context(), s)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/runs/"+string(run.ID))
	return writeJSON(w, http.StatusCreated, run)
}

func (h *handlers) runs(w http.ResponseWriter, r *http.Request) error {
	p := readParameters(r)
	q := p.query()
	q.Text = p.text("text")
	if err := p.done(); err != nil {
		return err
	}
	runs, err := h.backend.Runs(r.Context(), q)
	if err != nil {
		return err
	}
	return writeRuns(w, runs)
}

func writeRuns(w http.ResponseWriter, runs []api.Run) error {
	return writeJSON(w, http.StatusOK, map[string][]api.Run{"runs": append([]api.Run{}, runs...)})
}

// maxWait bounds how long one request waits for a run. Whoever wants to wait
// longer asks again.
const maxWait = time.Minute

func (h *handlers) run(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	p := readParameters(r)
	wait := min(p.span("wait"), maxWait)
	if err := firstError(err, p.done()); err != nil {
		return err
	}
	run, err := h.wait(r.Context(), id, wait)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, run)
}

// wait returns the run when it has ended or the time is over.
func (h *handlers) wait(ctx context.Context, id nestor.ID, d time.Duration) (api.Run, error) {
	if d == 0 {
		return h.backend.Run(ctx, id)
	}
	ctx, stop := h.gate.untilEnding(ctx)
	defer stop()
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	run, err := h.backend.Wait(timed, id)
	if ctx.Err() != nil && (err != nil || !run.State.Ended()) {
		return run, context.Cause(ctx)
	}
	return run, err
}

func (h *handlers) tree(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err := firstError(err, noParameters(r)); err != nil {
		return err
	}
	runs, err := h.backend.Tree(r.Context(), id)
	if err != nil {
		return err
	}
	return writeRuns(w, runs)
}

func (h *handlers) changes(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err := firstError(err, noParameters(r)); err != nil {
		return err
	}
	archive, err := h.backend.Changes(r.Context(), id)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", api.ArchiveMediaType)
	return writeBytes(w, http.StatusOK, archive)
}

func (h *handlers) cancel(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var c api.Cancellation
	if err := firstError(err, noParameters(r), readOptionalBody(w, r, &c)); err != nil {
		return err
	}
	if err := h.backend.Cancel(r.Context(), id, c); err != nil {
		return err
	}
	return writeNothing(w)
}

func (h *handlers) send(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var m api.Message
	if err := firstError(err, noParameters(r), readBody(w, r, &m)); err != nil {
		return err
	}
	if m.Content == "" {
		return problem(http.StatusBadRequest, "content: empty; say what the run is told")
	}
	if err := h.backend.Send(r.Context(), id, m); err != nil {
		return err
	}
	return writeNothing(w)
}

func (h *handlers) search(w http.ResponseWriter, r *http.Request) error {
	p := readParameters(r)
	text, q := p.text("q"), p.query()
	if err := p.done(); err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return problem(http.StatusBadRequest, "parameter q: empty; say what is searched for")
	}
	hits, err := h.backend.Search(r.Context(), text, q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.Hit{"hits": append([]api.Hit{}, hits...)})
}

func (h *handlers) backup(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Path string `json:"path"`
	}
	if err := firstError(noParameters(r), readBody(w, r, &b)); err != nil {
		return err
	}
	if !filepath.IsAbs(b.Path) {
		return problem(http.StatusBadRequest, "path %.200q: want an absolute one, of a file that is not there", b.Path)
	}
	if err := h.backend.Backup(r.Context(), b.Path); err != nil {
		return err
	}
	return writeNothing(w)
}

func (h *handlers) info(w http.ResponseWriter, r *http.Request) error {
	if err := noParameters(r); err != nil {
		return err
	}
	info, err := h.backend.Info(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, info)
}

// healthy says that the process lives.
func (h *handlers) healthy(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready says that the daemon behind it answers.
func (h *handlers) ready(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.backend.Info(r.Context()); err != nil {
		return problem(http.StatusServiceUnavailable, "not ready: %v", err)
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// runID reads the id in the path.
func runID(r *http.Request) (nestor.ID, error) {
	id, err := nestor.ParseID(r.PathValue("id"))
	if err != nil {
		return "", problem(http.StatusBadRequest, "%v", err)
	}
	return id, nil
}

// firstError returns the first that is none.
func firstError(errs ...error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
