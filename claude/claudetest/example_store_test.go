package claudetest_test

import (
	"testing"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// A test of a store of your own: here, of the one that writes files.
func ExampleTestStore() {
	var t *testing.T // that of the test
	claudetest.TestStore(t, func(t *testing.T) claude.Store {
		return &claude.DirStore{Root: t.TempDir()}
	})
}
