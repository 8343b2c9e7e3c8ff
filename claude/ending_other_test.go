//go:build !unix

package claude_test

import "github.com/dfaf701a/nestor/claude/claudetest"

// endings are tested where there are signals.
var endings = map[string]claudetest.Script{}
