package claude_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/claude/claudetest"
)

func TestMain(m *testing.M) {
	code := claudetest.Main(m, map[string]claudetest.Script{
		"answers": answers,
	})
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
