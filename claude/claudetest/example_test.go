package claudetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// greet is the program to test. It takes its options from its caller.
func greet(ctx context.Context, opts claude.Options, name string) (string, error) {
	for msg, err := range claude.Query(ctx, "Greet "+name+".", opts) {
		if err != nil {
			return "", err
		}
		if m, ok := msg.(*claude.Result); ok {
			return m.Result, nil
		}
	}
	return "", errors.New("there was no result")
}

// greets is the CLI that the test wants. TestMain hands it over:
//
//	func TestMain(m *testing.M) {
//		os.Exit(claudetest.Main(m, map[string]claudetest.Script{"greets": greets}))
//	}
func greets(c *claudetest.Conn) {
	c.AcceptInitialize()
	for {
		line, err := c.Next()
		if err != nil {
			return // the host has closed the input
		}
		if line.Type == "user" {
			c.Send(map[string]any{"type": "result", "subtype": "success", "result": "Hello, Ada."})
		}
	}
}

// A test of a program, without the CLI, a network or an account.
func ExampleFake() {
	path, env := claudetest.Fake("greets")
	text, err := greet(context.Background(), claude.Options{Path: path, Env: env}, "Ada")
	fmt.Println(text, err)
	// Output: Hello, Ada. <nil>
}
