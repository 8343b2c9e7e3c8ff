package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// mcpFrame is a JSON-RPC message of the CLI.
type mcpFrame struct {
	Version json.RawMessage `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // as the CLI wrote it; nil if it is absent or no id
	Method  json.RawMessage `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`

	method string
}

// parseMCPFrame returns what it can read, the id above all, together with what
// is wrong with the message.
func parseMCPFrame(message json.RawMessage) (mcpFrame, error) {
	var f mcpFrame
	if err := json.Unmarshal(message, &f); err != nil {
		return mcpFrame{}, malformedMessage("%v", err)
	}
	if !legalID(f.ID) {
		f.ID = nil
	}
	if string(f.Version) != `"2.0"` {
		return f, malformedMessage("not version 2.0")
	}
	if f.Method == nil {
		if f.ID == nil || f.Result == nil && f.Error == nil {
			return f, malformedMessage("neither a method nor an answer")
		}
		return f, nil
	}
	if err := json.Unmarshal(f.Method, &f.method); err != nil || f.method == "" {
		return f, malformedMessage("the method is not a name")
	}
	return f, nil
}

func malformedMessage(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "malformed JSON-RPC message: " + fmt.Sprintf(format, args...)}
}

// legalID reports whether id is a string or a whole number.
func legalID(id json.RawMessage) bool {
	if len(id) == 0 {
		return false
	}
	return id[0] == '"' || strings.Trim(string(id), "-0123456789") == ""
}

func (f mcpFrame) isResponse() bool { return f.Method == nil }
func (f mcpFrame) isCall() bool     { return f.Method != nil && f.ID != nil }

// err returns the error in a response.
func (f mcpFrame) err() error {
	if f.Error == nil || string(f.Error) == "null" {
		return nil
	}
	wire := new(jsonrpc.Error)
	if err := json.Unmarshal(f.Error, wire); err != nil {
		return malformedMessage("%v", err)
	}
	return wire
}

// reply writes the answer to f. It fails if the bridge is closed.
func (f mcpFrame) reply(result json.RawMessage, err error) (json.RawMessage, error) {
	if errors.Is(err, errBridgeClosed) {
		return nil, err
	}
	answer := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result,omitempty"`
		Error   *jsonrpc.Error  `json:"error,omitempty"`
	}{Version: "2.0", ID: f.ID, Result: result, Error: wireError(err)}

	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // verbatim
	if err := enc.Encode(answer); err != nil {
		return nil, fmt.Errorf("encoding an MCP reply: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// wireError returns err as JSON-RPC writes it. An error without a code is an
// internal one.
func wireError(err error) *jsonrpc.Error {
	if err == nil {
		return nil
	}
	wire := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if coded, ok := errors.AsType[*jsonrpc.Error](err); ok {
		wire.Data = coded.Data
		if coded.Code != 0 {
			wire.Code = coded.Code
		}
	}
	return wire
}
