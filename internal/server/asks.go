package server

import (
	"net/http"
	"slices"

	"github.com/dfaf701a/nestor/api"
)

func (h *handlers) asks(w http.ResponseWriter, r *http.Request) error {
	if err := noParameters(r); err != nil {
		return err
	}
	list, err := h.backend.Asks(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.OpenAsk{"asks": append([]api.OpenAsk{}, list...)})
}

// scopes are how far an answer reaches.
var scopes = []string{"", "once", "run", "role"}

func (h *handlers) answer(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var a api.Answer
	if err := firstError(err, noParameters(r), readBody(w, r, &a)); err != nil {
		return err
	}
	switch {
	case a.Decision == "":
		return problem(http.StatusBadRequest, "decision: empty; say allow, deny, or what is answered")
	case !slices.Contains(scopes, a.Scope):
		return problem(http.StatusBadRequest, "scope %.40q: there are once, run and role", a.Scope)
	}
	if err := h.backend.Answer(r.Context(), id, r.PathValue("ask"), a); err != nil {
		return err
	}
	return writeNothing(w)
}
