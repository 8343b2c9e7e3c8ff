package claude

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

func TestRecordedPermissionRequests(t *testing.T) {
	for _, raw := range recorded(t, "can_use_tool") {
		r, err := decodePermissionRequest(raw)
		if err != nil {
			t.Fatal(err)
		}
		unread(t, "can_use_tool", raw, r)
		if r.Tool == "" || r.ToolUseID == "" || r.Input == nil || string(r.Raw) != string(raw) {
			t.Errorf("got %+v", r)
		}
		// Items 247, 248: what came goes back as it came.
		answer, err := encodeDecision(r, Allow{Updates: r.Suggestions})
		if err != nil {
			t.Fatal(err)
		}
		var sent struct {
			Suggestions json.RawMessage `json:"permission_suggestions"`
			Input       json.RawMessage `json:"input"`
		}
		if err := json.Unmarshal(raw, &sent); err != nil {
			t.Fatal(err)
		}
		want := `{"behavior":"allow","updatedInput":` + string(sent.Input) + `,"toolUseID":"` + r.ToolUseID + `"`
		if sent.Suggestions != nil {
			want += `,"updatedPermissions":` + string(sent.Suggestions)
		}
		wantJSON(t, answer, want+"}")
	}
}

func TestPermissionRequestFields(t *testing.T) {
	t.Run("items 251, 252: all of them", func(t *testing.T) {
		r, err := decodePermissionRequest(json.RawMessage(`{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"u","agent_id":"a",
			"blocked_path":"/p","decision_reason":"why","decision_reason_type":"rule","title":"t","display_name":"d","description":"e",
			"classifier_approvable":true,"suppress_always_allow_rule":true,"default_to_no":true,"requires_user_interaction":true,
			"mcp_server":{"name":"n","source":"s"},"matched_ask_rule":{"source":"s","tool_name":"Bash","rule_content":"rm"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if r.AgentID != "a" || r.BlockedPath != "/p" || r.Reason != "why" || r.ReasonType != "rule" || r.Title != "t" || r.DisplayName != "d" || r.Description != "e" ||
			!r.ClassifierApprovable || !r.NoAlwaysAllow || !r.DefaultToNo || !r.RequiresUser || *r.MCPServer != (ServerOrigin{"n", "s"}) || *r.AskRule != (AskRule{"s", "Bash", "rm"}) {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("item 251: the main thread has no agent", func(t *testing.T) {
		if r, err := decodePermissionRequest(json.RawMessage(`{"tool_name":"Bash"}`)); err != nil || r.AgentID != "" || r.Suggestions != nil {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

func TestDecisions(t *testing.T) {
	r := &PermissionRequest{Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`), ToolUseID: "u"}
	for name, tt := range map[string]struct {
		d    Decision
		want string // empty means that nothing is sent
	}{
		"item 247: allow echoes the input":   {Allow{}, `{"behavior":"allow","updatedInput":{"command":"ls"},"toolUseID":"u"}`},
		"item 250: another input":            {Allow{Input: json.RawMessage(`{"command":"pwd"}`), Class: UserTemporary}, `{"behavior":"allow","updatedInput":{"command":"pwd"},"toolUseID":"u","decisionClassification":"user_temporary"}`},
		"item 249: deny":                     {Deny{Message: "no"}, `{"behavior":"deny","message":"no","toolUseID":"u"}`},
		"item 249: deny needs no message":    {Deny{}, `{"behavior":"deny","message":"the call was denied","toolUseID":"u"}`},
		"deny ends the turn":                 {Deny{Message: "no", Interrupt: true}, `{"behavior":"deny","message":"no","interrupt":true,"toolUseID":"u"}`},
		"a pointer is a decision too":        {&Deny{Message: "no"}, `{"behavior":"deny","message":"no","toolUseID":"u"}`},
		"somebody else answers: say nothing": {Elsewhere{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := encodeDecision(r, tt.d)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if got != nil {
					t.Errorf("got %s", got)
				}
				return
			}
			wantJSON(t, got, tt.want)
		})
	}
	for name, d := range map[string]Decision{"nil": nil, "a nil pointer": (*Deny)(nil), "no object": Allow{Input: json.RawMessage(`[]`)}} {
		t.Run(name+" is an error", func(t *testing.T) {
			if got, err := encodeDecision(r, d); err == nil || got != nil {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

func TestPermissionUpdates(t *testing.T) {
	for _, update := range []string{
		`{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls *"},{"toolName":"Read"}],"behavior":"allow","destination":"localSettings"}`,
		`{"type":"setMode","mode":"acceptEdits","destination":"session"}`,
		`{"type":"addDirectories","directories":["/a"],"destination":"session"}`,
		`{"type":"addRules","rules":[],"behavior":"deny","destination":"cliArg"}`,
		`{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":null,"until":"noon"}],"behavior":"allow","destination":"session"}`,
		`{"type":"brandNew","rules":"none","extent":{"hours":3}}`,
	} {
		t.Run("item 171: "+update, func(t *testing.T) {
			var u PermissionUpdate
			if err := json.Unmarshal([]byte(update), &u); err != nil {
				t.Fatal(err)
			}
			wantJSON(t, u, update)
			wantJSON(t, []*PermissionUpdate{&u}, "["+update+"]")
		})
	}
	t.Run("item 171: made by hand", func(t *testing.T) {
		wantJSON(t, PermissionUpdate{Type: UpdateAddRules, Rules: []PermissionRule{{Tool: "Read"}}, Behavior: RuleAsk, Destination: ToProjectSettings},
			`{"type":"addRules","rules":[{"toolName":"Read"}],"behavior":"ask","destination":"projectSettings"}`)
	})
	t.Run("a change goes over what came", func(t *testing.T) {
		var u PermissionUpdate
		if err := json.Unmarshal([]byte(`{"type":"addRules","rules":[{"toolName":"Read"}],"behavior":"allow","destination":"localSettings","new":1}`), &u); err != nil {
			t.Fatal(err)
		}
		u.Destination, u.Behavior = ToSession, ""
		wantJSON(t, u, `{"type":"addRules","rules":[{"toolName":"Read"}],"destination":"session","new":1}`)
	})
	t.Run("what is no object is an error", func(t *testing.T) {
		if err := json.Unmarshal([]byte(`[7]`), new([]PermissionUpdate)); err == nil {
			t.Error("no error")
		}
	})
}

func TestWhoDecides(t *testing.T) {
	bash := &PermissionRequest{Tool: "Bash", Input: json.RawMessage(`{}`)}
	t.Run("item 253: a callback's failure is passed on", func(t *testing.T) {
		cause := errors.New("broken")
		o := Options{CanUseTool: func(context.Context, *PermissionRequest) (Decision, error) { return nil, cause }}
		if _, err := o.decide(t.Context(), bash); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nobody denies", func(t *testing.T) {
		d, err := new(Options).decide(t.Context(), bash)
		if _, ok := d.(Deny); !ok || err != nil {
			t.Errorf("got %#v, %v", d, err)
		}
	})
	t.Run("the callback decides", func(t *testing.T) {
		o := Options{CanUseTool: allowAll}
		if d, err := o.decide(t.Context(), bash); err != nil || d.(Allow).Input != nil {
			t.Errorf("got %#v, %v", d, err)
		}
	})
}
