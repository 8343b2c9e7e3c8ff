package anthropic

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestEncodedRequestIsTheJSONOfItsParts(t *testing.T) {
	odd := json.RawMessage(" {\n \"type\": \"text\", \"text\": \"<a & \\\"b\\\">\\u2028 ü\" } ")
	for name, r := range map[string]*request{
		"nothing": {Model: "m"},
		"all": {
			Model: `odd "model"`, MaxTokens: 7, Stream: true, ToolChoice: map[string]string{"type": "none"},
			System: []json.RawMessage{textBlock("be brief"), odd}, Tools: []json.RawMessage{[]byte(`{"name":"a"}`), []byte(`{"name":"b"}`)},
			Messages: []turnOf{
				{Role: "user", Content: []json.RawMessage{textBlock("one"), odd}},
				{Role: "assistant", Content: []json.RawMessage{textBlock("two")}},
				{Role: "user"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			type message struct {
				Role    string            `json:"role"`
				Content []json.RawMessage `json:"content"`
			}
			messages := []message{}
			for _, m := range r.Messages {
				messages = append(messages, message{m.Role, append([]json.RawMessage{}, m.Content...)})
			}
			want, err := json.Marshal(struct {
				Model      string            `json:"model"`
				MaxTokens  int               `json:"max_tokens"`
				System     []json.RawMessage `json:"system,omitempty"`
				Tools      []json.RawMessage `json:"tools,omitempty"`
				ToolChoice any               `json:"tool_choice,omitempty"`
				Messages   []message         `json:"messages"`
				Stream     bool              `json:"stream"`
			}{r.Model, r.MaxTokens, r.System, r.Tools, r.ToolChoice, messages, r.Stream})
			if err != nil {
				t.Fatal(err)
			}
			var is, should any
			if err := json.Unmarshal(body, &is); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if err := json.Unmarshal(want, &should); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(is, should) {
				t.Errorf("it is %s, want %s", body, want)
			}
		})
	}
}

func TestThoughtsAreKnownHoweverTheyAreWritten(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"type":"thinking","thinking":"hm","signature":"s"}`:        true,
		`{"type":"redacted_thinking","data":"x"}`:                    true,
		`{"type":"\u0074hinking","\u0074hinking":"hm"}`:              true,
		`{"type":"text","text":"I was thinking of a \u0074hinking"}`: false,
		`{"type":"text","text":"plain"}`:                             false,
		`{"type":"tool_use","id":"1","name":"Read","input":{}}`:      false,
	} {
		if is := thought(json.RawMessage(raw)); is != want {
			t.Errorf("%s: it is %v, want %v", raw, is, want)
		}
	}
}

func TestMarkedObjectKeepsWhatItHas(t *testing.T) {
	for _, raw := range []string{
		`{"type":"text","text":"a } b"}`, " {\n\"type\": \"text\" }\n", `{"a":{"b":{}}}`, `{"a":[]}`, `{"text":"\u003cb\u003e"}`,
		`{"cache_control":{"type":"older"},"a":1}`, `{"cache\u005fcontrol":null}`, `{"text":"about cache_control"}`, `{}`, ` { } `,
	} {
		var want, got map[string]any
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		want["cache_control"] = map[string]any{"type": "ephemeral"}
		marked := cached(json.RawMessage(raw))
		if err := json.Unmarshal(marked, &got); err != nil || !reflect.DeepEqual(got, want) || strings.Count(string(marked), `"cache_control":`) != 1 {
			t.Errorf("%s becomes %s (%v)", raw, marked, err)
		}
	}
	for _, raw := range []string{`[1]`, `"a}"`, `null`, ``} { // what is no object
		if marked := cached(json.RawMessage(raw)); string(marked) != raw {
			t.Errorf("%s becomes %s", raw, marked)
		}
	}
}
