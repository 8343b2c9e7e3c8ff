package claude

import (
	"context"
	"encoding/json"
	"strconv"
)

// InterruptReceipt tells what an interrupt left to do. A CLI that does not have
// the capability "interrupt_receipt_v1" sends an empty one. Only messages with
// a uuid are listed, and some may be the CLI's own.
type InterruptReceipt struct {
	Reply
	StillQueued []string `json:"still_queued"` // uuids of messages that will still run
	Cancelled   []string `json:"cancelled"`    // uuids of messages that will not
}

// Interrupt stops the running turn, which still ends with a result of its own.
// Messages that wait for their turn run afterwards. It also ends background
// tasks, unless Options.PerTaskStop says that the host stops them one by one.
func (s *Session) Interrupt(ctx context.Context) (*InterruptReceipt, error) {
	return ask[InterruptReceipt](ctx, s, "interrupt", nil)
}

// InterruptAll is [Session.Interrupt] that also cancels the messages which wait
// for their turn. A CLI without the capability "interrupt_cancel_queued_v1"
// leaves them in the queue, as the receipt then tells.
func (s *Session) InterruptAll(ctx context.Context) (*InterruptReceipt, error) {
	return ask[InterruptReceipt](ctx, s, "interrupt", struct {
		CancelQueued bool `json:"cancel_queued"`
	}{true})
}

// CancelMessage takes the user message with that uuid out of the queue. It is
// false if the message is not there: it runs already, has run, or never was.
func (s *Session) CancelMessage(ctx context.Context, uuid string) (bool, error) {
	type reply struct {
		Reply
		Cancelled bool `json:"cancelled"`
	}
	r, err := ask[reply](ctx, s, "cancel_async_message", struct {
		UUID string `json:"message_uuid"`
	}{uuid})
	return err == nil && r.Cancelled, err
}

// SetPermissionMode changes how tools are permitted, from the next tool on. A
// mode that the CLI does not know is a [*ControlError] with Code
// "invalid_mode"; it may also refuse one that the session was not started for.
func (s *Session) SetPermissionMode(ctx context.Context, mode PermissionMode) error {
	return s.call(ctx, "set_permission_mode", struct {
		Mode PermissionMode `json:"mode"`
	}{mode}, nil)
}

// SetModel changes the model, from the next call of the model on (at the end of
// the turn before CLI 2.1.212). Empty means the one that the session started
// with. A model that cannot be used is a [*ControlError].
func (s *Session) SetModel(ctx context.Context, model string) error {
	return s.call(ctx, "set_model", struct {
		Model string `json:"model,omitempty"`
	}{model}, nil)
}

// ThinkingChange is what [Session.SetThinking] changes. Zero fields stay as
// they are.
type ThinkingChange struct {
	MaxTokens      *int   // budget of thinking tokens; zero turns thinking off
	ResetMaxTokens bool   // back to the budget of the start; overrules MaxTokens
	Display        string // "summarized" or "omitted"; "highlights" for few
	ResetDisplay   bool   // back to the CLI's default; overrules Display
}

// SetThinking changes how the model thinks and how much of it is shown, from
// the next call of the model on. An error may mean that only the display was
// refused.
func (s *Session) SetThinking(ctx context.Context, change ThinkingChange) error {
	var request struct {
		MaxTokens json.RawMessage `json:"max_thinking_tokens,omitempty"`
		Display   json.RawMessage `json:"thinking_display,omitempty"`
	}
	if change.ResetMaxTokens {
		request.MaxTokens = json.RawMessage("null")
	} else if change.MaxTokens != nil {
		request.MaxTokens = json.RawMessage(strconv.Itoa(*change.MaxTokens))
	}
	if change.ResetDisplay {
		request.Display = json.RawMessage("null")
	} else if change.Display != "" {
		request.Display = json.RawMessage(strconv.Quote(change.Display))
	}
	return s.call(ctx, "set_max_thinking_tokens", request, nil)
}

// Rename sets the session's title, as a choice of the user.
func (s *Session) Rename(ctx context.Context, title string) error {
	return s.call(ctx, "rename_session", struct {
		Title  string `json:"title"`
		Source string `json:"source"`
	}{title, "host"}, nil)
}

// GenerateTitle asks a model for a title of a session so described. With
// persist the session takes it.
func (s *Session) GenerateTitle(ctx context.Context, description string, persist bool) (string, error) {
	type reply struct {
		Reply
		Title string `json:"title"`
	}
	r, err := ask[reply](ctx, s, "generate_session_title", struct {
		Description string `json:"description"`
		Persist     bool   `json:"persist,omitempty"`
	}{description, persist})
	if err != nil {
		return "", err
	}
	return r.Title, nil
}

// SetColor sets the session's accent: a color name, or "default". CLI 2.1.325
// does not support it for a host on its pipes.
func (s *Session) SetColor(ctx context.Context, color string) error {
	return s.call(ctx, "set_color", struct {
		Color string `json:"color"`
	}{color}, nil)
}

// SetHasSubscribers tells whether anybody watches what the session says. It
// matters only to a CLI that was told to hold back parts of messages, which
// then holds them longer while nobody does.
func (s *Session) SetHasSubscribers(ctx context.Context, watched bool) error {
	return s.call(ctx, "set_has_subscribers", struct {
		HasSubscribers bool `json:"has_subscribers"`
	}{watched}, nil)
}
