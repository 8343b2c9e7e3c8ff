package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
)

// answer is what the model says to one request, as it grows.
type answer struct {
	id, model, request string
	blocks             []json.RawMessage // complete ones
	partial            *growing          // the one that grows; nil if none does
	stop               string            // empty until the answer is complete
	stopDetails        json.RawMessage
	tokens             tokens
	ended              bool
	size               int // bytes of all events
}

// growing is a block while it is streamed.
type growing struct {
	start  map[string]json.RawMessage
	kind   string
	text   strings.Builder // of a text, a thought, or the input of a call
	sign   strings.Builder
	quotes []json.RawMessage
}

var (
	errIdle = errors.New("the API sent nothing for too long")
	errCut  = errors.New("the answer ended in the middle")
	errHuge = fmt.Errorf("the answer is larger than %d bytes, or nested deeper than %d", maxAnswer, maxDepth)
)

// What no answer needs, and what would break whoever reads it.
const (
	maxAnswer = 48 << 20 // bytes
	maxDepth  = 200      // objects and lists in each other
)

// drainTime is how long the end of a stream may take behind the end of the
// answer.
const drainTime = 100 * time.Millisecond

// deep tells whether JSON is nested deeper than maxDepth.
func deep(raw []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// client makes requests of all agents.
type client struct {
	api  sdk.Client
	idle time.Duration
}

func newClient(h *http.Client, idle time.Duration) *client {
	return &client{
		api:  sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithHTTPClient(h), option.WithMaxRetries(0)),
		idle: idle,
	}
}

// stream sends the request once. It calls each with every event, and grown with
// every block when it is complete. The answer is there also when it fails, as
// far as it came.
func (c *client) stream(ctx context.Context, opts []option.RequestOption, r *request, each func(json.RawMessage), grown func(*answer, json.RawMessage)) (*answer, error) {
	a := &answer{model: r.Model}
	body, err := r.encode()
	if err != nil {
		return a, fmt.Errorf("writing the request: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := time.AfterFunc(c.idle, func() { stop(errIdle) })
	defer watch.Stop()

	// As MessageService.NewStreaming does it, but that the body is sent as it is, and
	// events come as they are.
	var response *http.Response
	err = c.api.Post(ctx, "v1/messages", body, &response, opts...)
	events := ssestream.NewStream[json.RawMessage](ssestream.NewDecoder(response), err)
	defer events.Close()
	if response != nil {
		a.request = response.Header.Get("Request-Id")
	}
	for events.Next() {
		watch.Reset(c.idle)
		raw := events.Current()
		if a.size += len(raw); a.size > maxAnswer || deep(raw) {
			return a, errHuge
		}
		block, err := a.take(raw)
		if err != nil {
			return a, fmt.Errorf("reading the answer: %w", err)
		}
		if block != nil {
			grown(a, block)
		}
		each(raw)
		if a.ended { // read to the end, so that the connection can be used again
			watch.Reset(drainTime)
			for events.Next() {
			}
			return a, nil
		}
	}
	switch err := events.Err(); {
	case errors.Is(context.Cause(ctx), errIdle):
		return a, errIdle
	case err != nil:
		return a, err
	}
	return a, errCut
}

// take adds an event to the answer. It returns the block that the event
// completed, if it did.
func (a *answer) take(raw json.RawMessage) (json.RawMessage, error) {
	var e struct {
		Type    string `json:"type"`
		Message struct {
			ID    string   `json:"id"`
			Model string   `json:"model"`
			Usage apiUsage `json:"usage"`
		} `json:"message"`
		Block map[string]json.RawMessage `json:"content_block"`
		Delta struct {
			Type      string          `json:"type"`
			Text      string          `json:"text"`
			Thinking  string          `json:"thinking"`
			Signature string          `json:"signature"`
			JSON      string          `json:"partial_json"`
			Citation  json.RawMessage `json:"citation"`
			Stop      *string         `json:"stop_reason"`
			Details   json.RawMessage `json:"stop_details"`
		} `json:"delta"`
		Usage apiUsage `json:"usage"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	switch e.Type {
	case "message_start":
		a.id = e.Message.ID
		if e.Message.Model != "" {
			a.model = e.Message.Model
		}
		a.tokens.take(e.Message.Usage)
	case "content_block_start":
		a.partial = &growing{start: e.Block}
		json.Unmarshal(e.Block["type"], &a.partial.kind)
		for _, key := range []string{"text", "thinking"} {
			var begun string
			if json.Unmarshal(e.Block[key], &begun) == nil {
				a.partial.text.WriteString(begun)
			}
		}
		var signed string
		if json.Unmarshal(e.Block["signature"], &signed) == nil {
			a.partial.sign.WriteString(signed)
		}
	case "content_block_delta":
		if a.partial == nil {
			return nil, errors.New("a piece came without its block")
		}
		a.partial.text.WriteString(e.Delta.Text + e.Delta.Thinking + e.Delta.JSON)
		a.partial.sign.WriteString(e.Delta.Signature)
		if e.Delta.Citation != nil {
			a.partial.quotes = append(a.partial.quotes, e.Delta.Citation)
		}
	case "content_block_stop":
		if a.partial == nil {
			return nil, errors.New("a block ended that did not begin")
		}
		block, err := a.partial.whole()
		if err != nil {
			return nil, err
		}
		a.blocks, a.partial = append(a.blocks, block), nil
		return block, nil
	case "message_delta":
		if e.Delta.Stop != nil {
			a.stop = *e.Delta.Stop
		}
		if len(e.Delta.Details) > 0 && string(e.Delta.Details) != "null" {
			a.stopDetails = e.Delta.Details
		}
		a.tokens.take(e.Usage)
	case "message_stop":
		a.ended = true
	}
	return nil, nil
}

// badInput is the key under which stands what a model wrote as the input of a
// call if that is not a JSON object.
const badInput = "INVALID_JSON"

// whole returns the complete block.
func (g *growing) whole() (json.RawMessage, error) {
	var err error
	set := func(key string, value any) {
		raw, failed := json.Marshal(value)
		err = errors.Join(err, failed)
		g.start[key] = raw
	}
	switch text := g.text.String(); g.kind {
	case "text":
		set("text", text)
		if g.quotes != nil {
			set("citations", g.quotes)
		}
	case "thinking":
		set("thinking", text)
		set("signature", g.sign.String())
	case "tool_use", "server_tool_use", "mcp_tool_use":
		switch {
		case text == "" && isObject(g.start["input"]):
		case text == "":
			set("input", struct{}{})
		case isObject(json.RawMessage(text)) && !deep([]byte(text)):
			g.start["input"] = json.RawMessage(text)
		default:
			set("input", map[string]string{badInput: text})
		}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(g.start)
}

// cutCalls removes calls that a limit on tokens cut in the middle.
func (a *answer) cutCalls() {
	if a.stop != "max_tokens" {
		return
	}
	kept := a.blocks[:0]
	for _, raw := range a.blocks {
		var b block
		if json.Unmarshal(raw, &b) == nil && b.Type == "tool_use" && malformed(b.Input) {
			continue
		}
		kept = append(kept, raw)
	}
	a.blocks = kept
}

// malformed tells whether the input of a call is one that whole could not read.
func malformed(input json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(input, &object) == nil && len(object) == 1 && object[badInput] != nil
}

// spoken returns the texts of an answer that was cut short, complete or not.
func (a *answer) spoken() (blocks []json.RawMessage) {
	for _, raw := range a.blocks {
		var b block
		if json.Unmarshal(raw, &b) == nil && b.Type == "text" && b.Text != "" {
			blocks = append(blocks, raw)
		}
	}
	if a.partial != nil && a.partial.kind == "text" && a.partial.text.Len() > 0 {
		blocks = append(blocks, textBlock(a.partial.text.String()))
	}
	return blocks
}
