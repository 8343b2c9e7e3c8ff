//go:build unix

package workspace

import "syscall"

// dontWait opens a pipe that took the place of a file without waiting for its
// other end.
const dontWait = syscall.O_NONBLOCK

// toSlash is for targets of links, which are not rewritten here: a backslash is
// a character like any other.
func toSlash(target string) string { return target }
