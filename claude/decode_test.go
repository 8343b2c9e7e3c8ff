package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// mustDecode decodes line to a message of type T or ends the test.
func mustDecode[T Message](t *testing.T, line string) T {
	t.Helper()
	m, err := Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want, ok := m.(T)
	if !ok {
		t.Fatalf("decoded to %T", m)
	}
	return want
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %#v, want %#v", what, got, want)
	}
}

// Items 147, 153, 154, 164: every kind has its Go type, carries its header and its
// raw line, and what has no type is Unknown.
func TestDecodeEveryKind(t *testing.T) {
	for _, sample := range samples {
		t.Run(sample.name, func(t *testing.T) {
			m, err := Decode([]byte(sample.line))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "type", reflect.TypeOf(m), reflect.TypeOf(sample.want))
			var head struct {
				Type      string
				Subtype   string
				UUID      string
				SessionID string `json:"session_id"`
			}
			if err := json.Unmarshal([]byte(sample.line), &head); err != nil {
				t.Fatal(err)
			}
			h := m.Head()
			equal(t, "Type", h.Type, head.Type)
			equal(t, "Subtype", h.Subtype, head.Subtype)
			equal(t, "UUID", h.UUID, head.UUID)
			equal(t, "SessionID", h.SessionID, head.SessionID)
			equal(t, "Mismatch", h.Mismatch, "")
			equal(t, "Raw", string(m.Raw()), sample.line)
		})
	}
}

// A sample names every field of its type with a value that is not zero, so a
// zero field is one that the decoder forgot. The big types are tested one by
// one.
func TestDecodeForgetsNoField(t *testing.T) {
	for _, sample := range samples {
		switch sample.want.(type) {
		case *Assistant, *User, *Result, *StreamEvent, *Unknown:
			continue
		}
		t.Run(sample.name, func(t *testing.T) {
			m, err := Decode([]byte(sample.line))
			if err != nil {
				t.Fatal(err)
			}
			notZero(t, reflect.TypeOf(m).Elem().Name(), reflect.ValueOf(m).Elem())
		})
	}
}

// mayBeZero lists fields that their sample cannot set.
var mayBeZero = map[string]bool{
	"ControlProgress.ErrorStatus":     true, // null
	"ModelRefusalFallback.RequestID":  true, // null
	"Status.CompactResult":            true, // only after a compaction
	"Status.CompactError":             true,
	"SessionState.HostOnly":           true, // internal
	"FilesPersisted.Files[0].Error":   true,
	"FilesPersisted.Failed[0].FileID": true,
}

func notZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.IsZero() && !mayBeZero[path] {
		t.Errorf("%s is zero", path)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Header" {
				notZero(t, path+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Index(0).Kind() == reflect.Struct {
			notZero(t, path+"[0]", v.Index(0))
		}
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			notZero(t, path, v.Elem())
		}
	}
}

// Items 117, 163, 183: what is not one JSON object with a string type is an
// error that keeps the line and the cause.
func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct{ name, line, want string }{
		{"empty", ``, "not a JSON object"},
		{"blank", ` `, "not a JSON object"},
		{"array", `[]`, "not a JSON object"},
		{"string", `"type"`, "not a JSON object"},
		{"no type", `{"subtype":"init"}`, `no string "type"`},
		{"null type", `{"type":null}`, `no string "type"`},
		{"number type", `{"type":1}`, `no string "type"`},
		{"overruled type", `{"type":"user","type":1}`, `no string "type"`},
		{"cut", `{"type":"user","message":{"role":"us`, "string without end at byte"},
		{"two", `{"type":"user"}{"type":"user"}`, "more after the object at byte 15"},
		{"trailing comma", `{"type":"user",}`, "want a key"},
		{"missing comma", `{"type":"user" "a":1}`, "want comma or }"},
		{"missing colon", `{"type" "user"}`, "want a colon"},
		{"raw newline", "{\"type\":\"us\ner\"}", "control character"},
		{"bad escape", `{"type":"\x"}`, "bad escape"},
		{"bad number in unknown field", `{"type":"user","x":01}`, "want comma or }"},
		{"bad word in unknown field", `{"type":"user","x":nul}`, "want null"},
		{"too deep", `{"type":"x","a":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`, "nested too deep"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := Decode([]byte(test.line))
			if m != nil {
				t.Errorf("message %T beside the error", m)
			}
			e, ok := errors.AsType[*DecodeError](err)
			if !ok {
				t.Fatalf("error is %T: %v", err, err)
			}
			if !strings.Contains(e.Err.Error(), test.want) {
				t.Errorf("cause is %q, want %q", e.Err, test.want)
			}
			if !strings.HasPrefix(err.Error(), "decoding message: "+e.Err.Error()) || errors.Unwrap(err) != e.Err {
				t.Errorf("error is %q", err)
			}
			if !strings.HasPrefix(test.line, string(e.Line)) || len(e.Line) != min(len(test.line), maxErrorLine) {
				t.Errorf("line is %q", e.Line)
			}
		})
	}
}

// Items 162, 165, 166: what the Python SDK refuses is delivered, typed as far
// as it goes, and says what is wrong.
func TestDecodeMismatch(t *testing.T) {
	for _, test := range []struct{ name, line, want string }{
		{"item 165: user without message", `{"type":"user"}`, "message: missing"},
		{"item 165: user with null message", `{"type":"user","message":null}`, "message: missing"},
		{"item 165: assistant without message", `{"type":"assistant","session_id":"s"}`, "message: missing"},
		{"item 165: result without subtype", `{"type":"result","is_error":false}`, "subtype: missing"},
		{"item 162: reset without id", `{"type":"conversation_reset"}`, "new_conversation_id: missing"},
		{"item 166: user block is no object", `{"type":"user","message":{"content":["x"]}}`, "content: want content block, got string"},
		{"item 166: assistant block is no object", `{"type":"assistant","message":{"content":[null]}}`, "content: want content block, got null"},
		{"content is a number", `{"type":"assistant","message":{"content":5}}`, "content: want array, got number"},
		{"usage is a string", `{"type":"assistant","message":{"content":[],"usage":"much"}}`, "usage: want object, got string"},
		{"uuid is a boolean", `{"type":"keep_alive","uuid":true}`, "uuid: want string, got boolean"},
		{"half a turn", `{"type":"result","subtype":"success","num_turns":1.5}`, "num_turns: want whole number, got number"},
		{"the first one counts", `{"type":"result","subtype":"success","num_turns":[],"result":{}}`, "num_turns: want number, got array"},
		{"null is absent", `{"type":"result","subtype":"success","num_turns":null,"result":null,"usage":null,"modelUsage":null,"errors":null,"permission_denials":null,"is_error":null,"origin":null,"structured_output":null}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := mustDecode[Message](t, test.line)
			if _, unknown := m.(*Unknown); unknown && m.Head().Type != "keep_alive" {
				t.Error("message lost its type")
			}
			equal(t, "Mismatch", m.Head().Mismatch, test.want)
		})
	}
}

// Whatever a newer CLI puts into a field, the message keeps its Go type and
// its other fields.
func TestDecodeSurvivesAnyField(t *testing.T) {
	odd := []any{nil, "x", 5, -1.5, 1e300, true, []any{}, map[string]any{}, []any{1, "a", nil, []any{}, map[string]any{"type": 1}}, map[string]any{"": 1, "type": []any{}}}
	for _, sample := range samples {
		var object map[string]any
		if err := json.Unmarshal([]byte(sample.line), &object); err != nil {
			t.Fatal(err)
		}
		check := func(path string, value any) {
			line, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Decode(line)
			if err != nil {
				t.Fatalf("%s: %s = %v: %v", sample.name, path, value, err)
			}
			h := m.Head()
			if reflect.TypeOf(m) != reflect.TypeOf(sample.want) || path != "uuid" && object["uuid"] != nil && h.UUID != object["uuid"] {
				t.Errorf("%s: %s = %v: decoded to %T %+v", sample.name, path, value, m, h)
			}
		}
		var walk func(path string, node any)
		walk = func(path string, node any) {
			switch node := node.(type) {
			case map[string]any:
				node["of_tomorrow"] = odd[8]
				check(path+".of_tomorrow", odd[8])
				delete(node, "of_tomorrow")
				for key, value := range node {
					if path == "" && (key == "type" || key == "subtype") {
						continue
					}
					for _, node[key] = range odd {
						check(strings.TrimPrefix(path+"."+key, "."), node[key])
					}
					node[key] = value
					walk(path+"."+key, value)
				}
			case []any:
				for i, value := range node {
					for _, node[i] = range odd {
						check(path+"[]", node[i])
					}
					node[i] = value
					walk(path+"[]", value)
				}
			}
		}
		walk("", object)
	}
}

func TestDecodeTypedAsFarAsPossible(t *testing.T) {
	m := mustDecode[*Result](t, `{"type":"result","subtype":"success","duration_ms":"long","result":"done","total_cost_usd":1.5,"num_turns":2e1}`)
	equal(t, "Result", m.Result, "done")
	equal(t, "TotalCostUSD", m.TotalCostUSD, 1.5)
	equal(t, "NumTurns", m.NumTurns, 20)
	equal(t, "Duration", m.Duration, 0)
	equal(t, "Mismatch", m.Mismatch, "duration_ms: want number, got string")
}

func TestDecodeLastDuplicateWins(t *testing.T) {
	m := mustDecode[*Status](t, `{"type":"user","subtype":"init","status":"a","type":"system","status":"b","subtype":"status"}`)
	equal(t, "Status", m.Status, "b")
	line := `{"type":"text","text":"a","type":"thinking","thinking":"b"}`
	u := mustDecode[*User](t, `{"type":"user","message":{"content":[`+line+`]}}`)
	b, ok := u.Content[0].(*UnknownBlock)
	if !ok || b.Type != "thinking" || string(b.Raw) != line {
		t.Errorf("block of two types is %#v", u.Content[0])
	}
}

// Blocks that nest without end must cost no more than their length.
func TestDecodeNestedBlocks(t *testing.T) {
	const depth = 3000
	line := `{"type":"user","message":{"content":` +
		strings.Repeat(`[{"content":`, depth) + `"x"` + strings.Repeat(`,"type":"tool_result","tool_use_id":"t"}]`, depth) + `}}`
	m := mustDecode[*User](t, line)
	equal(t, "Mismatch", m.Mismatch, "")
	levels := 0
	for content := m.Content; ; levels++ {
		result, ok := content[0].(*ToolResult)
		if !ok {
			equal(t, "innermost", content[0].(*UnknownBlock).Type, "tool_result")
			break
		}
		content = result.Content
	}
	if levels == 0 || levels > maxBlockDepth {
		t.Errorf("%d levels of blocks", levels)
	}
}

func TestDecodeTypeAnywhere(t *testing.T) {
	m := mustDecode[*Status](t, ` { "session_id" : "s" , "status" : "requesting" , "subtype" : "status" , "\u0074ype" : "system" } `)
	equal(t, "Status", m.Status, "requesting")
	equal(t, "SessionID", m.SessionID, "s")
}

func TestDecodeDoesNotKeepTheLine(t *testing.T) {
	line := []byte(samples[0].line)
	m, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	clear(line)
	equal(t, "Text", m.(*Assistant).Text(), "I'll look at the failing test first, then at the code it covers.")
	raw := m.Raw()
	clear(raw)
	equal(t, "Raw", string(m.Raw()), samples[0].line)
}

func TestPeek(t *testing.T) {
	for _, sample := range samples {
		equal(t, sample.name, peek([]byte(sample.line)), mustDecode[Message](t, sample.line).Head().Type)
	}
	equal(t, "type last", peek([]byte(`{"request":{"type":"x"},"type":"control_request"}`)), "control_request")
	equal(t, "escaped", peek([]byte(`{"type":"us\u0065r"}`)), "user")
	equal(t, "escaped quote", peek([]byte(`{"type":"system\"x"}`)), `system"x`)
	equal(t, "broken", peek([]byte(`{"type":`)), "")
	equal(t, "no type", peek([]byte(`{}`)), "")
	line := []byte(`{"type":"control_request","request_id":"r"}`)
	if n := testing.AllocsPerRun(10, func() { peek(line) }); n != 0 {
		t.Errorf("peek allocates %v times", n)
	}
}

// FuzzDecode: Decode never panics, never returns nil and nil, accepts exactly
// the objects that encoding/json accepts and that have a string type, and reads
// the same strings.
func FuzzDecode(f *testing.F) {
	for _, sample := range samples {
		f.Add([]byte(sample.line))
	}
	for _, line := range recordedLines(f) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"type":"user","uuid":"\ud800\udc00 \ud800 \udc00\ud800 \u00e9 é` + "\xff\xc3" + ` \"\\\/\b\f\n\r\t"}`))
	f.Add([]byte(`{"type":"x","a":[1,-0.5e+3,true,false,null,{"b":[]}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Decode(line)
		if (m == nil) == (err == nil) {
			t.Fatalf("message %v, error %v", m, err)
		}
		var object map[string]json.RawMessage
		valid := json.Unmarshal(line, &object) == nil && bytes.HasPrefix(object["type"], []byte{'"'})
		if valid != (err == nil) {
			t.Fatalf("encoding/json accepts: %v, error %v", valid, err)
		}
		if !valid {
			return
		}
		h := m.Head()
		for key, got := range map[string]string{
			"type": h.Type, "subtype": h.Subtype, "uuid": h.UUID, "session_id": h.SessionID,
		} {
			var want string
			if json.Unmarshal(object[key], &want) == nil && got != want {
				t.Errorf("%s = %q, want %q", key, got, want)
			}
		}
		if a, ok := m.(*Assistant); ok {
			sameText(t, a, object["message"])
		}
		peek(line)
	})
}

// sameText compares the text of an assistant's message with what encoding/json
// finds in it.
func sameText(t *testing.T, m *Assistant, raw json.RawMessage) {
	var message map[string]json.RawMessage
	var blocks []map[string]json.RawMessage
	if json.Unmarshal(raw, &message) != nil || json.Unmarshal(message["content"], &blocks) != nil || m.Mismatch != "" {
		return
	}
	if len(blocks) != len(m.Content) {
		t.Fatalf("%d blocks, want %d", len(m.Content), len(blocks))
	}
	for i, block := range blocks {
		var typ, text string
		json.Unmarshal(block["type"], &typ)
		json.Unmarshal(block["text"], &text)
		if got, ok := m.Content[i].(*Text); ok && (typ != "text" || got.Text != text) {
			t.Errorf("block %d is %#v, want %s %q", i, m.Content[i], typ, text)
		}
	}
}
