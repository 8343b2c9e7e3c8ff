package claude

import (
	"testing"
	"time"
)

func TestStreamEvent(t *testing.T) {
	decode := func(t *testing.T, event string) *StreamEvent {
		m := mustDecode[*StreamEvent](t, `{"type":"stream_event","event":`+event+`,"parent_tool_use_id":"p","ttft_ms":2}`)
		equal(t, "parent", m.ParentToolUseID, "p")
		equal(t, "TTFT", m.TTFT, 2*time.Millisecond)
		equal(t, "Event", string(m.Event()), event)
		equal(t, "Mismatch", m.Mismatch, "")
		return m
	}
	for _, test := range []struct {
		delta string
		want  Delta
	}{
		{`{"type":"text_delta","text":"a\n"}`, Delta{Kind: "text_delta", Text: "a\n"}},
		{`{"type":"input_json_delta","partial_json":"{\"a\":"}`, Delta{Kind: "input_json_delta", PartialJSON: `{"a":`}},
		{`{"type":"thinking_delta","thinking":"t","estimated_tokens":5}`, Delta{Kind: "thinking_delta", Thinking: "t", EstimatedTokens: 5}},
		{`{"type":"thinking_delta","thinking":"t","estimated_tokens":null}`, Delta{Kind: "thinking_delta", Thinking: "t"}},
		{`{"type":"signature_delta","signature":"s"}`, Delta{Kind: "signature_delta", Signature: "s"}},
		{`{"type":"delta_of_tomorrow","x":[]}`, Delta{Kind: "delta_of_tomorrow"}},
	} {
		m := decode(t, `{"type":"content_block_delta","index":3,"delta":`+test.delta+`}`)
		equal(t, "Kind", m.Kind, EventContentBlockDelta)
		equal(t, "Index", m.Index, 3)
		got := m.Delta
		if got.Citation != nil {
			t.Errorf("citation %s", got.Citation)
		}
		equal(t, "text", got.Kind+got.Text+got.PartialJSON+got.Thinking+got.Signature, test.want.Kind+test.want.Text+test.want.PartialJSON+test.want.Thinking+test.want.Signature)
		equal(t, "tokens", got.EstimatedTokens, test.want.EstimatedTokens)
	}
	m := decode(t, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"a":1}}}`)
	equal(t, "Citation", string(m.Delta.Citation), `{"a":1}`)

	m = decode(t, `{"type":"message_start","message":{"id":"msg","model":"m","usage":{"input_tokens":7}}}`)
	equal(t, "start", m.Kind+m.MessageID+m.Model, "message_startmsgm")
	equal(t, "usage", m.Usage.InputTokens, 7)

	m = decode(t, `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"Bash","input":{}}}`)
	equal(t, "block", m.Block.(*ToolUse).Name, "Bash")

	m = decode(t, `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}`)
	equal(t, "stop", m.StopReason, "tool_use")
	equal(t, "usage", m.Usage.OutputTokens, 9)

	for _, kind := range []string{EventContentBlockStop, EventMessageStop, EventPing, "event_of_tomorrow"} {
		equal(t, "Kind", decode(t, `{"type":"`+kind+`"}`).Kind, kind)
	}
}
