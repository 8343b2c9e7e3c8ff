//go:build !unix

package workspace

import "path/filepath"

const dontWait = 0

// toSlash writes the target of a link as archives do.
func toSlash(target string) string { return filepath.ToSlash(target) }
