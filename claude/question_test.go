package claude

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// recordedQuestion is the question of the recorded conversation.
func recordedQuestion(t *testing.T) *PermissionRequest {
	t.Helper()
	for _, raw := range recorded(t, "can_use_tool") {
		if r, err := decodePermissionRequest(raw); err == nil && r.Tool == questionTool {
			return r
		}
	}
	t.Fatal("no question was recorded")
	return nil
}

func TestQuestionIsAnswered(t *testing.T) {
	r := recordedQuestion(t)
	o := Options{OnQuestion: func(_ context.Context, q *Questions) (*Answers, error) {
		if len(q.Items) != 1 || q.ToolUseID != r.ToolUseID {
			t.Errorf("got %+v", q)
		}
		item := q.Items[0]
		if item.Text != "Which colour?" || item.Header != "Colour" || item.Multi || item.Options[1] != (Choice{Label: "blue", Description: "cold"}) {
			t.Errorf("got %+v", item)
		}
		return &Answers{Picks: [][]string{{item.Options[1].Label}}, Notes: []string{"really"}}, nil
	}}
	d, err := o.decide(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := encodeDecision(r, d)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, answer, `{"behavior":"allow","toolUseID":"toolu_01","updatedInput":{
		"questions":[{"question":"Which colour?","header":"Colour","options":[{"label":"red","description":"warm"},{"label":"blue","description":"cold"}],"multiSelect":false}],
		"answers":{"Which colour?":"blue"},"annotations":{"Which colour?":{"notes":"really"}}}}`)
}

func TestAnswers(t *testing.T) {
	q := &Questions{Items: []Question{{Text: "A?", Multi: true}, {Text: "B?"}}, Raw: json.RawMessage(`{"questions":[1,2],"metadata":{"source":"x"}}`)}
	t.Run("more than one, and in own words", func(t *testing.T) {
		got, err := (&Answers{Picks: [][]string{{"x", "y"}, {"something else"}}}).fill(q)
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, got, `{"questions":[1,2],"metadata":{"source":"x"},"answers":{"A?":"x, y","B?":"something else"}}`)
	})
	for name, a := range map[string]Answers{
		"too few":              {Picks: [][]string{{"x"}}},
		"none to one question": {Picks: [][]string{{"x"}, {}}},
		"two to a single one":  {Picks: [][]string{{"x"}, {"y", "z"}}},
		"too many notes":       {Picks: [][]string{{"x"}, {"y"}}, Notes: []string{"", "", ""}},
	} {
		t.Run(name+" is an error", func(t *testing.T) {
			if got, err := a.fill(q); err == nil {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestQuestionsThatNobodyAnswers(t *testing.T) {
	r := recordedQuestion(t)
	cause := errors.New("no terminal")
	for name, o := range map[string]Options{
		"the user declines":            {OnQuestion: func(context.Context, *Questions) (*Answers, error) { return nil, nil }},
		"a callback that just allows":  {CanUseTool: allowAll},
		"nobody is there":              {},
		"the user denies the question": {CanUseTool: func(context.Context, *PermissionRequest) (Decision, error) { return Deny{}, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := o.decide(t.Context(), r); err != nil {
				t.Error(err)
			} else if _, ok := d.(Deny); !ok {
				t.Errorf("got %#v", d)
			}
		})
	}
	t.Run("a failure is passed on", func(t *testing.T) {
		o := Options{OnQuestion: func(context.Context, *Questions) (*Answers, error) { return nil, cause }}
		if _, err := o.decide(t.Context(), r); !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("CanUseTool may answer by hand", func(t *testing.T) {
		o := Options{CanUseTool: func(context.Context, *PermissionRequest) (Decision, error) {
			return Allow{Input: json.RawMessage(`{"answers":{}}`)}, nil
		}}
		if d, err := o.decide(t.Context(), r); err != nil || d.(Allow).Input == nil {
			t.Errorf("got %#v, %v", d, err)
		}
	})
}
