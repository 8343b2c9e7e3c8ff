package claude

import (
	"encoding/json"
	"strings"
)

// Block is one part of the content of a message. The set is closed: every
// block is a pointer to a [Text], [Thinking], [RedactedThinking], [ToolUse],
// [ToolResult], [ServerToolUse], [ServerToolResult], [MCPToolUse],
// [MCPToolResult], [Image] or [Document], and what has no type of its own is an
// [UnknownBlock].
//
// [Text], [Image], [Document], [ToolResult] and [UnknownBlock] can also be
// sent, in a [UserMessage]: these marshal to their wire form.
type Block interface {
	// field reads the value of key, or tells that it does not know key.
	field(s *scanner, key string) bool
}

// Text is plain text.
type Text struct {
	Text      string
	Citations json.RawMessage // array of citations; nil if there are none
}

// Thinking is what the model thought.
type Thinking struct {
	Thinking  string // empty if the model does not show it
	Signature string // proves it to the API; some providers send none
}

// RedactedThinking is thinking that only the API can read.
type RedactedThinking struct {
	Data string
}

// ToolUse is a call of a tool that runs on the host's side.
type ToolUse struct {
	ID    string
	Name  string
	Input json.RawMessage // nil if absent
}

// ToolResult answers a [ToolUse].
type ToolResult struct {
	ToolUseID string
	Content   []Block // a plain string is one Text
	IsError   bool
}

// Text returns the text blocks of the result, joined.
func (b *ToolResult) Text() string { return joinText(b.Content) }

// ServerToolUse is a call of a tool that the API runs, such as web_search.
type ServerToolUse struct {
	ID    string
	Name  string
	Input json.RawMessage // nil if absent
}

// ServerToolResult answers a [ServerToolUse].
type ServerToolResult struct {
	Type      string // such as "web_search_tool_result"
	ToolUseID string
	Content   json.RawMessage // its shape depends on Type; nil if absent
}

// MCPToolUse is a call of an MCP tool that the API runs.
type MCPToolUse struct {
	ID         string
	Name       string
	ServerName string
	Input      json.RawMessage // nil if absent
}

// MCPToolResult answers an [MCPToolUse].
type MCPToolResult struct {
	ToolUseID string
	Content   []Block // a plain string is one Text
	IsError   bool
}

// Image is a picture.
type Image struct {
	Source Source
}

// Document is a PDF or a text.
type Document struct {
	Source  Source
	Title   string // optional
	Context string // optional: what the model should know about it
}

// Source is where an image or a document comes from.
type Source struct {
	Type      string `json:"type"`                 // "base64", "text", "url" or "file"; says which fields are set
	MediaType string `json:"media_type,omitempty"` // of base64 and text
	Data      string `json:"data,omitempty"`       // of base64 and text
	URL       string `json:"url,omitempty"`
	FileID    string `json:"file_id,omitempty"`
}

// UnknownBlock is a block that this package has no type for.
type UnknownBlock struct {
	Type string          // empty if the block has none
	Raw  json.RawMessage // the whole block
}

func joinText(blocks []Block) string {
	var parts []string
	for _, b := range blocks {
		if t, ok := b.(*Text); ok {
			parts = append(parts, t.Text)
		}
	}
	return strings.Join(parts, "")
}

// blocks reads content: an array of blocks, or a string, which is one Text.
func (s *scanner) blocks() (list []Block) { return s.blocksIn(&place{}) }

// place is room for a list of one text, as most are.
type place struct {
	text Text
	list [1]Block
}

// blocksIn puts the first block of a list into p, if it is a text.
func (s *scanner) blocksIn(p *place) (list []Block) {
	if s.token() == '"' {
		p.text = Text{Text: s.quoted()}
		return append(p.list[:0], &p.text)
	}
	for ok := s.array(); ok; ok = s.more(']') {
		if len(list) == 0 {
			list = append(p.list[:0], s.block(&p.text))
		} else {
			list = append(list, s.block(nil))
		}
	}
	return list
}

// maxBlockDepth bounds how deep blocks may nest; CLI 2.1.325 nests them at
// depth 6. Each level is looked at twice, first for its type.
const maxBlockDepth = 16

// block reads a block. If it is a text it is put where room says; nil makes a new
// one.
func (s *scanner) block(room *Text) Block {
	if c := s.token(); c != '{' {
		s.note("content block", c)
		return &UnknownBlock{Raw: json.RawMessage(s.span())}
	}
	start := s.pos
	typ := s.blockType()
	if s.depth > maxBlockDepth {
		return &UnknownBlock{Type: typ, Raw: json.RawMessage(s.span())}
	}
	var b Block = room
	if typ != "text" || room == nil {
		b = newBlock(typ)
	}
	last := ""
	for ok := s.object(); ok; ok = s.more('}') {
		if key := s.key(); key == "type" {
			last = s.str()
		} else if !b.field(s, key) {
			s.skip()
		}
	}
	if _, unknown := b.(*UnknownBlock); unknown || last != typ {
		// A block of two types is none that we know.
		return &UnknownBlock{Type: last, Raw: json.RawMessage(s.text[start:s.pos])}
	}
	return b
}

// blockType returns the first type of the block that s stands at.
func (s *scanner) blockType() string {
	if strings.HasPrefix(s.text[s.pos:], `{"type":"text"`) {
		return "text" // as the CLI writes most of them
	}
	ahead := *s
	for ok := ahead.object(); ok; ok = ahead.more('}') {
		if ahead.key() == "type" {
			return ahead.str()
		}
		ahead.skip()
	}
	return ""
}

func newBlock(typ string) Block {
	switch typ {
	case "text":
		return new(Text)
	case "thinking":
		return new(Thinking)
	case "redacted_thinking":
		return new(RedactedThinking)
	case "tool_use":
		return new(ToolUse)
	case "tool_result":
		return new(ToolResult)
	case "server_tool_use":
		return new(ServerToolUse)
	case "mcp_tool_use":
		return new(MCPToolUse)
	case "mcp_tool_result":
		return new(MCPToolResult)
	case "image":
		return new(Image)
	case "document":
		return new(Document)
	}
	if strings.HasSuffix(typ, "_tool_result") {
		return &ServerToolResult{Type: typ}
	}
	return &UnknownBlock{Type: typ}
}

func (b *Text) field(s *scanner, key string) bool {
	switch key {
	case "text":
		b.Text = s.str()
	case "citations":
		b.Citations = s.raw()
	default:
		return false
	}
	return true
}

func (b *Thinking) field(s *scanner, key string) bool {
	switch key {
	case "thinking":
		b.Thinking = s.str()
	case "signature":
		b.Signature = s.str()
	default:
		return false
	}
	return true
}

func (b *RedactedThinking) field(s *scanner, key string) bool {
	if key != "data" {
		return false
	}
	b.Data = s.str()
	return true
}

func (b *ToolUse) field(s *scanner, key string) bool {
	switch key {
	case "id":
		b.ID = s.str()
	case "name":
		b.Name = s.str()
	case "input":
		b.Input = s.raw()
	default:
		return false
	}
	return true
}

func (b *ToolResult) field(s *scanner, key string) bool {
	switch key {
	case "tool_use_id":
		b.ToolUseID = s.str()
	case "content":
		b.Content = s.blocks()
	case "is_error":
		b.IsError = s.boolean()
	default:
		return false
	}
	return true
}

func (b *ServerToolUse) field(s *scanner, key string) bool {
	return (*ToolUse)(b).field(s, key)
}

func (b *ServerToolResult) field(s *scanner, key string) bool {
	switch key {
	case "tool_use_id":
		b.ToolUseID = s.str()
	case "content":
		b.Content = s.raw()
	default:
		return false
	}
	return true
}

func (b *MCPToolUse) field(s *scanner, key string) bool {
	switch key {
	case "id":
		b.ID = s.str()
	case "name":
		b.Name = s.str()
	case "server_name":
		b.ServerName = s.str()
	case "input":
		b.Input = s.raw()
	default:
		return false
	}
	return true
}

func (b *MCPToolResult) field(s *scanner, key string) bool {
	return (*ToolResult)(b).field(s, key)
}

func (b *Image) field(s *scanner, key string) bool {
	if key != "source" {
		return false
	}
	b.Source = s.source()
	return true
}

func (b *Document) field(s *scanner, key string) bool {
	switch key {
	case "source":
		b.Source = s.source()
	case "title":
		b.Title = s.str()
	case "context":
		b.Context = s.str()
	default:
		return false
	}
	return true
}

func (*UnknownBlock) field(*scanner, string) bool { return false }

func (s *scanner) source() (src Source) {
	for ok := s.object(); ok; ok = s.more('}') {
		switch s.key() {
		case "type":
			src.Type = s.str()
		case "media_type":
			src.MediaType = s.str()
		case "data":
			src.Data = s.str()
		case "url":
			src.URL = s.str()
		case "file_id":
			src.FileID = s.str()
		default:
			s.skip()
		}
	}
	return src
}
