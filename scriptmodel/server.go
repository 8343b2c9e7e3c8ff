package scriptmodel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Server is the scripted Messages API: an [http.Handler], safe for any number
// of requests at once.
type Server struct {
	// URL is the base URL when the server was started by [Start]. Empty
	// otherwise: the caller knows where it listens.
	URL string

	script *Script
	opts   Options
	mux    *http.ServeMux

	mu       sync.Mutex // guards what follows
	seq      int
	requests []*Request
	seen     map[[sha256.Size]byte]int // how often each request came
}

// Options change how a Server works. The zero value is useful.
type Options struct {
	// OnRequest is called with each request when it is answered, from many
	// goroutines. Nil means nobody is told.
	OnRequest func(*Request)
	// Keep is how many requests Requests returns, the newest. Zero means all;
	// negative means none.
	Keep int
}

// New returns a server that answers as the script says. It starts nothing.
func New(script *Script, opts Options) *Server {
	s := &Server{script: script, opts: opts, mux: http.NewServeMux(), seen: map[[sha256.Size]byte]int{}}
	s.mux.HandleFunc("POST /v1/messages", s.messages)
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /v1/models/{id}", s.model)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, newRequest(r), http.StatusNotFound, "not_found_error", r.Method+" "+r.URL.Path+" is not an endpoint of this API")
	})
	return s
}

// TB is the part of [testing.TB] that Start needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start serves the script, given as its text, on a loopback port until the
// test ends.
func Start(t TB, script string) *Server {
	t.Helper()
	parsed, err := ParseScript("script", []byte(script))
	if err != nil {
		t.Fatalf("scriptmodel: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("scriptmodel: %v", err)
	}
	s := New(parsed, Options{})
	s.URL = "http://" + ln.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Fatalf("scriptmodel: %v", err)
		}
	})
	return s
}

// Serve answers on ln until ctx ends, and returns nil then. Streams that are
// still open are cut.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	var running sync.WaitGroup
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			s.ServeHTTP(w, r)
		}),
	}
	stopped := context.AfterFunc(ctx, func() { srv.Close() })
	defer stopped()
	err := srv.Serve(ln)
	running.Wait()
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving the scripted model: %w", err)
}

// ClientEnv returns the environment, as K=V, that makes the Claude CLI talk
// to the server at baseURL and to nobody else.
func ClientEnv(baseURL string) []string {
	env := []string{
		"ANTHROPIC_BASE_URL=" + baseURL,
		"ANTHROPIC_API_KEY=anything",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_TELEMETRY=1",
		"DISABLE_AUTOUPDATER=1",
		"DISABLE_ERROR_REPORTING=1",
	}
	if os.Geteuid() == 0 {
		env = append(env, "IS_SANDBOX=1") // or the CLI refuses to skip permissions as root
	}
	return env
}

// Requests returns the requests that were answered so far, oldest first.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Api-Key") == "" && r.Header.Get("Authorization") == "" {
		s.refuse(w, newRequest(r), http.StatusUnauthorized, "authentication_error", "x-api-key header is required")
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	req, b, ok := s.read(w, r)
	if !ok {
		return
	}
	if problem := b.problem(); problem != "" {
		s.refuse(w, req, http.StatusBadRequest, "invalid_request_error", problem)
		return
	}
	conv := b.conversation()
	req.Model, req.Stream, req.System, req.Tools = b.Model, b.Stream, conv.system, conv.tools
	req.Prompt, req.Turn = conv.last().text, len(conv.last().calls)
	if results := conv.toolResults(); len(results) > 0 {
		req.ToolResult = results[len(results)-1]
	}
	c, err := s.script.choose(conv)
	if err != nil {
		s.refuse(w, req, http.StatusBadRequest, "invalid_request_error", "scriptmodel: "+err.Error())
		return
	}
	req.Rule = c.rule
	id, attempt := s.identify(b)
	if pause(r.Context(), c.turn.Wait-time.Since(req.came)) != nil {
		return // the client is gone
	}
	fail := c.turn.Fail
	if fail != nil && fail.Times > 0 && attempt > fail.Times {
		fail = nil
	}
	if fail != nil && fail.Status != 0 {
		if fail.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(fail.RetryAfter.Round(time.Second)/time.Second)))
			w.Header().Set("Retry-After-Ms", strconv.FormatInt(fail.RetryAfter.Milliseconds(), 10))
		}
		e := fail.body(fail.Status)
		s.refuse(w, req, fail.Status, e.Type, e.Message)
		return
	}
	a, err := compose(c.turn, c.q, id, s.script.Usage.or(usage{Input: tokens(len(req.Body))}))
	if err != nil {
		s.refuse(w, req, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf("scriptmodel: %s: %v", c.rule, err))
		return
	}
	s.record(req, http.StatusOK)
	w.Header().Set("Request-Id", "req_"+id)
	if b.Stream {
		st := &stream{ctx: r.Context(), w: w, flush: http.NewResponseController(w).Flush, turn: c.turn, fail: fail}
		st.send(a) // what fails here is the client, or the script's wish
		return
	}
	s.whole(w, r, c.turn, fail, a)
}

// whole answers a request that does not stream.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, t *Turn, fail *Fail, a *answer) {
	switch {
	case t.Endless:
		<-r.Context().Done()
		return
	case fail != nil && fail.MalformedAfter != nil:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"type":"message","broken`)
		return
	case fail != nil:
		panic(http.ErrAbortHandler) // closes the connection
	}
	writeJSON(w, http.StatusOK, a.whole())
}

// identify names the n-th request of this content. Equal requests in the same
// order get equal names, and no two answers share one.
func (s *Server) identify(b *body) (id string, n int) {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(b.Model), b.RawSystem, b.RawMessages} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	key := [sha256.Size]byte(sum.Sum(nil))
	s.mu.Lock()
	s.seen[key]++
	n = s.seen[key]
	s.mu.Unlock()
	fmt.Fprintf(sum, "#%d", n)
	return hex.EncodeToString(sum.Sum(nil)[:10]), n
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	req, b, ok := s.read(w, r)
	if !ok {
		return
	}
	req.Model = b.Model
	if problem := b.messagesProblem(); problem != "" {
		s.refuse(w, req, http.StatusBadRequest, "invalid_request_error", problem)
		return
	}
	s.record(req, http.StatusOK)
	writeJSON(w, http.StatusOK, map[string]any{"input_tokens": tokens(len(req.Body))})
}

// maxBody bounds what one request may hold; the real API takes 32 MB.
const maxBody = 32 << 20

// read reads a request with a body of the Messages API, or refuses it.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*Request, *body, bool) {
	req := newRequest(r)
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.refuse(w, req, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
		return nil, nil, false
	}
	if err != nil { // the client is gone, as a rule: what did not come whole is no request
		writeError(w, http.StatusBadRequest, apiError{"invalid_request_error", err.Error()})
		return nil, nil, false
	}
	req.Body, req.came = text, time.Now()
	b, err := parse(text)
	if err != nil {
		s.refuse(w, req, http.StatusBadRequest, "invalid_request_error", "The request body is not valid JSON: "+err.Error())
		return nil, nil, false
	}
	return req, b, true
}

// record keeps req, which is then no longer changed.
func (s *Server) record(req *Request, status int) {
	s.mu.Lock()
	s.seq++
	req.Seq, req.Time, req.Status = s.seq, time.Now(), status
	if s.opts.Keep >= 0 {
		s.requests = append(s.requests, req)
	}
	if n := len(s.requests) - s.opts.Keep; s.opts.Keep > 0 && n > 0 {
		s.requests = slices.Delete(s.requests, 0, n)
	}
	s.mu.Unlock()
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(req)
	}
}

// apiError is an error as the API reports it.
type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// body is what the API says when it fails with that status.
func (f *Fail) body(status int) apiError {
	e := apiError{Type: f.Type, Message: f.Message}
	if e.Type == "" {
		e.Type = errorTypes[status]
	}
	if e.Type == "" {
		e.Type = "api_error"
	}
	if e.Message == "" {
		e.Message = "the script says so"
	}
	return e
}

var errorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
	404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}

// refuse answers with an error and records the request.
func (s *Server) refuse(w http.ResponseWriter, req *Request, status int, kind, message string) {
	s.record(req, status)
	w.Header().Set("Request-Id", fmt.Sprintf("req_%d", req.Seq))
	writeError(w, status, apiError{kind, message})
}

func writeError(w http.ResponseWriter, status int, e apiError) {
	writeJSON(w, status, map[string]any{"type": "error", "error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // what fails here is the client
}
