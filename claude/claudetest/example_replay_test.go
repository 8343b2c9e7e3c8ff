package claudetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// A conversation with the real CLI, recorded once and had again.
func ExampleReplay() {
	path, env := claudetest.Replay("../testdata/transcripts/text.txtar")
	opts := claude.Options{Path: path, Env: env}
	for msg, err := range claude.Query(context.Background(), "hello", opts) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Result); ok {
			fmt.Println(m.Result)
		}
	}
	// Output: You said: hello
}
