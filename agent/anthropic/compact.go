package anthropic

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// What the model is asked when a conversation becomes too long, and how the
// answer stands in what is left of it.
const (
	summaryPrompt = `This conversation is about to be shortened: everything above will be replaced by what you write now. Write it for yourself, so that the work can go on without anything that is needed. In this order:

1. What was asked for, in all its parts, and what was said about how it is to be done.
2. What was found out: facts, names, numbers, errors and their causes.
3. What was done: files that were read, written or changed, and what is in them that matters; commands that were run, and what came of them.
4. What is under way, what is still to do, and what comes next.

Write only that, inside <summary></summary>. Call no tools.`

	summaryIntro = "This session is being continued from a previous conversation that ran out of context. The summary below covers the earlier portion of the conversation.\n\nSummary:\n"
	summaryOutro = "\n\nContinue from where it left off, without asking further questions and without mentioning the summary."
)

// How much is left alone.
const (
	keptMessages = 6   // the newest, whose results are not dropped
	smallResult  = 400 // bytes; a result of no more is not worth dropping
)

var summaryTags = pattern(`(?s)<summary>(.*)</summary>`)

// limit is how many tokens a conversation may have.
func (t *turn) limit() int {
	window := t.s.p.prices.window(t.model)
	return max(min(int(t.s.p.opts.CompactAt*float64(window)), window-t.maxTokens()), window/4)
}

// compact shortens the conversation if it is too long, or if it must: first old
// results of tools are dropped; if that is not enough, the older part becomes a
// summary. If the summary fails, the conversation stays as it is. Its error is
// one of the records.
func (t *turn) compact(ctx context.Context, must bool) error {
	s, limit, start := t.s, t.limit(), time.Now()
	before := s.conv.size()
	if before < limit && !must {
		t.refills = 0
		return nil
	}
	if h := s.hookPreCompact(ctx); h.block || h.stop {
		return nil
	}
	t.refills++
	t.say(systemLine(s.id, "status", fields{"status": "compacting"}))
	k := &compaction{Overhead: t.overhead()}
	k.Cleared = oldResults(s.conv.messages)
	summary := ""
	if must || k.size(s.conv.messages) > limit*3/4 {
		var ok bool
		if summary, ok = t.summarize(ctx, k, limit); !ok {
			t.say(systemLine(s.id, "status", fields{"status": nil, "compact_result": "failed"}))
			return nil
		}
	}
	after := k.size(s.conv.messages)
	about := fields{"trigger": "auto", "pre_tokens": before, "post_tokens": after, "duration_ms": time.Since(start).Milliseconds()}
	t.say(systemLine(s.id, "status", fields{"status": nil, "compact_result": "success"}))
	id := newUUID()
	if err := s.record(systemLine(s.id, "compact_boundary", fields{"uuid": id, "compact_metadata": about, "nestor_compaction": k})); err != nil {
		return err
	}
	t.say(systemLine(s.id, "compact_boundary", fields{"uuid": id, "compact_metadata": about}))
	s.hookPostCompact(ctx, summary)
	if h := s.hookStart(ctx, "compact"); len(h.contexts) > 0 && ctx.Err() == nil {
		return s.record(userLine(s.id, []json.RawMessage{textBlock(reminder(strings.Join(h.contexts, "\n")))}, fields{"isSynthetic": true}))
	}
	return nil
}

// overhead estimates what every request has besides the conversation.
func (t *turn) overhead() int {
	n := len(t.s.set.Instructions)
	for _, raw := range t.offered {
		n += len(raw)
	}
	return n / 4
}

// size estimates the tokens of the conversation behind the boundary.
func (k *compaction) size(messages []message) int {
	if k.Messages != nil {
		messages = k.Messages
	}
	n := k.Overhead
	for _, m := range messages {
		for _, raw := range clearResults(m.Content, k.Cleared) {
			n += estimate(raw)
		}
	}
	return n
}

// oldResults returns the calls whose results can be dropped.
func oldResults(messages []message) (calls []string) {
	for _, m := range messages[:max(len(messages)-keptMessages, 0)] {
		for _, raw := range m.Content {
			var b block
			if len(raw) > smallResult && json.Unmarshal(raw, &b) == nil && b.Type == "tool_result" {
				calls = append(calls, b.ToolUseID)
			}
		}
	}
	return calls
}

// summarize makes k one whose older part is a summary, and returns that.
func (t *turn) summarize(ctx context.Context, k *compaction, limit int) (string, bool) {
	all := t.s.conv.messages
	at := tail(all, limit/4)
	if at == 0 {
		at = len(all) // one message fills it all: nothing can stay as it is
	}
	old := all[:at]
	for {
		a, f, err := t.try(ctx, func(model string) *request {
			c := newConversation(nil)
			for _, m := range old {
				if m.Role == "user" {
					c.user(clearResults(m.Content, k.Cleared))
				} else {
					c.assistant(m.Model, spokenOnly(m.Content))
				}
			}
			c.user([]json.RawMessage{textBlock(summaryPrompt)})
			r := newRequest(model, t.maxTokens(), t.s.set.Instructions, t.offered, c.messages)
			if len(r.Tools) > 0 {
				r.ToolChoice = map[string]string{"type": "none"}
			}
			return r
		}, func(json.RawMessage) {}, func(*answer, json.RawMessage) {})
		if err != nil || ctx.Err() != nil {
			return "", false
		}
		if f != nil && f.tooLong() && len(old) > 2 {
			old = old[len(old)/2:] // better half a memory than none
			continue
		}
		text := ""
		if f == nil {
			k.Model, k.Usage = a.model, a.tokens.wire()
			text = summaryOf(a)
		}
		if text == "" {
			return "", false
		}
		k.Messages = append([]message{{Role: "user", Content: []json.RawMessage{textBlock(summaryIntro + text + summaryOutro)}}}, all[at:]...)
		k.Cleared = nil
		return text, true
	}
}

// summaryOf returns the summary in an answer.
func summaryOf(a *answer) string {
	text := ""
	for _, raw := range a.blocks {
		var b block
		if json.Unmarshal(raw, &b) == nil && b.Type == "text" {
			text += b.Text
		}
	}
	if m := summaryTags().FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return strings.TrimSpace(text)
}

// tail returns where the newest part begins that has no more than so many
// tokens, or as little as can be: with an answer, or with what the user said
// without results of calls before it.
func tail(messages []message, size int) int {
	at, n := len(messages), 0
	for i := len(messages) - 1; i >= 0; i-- {
		for _, raw := range messages[i].Content {
			n += estimate(raw)
		}
		if n > size && at < len(messages) {
			break
		}
		if messages[i].Role == "assistant" || !slices.ContainsFunc(messages[i].Content, isResult) {
			at = i
		}
	}
	return at
}

func isResult(raw json.RawMessage) bool {
	var b block
	return json.Unmarshal(raw, &b) == nil && b.Type == "tool_result"
}
