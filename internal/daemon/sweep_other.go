//go:build !linux

package daemon

// sweep does nothing where the environment of other processes cannot be read.
func sweep(string) int { return 0 }
