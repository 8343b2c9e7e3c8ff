package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/dfaf701a/nestor/scriptmodel"
)

// script has each agent read a file, write another and say something.
const script = `
rules:
  - when: {user: ^Copy}
    turns:
      - tools: [{name: Read, input: {file_path: in.txt}}]
      - tools: [{name: Write, input: {file_path: out.txt, content: "copied"}}]
      - text: "I have read in.txt and written out.txt, which says what you wanted it to say. Is there anything else?"
  - when: {user: ^Run}
    turns:
      - tools: [{name: Bash, input: {command: "cat in.txt"}}]
      - text: "it says {{.ToolResult}}"
  - repeat: true
    turns: [{text: "You said: {{.Prompt}}"}]
`

// gate holds back streams, once they have begun, until all of a crowd have.
type gate struct {
	crowd int
	all   chan struct{} // closed when all are there
	open  chan struct{} // closed when they may go on

	mu    sync.Mutex // guards what follows
	there int
}

func newGate(crowd int) *gate {
	return &gate{crowd: crowd, all: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	if g.there++; g.there == g.crowd {
		close(g.all)
	}
	g.mu.Unlock()
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// held is an answer that waits at the gate behind its first event.
type held struct {
	http.ResponseWriter
	once sync.Once
	wait func()
}

// FlushError sends what was written, and waits the first time.
func (h *held) FlushError() error {
	err := http.NewResponseController(h.ResponseWriter).Flush()
	h.once.Do(h.wait)
	return err
}

// Flush is FlushError for who does not ask.
func (h *held) Flush() { h.FlushError() }

// serveModel is the process of the model: it prints its address, and serves
// until its standard input ends. The last answers of a crowd wait for each
// other: GET /gate returns when all have begun, and POST /gate lets them go on.
func serveModel(ctx context.Context, crowd int) error {
	parsed, err := scriptmodel.ParseScript("bench-api", []byte(script))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	model, g := scriptmodel.New(parsed, scriptmodel.Options{Keep: -1}), newGate(crowd)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /gate", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-g.all:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /gate", func(http.ResponseWriter, *http.Request) { close(g.open) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Count(string(body), `"tool_result"`) == 2 && !strings.Contains(string(body), "Run a command.") {
			w = &held{ResponseWriter: w, wait: func() { g.wait(r.Context()) }}
		}
		model.ServeHTTP(w, r)
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	srv := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Printf("http://%s\n", ln.Addr())
	io.Copy(io.Discard, os.Stdin)
	stop()
	srv.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
