package claude_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/dfaf701a/nestor/claude"
)

// CanUseTool is asked about what neither rules nor the mode have decided.
func ExampleOptions_canUseTool() {
	opts := demo("runs a command")
	opts.PermissionMode = claude.ModeDefault // whatever the user's settings say
	opts.CanUseTool = func(ctx context.Context, r *claude.PermissionRequest) (claude.Decision, error) {
		fmt.Printf("May %s run with %s?\n", r.Tool, r.Input)
		if strings.Contains(string(r.Input), "rm ") {
			return claude.Deny{Message: "nothing is removed here"}, nil
		}
		return claude.Allow{}, nil
	}
	for msg, err := range claude.Query(context.Background(), "Clean up.", opts) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok {
			fmt.Println(m.Text())
		}
	}
	// Output:
	// May Bash run with {"command":"rm -r build"}?
	// I may not: nothing is removed here
}

// OnQuestion stands for the user whom Claude asks.
func ExampleOptions_onQuestion() {
	opts := demo("asks")
	opts.OnQuestion = func(ctx context.Context, q *claude.Questions) (*claude.Answers, error) {
		a := &claude.Answers{}
		for _, item := range q.Items {
			fmt.Println(item.Text)
			a.Picks = append(a.Picks, []string{item.Options[0].Label})
		}
		return a, nil
	}
	for msg, err := range claude.Query(context.Background(), "Set up the project.", opts) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok {
			fmt.Println(m.Text())
		}
	}
	// Output:
	// Which database?
	// Then I take SQLite.
}

// A hook for the tools that write. It hears nothing of the others.
func ExampleHooks() {
	opts := demo("uses tools")
	opts.Hooks.PreToolUse = []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
		Match: claude.Tool("Write", "Edit"),
		Func: func(ctx context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
			var file struct {
				Path string `json:"file_path"`
			}
			if err := json.Unmarshal(in.ToolInput, &file); err != nil {
				return nil, err
			}
			if strings.HasPrefix(file.Path, "/etc/") {
				return &claude.PreToolUseOutput{Permission: claude.HookDeny, PermissionReason: "not in /etc"}, nil
			}
			return nil, nil // no opinion
		},
	}}
	printAnswers(claude.Query(context.Background(), "Add a host.", opts))
	// Output:
	// Read ran
	// Write was denied: not in /etc
}

// A gate hears of every tool call, also those that a rule or the mode allows.
func ExampleGateEveryCall() {
	opts := demo("uses tools")
	opts.AutoApprove = []string{"Read", "Write"}
	opts.Hooks.PreToolUse = []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{
		claude.GateEveryCall(func(ctx context.Context, in *claude.PreToolUseInput) (claude.Decision, error) {
			if in.Tool == "Read" {
				return claude.Elsewhere{}, nil // as the rules say
			}
			return claude.Deny{Message: "this agent only reads"}, nil
		}),
	}
	printAnswers(claude.Query(context.Background(), "Add a host.", opts))
	// Output:
	// Read ran
	// Write was denied: this agent only reads
}

// printAnswers prints what Claude says.
func printAnswers(messages func(yield func(claude.Message, error) bool)) {
	for msg, err := range messages {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok {
			fmt.Println(m.Text())
		}
	}
}
