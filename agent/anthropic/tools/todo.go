package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// todo is something that the model means to do.
type todo struct {
	Content string `json:"content"`
	Status  string `json:"status"`
	Active  string `json:"activeForm"`
}

type todoInput struct {
	Todos []todo `json:"todos"`
}

const maxTodos = 500

func (in todoInput) check() error {
	if len(in.Todos) > maxTodos {
		return inputError("TodoWrite", []string{fmt.Sprintf("There are %d todos, and %d are the most", len(in.Todos), maxTodos)})
	}
	for i, t := range in.Todos {
		switch {
		case t.Content == "" || t.Active == "":
			return inputError("TodoWrite", []string{fmt.Sprintf("The todo %d has an empty `content` or `activeForm`", i)})
		case !slices.Contains([]string{"pending", "in_progress", "completed"}, t.Status):
			return inputError("TodoWrite", []string{fmt.Sprintf("The `status` of todo %d is none of pending, in_progress, completed", i)})
		}
	}
	return nil
}

func (s *Set) todoTool() Tool {
	t := Tool{
		Name: "TodoWrite",
		Description: "Keeps a list of what is to be done, for work of several steps. Each call replaces the whole list. One todo at a " +
			"time is in_progress; mark it completed as soon as it is.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"todos":{"type":"array","description":"The updated todo list","items":{"type":"object","properties":{
"content":{"type":"string","minLength":1},
"status":{"type":"string","enum":["pending","in_progress","completed"]},
"activeForm":{"type":"string","minLength":1}
},"required":["content","status","activeForm"],"additionalProperties":false}}
},"required":["todos"],"additionalProperties":false}`),
	}
	t.Run = func(_ context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[todoInput](t, input)
		if err != nil {
			return Result{}, err
		}
		if err := in.check(); err != nil {
			return Result{}, err
		}
		s.mu.Lock()
		old := s.todos
		s.todos = in.Todos
		s.mu.Unlock()
		return Result{
			Text: "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress. " +
				"Please proceed with the current tasks if applicable",
			Data: map[string]any{"oldTodos": append([]todo{}, old...), "newTodos": in.Todos},
		}, nil
	}
	return t
}
