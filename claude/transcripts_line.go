package claude

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// maxTranscriptLine is the longest line of a transcript that is read. Longer
// ones are skipped like corrupt ones.
const maxTranscriptLine = 64 << 20

// transcriptLine is one entry of a transcript: what this package looks at,
// and its bytes. Fields of the wrong type stay zero.
type transcriptLine struct {
	Type        string `json:"type"`
	Subtype     string `json:"subtype"`
	UUID        string `json:"uuid"`
	ParentUUID  string `json:"parentUuid"`
	SessionID   string `json:"sessionId"`
	Timestamp   string `json:"timestamp"`
	Cwd         string `json:"cwd"`
	GitBranch   string `json:"gitBranch"`
	Entrypoint  string `json:"entrypoint"`
	TeamName    string `json:"teamName"`
	SourceTool  string `json:"sourceToolAssistantUUID"`
	IsSidechain bool   `json:"isSidechain"`
	IsMeta      bool   `json:"isMeta"`
	IsCompact   bool   `json:"isCompactSummary"`

	// Each belongs to one type of metadata entry.
	CustomTitle  string          `json:"customTitle"`
	AITitle      string          `json:"aiTitle"`
	Tag          string          `json:"tag"`
	Summary      string          `json:"summary"`
	LastPrompt   string          `json:"lastPrompt"`
	RelocatedCwd string          `json:"relocatedCwd"`
	ContinuedIn  string          `json:"continuedInSessionId"`
	Replacements json.RawMessage `json:"replacements"`

	Message    json.RawMessage `json:"message"`
	Attachment json.RawMessage `json:"attachment"`
	Compact    compactMetadata `json:"compactMetadata"`

	raw json.RawMessage
}

// compactMetadata says which messages a compaction kept: Messages in newer
// CLIs, Segment in older ones.
type compactMetadata struct {
	Messages struct {
		Anchor string   `json:"anchorUuid"`
		UUIDs  []string `json:"uuids"`
	} `json:"preservedMessages"`
	Segment struct {
		Head   string `json:"headUuid"`
		Anchor string `json:"anchorUuid"`
		Tail   string `json:"tailUuid"`
	} `json:"preservedSegment"`
}

// contentBlock is what this package looks at in a block of a message.
type contentBlock struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	ToolUseID string `json:"tool_use_id"`
}

// parseTranscriptLine reports false for what is not a JSON object. It keeps
// raw, and only checks it as far as needed to read it.
func parseTranscriptLine(raw []byte) (*transcriptLine, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	var l transcriptLine
	if !unmarshalLoosely(raw, &l) {
		return nil, false
	}
	l.raw = raw
	return &l, true
}

// unmarshalLoosely is json.Unmarshal for foreign data: a field of an unexpected
// type stays zero, only broken JSON is refused.
func unmarshalLoosely(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return true
	}
	return err == nil
}

// parseCutLine reads what it can of a line that lacks its end.
func parseCutLine(raw []byte) (*transcriptLine, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var whole jsonObject
	for {
		key, err := dec.Token()
		if err != nil {
			break
		}
		name, ok := key.(string)
		if !ok {
			break
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		whole.set(name, value)
	}
	return parseTranscriptLine(whole.bytes())
}

// conversation tells whether l is part of the chain of messages.
func (l *transcriptLine) conversation() bool {
	switch l.Type {
	case "user", "assistant", "system", "attachment", "progress":
		return l.UUID != ""
	}
	return false
}

// spoken tells whether l is a message of the user or the model.
func (l *transcriptLine) spoken() bool { return l.Type == "user" || l.Type == "assistant" }

// time returns the zero time if the entry has none that can be read.
func (l *transcriptLine) time() time.Time {
	t, err := time.Parse(time.RFC3339, l.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

// messageID is the id of the API response that an assistant entry is part of.
func (l *transcriptLine) messageID() string {
	var m struct {
		ID string `json:"id"`
	}
	unmarshalLoosely(l.Message, &m)
	return m.ID
}

// content returns the blocks of the entry's message. A plain string is one
// block of text.
func (l *transcriptLine) content() []contentBlock {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if !unmarshalLoosely(l.Message, &m) {
		return nil
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []contentBlock{{Type: "text", Text: text}}
	}
	var blocks []contentBlock
	unmarshalLoosely(m.Content, &blocks)
	return blocks
}

// toolResults returns the ids of the tool calls that the entry answers.
func (l *transcriptLine) toolResults() []string {
	if l.Type != "user" {
		return nil
	}
	var ids []string
	for _, b := range l.content() {
		if b.Type == "tool_result" {
			ids = append(ids, b.ToolUseID)
		}
	}
	return ids
}

// readTranscript parses the lines of r, and skips blank, corrupt and overlong
// ones.
func readTranscript(ctx context.Context, r io.Reader) ([]*transcriptLine, error) {
	var lines []*transcriptLine
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	overlong := false
	for {
		part, err := br.ReadSlice('\n')
		if overlong = overlong || len(line)+len(part) > maxTranscriptLine; overlong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			continue
		}
		if l, ok := parseTranscriptLine(line); ok {
			lines = append(lines, l)
		}
		line, overlong = nil, false // the line owns its bytes now
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// parseEntries parses what a store returned, and skips what is not an object.
func parseEntries(entries []json.RawMessage) []*transcriptLine {
	lines := make([]*transcriptLine, 0, len(entries))
	for _, e := range entries {
		if l, ok := parseTranscriptLine(e); ok {
			lines = append(lines, l)
		}
	}
	return lines
}
