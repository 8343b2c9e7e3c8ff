package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// questionTool is the tool with which Claude asks the user. Its calls arrive
// as permission requests, and the answers go back in its input.
const questionTool = "AskUserQuestion"

// Questions is what Claude wants to know from the user: one to four questions
// that belong together.
type Questions struct {
	Items []Question

	ToolUseID string
	AgentID   string          // the subagent that asks; empty for the main loop
	Raw       json.RawMessage // the tool's input as the CLI sent it
}

// Question is one question with its prepared answers. The user may also answer
// in other words.
type Question struct {
	Text    string   `json:"question"`
	Header  string   `json:"header"` // a word or two
	Options []Choice `json:"options"`
	Multi   bool     `json:"multiSelect"` // more than one answer may be given
}

// Choice is a prepared answer.
type Choice struct {
	Label       string `json:"label"`
	Description string `json:"description"`
	Preview     string `json:"preview"` // see Options.QuestionPreview
}

// Answers is what the user said.
type Answers struct {
	// Picks holds the answers to Items[i] at i: the label of a choice or the
	// user's own words, more than one only for a Multi question.
	Picks [][]string
	// Notes holds remarks on Items[i] at i. It may be shorter, and empty.
	Notes []string
}

func decodeQuestions(r *PermissionRequest) (*Questions, error) {
	var input struct {
		Questions []Question `json:"questions"`
	}
	if err := json.Unmarshal(r.Input, &input); err != nil {
		return nil, fmt.Errorf("reading questions to the user: %w", err)
	}
	return &Questions{Items: input.Questions, ToolUseID: r.ToolUseID, AgentID: r.AgentID, Raw: r.Input}, nil
}

// answer has the user answer the questions in r.
func (o *Options) answer(ctx context.Context, r *PermissionRequest) (Decision, error) {
	q, err := decodeQuestions(r)
	if err != nil {
		return nil, err
	}
	a, err := o.OnQuestion(ctx, q)
	if err != nil {
		return nil, err
	}
	if a == nil {
		return Deny{Message: "the user declined to answer"}, nil
	}
	input, err := a.fill(q)
	if err != nil {
		return nil, err
	}
	return Allow{Input: input}, nil
}

// fill returns the tool's input with the answers in it.
func (a *Answers) fill(q *Questions) (json.RawMessage, error) {
	if len(a.Picks) != len(q.Items) || len(a.Notes) > len(q.Items) {
		return nil, fmt.Errorf("answering %d questions: there are %d picks and %d notes", len(q.Items), len(a.Picks), len(a.Notes))
	}
	type annotation struct {
		Notes string `json:"notes"`
	}
	answers := map[string]string{}
	annotations := map[string]annotation{}
	for i, item := range q.Items {
		picks := a.Picks[i]
		if len(picks) == 0 || len(picks) > 1 && !item.Multi {
			return nil, fmt.Errorf("answering %q: there are %d answers", item.Text, len(picks))
		}
		answers[item.Text] = strings.Join(picks, ", ")
		if i < len(a.Notes) && a.Notes[i] != "" {
			annotations[item.Text] = annotation{a.Notes[i]}
		}
	}
	var input map[string]json.RawMessage
	err := json.Unmarshal(q.Raw, &input)
	set := func(key string, value any) {
		raw, failed := json.Marshal(value)
		err = errors.Join(err, failed)
		input[key] = raw
	}
	if err == nil {
		set("answers", answers)
	}
	if err == nil && len(annotations) > 0 {
		set("annotations", annotations)
	}
	if err != nil {
		return nil, fmt.Errorf("answering questions: %w", err)
	}
	return json.Marshal(input)
}
