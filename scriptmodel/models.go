package scriptmodel

import "net/http"

// catalogue is what the model list shows. Requests may name any other model.
var catalogue = []struct{ id, name string }{
	{"claude-opus-5-5", "Claude Opus 5.5"},
	{"claude-sonnet-5-5", "Claude Sonnet 5.5"},
	{"claude-haiku-5-5", "Claude Haiku 5.5"},
	{"claude-fable-5-2", "Claude Fable 5.2"},
}

func describe(id, name string) map[string]any {
	return map[string]any{"type": "model", "id": id, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	data := []any{}
	for _, m := range catalogue {
		data = append(data, describe(m.id, m.name))
	}
	s.record(newRequest(r), http.StatusOK)
	writeJSON(w, http.StatusOK, map[string]any{
		"data": data, "has_more": false, "first_id": catalogue[0].id, "last_id": catalogue[len(catalogue)-1].id,
	})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	req := newRequest(r)
	for _, m := range catalogue {
		if m.id == r.PathValue("id") {
			s.record(req, http.StatusOK)
			writeJSON(w, http.StatusOK, describe(m.id, m.name))
			return
		}
	}
	s.refuse(w, req, http.StatusNotFound, "not_found_error", "model: "+r.PathValue("id"))
}
