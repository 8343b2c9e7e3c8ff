package claude

import (
	"encoding/json"
	"testing"
)

func TestElicitation(t *testing.T) {
	raw := json.RawMessage(`{"subtype":"elicitation","mcp_server_name":"s","message":"m","mode":"url","url":"u","elicitation_id":"i",
		"requested_schema":{"type":"object"},"property_order":["a"],"title":"t","display_name":"d","description":"e"}`)
	e, err := decodeElicitation(raw)
	if err != nil {
		t.Fatal(err)
	}
	unread(t, "elicitation", raw, e)
	if e.Server != "s" || e.Mode != ElicitURL || e.ID != "i" || e.PropertyOrder[0] != "a" || string(e.Raw) != string(raw) {
		t.Errorf("got %+v", e)
	}
	for want, reply := range map[string]*ElicitationReply{
		`{"action":"decline"}`:                    nil,
		`{"action": "decline"}`:                   {},
		`{"action":"cancel"}`:                     {Action: ElicitCancel},
		`{"action":"accept","content":{"a":"b"}}`: {Action: ElicitAccept, Content: json.RawMessage(`{"a":"b"}`)},
	} {
		got, err := encodeElicitation(reply)
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, got, want)
	}
	for _, reply := range []ElicitationReply{
		{Action: ElicitDecline, Content: json.RawMessage(`{}`)},
		{Action: ElicitAccept, Content: json.RawMessage(`7`)},
	} {
		if got, err := encodeElicitation(&reply); err == nil {
			t.Errorf("%+v became %s", reply, got)
		}
	}
}

func TestDialog(t *testing.T) {
	d, err := decodeDialog(json.RawMessage(`{"subtype":"request_user_dialog","dialog_kind":"k","payload":{"a":1},"tool_use_id":"u"}`))
	if err != nil || d.Kind != "k" || string(d.Payload) != `{"a":1}` || d.ToolUseID != "u" {
		t.Errorf("got %+v, %v", d, err)
	}
	if got, err := encodeDialog(nil); got != nil || err != nil {
		t.Errorf("without a reply: %s, %v", got, err)
	}
	for want, reply := range map[string]DialogReply{
		`{"behavior":"cancelled"}`:                      {},
		`{"behavior":"completed","result":{"retry":1}}`: {Result: json.RawMessage(`{"retry":1}`)},
	} {
		got, err := encodeDialog(&reply)
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, got, want)
	}
}
