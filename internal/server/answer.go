package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// handlers answer requests.
type handlers struct {
	backend Backend
	log     *slog.Logger
	gate    *gate
}

// guard lets a request in, answers it with the error as a problem, and keeps a
// panic from ending the process.
func (h *handlers) guard(answer func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.gate.enter() {
			w.Header().Set("Connection", "close")
			writeProblem(w, errStopping)
			return
		}
		defer h.gate.leave()
		begun := &response{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p != http.ErrAbortHandler {
				h.log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			}
			if begun.wrote {
				panic(http.ErrAbortHandler) // cuts the connection: what was sent is not all
			}
			writeProblem(w, errPanicked)
		}()
		err := answer(begun, r)
		if err == nil || begun.wrote {
			return
		}
		reply := problemOf(r.Context(), err)
		if reply == nil {
			return // nobody is there to read it
		}
		if reply.Status == http.StatusInternalServerError {
			h.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		writeProblem(w, reply)
	})
}

// response knows whether an answer has begun.
type response struct {
	http.ResponseWriter
	wrote bool
}

func (r *response) WriteHeader(status int) {
	r.wrote = true
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(p []byte) (int, error) {
	r.wrote = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

var errPanicked = problem(http.StatusInternalServerError, "a fault of ours; the daemon's log has more")

// problem makes an answer.
func problem(status int, format string, args ...any) *api.Problem {
	return &api.Problem{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// problemOf returns the answer that an error becomes; nil if whoever asked is
// gone.
func problemOf(ctx context.Context, err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	if limit, ok := errors.AsType[*nestor.LimitError](err); ok {
		return &api.Problem{Type: api.TypeLimit, Title: "A limit refuses it", Status: http.StatusForbidden, Detail: err.Error(), Limit: limit}
	}
	if cause, ok := errors.AsType[*nestor.Cause](err); ok && ctx.Err() == nil {
		return &api.Problem{Title: "The run is to end", Status: http.StatusConflict, Detail: "the run is to end: " + cause.Error()}
	}
	switch {
	case errors.Is(err, nestor.ErrRunNotFound):
		return &api.Problem{Type: api.TypeRunNotFound, Title: "There is no such run", Status: http.StatusNotFound, Detail: err.Error()}
	case errors.Is(err, nestor.ErrEnded):
		return &api.Problem{Type: api.TypeRunEnded, Title: "The run has ended", Status: http.StatusConflict, Detail: err.Error()}
	case errors.Is(err, nestor.ErrStale):
		return &api.Problem{Type: api.TypeStale, Title: "Another attempt has it", Status: http.StatusConflict, Detail: err.Error()}
	case errors.Is(context.Cause(ctx), errStopping):
		return errStopping
	case ctx.Err() != nil:
		return nil
	}
	return problem(http.StatusInternalServerError, "%v", err)
}

// filled returns p with what it leaves open.
func filled(p *api.Problem) api.Problem {
	q := *p
	if q.Status < 400 || q.Status > 599 {
		q.Status = http.StatusInternalServerError
	}
	if q.Title == "" {
		q.Title = http.StatusText(q.Status)
	}
	if q.Type == "" {
		q.Type = "about:blank"
	}
	return q
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	q := filled(p)
	w.Header().Set("Content-Type", api.ProblemMediaType)
	write(w, q.Status, q) // what fails is the connection
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return write(w, status, v)
}

func writeNothing(w http.ResponseWriter) error {
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(writeTime))
	w.WriteHeader(http.StatusNoContent)
	return control.Flush()
}

// writeTime is how long a reader may take for what is written at once.
const writeTime = 30 * time.Second

// write sends v, all of it: Serve closes connections as soon as handlers
// return.
func write(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return writeBytes(w, status, data)
}

// writePiece is how much is written at once.
const writePiece = 1 << 20

// writeBytes sends data, all of it.
func writeBytes(w http.ResponseWriter, status int, data []byte) error {
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(writeTime)) // what cannot has no connection that could hang
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	for piece := range slices.Chunk(data, writePiece) {
		control.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return control.Flush()
}
