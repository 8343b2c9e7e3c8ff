package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dfaf701a/nestor"
)

// Command is something that has to be done for a run: one of the types below.
// Each may be done more than once.
type Command interface{ command() string }

// Enqueue puts an attempt into the queue of tasks.
type Enqueue struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at,omitzero"`     // zero means at once
	Again   bool      `json:"again,omitempty"` // it may have been put there before, and taken out
}

// Tell gives an input to another run.
type Tell struct {
	Run   nestor.ID
	Input Input
}

// SetTimer gives the run a Timer at some time.
type SetTimer struct {
	At    time.Time `json:"at"`
	Timer Timer     `json:"timer"`
}

// Emit appends an event of the run to the log.
type Emit struct{ Event nestor.Event }

func (Enqueue) command() string  { return "enqueue" }
func (Tell) command() string     { return "tell" }
func (SetTimer) command() string { return "timer" }
func (Emit) command() string     { return "emit" }

// envelope is how inputs and commands are written: with their type.
type envelope struct {
	Type string          `json:"type"`
	Run  nestor.ID       `json:"run,omitempty"` // of Tell
	Body json.RawMessage `json:"body"`
}

func inputType(in Input) string {
	switch in.(type) {
	case Submit:
		return "submit"
	case Spawn:
		return "spawn"
	case Start:
		return "start"
	case Release:
		return "release"
	case Report:
		return "report"
	case Note:
		return "note"
	case Write:
		return "write"
	case Collect:
		return "collect"
	case Finish:
		return "finish"
	case Cancel:
		return "cancel"
	case Timer:
		return "timer"
	case ChildEnded:
		return "child_ended"
	case Watch:
		return "watch"
	case RunEnded:
		return "run_ended"
	case AskPerson:
		return "ask"
	case AnswerAsk:
		return "answer"
	}
	panic(fmt.Sprintf("plan: input of type %T", in)) // a type of this package that has no name
}

// EncodeInput writes an input as JSON.
func EncodeInput(in Input) ([]byte, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("input %s: %w", inputType(in), err)
	}
	return appendEnvelope(nil, inputType(in), nil, body), nil
}

// appendEnvelope appends an envelope, whose run, if it has one, and body are JSON.
// Commands are written with each change of a run, and encoding/json would read all of
// them once more.
func appendEnvelope(data []byte, kind string, run, body []byte) []byte {
	data = append(append(append(data, `{"type":"`...), kind...), '"')
	if run != nil {
		data = append(append(data, `,"run":`...), run...)
	}
	return append(append(append(data, `,"body":`...), body...), '}')
}

// DecodeInput reads what EncodeInput wrote.
func DecodeInput(data []byte) (Input, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("input %.80q: %w", data, err)
	}
	switch e.Type {
	case "submit":
		return decodeAs[Submit](e)
	case "spawn":
		return decodeAs[Spawn](e)
	case "start":
		return decodeAs[Start](e)
	case "release":
		return decodeAs[Release](e)
	case "report":
		return decodeAs[Report](e)
	case "note":
		return decodeAs[Note](e)
	case "write":
		return decodeAs[Write](e)
	case "collect":
		return decodeAs[Collect](e)
	case "finish":
		return decodeAs[Finish](e)
	case "cancel":
		return decodeAs[Cancel](e)
	case "timer":
		return decodeAs[Timer](e)
	case "child_ended":
		return decodeAs[ChildEnded](e)
	case "watch":
		return decodeAs[Watch](e)
	case "run_ended":
		return decodeAs[RunEnded](e)
	case "ask":
		return decodeAs[AskPerson](e)
	case "answer":
		return decodeAs[AnswerAsk](e)
	}
	return nil, fmt.Errorf("input of type %.40q: this version does not know it", e.Type)
}

func decodeAs[T Input](e envelope) (Input, error) {
	var in T
	if err := json.Unmarshal(e.Body, &in); err != nil {
		return nil, fmt.Errorf("input %s: %w", e.Type, err)
	}
	return in, nil
}

// Commands is a list of commands that can be kept as JSON.
type Commands []Command

// MarshalJSON writes the commands with their types.
func (list Commands) MarshalJSON() ([]byte, error) {
	data := []byte{'['}
	for i, c := range list {
		var run, body []byte
		var err error
		switch c := c.(type) {
		case Tell:
			if run, err = json.Marshal(c.Run); err == nil {
				body, err = EncodeInput(c.Input)
			}
		case Emit:
			body, err = nestor.EncodeEvent(c.Event)
		default:
			body, err = json.Marshal(c)
		}
		if err != nil {
			return nil, err
		}
		if i > 0 {
			data = append(data, ',')
		}
		data = appendEnvelope(data, c.command(), run, body)
	}
	return append(data, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (list *Commands) UnmarshalJSON(data []byte) error {
	var all []envelope
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("commands: %w", err)
	}
	*list = make(Commands, len(all))
	for i, e := range all {
		var c Command
		var err error
		switch e.Type {
		case "enqueue":
			var enqueue Enqueue
			err = json.Unmarshal(e.Body, &enqueue)
			c = enqueue
		case "timer":
			var timer SetTimer
			err = json.Unmarshal(e.Body, &timer)
			c = timer
		case "tell":
			tell := Tell{Run: e.Run}
			tell.Input, err = DecodeInput(e.Body)
			c = tell
		case "emit":
			var emit Emit
			emit.Event, err = nestor.DecodeEvent(e.Body)
			c = emit
		default:
			err = fmt.Errorf("command of type %.40q: this version does not know it", e.Type)
		}
		if err != nil {
			return err
		}
		(*list)[i] = c
	}
	return nil
}
