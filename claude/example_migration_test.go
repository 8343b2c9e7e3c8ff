package claude_test

import (
	"context"
	"fmt"

	"github.com/dfaf701a/nestor/claude"
)

// fixTest is the example of docs/claude-sdk.md.
func fixTest(ctx context.Context) error {
	opts := claude.Options{
		Dir:            "/repo",
		SystemPrompt:   claude.SystemPrompt{ClaudeCode: true},
		AutoApprove:    []string{"Read", "Bash(go test *)"},
		PermissionMode: claude.ModeAcceptEdits,
	}
	for msg, err := range claude.Query(ctx, "Fix the failing test.", opts) {
		if err != nil {
			return err
		}
		if m, ok := msg.(*claude.Result); ok {
			fmt.Println(m.Result, m.TotalCostUSD)
		}
	}
	return nil
}

// The usual options: Claude Code's own prompt, rules for what needs no
// question, and a mode for the rest.
func ExampleOptions() {
	if err := fixTest(context.Background()); err != nil {
		fmt.Println(err)
	}
}
