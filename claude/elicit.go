package claude

import (
	"encoding/json"
	"fmt"
)

// Elicitation is what an MCP server wants to know from the user: a form to
// fill in, or a page to visit.
type Elicitation struct {
	Server        string          `json:"mcp_server_name"`
	Message       string          `json:"message"`
	Mode          ElicitationMode `json:"mode"`             // empty means a form
	URL           string          `json:"url"`              // the page to visit
	ID            string          `json:"elicitation_id"`   // names it when the page is done
	Schema        json.RawMessage `json:"requested_schema"` // of the form
	PropertyOrder []string        `json:"property_order"`   // of the form's fields
	Title         string          `json:"title"`
	DisplayName   string          `json:"display_name"`
	Description   string          `json:"description"`

	Raw json.RawMessage `json:"-"` // the request as the CLI sent it
}

// ElicitationMode is how an [Elicitation] is answered.
type ElicitationMode string

// The modes of an elicitation.
const (
	ElicitForm ElicitationMode = "form"
	ElicitURL  ElicitationMode = "url"
)

// ElicitationAction is what the user did with an [Elicitation].
type ElicitationAction string

// The actions of a user.
const (
	ElicitAccept  ElicitationAction = "accept"
	ElicitDecline ElicitationAction = "decline"
	ElicitCancel  ElicitationAction = "cancel"
)

// ElicitationReply answers an [Elicitation].
type ElicitationReply struct {
	Action  ElicitationAction `json:"action"`            // empty means that the user declines
	Content json.RawMessage   `json:"content,omitempty"` // the form, an object; only with accept
}

func decodeElicitation(raw json.RawMessage) (*Elicitation, error) {
	e := &Elicitation{Raw: raw}
	if err := json.Unmarshal(raw, e); err != nil {
		return nil, fmt.Errorf("reading an elicitation: %w", err)
	}
	return e, nil
}

// encodeElicitation returns the answer for the CLI; nil declines.
func encodeElicitation(r *ElicitationReply) (json.RawMessage, error) {
	reply := ElicitationReply{Action: ElicitDecline}
	if r != nil && r.Action != "" {
		reply = *r
	}
	if reply.Content != nil && (reply.Action != ElicitAccept || !isObject(reply.Content)) {
		return nil, fmt.Errorf("answering an elicitation with %s: the content has to be a JSON object, and goes with %s only", reply.Action, ElicitAccept)
	}
	return json.Marshal(reply)
}

// Dialog is a question of the CLI itself that a host may draw. The CLI sends
// only the kinds named in Options.DialogKinds.
type Dialog struct {
	Kind      string          `json:"dialog_kind"`
	Payload   json.RawMessage `json:"payload"`     // what it shows depends on Kind
	ToolUseID string          `json:"tool_use_id"` // the tool call that opened it; may be empty

	Raw json.RawMessage `json:"-"` // the request as the CLI sent it
}

// DialogReply answers a [Dialog]: with a result, or, when that is nil, by
// closing it.
type DialogReply struct {
	Result json.RawMessage
}

func decodeDialog(raw json.RawMessage) (*Dialog, error) {
	d := &Dialog{Raw: raw}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("reading a dialog: %w", err)
	}
	return d, nil
}

// encodeDialog returns the answer for the CLI. It is nil, and nothing is to be
// sent, when r is nil: another host may draw the dialog.
func encodeDialog(r *DialogReply) (json.RawMessage, error) {
	type reply struct {
		Behavior string          `json:"behavior"`
		Result   json.RawMessage `json:"result,omitempty"`
	}
	switch {
	case r == nil:
		return nil, nil
	case r.Result == nil:
		return json.Marshal(reply{Behavior: "cancelled"})
	default:
		return json.Marshal(reply{"completed", r.Result})
	}
}
