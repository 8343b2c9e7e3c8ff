package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// tool makes a tool of what the server offers.
func (sv *server) tool(t *mcp.Tool) (Tool, error) {
	name := claude.ToolName(sv.name, t.Name)
	schema := json.RawMessage(`{"type":"object"}`)
	if t.InputSchema != nil {
		data, err := json.Marshal(t.InputSchema)
		if err != nil {
			return Tool{}, err
		}
		var object struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(data, &object) != nil || object.Type != "object" {
			return Tool{}, errors.New("its input is no object")
		}
		schema = data
	}
	return Tool{
		Name: name, Description: clip(t.Description, maxMCPDescription), Schema: schema,
		ReadOnly: t.Annotations != nil && t.Annotations.ReadOnlyHint,
		Run: func(ctx context.Context, input json.RawMessage) (Result, error) {
			return sv.call(ctx, name, t.Name, input)
		},
	}, nil
}

// native makes a tool of one in this process.
func (sv *server) native(t agent.Tool) Tool {
	return Tool{
		Name: claude.ToolName(sv.name, t.Name), Description: clip(t.Description, maxMCPDescription), Schema: t.Schema, ReadOnly: t.ReadOnly,
		Run: func(ctx context.Context, input json.RawMessage) (Result, error) {
			text, err := t.Call(ctx, input)
			switch {
			case err != nil && ctx.Err() != nil:
				return Result{}, context.Cause(ctx)
			case err != nil:
				return Result{}, tell("%s", err)
			}
			return Result{Text: text}, nil
		},
	}
}

// call calls a tool. A server that had ended is connected to again, once, and
// the result says so. One that ends during the call is not called again: what
// was asked may have been done.
func (sv *server) call(ctx context.Context, name, tool string, input json.RawMessage) (Result, error) {
	var arguments map[string]any
	if len(input) > 0 {
		if err := json.Unmarshal(input, &arguments); err != nil {
			return Result{}, inputError(name, []string{"The input is not a JSON object: " + err.Error()})
		}
	}
	if limit := sv.all.opts.CallTimeout; limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, fmt.Errorf("calling %s took more than %s", name, limit))
		defer stop()
	}
	c, again, err := sv.connected(ctx)
	if err != nil {
		return Result{}, err
	}
	answer, err := sv.send(ctx, c, name, tool, arguments)
	if errors.Is(err, mcp.ErrSessionMissing) && ctx.Err() == nil {
		// It was started anew, and refused the call because it does not know us.
		c.breaks()
		if c, again, err = sv.connected(ctx); err != nil {
			return Result{}, err
		}
		answer, err = sv.send(ctx, c, name, tool, arguments)
	}
	note := ""
	if again {
		note = fmt.Sprintf("(MCP server %s had ended and was started again: what it knew of earlier calls is gone.)", sv.name)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case err != nil && (c.ended() || c.lost(err)):
		c.breaks()
		return Result{}, fmt.Errorf("MCP server %s ended during the call: %w. It is started again at the next call", sv.name, c.explain(err))
	case err != nil:
		return Result{}, err
	}
	result := resultOf(answer)
	result.Text = join(note, result.Text)
	if answer.IsError {
		return Result{}, tell("%s", join(result.Text, picturesLost(result.Blocks)))
	}
	return result, nil
}

func (sv *server) send(ctx context.Context, c *connection, name, tool string, arguments map[string]any) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	if sv.all.opts.Progress != nil {
		token := c.watch(name)
		defer c.unwatch(token)
		params.SetProgressToken(token)
	}
	return c.session.CallTool(ctx, params)
}

// lost tells whether err means that the server is not there any more. What the
// server itself answers does not, nor does trouble on the way to a URL.
func (c *connection) lost(err error) bool {
	if errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, mcp.ErrSessionMissing) {
		return true
	}
	_, answered := errors.AsType[*jsonrpc.Error](err)
	return !answered && c.idle == nil
}

func (c *connection) breaks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
}

func picturesLost(blocks []claude.Block) string {
	if len(blocks) == 0 {
		return ""
	}
	return fmt.Sprintf("(%d pictures or documents left out)", len(blocks))
}

// watch returns a token for the progress of a call.
func (c *connection) watch(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	token := fmt.Sprint("call-", c.next)
	c.calls[token] = name
	return token
}

func (c *connection) unwatch(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, token)
}

func (sv *server) progress(c *connection, p *mcp.ProgressNotificationParams) {
	if p == nil || sv.all.opts.Progress == nil {
		return
	}
	token, _ := p.ProgressToken.(string)
	c.mu.Lock()
	name, ok := c.calls[token]
	c.mu.Unlock()
	if ok {
		sv.all.opts.Progress(Progress{Tool: name, Done: p.Progress, Total: p.Total, Message: clip(p.Message, 1000)})
	}
}

// maxMCPBlocks is how many pictures and documents of one result are shown.
const maxMCPBlocks = 20

// resultOf translates what a server answered.
func resultOf(answer *mcp.CallToolResult) Result {
	var r Result
	var texts []string
	show := func(b claude.Block, otherwise string) {
		if b == nil || len(r.Blocks) == maxMCPBlocks {
			texts = append(texts, otherwise)
			return
		}
		r.Blocks = append(r.Blocks, b)
	}
	for _, content := range answer.Content {
		switch content := content.(type) {
		case *mcp.TextContent:
			texts = append(texts, content.Text)
		case *mcp.ImageContent:
			show(picture(content.Data), fmt.Sprintf("[Image of type %s, %s, which cannot be shown]", clip(content.MIMEType, 100), sizeText(int64(len(content.Data)))))
		case *mcp.AudioContent:
			texts = append(texts, fmt.Sprintf("[Audio of type %s, %s]", clip(content.MIMEType, 100), sizeText(int64(len(content.Data)))))
		case *mcp.ResourceLink:
			texts = append(texts, strings.TrimSpace(fmt.Sprintf("[Resource link: %s] %s %s", content.Name, content.URI, content.Description)))
		case *mcp.EmbeddedResource:
			if content.Resource == nil {
				continue
			}
			text, block := resource(content.Resource)
			if block != nil {
				show(block, text)
			} else {
				texts = append(texts, text)
			}
		default:
			if data, err := json.Marshal(content); err == nil {
				texts = append(texts, string(data))
			}
		}
	}
	if answer.StructuredContent != nil {
		r.Data = answer.StructuredContent
		if len(texts) == 0 && len(r.Blocks) == 0 {
			if data, err := json.Marshal(answer.StructuredContent); err == nil {
				texts = append(texts, string(data))
			}
		}
	}
	r.Text = strings.ToValidUTF8(strings.Join(texts, "\n"), "\uFFFD")
	return r
}

// picture returns the image in data, or nil if the API does not take it.
func picture(data []byte) claude.Block {
	if len(data) > maxImage {
		return nil
	}
	image, err := claude.NewImage(data)
	if err != nil {
		return nil
	}
	return image
}

// resource returns what a resource says, or shows.
func resource(r *mcp.ResourceContents) (string, claude.Block) {
	if r.Blob == nil {
		return fmt.Sprintf("[Resource from %s]\n%s", r.URI, r.Text), nil
	}
	text := fmt.Sprintf("[Resource from %s of type %s, %s]", r.URI, clip(r.MIMEType, 100), sizeText(int64(len(r.Blob))))
	if b := picture(r.Blob); b != nil {
		return text, b
	}
	if strings.HasPrefix(string(r.Blob[:min(5, len(r.Blob))]), "%PDF-") && len(r.Blob) <= maxPDF {
		return text, claude.NewPDF(r.Blob)
	}
	return text, nil
}
