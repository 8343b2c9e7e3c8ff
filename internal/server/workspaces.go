package server

import (
	"net/http"

	"github.com/dfaf701a/nestor/api"
)

func (h *handlers) diff(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	if err := firstError(err, noParameters(r)); err != nil {
		return err
	}
	d, err := h.backend.Diff(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, d)
}

func (h *handlers) workspaces(w http.ResponseWriter, r *http.Request) error {
	if err := noParameters(r); err != nil {
		return err
	}
	list, err := h.backend.Workspaces(r.Context())
	if err != nil {
		return err
	}
	return writeSpaces(w, list)
}

func writeSpaces(w http.ResponseWriter, list []api.Space) error {
	return writeJSON(w, http.StatusOK, map[string][]api.Space{"workspaces": append([]api.Space{}, list...)})
}

func (h *handlers) collectWorkspaces(w http.ResponseWriter, r *http.Request) error {
	var c api.Collection
	if err := firstError(noParameters(r), readOptionalBody(w, r, &c)); err != nil {
		return err
	}
	if c.Age < 0 || c.Size < 0 {
		return problem(http.StatusBadRequest, "age %v, size %d: want none that is negative; zero means as the config says", c.Age, c.Size)
	}
	list, err := h.backend.CollectWorkspaces(r.Context(), c)
	if err != nil {
		return err
	}
	return writeSpaces(w, list)
}

func (h *handlers) endWorkspace(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var e api.Ending
	if err := firstError(err, noParameters(r), readBody(w, r, &e)); err != nil {
		return err
	}
	if e.End != "merge" && e.End != "drop" {
		return problem(http.StatusBadRequest, "end %.60q: want merge or drop", e.End)
	}
	out, err := h.backend.EndWorkspace(r.Context(), id, e)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}

func (h *handlers) approveWorkspace(w http.ResponseWriter, r *http.Request) error {
	id, err := runID(r)
	var a api.Approval
	if err := firstError(err, noParameters(r), readOptionalBody(w, r, &a)); err != nil {
		return err
	}
	out, err := h.backend.ApproveWorkspace(r.Context(), id, a)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out)
}
