//go:build !unix

package agentfile_test

import "testing"

func makePipe(t *testing.T, name string) {
	t.Helper()
	t.Skipf("there are no named pipes such as %s here", name)
}
