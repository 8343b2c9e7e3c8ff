package claude

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// controlAnswer is the CLI's answer to a request of ours.
type controlAnswer struct {
	Subtype   string          `json:"subtype"`
	RequestID string          `json:"request_id"`
	Response  json.RawMessage `json:"response"`
	Error     string          `json:"error"`
	Code      string          `json:"error_code"`

	// Requests that were open when a host initializes again.
	Permissions []json.RawMessage `json:"pending_permission_requests"`
	Dialogs     []json.RawMessage `json:"pending_user_dialog_requests"`
}

// call sends a control request with that subtype and the fields of request, a
// struct or nil, waits for its answer and decodes it into reply, a pointer, or
// nil to ignore it. It fails at once when the CLI is gone. When ctx ends first
// the request is withdrawn.
func (s *Session) call(ctx context.Context, subtype string, request, reply any) error {
	body, err := requestBody(subtype, request)
	if err != nil {
		return fmt.Errorf("encoding the request %s: %w", subtype, err)
	}
	id, answers := s.expect()
	defer s.forget(id)
	defer s.queue.hurry()()
	err = s.post(ctx, map[string]any{"type": "control_request", "request_id": id, "request": body})
	if err != nil {
		return fmt.Errorf("sending the request %s: %w", subtype, err)
	}
	select {
	case a := <-answers:
		if a.Subtype == "error" {
			return controlError(subtype, a.Code, a.Error, s.version())
		}
		if reply == nil || len(a.Response) == 0 {
			return nil
		}
		if err := json.Unmarshal(a.Response, reply); err != nil {
			return &DecodeError{Line: clip(a.Response), Err: fmt.Errorf("answer to %s: %w", subtype, err)}
		}
		return nil
	case <-ctx.Done():
		s.spawn(func() {
			ctx, stop := context.WithTimeout(context.Background(), s.opts.grace())
			defer stop()
			s.post(ctx, map[string]any{"type": "control_cancel_request", "request_id": id})
		})
		return fmt.Errorf("waiting for the answer to %s: %w", subtype, context.Cause(ctx))
	case <-s.gone:
		return fmt.Errorf("waiting for the answer to %s: %w", subtype, s.over())
	}
}

func clip(line []byte) []byte { return bytes.Clone(line[:min(len(line), maxErrorLine)]) }

// requestBody is the request with its subtype.
func requestBody(subtype string, request any) (json.RawMessage, error) {
	head, err := json.Marshal(map[string]string{"subtype": subtype})
	if err != nil || request == nil {
		return head, err
	}
	fields, err := json.Marshal(request)
	if err != nil || bytes.Equal(fields, []byte("{}")) || bytes.Equal(fields, []byte("null")) {
		return head, err
	}
	if fields[0] != '{' {
		return nil, errors.New("the fields of a request are an object")
	}
	return append(append(head[:len(head)-1], ','), fields[1:]...), nil
}

// expect makes an id for a request and a place for its answer.
func (s *Session) expect() (string, <-chan controlAnswer) {
	answers := make(chan controlAnswer, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	id := fmt.Sprintf("req_%d_%.8s", s.ids, rand.Text())
	s.calls[id] = answers
	return id, answers
}

func (s *Session) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

func (s *Session) version() string {
	if info := s.Info(); info != nil {
		return info.Version
	}
	return ""
}

// answered hands an answer of the CLI to who waits for it. One that comes late
// is dropped.
func (s *Session) answered(ctx context.Context, line []byte) {
	var frame struct {
		Response controlAnswer `json:"response"`
	}
	if json.Unmarshal(line, &frame) != nil {
		return // who waits for it has a context
	}
	a := frame.Response
	s.mu.Lock()
	answers, ok := s.calls[a.RequestID]
	delete(s.calls, a.RequestID) // a second answer finds nobody
	s.mu.Unlock()
	if !ok {
		return
	}
	answers <- a
	for _, request := range append(a.Permissions, a.Dialogs...) {
		s.asked(ctx, request)
	}
}

// controlRequest is a request of the CLI.
type controlRequest struct {
	ID      string          `json:"request_id"`
	Request json.RawMessage `json:"request"`
}

// asked answers a request of the CLI in a goroutine of its own. One that is
// being answered already is not answered twice.
func (s *Session) asked(ctx context.Context, line json.RawMessage) {
	var r controlRequest
	if json.Unmarshal(line, &r) != nil || r.ID == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	_, twice := s.inflight[r.ID]
	if !twice {
		s.inflight[r.ID] = cancel
	}
	s.mu.Unlock()
	if twice {
		cancel()
		return
	}
	done := s.ledger.request()
	s.spawn(func() {
		defer cancel()
		s.serve(ctx, r)
		done()
		s.settle()
		s.queue.notice(nil)
	})
}

// withdrawn ends the context of a request that the CLI wants no answer to.
func (s *Session) withdrawn(line []byte) {
	var r controlRequest
	if json.Unmarshal(line, &r) != nil {
		return
	}
	s.mu.Lock()
	cancel, ok := s.inflight[r.ID]
	delete(s.inflight, r.ID)
	s.mu.Unlock()
	if ok {
		cancel()
	}
}

// serve answers r, unless it is withdrawn first or is not to be answered.
func (s *Session) serve(ctx context.Context, r controlRequest) {
	answer, err := s.respond(ctx, r)
	s.mu.Lock()
	_, wanted := s.inflight[r.ID]
	delete(s.inflight, r.ID)
	s.mu.Unlock()
	if !wanted || errors.Is(err, errSilent) {
		return
	}
	response := map[string]any{"subtype": "success", "request_id": r.ID, "response": answer}
	if err != nil {
		response = map[string]any{"subtype": "error", "request_id": r.ID, "error": err.Error()}
		if _, ok := errors.AsType[*UnsupportedError](err); ok {
			response["error_code"] = "unsupported_request"
		}
	}
	// The answer is due even if the callback's context ended meanwhile.
	s.post(context.WithoutCancel(ctx), map[string]any{"type": "control_response", "response": response})
}

// errSilent is returned where no answer must be given.
var errSilent = errors.New("no answer")

// respond runs the callback that r is for. A panic of it is its error.
func (s *Session) respond(ctx context.Context, request controlRequest) (answer json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the host's callback panicked: %v", p)
		}
	}()
	var r struct {
		Subtype    string          `json:"subtype"`
		CallbackID string          `json:"callback_id"`
		Input      json.RawMessage `json:"input"`
		ToolUseID  string          `json:"tool_use_id"`
		Server     string          `json:"server_name"`
		Message    json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal(request.Request, &r); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	switch r.Subtype {
	case "can_use_tool":
		return s.permit(ctx, request)
	case "hook_callback":
		hook, ok := s.hooks[r.CallbackID]
		if !ok {
			return nil, fmt.Errorf("there is no hook %q", r.CallbackID)
		}
		return hook(ctx, r.Input, r.ToolUseID)
	case "mcp_message":
		reply, err := s.bridge.handle(ctx, r.Server, r.Message)
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]json.RawMessage{"mcp_response": reply})
	case "elicitation":
		return s.elicit(ctx, request.Request)
	case "request_user_dialog":
		return s.dialog(ctx, request.Request)
	case "remote_tool_call", "remote_plumbing_call", "remote_tools_probe", "remote_tools_reannounce":
		return nil, errSilent
	}
	return nil, &UnsupportedError{Request: r.Subtype}
}

func (s *Session) permit(ctx context.Context, request controlRequest) (json.RawMessage, error) {
	r, err := decodePermissionRequest(request.Request)
	if err != nil {
		return nil, err
	}
	r.ID = request.ID
	d, err := s.opts.decide(ctx, r)
	if err != nil {
		return nil, err
	}
	answer, err := encodeDecision(r, d)
	if answer == nil && err == nil {
		return nil, errSilent // it is answered elsewhere
	}
	return answer, err
}

func (s *Session) elicit(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	e, err := decodeElicitation(request)
	if err != nil {
		return nil, err
	}
	var reply *ElicitationReply // nil declines
	if s.opts.OnElicitation != nil {
		if reply, err = s.opts.OnElicitation(ctx, e); err != nil {
			return nil, err
		}
	}
	return encodeElicitation(reply)
}

// dialog stays silent without a reply: another client may give one.
func (s *Session) dialog(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	d, err := decodeDialog(request)
	if err != nil {
		return nil, err
	}
	if s.opts.OnDialog == nil {
		return nil, errSilent
	}
	reply, err := s.opts.OnDialog(ctx, d)
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, errSilent
	}
	return encodeDialog(reply)
}

// forward delivers a message of an in-process server to the CLI, once that
// knows of the server.
func (s *Session) forward(ctx context.Context, server string, message json.RawMessage) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.gone:
		return s.over()
	}
	return s.call(ctx, "mcp_message", map[string]any{"server_name": server, "message": message}, nil)
}

// SetMCPServers replaces the servers that an earlier call added, and all that
// live in this process, also those of Options.MCPServers, by servers. It
// returns what changed and the servers that could not be reached, by name.
//
// Servers in this process that have the names of those in Options.MCPServers, and offer
// the same, take their places without a word to the CLI.
func (s *Session) SetMCPServers(ctx context.Context, servers map[string]MCPServer) (*MCPChange, error) {
	wire, err := encodeServers(servers)
	if err != nil {
		return nil, err
	}
	o := Options{MCPServers: servers}
	for name, in := range o.inProcess() {
		wire[name] = in.wire(name)
	}
	ours := inProcessServers(o.inProcess())
	same := maps.EqualFunc(s.opts.inProcess(), o.inProcess(), func(a, b *InProcess) bool {
		return a.Timeout == b.Timeout && slices.Equal(a.Tools, b.Tools)
	})
	if same && len(ours) == len(servers) && s.bridge.swap(ctx, ours) {
		return &MCPChange{}, nil
	}
	s.bridge.set(ours)
	var change MCPChange
	if err := s.call(ctx, "mcp_set_servers", map[string]any{"servers": wire}, &change); err != nil {
		return nil, err
	}
	return &change, nil
}

// MCPChange is what SetMCPServers did.
type MCPChange struct {
	Added   []string          `json:"added"`
	Removed []string          `json:"removed"`
	Errors  map[string]string `json:"errors"` // why a server could not be reached, by name
}
