package claude

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// MessageOptions says which messages of a session to return. The zero value
// means all that the user and the model said.
type MessageOptions struct {
	Dir    string // see [Transcripts]
	System bool   // include system messages, such as the boundaries of compactions
	Limit  int    // at most so many; zero means all
	Offset int    // skip so many first
}

// Messages returns the conversation of a session from its start to its latest
// message: the branch that was taken last, with the results of parallel tool
// calls, and with what compactions kept in its place. Entries that cannot be
// read are left out. A session that is not there has no messages;
// [Transcripts.Info] says where it was sought.
func (t Transcripts) Messages(ctx context.Context, id string, opts MessageOptions) ([]TranscriptMessage, error) {
	lines, err := t.mainLines(ctx, id, opts.Dir)
	if err != nil {
		return nil, absent(err)
	}
	return page(conversation(lines, id, opts.System), opts.Offset, opts.Limit), nil
}

// conversation returns the messages of a session, of which lines are all.
func conversation(lines []*transcriptLine, id string, system bool) []TranscriptMessage {
	c := newChain(lines)
	c.relink()
	leaf := c.leaf()
	if leaf < 0 {
		leaf = c.lastSpoken() // only circles: any start is as good
	}
	var messages []TranscriptMessage
	for _, i := range c.withParallel(c.walk(leaf)) {
		l := c.lines[i]
		if l.IsMeta || l.IsSidechain || l.TeamName != "" {
			continue
		}
		if l.Type == "attachment" {
			if m, ok := queuedPrompt(l, id); ok {
				messages = append(messages, m)
			}
		} else if l.spoken() || l.Type == "system" && system {
			messages = append(messages, newTranscriptMessage(l, id))
		}
	}
	return messages
}

// absent drops the errors that mean "no such session".
func absent(err error) error {
	if errors.Is(err, ErrSessionNotFound) || errors.Is(err, ErrInvalidSessionID) {
		return nil
	}
	return err
}

// mainLines reads the transcript of a session, from the first of its copies.
func (t Transcripts) mainLines(ctx context.Context, id, dir string) (lines []*transcriptLine, err error) {
	if t.Store != nil {
		_, entries, err := t.storeSession(ctx, id, dir)
		return parseEntries(entries), err
	}
	err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		if lines, err = p.transcript(ctx, copies[0].main()); err != nil {
			return fmt.Errorf("reading session %s: %w", id, err)
		}
		return nil
	})
	return lines, err
}

func newTranscriptMessage(l *transcriptLine, id string) TranscriptMessage {
	return TranscriptMessage{
		Type:      l.Type,
		UUID:      l.UUID,
		SessionID: cmp.Or(l.SessionID, id),
		Timestamp: l.time(),
		Message:   l.Message,
		Raw:       l.raw,
	}
}

// queuedPrompt makes a user message of a prompt that was typed while the model
// worked and that the CLI recorded as an attachment (seen in 2.1.325).
func queuedPrompt(l *transcriptLine, id string) (TranscriptMessage, bool) {
	var a struct {
		Type   string          `json:"type"`
		Prompt json.RawMessage `json:"prompt"`
		Mode   string          `json:"commandMode"`
	}
	unmarshalLoosely(l.Attachment, &a)
	if a.Type != "queued_command" || a.Mode != "" && a.Mode != "prompt" {
		return TranscriptMessage{}, false
	}
	if len(a.Prompt) == 0 || a.Prompt[0] != '"' && a.Prompt[0] != '[' {
		return TranscriptMessage{}, false
	}
	m := newTranscriptMessage(l, id)
	m.Type = "user"
	var message jsonObject
	message.setString("role", "user")
	message.set("content", a.Prompt)
	m.Message = message.bytes()
	return m, true
}
