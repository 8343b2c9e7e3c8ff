package claude

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestUser(t *testing.T) {
	t.Run("item 135: text and uuid", func(t *testing.T) {
		m := mustDecode[*User](t, `{"type":"user","uuid":"u1","message":{"role":"user","content":[{"type":"text","text":"hi"}]}}`)
		equal(t, "Text", m.Text(), "hi")
		equal(t, "UUID", m.UUID, "u1")
	})
	t.Run("item 136: origin", func(t *testing.T) {
		for _, content := range []string{`"hi"`, `[{"type":"text","text":"hi"}]`} {
			m := mustDecode[*User](t, `{"type":"user","message":{"content":`+content+`},"origin":{"kind":"peer","from":"a","name":"b","new":[1]}}`)
			equal(t, "Text", m.Text(), "hi")
			equal(t, "origin", m.Origin.Kind+m.Origin.From+m.Origin.Name, "peerab")
			equal(t, "Human", m.Origin.Human(), false)
			equal(t, "unknown keys", string(m.Origin.Raw()), `{"kind":"peer","from":"a","name":"b","new":[1]}`)
		}
		all := mustDecode[*User](t, `{"type":"user","message":{},"origin":{"kind":"human","server":"1","from":"2","fromMode":"3","fromSession":"4","name":"5","body":"6","senderTaskId":"7","verifiedPeerPid":8,"subkind":"9","fireReason":"10","runId":"11"}}`).Origin
		all.raw = ""
		equal(t, "all", *all, Origin{"human", "1", "2", "3", "4", "5", "6", "7", 8, "9", "10", "11", ""})
		equal(t, "Human", all.Human(), true)
	})
	t.Run("item 137: no origin", func(t *testing.T) {
		for _, origin := range []string{`null`, `"human"`, `[]`, `{}`, `{"from":"x"}`, `{"kind":null}`} {
			m := mustDecode[*User](t, `{"type":"user","message":{"content":"x"},"origin":`+origin+`}`)
			if m.Origin != nil || m.Origin.Human() {
				t.Errorf("%s is an origin", origin)
			}
		}
	})
	t.Run("item 138: mixed blocks keep their order", func(t *testing.T) {
		m := mustDecode[*User](t, `{"type":"user","message":{"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"n","input":{}},{"tool_use_id":"t","type":"tool_result","content":"out","is_error":true},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"tool_result","tool_use_id":"t3"},{"type":"text","text":"b"}]}}`)
		equal(t, "Text", m.Text(), "ab")
		equal(t, "call", m.Content[1].(*ToolUse).Name, "n")
		results := m.ToolResults()
		equal(t, "results", len(results), 3)
		equal(t, "first", results[0].ToolUseID+results[0].Text(), "tout")
		equal(t, "first is error", results[0].IsError, true)
		equal(t, "second", results[1].Text(), "x")
		equal(t, "image", results[1].Content[1].(*Image).Source, Source{Type: "base64", MediaType: "image/png", Data: "AAAA"})
		equal(t, "third", len(results[2].Content), 0)
	})
	t.Run("item 139: inside a subagent", func(t *testing.T) {
		m := mustDecode[*User](t, `{"type":"user","message":{"content":"x"},"parent_tool_use_id":"p","agent_id":"a","subagent_type":"b","task_description":"c"}`)
		equal(t, "parent", m.ParentToolUseID+m.AgentID+m.SubagentType+m.TaskDescription, "pabc")
	})
	t.Run("item 140: tool_use_result", func(t *testing.T) {
		for _, content := range []string{`"x"`, `[{"type":"tool_result","tool_use_id":"t","content":"x"}]`} {
			m := mustDecode[*User](t, `{"type":"user","message":{"content":`+content+`},"tool_use_result":{"filePath":"/a","structuredPatch":[{"oldStart":1}]}}`)
			equal(t, "ToolUseResult", string(m.ToolUseResult), `{"filePath":"/a","structuredPatch":[{"oldStart":1}]}`)
		}
	})
	t.Run("the rest", func(t *testing.T) {
		m := mustDecode[*User](t, `{"type":"user","message":{"content":[{"type":"document","title":"t","context":"c","source":{"type":"url","url":"https://x"}},{"type":"image","source":{"type":"file","file_id":"f"}}]},"isSynthetic":true,"isReplay":true,"priority":"next","shouldQuery":false,"client_composed":true,"timestamp":"2026","inline_pastes":["p"],"pasted_content":["q"],"file_attachments":[1],"tool_result_meta":[2]}`)
		equal(t, "flags", m.Synthetic && m.Replay && m.NoQuery && m.ClientComposed, true)
		equal(t, "texts", m.Priority+m.Timestamp+m.InlinePastes[0]+string(m.PastedContent)+string(m.FileAttachments)+string(m.ToolResultMeta), `next2026p["q"][1][2]`)
		equal(t, "document", *m.Content[0].(*Document), Document{Source: Source{Type: "url", URL: "https://x"}, Title: "t", Context: "c"})
		equal(t, "image", m.Content[1].(*Image).Source.FileID, "f")
		for _, query := range []string{`true`, `null`, `"no"`} {
			equal(t, "NoQuery of "+query, mustDecode[*User](t, `{"type":"user","message":{},"shouldQuery":`+query+`}`).NoQuery, false)
		}
	})
}

func TestUserMessageWireForm(t *testing.T) {
	png, err := NewImage([]byte("\x89PNG\r\n\x1a\n!"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		m    UserMessage
		want string
	}{
		{"text", UserMessage{Text: "hi\n\u2028"}, `{"type":"user","message":{"role":"user","content":"hi\n\u2028"},"parent_tool_use_id":null,"session_id":""}`},
		{"everything", UserMessage{Text: "look", Blocks: []Block{png, NewPDF([]byte("%PDF"))}, UUID: "u", ParentToolUseID: "p", SessionID: "s", Priority: "now", Human: true, NoQuery: true, ClientComposed: true},
			`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgoh"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}}]},"parent_tool_use_id":"p","session_id":"s","uuid":"u","priority":"now","origin":{"kind":"human"},"shouldQuery":false,"client_composed":true}`},
		{"tool result", UserMessage{Blocks: []Block{&ToolResult{ToolUseID: "t", IsError: true, Content: []Block{&Text{Text: "no"}}}, &UnknownBlock{Raw: json.RawMessage(`{"type":"new"}`)}}},
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"no"}],"is_error":true},{"type":"new"}]},"parent_tool_use_id":null,"session_id":""}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(test.m)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "wire", string(got), test.want)
			if strings.ContainsAny(string(got), "\r\n") {
				t.Error("more than one line")
			}
			back := mustDecode[*User](t, string(got))
			equal(t, "Mismatch", back.Mismatch, "")
			equal(t, "Text", back.Text(), test.m.Text)
		})
	}
}

func TestUserMessageRefuses(t *testing.T) {
	for _, test := range []struct {
		m    UserMessage
		want string
	}{
		{UserMessage{}, "no content"},
		{UserMessage{Blocks: []Block{&Thinking{}}}, "cannot send a *claude.Thinking"},
		{UserMessage{Blocks: []Block{&ToolResult{Content: []Block{&ToolUse{}}}}}, "cannot send a *claude.ToolUse"},
	} {
		if _, err := json.Marshal(test.m); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error is %v, want %q", err, test.want)
		}
	}
}

func TestNewImage(t *testing.T) {
	for data, want := range map[string]string{
		"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg",
		"GIF89a": "image/gif", "RIFF\x00\x00\x00\x00WEBP": "image/webp",
	} {
		m, err := NewImage([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "media type", m.Source.MediaType, want)
	}
	for _, data := range []string{"", "RIFF", "<svg/>", "BM"} {
		if _, err := NewImage([]byte(data)); err == nil {
			t.Errorf("%q is an image", data)
		}
	}
}
