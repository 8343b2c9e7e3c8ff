package claude

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// UserMessage is what a host sends: a prompt, or content to add to the
// conversation. It marshals to the line that the CLI reads, without newline.
// A message sent while a turn runs waits for it; several may become one turn.
type UserMessage struct {
	Text   string  // comes before Blocks; empty if these say all
	Blocks []Block // Text, Image, Document, ToolResult or UnknownBlock

	// UUID names the message in answers and makes it cancellable while it
	// waits. Empty leaves it without a name.
	UUID string

	ParentToolUseID string // subagent that it is for; empty means the main loop
	SessionID       string // cosmetic; empty is fine
	Priority        string // "now", "next" or "later"; empty leaves it to the CLI
	Human           bool   // a human wrote it; CLI 2.1.210 and later take the host's word
	NoQuery         bool   // add it to the conversation without starting a turn

	// ClientComposed keeps the CLI, from 2.1.248 on, from expanding file
	// mentions and running slash commands in the text.
	ClientComposed bool
}

// MarshalJSON returns the wire form. It fails if there is no content, or a
// block that only the CLI can send.
func (m UserMessage) MarshalJSON() ([]byte, error) {
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}
	type origin struct {
		Kind string `json:"kind"`
	}
	wire := struct {
		Type            string  `json:"type"`
		Message         message `json:"message"`
		ParentToolUseID *string `json:"parent_tool_use_id"`
		SessionID       string  `json:"session_id"`
		UUID            string  `json:"uuid,omitempty"`
		Priority        string  `json:"priority,omitempty"`
		Origin          *origin `json:"origin,omitempty"`
		ShouldQuery     *bool   `json:"shouldQuery,omitempty"`
		ClientComposed  bool    `json:"client_composed,omitempty"`
	}{
		Type:           "user",
		Message:        message{Role: "user", Content: m.Text},
		SessionID:      m.SessionID,
		UUID:           m.UUID,
		Priority:       m.Priority,
		ClientComposed: m.ClientComposed,
	}
	if len(m.Blocks) > 0 {
		blocks := m.Blocks
		if m.Text != "" {
			blocks = append([]Block{&Text{Text: m.Text}}, blocks...)
		}
		if err := sendable(blocks); err != nil {
			return nil, err
		}
		wire.Message.Content = blocks
	} else if m.Text == "" {
		return nil, errors.New("user message has no content")
	}
	if m.ParentToolUseID != "" {
		wire.ParentToolUseID = &m.ParentToolUseID
	}
	if m.Human {
		wire.Origin = &origin{Kind: "human"}
	}
	if m.NoQuery {
		wire.ShouldQuery = new(false)
	}
	return json.Marshal(wire)
}

func sendable(blocks []Block) error {
	for _, b := range blocks {
		if _, ok := b.(json.Marshaler); !ok {
			return fmt.Errorf("user message: cannot send a %T", b)
		}
	}
	return nil
}

// NewImage returns the image in data, which must be PNG, JPEG, GIF or WebP:
// those the API takes.
func NewImage(data []byte) (*Image, error) {
	var media string
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		media = "image/png"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		media = "image/jpeg"
	case bytes.HasPrefix(data, []byte("GIF8")):
		media = "image/gif"
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		media = "image/webp"
	default:
		return nil, errors.New("image is none of PNG, JPEG, GIF, WebP")
	}
	return &Image{Source: inline(media, data)}, nil
}

// NewPDF returns the PDF in data as a document.
func NewPDF(data []byte) *Document {
	return &Document{Source: inline("application/pdf", data)}
}

func inline(media string, data []byte) Source {
	return Source{Type: "base64", MediaType: media, Data: base64.StdEncoding.EncodeToString(data)}
}

// MarshalJSON returns the wire form.
func (b *Text) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Citations json.RawMessage `json:"citations,omitempty"`
	}{"text", b.Text, b.Citations})
}

// MarshalJSON returns the wire form.
func (b *Image) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Source Source `json:"source"`
	}{"image", b.Source})
}

// MarshalJSON returns the wire form.
func (b *Document) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type    string `json:"type"`
		Source  Source `json:"source"`
		Title   string `json:"title,omitempty"`
		Context string `json:"context,omitempty"`
	}{"document", b.Source, b.Title, b.Context})
}

// MarshalJSON returns the wire form. It fails on content that only the CLI
// can send.
func (b *ToolResult) MarshalJSON() ([]byte, error) {
	if err := sendable(b.Content); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Type      string  `json:"type"`
		ToolUseID string  `json:"tool_use_id"`
		Content   []Block `json:"content,omitempty"`
		IsError   bool    `json:"is_error,omitempty"`
	}{"tool_result", b.ToolUseID, b.Content, b.IsError})
}

// MarshalJSON returns Raw.
func (b *UnknownBlock) MarshalJSON() ([]byte, error) { return b.Raw.MarshalJSON() }
